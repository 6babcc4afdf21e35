"""Phase B as two pictures: how ranks changed, and which part of each score did it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label, memory_labels
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
    bars,
    curve,
    drawn,
    level,
    marks,
    note,
    plain,
    row_axis,
    titled,
    upright,
    words,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed
from memrl_core.records import Candidate, Decision, Memory, Term

ROW_HEIGHT = 28
TERM_COLOURS = {"similarity": SIMILARITY, "q": UTILITY}
OTHER_TERMS = (ENTERED, OTHER_TERM, NEUTRAL, LEFT)
TERM_NAMES = {"similarity": "(1 − λ) · similarity_z", "q": "λ · q_z"}


def slope_picture(decision: Decision, run: str) -> Picture:
    """Ranks in phase A joined to ranks in phase B; colour only for those that crossed the cut after k2."""
    ranked = _ranked(decision)
    lines = []
    for candidate in ranked:
        before, after = candidate.rank_recall, candidate.rank_select or 0
        label = memory_label(candidate.memory_id, run)
        ends = [label, f"✓ {label}" if candidate.selected else label]
        hover = f"rank {before} by similarity → rank {after} by score"
        line = rank_line([before, after], ends, _crossing(candidate, decision), hover)
        line["line"]["width"] += min(abs(before - after), 4) * 0.6
        lines.append(line)
    figure = rank_figure(lines, ["A · similarity", "B · score"], decision.k2, 80)
    title = _slope_title(decision, ranked, run)
    alt = f"Lines from rank in phase A to rank in phase B. {title}."
    return Picture(figure, lambda: _table(decision, {}, run), title, alt)


def crossing(before: int, after: int, k2: int) -> str:
    """The colour of a line from one rank to another: whether it crossed the cut after k2, and which way."""
    return NEUTRAL if (before <= k2) == (after <= k2) else ENTERED if after <= k2 else LEFT


def rank_line(ranks: Sequence[int], ends: Sequence[str], colour: str, hover: str) -> dict[str, Any]:
    """A memory's line through its ranks, with the words of its two `ends`."""
    between = len(ranks) - 2
    text = [ends[0], *[""] * between, ends[1]]
    at = ["middle left", *["top center"] * between, "middle right"]
    look = {"mode": "lines+markers+text", "text": text, "textposition": at, "cliponaxis": False}
    width = 1.0 if colour == NEUTRAL else 2.5
    return curve(list(range(len(ranks))), list(ranks), "", colour, hover, width=width, symbol="circle", size=8, **look)


def rank_figure(lines: Sequence[dict[str, Any]], stages: Sequence[str], k2: int, head: int) -> dict[str, Any]:
    """The figure of all `rank_line`s through the `stages`, with the cut after the k2 best."""
    last, ticks = len(stages) - 1, {"tickvals": list(range(len(stages))), "ticktext": list(stages)}
    across = {"range": [-0.6, last + 0.6], **ticks, "side": "top", "zeroline": False, "showgrid": False}
    cut = _cut(k2, k2 + 0.5, {"x": -0.6}) if len(lines) > k2 > 0 else {}
    up = {"autorange": "reversed", "visible": False}
    return drawn(lines, height=head + ROW_HEIGHT * max(len(lines), 1), xaxis=across, yaxis=up, **cut)


def score_picture(decision: Decision, memories: Mapping[str, Memory], run: str) -> Picture:
    """The weighted parts of each score, signed and stacked from zero, with a dot at their sum; best on top."""
    ranked = _ranked(decision)
    labels = [("✓ " if c.selected else "") + memory_label(c.memory_id, run) for c in ranked]
    standardised = any(line.source != "none" for line in decision.normaliser_lines)
    scale = "z" if standardised else "as measured"
    traces = []
    for number, name in enumerate(dict.fromkeys(term.name for c in ranked for term in c.terms)):
        terms = [next(term for term in c.terms if term.name == name) for c in ranked]
        hover = f"{plain(name)} %{{customdata[0]:.3f}} → {scale} %{{customdata[1]:+.3f}} × %{{customdata[2]:g}} = "
        traces.append(
            bars(
                [term.contribution for term in terms],
                labels,
                TERM_NAMES.get(name, name) if standardised else _weighted(terms[0]),
                TERM_COLOURS.get(name, OTHER_TERMS[number % len(OTHER_TERMS)]),
                hover + "%{x:+.3f}",
                pattern=["/" if term.clipped else "" for term in terms],
                orientation="h",
                customdata=[[term.raw, term.normalised, term.weight] for term in terms],
            )
        )
    reach = max([0.5, *(abs(_side(c, sign)) for c in ranked for sign in (1, -1))])
    edge = {"color": OUTLINE, "width": 2}
    traces.append(marks([c.score for c in ranked], labels, "score", INSIDE, size=10, edge=edge))
    traces.append(words([reach * 1.1] * len(ranked), labels, [signed(c.score or 0.0) for c in ranked]))
    cut: dict[str, Any] = {"shapes": []}
    if len(ranked) > decision.k2 > 0 and decision.mode != "explore":
        cut = _cut(decision.k2, decision.k2 - 0.5, {"x": 0, "xref": "paper"})
    cut["shapes"] = [upright(0, color=SUM, width=1), *cut["shapes"]]
    figure = drawn(
        traces,
        height=110 + ROW_HEIGHT * len(ranked),
        barmode="relative",
        bargap=0.3,
        xaxis=titled("contribution to the score", range=[-reach * 1.1, reach * 1.6]),
        yaxis=row_axis(labels),
        **cut,
    )
    title = _score_title(decision, ranked, run)
    parts_named = "z-scores of similarity and q" if standardised else "terms of the method"
    alt = f"Stacked bars of the weighted {parts_named} with the score as a dot. {title}."
    return Picture(figure, lambda: _table(decision, memories, run), title, alt)


