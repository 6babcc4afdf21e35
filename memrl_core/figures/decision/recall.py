"""Phase A as pictures: how similar each memory is, where the gate stands, where k1 cuts, and how similarities lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from memrl_core.analysis.decision.gate import QUANTILE, GateSuggestion
from memrl_core.analysis.decision.labels import SHORT_REASONS, memory_label, own_score, reason_sentence
from memrl_core.figures.palette import (
    CUT,
    LEFT_OUT,
    SIMILARITY,
    UTILITY,
    bars,
    drawn,
    level,
    note,
    plain,
    row_axis,
    titled,
    upright,
)
from memrl_core.figures.picture import Picture
from memrl_core.records import Candidate, Decision, Memory, Reason, Recalled, RecallRecord

ROW_HEIGHT = 26


def recall_picture(
    recall: RecallRecord, decision: Decision | None, memories: Mapping[str, Memory], run: str
) -> Picture:
    """Bars of cosine in the order of phase A; what was left out is greyed and says why.

    `decision` adds q and uses to the table once phase B has run.
    """
    seen = sorted((*recall.pool, *recall.left_out), key=lambda member: member.rank_recall)
    labels = [_label(member, memories, run) for member in seen]
    traces = []
    for name, colour, recalled in (("recalled", SIMILARITY, True), ("left out", LEFT_OUT, False)):
        rows = [(m, label) for m, label in zip(seen, labels, strict=True) if (m.reason is None) is recalled]
        traces.append(
            bars(
                [m.similarity for m, _ in rows], [label for _, label in rows], name, colour,
                "%{customdata[1]}<br>rank %{customdata[0]} · cosine %{x:.3f}", orientation="h",
                text=[_beside(m, recall) for m, _ in rows],
                textposition="outside", cliponaxis=False, customdata=[[m.rank_recall, label] for m, label in rows],
            )
        )  # fmt: skip
    own = recall.rule == "own score"
    cuts = [] if own else [upright(recall.delta, dash="dash", color=CUT, width=1.5)]
    named = [] if own else [note(recall.delta, 1, f"δ = {recall.delta:.3f}", yref="paper", yanchor="bottom")]
    if any(member.reason is Reason.BEYOND_K1 for member in seen) and recall.pool:
        last = max(index for index, member in enumerate(seen) if member.reason is None)
        cuts.append(level(last + 0.5, dash="dot", color=CUT, width=1.5))
        at_the_end = {"xref": "paper", "xanchor": "right", "yanchor": "bottom"}
        named.append(note(1, last + 0.5, f"k1 = {recall.k1}", **at_the_end))
    low = min([0.0, *(member.similarity for member in seen)])
    figure = drawn(
        traces,
        height=90 + ROW_HEIGHT * len(seen),
        barmode="overlay",
        bargap=0.25,
        showlegend=False,
        shapes=cuts,
        annotations=named,
        xaxis={
            "range": [low * 1.1, 1.4 if own else 1.12],
            "title": {"text": "cosine by the stored vectors" if own else "cosine similarity"},
        },
        yaxis=row_axis(labels),
    )
    title = _title(recall)
    alt = f"Bars of similarity, most similar first, with the gate δ at {recall.delta:.3f}. {title}."
    if own:
        alt = f"Bars of the cosines by the stored vectors, in the agent's own order. {title}."
    return Picture(figure, lambda: _table(recall, seen, decision, memories, run), title, alt)


def _beside(member: Recalled, recall: RecallRecord) -> str:
    """What stands beside a bar: the cosine, with the agent's own score before it or the reason why it missed."""
    words = own_score(recall, member.memory_id), f"{member.similarity:.3f}"
    if words[0]:
        return plain(f"{words[0]} · cosine {words[1]}", 60)
    return f"{words[1]} {SHORT_REASONS[member.reason] if member.reason else ''}".rstrip()


