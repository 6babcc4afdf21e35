"""How utilities move: the changes of one step, the history of one memory, and how unevenly memories are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.memory.exposure import Starvation
from memrl_core.figures.palette import (
    CUT,
    NEUTRAL,
    SELECTED,
    UTILITY,
    curve,
    drawn,
    level,
    marks,
    note,
    q_colorscale,
    q_range,
    row_axis,
    titled,
    upright,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import signed
from memrl_core.records import UtilityPoint, ValueChange

ROW_HEIGHT = 44
SOURCE_SYMBOLS = {"environment": "circle", "person": "triangle-up", None: "diamond"}
SOURCE_NAMES = {"environment": "environment", "person": "person", None: "written"}


def _moves(moves: Sequence[tuple[str, float, float]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """One row a (label, q before, q after), from hollow to filled, on the fixed scale of q."""
    low, middle, high = q_range(settings)
    scale, lines, changes = q_colorscale(), [], []
    for label, before, after in moves:
        colour, arrow = (scale[-2][1], "triangle-right") if after > before else (scale[1][1], "triangle-left")
        line = curve([before, after], [label] * 2, "", colour, "q %{x:+.3f}", width=4, symbol=["circle-open", arrow])
        line["marker"] |= {"size": [11, 14], "line": {"width": 2}}
        lines.append(line)
        changes.append(note((before + after) / 2, label, signed(after - before), yshift=14))
    margin = (high - low) * 0.05
    return drawn(
        lines,
        height=70 + ROW_HEIGHT * len(moves),
        shapes=[upright(middle, color=CUT, width=1, dash="dot")],
        annotations=changes,
        xaxis=titled("q", range=[low - margin, high + margin]),
        yaxis={**row_axis([label for label, _, _ in moves]), "showgrid": True},
    )


def moves_picture(changes: Sequence[ValueChange], settings: Mapping[str, Any], run: str) -> Picture:
    """One row per memory, from its q before to after a step, on the fixed scale of q."""
    labels = [memory_label(change.memory_id, run) for change in changes]
    figure = _moves([(n, c.before, c.after) for n, c in zip(labels, changes, strict=True)], settings)
    up = sum(change.after > change.before for change in changes)
    down = sum(change.after < change.before for change in changes)
    title = (
        f"{up} q rose and {down} fell, by α = {changes[0].alpha:g} of the way to the reward {signed(changes[0].reward)}"
    )

    def table() -> pd.DataFrame:
        named = zip(labels, changes, strict=True)
        rows = [(n, c.before, c.after, c.after - c.before, c.reward, c.alpha, c.visits) for n, c in named]
        return pd.DataFrame(rows, columns=["memory", "q before", "q after", "Δ", "reward", "α", "uses"])

    return Picture(figure, table, title, f"For each memory a line from q before to q after. {title}.")


def history_picture(points: Sequence[UtilityPoint], settings: Mapping[str, Any], memory_id: str, run: str) -> Picture:
    """q of one memory step by step: a diamond when it was written, then a mark per reward, shaped by who gave it."""
    low, _, high = q_range(settings)
    traces = [curve([p.step for p in points], [p.after for p in points], "", NEUTRAL, shape="hv")]
    for source in dict.fromkeys(p.source for p in points):
        members = [p for p in points if p.source == source]
        q = [p.after for p in members]
        rewarded = [["" if p.reward is None else f" · reward {signed(p.reward)}"] for p in members]
        mark = marks(
            [p.step for p in members], q, SOURCE_NAMES[source], q, "step %{x}: q %{y:+.3f}%{customdata[0]}",
            symbol=SOURCE_SYMBOLS[source], size=11, edge={"width": 1, "color": NEUTRAL}, customdata=rewarded,
        )  # fmt: skip
        mark["marker"] |= {"colorscale": q_colorscale(), "cmin": low, "cmax": high}
        traces.append(mark)
    rewards = [p.reward for p in points if p.reward is not None]
    layout: dict[str, Any] = {}
    if rewards:
        layout["shapes"] = [level(fmean(rewards), dash="dash", color=UTILITY, width=1.5)]
        look = {"xref": "paper", "xanchor": "left", "yanchor": "bottom"}
        layout["annotations"] = [note(0, fmean(rewards), "mean reward", **look)]
    margin = (high - low) * 0.08
    across, up = titled("step", rangemode="tozero"), titled("q", range=[low - margin, high + margin])
    figure = drawn(traces, height=250, showlegend=True, xaxis=across, yaxis=up, **layout)
    label, last = memory_label(memory_id, run), points[-1]
    if rewards:
        sentence = f"{len(rewards):,} reward{'s' if len(rewards) > 1 else ''} took it from {signed(points[0].after)} to"
        title = f"{label}: {sentence} {signed(last.after)}"
    else:
        title = f"{label}: no reward yet, q is still {signed(last.after)}"
    table = pd.DataFrame(
        {
            "step": [p.step for p in points],
            "q before": [p.before for p in points],
            "q after": [p.after for p in points],
            "Δ": [None if p.before is None else p.after - p.before for p in points],
            "reward": [p.reward for p in points],
            "from": [SOURCE_NAMES[p.source] for p in points],
            "raters": [", ".join(p.raters) for p in points],
            "uses": [p.visits for p in points],
        }
    )
    return Picture(figure, table, title, f"A line of q over the steps with a mark for each reward. {title}.")


MOST_SHOWN = 12


def reward_effect_picture(moved: Mapping[str, tuple[float, float]], settings: Mapping[str, Any], run: str) -> Picture:
    """A row per memory from q without the rewards to q now, in the order given; the table holds them all.

    `moved` maps memory ids to (q without, q now).
    """
    rows = [(memory_label(memory_id, run), without, now) for memory_id, (without, now) in moved.items()]
    figure = _moves(rows[:MOST_SHOWN], settings)
    risen = sum(now > without for _, without, now in rows)
    title = f"{risen} q stand higher and {len(rows) - risen} lower than without these rewards"
    if len(rows) > MOST_SHOWN:
        title += f"; the {MOST_SHOWN} that moved most"
    columns = ["memory", "q without", "q now", "Δ"]
    table = pd.DataFrame([(label, q, now, now - q) for label, q, now in rows], columns=columns)
    return Picture(figure, table, title, f"For each memory a line from q without the rewards to q now. {title}.")


TOP = 0.2


def use_picture(starvation: Starvation) -> Picture:
    """The share of all uses that the least used memories have, up to all memories, beside the line of equal use."""
    memories, uses = starvation.lorenz[:, 0], starvation.lorenz[:, 1]
    hover = "the least used %{x:.0%} of memories had %{y:.0%} of the uses"
    share = {"range": [0, 1.01], "tickformat": ".0%"}
    figure = drawn(
        [
            curve([0, 1], [0, 1], "all used alike", CUT, dash="dash"),
            curve(memories, uses, "as it was", SELECTED, hover, width=2.5),
        ],
        height=320,
        xaxis=titled("memories, least used first", **share),
        yaxis=titled("share of all uses", **share),
    )
    title = _title(starvation)
    table = pd.DataFrame({"share of memories": memories, "share of uses": uses})
    return Picture(figure, table, title, f"A curve of the share of uses below the line of equal use. {title}.")


def _title(starvation: Starvation) -> str:
    if starvation.gini is None:
        return "No memory has been given to the model yet"
    memories, uses = starvation.lorenz[:, 0], starvation.lorenz[:, 1]
    top = 1 - float(np.interp(1 - TOP, memories, uses))
    never = len(starvation.never_recalled) + len(starvation.never_selected)
    return (
        f"The most used {TOP:.0%} of memories had {top:.0%} of all uses (Gini {starvation.gini:.2f}); {never} of "
        f"{len(memories) - 1} were never used"
    )
