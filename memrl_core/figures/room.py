"""What a class predicted, and what the seeds of its phones gave."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import seed_interval
from memrl_core.figures.palette import NEUTRAL, bars, drawn, note, plain, q_colorscale, upright
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
    counts = pd.Series([WIDTH * round(one / WIDTH) for one in points], dtype=float).value_counts().sort_index()
    scale = q_colorscale()
    colours = [scale[-1][1] if at > 0 else scale[0][1] if at < 0 else NEUTRAL for at in counts.index]
    most = max([30.0, *(abs(at) + WIDTH for at in counts.index)])
    named = [note(mean, 1, "mean", yref="paper", yanchor="bottom")] if points else []
    figure = drawn(
        [bars(list(counts.index), list(counts), "", colours, "%{x:+.0f} points: %{y}", width=WIDTH * 0.94)],
        height=height,
        margin={"l": 8, "r": 8, "t": 30, "b": 8},
        shapes=[upright(0, width=1, dash="dot"), *([upright(mean, width=3)] if points else [])],
        annotations=named,
        xaxis={"title": {"text": plain(effect)}, "range": [-most, most], "ticksuffix": " pp"},
        yaxis={"title": {"text": "phones"}, "rangemode": "tozero", "dtick": max(1, int(max([1, *counts]) // 5))},
    )
    table = pd.DataFrame({"difference, percentage points": points})
    return Picture(figure, table, title, f"A histogram of {len(points)} differences. {title}.")
