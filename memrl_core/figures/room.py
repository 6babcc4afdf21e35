"""What a class predicted, and what the seeds of its phones gave."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.run.metrics import seed_interval
from memrl_core.figures.palette import NEUTRAL, bare_layout, plain, q_colorscale
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

WIDTH = 5.0
"""Percentage points of a bar of the histogram."""


def results_picture(results: Sequence[float], effect: str, height: int = 360) -> Picture:
    """How often each difference came out, in percentage points; `results` are between −1 and 1, a phone each.

    Bars of differences below 0 and above have the two ends of the scale of q. The title gives the mean, its 95 %
    interval where there are two or more, and how many phones saw the opposite of the mean.
    """
    points = [100 * result for result in results]
    mean = fmean(points) if points else 0.0
    opposite = sum(one * mean < 0 for one in points)
    title = f"{len(points)} seeds: {signed(mean, 1)} points on average"
    if len(points) > 1:
        low, high = map(float, seed_interval(np.array(points)))
        title += f" ({signed(low, 1)}…{signed(high, 1)}); {opposite} of them saw the opposite"
    # A bar's middle is a multiple of its width, so that no bar holds differences of both signs but the one around 0.
    bars = pd.Series([WIDTH * round(one / WIDTH) for one in points], dtype=float).value_counts().sort_index()
    scale = q_colorscale()
    colours = [scale[-1][1] if at > 0 else scale[0][1] if at < 0 else NEUTRAL for at in bars.index]
    figure = go.Figure(
        go.Bar(
            x=list(bars.index),
            y=list(bars),
            width=WIDTH * 0.94,
            marker_color=colours,
            hovertemplate="%{x:+.0f} points: %{y}<extra></extra>",
        )
    )
    most = max([30.0, *(abs(at) + WIDTH for at in bars.index)])
    figure.add_vline(x=0, line_width=1, line_dash="dot")
    if points:
        figure.add_vline(x=mean, line_width=3, annotation_text="mean", annotation_position="top")
    figure.update_layout(**bare_layout(height=height, margin={"l": 8, "r": 8, "t": 30, "b": 8}), showlegend=False)
    figure.update_xaxes(title_text=plain(effect), range=[-most, most], ticksuffix=" pp")
    figure.update_yaxes(title_text="phones", rangemode="tozero", dtick=max(1, int(max([1, *bars]) // 5)))
    table = pd.DataFrame({"difference, percentage points": points})
    return Picture(figure, table, title, f"A histogram of {len(points)} differences. {title}.")
