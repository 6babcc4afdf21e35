"""What all figures share: colours and marks that can be read in light and dark and without red and green, axes, panels,
and text that is safe to draw.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

SIMILARITY = "#4c8fd6"
UTILITY = "#e08214"
SELECTED = "#4c8fd6"
POOL = "#9dbfe3"
LEFT_OUT = "rgba(140,140,150,0.45)"
NEUTRAL = "rgba(140,140,150,0.9)"
ENTERED = "#1b9e77"
LEFT = "#d95f02"
CUT = "#8a8f98"
SUM = "#8a8f98"
RING = "#7b8794"
EDGE = "rgba(128,128,128,0.8)"
CLEAR = "rgba(0,0,0,0)"
INSIDE, OUTLINE = "white", "black"
OTHER_TERM = "#8073ac"
CHOSEN_SHADE = "rgba(76,143,214,0.14)"
LUCK_BAND = "rgba(140,140,150,0.25)"
THIN = "rgba(140,140,150,0.35)"

# Okabe and Ito's, without black and yellow, for lines that have their names at their ends.
NAMED_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
# Those that stand out on white and on black; the dash tells the lines apart without colour.
DASHED_LINES = (
    ("#4c8fd6", "solid"),
    ("#e08214", "dash"),
    ("#1b9e77", "dot"),
    ("#c35f9b", "dashdot"),
    ("#8a8f98", "longdash"),
)

# Two runs side by side: the lines of the first and of the second, and the bands of their intervals.
ARMS = (SELECTED, UTILITY)
ARM_BANDS = ("rgba(76,143,214,0.22)", "rgba(224,130,20,0.22)")

# What an epoch made of a task, in Okabe and Ito's colours; each also has its own hatching in `STATE_PATTERNS`.
NEWLY_SOLVED = "#56b4e9"
KEPT = "#0072b2"
FORGOTTEN = "#d55e00"
RECOVERED = "#e6c229"
NEVER_SOLVED = "rgba(140,140,150,0.45)"
STATE_PATTERNS = {NEWLY_SOLVED: "+", KEPT: "", FORGOTTEN: "/", RECOVERED: "x", NEVER_SOLVED: "."}

# ColorBrewer's PuOr with its pale middle darkened enough to be seen on white.
_PUOR = ((0.0, "#b35806"), (0.25, "#f1a340"), (0.5, "#c9c7cf"), (0.75, "#998ec3"), (1.0, "#542788"))


def q_colorscale() -> list[list[Any]]:
    """Orange below the middle, purple above it; the same in every figure."""
    return [[at, colour] for at, colour in _PUOR]


def q_range(settings: Mapping[str, Any]) -> tuple[float, float, float]:
    """Where the scale of q begins, its middle and its end: r−, halfway, r+."""
    low, high = float(settings["reward_failure"]), float(settings["reward_success"])
    return low, (low + high) / 2, high


def pale(colour: str) -> str:
    """The band of a line that has one of the colours in hexadecimal digits."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.22)"


def upright(x: float, **line: Any) -> dict[str, Any]:
    """A line through the whole height of a chart, for its layout's shapes."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "xref": "x", "yref": "y domain", "line": line}


def level(y: float, **line: Any) -> dict[str, Any]:
    """A line through the whole width of a chart, for its layout's shapes."""
    return {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y, "xref": "x domain", "yref": "y", "line": line}


def row_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis with a row a label, the first on top."""
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(labels),
        "autorange": "reversed",
        "showgrid": False,
        "ticklabeloverflow": "allow",
    }


def bare_layout(**more: Any) -> dict[str, Any]:
    """What all flat charts share: no background of their own, room for labels, the theme's font."""
    return {
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "margin": {"l": 8, "r": 16, "t": 34, "b": 8},
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        **more,
    }


@lru_cache(maxsize=65_536)
def plain(text: str, longest: int = 60) -> str:
    """`one_line` of `text`, escaped for Plotly."""
    return html.escape(one_line(text, longest), quote=False)


def one_line(text: str, longest: int = 60) -> str:
    """`text` in one line of at most `longest` characters, without control or direction marks; not escaped."""
    kept = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    line = " ".join(kept.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


Floats = npt.NDArray[np.float64]

GAP = 0.06
"""Between two panels, as a share of the width."""


LINES = 2
"""On so many lines above a picture stand what its marks say, so that neighbours do not run into each other."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A change at a place on an axis of time: 3.5 lies between epochs 3 and 4."""

    at: float
    text: str


def in_panel(panel: int) -> dict[str, str]:
    """The axes of a trace in a panel, counted from 0."""
    return {"xaxis": f"x{panel + 1 if panel else ''}", "yaxis": "y"}


def panels(
    names: Sequence[str],
    marked: Sequence[Sequence[Mark]],
    across: Mapping[str, Any],
    up: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """The layout of a panel a run, side by side on the y axis `up`, with its name and its marks above.

    Each has an x axis like `across`.
    """
    width = (1 - GAP * (len(names) - 1)) / len(names)
    axes, words, lines = {}, [], []
    for panel, (name, marks) in enumerate(zip(names, marked, strict=True)):
        left, axis = panel * (width + GAP), in_panel(panel)["xaxis"]
        axes[axis.replace("x", "xaxis")] = {**across, "domain": [left, left + width], "anchor": "y"}
        begin = {"x": left, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom"}
        words.append({**begin, "text": f"<b>{plain(name)}</b>", "showarrow": False, "yshift": 4 + 13 * LINES})
        drawn, said = mark_lines(marks, axis)
        lines += drawn
        words += said
    legend = {"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0}
    margin = {"l": 0, "r": 0, "t": 26 + 13 * LINES, "b": 8}
    layout = {"height": 360, "showlegend": True, "legend": legend, "margin": margin, **more}
    return bare_layout(yaxis=up, annotations=words, shapes=lines, **axes, **layout)


def epoch_axis(epochs: int) -> dict[str, Any]:
    """An axis of whole epochs, with about ten ticks at most."""
    return {"title": {"text": "epoch"}, "tick0": 1, "dtick": max(1, epochs // 10), "zeroline": False}


def share_axis(title: str) -> dict[str, Any]:
    """An axis from nothing to all, in percent."""
    return {"title": {"text": title}, "range": [-0.02, 1.02], "tickformat": ".0%", "zeroline": False}


def mark_lines(
    marks: Sequence[Mark], axis: str, colour: str = CUT
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A vertical line at every mark, and what it says above the picture."""
    line = {"type": "line", "xref": axis, "yref": "paper", "y0": 0, "y1": 1}
    lines = [{**line, "x0": mark.at, "x1": mark.at, "line": {"color": colour, "dash": "dot", "width": 1.5}}
             for mark in marks]  # fmt: skip
    above = {"xref": axis, "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "left", "showarrow": False}
    words = [
        {**above, "x": mark.at, "text": plain(mark.text), "yshift": 13 * (place % LINES), "font": {"size": 10}}
        for place, mark in enumerate(marks)
    ]
    return lines, words


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
