"""Runs and conditions in one figure: rewards added up, q of one memory in each, where one way beats another, and by how
much on the phones of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from statistics import fmean
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memrl_core.analysis.compare.comparison import ENOUGH_TASKS, CumulativeReward
from memrl_core.analysis.run.metrics import seed_interval
from memrl_core.errors import InputError
from memrl_core.figures.palette import (
    CLEAR,
    CUT,
    DASHED_LINES,
    NEUTRAL,
    SELECTED,
    band,
    bare_layout,
    bars,
    curve,
    drawn,
    marks,
    note,
    pale,
    plain,
    q_colorscale,
    titled,
    upright,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed
from memrl_core.records import UtilityPoint


def reward_picture(rewards: CumulativeReward, names: Sequence[str]) -> Picture:
    """Above, the rewards of every run added up; below, each run minus the first with the band of its interval."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.58, 0.42], vertical_spacing=0.08)
    positions = rewards.positions
    for (colour, dash), name, total in zip(cycle(DASHED_LINES), names, rewards.totals, strict=False):
        look = {"dash": dash, "width": 2.5, "hovertemplate": "%{x} tasks: %{y:+.3f}"}
        figure.add_trace(curve(positions, total, plain(name), colour, **look), row=1, col=1)
    for index, difference in enumerate(rewards.differences):
        colour, dash = DASHED_LINES[(index + 1) % len(DASHED_LINES)]
        if not np.isnan(rewards.low[index]).any():
            around = band(positions, rewards.low[index], rewards.high[index], pale(colour))
            figure.add_trace(around, row=2, col=1)
        look = {"dash": dash, "width": 2.5, "showlegend": False, "hovertemplate": "%{x} tasks: Δ %{y:+.3f}"}
        figure.add_trace(curve(positions, difference, plain(names[index + 1]), colour, **look), row=2, col=1)
    figure.add_hline(y=0, line={"color": CUT, "width": 1, "dash": "dot"}, row=2, col=1)
    figure.update_layout(bare_layout(height=400, showlegend=True))
    figure.update_xaxes(title_text="tasks met by all, in lockstep", row=2, col=1)
    figure.update_yaxes(title_text="reward so far", zeroline=False, row=1, col=1)
    figure.update_yaxes(title_text=f"Δ to {plain(names[0], 16)}", zeroline=False, row=2, col=1)
    title = _reward_title(rewards, names)
    alt = f"Lines of the reward added up over the tasks, and below them the difference with its 95 % band. {title}."
    return Picture(figure, _reward_table(rewards, names), title, alt)


def trajectories_picture(
    histories: Sequence[tuple[str, Sequence[UtilityPoint]]], label: str, parted_after: int = 0
) -> Picture:
    """q of one memory in every run that knows it, step by step; a line where the runs part, when they share a past."""
    lines = []
    for (colour, dash), (name, points) in zip(cycle(DASHED_LINES), histories, strict=False):
        line = curve(
            [point.step for point in points], [point.after for point in points], plain(name), colour,
            dash=dash, shape="hv", width=2.5, size=8,
            symbol=["diamond" if p.reward is None else "circle" for p in points],
            customdata=[["" if p.reward is None else f" · reward {signed(p.reward)}"] for p in points],
            hovertemplate="step %{x}: q %{y:+.3f}%{customdata[0]}",
        )  # fmt: skip
        lines.append(line)
    layout: dict[str, Any] = {"xaxis": {"title": {"text": "step"}, "rangemode": "tozero"}, "yaxis": titled("q")}
    if parted_after:
        layout["shapes"] = [upright(parted_after + 0.5, color=CUT, dash="dash", width=1.5)]
        layout["annotations"] = [note(parted_after + 0.5, 1, "fork", yref="paper", xanchor="left")]
    figure = drawn(lines, height=320, showlegend=True, **layout)
    ends = ", ".join(f"{signed(points[-1].after)} in {name} ({_uses(points)})" for name, points in histories)
    title = f"{label}: q ends at {ends}"
    rows = [(name, p.step, p.before, p.after, p.reward, p.visits) for name, points in histories for p in points]
    table = pd.DataFrame(rows, columns=["run", "step", "q before", "q after", "reward", "uses"])
    return Picture(figure, table, title, f"One line of q a run, with a mark for each reward. {title}.")


