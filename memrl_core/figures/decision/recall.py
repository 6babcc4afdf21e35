"""Phase A as pictures: how similar each memory is, where the gate stands, where k1 cuts, and how similarities lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.gate import QUANTILE, GateSuggestion
from memrl_core.analysis.decision.labels import SHORT_REASONS, memory_label, reason_sentence
from memrl_core.figures.palette import CUT, LEFT_OUT, SIMILARITY, UTILITY, bare_layout, level, plain, row_axis, upright
from memrl_core.figures.picture import Drawing, DrawnPicture, Picture
from memrl_core.records import Candidate, Decision, Memory, Reason, Recalled, RecallRecord

ROW_HEIGHT = 26


def recall_picture(
    recall: RecallRecord, decision: Decision | None, memories: Mapping[str, Memory], run: str
) -> DrawnPicture:
    """Bars of cosine, most similar on top; what was left out is greyed and says why.

    `decision` adds q and uses to the table once phase B has run.
    """
    seen = sorted((*recall.pool, *recall.left_out), key=lambda member: member.rank_recall)
    labels = [_label(member, memories, run) for member in seen]
    bars: list[dict[str, Any]] = []
    for name, colour, member_of in (("recalled", SIMILARITY, True), ("left out", LEFT_OUT, False)):
        rows = [(m, label) for m, label in zip(seen, labels, strict=True) if (m.reason is None) is member_of]
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "x": [m.similarity for m, _ in rows],
                "y": [label for _, label in rows],
                "marker": {"color": colour},
                "text": [_said(m) for m, _ in rows],
                "textposition": "outside",
                "cliponaxis": False,
                "customdata": [[m.rank_recall, label] for m, label in rows],
                "hovertemplate": "%{customdata[1]}<br>rank %{customdata[0]} · cosine %{x:.3f}<extra></extra>",
            }
        )
    cuts = [upright(recall.delta, dash="dash", color=CUT, width=1.5)]
    gate = f"δ = {recall.delta:.3f}"
    named: list[dict[str, Any]] = [
        {"x": recall.delta, "y": 1, "yref": "paper", "yanchor": "bottom", "text": gate, "showarrow": False}
    ]
    if any(member.reason is Reason.BEYOND_K1 for member in seen) and recall.pool:
        last = max(index for index, member in enumerate(seen) if member.reason is None)
        cuts.append(level(last + 0.5, dash="dot", color=CUT, width=1.5))
        named.append(
            {
                "x": 1,
                "xref": "paper",
                "y": last + 0.5,
                "text": f"k1 = {recall.k1}",
                "showarrow": False,
                "xanchor": "right",
                "yanchor": "bottom",
            }
        )
    low = min([0.0, *(member.similarity for member in seen)])
    layout = bare_layout(
        height=90 + ROW_HEIGHT * len(seen),
        barmode="overlay",
        bargap=0.25,
        showlegend=False,
        shapes=cuts,
        annotations=named,
        xaxis={"range": [low * 1.1, 1.12], "title": {"text": "cosine similarity"}},
        yaxis=row_axis(labels),
    )
    title = _title(recall)
    alt = f"Bars of similarity, most similar first, with the gate δ at {recall.delta:.3f}. {title}."
    return DrawnPicture(Drawing(bars, layout), lambda: _table(recall, seen, decision, memories, run), title, alt)


def _label(member: Recalled, memories: Mapping[str, Memory], run: str) -> str:
    intent = memories[member.memory_id].intent if member.memory_id in memories else ""
    return f"{memory_label(member.memory_id, run)} · {plain(intent, 34)}"


def _said(member: Recalled) -> str:
    why = "" if member.reason is None else f" {SHORT_REASONS[member.reason]}"
    return f"{member.similarity:.3f}{why}"


def _title(recall: RecallRecord) -> str:
    if not recall.memories:
        return "No memories yet"
    if not recall.pool:
        best = recall.left_out[0].similarity if recall.left_out else 0.0
        return f"Nothing passed δ = {recall.delta:.3f}; the best was {best:.3f}"
    nearest = recall.pool[0].similarity
    return f"{len(recall.pool):,} of {recall.memories:,} memories recalled; the nearest has {nearest:.3f}"


def _why(member: Recalled, candidate: Candidate | None, recall: RecallRecord, decision: Decision | None) -> str:
    if candidate is not None and decision is not None:
        return reason_sentence(candidate, recall, decision)
    return "recalled" if member.reason is None else SHORT_REASONS[member.reason]


def _table(
    recall: RecallRecord, seen: list[Recalled], decision: Decision | None, memories: Mapping[str, Memory], run: str
) -> pd.DataFrame:
    known = {c.memory_id: c for c in decision.candidates} if decision else {}
    rows = []
    for member in seen:
        memory, candidate = memories.get(member.memory_id), known.get(member.memory_id)
        rows.append(
            {
                "rank": member.rank_recall,
                "memory": memory_label(member.memory_id, run),
                "similarity": member.similarity,
                "above δ by": member.similarity - recall.delta,
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
    figure = go.Figure()
    figure.add_bar(
        x=(edges[1:] + edges[:-1]) / 2,
        y=counts,
        width=np.diff(edges),
        marker={"color": SIMILARITY},
        customdata=np.column_stack([edges[:-1], edges[1:]]),
        hovertemplate="%{y:,} pairs from %{customdata[0]:.3f} to %{customdata[1]:.3f}<extra></extra>",
    )
    marks = (("suggested", suggestion.delta, UTILITY, "solid", 1.0), ("now", delta, CUT, "dash", 0.88))
    for name, value, colour, dash, height in marks:
        figure.add_vline(x=value, line={"color": colour, "dash": dash, "width": 2})
        figure.add_annotation(
            x=value, y=height, yref="paper", text=f"{name}: δ = {value:.3f}", showarrow=False, xanchor="left", xshift=4
        )
    figure.update_layout(bare_layout(height=300, bargap=0, showlegend=False))
    figure.update_xaxes(title_text="similarity of two intents", zeroline=False)
    figure.update_yaxes(title_text="pairs", zeroline=False)
    passed = suggestion.passing(delta)
    of = f"{suggestion.intents:,} intents" + (", a sample," if suggestion.sampled else "")
    title = (
        f"δ = {suggestion.delta:.3f} lets the nearest {1 - QUANTILE:.0%} of pairs among {of} pass; the δ in force, "
        f"{delta:.3f}, about {passed:.0%}"
    )
    table = pd.DataFrame({"similarity from": edges[:-1], "similarity to": edges[1:], "pairs": counts})
    return Picture(figure, table, title, f"A histogram of pairwise similarities with two marks. {title}.")