def _label(member: Recalled, memories: Mapping[str, Memory], run: str) -> str:
    intent = memories[member.memory_id].intent if member.memory_id in memories else ""
    return f"{memory_label(member.memory_id, run)} · {plain(intent, 34)}"


def _title(recall: RecallRecord) -> str:
    if not recall.memories:
        return "No memories yet"
    if not recall.pool:
        best = recall.left_out[0].similarity if recall.left_out else 0.0
        return f"Nothing passed δ = {recall.delta:.3f}; the best was {best:.3f}"
    nearest = max(member.similarity for member in recall.pool)
    if recall.rule == "own score":
        by = recall.signal or "scores of the agent's own"
        return f"{len(recall.pool):,} of {recall.memories:,} memories recalled by {by}; the nearest has {nearest:.3f}"
    return f"{len(recall.pool):,} of {recall.memories:,} memories recalled; the nearest has {nearest:.3f}"


def _why(member: Recalled, candidate: Candidate | None, recall: RecallRecord, decision: Decision | None) -> str:
    if candidate is not None and decision is not None:
        return reason_sentence(candidate, recall, decision)
    return "recalled" if member.reason is None else SHORT_REASONS[member.reason]


def _table(
    recall: RecallRecord, seen: list[Recalled], decision: Decision | None, memories: Mapping[str, Memory], run: str
) -> pd.DataFrame:
    known = {c.memory_id: c for c in decision.candidates} if decision else {}
    own, rows = recall.rule == "own score", []
    for member in seen:
        memory, candidate = memories.get(member.memory_id), known.get(member.memory_id)
        rows.append(
            {
                "rank": member.rank_recall,
                "memory": memory_label(member.memory_id, run),
                **({recall.signal or "score": member.signal} if own else {}),
                "cosine by the stored vectors" if own else "similarity": member.similarity,
                **({} if own else {"above δ by": member.similarity - recall.delta}),
                "q": candidate.q if candidate else None,
                "uses": candidate.visits if candidate else None,
                "outcome": memory.outcome if memory else None,
                "why": _why(member, candidate, recall, decision),
                "intent": memory.intent if memory else None,
            }
        )
    return pd.DataFrame(rows)


def similarity_picture(suggestion: GateSuggestion, delta: float) -> Picture:
    """Bars of the pairwise similarities with the suggested δ, and the δ in force, as lines."""
    edges, counts = suggestion.edges, suggestion.counts
    marked = (("suggested", suggestion.delta, UTILITY, "solid", 1.0), ("now", delta, CUT, "dash", 0.88))
    look = {"yref": "paper", "xanchor": "left", "xshift": 4}
    hover = "%{y:,} pairs from %{customdata[0]:.3f} to %{customdata[1]:.3f}"
    ends = {"width": np.diff(edges), "customdata": np.column_stack([edges[:-1], edges[1:]])}
    figure = drawn(
        [bars((edges[1:] + edges[:-1]) / 2, counts, "pairs", SIMILARITY, hover, **ends)],
        height=300,
        bargap=0,
        showlegend=False,
        shapes=[upright(value, color=colour, dash=dash, width=2) for _, value, colour, dash, _ in marked],
        annotations=[note(value, y, f"{name}: δ = {value:.3f}", **look) for name, value, _, _, y in marked],
        xaxis=titled("similarity of two intents"),
        yaxis=titled("pairs"),
    )
    passed = suggestion.passing(delta)
    of = f"{suggestion.intents:,} intents" + (", a sample," if suggestion.sampled else "")
    title = (
        f"δ = {suggestion.delta:.3f} lets the nearest {1 - QUANTILE:.0%} of pairs among {of} pass; the δ in force, "
        f"{delta:.3f}, about {passed:.0%}"
    )
    table = pd.DataFrame({"similarity from": edges[:-1], "similarity to": edges[1:], "pairs": counts})
    return Picture(figure, table, title, f"A histogram of pairwise similarities with two marks. {title}.")
