"""A figure as the plain data that Plotly's script draws, for pictures that are drawn again with every move.

A `go.Figure` checks every property and copies all of them several times: tens of milliseconds for each redraw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
from plotly.io.json import to_json_plotly


@dataclass(frozen=True, slots=True)
class Drawing:
    """Traces and layout by the names that Plotly has for their properties; numbers may be arrays of numpy."""

    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]

    def figure(self) -> go.Figure:
        """The same as a figure that is checked. Raises `ValueError` for a property that Plotly does not have."""
        return go.Figure({"data": list(self.traces), "layout": dict(self.layout)})

    def to_json(self) -> str:
        """What Plotly's script takes, in the look that Plotly gives to every figure of Python."""
        layout = {"template": _template(), **self.layout}
        text: str = to_json_plotly({"data": list(self.traces), "layout": layout})
        return text


class DrawnPicture:
    """A picture (see `Picture`) of a drawing; its figure and its table are made when somebody takes them away."""

    def __init__(self, drawing: Drawing, table: Callable[[], pd.DataFrame], title: str, alt: str) -> None:
        self.title = title
        self.alt = alt
        self._drawing = drawing
        self._make_table = table

    @cached_property
    def figure(self) -> go.Figure:
        """The whole figure."""
        return self._drawing.figure()

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table of its numbers."""
        return self._make_table()

    @property
    def height(self) -> int | None:
        """How high it is, in pixels; None where it does not say."""
        return self._drawing.layout.get("height")

    @cached_property
    def _json(self) -> str:
        return self._drawing.to_json()

    def to_json(self) -> str:
        """What Plotly's script takes."""
        return self._json


@cache
def _template() -> dict[str, Any]:
    template: dict[str, Any] = pio.templates[pio.templates.default].to_plotly_json()
    return template
