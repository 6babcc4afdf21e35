"""What happened between two checkpoints of one run: memories that came and went, and the rewards that moved q."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memrl_core.errors import InputError
from memrl_core.exchange.contents import Contents
from memrl_core.learning import Fold, by_step, memrl_rule
from memrl_core.policies import update_rule
from memrl_core.records import EventKind, Utility

Recovery = Literal["exact", "mean", "unchanged", "contradiction"]
ALPHA = 0.3
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class UtilityChange:
    """One memory in both checkpoints.

    `reward` is recovered from q alone, and `recovery` says what it is: "exact" after one visit; after several the
    "mean" of their rewards, in which each counts (1 - alpha) times as much as the one after it (the one reward that,
    given each time, explains the change); None when q and visits stayed ("unchanged"), or when they contradict each
    other ("contradiction": q moved without a visit, or visits went down). A run that raises q to a floor hides rewards
    below it.
    """

    memory_id: str
    before: Utility
    after: Utility
    reward: float | None
    recovery: Recovery

    @property
    def moved(self) -> float:
        """How far q went."""
        return self.after.q - self.before.q

    @property
    def visits(self) -> int:
        """How many updates lie between."""
        return self.after.visits - self.before.visits


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """The later checkpoint against the earlier: ids `added` and `gone`, `changes` by how far q went, farthest first."""

    alpha: float
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changes: tuple[UtilityChange, ...]


def compare_checkpoints(earlier: Contents, later: Contents, alpha: float = ALPHA) -> CheckpointDiff:
    """The difference of two checkpoints that were moved by q' = q + alpha (r - q) (arXiv 2601.03192, eq. 4).

    Raises `InputError` for an alpha outside of (0, 1], contents of several runs, or checkpoints without a memory in
    common.
    """
    if not (math.isfinite(alpha) and 0 < alpha <= 1):
        raise InputError(f"{alpha} is not a step size: α is above 0 and at most 1. Nothing was compared.")
    before, after = _utilities(earlier), _utilities(later)
    if before and after and not before.keys() & after.keys():
        raise InputError("These two checkpoints have no memory in common. Nothing was compared; choose two of one run.")
    changes = [_change(i, before[i], after[i], alpha) for i in after if i in before]
    changes.sort(key=lambda change: (-abs(change.moved), change.memory_id))
    return CheckpointDiff(
        alpha,
        added=tuple(i for i in after if i not in before),
        gone=tuple(i for i in before if i not in after),
        changes=tuple(changes),
    )


def _utilities(contents: Contents) -> Mapping[str, Utility]:
    if len({event.run for event in contents.events}) > 1:
        raise InputError("Only the checkpoints of single runs can be compared. Nothing was compared.")
    finished = {trace.id for trace in contents.traces}
    started = (event for event in contents.events if event.kind is EventKind.RUN_STARTED)
    fold = Fold(next((update_rule(str(event.payload["policy"])) for event in started), memrl_rule))
    for step, events in sorted(by_step(contents.events, finished.__contains__).items()):
        fold.take(step, events)
    return fold.utilities


def _change(memory_id: str, before: Utility, after: Utility, alpha: float) -> UtilityChange:
    visits, moved = after.visits - before.visits, after.q - before.q
    if visits > 0:
        # n updates by one r leave (1 - alpha)^n of the distance to it.
        covered = alpha if visits == 1 or alpha == 1 else -math.expm1(visits * math.log1p(-alpha))
        return UtilityChange(memory_id, before, after, before.q + moved / covered, "exact" if visits == 1 else "mean")
    quiet = visits == 0 and abs(moved) <= SAME
    return UtilityChange(memory_id, before, after, None, "unchanged" if quiet else "contradiction")
