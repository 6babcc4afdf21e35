"""q, or another learned number, of every memory over its uses: all lines thin, those that moved most named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.palette import (
    CUT,
    NAMED_LINES,
    NEUTRAL,
    THIN,
    curve,
    drawn,
    level,
    note,
    plain,
    q_range,
    titled,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed

NAMED = len(NAMED_LINES)
ROOM = 0.16
"""Of the width right of the last use, for the names of lines."""


def values_picture(values: pd.DataFrame, settings: Mapping[str, Any], run: str, value: str = "q") -> Picture:
    """The `value` of every memory that a reward has reached, over its uses (`learned.values.values_over_uses`)."""
    rated = values[values["memory"].isin(values.loc[values["reward"].notna(), "memory"])]
    named = _most_moved(rated)
    low, middle, high = q_range(settings)
    low, high = min([low, *rated["q"]]), max([high, *rated["q"]])
    margin = (high - low) * 0.06
    last = float(rated["use"].max()) if len(rated) else 1.0
    figure = drawn(
        _lines(rated, named, run),
        height=380,
        annotations=_line_names(rated, named, run, low, high),
        shapes=[level(middle, color=CUT, width=1, dash="dot")],
        xaxis=titled("uses", tick0=0, dtick=max(1, int(last) // 8), range=[-0.2, last * (1 + ROOM)]),
        yaxis=titled(value, range=[low - margin, high + margin]),
    )
    title = _title(values, rated, named, run, value)
    label = [memory_label(memory_id, run) for memory_id in values["memory"]]
    table = values.assign(memory=label).rename(columns={"before": f"{value} before", "q": value})
    return Picture(figure, table, title, f"A line of {value} over the uses of each memory. {title}.")


def _spread(rated: pd.DataFrame) -> pd.DataFrame:
    """A row a memory, by id: its first and last q, and its uses with a reward."""
    return rated.groupby("memory", sort=False).agg(first=("q", "first"), last=("q", "last"), uses=("reward", "count"))


def _lines(rated: pd.DataFrame, named: Sequence[str], run: str) -> list[dict[str, Any]]:
    """A line a memory; `named` ones in colours of their own, in that order, all others as one faint trace."""
    others = rated[~rated["memory"].isin(named)].groupby("memory", sort=False)
    x, y = ([value for _, rows in others for value in (*rows[column], None)] for column in ("use", "q"))
    lines = [curve(x, y, "other memories", THIN, width=1, symbol="circle", size=3)] if x else []
    for memory_id, colour, symbol in zip(named, NAMED_LINES, SYMBOLS, strict=False):
        rows = rated[rated["memory"] == memory_id]
        label = plain(memory_label(memory_id, run))
        look = {"symbol": symbol, "customdata": rows["step"], "showlegend": False}
        hover = f"{label}: %{{y:+.3f}} after use %{{x}}, step %{{customdata}}"
        lines.append(curve(rows["use"], rows["q"], label, colour, hover, **look))
    return lines


def _line_names(rated: pd.DataFrame, named: Sequence[str], run: str, low: float, high: float) -> list[dict[str, Any]]:
    """The names of the `named` lines at their ends, in a panel from `low` to `high`."""
    ends = []
    for memory_id, colour in zip(named, NAMED_LINES, strict=False):
        end = rated[rated["memory"] == memory_id].iloc[-1]
        ends.append((float(end["use"]), float(end["q"]), plain(memory_label(memory_id, run)), colour))
    return names_at_ends(ends, low, high)


def _most_moved(rated: pd.DataFrame) -> list[str]:
    """The memories that fell furthest and rose furthest, half each where there are so many; furthest of all first."""
    moved = _spread(rated)
    far = (moved["last"] - moved["first"]).sort_values(kind="stable")
    ends = [*far.index[: NAMED // 2], *far.index[::-1][: NAMED - NAMED // 2]]
    return sorted(dict.fromkeys(map(str, ends)), key=lambda memory_id: -abs(far[memory_id]))


def _title(values: pd.DataFrame, rated: pd.DataFrame, named: Sequence[str], run: str, value: str) -> str:
    memories, moved = values["memory"].nunique(), rated["memory"].nunique()
    if not memories:
        return f"No memory yet, so there is no {value}"
    if not moved:
        return f"No reward has reached any of the {memories} memories yet"
    first, last, uses = _spread(rated).loc[named[0]]
    far = f"{memory_label(named[0], run)} went furthest, from {signed(first)} to {signed(last)} (uses: {int(uses)})"
    return f"Rewards have reached {moved} of {memories} memories; {far}"


SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
SPAN, NEAR = 0.055, 0.1
"""Of the height and of the width of a panel that the name of a line needs."""


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
        colour = members[0][1] if len(members) == 1 else NEUTRAL
        look = {"font": {"color": colour, "size": 12}, "xanchor": "left", "xshift": 8, "yshift": 7}
        placed.append(note(x, y, ", ".join(name for name, _ in members), **look))
    return placed


def step_axis(steps: pd.Series) -> dict[str, Any]:
    """An axis of whole steps with about ten ticks."""
    if not len(steps):
        return titled("step")
    first, last = int(steps.min()), int(steps.max())
    ticks = {"tick0": first, "dtick": max(1, (last - first + 1) // 10)}
    return titled("step", range=[first - 0.6, last + 0.6], **ticks)
