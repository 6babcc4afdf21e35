"""What all figures share: colours and marks that can be read in light and dark and without red and green, axes, panels,
and text that is safe to draw.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from memrl_core.errors import one_line
from memrl_core.retrieval import Floats

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
UNLUCKY = "#cc79a7"
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


def note(x: float | str, y: float | str, text: str, /, **more: Any) -> dict[str, Any]:
    """Words at a place of a chart, for its layout's annotations; `xref="paper"` places them in the whole figure."""
    return {"x": x, "y": y, "text": text, "showarrow": False, **more}


def titled(title: str, /, **more: Any) -> dict[str, Any]:
    """An axis with a title and no line at zero."""
    return {"title": {"text": title}, "zeroline": False, **more}


def row_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis with a row per label, the first on top."""
    order = {"type": "category", "categoryorder": "array", "categoryarray": list(labels), "autorange": "reversed"}
    return {**order, "showgrid": False, "ticklabeloverflow": "allow"}


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


BELOW = {"orientation": "h", "yanchor": "top", "x": 0}
"""A legend below its chart."""


def drawn(traces: Sequence[Mapping[str, Any]], /, **layout: Any) -> dict[str, Any]:
    """A figure of `traces` in the layout that all flat charts share."""
    return {"data": list(traces), "layout": bare_layout(**layout)}


def trace(kind: str, x: Any, y: Any, name: str, hover: str, /, **more: Any) -> dict[str, Any]:
    """A trace: one without a name has no place in the legend, and one without words is silent when pointed at.

    With a `hovertemplate` instead of `hover`, its name stands beside the words.
    """
    words: dict[str, Any] = {}
    if "hovertemplate" not in more:
        words = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    named = {"name": name} if name else {"showlegend": False}
    return {"type": kind, "x": x, "y": y, **named, **words, **more}


def curve(
    x: Any, y: Any, name: str, colour: str, hover: str = "", /, *, symbol: Any = None, size: Any = 7, **more: Any
) -> dict[str, Any]:
    """A line of a `dash`, a `width` and a `shape`, with marks on it where `symbol` says which."""
    line = {"color": colour, "dash": more.pop("dash", "solid"), "width": more.pop("width", 2)}
    look: dict[str, Any] = {"mode": "lines", "line": {**line, "shape": more.pop("shape", None)}}
    if symbol is not None:
        look |= {"mode": "lines+markers", "marker": {"color": colour, "symbol": symbol, "size": size}}
    return trace("scatter", x, y, name, hover, **{**look, **more})


def marks(
    x: Any, y: Any, name: str, colour: Any, hover: str = "", /, *, symbol: Any = "circle", size: Any = 7, **more: Any
) -> dict[str, Any]:
    """A mark at each point, with an `edge` of its own and with words beside it where there is `text`."""
    look = {"color": colour, "symbol": symbol, "size": size, "line": more.pop("edge", None)}
    mode = "markers+text" if "text" in more else "markers"
    return trace("scatter", x, y, name, hover, mode=mode, marker=look, **more)


def words(x: Any, y: Any, text: Sequence[str], /, **more: Any) -> dict[str, Any]:
    """Words at points of a chart, right of each unless said otherwise."""
    look = {"mode": "text", "text": text, "textposition": "middle right", "cliponaxis": False}
    return trace("scatter", x, y, "", "", **{**look, **more})


def bars(
    x: Any, y: Any, name: str, colour: Any, hover: str = "", /, *, pattern: Any = "", **more: Any
) -> dict[str, Any]:
    """Bars, hatched by `pattern`; lying ones have `orientation="h"`."""
    return trace("bar", x, y, name, hover, marker={"color": colour, "pattern": {"shape": pattern}}, **more)


def band(x: Any, low: Any, high: Any, colour: str | None, /, **more: Any) -> dict[str, Any]:
    """The area between two lines over `x`, (n,) each."""
    x, low, high = map(np.asarray, (x, low, high))
    outline = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    look = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": colour}
    return trace("scatter", *outline, "", "", **{**look, **more})


@lru_cache(maxsize=65_536)
def plain(text: str, longest: int = 60) -> str:
    """`one_line` of `text`, escaped for Plotly."""
    return html.escape(one_line(text, longest), quote=False)


GAP = 0.06
"""Between two panels, as a share of the width."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A change at a place on an axis of time: 3.5 lies between epochs 3 and 4."""

    at: float
    text: str


def interval_bars(values: Floats, low: Floats, high: Floats, colour: str) -> dict[str, Any]:
    """Error bars from `low` to `high`, (n,) each; none where they are nan."""
    arms = {"array": high - values, "arrayminus": values - low}
    return {"type": "data", "symmetric": False, "color": colour, "thickness": 1.5, **arms}