def _uses(points: Sequence[UtilityPoint]) -> str:
    rewarded = sum(point.reward is not None for point in points)
    return "1 reward" if rewarded == 1 else f"{rewarded} rewards"


def _reward_title(rewards: CumulativeReward, names: Sequence[str]) -> str:
    parts = []
    for index, name in enumerate(names[1:]):
        sentence = f"{name} has {signed(float(rewards.differences[index][-1]))} reward against {names[0]}"
        low, high = float(rewards.low[index][-1]), float(rewards.high[index][-1])
        if np.isnan(low):
            parts.append(f"{sentence} on one task: no interval")
            continue
        clear = (low > 0 or high < 0) and rewards.tasks >= ENOUGH_TASKS
        chance = "" if clear else ", so it may be chance"
        parts.append(f"{sentence} (95 %: {signed(low)} to {signed(high)}{chance})")
    return "; ".join(parts)


def _reward_table(rewards: CumulativeReward, names: Sequence[str]) -> pd.DataFrame:
    columns = {"tasks met": rewards.positions, **dict(zip(names, rewards.totals, strict=True))}
    for index, name in enumerate(names[1:]):
        columns |= {
            f"Δ {name}": rewards.differences[index],
            f"Δ {name}, from": rewards.low[index],
            f"Δ {name}, to": rewards.high[index],
        }
    return pd.DataFrame(columns)


HEIGHT = 360
LEAST_RANGE = 5.0
"""Percentage points at the ends of the colour scale at least, so that noise does not look like an effect."""


