"""Where one way of choosing memories beats another: a cell a condition, a panel a value of the third parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.errors import InputError
from memrl_core.figures.palette import CLEAR, bare_layout, marks, plain, q_colorscale
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

HEIGHT = 360
LEAST_RANGE = 5.0
"""Percentage points at the ends of the colour scale at least, so that noise does not look like an effect."""


def phase_diagram(conditions: pd.DataFrame, x: str, y: str, panel: str, arm: str, reference: str) -> Picture:
    """The paired difference of `arm` to `reference`, in percentage points, over two parameters, for each of a third.

    `conditions` is that of `experiments.conditions`, with one row a combination. Numbers whose interval
    leaves out 0 are bold; `customdata` of a cell is the name of its stream. Raises `InputError` for columns that are
    not there and for several rows in one cell.
    """
    if missing := [name for name in (x, y, panel) if name not in conditions.columns]:
        raise InputError(f"The results do not vary {', '.join(missing)}, so there is no such diagram.")
    if conditions.duplicated([x, y, panel]).any():
        raise InputError(f"Other parameters than {x}, {y} and {panel} vary too; choose one value of each of them.")
    panels, across, along = (sorted(conditions[name].unique()) for name in (panel, x, y))
    most = max(LEAST_RANGE, float(100 * conditions["difference"].abs().max()))
    figure = make_subplots(
        1, len(panels), shared_yaxes=True, horizontal_spacing=0.03,
        subplot_titles=[plain(f"{panel} {value:g}") for value in panels],
    )  # fmt: skip
    cells = [_panel(conditions[conditions[panel] == value], across, along, x, y) for value in panels]
    # A browser tells a click on a marker, none on a cell.
    for draw in (lambda found: found, _handles):
        figure.add_traces([draw(found) for found in cells], rows=1, cols=list(range(1, len(panels) + 1)))
    figure.update_xaxes(title_text=plain(x), type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_yaxes(title_text=plain(y), row=1, col=1)
    bar = {"title": {"text": "points"}, "thickness": 10, "len": 0.9}
    scale = {"colorscale": q_colorscale(), "cmin": -most, "cmax": most, "colorbar": bar}
    figure.update_layout(**bare_layout(height=HEIGHT, margin={"l": 8, "r": 16, "t": 40, "b": 8}), coloraxis=scale)
    better, worse = int((conditions["low"] > 0).sum()), int((conditions["high"] < 0).sum())
    mean = 100 * float(conditions["difference"].mean())
    title = (
        f"{arm} beats {reference} in {better} of {len(conditions)} conditions and loses in {worse}; in the others the "
        f"interval holds 0. Mean difference {signed(mean, 1)} points"
    )
    table = conditions[[panel, x, y, "reference", "success", "difference", "low", "high", "seeds"]]
    alt = f"A grid of conditions over {x} and {y} for each {panel}, coloured by the difference. {title}."
    return Picture(figure, table, title, alt)


def _panel(part: pd.DataFrame, across: Sequence[float], along: Sequence[float], x: str, y: str) -> go.Heatmap:
    def of(name: str) -> pd.DataFrame:
        return part.pivot(index=y, columns=x, values=name).reindex(index=along, columns=across)

    difference, low, high = 100 * of("difference"), 100 * of("low"), 100 * of("high")
    texts = difference.map(lambda points: "" if np.isnan(points) else signed(points, 1))
    numbers = (low, high, 100 * of("reference"), 100 * of("success"), of("seeds"))
    streams = of("stream").map(plain, na_action="ignore").fillna("")
    known = np.dstack([streams, *numbers]).tolist()
    return go.Heatmap(
        z=difference.to_numpy().tolist(),
        x=[f"{value:g}" for value in across],
        y=[f"{value:g}" for value in along],
        text=texts.where((low <= 0) & (high >= 0) | difference.isna(), "<b>" + texts + "</b>").to_numpy().tolist(),
        texttemplate="%{text}",
        textfont={"size": 12},
        customdata=known,
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        hoverinfo="skip",
    )


def _handles(cells: go.Heatmap) -> dict[str, Any]:
    """What is pointed at and clicked: a marker one cannot see on every cell, with the cell's numbers."""
    places = [(x, y, n, m) for n, y in enumerate(cells.y) for m, x in enumerate(cells.x)]
    hover = (
        "%{customdata[0]}<br>%{customdata[6]:+.1f} points (%{customdata[1]:+.1f}…%{customdata[2]:+.1f})<br>"
        "%{customdata[3]:.1f} % → %{customdata[4]:.1f} %, %{customdata[5]:d} seeds"
    )
    known = [[*cells.customdata[n][m], cells.z[n][m]] for *_, n, m in places]
    x, y = [x for x, *_ in places], [y for _, y, *_ in places]
    return marks(x, y, "", CLEAR, hover, symbol="square", size=34, customdata=known)
