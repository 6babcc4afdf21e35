"""What a frozen memory is worth to another model, and two that were learned apart when they are merged.

Source: arXiv 2601.03192 v2, tables 5 (the memory of one model given to others) and 6 (the merged memories of two
benchmarks used on each).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memrl_core.analysis.run.metrics import percentiles, resampled
from memrl_core.environments.tasks import named_tasks
from memrl_core.errors import InputError
from memrl_core.exchange.new_banks import merge_runs
from memrl_core.experiments.report_table import ReportTable
from memrl_core.experiments.report_table import difference as points
from memrl_core.experiments.study import Stopped, Study, Use, checked_seeds
from memrl_core.numerals import percent
from memrl_core.retrieval import Floats

NO_MEMORY = "no memory"
FIRST, SECOND, MERGED, TOGETHER = "A alone", "B alone", "A and B merged", "A and B learned together"
MEMORIES = {NO_MEMORY: "none", FIRST: "a", SECOND: "b", MERGED: "merged", TOGETHER: "together"}
"""The memories that `run_modular_memory` compares, and their part of a run's name."""

FROZEN = "success rate, mean ± sd over n seeds; the memory is frozen: nothing is credited, updated or written"
INTERVAL = "paired on the same tasks and luck; 95 % interval, tasks and seeds drawn anew"
SAME = "used on the very tasks that it was learned on: how well they are remembered, not how far it carries"

Memories = Mapping[str, str | None]
"""Memories by name: the run that knows each, None for no memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One memory, used frozen on one set of tasks or by one model, which `on` names.

    `success` (seeds, tasks) is 1 where the task ended well; `runs` are the runs in which it was used, one per seed.
    """

    memory: str
    on: str
    runs: tuple[str, ...]
    success: Floats

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.success)

    @property
    def mean(self) -> float | None:
        """Mean success rate; None without a seed."""
        return float(self.success.mean(axis=1).mean()) if self.n else None

    @property
    def sd(self) -> float | None:
        """Sample standard deviation of the success rate over seeds; None for fewer than two."""
        return float(self.success.mean(axis=1).std(ddof=1)) if self.n > 1 else None


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


def run_cross_model(
    study: Study, learn_on: str, use_on: str = "", *, tasks: int = 0, seeds: Sequence[int] = range(5), epochs: int = 3
) -> FrozenUse:
    """Learn with each model on the set `learn_on`, then let each use each memory, and none, on `use_on` ("": the same).

    Sets are named as in `named_tasks`, of which the first `tasks` count (0: all). Memories are named by the model that
    learned them; each is compared with no memory and with the user's own. Raises `InputError` for models, sets and
    seeds that cannot be used, before anything is stored, and what a run raises.
    """
    models, chosen, use_on = study.models, checked_seeds(seeds, epochs), use_on or learn_on
    if len(set(models)) < max(2, len(models)):
        raise InputError("Name at least two different models. Nothing was started.")
    lessons, trial = named_tasks(learn_on, tasks), named_tasks(use_on, tasks)
    study.total = len(chosen) * len(models) * (epochs * len(lessons) + (len(models) + 1) * len(trial))
    # A run's name may hold letters, digits and few signs only.
    part = {model: f"m{n}-{re.sub('[^A-Za-z0-9.]+', '-', model)}" for n, model in enumerate(models, start=1)}
    part[NO_MEMORY] = "none"

    def learn(seed: int) -> Memories:
        return {NO_MEMORY: None, **{m: study.learn(f"s{seed}-{part[m]}", lessons, epochs, seed, m) for m in models}}

    def use(seed: int, memory: str, model: str, base: str | None) -> Use:
        return study.use(f"s{seed}-{part[memory]}-to-{part[model]}", trial, seed, model, base)

    pairs = [(m, NO_MEMORY, by) for by in models for m in models]
    pairs += [(m, by, by) for by in models for m in models if m != by]
    title = f"Cross-model memory · {epochs} epochs · learned on {learn_on}, used on {use_on}"
    on = dict.fromkeys(models, len(trial))
    return _used(title, "used by", use_on == learn_on, chosen, learn, use, (NO_MEMORY, *models), on, pairs)


