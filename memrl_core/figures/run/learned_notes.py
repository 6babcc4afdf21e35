"""What is learned as text or as cases: A-MEM's notes and links, EMPO²'s tips, Memento's losses and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, sin
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.notes import CaseHistory, LinkGraph
from memrl_core.figures.decision.rerank import crossing, rank_figure, rank_line
from memrl_core.figures.palette import (
    BELOW,
    CUT,
    ENTERED,
    NEUTRAL,
    POOL,
    RING,
    SELECTED,
    UTILITY,
    bars,
    curve,
    drawn,
    level,
    marks,
    note,
    plain,
    row_axis,
    titled,
)
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned_values import step_axis
from memrl_core.figures.run.reliability import SUCCESS, success_dots

COIN = 0.6931471805599453
"""−ln 0.5: the loss of saying one half to everything."""
MOST_SHOWN = 30
CALIBRATION_NAMES = {
    "low": "p from",
    "high": "p to",
    "p": "mean p",
    "n": "uses",
    "success_low": "95 % from",
    "success_high": "95 % to",
}
KERNEL_NAMES = {"outcome": "r", "similarity": "cosine", "weight": "k(s, s′)", "share": "share of all weights"}


def loss_picture(losses: pd.DataFrame) -> Picture:
    """The batch's loss before each task's step of learning, and after it (`analysis.learned.cases.losses`)."""
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
    """A dot a bin of predictions at its share of successes, with the 95 % Wilson interval; larger for more uses.

    `bins` is `analysis.learned.cases.case_calibration`; every prediction was made before its outcome was known.
    """
    hover = "mean p %{x:.2f}: %{y:.0%} of %{customdata[2]:d} uses succeeded"
    exactly = curve([0, 1], [0, 1], "p says it exactly", CUT, dash="dash")
    across = titled("predicted p", range=[-0.03, 1.12], dtick=0.2)
    dots = success_dots(bins, "p", "p before each use", hover)
    figure = drawn([exactly, dots], height=320, xaxis=across, yaxis=SUCCESS)
    title = _calibration_title(bins)
    table = bins.rename(columns=CALIBRATION_NAMES)
    return Picture(figure, table, title, f"Dots of success against p with their intervals and a diagonal. {title}.")


def kernel_picture(weights: pd.DataFrame, history: CaseHistory, case: str) -> Picture:
    """A bar a past use of a case: its share in Q_EC(s, c), coloured and hatched by how the use ended.

    `weights` is `analysis.learned.cases.kernel_weights`, `case` the name of the case.
    """
    settings = history.settings
    by_weight = weights.sort_values("weight", ascending=False, kind="stable")
    rows = by_weight.head(MOST_SHOWN)
    labels = [f"step {step}" for step in rows["step"]]
    traces = []
    for outcome, name, colour, pattern in ((1.0, "succeeded", SELECTED, ""), (0.0, "failed", UTILITY, "/")):
        hover = "%{y}: cosine %{customdata[0]:.3f}, k = %{customdata[1]:.3f}, %{x:.1%}"
        ended = rows["outcome"] == outcome
        shares = rows["share"].astype(object).where(ended, None)
        look = {"orientation": "h", "customdata": rows[["similarity", "weight"]].to_numpy()}
        traces.append(bars(shares.tolist(), labels, name, colour, hover, pattern=pattern, **look))
    across = titled("share of k(s, s′) in Q_EC", tickformat=".0%", rangemode="tozero")
    look = {"height": 110 + 24 * max(len(rows), 1), "barmode": "overlay", "bargap": 0.3}
    figure = drawn(traces, xaxis=across, yaxis={**row_axis(labels), "showgrid": True}, **look)
    kernels = {"gaussian": f"a Gaussian kernel of width h = {settings.bandwidth:g}", "cosine": "a cosine kernel"}
    value = float((weights["share"] * weights["outcome"]).sum())
    if weights["weight"].sum() > 0:
        title = (
            f"Q_EC of {case} here is {value:.3f}: the outcomes of {len(weights):,} past uses, weighted by how "
            "alike the tasks are"
        )
        if len(weights) > MOST_SHOWN:
            title += f" (the {MOST_SHOWN} that weigh most are drawn)"
    else:
        title = f"{case} has no past use to go by: its Q counts as {settings.unused_q:g}"
    alt = f"Bars of the share of each past use under {kernels[settings.kernel]}. {title}."
    return Picture(figure, by_weight.rename(columns=KERNEL_NAMES), title, alt)


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


Places = Mapping[str, tuple[float, float]]
SHAPES = {"success": "circle", "failure": "x", "unrated": "circle-open"}
MOST_NAMED = 60
OUTSIDE = 1.14
"""How far from the middle of the circle, whose radius is 1, names stand."""


def link_picture(graph: LinkGraph, run: str, places: Places | None = None) -> Picture:
    """A mark a note and a line a link; what the step looked at has written or edited stands out.

    Notes lie at `places`, or on a circle by age, the oldest on top, where none are given.
    """
    ids = [note.memory_id for note in graph.notes]
    at = {i: places[i] for i in ids if i in places} if places is not None else _circle(ids)
    about, new = _about(graph, run), graph.written | graph.edited
    labelled = ids if len(ids) <= MOST_NAMED else new
    named = [
        _name_outside(plain(memory_label(memory_id, run)), 2 * pi * number / len(ids))
        for number, memory_id in enumerate(ids)
        if places is None and memory_id in labelled
    ]
    traces = [
        _links([link for link in graph.links if link[0] not in new], at, "link", RING, 1),
        _links([link for link in graph.links if link[0] in new], at, "link of what is new", UTILITY, 2),
    ]
    for name, members, colour, size in (
        ("note", set(ids) - new, POOL, 12),
        ("edited in this step", graph.edited, UTILITY, 17),
        ("written in this step", graph.written, ENTERED, 17),
    ):
        shown = [i for i in ids if i in members and i in at]
        beside = [plain(memory_label(i, run)) if i in labelled else "" for i in shown]
        look: dict[str, Any] = {"size": size, "edge": {"width": 1, "color": NEUTRAL}, "cliponaxis": False}
        look |= {} if places is None else {"text": beside, "textposition": "top center"}
        x, y, symbols = [at[i][0] for i in shown], [at[i][1] for i in shown], [SHAPES[graph.outcomes[i]] for i in shown]
        hovers = [about[i] for i in shown]
        traces.append(marks(x, y, name, colour, "%{customdata}", symbol=symbols, customdata=hovers, **look))
    figure = drawn(
        traces,
        height=520,
        legend={**BELOW, "y": -0.02},
        margin={"l": 24, "r": 24, "t": 28, "b": 8},
        annotations=named,
        xaxis={"visible": False},
        yaxis={"visible": False, "scaleanchor": "x" if places is None else None},
    )
    title = _links_title(graph, run)
    return Picture(figure, _links_table(graph, run), title, f"Notes as marks, links as lines between them. {title}.")


def _circle(ids: list[str]) -> Places:
    turn = 2 * pi / max(len(ids), 1)
    return {memory_id: (sin(number * turn), cos(number * turn)) for number, memory_id in enumerate(ids)}


def _name_outside(name: str, turn: float) -> dict[str, Any]:
    """The name of a note on the circle, read outwards on its right half and inwards on its left."""
    angle = degrees(turn) - 90 if turn <= pi else degrees(turn) + 90
    return note(OUTSIDE * sin(turn), OUTSIDE * cos(turn), name, textangle=angle, font={"size": 11})


def _links(links: list[tuple[str, str]], at: Places, name: str, colour: str, width: float) -> dict[str, Any]:
    """All lines of one look between notes that have a place, as one trace."""
    ends = [(at[one], at[other]) for one, other in links if one in at and other in at]
    x, y = ([value for one, other in ends for value in (one[axis], other[axis], None)] for axis in (0, 1))
    return curve(x, y, name, colour, width=width, opacity=0.6 if width == 1 else 1, showlegend=bool(x))


def _linked(graph: LinkGraph) -> Mapping[str, Sequence[str]]:
    """What each note is linked with."""
    found: dict[str, list[str]] = {node.memory_id: [] for node in graph.notes}
    for one, other in graph.links:
        found[one].append(other)
        found[other].append(one)
    return found


def _about(graph: LinkGraph, run: str) -> Mapping[str, str]:
    """What is shown of each note when it is pointed at."""
    linked = _linked(graph)
    found = {}
    for node in graph.notes:
        name, links = plain(memory_label(node.memory_id, run)), len(linked[node.memory_id])
        lines = [
            f"<b>{name}</b> · {graph.outcomes[node.memory_id]} · {links} links",
            plain(node.note.context, 90),
            plain("keywords: " + ", ".join(node.note.keywords), 90) if node.note.keywords else "",
            plain("tags: " + ", ".join(node.note.tags), 90) if node.note.tags else "",
        ]
        found[node.memory_id] = "<br>".join(line for line in lines if line)
    return found


def _links_title(graph: LinkGraph, run: str) -> str:
    notes, links = len(graph.notes), len(graph.links)
    if not notes:
        return "No note yet"
    linked = _linked(graph)
    sentence = f"{notes} notes, {links} links, {sum(not others for others in linked.values())} notes without any"
    if links:
        hub = max(linked, key=lambda memory_id: len(linked[memory_id]))
        sentence += f"; {memory_label(hub, run)} has most, {len(linked[hub])}"
    if graph.edited:
        sentence += f"; this step edited {len(graph.edited):,} of its neighbours"
    return sentence


def _links_table(graph: LinkGraph, run: str) -> pd.DataFrame:
    linked = _linked(graph)
    return pd.DataFrame(
        [
            {
                "note": memory_label(node.memory_id, run),
                "context": node.note.context,
                "keywords": ", ".join(node.note.keywords),
                "tags": ", ".join(node.note.tags),
                "linked with": ", ".join(memory_label(i, run) for i in linked[node.memory_id]),
                "outcome": graph.outcomes[node.memory_id],
            }
            for node in graph.notes
        ]
    )


def novelty_picture(novelty: pd.DataFrame) -> Picture:
    """A bar a step, as high as the mean novelty of its turns, with a dot a turn (`analysis.learned.tips.novelty`)."""
    steps = novelty.groupby("step")["novelty"].mean()
    mean = bars(steps.index, steps, "mean of the step", POOL, "step %{x}: %{y:.2f} on average")
    mean["marker"]["line"] = {"width": 1, "color": NEUTRAL}
    hover = "step %{x}, turn %{customdata[0]}: 1 / (%{customdata[1]} + 1) = %{y:.2f}"
    turn = {"size": 6, "customdata": novelty[["turn", "tips"]].to_numpy()}
    dots = marks(novelty["step"], novelty["novelty"], "a turn", SELECTED, hover, **turn)
    up = titled("novelty 1 / (n + 1)", range=[0, 1.05])
    figure = drawn([mean, dots], height=280, bargap=0.25, xaxis=step_axis(novelty["step"]), yaxis=up)
    title = _novelty_title(steps)
    return Picture(figure, novelty, title, f"Bars of novelty by step. {title}.")


def tips_picture(tips: pd.DataFrame, k2: int, run: str) -> Picture:
    """Rank by score joined to rank by similarity, a line a tip; coloured where the cut after k2 falls between them.

    `tips` is `analysis.learned.tips.tips_in_order`.
    """
    lines = []
    columns = ("memory", "by score", "by similarity", "given")
    for memory_id, by_score, by_similarity, given in tips[list(columns)].itertuples(index=False):
        label = plain(memory_label(memory_id, run))
        ends = [f"✓ {label}" if given else label, label]
        hover = f"{label}: rank {by_score} by score, {by_similarity} by similarity"
        lines.append(rank_line([by_score, by_similarity], ends, crossing(by_similarity, by_score, k2), hover))
    figure = rank_figure(lines, ("by stored score", "by cosine"), k2, 80)
    title = _tips_title(tips, k2)
    table = tips.assign(memory=[memory_label(memory_id, run) for memory_id in tips["memory"]])
    return Picture(figure, table, title, f"Lines from rank by score to rank by cosine. {title}.")


def _novelty_title(steps: pd.Series) -> str:
    if steps.empty:
        return "Memory was not asked in any step that can be looked at"
    first, last = steps.iloc[0], steps.iloc[-1]
    return f"Novelty went from {first:.2f} in step {steps.index[0]} to {last:.2f} in step {steps.index[-1]}"


def _tips_title(tips: pd.DataFrame, k2: int) -> str:
    if tips.empty:
        return "No tip was found here: the state is as new as can be"
    both = int(((tips["by score"] <= k2) & (tips["by similarity"] <= k2)).sum())
    first = min(k2, len(tips))
    found = "1 tip" if len(tips) == 1 else f"{len(tips):,} tips"
    if both == first:
        return f"{found} found; score and cosine agree on the first {first}"
    return f"{found} found; the first {first} by score and the first {first} by cosine have {both} in common"
