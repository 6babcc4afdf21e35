"""How utilities move: the changes of one step, the history of one memory, and how unevenly memories are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.memory.exposure import Starvation
from memrl_core.figures.palette import CUT, NEUTRAL, SELECTED, UTILITY, bare_layout, q_colorscale, q_range, upright
from memrl_core.figures.picture import Drawing, DrawnPicture, Picture
from memrl_core.numerals import signed
from memrl_core.records import UtilityPoint, ValueChange

ROW_HEIGHT = 44
SOURCE_SYMBOLS = {"environment": "circle", "person": "triangle-up", None: "diamond"}
SOURCE_NAMES = {"environment": "environment", "person": "person", None: "written"}


def moves_drawing(moves: Sequence[tuple[str, float, float]], settings: Mapping[str, Any]) -> Drawing:
    """One row a (label, q before, q after), from hollow to filled, on the fixed scale of q."""
    low, middle, high = q_range(settings)
    labels = [label for label, _, _ in moves]
    lines, changes = [], []
    for label, before, after in moves:
        scale = q_colorscale()
        colour = scale[-2][1] if after > before else scale[1][1]
        lines.append(
            {
                "type": "scatter",
                "x": [before, after],
                "y": [label, label],
                "mode": "lines+markers",
                "line": {"color": colour, "width": 4},
                "marker": {
                    "size": [11, 14],
                    "symbol": ["circle-open", "triangle-right" if after > before else "triangle-left"],
                    "color": colour,
                    "line": {"width": 2},
                },
                "showlegend": False,
                "hovertemplate": "q %{x:+.3f}<extra></extra>",
            }
        )
        sentence = signed(after - before)
        changes.append({"x": (before + after) / 2, "y": label, "text": sentence, "showarrow": False, "yshift": 14})
    margin = (high - low) * 0.05
    layout = bare_layout(
        height=70 + ROW_HEIGHT * len(moves),
        shapes=[upright(middle, color=CUT, width=1, dash="dot")],
        annotations=changes,
        xaxis={"range": [low - margin, high + margin], "title": {"text": "q"}, "zeroline": False},
        yaxis={"type": "category", "categoryorder": "array", "categoryarray": labels, "autorange": "reversed"},
    )
    return Drawing(lines, layout)


def moves_picture(changes: Sequence[ValueChange], settings: Mapping[str, Any], run: str) -> DrawnPicture:
    """One row a memory, from its q before to after a step, on the fixed scale of q."""
    labels = [memory_label(change.memory_id, run) for change in changes]
    drawing = moves_drawing([(n, c.before, c.after) for n, c in zip(labels, changes, strict=True)], settings)
    up = sum(change.after > change.before for change in changes)
    down = sum(change.after < change.before for change in changes)
    title = (
        f"{up} q rose and {down} fell, by α = {changes[0].alpha:g} of the way to the reward {signed(changes[0].reward)}"
    )

    def table() -> pd.DataFrame:
        return pd.DataFrame(
            {
                "memory": labels,
                "q before": [c.before for c in changes],
                "q after": [c.after for c in changes],
                "Δ": [c.after - c.before for c in changes],
                "reward": [c.reward for c in changes],
                "α": [c.alpha for c in changes],
                "uses": [c.visits for c in changes],
            }
        )

    return DrawnPicture(drawing, table, title, f"For each memory a line from q before to q after. {title}.")


def history_picture(points: Sequence[UtilityPoint], settings: Mapping[str, Any], memory_id: str, run: str) -> Picture:
    """q of one memory step by step: a diamond when it was written, then a mark a reward, shaped by who gave it."""
    low, _, high = q_range(settings)
    figure = go.Figure()
    figure.add_scatter(
        x=[p.step for p in points],
        y=[p.after for p in points],
        mode="lines",
        line={"color": NEUTRAL, "shape": "hv"},
        hoverinfo="skip",
        showlegend=False,
    )
    for source in dict.fromkeys(p.source for p in points):
        members = [p for p in points if p.source == source]
        figure.add_scatter(
            x=[p.step for p in members],
            y=[p.after for p in members],
            mode="markers",
            name=SOURCE_NAMES[source],
            marker={
                "symbol": SOURCE_SYMBOLS[source],
                "size": 11,
                "color": [p.after for p in members],
                "colorscale": q_colorscale(),
                "cmin": low,
                "cmax": high,
                "line": {"width": 1, "color": NEUTRAL},
            },
            customdata=[["" if p.reward is None else f" · reward {signed(p.reward)}"] for p in members],
            hovertemplate="step %{x}: q %{y:+.3f}%{customdata[0]}<extra></extra>",
        )
    rewards = [p.reward for p in points if p.reward is not None]
    if rewards:
        figure.add_hline(y=fmean(rewards), line={"dash": "dash", "color": UTILITY, "width": 1.5})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=fmean(rewards), yanchor="bottom", text="mean reward", showarrow=False
        )
    margin = (high - low) * 0.08
    figure.update_layout(bare_layout(height=250, showlegend=True))
    figure.update_xaxes(title_text="step", rangemode="tozero")
    figure.update_yaxes(title_text="q", range=[low - margin, high + margin], zeroline=False)
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
    """A row a memory from q without the rewards to q now, in the order given; the table holds them all.

    `moved` maps memory ids to (q without, q now).
    """
    rows = [(memory_label(memory_id, run), without, now) for memory_id, (without, now) in moved.items()]
    figure = moves_drawing(rows[:MOST_SHOWN], settings).figure()
    risen = sum(now > without for _, without, now in rows)
    title = f"{risen} q stand higher and {len(rows) - risen} lower than without these rewards"
    if len(rows) > MOST_SHOWN:
        title += f"; the {MOST_SHOWN} that moved most"
    table = pd.DataFrame(
        {
            "memory": [label for label, _, _ in rows],
            "q without": [without for _, without, _ in rows],
            "q now": [now for _, _, now in rows],
            "Δ": [now - without for _, without, now in rows],
        }
    )
    return Picture(figure, table, title, f"For each memory a line from q without the rewards to q now. {title}.")


TOP = 0.2


def use_picture(starvation: Starvation) -> Picture:
    """The share of all uses that the least used memories have, up to all memories, beside the line of equal use."""
    memories, uses = starvation.lorenz[:, 0], starvation.lorenz[:, 1]
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="all used alike", line={"color": CUT, "dash": "dash"}, hoverinfo="skip"
    )
    figure.add_scatter(
        x=memories,
        y=uses,
        mode="lines",
        name="as it was",
        line={"color": SELECTED, "width": 2.5},
        hovertemplate="the least used %{x:.0%} of memories had %{y:.0%} of the uses<extra></extra>",
    )
    figure.update_layout(bare_layout(height=320))
    figure.update_xaxes(title_text="memories, least used first", range=[0, 1], tickformat=".0%", zeroline=False)
    figure.update_yaxes(title_text="share of all uses", range=[0, 1.01], tickformat=".0%", zeroline=False)
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
