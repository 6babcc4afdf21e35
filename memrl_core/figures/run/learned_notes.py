"""What is learned as text or as cases: A-MEM's notes and links, EMPO²'s novelty, Memento's losses and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, sin
from typing import Any

import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.notes import LinkGraph
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
    titled,
)
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.learned_values import step_axis
from memrl_core.figures.run.reliability import SUCCESS, success_dots

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
    """A dot a bin of predictions at its share of successes, with the 95 % Wilson interval; larger for more uses.

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
    """A mark a note on a circle by age, the oldest on top, and a line a link; what the step changed stands out."""
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
    """A bar a step, as high as the mean novelty of its turns, with a dot a turn (`learned.deciding.novelty`)."""
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