def _cut(k2: int, y: float, at: Mapping[str, Any]) -> dict[str, Any]:
    """The dashed line after the k2 best, named `at` its left end."""
    name = note(0, y, f"k2 = {k2}", **{"xanchor": "left", "yanchor": "bottom", **at})
    return {"shapes": [level(y, dash="dash", color=CUT, width=1.5)], "annotations": [name]}


def _weighted(term: Term) -> str:
    return plain(term.name if term.weight == 1 else f"{term.weight:g} · {term.name}")


def _ranked(decision: Decision) -> list[Candidate]:
    members = [c for c in decision.candidates if c.rank_select is not None]
    return sorted(members, key=lambda c: c.rank_select or 0)


def _crossing(candidate: Candidate, decision: Decision) -> str:
    was_in = candidate.rank_recall <= decision.k2
    return NEUTRAL if was_in is candidate.selected else ENTERED if candidate.selected else LEFT


def _side(candidate: Candidate, sign: int) -> float:
    return sum(term.contribution for term in candidate.terms if term.contribution * sign > 0)


def _slope_title(decision: Decision, ranked: Sequence[Candidate], run: str) -> str:
    if not ranked:
        return "Nothing to rank: the pool is empty"
    moved = sum(c.rank_select != c.rank_recall for c in ranked)
    entered = [c.memory_id for c in ranked if _crossing(c, decision) == ENTERED]
    left = [c.memory_id for c in ranked if _crossing(c, decision) == LEFT]
    swapped = (
        f"; {memory_labels(entered, run)} took the place of {memory_labels(left, run)}" if entered and left else ""
    )
    return f"{moved} of {len(ranked):,} candidates changed rank{swapped}"


def _score_title(decision: Decision, ranked: Sequence[Candidate], run: str) -> str:
    if not ranked:
        return "No scores: the pool is empty"
    chosen, greedy = memory_labels(decision.selected, run), memory_labels(decision.greedy, run)
    if decision.mode == "silent":
        return "The method kept silent: nothing goes to the model"
    if decision.mode == "sampled":
        return f"Drawn by the scores: {chosen}; without the draw it would have been {greedy}"
    if decision.mode == "explore":
        return f"Drawn at random (ε): {chosen}; greedy would have taken {greedy}"
    best = [c.memory_id for c in ranked[: len(decision.selected)]]
    if set(best) != set(decision.selected):
        return f"{chosen} go to the model; by score alone it would be {memory_labels(best, run)}"
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
    waterfall = {
        "type": "waterfall",
        "orientation": "h",
        "y": [*(plain(name) for name in names), f"{a} − {b}"],
        "x": [*parts, 0],
        "measure": ["relative"] * len(parts) + ["total"],
        "text": [signed(part) for part in (*parts, total)],
        "textposition": "outside",
        "cliponaxis": False,
        "increasing": {"marker": {"color": ENTERED}},
        "decreasing": {"marker": {"color": LEFT}},
        "totals": {"marker": {"color": SUM}},
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }
    reach = 1.35 * max(1e-6, *(abs(value) for value in (*parts, total)))
    figure = drawn(
        [waterfall],
        height=90 + 46 * (len(parts) + 1),
        showlegend=False,
        xaxis={"title": {"text": "part of the difference"}, "range": [-reach, reach]},
        yaxis={"autorange": "reversed", "type": "category"},
    )
    table = pd.DataFrame(
        {
            "term": names,
            f"value of {a}": [term.raw for term in one.terms],
            f"value of {b}": [by_name[term.name].raw for term in one.terms],
            f"z of {a}": [term.normalised for term in one.terms],
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
