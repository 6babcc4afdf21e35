"""Where equals stood on both sides of a cut, so that a rule for ties chose: how often, and what the other rule does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memrl_core.bank import MemoryBank
from memrl_core.models.base import Cancelled
from memrl_core.records import Decision, Reason, RecallRecord
from memrl_core.retrieval import DIGITS

if TYPE_CHECKING:
    from memrl_core.analysis.compare.counterfactual import Supposed

Cut = Literal["pool", "prompt"]
OTHER = {"seeded": "older", "older": "seeded"}


def tied_at(recall: RecallRecord | None, decision: Decision | None) -> tuple[Cut, ...]:
    """At which cuts of a step equals stood on both sides: that of k1 (pool), that of k2 (prompt)."""
    if recall is None or decision is None:
        return ()
    beyond = next((one.similarity for one in recall.left_out if one.reason is Reason.BEYOND_K1), None)
    cuts: list[Cut] = ["pool"] if recall.pool and beyond == min(one.similarity for one in recall.pool) else []
    ranked = [one for one in decision.candidates if one.rank_select is not None]
    if decision.mode == "greedy" and 0 < decision.k2 < len(ranked):
        last, first_out = ranked[decision.k2 - 1], ranked[decision.k2]
        scores = [round(one.score or 0.0, DIGITS) for one in (last, first_out)]
        if scores[0] == scores[1] and last.similarity == first_out.similarity:
            cuts.append("prompt")
    return tuple(cuts)


@dataclass(frozen=True, slots=True)
class Ties:
    """The steps of a run with a decision, those tied at each cut, and those for which `other` selects another set."""

    steps: int
    pool: int
    prompt: int
    either: int
    rule: str
    other: str
    changed: tuple[Supposed, ...]


def ties_of(
    bank: MemoryBank, run: str, on_progress: Callable[[int], None] | None = None, cancelled: Cancelled | None = None
) -> Ties:
    """How many choices of a run went by a tie, and which would be others by the other rule. Raises `UnknownRun`."""
    # Every command shows ties of a step, and pandas would make each of them begin a third of a second later.
    from memrl_core.analysis.compare.counterfactual import counterfactual

    cuts = [tied_at(trace.recall, trace.decision) for trace in bank.each_trace(run) if trace.decision is not None]
    rule = str(bank.settings(run).get("ties", "seeded"))
    supposed = counterfactual(bank, run, {"ties": OTHER[rule]}, on_progress, cancelled) if any(cuts) else []
    changed = tuple(one for one in supposed if set(one.recorded) != set(one.selected))
    pool, prompt = (sum(cut in found for found in cuts) for cut in ("pool", "prompt"))
    return Ties(len(cuts), pool, prompt, sum(map(bool, cuts)), rule, OTHER[rule], changed)
