"""q and success rate of every memory over its uses: all lines thin, those that moved most named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.values import Deletion
from memrl_core.figures.palette import CUT, LEFT, NAMED_LINES, NEUTRAL, THIN, bare_layout, plain, q_range
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
    for panel, lines in enumerate((hit, same), start=1):
        at = {"row": 1, "col": panel}
        add_lines(figure, lines, named, run, "%{y:.2f} after use %{x}, step %{customdata}", **at)
        for name in line_names(lines, named, run, LOW, HIGH):
            figure.add_annotation(name, **at)
        title = "hits: uses in first place" if panel == 1 else "uses in any place"
        figure.update_xaxes(title_text=title, **use_axis(lines, 2 * ROOM), **at)
    _draw_rule(figure, hit, deletion)
    figure.update_layout(bare_layout(height=400, margin={"l": 8, "r": 16, "t": 44, "b": 8}, showlegend=False))
    figure.update_yaxes(range=[LOW, HIGH], zeroline=False)
    figure.update_yaxes(title_text="rate, or q", row=1, col=1)
    title = _rates_title(hit, deletion, run)
    alt = f"Success rate over hits beside q over uses on one axis, a line a memory. {title}."
    return Picture(figure, _rates_table(hit, values, same, deletion, run), title, alt)


def _draw_rule(figure: go.Figure, hit: pd.DataFrame, deletion: Deletion) -> None:
    at = {"row": 1, "col": 1}
    reach = max(last_use(hit) * (1 + 2 * ROOM), deletion.hits + 1)
    figure.add_scatter(
        x=[deletion.hits, deletion.hits, reach],
        y=[0, deletion.below, deletion.below],
        mode="lines",
        line={"color": LEFT, "dash": "dash", "width": 1.5},
        hoverinfo="skip",
        **at,
    )
    figure.add_annotation(
        x=reach,
        y=deletion.below,
        text=f"from {deletion.hits} hits on, below {deletion.below:g}: deleted",
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        font={"color": LEFT, "size": 12},
        **at,
    )
    if reach > last_use(hit) * (1 + 2 * ROOM):
        figure.update_xaxes(range=[-0.2, reach], **at)
    figure.add_scatter(
        x=list(deletion.met.values()),
        y=[_rate_at(hit, memory_id, hits) for memory_id, hits in deletion.met.items()],
        mode="markers",
        marker={"symbol": "x-thin", "size": 16, "line": {"color": LEFT, "width": 3}},
        hoverinfo="skip",
        **at,
    )


def _rate_at(hit: pd.DataFrame, memory_id: str, hits: int) -> float:
    return float(hit.loc[(hit["memory"] == memory_id) & (hit["use"] == hits), "q"].iloc[0])


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
FAINT = {"color": THIN, "width": 1}
SPAN, NEAR = 0.055, 0.1
"""Of the height and of the width of a panel that the name of a line needs."""


def faint(lines: Sequence[tuple[Sequence[float], Sequence[float]]]) -> go.Scatter:
    """All the lines that share one look, as one trace."""
    x: list[float | None] = []
    y: list[float | None] = []
    for across, up in lines:
        x += [*across, None]
        y += [*up, None]
    marker = {"size": 3, "color": THIN}
    return go.Scatter(
        x=x, y=y, mode="lines+markers", name="other memories", line=FAINT, marker=marker, hoverinfo="skip"
    )


def look(number: int) -> dict[str, Any]:
    """Line and marks of the line `number`, from 0."""
    colour = NAMED_LINES[number % len(NAMED_LINES)]
    return {
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 7, "symbol": SYMBOLS[number % len(SYMBOLS)]},
    }


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
        placed.append(
            {
                "x": x,
                "y": y,
                "text": ", ".join(name for name, _ in members),
                "font": {"color": members[0][1] if len(members) == 1 else NEUTRAL, "size": 12},
                "xanchor": "left",
                "xshift": 8,
                "yshift": 7,
                "showarrow": False,
            }
        )
    return placed


def step_axis(first: int, last: int) -> dict[str, Any]:
    """An axis of whole steps with about ten ticks."""
    return {
        "title": {"text": "step"},
        "range": [first - 0.6, last + 0.6],
        "tick0": first,
        "dtick": max(1, (last - first + 1) // 10),
        "zeroline": False,
    }


def mark_size(steps: pd.Series) -> int:
    """The size of a mark a step, so that the marks of all `steps` stand beside each other."""
    across = int(steps.max() - steps.min()) + 1 if len(steps) else 1
    return max(4, min(12, 720 // across))


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels of a category axis, those that are there already with a number behind them."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found
