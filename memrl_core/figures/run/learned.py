"""What methods learned: numbers over the uses of memories, decisions step by step, and text or cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, sin
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.deciding import Ranks
from memrl_core.analysis.run.learned.notes import LinkGraph
from memrl_core.figures.decision.rerank import crossing, rank_figure, rank_line
from memrl_core.figures.palette import (
    BELOW,
    CUT,
    ENTERED,
    LEFT,
    LEFT_OUT,
    NAMED_LINES,
    NEUTRAL,
    POOL,
    RING,
    SELECTED,
    THIN,
    UTILITY,
    bars,
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
from memrl_core.figures.run.reliability import SUCCESS, success_dots
from memrl_core.numerals import signed

# --- q, or another learned number, of every memory over its uses ------------------------------------------------------


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
    """A row per memory, by id: its first and last q, and its uses with a reward."""
    return rated.groupby("memory", sort=False).agg(first=("q", "first"), last=("q", "last"), uses=("reward", "count"))


def _lines(rated: pd.DataFrame, named: Sequence[str], run: str) -> list[dict[str, Any]]:
    """A line per memory; `named` ones in colours of their own, in that order, all others as one faint trace."""
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
    for memory_id in named[:NAMED]:
        end = rated[rated["memory"] == memory_id].iloc[-1]
        ends.append((float(end["use"]), float(end["q"]), plain(memory_label(memory_id, run))))
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


def names_at_ends(ends: Sequence[tuple[float, float, str]], low: float, high: float) -> list[dict[str, Any]]:
    """An annotation right of the end (x, y) of each line with its name, moved up where two would meet.

    Lines that end at the same point share one annotation. The names are written in the colour of other text: no colour
    of a line has a contrast of 4.5 to both white and black.
    """
    height, width = SPAN * (high - low), NEAR * max((x for x, *_ in ends), default=1.0)
    together: dict[tuple[float, float], list[str]] = {}
    for x, y, name in ends:
        together.setdefault((x, round(y, 6)), []).append(name)
    placed: list[dict[str, Any]] = []
    for (x, y), names in sorted(together.items(), key=lambda one: one[0][1]):
        for other in placed:
            if abs(other["x"] - x) < width and y < other["y"] + height:
                y = other["y"] + height
        placed.append(note(x, y, ", ".join(names), font={"size": 12}, xanchor="left", xshift=8, yshift=7))
    return placed


def step_axis(steps: pd.Series) -> dict[str, Any]:
    """An axis of whole steps with about ten ticks."""
    if not len(steps):
        return titled("step")
    first, last = int(steps.min()), int(steps.max())
    ticks = {"tick0": first, "dtick": max(1, (last - first + 1) // 10)}
    return titled("step", range=[first - 0.6, last + 0.6], **ticks)


# --- what was decided step by step ------------------------------------------------------------------------------------


STAGES = ("similarity", "after adapters", "after noise")


def bump_picture(ranks: Sequence[Ranks], k2: int, run: str) -> Picture:
    """A line per memory of the pool through its three ranks; coloured where it crossed the cut after k2 on the way."""
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


LOOKS_OF_COUNTS = ((SELECTED, ""), (ENTERED, "/"), (LEFT, "x"), (LEFT_OUT, ""), (UTILITY, "."))


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


# --- text and cases ---------------------------------------------------------------------------------------------------


COIN = 0.6931471805599453
"""−ln 0.5: the loss of saying one half to everything."""

CALIBRATION_NAMES = {
    "low": "p from",
    "high": "p to",
    "p": "mean p",
    "n": "uses",
    "success_low": "95 % from",
    "success_high": "95 % to",
}


def loss_picture(losses: pd.DataFrame) -> Picture:
    """The batch's loss before each task's step of learning, and after it (`learned.notes.losses`)."""
    hover = "step %{x}: %{y:.4f} with %{customdata} labelled rows"
    steps, rows = losses["step"], losses["rows"]
    coin = note(1, COIN, "says one half to everything", xref="paper", xanchor="right", yanchor="bottom")
    figure = drawn(
        [
            curve(steps, losses["before"], "before its step", SELECTED, hover, symbol="circle", customdata=rows),
            curve(
                steps, losses["after"], "after it", UTILITY, hover, dash="dot", symbol="circle-open", customdata=rows
            ),
        ],
        height=300,
        shapes=[level(COIN, color=CUT, dash="dash", width=1)],
        annotations=[coin] if len(losses) else [],
        xaxis=step_axis(steps),
        yaxis=titled("cross-entropy of the batch", rangemode="tozero"),
    )
    title = _loss_title(losses)
    return Picture(figure, losses, title, f"The loss of each task's replay batch before and after learning. {title}.")


def case_calibration_picture(bins: pd.DataFrame) -> Picture:
    """A dot per bin of predictions at its share of successes, with the 95 % Wilson interval; larger for more uses.

    `bins` is `learned.notes.case_calibration`; every prediction was made before its outcome was known.
    """
    hover = "mean p %{x:.2f}: %{y:.0%} of %{customdata[2]:d} uses succeeded"
    exactly = curve([0, 1], [0, 1], "p says it exactly", CUT, dash="dash")
    across = titled("predicted p", range=[-0.03, 1.12], dtick=0.2)
    dots = success_dots(bins, "p", "p before each use", hover)
    figure = drawn([exactly, dots], height=320, xaxis=across, yaxis=SUCCESS)
    title = _calibration_title(bins)
    table = bins.rename(columns=CALIBRATION_NAMES)
    return Picture(figure, table, title, f"Dots of success against p with their intervals and a diagonal. {title}.")


def _loss_title(losses: pd.DataFrame) -> str:
    if losses.empty:
        return "No task has trained the network yet"
    early, late = losses["before"].head(5).mean(), losses["before"].tail(5).mean()
    change = "fell" if late < early else "rose"
    return (
        f"Over {len(losses):,} tasks the loss {change} from {early:.3f} to {late:.3f} (means of the first and last "
        f"{min(5, len(losses))}); {COIN:.3f} is a coin"
    )


def _calibration_title(bins: pd.DataFrame) -> str:
    if bins.empty:
        return "No prediction was made yet: nothing to hold p against"
    n = int(bins["n"].sum())
    off = float(((bins["success"] - bins["p"]).abs() * bins["n"]).sum() / n)
    return f"p is {off:.0%} off the success that followed, on average (uses: {n:,})"


SHAPES = {"success": "circle", "failure": "x", "unrated": "circle-open"}
MOST_NAMED = 60
OUTSIDE = 1.14
"""How far from the middle of the circle, whose radius is 1, names stand."""


def link_picture(graph: LinkGraph, run: str) -> Picture:
    """A mark per note on a circle by age, the oldest on top, and a line per link; what the step changed stands out."""
    turns = {memory_id: 2 * pi * number / len(graph.notes) for number, memory_id in enumerate(graph.notes)}
    at = {memory_id: (sin(turn), cos(turn)) for memory_id, turn in turns.items()}
    linked, new = _linked(graph), graph.written | graph.edited
    labelled = graph.notes if len(graph.notes) <= MOST_NAMED else new
    traces = [
        _links([link for link in graph.links if link[0] not in new], at, "link", RING, 1),
        _links([link for link in graph.links if link[0] in new], at, "link of what is new", UTILITY, 2),
    ]
    for name, members, colour, size in (
        ("note", graph.notes.keys() - new, POOL, 12),
        ("edited in this step", graph.edited, UTILITY, 17),
        ("written in this step", graph.written, ENTERED, 17),
    ):
        shown = [memory_id for memory_id in graph.notes if memory_id in members]
        look: dict[str, Any] = {
            "symbol": [SHAPES[graph.outcomes[memory_id]] for memory_id in shown],
            "size": size,
            "edge": {"width": 1, "color": NEUTRAL},
            "customdata": [_about(graph, memory_id, len(linked[memory_id]), run) for memory_id in shown],
            "cliponaxis": False,
        }
        x, y = [at[i][0] for i in shown], [at[i][1] for i in shown]
        traces.append(marks(x, y, name, colour, "%{customdata}", **look))
    figure = drawn(
        traces,
        height=520,
        legend={**BELOW, "y": -0.02},
        margin={"l": 24, "r": 24, "t": 28, "b": 8},
        annotations=[_name_outside(plain(memory_label(i, run)), turns[i]) for i in graph.notes if i in labelled],
        xaxis={"visible": False},
        yaxis={"visible": False, "scaleanchor": "x"},
    )
    title = _links_title(graph, linked, run)
    table = pd.DataFrame(
        [
            {
                "note": memory_label(memory_id, run),
                "context": note.context,
                "keywords": ", ".join(note.keywords),
                "tags": ", ".join(note.tags),
                "linked with": ", ".join(memory_label(i, run) for i in linked[memory_id]),
                "outcome": graph.outcomes[memory_id],
            }
            for memory_id, note in graph.notes.items()
        ]
    )
    return Picture(figure, table, title, f"Notes as marks, links as lines between them. {title}.")


def _name_outside(name: str, turn: float) -> dict[str, Any]:
    """The name of a note on the circle, read outwards on its right half and inwards on its left."""
    angle = degrees(turn) - 90 if turn <= pi else degrees(turn) + 90
    return note(OUTSIDE * sin(turn), OUTSIDE * cos(turn), name, textangle=angle, font={"size": 11})


def _links(
    links: list[tuple[str, str]], at: Mapping[str, tuple[float, float]], name: str, colour: str, width: float
) -> dict[str, Any]:
    """All lines of one look as one trace."""
    x, y = ([value for one, other in links for value in (at[one][axis], at[other][axis], None)] for axis in (0, 1))
    return curve(x, y, name, colour, width=width, opacity=0.6 if width == 1 else 1, showlegend=bool(x))


def _linked(graph: LinkGraph) -> Mapping[str, Sequence[str]]:
    """What each note is linked with."""
    found: dict[str, list[str]] = {memory_id: [] for memory_id in graph.notes}
    for one, other in graph.links:
        found[one].append(other)
        found[other].append(one)
    return found


def _about(graph: LinkGraph, memory_id: str, links: int, run: str) -> str:
    """What is shown of a note when it is pointed at."""
    note = graph.notes[memory_id]
    lines = [
        f"<b>{plain(memory_label(memory_id, run))}</b> · {graph.outcomes[memory_id]} · {links} links",
        plain(note.context, 90),
        plain("keywords: " + ", ".join(note.keywords), 90) if note.keywords else "",
        plain("tags: " + ", ".join(note.tags), 90) if note.tags else "",
    ]
    return "<br>".join(line for line in lines if line)


def _links_title(graph: LinkGraph, linked: Mapping[str, Sequence[str]], run: str) -> str:
    notes, links = len(graph.notes), len(graph.links)
    if not notes:
        return "No note yet"
    sentence = f"{notes} notes, {links} links, {sum(not others for others in linked.values())} notes without any"
    if links:
        hub = max(linked, key=lambda memory_id: len(linked[memory_id]))
        sentence += f"; {memory_label(hub, run)} has most, {len(linked[hub])}"
    if graph.edited:
        sentence += f"; this step edited {len(graph.edited):,} of its neighbours"
    return sentence


def novelty_picture(novelty: pd.DataFrame) -> Picture:
    """A bar per step, as high as the mean novelty of its turns, with a dot per turn (`learned.deciding.novelty`)."""
    steps = novelty.groupby("step")["novelty"].mean()
    mean = bars(steps.index, steps, "mean of the step", POOL, "step %{x}: %{y:.2f} on average")
    mean["marker"]["line"] = {"width": 1, "color": NEUTRAL}
    hover = "step %{x}, turn %{customdata[0]}: 1 / (%{customdata[1]} + 1) = %{y:.2f}"
    turn = {"size": 6, "customdata": novelty[["turn", "tips"]].to_numpy()}
    dots = marks(novelty["step"], novelty["novelty"], "a turn", SELECTED, hover, **turn)
    up = titled("novelty 1 / (n + 1)", range=[0, 1.05])
    figure = drawn([mean, dots], height=280, bargap=0.25, xaxis=step_axis(novelty["step"]), yaxis=up)
    if steps.empty:
        title = "Memory was not asked in any step that can be looked at"
    else:
        first, last = steps.index[0], steps.index[-1]
        title = f"Novelty went from {steps[first]:.2f} in step {first} to {steps[last]:.2f} in step {last}"
    return Picture(figure, novelty, title, f"Bars of novelty by step. {title}.")
