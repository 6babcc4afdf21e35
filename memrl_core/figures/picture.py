"""What every chart comes as: a figure, its table twin, and words for those who cannot see it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with the table of the same numbers.

    `title` states the finding and is shown as text above the figure; `alt` describes the figure in words.
    """

    figure: go.Figure
    table: pd.DataFrame
    title: str
    alt: str
