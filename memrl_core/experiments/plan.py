"""An experiment as a person writes it down: policies × settings × task streams × seeds, in a TOML file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from memrl_core.agent.run_parts import HASHING, SIMULATED
from memrl_core.agent.setup import fits
from memrl_core.environments import environment_class, make_environment
from memrl_core.environments.tasks import environment_of, named_tasks
from memrl_core.errors import InputError, SettingsError
from memrl_core.experiments.study import USE_SEED
from memrl_core.experiments.toml_files import read_model
from memrl_core.models.base import checked_options
from memrl_core.models.hosts import MOST_AT_ONCE
from memrl_core.policies import POLICIES, make_policy, policy_class, policy_names, preset_of, settings_that_fit
from memrl_core.settings import PolicySettings, symbol

MOST_CELLS = 10_000
DEFAULT_POLICY = "memrl"
EVERY = "all"
"""In the grid, in place of names: every policy that comes with the program."""
SHIFT = "shift_at"
"""The option of environments whose world can shift."""
OF_STREAM, OF_STAGES = ("own_memories",), ("repeat", "tasks")
"""What a stream's grid may set of the stream and of its stages; all else in it is an option of the environment."""
Report = Literal[
    "accuracy", "forgetting", "correlation", "failures", "transfer", "shift", "streams", "poison", "methods",
    "environments", "windows", "conditions",
]  # fmt: skip


def _clause(error: Exception) -> str:
    """The message of an error without its frame, to stand in another sentence."""
    if isinstance(error, ValidationError):
        return str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
    return str(error).removeprefix("Settings were not changed. ").removesuffix(".")


def _model_options(chosen: dict[str, Any]) -> dict[str, Any]:
    try:
        return checked_options(chosen)
    except SettingsError as error:
        raise ValueError(_clause(error)) from None


def _policy(name: str) -> str:
    if name not in policy_names():
        raise ValueError(f"there is no policy “{name[:80]}”. Allowed: {', '.join(policy_names())}")
    _settings(name)
    return name


def _set_of_tasks(name: str) -> str:
    try:
        named_tasks(name)
    except InputError as error:
        raise ValueError(_clause(error)) from None
    return name


