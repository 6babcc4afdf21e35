"""Methods compared: each in a bank of its own, or all choosing from one and the same bank.

*Own bank* is the whole loop: each arm reads, learns and writes for itself. *Same bank* is the choice alone: each arm
chooses from what one run had at every step. In both, arms of equal seed meet the same tasks with the same luck.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pandas as pd

from memrl_core.agent import NO_VECTOR, workspace
from memrl_core.agent.asking import Asking
from memrl_core.agent.rerun import Rerunner
from memrl_core.agent.setup import fits
from memrl_core.analysis.compare.methods import (
    NO_MEMORY,
    MethodCurve,
    MethodRow,
    luck_curve,
    method_curves,
    method_rows,
    same_bank_rows,
)
from memrl_core.analysis.run.consultations import cost_of
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Embedder
from memrl_core.environments import make_environment
from memrl_core.environments.base import Environment
from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.cells import RUN, Cell, drawn, run_cell
from memrl_core.experiments.plan import ArmPlan, Stage, Stream, environment_of
from memrl_core.experiments.results import durations
from memrl_core.experiments.studies.study import Stopped, checked_seeds
from memrl_core.learning import effective_reward
from memrl_core.models.base import Cancelled, LanguageModel, ModelOptions
from memrl_core.policies import make_policy, settings_of, settings_that_fit
from memrl_core.policies.base import Lesson, Policy, outcome_now
from memrl_core.records import Phase, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import PolicySettings

Mode = Literal["same bank", "own bank"]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Arm:
    """One method in a comparison; `settings` None are its defaults."""

    name: str
    policy: str
    settings: PolicySettings | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """Every setting by name. Raises `SettingsError` where the policy does not have them."""
        return settings_of(self.policy, {} if self.settings is None else self.settings.model_dump()).model_dump()


@dataclass(frozen=True, slots=True, eq=False)
class MethodsCompared:
    """What became of the arms.

    `rows` are the lines of a table, in the order given, each compared with the arm `without` memory and with the
    `reference`; `curves` are their CSR by epoch and `luck` is Pass@e, in banks of their own. `steps` has a row per step
    and arm: `cells.SCHEMA`, or `seed`, `arm` and the columns of `SameBank.choose`. `refused` maps an arm that did not
    run to the sentence of why. `recorded` names who made the run that all chose from. `seeds` are those that every
    other arm has finished; `stopped` is True when a person ended it before.
    """

    mode: Mode
    model: str
    recorded: str
    seeds: tuple[int, ...]
    without: str
    reference: str
    rows: tuple[MethodRow, ...]
    curves: tuple[MethodCurve, ...]
    luck: MethodCurve | None
    steps: pd.DataFrame
    refused: Mapping[str, str]
    stopped: bool


def compare_methods(
    arms: Sequence[Arm],
    mode: Mode,
    *,
    tasks: str = "household-train",
    count: int = 30,
    seeds: Sequence[int] = range(3),
    epochs: int = 3,
    model: str = workspace.SIMULATED,
    recorded: Arm | None = None,
    preferences: workspace.Preferences | None = None,
    on_progress: Progress | None = None,
    cancelled: Cancelled | None = None,
) -> MethodsCompared:
    """Run `arms` on `count` tasks of a set (0: all), drawn anew for each seed, `epochs` times, in temporary banks.

    In the mode "same bank" the run that all choose from is made first, by `recorded` (the first arm when left out). An
    arm without memory is added where there is none. Arms that lack something in this world, and those that fail on the
    way, are refused, and the others go on. `on_progress` gets the steps done, their total, and what is being done.
    When `cancelled()` turns true, it ends within a step, and the seeds that were over count.

    Raises `InputError` or `SettingsError` for arms, tasks and seeds that cannot be used, before anything is run, and
    what the run that all choose from raises.
    """
    chosen = checked_seeds(seeds, epochs)
    preferences = preferences or workspace.load_preferences()
    stop = cancelled or (lambda: False)
    environment, arms = environment_of(tasks), _with_one_without_memory(arms)
    refused = {arm.name: why for arm in arms if (why := fits(arm.policy, environment, arm.values))}
    started = [arm for arm in arms if arm.name not in refused]
    stream, steps_an_arm = Stream(stages=[Stage(tasks=tasks, count=count)]), epochs * len(drawn(tasks, count, 0))
    maker = recorded or arms[0]
    if missing := fits(maker.policy, environment, maker.values):
        raise InputError(f"The run to choose from cannot be made by {maker.name[:80]}: {missing}")
    same = mode == "same bank"
    bar = _Bar(on_progress, len(chosen) * steps_an_arm * (len(started) + same))

    def run(arm: Arm, seed: int, uri: str) -> pd.DataFrame:
        plan = ArmPlan(name=arm.name, policy=arm.policy, settings=dict(arm.values))
        cell = Cell(arm=plan, settings=plan.settings, stream=stream, seed=seed, epochs=epochs, model=model)
        table = run_cell(cell, uri, stop, preferences, bar.count)
        return table.to_pandas().assign(model_seconds=durations([table])["model_seconds"])

    def in_its_own(seed: int, arm: Arm) -> pd.DataFrame:
        with tempfile.TemporaryDirectory(prefix="memrl-methods-") as folder:
            return run(arm, seed, f"{folder}/bank")

    def each(seed: int, do: Callable[[Arm], pd.DataFrame]) -> pd.DataFrame:
        """What `do` finds for each arm; one that fails is refused from then on."""
        parts = []
        for arm in started:
            end = bar.done + steps_an_arm
            if arm.name not in refused:
                bar.begin(f"{arm.name} · seed {seed}")
                try:
                    parts.append(do(arm).assign(arm=arm.name, seed=seed))
                except MemRLError as error:
                    refused[arm.name] = str(error)
            bar.done = end
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def from_one(seed: int) -> pd.DataFrame:
        with tempfile.TemporaryDirectory(prefix="memrl-methods-") as folder:
            bar.begin(f"{maker.name} makes the run · seed {seed}")
            run(maker, seed, f"{folder}/bank")
            with MemoryBank.open(f"{folder}/bank") as bank:
                found = _same_bank(bank, RUN, preferences)
                with closing(found.environment):
                    return each(
                        seed, lambda arm: found.choose(make_policy(arm.policy, arm.values), None, bar.count, stop)
                    )

    frames: dict[int, pd.DataFrame] = {}
    stopped = False
    for seed in chosen:
        try:
            frames[seed] = from_one(seed) if same else each(seed, partial(in_its_own, seed))
        except Stopped:
            stopped = True
            break
    running = [arm for arm in arms if arm.name not in refused]
    without = next((arm.name for arm in running if _is_without_memory(arm)), "")
    reference = running[0].name if running else ""
    rows: list[MethodRow] = []
    curves: list[MethodCurve] = []
    luck = None
    there = [frame for frame in frames.values() if not frame.empty]
    steps = pd.concat(there, ignore_index=True) if there else pd.DataFrame()
    if not steps.empty:
        steps = steps[steps["arm"].isin([arm.name for arm in running])].reset_index(drop=True)
        rows = (same_bank_rows if same else method_rows)(steps, without, reference)
        if not same:
            curves, luck = method_curves(steps), luck_curve(steps, without)
    return MethodsCompared(
        mode, model, maker.name if same else "", tuple(frames), without, reference, tuple(rows), tuple(curves), luck,
        steps, refused, stopped,
    )  # fmt: skip


class _Bar:
    """How many of `total` steps are `done`, and what is being done; reported at each change."""

    def __init__(self, report: Progress | None, total: int) -> None:
        self.done = 0
        self._total, self._doing = total, ""
        self._report = report or (lambda done, total, doing: None)

    def count(self) -> None:
        """One more step is done."""
        self.done += 1
        self._report(self.done, self._total, self._doing)

    def begin(self, doing: str) -> None:
        """Something else is done from now on."""
        self._doing = doing
        self._report(self.done, self._total, doing)


def _same_bank(bank: MemoryBank, run: str, preferences: workspace.Preferences) -> SameBank:
    info = bank.run(run)
    world = make_environment(info.environment, **info.environment_options)
    model = workspace.make_model(info.model, preferences)
    return SameBank(bank, run, model, workspace.embedder_of(bank, preferences), world)


def _is_without_memory(arm: Arm) -> bool:
    return arm.policy == NO_MEMORY or arm.values["k2"] == 0


def _with_one_without_memory(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, checked, with one without memory among them. Raises `InputError` and `SettingsError`."""
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names) or not all(0 < len(name) <= 80 for name in names):
        raise InputError("A comparison needs arms, each with a name of its own of at most 80 letters.")
    if any(_is_without_memory(arm) for arm in arms):
        return list(arms)
    name = next(name for name in ("no memory", "without memory", "nothing") if name not in names)
    return [*arms, Arm(name, NO_MEMORY)]


