"""q of every memory over its uses: all lines thin, those that moved most named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.palette import CUT, NAMED_LINES, bare_layout, q_range
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned.lines import faint, look, names_at_ends
from memrl_core.figures.text import plain
from memrl_core.numerals import signed

NAMED = len(NAMED_LINES)
ROOM = 0.16
"""Of the width right of the last use, for the names of lines."""


def values_picture(values: pd.DataFrame, settings: Mapping[str, Any], run: str) -> Picture:
    """q of every memory that a reward has reached, over its uses (`analysis.learned.values.values_over_uses`)."""
    rated = reached(values)
    named = _most_moved(rated)
    low, middle, high = q_range(settings)
    low, high = min([low, *rated["q"]]), max([high, *rated["q"]])
    margin = (high - low) * 0.06
    figure = go.Figure()
    add_lines(figure, rated, named, run, "q %{y:+.3f} after use %{x}, step %{customdata}")
    figure.add_hline(y=middle, line={"color": CUT, "width": 1, "dash": "dot"})
    figure.update_layout(bare_layout(height=380, annotations=line_names(rated, named, run, low, high)))
    figure.update_xaxes(title_text="uses", **use_axis(rated, ROOM))
    figure.update_yaxes(title_text="q", range=[low - margin, high + margin], zeroline=False)
    title = _title(values, rated, named, run)
    return Picture(figure, _table(values, run), title, f"A line of q over the uses of each memory. {title}.")


def reached(values: pd.DataFrame) -> pd.DataFrame:
    """The rows of memories that a reward has reached at least once."""
    return values[values["memory"].isin(values.loc[values["reward"].notna(), "memory"])]


def spread(rated: pd.DataFrame) -> pd.DataFrame:
    """A row a memory, by id: its first and last q, and its uses with a reward."""
    return rated.groupby("memory", sort=False).agg(first=("q", "first"), last=("q", "last"), uses=("reward", "count"))


def add_lines(figure: go.Figure, rated: pd.DataFrame, named: Sequence[str], run: str, hover: str, **panel: int) -> None:
    """A line a memory; `named` ones in colours of their own, in that order. `panel` is the row and column of it."""
    others = [
        (rows["use"].tolist(), rows["q"].tolist())
        for memory_id, rows in rated.groupby("memory", sort=False)
        if memory_id not in named
    ]
    if others:
        figure.add_trace(faint(others), **panel)
    for number, memory_id in enumerate(named):
        rows = rated[rated["memory"] == memory_id]
        label = plain(memory_label(memory_id, run))
        figure.add_scatter(
            x=rows["use"],
            y=rows["q"],
            customdata=rows["step"],
            mode="lines+markers",
            name=label,
            showlegend=False,
            hovertemplate=f"{label}: {hover}<extra></extra>",
            **look(number),
            **panel,
        )


def line_names(rated: pd.DataFrame, named: Sequence[str], run: str, low: float, high: float) -> list[dict[str, Any]]:
    """The names of the `named` lines at their ends, in a panel from `low` to `high`."""
    ends = []
    for number, memory_id in enumerate(named):
        rows = rated[rated["memory"] == memory_id]
        if len(rows):
            label = plain(memory_label(memory_id, run))
            ends.append((float(rows["use"].iloc[-1]), float(rows["q"].iloc[-1]), label, NAMED_LINES[number]))
    return names_at_ends(ends, low, high)


def use_axis(rated: pd.DataFrame, room: float) -> dict[str, Any]:
    """An axis of whole uses with `room`, as a share of its length, right of the last."""
    last = last_use(rated)
    return {"zeroline": False, "tick0": 0, "dtick": max(1, int(last) // 8), "range": [-0.2, last * (1 + room)]}


def last_use(rated: pd.DataFrame) -> float:
    """The most uses of any memory; 1 where there is none."""
    return float(rated["use"].max()) if len(rated) else 1.0


def _most_moved(rated: pd.DataFrame) -> list[str]:
    """The memories that fell furthest and rose furthest, half each where there are so many; furthest of all first."""
    moved = spread(rated)
    far = (moved["last"] - moved["first"]).sort_values(kind="stable")
    ends = [*far.index[: NAMED // 2], *far.index[::-1][: NAMED - NAMED // 2]]
    return sorted(dict.fromkeys(map(str, ends)), key=lambda memory_id: -abs(far[memory_id]))


def _title(values: pd.DataFrame, rated: pd.DataFrame, named: Sequence[str], run: str) -> str:
    memories, moved = values["memory"].nunique(), rated["memory"].nunique()
    if not memories:
        return "No memory yet, so there is no q"
    if not moved:
        return f"No reward has reached any of the {memories} memories yet"
    first, last, uses = spread(rated).loc[named[0]]
    within = "1 use" if uses == 1 else f"{int(uses)} uses"
    far = f"{memory_label(named[0], run)} went furthest, from {signed(first)} to {signed(last)} in {within}"
    return f"Rewards have reached {moved} of {memories} memories; {far}"


def _table(values: pd.DataFrame, run: str) -> pd.DataFrame:
    named = [memory_label(memory_id, run) for memory_id in values["memory"]]
    return values.assign(memory=named).rename(columns={"before": "q before"})
