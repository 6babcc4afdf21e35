"""What the Lab asks of a pair of runs, and the pairs that are worth a look."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from memrl_core.agent.preferences import banks_folder
from memrl_core.agent.twins import Change, Side, TwinRuns, changes_of, labels, open_twins, shifts_of, start_twins
from memrl_core.analysis.map.projection import Pca, as_points
from memrl_core.analysis.memory.relations import Landscape, landscape
from memrl_core.analysis.run.metrics import OutcomeGrid, epoch_accuracy, outcome_grid
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.layouts import Point
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError
from memrl_core.figures.palette import Mark
from memrl_core.figures.run.stability import Arm, Stream
from memrl_core.records import StepTrace
from memrl_core.retrieval import Floats
from memrl_core.settings import MemRLSettings

BANK = "lab"

QUESTIONS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    "Does utility help? λ = 0 against λ = 0.5": ({"weight": 0.0}, {"weight": 0.5}),
    "How fast should q move? α = 0.05 against α = 0.9": ({"alpha": 0.05}, {"alpha": 0.9}),
    "Does memory help? None against MemRL": ({"k2": 0}, {}),
    "Does exploration help? ε = 0 against ε = 0.2": ({"epsilon": 0.0}, {"epsilon": 0.2}),
    "Is utility enough alone? λ = 0.5 against λ = 1": ({"weight": 0.5}, {"weight": 1.0}),
}
"""Questions with what the left and the right run change in the standard settings."""

TASKS, EPOCHS_BEFORE_THE_SHIFT = 20, 4
"""Of the pair that the Lab opens with: how many tasks an epoch has, and after how many of them the world shifts."""


def lab_bank(path: Path | None = None) -> MemoryBank:
    """The person's bank for pairs of runs, or one elsewhere, made when it is not there.

    Raises `BankReadOnly`, `BankFull`.
    """
    path = path or banks_folder() / BANK
    if path.exists():
        return MemoryBank.open(str(path))
    embedder = HashingEmbedder()
    return MemoryBank.create(str(path), embedder.name, embedder.dimension)


def pairs_in(bank: MemoryBank) -> list[tuple[str, str]]:
    """The pairs that were started in a bank, newest first."""
    runs = [info.id for info in bank.runs()]
    lefts = [run for run in runs if run.startswith("twins-") and run.endswith("-left")]
    found = [(left, f"{left.removesuffix('-left')}-right") for left in reversed(lefts)]
    return [pair for pair in found if pair[1] in runs]


def opening_pair(bank: MemoryBank) -> TwinRuns:
    """The newest pair of a bank; one without any gets the first question's, whose world will shift.

    It is the parametric world, where every family changes, so that the shift shows, and where true chances are known,
    so that forgetting is distinguished from luck.

    Raises `BankReadOnly`, `BankFull`.
    """
    for pair in pairs_in(bank):
        with suppress(InputError):  # Its tasks may be gone.
            return open_twins(bank, *pair)
    return _opening(bank, seed=0)


def _opening(bank: MemoryBank, seed: int) -> TwinRuns:
    left, right = map(Side, settings_for(next(iter(QUESTIONS))))
    return start_twins(
        bank,
        (left, right),
        seed=seed,
        environment="parametric",
        tasks="parametric-far",
        task_count=TASKS,
        shift_at=[TASKS * EPOCHS_BEFORE_THE_SHIFT + 1],
    )


def opens_the_lab(twins: TwinRuns) -> bool:
    """Whether a pair has the world, the tasks and the settings of the one that the Lab opens with."""
    info = twins.bank.run(twins.runs[0])
    now = [twins.bank.settings(run) for run in twins.runs]
    return (info.environment, len(twins.tasks), shifts_of(twins.bank, info.id)) == (
        "parametric",
        TASKS,
        (TASKS * EPOCHS_BEFORE_THE_SHIFT + 1,),
    ) and now == [settings.model_dump() for settings in settings_for(next(iter(QUESTIONS)))]


def fall_at_the_shift(seed: int, bank: MemoryBank) -> tuple[float, float]:
    """By how many points of a hundred the share solved falls from the epoch before the opening pair's shift to the one
    after it, left and right, with a seed; computed in `bank`. `memrl claims check` does it for forty."""
    twins = _opening(bank, seed)
    twins.step(TASKS * (EPOCHS_BEFORE_THE_SHIFT + 1))
    left, right = (epoch_accuracy(grid.success)[-2:] for grid, _ in _grids(twins))
    return 100 * float(left[0] - left[1]), 100 * float(right[0] - right[1])


def settings_for(question: str) -> tuple[MemRLSettings, MemRLSettings]:
    """The settings of both sides for one of `QUESTIONS`."""
    left, right = QUESTIONS[question]
    return MemRLSettings.of(left), MemRLSettings.of(right)


def arms_of(twins: TwinRuns) -> tuple[Arm, Arm]:
    """Both sides by epochs. What changed within an epoch lies between its steps, as a part of it."""
    intents = {task.id: task.intent for task in twins.tasks}
    left, right = (
        Arm(
            name,
            grid.success,
            tuple(
                Mark((change.step - 1) / len(twins.tasks) + 0.5, change.text)
                for change in _by_step((*_shifts(twins), *changes_of(twins.bank, run)))
                if change.step <= len(grid.epochs) * len(twins.tasks) + 1
            ),
            tuple(intents.get(task, task) for task in grid.tasks),
            chance,
        )
        for name, run, (grid, chance) in zip(labels(twins.bank, *twins.runs), twins.runs, _grids(twins), strict=True)
    )
    return left, right


def streams_of(twins: TwinRuns) -> tuple[Stream, Stream]:
    """Both sides step by step; a shift, which both meet, is marked with the left one."""
    left, right = (
        Stream(
            name,
            _outcomes(twins.bank, run)[: twins.steps],
            tuple(Mark(change.step, change.text) for change in _by_step((*shared, *changes_of(twins.bank, run)))),
        )
        for name, run, shared in zip(labels(twins.bank, *twins.runs), twins.runs, (_shifts(twins), ()), strict=True)
    )
    return left, right


def places_of(twins: TwinRuns) -> dict[str, Point]:
    """Where each task of a pair lies on its map, by intent: a PCA of the intents' embeddings, which never moves."""
    intents = list(dict.fromkeys(task.intent for task in twins.tasks))
    vectors = twins.embed(intents)
    return dict(zip(intents, as_points(Pca(vectors).place(vectors)), strict=True))


