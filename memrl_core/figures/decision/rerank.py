"""Phase B as two pictures: how ranks changed, and which part of each score did it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.palette import (
    CUT,
    ENTERED,
    INSIDE,
    LEFT,
    NEUTRAL,
    OTHER_TERM,
    OUTLINE,
    SIMILARITY,
    SUM,
    UTILITY,
    bare_layout,
    level,
    plain,
    row_axis,
    upright,
)
from memrl_core.figures.picture import Drawing, DrawnPicture, Picture
from memrl_core.numerals import signed
from memrl_core.records import Candidate, Decision, Memory, Term

ROW_HEIGHT = 28
TERM_COLOURS = {"similarity": SIMILARITY, "q": UTILITY}
OTHER_TERMS = (ENTERED, OTHER_TERM, NEUTRAL, LEFT)
TERM_NAMES = {"similarity": "(1 − λ) · z_sim", "q": "λ · z_q"}


def slope_picture(decision: Decision, run: str) -> DrawnPicture:
    """Ranks in phase A joined to ranks in phase B; colour only for those that crossed the cut after k2."""
    ranked = _ranked(decision)
    lines: list[dict[str, Any]] = []
    for candidate in ranked:
        colour, width = _crossing(candidate, decision)
        before, after = candidate.rank_recall, candidate.rank_select
        assert after is not None
        label = memory_label(candidate.memory_id, run)
        lines.append(
            {
                "type": "scatter",
                "x": [0, 1],
                "y": [before, after],
                "mode": "lines+markers+text",
                "line": {"color": colour, "width": width + min(abs(before - after), 4) * 0.6},
                "marker": {"size": 8, "color": colour},
                "text": [label, f"✓ {label}" if candidate.selected else label],
                "textposition": ["middle left", "middle right"],
                "cliponaxis": False,
                "showlegend": False,
                "hovertemplate": f"rank {before} by similarity → rank {after} by score<extra></extra>",
            }
        )
    layout = bare_layout(
        height=80 + ROW_HEIGHT * len(ranked),
        xaxis={
            "range": [-0.45, 1.55],
            "tickvals": [0, 1],
            "ticktext": ["A · similarity", "B · score"],
            "side": "top",
            "zeroline": False,
            "showgrid": False,
        },
        yaxis={"autorange": "reversed", "visible": False},
    )
    if len(ranked) > decision.k2 > 0:
        layout |= _cut(decision.k2, decision.k2 + 0.5, {"x": -0.45})
    title = _slope_title(decision, ranked, run)
    alt = f"Lines from rank in phase A to rank in phase B. {title}."
    return DrawnPicture(Drawing(lines, layout), lambda: _table(decision, {}, run), title, alt)


def score_picture(decision: Decision, memories: Mapping[str, Memory], run: str) -> DrawnPicture:
    """The weighted parts of each score, signed and stacked from zero, with a dot at their sum; best on top."""
    ranked = _ranked(decision)
    labels = [("✓ " if c.selected else "") + memory_label(c.memory_id, run) for c in ranked]
    traces: list[dict[str, Any]] = []
    standardised = any(line.source != "none" for line in decision.normaliser_lines)
    scale = "z" if standardised else "as measured"
    for number, name in enumerate(dict.fromkeys(term.name for c in ranked for term in c.terms)):
        terms = [next(term for term in c.terms if term.name == name) for c in ranked]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": TERM_NAMES.get(name, name) if standardised else _weighted(terms[0]),
                "x": [term.contribution for term in terms],
                "y": labels,
                "marker": {
                    "color": TERM_COLOURS.get(name, OTHER_TERMS[number % len(OTHER_TERMS)]),
                    "pattern": {"shape": ["/" if term.clipped else "" for term in terms]},
                },
                "customdata": [[term.raw, term.normalised, term.weight] for term in terms],
                "hovertemplate": (
                    f"{plain(name)} %{{customdata[0]:.3f}} → {scale} %{{customdata[1]:+.3f}} × %{{customdata[2]:g}} = "
                    "%{x:+.3f}<extra></extra>"
                ),
            }
        )
    reach = max([0.5, *(abs(_side(c, sign)) for c in ranked for sign in (1, -1))])
    traces += [
        {
            "type": "scatter",
            "x": [c.score for c in ranked],
            "y": labels,
            "mode": "markers",
            "name": "score",
            "marker": {"color": INSIDE, "size": 10, "line": {"color": OUTLINE, "width": 2}},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "x": [reach * 1.1] * len(ranked),
            "y": labels,
            "mode": "text",
            "text": [signed(c.score or 0.0) for c in ranked],
            "textposition": "middle right",
            "showlegend": False,
            "hoverinfo": "skip",
        },
    ]
    layout = bare_layout(
        height=110 + ROW_HEIGHT * len(ranked),
        barmode="relative",
        bargap=0.3,
        xaxis={
            "range": [-reach * 1.1, reach * 1.6],
            "title": {"text": "contribution to the score"},
            "zeroline": False,
        },
        yaxis=row_axis(labels),
    )
    cut: dict[str, Any] = {"shapes": []}
    if len(ranked) > decision.k2 > 0 and decision.mode != "explore":
        cut = _cut(decision.k2, decision.k2 - 0.5, {"x": 0, "xref": "paper"})
    layout |= {**cut, "shapes": [upright(0, color=SUM, width=1), *cut["shapes"]]}
    title = _score_title(decision, ranked, run)
    parts_named = "z-scores of similarity and q" if standardised else "terms of the method"
    alt = f"Stacked bars of the weighted {parts_named} with the score as a dot. {title}."
    return DrawnPicture(Drawing(traces, layout), lambda: _table(decision, memories, run), title, alt)


def _cut(k2: int, y: float, at: Mapping[str, Any]) -> dict[str, Any]:
    """The dashed line after the k2 best, named `at` its left end."""
    name = {**at, "y": y, "text": f"k2 = {k2}", "showarrow": False, "xanchor": "left", "yanchor": "bottom"}
    return {"shapes": [level(y, dash="dash", color=CUT, width=1.5)], "annotations": [name]}


def _weighted(term: Term) -> str:
    return plain(term.name if term.weight == 1 else f"{term.weight:g} · {term.name}")


def _ranked(decision: Decision) -> list[Candidate]:
    members = [c for c in decision.candidates if c.rank_select is not None]
    return sorted(members, key=lambda c: c.rank_select or 0)


def _crossing(candidate: Candidate, decision: Decision) -> tuple[str, float]:
    was_in = candidate.rank_recall <= decision.k2
    if candidate.selected and not was_in:
        return ENTERED, 2.5
    if was_in and not candidate.selected:
        return LEFT, 2.5
    return NEUTRAL, 1.0


def _side(candidate: Candidate, sign: int) -> float:
    return sum(term.contribution for term in candidate.terms if term.contribution * sign > 0)


def _slope_title(decision: Decision, ranked: Sequence[Candidate], run: str) -> str:
    if not ranked:
        return "Nothing to rank: the pool is empty"
    moved = sum(c.rank_select != c.rank_recall for c in ranked)
    entered = [memory_label(c.memory_id, run) for c in ranked if _crossing(c, decision)[0] == ENTERED]
    left = [memory_label(c.memory_id, run) for c in ranked if _crossing(c, decision)[0] == LEFT]
    sentence = f"{moved} of {len(ranked):,} candidates changed rank"
    if entered and left:
        sentence += f"; {', '.join(entered)} took the place of {', '.join(left)}"
    return sentence


def _score_title(decision: Decision, ranked: Sequence[Candidate], run: str) -> str:
    if not ranked:
        return "No scores: the pool is empty"
    chosen = ", ".join(memory_label(memory_id, run) for memory_id in decision.selected) or "none"
    if decision.mode == "silent":
        return "The method kept silent: nothing goes to the model"
    if decision.mode == "sampled":
        greedy = ", ".join(memory_label(memory_id, run) for memory_id in decision.greedy) or "none"
        return f"Drawn by the scores: {chosen}; without the draw it would have been {greedy}"
    if decision.mode == "explore":
        greedy = ", ".join(memory_label(memory_id, run) for memory_id in decision.greedy)
        return f"Drawn at random (ε): {chosen}; greedy would have taken {greedy}"
    best = [c.memory_id for c in ranked[: len(decision.selected)]]
    if set(best) != set(decision.selected):
        return f"{chosen} go to the model; by score alone it would be {', '.join(memory_label(i, run) for i in best)}"
    return f"The best {len(decision.selected)} by score go to the model: {chosen}"


def _table(decision: Decision, memories: Mapping[str, Memory], run: str) -> pd.DataFrame:
    rows = []
    for c in _ranked(decision):
        row: dict[str, object] = {
            "rank A": c.rank_recall,
            "rank B": c.rank_select,
            "memory": memory_label(c.memory_id, run),
            "given to the model": c.selected,
        }
        for term in c.terms:
            row |= {
                term.name: term.raw,
                f"z {term.name}": term.normalised,
                f"weight {term.name}": term.weight,
                f"part {term.name}": term.contribution,
            }
        row["score"] = c.score
        if c.memory_id in memories:
            row["intent"] = memories[c.memory_id].intent
        rows.append(row)
    return pd.DataFrame(rows)


def difference_picture(one: Candidate, other: Candidate, run: str) -> Picture:
    """A waterfall from 0 to score(one) − score(other); both must have been scored by the same terms."""
    names = [TERM_NAMES.get(term.name, term.name) for term in one.terms]
    by_name = {term.name: term for term in other.terms}
    parts = [term.contribution - by_name[term.name].contribution for term in one.terms]
    total = sum(parts)
    a, b = memory_label(one.memory_id, run), memory_label(other.memory_id, run)
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            y=[*(plain(name) for name in names), f"{a} − {b}"],
            x=[*parts, 0],
            measure=["relative"] * len(parts) + ["total"],
            text=[signed(part) for part in (*parts, total)],
            textposition="outside",
            cliponaxis=False,
            increasing={"marker": {"color": ENTERED}},
            decreasing={"marker": {"color": LEFT}},
            totals={"marker": {"color": SUM}},
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    reach = max(1e-6, *(abs(value) for value in (*parts, total, parts[0])))
    figure.update_layout(bare_layout(height=90 + 46 * (len(parts) + 1), showlegend=False))
    figure.update_xaxes(title_text="part of the difference", range=[-1.35 * reach, 1.35 * reach])
    figure.update_yaxes(autorange="reversed", type="category")
    terms = {term.name: term for term in one.terms}
    table = pd.DataFrame(
        {
            "term": names,
            f"value of {a}": [term.raw for term in one.terms],
            f"value of {b}": [by_name[term.name].raw for term in one.terms],
            f"z of {a}": [terms[term.name].normalised for term in one.terms],
            f"z of {b}": [by_name[term.name].normalised for term in one.terms],
            "weight": [term.weight for term in one.terms],
            "part of the difference": parts,
        }
    )
    ahead, behind = (a, b) if total >= 0 else (b, a)
    if total == 0:
        title = f"{a} and {b} have the same score: the more similar goes first, then whichever the tie rule names"
    else:
        driver = max(zip(parts, names, strict=True), key=lambda p: p[0] * total)[1]
        title = f"{ahead} is {abs(total):.3f} ahead of {behind}, most of it by {driver}"
    return Picture(figure, table, title, f"Bars that add up to the difference of two scores. {title}.")
