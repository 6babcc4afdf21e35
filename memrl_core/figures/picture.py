"""What every chart comes as: a figure, its table twin, and words for those who cannot see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pandas as pd
import plotly.graph_objects as go


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
