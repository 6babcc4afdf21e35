"""The runs of an experiment: memories are learned in ordinary runs, then used frozen in others that start from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent import Agent, Episode, workspace
from memrl_core.analysis.run.rates import percentiles, resampled
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled
from memrl_core.records import Phase, StepTrace, Task
from memrl_core.settings import PolicySettings

STEPS_A_WRITE = 20
USE_SEED = 1_000_000
"""Added to the seed of a use: under its own seed again, each task would meet the very luck that it was learned with."""

Progress = Callable[[int, int], None]
Memories = Mapping[str, str | None]
"""Memories by name: the run that knows each, None for no memory."""
Use = tuple[str, list[bool]]
"""A run that used a memory, and which of its tasks ended well."""


class Stopped(Exception):
    """The person stopped the experiment; what was stored stays."""


class Study:
    """What all runs of one experiment share; counts their steps.

    `name` is what the names of its runs begin with. `done` of `total` steps are over; `on_progress` gets both after
    each.
    """

    def __init__(
        self,
        bank: MemoryBank,
        kind: str,
        models: Sequence[str],
        settings: PolicySettings | None,
        preferences: workspace.Preferences | None,
        on_progress: Progress | None,
        cancelled: Cancelled | None,
    ) -> None:
        self.bank = bank
        self.name = bank.new_run_id(kind)
        self.done = self.total = 0
        self._settings = settings
        self._preferences = preferences or workspace.load_preferences()
        self._models = {model: workspace.make_model(model, self._preferences) for model in models}
        self._on_progress = on_progress
        self._cancelled = cancelled or (lambda: False)

    def learn(
        self,
        part: str,
        tasks: Sequence[Task],
        epochs: int,
        seed: int,
        model: str,
        settings: PolicySettings | None = None,
    ) -> str:
        """Go through `tasks` `epochs` times with an empty memory; the run's name. `settings` are of this run alone.

        Raises `Stopped`.
        """
        agent = self._agent(part, tasks, seed, model, None, settings=settings)
        self._played(agent, whole_step, tasks, epochs)
        return agent.run_id

    def use(
        self,
        part: str,
        tasks: Sequence[Task],
        seed: int,
        model: str,
        base: str | None,
        options: Mapping[str, Any] | None = None,
        settings: PolicySettings | None = None,
    ) -> Use:
        """Go through `tasks` once with what `base` knows (None: nothing), which stays as it is: nothing is credited,
        updated or written. `options` are the model's. The run's name, and which tasks ended well. Raises `Stopped`.
        """
        agent = self._agent(part, tasks, seed + USE_SEED, model, base, options, settings)
        traces = self._played(agent, frozen_step, tasks, 1)
        return agent.run_id, [trace.reward is not None and trace.reward.outcome == "success" for trace in traces]

    def _played(
        self, agent: Agent, play: Callable[[Agent, Task, int, Cancelled], StepTrace], tasks: Sequence[Task], epochs: int
    ) -> list[StepTrace]:
        worlds = {agent.environment.name: agent.environment}
        traces = []
        with self.bank.batch(STEPS_A_WRITE):
            for epoch in range(1, epochs + 1):
                for task in tasks:
                    name = task.environment
                    agent.environment = worlds[name] = worlds.get(name) or make_environment(name)
                    traces.append(play(agent, task, epoch, self._cancelled))
                    self._count()
        return traces

    def _agent(
        self,
        part: str,
        tasks: Sequence[Task],
        seed: int,
        model: str,
        base: str | None,
        options: Mapping[str, Any] | None = None,
        settings: PolicySettings | None = None,
    ) -> Agent:
        info = workspace.start_run(
            self.bank,
            environment=tasks[0].environment,
            tasks="",
            settings=settings or self._settings,
            seed=seed,
            model=model,
            base=base,
            run=f"{self.name}-{part}",
            model_options=options,
        )
        agent = workspace.live_run(self.bank, info.id, self._preferences).agent
        agent.model = self._models[model]
        return agent

    def _count(self) -> None:
        self.done += 1
        if self._on_progress is not None:
            self._on_progress(self.done, self.total)


def whole_step(agent: Agent, task: Task, epoch: int, cancelled: Cancelled) -> StepTrace:
    """One step from its task to its written memory. Raises `Stopped` when `cancelled()` turns true on the way."""
    return _advanced(agent, task, epoch, None, cancelled).trace


def frozen_step(agent: Agent, task: Task, epoch: int, cancelled: Cancelled) -> StepTrace:
    """One step that leaves the memory as it is: nothing is credited, updated or written. Raises `Stopped`."""
    trace = _advanced(agent, task, epoch, Phase.UPDATE, cancelled).trace
    assert trace.reward is not None
    # A reward moves the memories that it credits; UPDATE and WRITE never run.
    trace = replace(trace, reward=replace(trace.reward, credited=()))
    agent.bank.commit_step(trace, {})
    return trace


def _advanced(agent: Agent, task: Task, epoch: int, until: Phase | None, cancelled: Cancelled) -> Episode:
    episode = agent.begin(task, epoch)
    while episode.phase is not until:
        if cancelled():
            raise Stopped
        episode.advance(cancelled=cancelled)
    if until is not None and cancelled():
        raise Stopped
    return episode


def used_by_seed(
    seeds: Sequence[int],
    learn: Callable[[int], Memories],
    use: Callable[[int, str, str, str | None], Use],
    memories: Sequence[str],
    tasks: Mapping[str, int],
) -> tuple[Mapping[tuple[str, str], Arm], tuple[str, ...], bool]:
    """The arm of each of `memories` on each model or set; the runs that were learned; whether it was stopped.

    `learn(seed)` makes the memories and `use(seed, memory, on, run)` uses one. `tasks` maps each model or set to the
    number of its tasks. Only seeds that are over count.
    """
    uses: dict[tuple[str, str], list[Use]] = {(memory, on): [] for memory in memories for on in tasks}
    learning: list[str] = []
    stopped = False
    for seed in seeds:
        try:
            runs = learn(seed)
            found = {(memory, on): use(seed, memory, on, runs[memory]) for memory, on in uses}
        except Stopped:
            stopped = True
            break
        learning += [run for run in runs.values() if run is not None]
        for key, used in found.items():
            uses[key].append(used)
    arms = {(memory, on): _arm(memory, on, used, tasks[on]) for (memory, on), used in uses.items()}
    return arms, tuple(learning), stopped


def _arm(memory: str, on: str, uses: Sequence[Use], tasks: int) -> Arm:
    success = np.array([won for _, won in uses], dtype=np.float64).reshape(len(uses), tasks)
    return Arm(memory, on, tuple(run for run, _ in uses), success)


def checked_seeds(seeds: Sequence[int], epochs: int) -> list[int]:
    """`seeds` if they can be used. Raises `InputError` for none, doubles or negative ones, and for no epoch."""
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < USE_SEED for seed in seeds):
        raise InputError(f"An experiment needs seeds from 0 to {USE_SEED - 1:,}, each once. Nothing was started.")
    if epochs < 1:
        raise InputError("A memory is learned in at least one epoch. Nothing was started.")
    return list(seeds)


Floats = npt.NDArray[np.float64]


# --- what was measured, and how sure it is ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One memory, used frozen on one set of tasks or by one model, which `on` names.

    `success` (seeds, tasks) is 1 where the task ended well; `runs` are the runs in which it was used, one a seed.
    """

    memory: str
    on: str
    runs: tuple[str, ...]
    success: Floats

    @property
    def rates(self) -> Floats:
        """The success rate of each seed (seeds,)."""
        rates: Floats = self.success.mean(axis=1)
        return rates

    @property
    def n(self) -> int:
        """How many seeds there are."""
        return len(self.success)

    @property
    def mean(self) -> float | None:
        """The mean success rate; None without a seed."""
        return float(self.rates.mean()) if self.n else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation of the success rate over seeds; None for fewer than two."""
        return float(self.rates.std(ddof=1)) if self.n > 1 else None


@dataclass(frozen=True, slots=True)
class Difference:
    """The success rate with one memory minus that with another, with its 95 % interval."""

    memory: str
    other: str
    on: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class FrozenUse:
    """Memories, each used frozen by several models, or on several sets of tasks.

    `title` says what was learned and used, `across` what `Arm.on` names, and `same` is True where they are used on the
    very tasks that they were learned on. `learning` are the runs in which the memories came about. `stopped` is True
    when a person ended it: only seeds that were over by then count.
    """

    title: str
    across: str
    same: bool
    arms: tuple[Arm, ...]
    differences: tuple[Difference, ...]
    learning: tuple[str, ...]
    stopped: bool


def difference(one: Arm, other: Arm) -> Difference:
    """Two arms that met the same tasks with the same luck: the mean of the paired differences.

    Tasks and seeds are both drawn anew (Owen, 2007, the pigeonhole bootstrap): the interval covers other tasks and
    other luck, as far as the few seeds show it.
    """
    paired = one.success - other.success
    rng = np.random.default_rng(1)

    def means(tasks: Floats) -> Floats:
        seeds = rng.multinomial(one.n, np.full(one.n, 1 / one.n), size=len(tasks)).astype(np.float64)
        weighed: Floats = np.einsum("bs,st,bt->b", seeds, paired, tasks) / paired.size
        return weighed

    low, high = percentiles(resampled(paired.shape[1], means))
    return Difference(one.memory, other.memory, one.on, float(paired.mean()), float(low), float(high))
