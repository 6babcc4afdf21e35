"""Two or more runs in one figure: their rewards added up, and q of one memory in each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from plotly.subplots import make_subplots

from memrl_core.analysis.compare.comparison import ENOUGH_TASKS, CumulativeReward
from memrl_core.figures.palette import (
    CUT,
    DASHED_LINES,
    band,
    bare_layout,
    curve,
    drawn,
    note,
    pale,
    plain,
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
    for place, difference in enumerate(rewards.differences):
        colour, dash = DASHED_LINES[(place + 1) % len(DASHED_LINES)]
        if not np.isnan(rewards.low[place]).any():
            around = band(positions, rewards.low[place], rewards.high[place], pale(colour))
            figure.add_trace(around, row=2, col=1)
        look = {"dash": dash, "width": 2.5, "showlegend": False, "hovertemplate": "%{x} tasks: Δ %{y:+.3f}"}
        figure.add_trace(curve(positions, difference, plain(names[place + 1]), colour, **look), row=2, col=1)
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
    for place, name in enumerate(names[1:]):
        sentence = f"{name} has {signed(float(rewards.differences[place][-1]))} reward against {names[0]}"
        low, high = float(rewards.low[place][-1]), float(rewards.high[place][-1])
        if np.isnan(low):
            parts.append(f"{sentence} on one task: no interval")
            continue
        clear = (low > 0 or high < 0) and rewards.tasks >= ENOUGH_TASKS
        chance = "" if clear else ", so it may be chance"
        parts.append(f"{sentence} (95 %: {signed(low)} to {signed(high)}{chance})")
    return "; ".join(parts)


def _reward_table(rewards: CumulativeReward, names: Sequence[str]) -> pd.DataFrame:
    columns = {"tasks met": rewards.positions, **dict(zip(names, rewards.totals, strict=True))}
    for place, name in enumerate(names[1:]):
        columns |= {
            f"Δ {name}": rewards.differences[place],
            f"Δ {name}, from": rewards.low[place],
            f"Δ {name}, to": rewards.high[place],
        }
    return pd.DataFrame(columns)