# --- several methods on one bank --------------------------------------------------------------------------------------


class SameBank:
    """The finished steps of a run, for methods to choose again. Steps without a prompt are passed over."""

    def __init__(
        self, bank: MemoryBank, run: str, model: LanguageModel, embedder: Embedder, environment: Environment
    ) -> None:
        self.bank, self.run = bank, run
        self.model, self.embedder, self.environment = model, embedder, environment
        self._traces = {trace.step: trace for trace in bank.traces(run)}
        self.steps = tuple(step for step, trace in self._traces.items() if trace.decision and trace.generate)

    def choose(
        self,
        policy: Policy[Any],
        steps: Collection[int] | None = None,
        on_answer: Callable[[], None] | None = None,
        cancelled: Cancelled | None = None,
    ) -> pd.DataFrame:
        """A row for each of `steps` (None: all) with what `policy` selects and what the model makes of it.

        Columns: `policy`, `badge`, `stage`, `epoch`, `step`, `task`, `family`, `success`; `recorded`, whether the run
        itself solved the step; `used`, the ids selected; `overlap`, memories in both selections as a share of those in
        either (1 where both are empty); the cost (`analysis.cost`); and its `model_seconds`.

        The policy learns from every step of the run, and of the runs that this one began from, whether it is answered
        or not. `on_answer` is called after every answer. Raises `Stopped` within a step when `cancelled()` turns true,
        and what a model or the policy raises.
        """
        watcher = _Watcher(self, policy, cancelled or (lambda: False))
        watcher.catch_up(self.run)
        wanted = set(self.steps if steps is None else steps).intersection(self.steps)
        rows = []
        for step, view in self.bank.walk(self.run):
            if step in wanted:
                rows.append(watcher.answer(self._traces[step], view))
                if on_answer is not None:
                    on_answer()
            if step in self._traces:
                watcher.learn(self._traces[step])
        return pd.DataFrame(rows)