def phase_diagram(conditions: pd.DataFrame, x: str, y: str, panel: str, arm: str, reference: str) -> Picture:
    """The paired difference of `arm` to `reference`, in percentage points, over two parameters, for each of a third.

    `conditions` is that of `experiments.epochs.conditions`, with one row per combination. Numbers whose interval
    leaves out 0 are bold; `customdata` of a cell is the name of its stream. Raises `InputError` for columns that are
    not there and for several rows in one cell.
    """
    if missing := [name for name in (x, y, panel) if name not in conditions.columns]:
        raise InputError(f"The results do not vary {', '.join(missing)}, so there is no such diagram.")
    if conditions.duplicated([x, y, panel]).any():
        raise InputError(f"Other parameters than {x}, {y} and {panel} vary too; choose one value of each of them.")
    panels, across, along = (sorted(conditions[name].unique()) for name in (panel, x, y))
    most = max(LEAST_RANGE, float(100 * conditions["difference"].abs().max()))
    figure = make_subplots(
        1, len(panels), shared_yaxes=True, horizontal_spacing=0.03,
        subplot_titles=[plain(f"{panel} {value:g}") for value in panels],
    )  # fmt: skip
    cells = [_panel(conditions[conditions[panel] == value], across, along, x, y) for value in panels]
    # A browser tells a click on a marker, none on a cell.
    for draw in (lambda found: found, _handles):
        figure.add_traces([draw(found) for found in cells], rows=1, cols=list(range(1, len(panels) + 1)))
    figure.update_xaxes(title_text=plain(x), type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_yaxes(title_text=plain(y), row=1, col=1)
    bar = {"title": {"text": "points"}, "thickness": 10, "len": 0.9}
    scale = {"colorscale": q_colorscale(), "cmin": -most, "cmax": most, "colorbar": bar}
    figure.update_layout(**bare_layout(height=HEIGHT, margin={"l": 8, "r": 16, "t": 40, "b": 8}), coloraxis=scale)
    better, worse = int((conditions["low"] > 0).sum()), int((conditions["high"] < 0).sum())
    mean = 100 * float(conditions["difference"].mean())
    title = (
        f"{arm} beats {reference} in {better} of {len(conditions)} conditions and loses in {worse}; in the others the "
        f"interval holds 0. Mean difference {signed(mean, 1)} points"
    )
    table = conditions[[panel, x, y, "reference", "success", "difference", "low", "high", "seeds"]]
    alt = f"A grid of conditions over {x} and {y} for each {panel}, coloured by the difference. {title}."
    return Picture(figure, table, title, alt)


def _panel(part: pd.DataFrame, across: Sequence[float], along: Sequence[float], x: str, y: str) -> go.Heatmap:
    def of(name: str) -> pd.DataFrame:
        return part.pivot(index=y, columns=x, values=name).reindex(index=along, columns=across)

    difference, low, high = 100 * of("difference"), 100 * of("low"), 100 * of("high")
    texts = difference.map(lambda points: "" if np.isnan(points) else signed(points, 1))
    numbers = (low, high, 100 * of("reference"), 100 * of("success"), of("seeds"))
    streams = of("stream").map(plain, na_action="ignore").fillna("")
    known = np.dstack([streams, *numbers]).tolist()
    return go.Heatmap(
        z=difference.to_numpy().tolist(),
        x=[f"{value:g}" for value in across],
        y=[f"{value:g}" for value in along],
        text=texts.where((low <= 0) & (high >= 0) | difference.isna(), "<b>" + texts + "</b>").to_numpy().tolist(),
        texttemplate="%{text}",
        textfont={"size": 12},
        customdata=known,
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        hoverinfo="skip",
    )


def _handles(cells: go.Heatmap) -> dict[str, Any]:
    """What is pointed at and clicked: a marker one cannot see on every cell, with the cell's numbers."""
    handles = [(x, y, n, m) for n, y in enumerate(cells.y) for m, x in enumerate(cells.x)]
    hover = (
        "%{customdata[0]}<br>%{customdata[6]:+.1f} points (%{customdata[1]:+.1f}…%{customdata[2]:+.1f})<br>"
        "%{customdata[3]:.1f} % → %{customdata[4]:.1f} %, %{customdata[5]:d} seeds"
    )
    known = [[*cells.customdata[n][m], cells.z[n][m]] for *_, n, m in handles]
    x, y = [x for x, *_ in handles], [y for _, y, *_ in handles]
    return marks(x, y, "", CLEAR, hover, symbol="square", size=34, customdata=known)


WIDTH = 5.0
"""Percentage points of a bar of the histogram."""


AXIS_LINE = 56
"""Letters of a line below an axis, fewer than `plain` cuts off."""


def results_picture(results: Sequence[float], effect: str) -> Picture:
    """How often each difference came out, in percentage points; `results` are between −1 and 1, a phone each.

    Bars of differences below 0 and above have the two ends of the scale of q. The title gives the mean, its 95 %
    interval where there are two or more, and how many phones saw the opposite of the mean.
    """
    points = [100 * result for result in results]
    mean = fmean(points) if points else 0.0
    opposite = sum(one * mean < 0 for one in points)
    title = f"One seed: {signed(mean, 1)} points" if points else "No phone has played yet"
    if len(points) > 1:
        low, high = map(float, seed_interval(np.array(points)))
        title = f"{len(points)} seeds: {signed(mean, 1)} points on average ({signed(low, 1)}…{signed(high, 1)}); "
        title += f"{opposite} of them saw the opposite"
    # A bar's middle is a multiple of its width, so that no bar holds differences of both signs but the one around 0.
    counts = pd.Series([WIDTH * round(one / WIDTH) for one in points], dtype=float).value_counts().sort_index()
    scale = q_colorscale()
    colours = [scale[-1][1] if at > 0 else scale[0][1] if at < 0 else NEUTRAL for at in counts.index]
    most = max([30.0, *(abs(at) + WIDTH for at in counts.index)])
    named = [note(mean, 1, "mean", yref="paper", yanchor="bottom")] if points else []
    figure = drawn(
        [bars(list(counts.index), list(counts), "", colours, "%{x:+.0f} points: %{y}", width=WIDTH * 0.94)],
        height=HEIGHT,
        margin={"l": 8, "r": 28, "t": 30, "b": 8},
        shapes=[
            upright(0, color=CUT, width=1, dash="dot"),
            *([upright(mean, color=SELECTED, width=3)] if points else []),
        ],
        annotations=named,
        xaxis={
            "title": {"text": "<br>".join(map(plain, wrap(effect, AXIS_LINE)))},
            "range": [-most, most],
            "ticksuffix": " pp",
            "ticklabeloverflow": "allow",
            "automargin": True,
        },
        yaxis={
            "automargin": True,
            "title": {"text": "phones"},
            "rangemode": "tozero",
            "dtick": max(1, int(max([1, *counts]) // 5)),
        },
    )
    table = pd.DataFrame({"difference, percentage points": points})
    return Picture(figure, table, title, f"A histogram of {len(points)} differences. {title}.")
