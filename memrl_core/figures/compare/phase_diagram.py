"""Where one way of choosing memories beats another: a cell a condition, a panel a value of the third parameter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.errors import InputError
from memrl_core.figures.palette import bare_layout, plain, q_colorscale
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

HEIGHT = 360
LEAST_RANGE = 5.0
"""Percentage points at the ends of the colour scale at least, so that noise does not look like an effect."""


def phase_diagram(conditions: pd.DataFrame, x: str, y: str, panel: str, arm: str, reference: str) -> Picture:
    """The paired difference of `arm` to `reference`, in percentage points, over two parameters, for each of a third.

    `conditions` is that of `experiments.reports.conditions`, with one row a combination. Numbers whose interval
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
        1,
        len(panels),
        shared_yaxes=True,
        horizontal_spacing=0.03,
        subplot_titles=[plain(f"{panel} {value:g}") for value in panels],
    )
    handles = []
    for column, value in enumerate(panels, start=1):
        part = conditions[conditions[panel] == value]
        cells = {(row[x], row[y]): row for row in part.to_dict("records")}
        rows = [[cells.get((a, b)) for a in across] for b in along]
        cells_of_panel = _panel(rows, across, along, x, y)
        figure.add_trace(cells_of_panel, row=1, col=column)
        handles.append((_handles(cells_of_panel), column))
    # A browser tells a click on a marker, none on a cell.
    for handle, column in handles:
        figure.add_trace(handle, row=1, col=column)
    for number in range(1, len(panels) + 1):
        figure.update_xaxes(title_text=plain(x), type="category", showgrid=False, row=1, col=number)
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_yaxes(title_text=plain(y), row=1, col=1)
    scale = {
        "colorscale": q_colorscale(),
        "cmin": -most,
        "cmax": most,
        "colorbar": {"title": {"text": "points"}, "thickness": 10, "len": 0.9},
    }
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


def _panel(
    rows: Sequence[Sequence[dict[str, object] | None]], across: Sequence[float], along: Sequence[float], x: str, y: str
) -> go.Heatmap:
    def of(name: str, scale: float = 1.0) -> list[list[float]]:
        return [[np.nan if cell is None else scale * float(str(cell[name])) for cell in row] for row in rows]

    difference, low, high = of("difference", 100), of("low", 100), of("high", 100)
    texts = [
        ["" if np.isnan(d) else _bold(signed(d, 1), a > 0 or b < 0) for d, a, b in zip(*line, strict=True)]
        for line in zip(difference, low, high, strict=True)
    ]
    shares = np.dstack([low, high, of("reference", 100), of("success", 100), of("seeds")]).tolist()
    streams = [["" if cell is None else plain(str(cell["stream"])) for cell in row] for row in rows]
    known = [[[name, *cell] for name, cell in zip(*line, strict=True)] for line in zip(streams, shares, strict=True)]
    return go.Heatmap(
        z=difference,
        x=[f"{value:g}" for value in across],
        y=[f"{value:g}" for value in along],
        text=texts,
        texttemplate="%{text}",
        textfont={"size": 12},
        customdata=known,
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        hoverinfo="skip",
    )


def _handles(cells: go.Heatmap) -> go.Scatter:
    """What is pointed at and clicked: a marker one cannot see on every cell, with the cell's numbers."""
    places = [(x, y, n, m) for n, y in enumerate(cells.y) for m, x in enumerate(cells.x)]
    return go.Scatter(
        x=[x for x, *_ in places],
        y=[y for _, y, *_ in places],
        customdata=[[*cells.customdata[n][m], cells.z[n][m]] for *_, n, m in places],
        mode="markers",
        marker={"size": 34, "symbol": "square", "opacity": 0},
        showlegend=False,
        hovertemplate=(
            "%{customdata[0]}<br>%{customdata[6]:+.1f} points (%{customdata[1]:+.1f}…%{customdata[2]:+.1f})<br>"
            "%{customdata[3]:.1f} % → %{customdata[4]:.1f} %, %{customdata[5]:d} seeds<extra></extra>"
        ),
    )


def _bold(text: str, bold: bool) -> str:
    return f"<b>{text}</b>" if bold else text
