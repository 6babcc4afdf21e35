"""Why a candidate was, or was not, put before the model, in two words or with the numbers that decided."""

from __future__ import annotations

from memrl_core.records import Candidate, Decision, Reason, RecallRecord

SHORT_REASONS = {
    Reason.TOP_K2: "in k2",
    Reason.RANDOM_EXPLORE: "drawn",
    Reason.BELOW_DELTA: "below δ",
    Reason.BEYOND_K1: "beyond k1",
    Reason.BEYOND_K2: "beyond k2",
    Reason.NOT_DRAWN: "not drawn",
}


def reason_sentence(candidate: Candidate, recall: RecallRecord, decision: Decision) -> str:
    """The reason of `candidate` in this step, such as "rank 4 of 3 in phase B"."""
    if candidate.rank_select is None and candidate.reason in (Reason.TOP_K2, Reason.BEYOND_K2):
        return "given to the model" if candidate.selected else "recalled, not given; no score was told"
    gate = f"δ = {recall.delta:.3f}"
    unit = "intents" if recall.k1_counts == "intent" else "memories"
    return {
        Reason.TOP_K2: f"rank {candidate.rank_select} in phase B: within k2 = {decision.k2}",
        Reason.RANDOM_EXPLORE: f"drawn at random (ε = {decision.epsilon:g})",
        Reason.BELOW_DELTA: f"similarity {candidate.similarity:.3f} is not above {gate}"
        if recall.strict
        else f"similarity {candidate.similarity:.3f} is below {gate}",
        Reason.BEYOND_K1: f"rank {candidate.rank_recall} by similarity: beyond the k1 = {recall.k1} {unit} recalled",
        Reason.BEYOND_K2: f"rank {candidate.rank_select} in phase B: beyond k2 = {decision.k2}",
        Reason.NOT_DRAWN: f"not drawn in the random pick (ε = {decision.epsilon:g})",
    }[candidate.reason]
