"""What the pictures of learned things share: colours for a few lines among many, their labels, and axes of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memrl_core.figures.palette import NAMED_LINES, NEUTRAL, THIN

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
FAINT = {"color": THIN, "width": 1}
SPAN, NEAR = 0.055, 0.1
"""Of the height and of the width of a panel that the name of a line needs."""


def faint(lines: Sequence[tuple[Sequence[float], Sequence[float]]]) -> go.Scatter:
    """All the lines that share one look, as one trace."""
    x: list[float | None] = []
    y: list[float | None] = []
    for across, up in lines:
        x += [*across, None]
        y += [*up, None]
    marker = {"size": 3, "color": THIN}
    return go.Scatter(
        x=x, y=y, mode="lines+markers", name="other memories", line=FAINT, marker=marker, hoverinfo="skip"
    )


def look(number: int) -> dict[str, Any]:
    """Line and marks of the line `number`, from 0."""
    colour = NAMED_LINES[number % len(NAMED_LINES)]
    return {
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 7, "symbol": SYMBOLS[number % len(SYMBOLS)]},
    }


def names_at_ends(ends: Sequence[tuple[float, float, str, str]], low: float, high: float) -> list[dict[str, Any]]:
    """An annotation right of the end (x, y) of each line with its name in its colour, moved up where two would meet.

    Lines that end at the same point share one annotation.
    """
    height, width = SPAN * (high - low), NEAR * max((x for x, *_ in ends), default=1.0)
    together: dict[tuple[float, float], list[tuple[str, str]]] = {}
    for x, y, name, colour in ends:
        together.setdefault((x, round(y, 6)), []).append((name, colour))
    placed: list[dict[str, Any]] = []
    for (x, y), members in sorted(together.items(), key=lambda one: one[0][1]):
        for other in placed:
            if abs(other["x"] - x) < width and y < other["y"] + height:
                y = other["y"] + height
        placed.append(
            {
                "x": x,
                "y": y,
                "text": ", ".join(name for name, _ in members),
                "font": {"color": members[0][1] if len(members) == 1 else NEUTRAL, "size": 12},
                "xanchor": "left",
                "xshift": 8,
                "yshift": 7,
                "showarrow": False,
            }
        )
    return placed


def step_axis(first: int, last: int) -> dict[str, Any]:
    """An axis of whole steps with about ten ticks."""
    return {
        "title": {"text": "step"},
        "range": [first - 0.6, last + 0.6],
        "tick0": first,
        "dtick": max(1, (last - first + 1) // 10),
        "zeroline": False,
    }


def mark_size(steps: pd.Series) -> int:
    """The size of a mark a step, so that the marks of all `steps` stand beside each other."""
    across = int(steps.max() - steps.min()) + 1 if len(steps) else 1
    return max(4, min(12, 720 // across))


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels of a category axis, those that are there already with a number behind them."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found
