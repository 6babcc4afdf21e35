"""Guards around the policies and environments of other packages.

What a plug-in raises at a hook, or gives against its contract, becomes a sentence that names the plug-in and the hook.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from numbers import Real
from types import NoneType
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from pydantic import Field, TypeAdapter

from memrl_core.environments.base import Environment, EnvironmentSpec, StepResult
from memrl_core.environments.tasks import check_intent
from memrl_core.errors import EnvironmentFailed, MemRLError, PolicyFailed, SettingsError
from memrl_core.plugins import LONGEST, Breach, storable, words_of
from memrl_core.policies.base import Policy, PolicySpec, Written
from memrl_core.records import Decision, Judgement, MemoryOperation, RecallRecord, RewardSource, Task
from memrl_core.settings import PolicySettings

LONGEST_FOR_PEOPLE = 4_000
"""Characters of a text that people read."""
MOST_ANSWER_TOKENS = 32_768
TOLERANCE = 1e-9
KEPT = "What came before is kept; correct it, then try again, or choose another one."

Kind = TypeVar("Kind")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def guarded(
    found: type[Kind], plugin: str, failed: type[MemRLError], hooks: Mapping[str, Callable[..., Any]], **own: Any
) -> type[Kind]:
    """A subclass of `found` whose `hooks` are guarded, with `own` in the place of its attributes.

    `hooks` maps the name of each to what makes its result sound: a function of the result and of all that the hook was
    called with, which raises `Breach`. What fails is a `failed` that names the plug-in and the hook; the program's own
    errors and an interrupt pass.
    """

    def wrapped(name: str, sound: Callable[..., Any]) -> Any:
        method = inspect.getattr_static(found, name)
        function = getattr(method, "__func__", method)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return sound(function(*args, **kwargs), *args)
            except MemRLError:
                raise
            except Breach as breach:
                raise failed(f"The {plugin} broke its contract in {name}: {breach}. {KEPT}") from breach
            except (Exception, SystemExit) as error:
                raise failed(f"The {plugin} failed in {name} ({words_of(error)}). {KEPT}") from error

        return type(method)(call) if isinstance(method, (staticmethod, classmethod)) else call

    methods = {name: wrapped(name, sound) for name, sound in hooks.items()}
    made: type[Kind] = type(
        found.__name__, (found,), {"__doc__": found.__doc__, "__module__": found.__module__, **methods, **own}
    )
    return made


@contextmanager
def checked(what: str) -> Iterator[None]:
    """Within it, what fails or breaks the contract does so as an `AssertionError` about `what`: for the contracts."""
    try:
        yield
    except AssertionError:
        raise
    except Breach as breach:
        raise AssertionError(f"{what}: {breach}.") from None
    except Exception as error:
        raise AssertionError(f"{what}: {words_of(error)}.") from error


def read_again(kind: Any, given: Any, what: str = "") -> Any:
    """`given` as it will be once it was stored: written as JSON and read as `kind`. Raises `Breach` about `what`."""
    adapter = _adapter(kind)
    try:
        return adapter.validate_json(adapter.dump_json(given, warnings=False))
    except Exception as error:
        raise Breach(f"{what or shortened(given)} cannot be stored ({words_of(error)})") from error


def shortened(given: Any) -> str:
    """What was given, for the inside of a sentence."""
    return storable(repr(given)[:80])


# --- policies ---------------------------------------------------------------------------------------------------------

POLICY_HOOKS: Mapping[str, Any] = {
    name: get_type_hints(getattr(Policy, name))["return"]
    for name, member in vars(Policy).items()
    if inspect.isroutine(member) and not name.startswith("_") and name not in ("ranked", "by_similarity", "wide_recall")
}
"""The hooks of a policy and what each gives: no other type passes, and no infinite number or NaN."""


def guarded_policy(name: str, found: Any) -> type[Policy[Any]]:
    """`found` with its hooks guarded, known by `name` whatever its card says; a hook gives what the bank will hold.

    Raises `Breach` when it is no policy or could not be shown, `SettingsError` when its defaults fail.
    """
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise Breach("it is no subclass of memrl_core.policies.base.Policy")
    if not (isinstance(found.Settings, type) and issubclass(found.Settings, PolicySettings)):
        raise Breach("its `Settings` are no subclass of PolicySettings")
    if not isinstance(found.ignored, tuple | list) or not {*found.ignored} <= found.Settings.model_fields.keys():
        raise Breach("its `ignored` is no tuple of names of its settings")
    spec, plugin = sound_spec(getattr(found, "spec", None), name), f"policy “{name[:80]}”"

    def named(_: None, policy: Policy[Any], *__: Any) -> None:
        policy.spec = sound_spec(policy.spec, name)

    settings = guarded(found.Settings, plugin, SettingsError, {"of": lambda given, *_: given})
    made = guarded(found, plugin, SettingsError, {"__init__": named}, spec=spec, Settings=settings)
    made = guarded(made, plugin, PolicyFailed, {hook: functools.partial(_sound, hook) for hook in POLICY_HOOKS})
    made(made.Settings.of({}))
    return made


def sound_spec(spec: Any, name: str) -> PolicySpec:
    """A card under the name by which the policy is known. Raises `Breach` for one that cannot be shown."""
    if not isinstance(spec, PolicySpec):
        raise Breach("`spec` is no PolicySpec")
    found: PolicySpec = read_again(PolicySpec, replace(spec, name=name), "`spec`")
    if found.variant == "adapted" and not found.deviations:
        raise Breach("`spec` is called adapted and names no deviations")
    return found


def _sound(hook: str, given: Any, *called_with: Any) -> Any:
    """What a hook gave, as it is read once it was stored, if it fits what the hook was called with."""
    if POLICY_HOOKS[hook] in (Any, NoneType):
        return given
    if hook == "write":
        if not all(isinstance(one, Written) for one in given):
            raise Breach(f"{shortened(given)} is not a tuple of Written")
        return tuple(replace(one, operation=read_again(MemoryOperation, one.operation)) for one in given)
    kept: Any = read_again(POLICY_HOOKS[hook], given)
    strangers: list[str] = []
    if hook == "select" and (broken := decision_breaks(called_with[1], given)):
        raise Breach(broken)
    if hook == "forget" and (others := [one.op for one in kept if one.op != "DELETE"]):
        raise Breach(f"it gave {others[0]} instead of DELETE")
    if hook == "credited":
        strangers = [memory_id for memory_id in kept if memory_id not in called_with[1].selected]
    if hook == "update":
        strangers = [change.memory_id for change in kept if change.memory_id not in called_with[1]]
    if strangers:
        raise Breach(f"it named “{strangers[0][:80]}”, to which no reward goes")
    return kept


def decision_breaks(recalled: RecallRecord, decision: Decision) -> str:
    """What is wrong with a decision about a pool; empty when nothing is."""
    pool = {member.memory_id for member in recalled.pool}
    missed = {member.memory_id for member in recalled.left_out}
    strangers = [i for i in (*decision.selected, *decision.greedy) if i not in pool]
    if strangers:
        return f"it chose “{strangers[0][:80]}”, which is not in the pool"
    if len(set(decision.selected)) < len(decision.selected):
        return "it chose a memory twice"
    if {c.memory_id for c in decision.candidates} != pool | missed:
        return "its candidates are not the pool and what missed it"
    for candidate in decision.candidates:
        if candidate.selected != (candidate.memory_id in decision.selected):
            return f"{candidate.memory_id[:80]} is called selected in one place and not in another"
        numbers = [n for t in candidate.terms for n in (t.raw, t.normalised, t.weight, t.contribution)]
        if not np.isfinite([*numbers, candidate.score or 0.0]).all():
            return f"a number of {candidate.memory_id[:80]} is not finite"
        total = sum(term.contribution for term in candidate.terms)
        if candidate.score is not None and abs(total - candidate.score) > 1e-6 * max(1.0, abs(total)):
            return f"the terms of {candidate.memory_id[:80]} add up to {total}, its score is {candidate.score}"
    chance, log = decision.propensity, decision.log_propensity
    if decision.draw is not None and not math.isfinite(decision.draw):
        return f"it drew the number {decision.draw}"
    if not -TOLERANCE <= chance <= 1 + TOLERANCE:
        return f"the probability of its choice is {chance}"
    if log is not None and not (log <= TOLERANCE and abs(chance - math.exp(log)) <= TOLERANCE):
        return f"the probability of its order is {chance}, and its logarithm {log}"
    return ""


# --- environments -----------------------------------------------------------------------------------------------------


def guarded_environment(name: str, found: Any, taken_sets: Sequence[str] = ()) -> type[Environment]:
    """`found` with its hooks guarded, known by `name` whatever it calls itself; none of `taken_sets` may be its own.

    Raises whatever shows that it is no environment, could not be shown, or cannot be made as nothing is set.
    """
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise Breach("it is no subclass of memrl_core.environments.base.Environment")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise Breach("its name is not letters, digits, “-”, “_” and “.” only")
    for option, field in found.Options.model_fields.items():
        if not isinstance(field.get_default(), bool | int | float | str):
            raise Breach(f"the option “{option[:80]}” has no default that is a number, a text, true or false")
    found.Options.model_validate(dict(found.simulated_options))
    sets = read_again(list[str], found.sets, "`sets`")
    for one in sets:
        if sets.count(one) > 1 or one in taken_sets or storable(one, 80) != one:
            raise Breach(
                f"its set of tasks “{storable(one, 80)}” is there twice, comes with the program, or is no name"
            )
    spec = read_again(EnvironmentSpec, getattr(found, "spec", None), "`spec`")
    made = guarded(
        found,
        f"environment “{name[:80]}”",
        EnvironmentFailed,
        ENVIRONMENT_HOOKS,
        name=name,
        spec=replace(spec, answer_tokens=min(spec.answer_tokens, MOST_ANSWER_TOKENS)),
        sets=tuple(sets),
        instructions=a_text("`instructions`", getattr(found, "instructions", None)),
        reward_source=read_again(RewardSource, found.reward_source, "`reward_source`"),
    )
    if not made.missing():
        made().close()
    return made


def a_text(what: str, given: Any, longest: int = LONGEST, *, blank: bool = False) -> str:
    """A text that can be stored; nothing but spaces where it may be `blank`. Raises `Breach`."""
    if not isinstance(given, str) or not (blank or given.strip()):
        raise Breach(f"{what} is {shortened(given)} instead of a text{'' if blank else ' with something in it'}")
    return storable(given, longest)


def a_step(given: Any) -> StepResult:
    """What `step` gave. Of `info` only what people and models may read is kept: anything else could be the answer."""
    if not isinstance(given, tuple) or len(given) != 5 or not isinstance(given[4], Mapping):
        raise Breach(f"it is {shortened(given)} instead of (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = given
    if not isinstance(reward, Real) or not 0 <= float(reward) <= 1:
        raise Breach(f"the reward is {shortened(reward)} instead of a number from 0 to 1")
    ending: dict[str, Any] = {}
    if terminated or truncated:
        success, judgement = info.get("success"), info.get("judgement")
        ending["verdict"] = a_text("the verdict", info.get("verdict"), LONGEST_FOR_PEOPLE)
        ending["success"] = None if success is None else bool(success)
        if judgement is not None:
            texts = (judgement.expected, judgement.came, judgement.why)
            ending["judgement"] = Judgement(
                *(a_text("the judgement", t, LONGEST_FOR_PEOPLE, blank=True) for t in texts)
            )
    return a_text("the observation", observation, blank=True), float(reward), bool(terminated), bool(truncated), ending


def _made(_: Any, world: Any, *__: Any) -> None:
    """Make sound what an instance may have otherwise than its class, and one task otherwise than another."""
    vars(world).pop("name", None)
    world.instructions = a_text("`instructions`", world.instructions)
    world.max_turns = read_again(Annotated[int, Field(ge=1)], world.max_turns, "`max_turns`")
    world.reward_source = read_again(RewardSource, world.reward_source, "`reward_source`")


def _begun(observation: Any, world: Any, *_: Any) -> str:
    _made(None, world)
    world._turns_taken = 0
    return a_text("the observation", observation, blank=True)


def _stepped(given: Any, world: Any, *_: Any) -> StepResult:
    """The step; the last of `max_turns` ends the episode."""
    observation, reward, terminated, truncated, ending = a_step(given)
    world._turns_taken += 1
    if not (terminated or truncated) and world._turns_taken >= world.max_turns:
        success = False if world.reward_source == "environment" else None
        truncated, ending = True, {"verdict": f"Failed: not done after {world.max_turns} turns.", "success": success}
    return observation, reward, terminated, truncated, ending


def _tasks(given: Any, environment: type[Environment], *_: Any) -> list[Task]:
    tasks = [
        replace(task, intent=check_intent(task.intent), environment=environment.name)
        for task in read_again(list[Task], given, "its tasks")
    ]
    if not tasks or not all(task.id.strip("\0 ") for task in tasks) or len({task.id for task in tasks}) < len(tasks):
        raise Breach("it gave no task, one without an id, or two with the same id")
    return tasks


ENVIRONMENT_HOOKS: Mapping[str, Callable[..., Any]] = {
    "__init__": _made,
    "reset": _begun,
    "step": _stepped,
    "distil": lambda given, *_: a_text("the experience", given),
    "first_memories": lambda given, *_: [
        (a_text("an intent", intent), a_text("an experience", experience)) for intent, experience in given
    ],
    "chance": lambda given, *_: read_again(Annotated[float, Field(ge=0, le=1)] | None, given, "the chance"),
    "kind_of": lambda given, *_: a_text("the kind", given, blank=True),
    "misleading": lambda given, *_: a_text("the experience", given, blank=True),
    "close": lambda given, *_: None,
    "missing": lambda given, *_: a_text("what is missing", given, LONGEST_FOR_PEOPLE, blank=True),
    "make_tasks": _tasks,
    "faults": lambda given, *_: [
        a_text("a fault", fault, LONGEST_FOR_PEOPLE) for fault in read_again(list[str], given, "its faults")
    ],
}
"""The hooks of an environment, and what makes the result of each sound."""
