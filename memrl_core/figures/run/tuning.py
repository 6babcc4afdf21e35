"""Recall over labelled steps: the funnel of loss, measures over δ or λ, and a grid of k1 and k2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from memrl_core.analysis.recall.queries import Funnel
from memrl_core.analysis.recall.success import AgainstSuccess
from memrl_core.analysis.recall.tune import Curve
from memrl_core.figures.palette import (
    CUT,
    DASHED_LINES,
    LEFT_OUT,
    POOL,
    SELECTED,
    bars,
    curve,
    drawn,
    marks,
    note,
    plain,
    row_axis,
    titled,
    trace,
    upright,
)
from memrl_core.figures.picture import Picture
from memrl_core.numerals import counted, percent
from memrl_core.retrieval import Floats

NAMES = {
    "precision": "precision@k2",
    "recall": "recall in the selection",
    "pool_recall": "recall in the pool",
    "false_recall": "false recall",
    "empty": "came back empty",
}
POINTS = 241
"""So many values of δ or λ are drawn; each is exact."""


def funnel_picture(found: Funnel) -> Picture:
    """A bar per stage: how many of the memories that should come are left, and beside it those lost before it."""
    stages, left = list(found.counts), list(found.counts.values())
    gone = [0, *(before - after for before, after in pairwise(left))]
    if found.used is not None:
        stages, gone, left = [*stages, "followed by the answer"], [*gone, left[-1] - found.used], [*left, found.used]
    worst = max(range(len(gone)), key=gone.__getitem__)
    figure = drawn(
        [
            bars(left, stages, "left", SELECTED, "%{y}: %{x} left", orientation="h"),
            bars(gone, stages, "lost here", LEFT_OUT, "%{y}: %{x} lost here", orientation="h", pattern="/"),
        ],
        height=60 + 34 * len(stages),
        barmode="stack",
        showlegend=True,
        xaxis=titled("memories that should come", rangemode="tozero"),
        yaxis=row_axis(stages),
    )
    share = percent(left[-1 if found.used is None else -2] / left[0]) if left[0] else "none"
    title = (
        f"{share} of {counted(left[0], 'memory')} that should come {'was' if left[0] == 1 else 'were'} in the prompt"
    )
    if gone[worst]:
        title += f"; most are lost at “{stages[worst]}” ({gone[worst]:,})"
    table = pd.DataFrame({"stage": stages, "left": left, "lost here": gone})
    return Picture(figure, table, title, f"A bar for each stage from labelled to prompt. {title}.")


def success_picture(found: AgainstSuccess) -> Picture:
    """A mark per family: how much of what should come is in its prompts, and how often it succeeds."""
    groups = found.groups
    names = [f"{plain(one.name, 24)} (n = {one.steps:,})" for one in groups]
    x, y = [one.recall for one in groups], [one.success for one in groups]
    hover = "%{text}: recall %{x:.2f}, success %{y:.2f}"
    order = {row: index for index, row in enumerate(sorted(range(len(x)), key=lambda row: (y[row], x[row])))}
    above = ["bottom center" if order[row] % 2 else "top center" for row in range(len(x))]
    dots = marks(x, y, "groups", SELECTED, hover, size=11, text=names, textposition=above, cliponaxis=False)
    figure = drawn(
        [dots],
        height=330,
        showlegend=False,
        xaxis=titled("recall in the prompt, of what could be in it", range=[-0.08, 1.08]),
        yaxis=titled("share of successes", range=[-0.05, 1.12]),
    )
    title = found.sentences[0].rstrip(".") if found.sentences else "No labelled step is rated"
    table = pd.DataFrame(
        [(one.name, one.steps, one.recall, one.success) for one in groups],
        columns=["group", "steps", "recall in the prompt", "success"],
    )
    return Picture(figure, table, title, f"Recall in the prompt against success, a mark per group. {title}.")


def curves_picture(curves: Mapping[str, Curve], symbol: str, low: float, high: float, now: float) -> Picture:
    """The measures over one setting from `low` to `high`, with a line where the run stands."""
    at = np.unique(np.append(np.linspace(low, high, POINTS), now))
    known = {name: found.at(at) for name, found in curves.items() if not np.isnan(found.values).all()}
    lines = [
        curve(
            at, values, NAMES[name], colour, f"{NAMES[name]} %{{y:.3f}} at {symbol} %{{x:.3f}}", dash=dash, shape="hv"
        )
        for (name, values), (colour, dash) in zip(known.items(), DASHED_LINES, strict=False)
    ]
    figure = drawn(
        lines,
        height=330,
        showlegend=True,
        shapes=[upright(now, color=CUT, width=1, dash="dot")],
        annotations=[note(now, 1.0, "the run", xanchor="left", yanchor="bottom")],
        xaxis=titled(symbol, range=[low, high]),
        yaxis=titled("share of labelled steps", range=[-0.02, 1.06]),
    )
    best = ""
    if "recall" in known:
        index = int(np.argmax(known["recall"].round(9)))
        best = f": recall in the selection is highest at {symbol} {at[index]:.2f} ({known['recall'][index]:.2f})"
    title = f"What another {symbol} would have recalled{best}"
    table = pd.DataFrame({symbol: at, **{NAMES[name]: values for name, values in known.items()}})
    return Picture(figure, table, title, f"Lines of {', '.join(NAMES[name] for name in known)} over {symbol}. {title}.")


def grid_picture(values: Floats, k1s: Sequence[int], k2s: Sequence[int], k1: int, k2: int, measure: str) -> Picture:
    """A measure for every k1 (rows) and k2 (columns); the run's own pair is named in the title."""
    rows, columns = [f"k1 = {one}" for one in k1s], [f"k2 = {one}" for one in k2s]
    text = [["" if np.isnan(one) else f"{one:.2f}" for one in row] for row in values]
    heat = trace(
        "heatmap", columns, rows, "", "%{y}, %{x}: %{z:.3f}", z=values, text=text, texttemplate="%{text}",
        colorscale=[[0, POOL], [1, SELECTED]], showscale=False, xgap=2, ygap=2,
    )  # fmt: skip
    figure = drawn([heat], height=90 + 30 * len(k1s), xaxis={"type": "category"}, yaxis=row_axis(rows))
    known = np.where(np.isnan(values), -1.0, values)
    row, column = divmod(int(known.argmax()), len(k2s))
    name = NAMES[measure][0].upper() + NAMES[measure][1:]
    title = f"{name} is highest at k1 = {k1s[row]}, k2 = {k2s[column]}; the run has {k1} and {k2}"
    table = pd.DataFrame(values, columns=columns)
    table.insert(0, "k1", list(k1s))
    return Picture(figure, table, title, f"A grid of k1 and k2. {title}.")