def run_modular_memory(
    study: Study,
    first: str,
    second: str,
    *,
    first_use: str = "",
    second_use: str = "",
    tasks: int = 0,
    seeds: Sequence[int] = range(5),
    epochs: int = 3,
) -> FrozenUse:
    """Learn on the sets `first` and `second` apart and together, merge, and use each memory frozen on both.

    Sets are named as in `named_tasks`, of which the first `tasks` count (0: all). The memories are used on `first_use`
    and `second_use`; left empty, on the tasks that they were learned on. The merged memory is compared with every
    other. All is done by the study's one model. Raises as `run_cross_model`.
    """
    chosen, (model,) = checked_seeds(seeds, epochs), study.models
    learned, used = {"A": first, "B": second}, {"A": first_use or first, "B": second_use or second}
    lessons = {side: named_tasks(name, tasks) for side, name in learned.items()}
    trials = {side: named_tasks(name, tasks) for side, name in used.items()}
    a_seed = 2 * epochs * sum(map(len, lessons.values())) + len(MEMORIES) * sum(map(len, trials.values()))
    study.total = len(chosen) * a_seed

    def learn(seed: int) -> Memories:
        """All memories meet the same tasks equally often."""
        both = [*lessons["A"], *lessons["B"]]
        mixed = [both[position] for position in np.random.default_rng(seed).permutation(len(both))]
        one = study.learn(f"s{seed}-a", lessons["A"], epochs, seed, model)
        two = study.learn(f"s{seed}-b", lessons["B"], epochs, seed, model)
        merged = merge_runs(study.bank, one, two, f"{study.name}-s{seed}-merged").run
        together = study.learn(f"s{seed}-together", mixed, epochs, seed, model)
        return {NO_MEMORY: None, FIRST: one, SECOND: two, MERGED: merged, TOGETHER: together}

    def use(seed: int, memory: str, side: str, base: str | None) -> Use:
        return study.use(f"s{seed}-{MEMORIES[memory]}-on-{side.lower()}", trials[side], seed, model, base)

    sets = " · ".join(f"{side}: {learned[side]}, used on {used[side]}" for side in learned)
    title = f"Modular memory · {model} · {epochs} epochs · {sets}"
    on = {side: len(trial) for side, trial in trials.items()}
    pairs = [(MERGED, other, side) for side in trials for other in MEMORIES if other != MERGED]
    return _used(title, "on", used == learned, chosen, learn, use, tuple(MEMORIES), on, pairs)


def _used(
    title: str,
    across: str,
    same: bool,
    seeds: Sequence[int],
    learn: Callable[[int], Memories],
    use: Callable[[int, str, str, str | None], Use],
    memories: Sequence[str],
    tasks: Mapping[str, int],
    pairs: Iterable[tuple[str, str, str]],
) -> FrozenUse:
    """Each of `memories` used on each of `tasks`, which maps a model or set to the number of its tasks.

    `learn(seed)` makes the memories and `use(seed, memory, on, run)` uses one. `pairs` are two memories and what both
    are used on, to be compared.
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
    arms = {
        (memory, on): Arm(
            memory, on, tuple(run for run, _ in used),
            np.array([won for _, won in used], dtype=np.float64).reshape(len(used), tasks[on]),
        )
        for (memory, on), used in uses.items()
    }  # fmt: skip
    compared = tuple(difference(arms[one, on], arms[other, on]) for one, other, on in pairs if arms[one, on].n)
    return FrozenUse(title, across, same, tuple(arms.values()), compared, tuple(learning), stopped)


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


def frozen_use_reports(found: FrozenUse) -> list[ReportTable]:
    """The success of each memory with each model or on each set, and what it gains over others."""
    columns = list(dict.fromkeys(arm.on for arm in found.arms))
    cells = {(arm.memory, arm.on): _success(arm) for arm in found.arms}
    memories = dict.fromkeys(arm.memory for arm in found.arms)
    return [
        ReportTable(
            found.title,
            ("memory", *(f"{found.across} {column}" for column in columns)),
            tuple((memory, *(cells[memory, column] for column in columns)) for memory in memories),
            (FROZEN, SAME) if found.same else (FROZEN,),
        ),
        ReportTable(
            "Differences between memories",
            (found.across, "memory", "minus", "difference"),
            tuple((d.on, d.memory, d.other, points(d.mean, d.low, d.high)) for d in found.differences),
            (INTERVAL,),
        ),
    ]


def _success(arm: Arm) -> str:
    if arm.mean is None:
        return "– (n 0)"
    return f"{percent(arm.mean)} ± {'–' if arm.sd is None else percent(arm.sd)} (n {arm.n})"