def landscapes_of(twins: TwinRuns, places: Mapping[str, Point], frames: int) -> tuple[tuple[str, Landscape], ...]:
    """Both sides' names and landscapes, at the same moments."""
    names = labels(twins.bank, *twins.runs)
    return tuple(
        (name, landscape(twins.bank, run, places, frames, twins.steps))
        for name, run in zip(names, twins.runs, strict=True)
    )


def _shifts(twins: TwinRuns) -> tuple[Change, ...]:
    return tuple(Change(step, "world shifted") for step in twins.shifts)


def _by_step(changes: Iterable[Change]) -> list[Change]:
    """In the order of steps, one per step."""
    texts: dict[int, list[str]] = {}
    for change in sorted(changes, key=lambda change: change.step):
        texts.setdefault(change.step, []).append(change.text)
    return [Change(step, "; ".join(parts)) for step, parts in texts.items()]


def _grids(twins: TwinRuns) -> Iterator[tuple[OutcomeGrid, Floats | None]]:
    """The outcomes of both sides, and the true chances of what they answered where the world knows them."""
    # Read once: while they play, the second run would have met more than the first.
    finished = twins.steps
    for run in twins.runs:
        rows = [row for row in twins.bank.steps.rows(run) if row.step <= finished]
        grid = outcome_grid((row.task, row.epoch, row.outcome) for row in rows)
        known = _chances(twins, run, finished)
        if all(chance is None for chance in known):
            yield grid, None
            continue
        chances = np.full(grid.success.shape, np.nan)
        for row, chance in zip(rows, known, strict=False):
            if chance is not None:
                chances[grid.epochs.index(row.epoch), grid.tasks.index(row.task)] = chance
        yield grid, chances


def _chances(twins: TwinRuns, run: str, finished: int) -> Sequence[float | None]:
    """By step, from the traces; each is read once, since no step changes once it is finished."""
    known = twins.chances[run]
    if len(known) < finished:
        known += [_chance(twins, trace) for trace in twins.bank.traces(run, (len(known) + 1, finished))]
    return known[:finished]


def _chance(twins: TwinRuns, trace: StepTrace) -> float | None:
    """The true chance of what was answered; None in worlds that do not know it.

    nan where it failed without a memory in the prompt: such an answer is luck, and an agent that is given no memory
    forgets nothing.
    """
    found = twins.chance(trace)
    has_memory = trace.decision is not None and bool(trace.decision.selected)
    has_failed = trace.reward is not None and trace.reward.outcome == "failure"
    return math.nan if found is not None and has_failed and not has_memory else found


def _outcomes(bank: MemoryBank, run: str) -> Floats:
    values = {"success": 1.0, "failure": 0.0}
    return np.array([values.get(row.outcome, np.nan) for row in bank.steps.rows(run)])
