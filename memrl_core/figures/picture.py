"""What every chart comes as: a figure, its table twin, and words for those who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
from plotly.io.json import to_json_plotly


class Picture:
    """A figure with the table of the same numbers.

    `title` states the finding and is shown as text above the figure; `alt` describes the figure in words. A figure may
    be a mapping with `data` and `layout` in Plotly's names, and a table a function that makes it: what a slider draws
    again and again is then checked and made only when somebody takes it away.
    """

    def __init__(
        self,
        figure: go.Figure | Mapping[str, Any],
        table: pd.DataFrame | Callable[[], pd.DataFrame],
        title: str,
        alt: str,
    ) -> None:
        self.title = title
        self.alt = alt
        self._drawn = figure
        self._table = table

    @cached_property
    def figure(self) -> go.Figure:
        """The whole figure. Raises `ValueError` for a property that Plotly does not have."""
        return self._drawn if isinstance(self._drawn, go.Figure) else go.Figure(dict(self._drawn))

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table of its numbers."""
        return self._table() if callable(self._table) else self._table

    @property
    def height(self) -> int | None:
        """How high it is, in pixels; None where it does not say."""
        layout = self._drawn["layout"]
        height: int | None = layout.height if isinstance(layout, go.Layout) else layout.get("height")
        return height

    def to_json(self) -> str:
        """What Plotly's script takes, in the look that Plotly gives to every figure of Python."""
        text: str
        if isinstance(self._drawn, go.Figure):
            text = self._drawn.to_json()
        else:
            template = pio.templates[pio.templates.default].to_plotly_json()
            text = to_json_plotly({**self._drawn, "layout": {"template": template, **self._drawn["layout"]}})
        return text
