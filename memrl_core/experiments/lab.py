"""What the Lab asks of a pair of runs, and the pairs that are worth a look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from memrl_core.agent import workspace
from memrl_core.agent.twins import TwinRuns, labels
from memrl_core.analysis.run.metrics import (
    OutcomeGrid,
    cumulative_success,
    epoch_accuracy,
    outcome_grid,
    solved_before_failing_now,
)
from memrl_core.analysis.run.rates import Floats
from memrl_core.bank import MemoryBank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError
from memrl_core.figures.run.stability import Arm, Stream
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


@dataclass(frozen=True, slots=True)
class Standing:
    """How one side stands: the share of its last `window` rated steps that were solved, and its newest epoch.

    None where there is nothing yet.
    """

    name: str
    recent: float | None
    epoch: int
    accuracy: float | None
    csr: float | None
    lost: float | None


def lab_bank() -> MemoryBank:
    """The person's bank for pairs of runs, made when it is not there. Raises `BankReadOnly`, `BankFull`."""
    path = workspace.banks_folder() / BANK
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


def settings_for(question: str) -> tuple[MemRLSettings, MemRLSettings]:
    """The settings of both sides for one of `QUESTIONS`. Raises `InputError` for another."""
    if question not in QUESTIONS:
        raise InputError(f"There is no question “{question[:80]}”. Known: {'; '.join(QUESTIONS)}.")
    left, right = QUESTIONS[question]
    return MemRLSettings.of(left), MemRLSettings.of(right)


def arms_of(twins: TwinRuns) -> tuple[Arm, Arm]:
    """Both sides by epochs. Shifts lie between the steps of an epoch, as parts of it."""
    tasks = len(twins.tasks)
    shifts = tuple((step - 1) / tasks + 0.5 for step in twins.shifts)
    left, right = (
        Arm(name, grid.success, tuple(at for at in shifts if at <= len(grid.epochs) + 0.5), grid.tasks)
        for name, grid in zip(labels(twins.bank, *twins.runs), _grids(twins), strict=True)
    )
    return left, right


def streams_of(twins: TwinRuns) -> tuple[Stream, Stream]:
    """Both sides step by step."""
    left, right = (
        Stream(name, _outcomes(twins.bank, run)[: twins.steps], twins.shifts)
        for name, run in zip(labels(twins.bank, *twins.runs), twins.runs, strict=True)
    )
    return left, right


def standings(twins: TwinRuns, window: int) -> tuple[Standing, Standing]:
    """How both stand now."""
    left, right = (
        _standing(stream, arm, window) for stream, arm in zip(streams_of(twins), arms_of(twins), strict=True)
    )
    return left, right


def _standing(stream: Stream, arm: Arm, window: int) -> Standing:
    recent = stream.outcomes[-window:]
    recent = recent[~np.isnan(recent)]
    if not len(arm.success):
        return Standing(stream.name, None, 0, None, None, None)
    last = [float(of(arm.success)[-1]) for of in (epoch_accuracy, cumulative_success, solved_before_failing_now)]
    accuracy, csr, lost = (None if np.isnan(value) else value for value in last)
    return Standing(stream.name, float(recent.mean()) if len(recent) else None, len(arm.success), accuracy, csr, lost)


def _grids(twins: TwinRuns) -> Iterator[OutcomeGrid]:
    for run in twins.runs:
        rows = [row for row in twins.bank.step_rows(run) if row.step <= twins.steps]
        yield outcome_grid((row.task, row.epoch, row.outcome) for row in rows)


def _outcomes(bank: MemoryBank, run: str) -> Floats:
    values = {"success": 1.0, "failure": 0.0}
    return np.array([values.get(row.outcome, np.nan) for row in bank.step_rows(run)])
