"""What every chart comes as: a figure, its table twin, and words for those who cannot see it; and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
from plotly.io.json import to_json_plotly


class Shown(Protocol):
    """What a screen needs of a picture; `height` in pixels, `to_json` as Plotly's script takes it."""

    @property
    def figure(self) -> go.Figure: ...
    @property
    def table(self) -> pd.DataFrame: ...
    @property
    def title(self) -> str: ...
    @property
    def alt(self) -> str: ...
    @property
    def height(self) -> int | None: ...
    def to_json(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with the table of the same numbers.

    `title` states the finding and is shown as text above the figure; `alt` describes the figure in words.
    """

    figure: go.Figure
    table: pd.DataFrame
    title: str
    alt: str

    @property
    def height(self) -> int | None:
        """How high the figure is, in pixels; None where it does not say."""
        return _height(self.figure)

    def to_json(self) -> str:
        """The figure as what Plotly's script takes."""
        return _json(self.figure)


def _height(figure: go.Figure) -> int | None:
    height: int | None = figure.layout.height
    return height


def _json(figure: go.Figure) -> str:
    text: str = figure.to_json()
    return text


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
