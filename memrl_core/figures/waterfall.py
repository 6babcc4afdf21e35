"""Why one candidate stands above another: each term's part of the difference of their scores."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.palette import ENTERED, LEFT, SUM, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.figures.rerank import TERM_NAMES
from memrl_core.figures.text import plain
from memrl_core.numerals import signed
from memrl_core.records import Candidate


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
