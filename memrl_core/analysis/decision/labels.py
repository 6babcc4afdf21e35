"""Short names for memories, models and reasons, on screens and in figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from memrl_core.records import SCOPE, Candidate, Decision, Reason, RecallRecord, StepTrace

SHORT_REASONS = {
    Reason.TOP_K2: "in k2",
    Reason.RANDOM_EXPLORE: "drawn",
    Reason.BELOW_DELTA: "below δ",
    Reason.BEYOND_K1: "beyond k1",
    Reason.BEYOND_K2: "beyond k2",
    Reason.NOT_DRAWN: "not drawn",
    Reason.Q_BELOW_MINIMUM: "q too low",
    Reason.SAME_TASK: "same task",
    Reason.OTHER_TASK: "other task",
    Reason.NOT_RECENT: "not recent",
    Reason.OVER_BUDGET: "over budget",
    Reason.COLD_START: "cold start",
    Reason.NOISE: "by noise",
    Reason.KEPT_SILENT: "kept silent",
    Reason.PRUNED_BY_MODEL: "pruned",
}


def reason_sentence(candidate: Candidate, recall: RecallRecord, decision: Decision) -> str:
    """The reason of `candidate` in this step, such as "rank 4 of 3 in phase B", with another agent's own score."""
    reason = _reason(candidate, recall, decision)
    if recall.rule != "own score":
        return reason
    own = own_score(recall, candidate.memory_id)
    return f"{reason}; the agent's own score of it is {own}" if own else reason


def own_score(recall: RecallRecord, memory_id: str) -> str:
    """The score by which another agent recalled a memory, with its name, such as "bm25 12.7"; "" for a cosine."""
    own = next((one for one in recall.pool if one.memory_id == memory_id and one.signal is not None), None)
    return "" if own is None else f"{own.signal_name or 'score'} {own.signal:g}"


def _reason(candidate: Candidate, recall: RecallRecord, decision: Decision) -> str:
    if candidate.rank_select is None and candidate.reason in (Reason.TOP_K2, Reason.BEYOND_K2):
        return "given to the model" if candidate.selected else "recalled, not given; no score is recorded"
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
        Reason.Q_BELOW_MINIMUM: f"its q = {candidate.q:.3f} is below the least that is recalled",
        Reason.SAME_TASK: "it comes from the very task that is asked, which is left out",
        Reason.OTHER_TASK: "it comes from another task; this method recalls the task's own only",
        Reason.NOT_RECENT: "it is older than the memories recalled; this method goes by recency",
        Reason.OVER_BUDGET: "it did not fit into the model's context window and was not sent",
        Reason.COLD_START: "taken by similarity: too little was learned yet to go by more",
        Reason.NOISE: "the noise drawn in this step changed its place",
        Reason.KEPT_SILENT: "the method chose to say nothing in this step",
        Reason.PRUNED_BY_MODEL: "the model judged it not useful and took it out",
    }[candidate.reason]


_NUMBER = re.compile(r"(\d+)((?:-\d+)?(?:\.\d+)?)")
_GIVEN = re.compile(r"[a-z]+-\d{3}")
_MARKS = re.compile(r"<|%(?={)")
LONGEST_FACT = 80
WORD_JOINER = "\u2060"


def scope_of(trace: StepTrace) -> str:
    """What the queries of a step were restricted to, such as "only user 7's"; "" where nothing is said of that."""
    named = dict.fromkeys(one.scope for one in trace.retrievals if one.scope)
    return "; ".join(named) or str(trace.task.data.get(SCOPE, ""))


def memory_label(memory_id: str, run: str) -> str:
    """ "#17" for memory 17 of `run`, "#17.2" for its second wording, "#17-2" for a second memory of the same
    step, and "given-031" for one that the run was given at its start.

    Memories from another run have their whole ids. Those come from files, too, and Plotly reads a small HTML and fields
    of templates in every text: an invisible joiner keeps such marks what they are.
    """
    number = _NUMBER.fullmatch(memory_id.removeprefix(f"{run}-")) if memory_id.startswith(f"{run}-") else None
    if memory_id.startswith(f"{run}-") and _GIVEN.fullmatch(memory_id, len(run) + 1):
        return memory_id[len(run) + 1 :]
    return f"#{int(number[1])}{number[2]}" if number else _MARKS.sub(rf"\g<0>{WORD_JOINER}", memory_id)


def memory_labels(memory_ids: Iterable[str], run: str) -> str:
    """The labels of memories in one line; "none" without any."""
    return ", ".join(memory_label(memory_id, run) for memory_id in memory_ids) or "none"


def memory_named(written: str, run: str) -> str:
    """The id of the memory that a person names by its id or by its label in `run`, such as "#17", "17" or "given-031".

    What is no label is taken for an id.
    """
    name = written.strip()
    if number := _NUMBER.fullmatch(name.removeprefix("#")):
        return f"{run}-{int(number[1]):04d}{number[2]}"
    return f"{run}-{name}" if _GIVEN.fullmatch(name) else name


def weights_label(facts: Mapping[str, Any]) -> str:
    """What a run's server or file reports of its model, in one line of foreign text; empty when it reports nothing."""
    known = {name: str(value)[:LONGEST_FACT] for name, value in facts.items()}
    context, parameters = facts.get("context"), facts.get("parameters")
    if isinstance(parameters, int):
        known["parameters"] = f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
    parts = (
        known.get("parameters", ""),
        known.get("quantisation", ""),
        f"window {context:,} tokens" if isinstance(context, int) else "",
        f"digest {known['digest'][:12]}" if "digest" in known else "",
        known.get("server", ""),
    )
    return " · ".join(part for part in parts if part)


_WORDS = """
a an and any are as at be been but by can could did do does for from had has have he her his how i if in into is it its
me my no not of off on one or our out she so some than that the their them then there these they this those to up us was
we were what when where which who will with would you your
"""
FUNCTION_WORDS = frozenset(_WORDS.split())
"""English words that say nothing of what a text is about: here and, by way of the stage's script, in the browser."""
