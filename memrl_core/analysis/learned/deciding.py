"""What a method decided in the steps of a run: as recorded where the run is its own, else as it would have decided.

Another method decides by what it has learned from watching the run; no model is asked, its templates stand in.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from memrl_core.analysis.learned.watching import Progress, Watching, lesson_of
from memrl_core.analysis.on_this_pool import on_this_pool
from memrl_core.models.base import Cancelled
from memrl_core.records import Decision, Reason, RecallRecord, StepTrace

GIVEN, PRUNED, NONE_LEFT, SILENT, NOTHING = "given", "pruned", "none left", "silent", "nothing recalled"
"""What becomes of a pool: given, given but for what was pruned, pruned away, kept back; or there is none."""
BECAME = ["step", "turn", "what", "recalled", "pruned", "given", "why", "outcome"]


@dataclass(frozen=True, slots=True)
class Recollection:
    """One time that memory was asked in a step: at its beginning (`turn` 0), or before a later turn."""

    turn: int
    recall: RecallRecord
    decision: Decision


def recollections(watching: Watching, trace: StepTrace) -> tuple[Recollection, ...]:
    """Each time that the method asked memory in a finished step; at its beginning only, where the run is another's.

    Empty where the step cannot be decided again. Raises `SettingsError`.
    """
    if trace.recall is None or trace.decision is None:
        return ()
    if trace.policy == watching.policy:
        turns = trace.generate.turns if trace.generate is not None else ()
        later = [
            Recollection(turn, one.recalled.recall, one.recalled.decision)
            for turn, one in enumerate(turns)
            if one.recalled is not None
        ]
        return (Recollection(0, trace.recall, trace.decision), *later)
    found = on_this_pool(watching.bank, trace, [watching.policy], own_recall=True) if trace.embed is not None else None
    return tuple(
        Recollection(0, one.recall, one.decision)
        for one in found or ()
        if one.recall is not None and one.decision is not None
    )


def what_became(
    watching: Watching, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> pd.DataFrame:
    """A row for each time that memory was asked: what became of the pool, why in words, and how the step ended.

    Columns: step, turn, what (`GIVEN` …), the counts recalled, pruned and given, why, outcome. Raises `SettingsError`.
    """
    rows = []
    for trace in watching.traces(on_progress, cancelled):
        found = recollections(watching, trace)
        outcome = lesson_of(watching.bank, trace).outcome if found else ""
        for one in found:
            recalled, pruned = len(one.recall.pool), _pruned(one.decision)
            given, why = len(one.decision.selected), one.decision.note
            rows.append((trace.step, one.turn, _what(one), recalled, pruned, given, why, outcome))
    return pd.DataFrame(rows, columns=BECAME)


def _what(one: Recollection) -> str:
    if not one.recall.pool:
        return NOTHING
    if one.decision.mode == "silent":
        return SILENT
    if not one.decision.selected:
        return NONE_LEFT
    return PRUNED if _pruned(one.decision) else GIVEN


def _pruned(decision: Decision) -> int:
    return sum(candidate.reason is Reason.PRUNED_BY_MODEL for candidate in decision.candidates)
