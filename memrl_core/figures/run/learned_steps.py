"""What methods decided step by step: RMM's reranking, and tallies."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.deciding import Ranks
from memrl_core.figures.decision.rerank import crossing, rank_figure, rank_line
from memrl_core.figures.palette import (
    ENTERED,
    LEFT,
    LEFT_OUT,
    NEUTRAL,
    SELECTED,
    UTILITY,
    bars,
    curve,
    drawn,
    plain,
    titled,
)
from memrl_core.figures.picture import Picture

STAGES = ("similarity", "after adapters", "after noise")


def bump_picture(ranks: Sequence[Ranks], k2: int, run: str) -> Picture:
    """A line a memory of the pool through its three ranks; coloured where it crossed the cut after k2 on the way."""
    lines = []
    for one in ranks:
        places = (one.recalled, one.adapted, one.drawn)
        label = plain(memory_label(one.memory_id, run))
        ends = [label, f"✓ {label}" if one.drawn <= k2 else label]
        colour = crossing(one.recalled, one.drawn, k2)
        hover = f"{label}: rank {places[0]} → {places[1]} → {places[2]}"
        lines.append(rank_line(places, ends, colour, hover))
    figure = rank_figure(lines, STAGES, k2, 90)
    title = _bump_title(ranks, k2, run)
    rows = [(memory_label(one.memory_id, run), one.recalled, one.adapted, one.drawn, one.drawn <= k2) for one in ranks]
    columns = ["memory", "rank by similarity", "after adapters", "after noise", "in the prompt"]
    table = pd.DataFrame(rows, columns=columns)
    return Picture(figure, table, title, f"Lines from rank by similarity over adapters to noise. {title}.")


def _bump_title(ranks: Sequence[Ranks], k2: int, run: str) -> str:
    if not ranks:
        return "Nothing to rank: the pool is empty"
    moved = sum(one.recalled != one.adapted for one in ranks)
    by_noise = [memory_label(one.memory_id, run) for one in ranks if one.drawn <= k2 < one.adapted]
    sentence = f"The adapters moved {moved} of {len(ranks):,} memories"
    if by_noise:
        return f"{sentence}; the noise brought {', '.join(by_noise)} into the prompt"
    return f"{sentence}; the noise changed nothing of what is in the prompt"


LOOKS_OF_COUNTS = (
    (SELECTED, ""),
    (ENTERED, "/"),
    (LEFT, "x"),
    (LEFT_OUT, ""),
    (UTILITY, "."),
)


def counts_picture(counts: pd.DataFrame, what: str) -> Picture:
    """A stacked bar an epoch, of how often each thing happened in it; `what` is counted.

    `counts` has the column `epoch` and at most five others, one for each thing.
    """
    names, traces = list(counts.columns.drop("epoch")), []
    for name, (colour, pattern) in zip(names, LOOKS_OF_COUNTS, strict=False):
        hover = f"epoch %{{x}}: %{{y}} × {name}"
        traces.append(bars(counts["epoch"], counts[name], name, colour, hover, pattern=pattern))
        traces[-1]["marker"]["line"] = {"width": 1, "color": NEUTRAL}
    look = {"height": 320, "barmode": "stack", "bargap": 0.35, "yaxis": titled(what)}
    figure = drawn(traces, xaxis={"title": {"text": "epoch"}, "type": "category"}, **look)
    sums = [f"{int(counts[name].sum()):,} {name}" for name in names]
    title = f"{what.capitalize()}: {', '.join(sums)}" if counts[names].to_numpy().any() else f"No {what} yet"
    return Picture(figure, counts, title, f"Stacked bars of {what} by epoch. {title}.")


def pass_picture(solved: pd.DataFrame) -> Picture:
    """The share of tasks solved within k tries, by k; hollow where k tries are not over for every task.

    `solved` is `learned.values.solved_within`.
    """
    whole = solved["over"] == solved["tasks"]
    hover = "pass@%{x}: %{customdata[0]} of %{customdata[1]} tasks; k tries are over for %{customdata[2]}"
    look = {"symbol": ["circle" if one else "circle-open" for one in whole], "size": 10, "shape": "hv"}
    line = curve(solved["k"], solved["share"], "", SELECTED, hover, **look)
    line["customdata"] = solved[["solved", "tasks", "over"]].to_numpy()
    across = titled("k tries", tick0=1, dtick=max(1, len(solved) // 10))
    up = titled("pass@k", range=[-0.03, 1.03], tickformat=".0%")
    figure = drawn([line], height=300, xaxis=across, yaxis=up)
    title = _pass_title(solved)
    return Picture(figure, solved, title, f"A line of the share of tasks solved within k tries. {title}.")


def _pass_title(solved: pd.DataFrame) -> str:
    if solved.empty:
        return "No try was judged yet"
    first, last = solved.iloc[0], solved.iloc[-1]
    sentence = f"pass@1 is {int(first['solved'])} of {int(first['tasks'])} tasks"
    if len(solved) > 1:
        sentence += f", pass@{int(last['k'])} is {int(last['solved'])}: luck alone, without memory"
    open_tasks = int(last["tasks"] - last["over"])
    return f"{sentence}; {open_tasks} tasks still have tries to come" if open_tasks else sentence
