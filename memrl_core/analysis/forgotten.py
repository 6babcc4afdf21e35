"""What was forgotten: tasks that went well before and badly later, and which memories had been swapped in between.

arXiv 2601.03192 divides what was lost by the failures of the epoch (v2) or by the previous successes (v1), and does not
say whether "previous" means the last attempt or any before it. All four readings are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from memrl_core.analysis.rates import RATED


@dataclass(frozen=True, slots=True)
class Loss:
    """A failed attempt at a task that an earlier attempt, the latest that succeeded, had solved.

    `directly` says that no failure lies between the two. `left` were given to the model then and not now, `entered` now
    and not then, `stayed` both times; all are None where one of the steps recorded no decision.
    """

    task: str
    epoch: int
    solved_step: int
    failed_step: int
    directly: bool
    left: tuple[str, ...] | None
    entered: tuple[str, ...] | None
    stayed: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class EpochForgetting:
    """One epoch's rated attempts at tasks: how many failed, and how many of these had been solved before.

    `solved_last` attempts followed a success, `solved_ever` had one anywhere before; `lost_last` and `lost_ever` of
    them failed.
    """

    epoch: int
    attempts: int
    failures: int
    solved_last: int
    solved_ever: int
    lost_last: int
    lost_ever: int

    def of_failures(self, ever: bool = False) -> float | None:
        """The share of the epoch's failures that were solved before (v2); None without failures."""
        return _share(self.lost_ever if ever else self.lost_last, self.failures)

    def of_solved(self, ever: bool = False) -> float | None:
        """The share of what was solved before that failed now (v1); None when nothing was."""
        return _share(self.lost_ever, self.solved_ever) if ever else _share(self.lost_last, self.solved_last)


def losses(attempts: pd.DataFrame) -> list[Loss]:
    """Every failure after a success on the same task, in the order of steps; see `attempts.attempts`."""
    found = []
    for task, tries in _rated(attempts).groupby("task", sort=False):
        solved, before = None, ""
        for attempt in tries.itertuples(index=False):
            if attempt.outcome == "success":
                solved = attempt
            elif solved is not None:
                found.append(_loss(str(task), solved, attempt, before == "success"))
            before = attempt.outcome
    return sorted(found, key=lambda loss: loss.failed_step)


def forgetting(attempts: pd.DataFrame) -> list[EpochForgetting]:
    """One entry an epoch with a rated attempt."""
    rated = _rated(attempts)
    won = rated["outcome"] == "success"
    last = won.groupby(rated["task"]).shift(fill_value=False).astype(bool)
    ever = last.groupby(rated["task"]).cummax().astype(bool)
    table = pd.DataFrame(
        {
            "attempts": True,
            "failures": ~won,
            "solved_last": last,
            "solved_ever": ever,
            "lost_last": last & ~won,
            "lost_ever": ever & ~won,
        }
    )
    return [
        EpochForgetting(int(epoch), *(int(n) for n in counts))
        for epoch, *counts in table.groupby(rated["epoch"]).sum().itertuples(name=None)
    ]


def _rated(attempts: pd.DataFrame) -> pd.DataFrame:
    return attempts[attempts["outcome"].isin(RATED)].sort_values("step")


def _loss(task: str, solved: object, failed: object, directly: bool) -> Loss:
    then, now = solved.selected, failed.selected  # type: ignore[attr-defined]
    swapped: tuple[tuple[str, ...] | None, ...] = (None, None, None)
    if then is not None and now is not None:
        swapped = (
            tuple(i for i in then if i not in now),
            tuple(i for i in now if i not in then),
            tuple(i for i in now if i in then),
        )
    return Loss(task, int(failed.epoch), int(solved.step), int(failed.step), directly, *swapped)  # type: ignore[attr-defined]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
