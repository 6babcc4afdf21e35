"""What pictures of one run or two beside each other share: panels on one y axis, marks of shifts, interval bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.figures.palette import CLEAR, CUT, STATE_PATTERNS, bare_layout
from memrl_core.figures.text import plain

Floats = npt.NDArray[np.float64]

GAP = 0.06
"""Between two panels, as a share of the width."""


def in_panel(panel: int) -> dict[str, str]:
    """The axes of a trace in a panel, counted from 0."""
    return {"xaxis": f"x{panel + 1 if panel else ''}", "yaxis": "y"}


def panels(
    names: Sequence[str],
    shifts: Sequence[Sequence[float]],
    across: Mapping[str, Any],
    up: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """The layout of a panel a run, side by side on the y axis `up`, with its name above and marks at its `shifts`.

    Each has an x axis like `across`.
    """
    width = (1 - GAP * (len(names) - 1)) / len(names)
    axes, titles, marks = {}, [], []
    for panel, (name, at) in enumerate(zip(names, shifts, strict=True)):
        left, axis = panel * (width + GAP), in_panel(panel)["xaxis"]
        axes[axis.replace("x", "xaxis")] = {**across, "domain": [left, left + width], "anchor": "y"}
        middle = {"x": left + width / 2, "xref": "paper", "y": 1, "yref": "paper", "yanchor": "bottom"}
        titles.append({**middle, "text": f"<b>{plain(name)}</b>", "showarrow": False})
        marks += shift_marks(at, axis)
    legend = {"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0}
    return bare_layout(
        height=360, showlegend=True, legend=legend, yaxis=up, annotations=titles, shapes=marks, **axes, **more
    )


def epoch_axis(epochs: int) -> dict[str, Any]:
    """An axis of whole epochs, with about ten ticks at most."""
    return {"title": {"text": "epoch"}, "tick0": 1, "dtick": max(1, epochs // 10), "zeroline": False}


def share_axis(title: str) -> dict[str, Any]:
    """An axis from nothing to all, in percent."""
    return {"title": {"text": title}, "range": [-0.02, 1.02], "tickformat": ".0%", "zeroline": False}


def shift_marks(shifts: Sequence[float], axis: str) -> list[dict[str, Any]]:
    """A vertical line wherever the world changed."""
    label = {
        "text": "the world changed",
        "textposition": "end",
        "textangle": 0,
        "xanchor": "left",
        "yanchor": "top",
        "font": {"size": 10},
    }
    line = {"color": CUT, "dash": "dot", "width": 1.5}
    shape = {"type": "line", "xref": axis, "yref": "paper", "y0": 0, "y1": 1, "line": line, "label": label}
    return [{**shape, "x0": at, "x1": at} for at in shifts]


def interval_bars(values: Floats, low: Floats, high: Floats, colour: str) -> dict[str, Any]:
    """Error bars from `low` to `high`, (n,) each; none where they are nan."""
    arms = {"array": high - values, "arrayminus": values - low}
    return {"type": "data", "symmetric": False, "color": colour, "thickness": 1.5, **arms}


def hatching(colour: str) -> dict[str, Any]:
    """The hatching of a state of tasks (see `palette.STATE_PATTERNS`), for an area."""
    look = {"fillmode": "replace", "bgcolor": CLEAR, "size": 7, "solidity": 0.2}
    return {"shape": STATE_PATTERNS[colour], "fgcolor": colour, **look}


def steps_of_colour(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale of equal steps without transitions."""
    n = len(colours)
    return [[(at + end) / n, colour] for at, colour in enumerate(colours) for end in (0, 1)]
