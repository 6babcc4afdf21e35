"""MemP's success rate of every memory over its hits, with its deletion rule, beside MemRL's q of the same memories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.values import Deletion
from memrl_core.figures.palette import LEFT, bare_layout, q_range
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.values import (
    NAMED,
    ROOM,
    add_lines,
    last_use,
    line_names,
    reached,
    spread,
    use_axis,
)

LOW, HIGH = -0.05, 1.05
MOST_NAMED = 12


def rates_picture(
    rates: pd.DataFrame, values: pd.DataFrame, deletion: Deletion, settings: Mapping[str, Any], run: str
) -> Picture:
    """Two panels with one axis, a line a memory that has stood first in a rated prompt.

    `rates` and `values` are `analysis.learned.values.values_over_uses` under MemP's and MemRL's rule. q is scaled from
    r− … r+ to 0 … 1. The dashed line is the deletion rule where it holds; a cross marks what it takes.
    """
    low, _, high = q_range(settings)
    hit = reached(rates)
    hit = hit[hit["use"] > 0]
    same = values[values["memory"].isin(hit["memory"])]
    same = reached(same.assign(q=(same["q"] - low) / (high - low)))
    by_hits = spread(hit).sort_values("uses", ascending=False, kind="stable")
    named = list(dict.fromkeys([*deletion.met, *map(str, by_hits.index)]))[:NAMED]
    titles = ["MemP: successes / hits", "MemRL: q, as a share of r− … r+"]
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.05, subplot_titles=titles)
    for panel, lines in enumerate((hit, same), start=1):
        at = {"row": 1, "col": panel}
        add_lines(figure, lines, named, run, "%{y:.2f} after use %{x}, step %{customdata}", **at)
        for name in line_names(lines, named, run, LOW, HIGH):
            figure.add_annotation(name, **at)
        title = "hits: uses in first place" if panel == 1 else "uses in any place"
        figure.update_xaxes(title_text=title, **use_axis(lines, 2 * ROOM), **at)
    _draw_rule(figure, hit, deletion)
    figure.update_layout(bare_layout(height=400, margin={"l": 8, "r": 16, "t": 44, "b": 8}, showlegend=False))
    figure.update_yaxes(range=[LOW, HIGH], zeroline=False)
    figure.update_yaxes(title_text="rate, or q", row=1, col=1)
    title = _title(hit, deletion, run)
    alt = f"Success rate over hits beside q over uses on one axis, a line a memory. {title}."
    return Picture(figure, _table(hit, values, same, deletion, run), title, alt)


def _draw_rule(figure: go.Figure, hit: pd.DataFrame, deletion: Deletion) -> None:
    at = {"row": 1, "col": 1}
    reach = max(last_use(hit) * (1 + 2 * ROOM), deletion.hits + 1)
    figure.add_scatter(
        x=[deletion.hits, deletion.hits, reach],
        y=[0, deletion.below, deletion.below],
        mode="lines",
        line={"color": LEFT, "dash": "dash", "width": 1.5},
        hoverinfo="skip",
        **at,
    )
    figure.add_annotation(
        x=reach,
        y=deletion.below,
        text=f"from {deletion.hits} hits on, below {deletion.below:g}: deleted",
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        font={"color": LEFT, "size": 12},
        **at,
    )
    if reach > last_use(hit) * (1 + 2 * ROOM):
        figure.update_xaxes(range=[-0.2, reach], **at)
    figure.add_scatter(
        x=list(deletion.met.values()),
        y=[_rate_at(hit, memory_id, hits) for memory_id, hits in deletion.met.items()],
        mode="markers",
        marker={"symbol": "x-thin", "size": 16, "line": {"color": LEFT, "width": 3}},
        hoverinfo="skip",
        **at,
    )


def _rate_at(hit: pd.DataFrame, memory_id: str, hits: int) -> float:
    return float(hit.loc[(hit["memory"] == memory_id) & (hit["use"] == hits), "q"].iloc[0])


def _title(hit: pd.DataFrame, deletion: Deletion, run: str) -> str:
    memories = hit["memory"].nunique()
    if not memories:
        return "No memory has stood first in a rated prompt yet, so there is no success rate"
    gone = deletion.deleted if deletion.in_force else tuple(deletion.met)
    if not gone:
        return f"{memories} memories have a success rate; the deletion rule takes none of them"
    verb = "has deleted" if deletion.in_force else "would delete"
    names = ", ".join(memory_label(memory_id, run) for memory_id in gone[:MOST_NAMED])
    others = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
    return f"The deletion rule {verb} {len(gone):,} of {memories} memories with a success rate: {names}{others}"


def _table(hit: pd.DataFrame, values: pd.DataFrame, same: pd.DataFrame, deletion: Deletion, run: str) -> pd.DataFrame:
    rates = spread(hit)
    of_memrl, scaled = spread(values).reindex(rates.index), spread(same).reindex(rates.index)
    return pd.DataFrame(
        {
            "memory": [memory_label(str(memory_id), run) for memory_id in rates.index],
            "hits": rates["uses"].to_numpy(),
            "success rate": rates["last"].to_numpy(),
            "deletion rule met at hit": [deletion.met.get(str(memory_id)) for memory_id in rates.index],
            "uses for MemRL": of_memrl["uses"].to_numpy(),
            "MemRL's q": of_memrl["last"].to_numpy(),
            "q as a share of r− … r+": scaled["last"].to_numpy(),
        }
    )