class _Watcher:
    """A policy that watches a run, with what it has learned so far."""

    def __init__(self, same: SameBank, policy: Policy[Any], stop: Cancelled) -> None:
        self._same, self._bank, self._policy, self._stop = same, same.bank, policy, stop
        self._state = policy.start(())

    def catch_up(self, run: str) -> None:
        """Learn from what the run began with."""
        info = self._bank.run(run)
        if info.base is None or self._state is None:
            return
        self.catch_up(info.base)
        for trace in self._bank.traces(info.base, (self._bank.run(info.base).first_step, info.base_step)):
            self.learn(trace)

    def learn(self, trace: StepTrace) -> None:
        """Learn from a step as it stands now. Raises `Stopped`."""
        if self._stop():
            raise Stopped
        if self._state is None:
            return
        reward = effective_reward(self._bank.active_rewards(trace.run, trace.step, trace.id), trace.settings)
        made_by = make_policy(trace.policy, settings_that_fit(trace.policy, trace.settings).model_dump())
        lesson = Lesson(trace, reward, outcome_now(made_by, trace, reward), self._bank.embedding, self._bank.memory)
        self._policy.learn(self._state, lesson)
        self._policy.remember(self._state, lesson)

    def answer(self, trace: StepTrace, view: MemoryView) -> dict[str, Any]:
        """The row of a step answered with what the policy selects."""
        assert trace.decision is not None and trace.generate is not None
        if self._stop():
            raise Stopped
        same, policy, task = self._same, self._policy, trace.task
        observation = same.environment.reset(task, seed=trace.decision.seed, at_step=trace.step)
        asked = Asked(
            NO_VECTOR,
            task=task.id,
            intent=task.intent,
            observation=observation,
            step=trace.step,
            seed=trace.decision.seed,
        )
        asked = replace(asked, embedding=same.embedder.embed([policy.key(asked)])[0])
        view = replace(view, asked=asked, learned=self._state)
        recalled = policy.recall(asked.embedding, view)
        options = ModelOptions.model_validate(trace.generate.options)
        ask = Asking(same.model, options, Phase.SELECT, cancelled=self._stop)
        view = replace(view, asked=replace(asked, answers=policy.consult(recalled, view, ask)))
        decision = policy.select(recalled, view, trace.decision.seed)
        rerunner = Rerunner(
            self._bank, trace, same.model, same.environment, policy=policy, view=view, embed=same.embedder.embed
        )
        again = rerunner.rerun(decision.selected, cancelled=self._stop)
        if again.stopped or self._stop():
            raise Stopped
        cost = cost_of(again.generate.turns, (*ask.asked, *again.consulted))
        return {
            "policy": policy.spec.name,
            "badge": policy.spec.variant,
            "stage": 1,
            "epoch": trace.epoch,
            "step": trace.step,
            "task": task.id,
            "family": task.family,
            "success": _solved(again.outcome),
            "recorded": _solved(trace.reward.outcome if trace.reward is not None else "unrated"),
            "used": list(decision.selected),
            "overlap": _overlap(decision.selected, trace.decision.selected),
            "prompt_tokens": cost.prompt_tokens,
            "answer_tokens": cost.answer_tokens,
            "calls": cost.calls,
            "consulted": cost.consulted,
            "unparsed": cost.unparsed,
            "model_seconds": cost.seconds,
        }


def _solved(outcome: str) -> bool | None:
    return None if outcome == "unrated" else outcome == "success"


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    both, either = set(one) & set(other), set(one) | set(other)
    return len(both) / len(either) if either else 1.0
