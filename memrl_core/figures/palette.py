"""The colours and marks of all figures, chosen to be read in light and dark and without red and green."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def q_symbol(q: float, middle: float, visits: int) -> str:
    """The sign of q by shape: up above the middle, down below it, a circle for what was never updated."""
    if visits == 0 or q == middle:
        return "circle"
    return "triangle-up" if q > middle else "triangle-down"


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
