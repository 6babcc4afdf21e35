"""A-MEM's notes and their links, on a circle or where the notes lie on the bank's map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, sin

import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.notes import LinkGraph
from memrl_core.figures.palette import ENTERED, NEUTRAL, POOL, RING, UTILITY, bare_layout
from memrl_core.figures.picture import Picture
from memrl_core.figures.text import plain

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
    figure, about = go.Figure(), _about(graph, run)
    labelled = ids if len(ids) <= MOST_NAMED else graph.written | graph.edited
    if places is None:
        for number, memory_id in enumerate(ids):
            if memory_id in labelled:
                _name_outside(figure, plain(memory_label(memory_id, run)), number, len(ids))
    for new in (False, True):
        links = [link for link in graph.links if (link[0] in graph.written | graph.edited) is new]
        _add_links(figure, links, at, new)
    for name, members, colour, size in (
        ("note", set(ids) - graph.written - graph.edited, POOL, 12),
        ("edited in this step", graph.edited, UTILITY, 17),
        ("written in this step", graph.written, ENTERED, 17),
    ):
        shown = [i for i in ids if i in members and i in at]
        figure.add_scatter(
            x=[at[i][0] for i in shown],
            y=[at[i][1] for i in shown],
            mode="markers" if places is None else "markers+text",
            name=name,
            text=[plain(memory_label(i, run)) if i in labelled else "" for i in shown],
            textposition="top center",
            cliponaxis=False,
            marker={
                "color": colour,
                "size": size,
                "symbol": [SHAPES[graph.outcomes[i]] for i in shown],
                "line": {"width": 1, "color": NEUTRAL},
            },
            customdata=[about[i] for i in shown],
            hovertemplate="%{customdata}<extra></extra>",
        )
    legend = {"orientation": "h", "yanchor": "top", "y": -0.02, "x": 0}
    figure.update_layout(bare_layout(height=520, legend=legend, margin={"l": 24, "r": 24, "t": 28, "b": 8}))
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, scaleanchor="x" if places is None else None)
    title = _title(graph, run)
    return Picture(figure, _table(graph, run), title, f"Notes as marks, links as lines between them. {title}.")


def _circle(ids: list[str]) -> Places:
    turn = 2 * pi / max(len(ids), 1)
    return {memory_id: (sin(number * turn), cos(number * turn)) for number, memory_id in enumerate(ids)}


def _name_outside(figure: go.Figure, name: str, number: int, notes: int) -> None:
    """The name of a note on the circle, read outwards on its right half and inwards on its left."""
    turn = 2 * pi * number / notes
    angle = degrees(turn) - 90 if turn <= pi else degrees(turn) + 90
    figure.add_annotation(
        x=OUTSIDE * sin(turn), y=OUTSIDE * cos(turn), text=name, textangle=angle, showarrow=False, font={"size": 11}
    )


def _add_links(figure: go.Figure, links: list[tuple[str, str]], at: Places, new: bool) -> None:
    x: list[float | None] = []
    y: list[float | None] = []
    for one, other in links:
        if one in at and other in at:
            x += [at[one][0], at[other][0], None]
            y += [at[one][1], at[other][1], None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        name="link of what is new" if new else "link",
        line={"color": UTILITY if new else RING, "width": 2 if new else 1},
        opacity=1 if new else 0.6,
        hoverinfo="skip",
        showlegend=bool(x),
    )


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


def _title(graph: LinkGraph, run: str) -> str:
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


def _table(graph: LinkGraph, run: str) -> pd.DataFrame:
    linked = _linked(graph)
    return pd.DataFrame(
        {
            "note": [memory_label(node.memory_id, run) for node in graph.notes],
            "context": [node.note.context for node in graph.notes],
            "keywords": [", ".join(node.note.keywords) for node in graph.notes],
            "tags": [", ".join(node.note.tags) for node in graph.notes],
            "linked with": [", ".join(memory_label(i, run) for i in linked[node.memory_id]) for node in graph.notes],
            "outcome": [graph.outcomes[node.memory_id] for node in graph.notes],
        }
    )