ModelChoices = Annotated[dict[str, Any], AfterValidator(_model_options)]
PolicyName = Annotated[str, AfterValidator(_policy)]
SetName = Annotated[str, AfterValidator(_set_of_tasks)]
Values = Annotated[list[Any], Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Poison(_Part):
    """Malicious memories that are put into a run: similar to its tasks, labelled a success, and always a failure.

    They come in after the share `after` of all epochs, `memories` of them, each with the intent of one of the tasks and
    the utility `q`.
    """

    after: float = Field(0.4, ge=0, le=1, description="Share of the epochs after which they come in.")
    memories: int = Field(6, ge=1, le=1000, description="How many.")
    q: float = Field(0.0, ge=-10, le=10, description="The utility that they come in with.")


class Prune(_Part):
    """Forget what has proved bad: memories with a q below `q_below` after at least `visits` updates."""

    after: float = Field(0.7, ge=0, le=1, description="Share of the epochs after which memories are forgotten.")
    q_below: float = Field(0.0, ge=-10, le=10)
    visits: int = Field(1, ge=0, le=1000)


class ArmPlan(_Part):
    """One way to run the agent: a policy and its settings, and what is done to its memory on the way.

    `settings` stand over those of the policy's `preset`, where one is named, and both over the plan's.
    """

    name: str = Field(min_length=1, max_length=80)
    policy: PolicyName = DEFAULT_POLICY
    preset: str = ""
    settings: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    model_options: ModelChoices = Field(default_factory=dict, description="Over those of the experiment.")
    poison: Poison | None = None
    prune: Prune | None = None

    @field_validator("preset")
    @classmethod
    def _one_of_its_own(cls, preset: str, before: ValidationInfo) -> str:
        presets = policy_class(before.data["policy"]).presets if "policy" in before.data else {preset: {}}
        if preset and preset not in presets:
            raise ValueError(f"no preset of {before.data['policy']}; allowed: {', '.join(presets) or 'none'}")
        return preset

    @field_validator("settings")
    @classmethod
    def _its_own(cls, settings: dict[str, Any], before: ValidationInfo) -> dict[str, Any]:
        if "policy" not in before.data or "preset" not in before.data:
            return settings
        _must_be_in_all(settings, [before.data["policy"]])
        return {**preset_of(before.data["policy"], before.data["preset"]), **settings}


class Stage(_Part):
    """One set of tasks, gone through `epochs` times (None: as often as the experiment says).

    `fresh` makes every epoch take other tasks, `count` of them, so that nothing is ever met again. With `repeat` each
    of them is, with that chance, one of an earlier epoch after all.
    """

    tasks: SetName = "household-train"
    count: int = Field(0, ge=0, description="How many tasks, drawn anew for each seed; 0 takes all.")
    epochs: int | None = Field(None, ge=1, le=1000)
    fresh: bool = False
    repeat: float = Field(0, ge=0, le=1, description="Of fresh tasks: the chance that one was met in an earlier epoch.")

    @field_validator("repeat")
    @classmethod
    def _of_fresh_tasks(cls, repeat: float, before: ValidationInfo) -> float:
        if repeat and not before.data.get("fresh"):
            raise ValueError("without fresh = true every task comes in every epoch; leave repeat out, or add fresh")
        return repeat


class Stream(_Part):
    """What an agent meets, stage after stage with one memory; between stages the memory is used frozen.

    All sets are for one environment, made with `options`. From each step of `shift_at` on its world is another. After
    each stage every set of `evaluate` is gone through once with the memory as it is: nothing is credited, updated or
    written. Without `own_memories` no arm recalls memories of the very task that is asked.
    """

    name: str = Field("household", min_length=1, max_length=80)
    stages: list[Stage] = Field(default_factory=lambda: [Stage(count=60)], min_length=1)
    options: dict[str, Any] = Field(default_factory=dict, description="Of the environment, such as noise.")
    shift_at: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    own_memories: bool = Field(True, description="Whether memories of the task that is asked may be recalled.")
    evaluate: list[str] = Field(default_factory=list)
    evaluate_count: int = Field(0, ge=0, description="How many tasks of each set; 0 takes all.")

    @field_validator("evaluate")
    @classmethod
    def _sets_are_there(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError("a set is listed twice; each is used once after a stage")
        return [_set_of_tasks(name) for name in names]

    @model_validator(mode="after")
    def _one_world(self) -> Self:
        worlds = {environment_of(name) for name in (*(stage.tasks for stage in self.stages), *self.evaluate)}
        if len(worlds) > 1:
            raise ValueError(f"sets for {' and '.join(sorted(worlds))} in one stream; give each its own stream")
        if self.shift_at and SHIFT not in environment_class(self.environment).Options.model_fields:
            raise ValueError(
                f"these tasks are for {self.environment}, which cannot shift; the household and the helpdesk can"
            )
        if SHIFT in self.options:
            raise ValueError(f"{SHIFT} stands in the stream itself, not among the options of its environment")
        try:
            make_environment(self.environment, **self.options)
        except InputError as error:
            raise ValueError(f"options: {_clause(error)}") from None
        return self

    @property
    def environment(self) -> str:
        """The environment of its tasks."""
        return environment_of(self.stages[0].tasks)


class _Conditions(BaseModel):
    """A stream of a file that stands for several: one for each combination of its `grid`, named by its values."""

    model_config = ConfigDict(extra="allow")

    grid: dict[str, Values]
    stages: list[dict[str, Any]] = [{}]
    options: dict[str, Any] = {}

    def streams(self) -> list[dict[str, Any]]:
        """Every combination. Raises `ValueError` with the name of one that cannot be run, and why."""
        found = []
        for chosen in _combined(self.grid):
            name = " · ".join(f"{key} {value}" for key, value in chosen.items())
            own, of_stages = (
                {key: chosen.pop(key) for key in keys if key in chosen} for keys in (OF_STREAM, OF_STAGES)
            )
            stages = [{**stage, **of_stages} for stage in self.stages]
            options = {**self.options, **chosen}
            one = {**(self.model_extra or {}), **own, "name": name[:80], "stages": stages, "options": options}
            try:
                Stream.model_validate(one)
            except ValidationError as error:
                raise ValueError(f"{name}: {_clause(error)}") from None
            found.append(one)
        return found


class Plan(_Part):
    """One experiment.

    `settings` hold for every arm whose policy has them. `grid` maps "policy", or settings that all of its policies
    have, to values (`policy = ["all"]`: every policy that comes with the program); every combination is an arm, besides
    those of `arms`. Cells are arms × streams × seeds; arms of
    equal stream and seed meet the same tasks with the same luck, so they are compared in pairs.

    A stream of the file may have a `grid` too: it maps options of its environment, `own_memories`, and `repeat` and
    `tasks` of its stages, to values, and every combination is a stream of its own.
    """

    title: str = Field(min_length=1, max_length=200)
    question: str = ""
    seeds: int = Field(10, ge=1, le=1000)
    first_seed: int = Field(0, ge=0, le=USE_SEED - 1000, description="The first seed; the others follow it.")
    epochs: int = Field(10, ge=1, le=1000)
    model: str = SIMULATED
    model_options: ModelChoices = Field(default_factory=dict, description="Options of the model, such as temperature.")
    model_hosts: list[str] = Field(default_factory=list, description="Hosts that have the model; any of them is asked.")
    per_host: int = Field(1, ge=1, le=MOST_AT_ONCE, description="How many answers at once at each host.")
    embedder: str = Field(HASHING, description="What embeds the intents, such as wordllama.")
    report: list[Report] = Field(["accuracy"], min_length=1)
    compare_with: str = Field("", description="The arm that all others are compared with; the first when left out.")
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    arms: list[ArmPlan] = Field(default_factory=list)
    # After the arms, because their policies say which settings there are.
    settings: dict[str, Any] = Field(default_factory=dict)
    streams: list[Stream] = Field(default_factory=lambda: [Stream()], min_length=1)

    @field_validator("streams", mode="before")
    @classmethod
    def _every_condition(cls, streams: Any) -> Any:
        found: list[Any] = []
        for stream in streams if isinstance(streams, list) else ():
            try:
                grid = isinstance(stream, dict) and "grid" in stream
                found += _Conditions.model_validate(stream).streams() if grid else [stream]
            except ValueError as error:
                raise ValueError(f"grid: {_clause(error)}") from None
        return found if isinstance(streams, list) else streams

    @field_validator("grid")
    @classmethod
    def _can_be_combined(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if empty := [name for name, values in grid.items() if not values]:
            raise ValueError(f"{empty[0]}: the list is empty; give at least one value")
        if grid.get("policy") == [EVERY]:
            grid = {**grid, "policy": list(POLICIES)}
        _combined(grid)
        policies = [_policy(str(policy)) for policy in grid.get("policy", [DEFAULT_POLICY])]
        for name, values in grid.items():
            for value in values if name != "policy" else ():
                _must_be_in_all({name: value}, policies)
        return grid

    @field_validator("settings")
    @classmethod
    def _for_some_arm(cls, settings: dict[str, Any], before: ValidationInfo) -> dict[str, Any]:
        if "grid" in before.data and "arms" in before.data:
            policies = dict.fromkeys(arm.policy for arm in _all_arms(before.data["arms"], before.data["grid"]))
            for name, value in settings.items():
                having = [policy for policy in policies if name in _settings(policy)]
                if not having:
                    known = dict.fromkeys(one for policy in policies for one in _settings(policy))
                    raise ValueError(f"there is no setting “{name[:80]}”. Allowed: {', '.join(known)}")
                _must_be_in_all({name: value}, having)
        return settings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        arms = self.all_arms()
        for stage in (stage for stream in self.streams for stage in stream.stages if stage.fresh):
            needed, there = stage.count * (stage.epochs or self.epochs), len(named_tasks(stage.tasks))
            if not 0 < needed <= there:
                raise ValueError(
                    f"streams: fresh tasks need a count, and count × epochs of them; {stage.tasks} has {there:,}"
                )
        for arm in arms:
            where = "arms" if arm in self.arms else "grid" if self.grid else "settings"
            try:
                settings = self.settings_of(arm).model_dump()
                make_policy(arm.policy, settings)
            except SettingsError as error:
                raise ValueError(f"{where}: arm “{arm.name}”: {_clause(error)}") from None
            worlds = dict.fromkeys(stream.environment for stream in self.streams)
            if arm.poison is not None and (others := [s.environment for s in self.streams if not _misleads(s)]):
                raise ValueError(f"{where}: arm “{arm.name}”: memories of the world {others[0]} cannot be poisoned")
            for environment in worlds:
                if missing := fits(arm.policy, environment, settings):
                    raise ValueError(f"{where}: arm “{arm.name}”: {missing.removesuffix('.')}")
        for what, names in (("arms", [arm.name for arm in arms]), ("streams", [s.name for s in self.streams])):
            if len(set(names)) < len(names):
                raise ValueError(f"{what}: two have the same name; each needs its own")
        if self.compare_with and self.compare_with not in [arm.name for arm in arms]:
            raise ValueError(
                f"compare_with: there is no arm “{self.compare_with}”. Allowed: {', '.join(arm.name for arm in arms)}"
            )
        if self.cells > MOST_CELLS:
            raise ValueError(f"seeds: these are more than {MOST_CELLS:,} cells; ask for fewer arms, streams or seeds")
        return self

    def all_arms(self) -> list[ArmPlan]:
        """The arms of `arms`, then every combination of `grid`; MemRL as it is when there are none."""
        return _all_arms(self.arms, self.grid)

    def all_seeds(self) -> range:
        """The seeds, in order."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def settings_of(self, arm: ArmPlan) -> PolicySettings:
        """The settings that an arm runs under: the plan's, where its policy has them, and its own over them.

        Raises `SettingsError`.
        """
        return settings_that_fit(arm.policy, {**self.settings, **arm.settings})

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.all_arms()) * len(self.streams) * self.seeds

    @property
    def reference(self) -> str:
        """The arm that the others are compared with."""
        return self.compare_with or self.all_arms()[0].name


def read_plan(
    path: Path,
    *,
    seeds: int | None = None,
    first_seed: int | None = None,
    epochs: int | None = None,
    model: str | None = None,
    streams: Sequence[str] = (),
) -> Plan:
    """The experiment of a TOML file; `seeds`, `first_seed`, `epochs` (of the stages, too) and `model` replace those of
    the file.

    With `streams` only the streams of these names are run. Raises `InputError` with line, key and what is allowed.
    """
    plan = read_model(path, Plan)
    known = [stream.name for stream in plan.streams]
    if unknown := [name for name in streams if name not in known]:
        raise InputError(
            f"{path} has no stream {', '.join(unknown)}. Nothing was started; its streams are {', '.join(known)}."
        )
    chosen = plan.model_dump()
    given = {"seeds": seeds, "first_seed": first_seed, "epochs": epochs, "model": model}
    chosen |= {key: value for key, value in given.items() if value is not None}
    if streams:
        chosen["streams"] = [stream for stream in chosen["streams"] if stream["name"] in streams]
    if epochs is not None:
        for stage in (stage for stream in chosen["streams"] for stage in stream["stages"]):
            stage["epochs"] = None
    if chosen == plan.model_dump():
        return plan
    try:
        return Plan.model_validate(chosen)
    except ValidationError as error:
        message = ": ".join([*map(str, error.errors()[0]["loc"]), _clause(error)])
        raise InputError(f"The experiment cannot run like this: {message}. Nothing was started.") from None


def _misleads(stream: Stream) -> bool:
    """Whether the environment of a stream knows misleading memories of its tasks."""
    world = environment_class(stream.environment)
    return all(world.misleading(named_tasks(stage.tasks)[0]) for stage in stream.stages)


def _combined(grid: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    """Every combination of the values of a grid. Raises `ValueError` for too many."""
    if math.prod(map(len, grid.values())) > MOST_CELLS:
        raise ValueError(f"these are more than {MOST_CELLS:,} combinations; give fewer values")
    return (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))


def _all_arms(arms: Sequence[ArmPlan], grid: Mapping[str, Sequence[Any]]) -> list[ArmPlan]:
    combined = []
    for chosen in _combined(grid) if grid else ():
        policy = str(chosen.pop("policy", DEFAULT_POLICY))
        symbols = {name: symbol(name, policy_class(policy).Settings) for name in chosen}
        parts = [policy] * ("policy" in grid) + [f"{symbols[name]} = {value}" for name, value in chosen.items()]
        combined.append(ArmPlan(name=", ".join(parts)[:80], policy=policy, settings=chosen))
    return [*arms, *combined] or [ArmPlan(name="MemRL")]


def _settings(policy: str) -> Mapping[str, Any]:
    try:
        return policy_class(policy).Settings.model_fields
    except SettingsError as error:
        raise ValueError(_clause(error)) from None


def _must_be_in_all(settings: Mapping[str, Any], policies: Sequence[str]) -> None:
    """Raise `ValueError` for a setting that one of the policies lacks, or a value outside its range in one of them."""
    for (name, value), policy in itertools.product(settings.items(), policies):
        field: Any = _settings(policy).get(name)
        if field is None:
            shared = [known for known in _settings(policy) if all(known in _settings(other) for other in policies)]
            raise ValueError(f"the policy {policy} has no setting “{name[:80]}”. Allowed: {', '.join(shared)}")
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, field])
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            message = _clause(error)
            raise ValueError(f"{name}: {message[:1].lower()}{message[1:]} (given: {value!r})") from None
