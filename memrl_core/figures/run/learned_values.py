"""q and success rate of every memory over its uses: all lines thin, those that moved most named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.values import Deletion
from memrl_core.figures.palette import (
    CUT,
    LEFT,
    NAMED_LINES,
    NEUTRAL,
    THIN,
    bare_layout,
    curve,
    drawn,
    level,
    marks,
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


def values_picture(values: pd.DataFrame, settings: Mapping[str, Any], run: str) -> Picture:
    """q of every memory that a reward has reached, over its uses (`analysis.learned.values.values_over_uses`)."""
    rated = reached(values)
    named = _most_moved(rated)
    low, middle, high = q_range(settings)
    low, high = min([low, *rated["q"]]), max([high, *rated["q"]])
    margin = (high - low) * 0.06
    figure = drawn(
        _lines(rated, named, run, "q %{y:+.3f} after use %{x}, step %{customdata}"),
        height=380,
        annotations=_line_names(rated, named, run, low, high),
        shapes=[level(middle, color=CUT, width=1, dash="dot")],
        xaxis=_use_axis("uses", rated, ROOM),
        yaxis=titled("q", range=[low - margin, high + margin]),
    )
    title = _title(values, rated, named, run)
    return Picture(figure, _table(values, run), title, f"A line of q over the uses of each memory. {title}.")


def reached(values: pd.DataFrame) -> pd.DataFrame:
    """The rows of memories that a reward has reached at least once."""
    return values[values["memory"].isin(values.loc[values["reward"].notna(), "memory"])]


def spread(rated: pd.DataFrame) -> pd.DataFrame:
    """A row a memory, by id: its first and last q, and its uses with a reward."""
    return rated.groupby("memory", sort=False).agg(first=("q", "first"), last=("q", "last"), uses=("reward", "count"))


def _lines(rated: pd.DataFrame, named: Sequence[str], run: str, hover: str) -> list[dict[str, Any]]:
    """A line a memory; `named` ones in colours of their own, in that order, all others as one faint trace."""
    others = rated[~rated["memory"].isin(named)].groupby("memory", sort=False)
    x, y = ([value for _, rows in others for value in (*rows[column], None)] for column in ("use", "q"))
    lines = [curve(x, y, "other memories", THIN, width=1, symbol="circle", size=3)] if x else []
    for memory_id, colour, symbol in zip(named, NAMED_LINES, SYMBOLS, strict=False):
        rows = rated[rated["memory"] == memory_id]
        label = plain(memory_label(memory_id, run))
        look = {"symbol": symbol, "customdata": rows["step"], "showlegend": False}
        lines.append(curve(rows["use"], rows["q"], label, colour, f"{label}: {hover}", **look))
    return lines


def _line_names(rated: pd.DataFrame, named: Sequence[str], run: str, low: float, high: float) -> list[dict[str, Any]]:
    """The names of the `named` lines at their ends, in a panel from `low` to `high`."""
    ends = []
    for memory_id, colour in zip(named, NAMED_LINES, strict=False):
        rows = rated[rated["memory"] == memory_id]
        if len(rows):
            at = float(rows["use"].iloc[-1]), float(rows["q"].iloc[-1])
            ends.append((*at, plain(memory_label(memory_id, run)), colour))
    return names_at_ends(ends, low, high)


def _use_axis(title: str, rated: pd.DataFrame, room: float) -> dict[str, Any]:
    """An axis of whole uses with `room`, as a share of its length, right of the last."""
    last = _last_use(rated)
    return titled(title, tick0=0, dtick=max(1, int(last) // 8), range=[-0.2, last * (1 + room)])


def _last_use(rated: pd.DataFrame) -> float:
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
    far = f"{memory_label(named[0], run)} went furthest, from {signed(first)} to {signed(last)} (uses: {int(uses)})"
    return f"Rewards have reached {moved} of {memories} memories; {far}"


def _table(values: pd.DataFrame, run: str) -> pd.DataFrame:
    named = [memory_label(memory_id, run) for memory_id in values["memory"]]
    return values.assign(memory=named).rename(columns={"before": "q before"})


LOW, HIGH = -0.05, 1.05
MOST_NAMED = 12


def rates_picture(
    rates: pd.DataFrame, values: pd.DataFrame, deletion: Deletion, settings: Mapping[str, Any], run: str
) -> Picture:
    """Two panels with one axis, a line a memory that has stood first in a rated prompt.

    `rates` and `values` are `analysis.learned.values.values_over_uses` under MemP's and MemRL's rule. q is scaled from
    r− … r+ to 0 … 1. The dashed line is the deletion rule where it holds; a cross marks what it takes.
    """
    low, _, high = q_range(settings)
    hit = reached(rates)
    hit = hit[hit["use"] > 0]
    same = values[values["memory"].isin(hit["memory"])]
    same = reached(same.assign(q=(same["q"] - low) / (high - low)))
    by_hits = spread(hit).sort_values("uses", ascending=False, kind="stable")
    named = list(dict.fromkeys([*deletion.met, *map(str, by_hits.index)]))[:NAMED]
    titles = ["MemP: successes / hits", "MemRL: q, as a share of r− … r+"]
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.05, subplot_titles=titles)
    for panel, (lines, title) in enumerate(((hit, "hits: uses in first place"), (same, "uses in any place")), start=1):
        at = {"row": 1, "col": panel}
        for line in _lines(lines, named, run, "%{y:.2f} after use %{x}, step %{customdata}"):
            figure.add_trace(line, **at)
        for name in _line_names(lines, named, run, LOW, HIGH):
            figure.add_annotation(name, **at)
        figure.update_xaxes(_use_axis(title, lines, 2 * ROOM), **at)
    _draw_rule(figure, hit, deletion)
    figure.update_layout(bare_layout(height=400, margin={"l": 8, "r": 16, "t": 44, "b": 8}, showlegend=False))
    figure.update_yaxes(range=[LOW, HIGH], zeroline=False)
    figure.update_yaxes(title_text="rate, or q", row=1, col=1)
    title = _rates_title(hit, deletion, run)
    alt = f"Success rate over hits beside q over uses on one axis, a line a memory. {title}."
    return Picture(figure, _rates_table(hit, values, same, deletion, run), title, alt)


def _draw_rule(figure: go.Figure, hit: pd.DataFrame, deletion: Deletion) -> None:
    at = {"row": 1, "col": 1}
    room = _last_use(hit) * (1 + 2 * ROOM)
    reach = max(room, deletion.hits + 1)
    rule = [deletion.hits, deletion.hits, reach], [0, deletion.below, deletion.below]
    figure.add_trace(curve(*rule, "", LEFT, dash="dash", width=1.5), **at)
    words = f"from {deletion.hits} hits on, below {deletion.below:g}: deleted"
    look = {"xanchor": "right", "yanchor": "bottom", "font": {"color": LEFT, "size": 12}}
    figure.add_annotation(note(reach, deletion.below, words, **look), **at)
    figure.update_xaxes(range=[-0.2, reach], **at)
    met = hit[hit["use"] == hit["memory"].map(deletion.met)]
    edge = {"color": LEFT, "width": 3}
    figure.add_trace(marks(met["use"], met["q"], "", None, symbol="x-thin", size=16, edge=edge), **at)


def _rates_title(hit: pd.DataFrame, deletion: Deletion, run: str) -> str:
    memories = hit["memory"].nunique()
    if not memories:
        return "No memory has stood first in a rated prompt yet, so there is no success rate"
    gone = deletion.deleted if deletion.in_force else tuple(deletion.met)
    if not gone:
        return f"{memories} memories have a success rate; the deletion rule takes none of them"
    verb = "has deleted" if deletion.in_force else "would delete"
    names = ", ".join(memory_label(memory_id, run) for memory_id in gone[:MOST_NAMED])
    others = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
    return f"The deletion rule {verb} {len(gone):,} of {memories} memories with a success rate: {names}{others}"


def _rates_table(
    hit: pd.DataFrame, values: pd.DataFrame, same: pd.DataFrame, deletion: Deletion, run: str
) -> pd.DataFrame:
    rates = spread(hit)
    of_memrl, scaled = spread(values).reindex(rates.index), spread(same).reindex(rates.index)
    return pd.DataFrame(
        {
            "memory": [memory_label(str(memory_id), run) for memory_id in rates.index],
            "hits": rates["uses"].to_numpy(),
            "success rate": rates["last"].to_numpy(),
            "deletion rule met at hit": [deletion.met.get(str(memory_id)) for memory_id in rates.index],
            "uses for MemRL": of_memrl["uses"].to_numpy(),
            "MemRL's q": of_memrl["last"].to_numpy(),
            "q as a share of r− … r+": scaled["last"].to_numpy(),
        }
    )


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


def mark_size(steps: pd.Series) -> int:
    """The size of a mark a step, so that the marks of all `steps` stand beside each other."""
    across = int(steps.max() - steps.min()) + 1 if len(steps) else 1
    return max(4, min(12, 720 // across))
