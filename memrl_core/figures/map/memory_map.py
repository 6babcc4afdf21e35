"""The map of a memory: where each memory lies, what it is worth, and what this step did with it.

Position is frozen and never encodes q; colour does, on a fixed scale, and the shape shows its sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.drawing import Drawing
from memrl_core.figures.palette import AMOUNTS, CLEAR, EDGE, QUERY, RING, q_colorscale, q_range, q_symbol
from memrl_core.figures.picture import Picture
from memrl_core.figures.text import plain
from memrl_core.numerals import signed
from memrl_core.records import Memory, Utility

ColourBy = Literal["q", "Δq", "similarity", "visits", "age", "outcome"]
Labels = Literal["off", "chosen", "all"]
Plane = npt.NDArray[np.floating[Any]]
Trace = dict[str, Any]
Box = tuple[Plane, tuple[float, float]]
Frame = tuple[tuple[float, float], tuple[float, float]]
OUTCOMES = {"failure": 0.0, "unrated": 0.5, "success": 1.0}
SVG_POINTS = 1000
"""Beyond this a screen draws the points as a cloud (point_cloud.py), and a figure by WebGL."""

LIFTED_POINTS = 2000
LABELLED_POINTS = 300

NOMINAL = (470.0, 420.0)
"""Pixels across and down by which names are kept apart; a map of another size keeps them apart nearly as well."""

LETTER, LINE, REACH, POINT = 6.3, 14.0, 17.0, 8.0
"""Pixels of a letter's width, a name's height, from a point to its name, and from a point's middle to its edge."""

SIDES = {"top center": (0, 1), "bottom center": (0, -1), "middle right": (1, 0), "middle left": (-1, 0)}


@dataclass(frozen=True, slots=True)
class MapScene:
    """What is on the map at one moment.

    `places` maps memories to (x, y), and `utilities` those that are visible to what the run believes of them;
    `similarities` to the cosine with this step's query, where phase A measured it. `query` is where the query lies,
    None when there is none. `moved` maps a memory to how far its q has just moved; `provisional` are places not yet
    frozen; `focus` is the memory whose detail is open. `layout_id` names the frozen layout: zoom is kept as long as it
    stays the same.
    """

    run: str
    layout_id: str
    places: Mapping[str, tuple[float, float]]
    memories: Mapping[str, Memory]
    utilities: Mapping[str, Utility]
    settings: Mapping[str, Any]
    similarities: Mapping[str, float] = field(default_factory=dict)
    query: tuple[float, float] | None = None
    pool: Sequence[str] = ()
    selected: Sequence[str] = ()
    moved: Mapping[str, float] = field(default_factory=dict)
    provisional: frozenset[str] = frozenset()
    focus: str | None = None


def map_picture(scene: MapScene, colour: ColourBy = "q", labels: Labels = "chosen", lifted: bool = False) -> Picture:
    """The scene as a figure in two dimensions, or `lifted` into a third whose height is q."""
    draw = _Pen(scene, lifted, _frame(scene))
    traces = [draw.points(colour, labels), *_marks(draw, labels)]
    figure = go.Figure({"data": traces, "layout": _layout(scene, draw.frame, lifted)})
    return Picture(figure, map_table(scene), map_title(scene), map_alt(scene, colour, lifted))


def marks_over(
    scene: MapScene, colour: ColourBy, labels: Labels, limits: Mapping[str, float], low: Plane, high: Plane
) -> Drawing:
    """The flat map without its points, which lie between `low` (2,) and `high` (2,): the step's marks and the colours.

    `limits` are `cmin` and `cmax` of the colours.
    """
    draw = _Pen(scene, lifted=False, frame=_frame(scene, low, high), ids=())
    layout = _layout(scene, draw.frame, lifted=False)
    return Drawing([draw.colour_bar(colour, limits), *_marks(draw, labels)], layout)


def left_out_when_lifted(scene: MapScene) -> str:
    """What a map in three dimensions leaves out, in a sentence; "" when it shows everything."""
    ids = _there(scene)
    drawn, there = len(_few(ids, scene)), len(ids)
    if drawn == there:
        return ""
    return (
        f"{drawn:,} of {there:,} memories are drawn in three dimensions: evenly chosen by age, and all of this step. "
        "The view 2-D draws every one."
    )


def _marks(draw: _Pen, labels: Labels) -> list[Trace]:
    scene = draw.scene
    pool_only = [memory_id for memory_id in scene.pool if memory_id not in set(scene.selected)]
    return [
        draw.rings("in the pool", pool_only, size=17, width=1.5, named=False),
        draw.rings("given to the model", scene.selected, size=20, width=4, named=labels != "off"),
        draw.halos(named=labels != "off"),
        draw.focus(),
        draw.query(),
    ]


def colour_values(scene: MapScene, ids: Sequence[str], colour: ColourBy) -> list[float | None]:
    """By what each of `ids` is coloured; None where there is nothing to go by."""
    if colour == "q":
        return [scene.utilities[i].q for i in ids]
    if colour == "Δq":
        return [scene.moved.get(i, 0.0) for i in ids]
    if colour == "similarity":
        return [scene.similarities.get(i) for i in ids]
    if colour == "visits":
        return [scene.utilities[i].visits for i in ids]
    if colour == "age":
        return [scene.memories[i].step for i in ids]
    return [OUTCOMES[scene.memories[i].outcome] for i in ids]


def colour_scale(scene: MapScene, colour: ColourBy) -> dict[str, Any]:
    """The colours and where they begin and end, as Plotly's markers take them; what is left out fits the values."""
    low, _, high = q_range(scene.settings)
    if colour == "q":
        return {"colorscale": q_colorscale(), "cmin": low, "cmax": high}
    if colour == "Δq":
        return {"colorscale": q_colorscale(), "cmin": (low - high) / 2, "cmax": (high - low) / 2}
    if colour == "similarity":
        return {"colorscale": AMOUNTS, "cmin": 0, "cmax": 1}
    if colour == "visits":
        return {"colorscale": AMOUNTS, "cmin": 0}
    if colour == "age":
        return {"colorscale": AMOUNTS}
    ticks = {"tickvals": list(OUTCOMES.values()), "ticktext": list(OUTCOMES)}
    return {"colorscale": q_colorscale(), "cmin": 0, "cmax": 1, "colorbar": ticks}


def _there(scene: MapScene) -> list[str]:
    return [memory_id for memory_id in scene.utilities if memory_id in scene.places]


def _few(ids: Sequence[str], scene: MapScene) -> Sequence[str]:
    """At most `LIFTED_POINTS` of `ids`, evenly spread, and all that the step's marks lie on."""
    marked = {*scene.pool, *scene.selected, *scene.moved, scene.focus}
    step = max(1, -(-len(ids) // LIFTED_POINTS))
    return [memory_id for row, memory_id in enumerate(ids) if row % step == 0 or memory_id in marked]


class _Pen:
    """Makes the traces of one scene, flat or lifted."""

    def __init__(self, scene: MapScene, lifted: bool, frame: Frame | None, ids: Sequence[str] | None = None) -> None:
        self.frame = frame
        self.scene = scene
        self.lifted = lifted
        self.low, self.middle, self.high = q_range(scene.settings)
        there = _there(scene) if ids is None else ids
        # The last is drawn on top: what was never used covers nothing that was, nor a weak q a strong one.
        self.ids = sorted(_few(there, scene) if lifted else there, key=self._weight)

    def _weight(self, memory_id: str) -> tuple[bool, float, int]:
        known = self.scene.utilities[memory_id]
        return known.visits > 0, abs(known.q - self.middle), known.visits

    def points(self, colour: ColourBy, labels: Labels) -> Trace:
        scene = self.scene
        values, marker = self._colours(colour)
        marker |= {
            "size": 6 if self.lifted else 11,
            "line": {"width": 1, "color": EDGE},
            "opacity": 1.0 if self.lifted else [0.55 if i in scene.provisional else 1.0 for i in self.ids],
        }
        if not self.lifted:
            marker["symbol"] = [q_symbol(self._q(i), self.middle, scene.utilities[i].visits) for i in self.ids]
        every = labels == "all" and len(self.ids) <= LABELLED_POINTS
        shown = [memory_label(i, scene.run) if every and i not in scene.selected else "" for i in self.ids]
        return self._trace(
            self.ids,
            "memories",
            by_webgl=len(self.ids) > SVG_POINTS,
            mode="markers+text" if every else "markers",
            marker={**marker, "color": np.array(values, dtype=float)},
            text=shown,
            textposition="bottom center",
            customdata=np.array([self._card(i) for i in self.ids], dtype=object),
            hovertemplate=(
                "<b>%{customdata[1]}</b> q %{customdata[2]} · %{customdata[3]} uses<br>%{customdata[4]}"
                "<br>%{customdata[5]}<extra></extra>"
            ),
        )

    def rings(self, name: str, ids: Sequence[str], size: int, width: float, named: bool) -> Trace:
        symbol = "circle-open"
        here = [i for i in ids if self._is_there(i)]
        marker = {"symbol": symbol, "size": size / 2 if self.lifted else size, "color": RING}
        return self._trace(
            here,
            name,
            mode="markers+text" if named else "markers",
            marker={**marker, "line": {"width": width, "color": RING}},
            text=["" if i in self.scene.moved else memory_label(i, self.scene.run) for i in here] if named else None,
            textposition=self._sides(here) if named else None,
            hoverinfo="skip",
        )

    def halos(self, named: bool) -> Trace:
        moved = {i: d for i, d in self.scene.moved.items() if self._is_there(i)}
        widths = [3 + 8 * abs(d) / (self.high - self.low) for d in moved.values()]
        marker = {
            "symbol": "circle-open",
            "size": 14 if self.lifted else 30,
            "color": [self._sign_colour(d) for d in moved.values()] or self._sign_colour(1.0),
            "line": {"width": widths if widths and not self.lifted else 3},
        }
        return self._trace(
            list(moved),
            "q just moved",
            mode="markers+text",
            marker=marker,
            text=[self._name(i) if named else f"Δq {signed(d)}" for i, d in moved.items()],
            textposition=self._sides(list(moved)),
            hoverinfo="skip",
        )

    def _name(self, memory_id: str) -> str:
        label, change = memory_label(memory_id, self.scene.run), self.scene.moved.get(memory_id)
        return label if change is None else f"{label} Δq {signed(change)}"

    def _sides(self, ids: Sequence[str]) -> list[str] | str:
        """On which side of each point its name lies."""
        return "bottom center" if self.lifted or self.frame is None else [self._side[memory_id] for memory_id in ids]

    @cached_property
    def _side(self) -> Mapping[str, str]:
        """The side of each marked point on which its name meets the fewest others, point and name."""
        assert self.frame is not None
        scene, frame = self.scene, self.frame
        scale = np.array(NOMINAL) / [high - low for low, high in frame]

        def pixel(place: tuple[float, float]) -> Plane:
            return np.array([place[0] - frame[0][0], place[1] - frame[1][0]]) * scale

        marked = {
            i: pixel(scene.places[i])
            for i in {**dict.fromkeys(scene.moved), **dict.fromkeys(scene.selected)}
            if self._is_there(i)
        }
        around = self.ids if 0 < len(self.ids) <= LABELLED_POINTS else [i for i in scene.pool if self._is_there(i)]
        near = [scene.places[i] for i in around] + ([scene.query] if scene.query is not None else [])
        points = [(pixel(place), (POINT, POINT)) for place in near]
        names: list[Box] = []
        sides = {}
        for memory_id, centre in marked.items():
            half = (len(self._name(memory_id)) * LETTER / 2, LINE / 2)
            boxes: dict[str, Box] = {
                side: (centre + np.array([x * (REACH + half[0]), y * (REACH + half[1])]), half)
                for side, (x, y) in SIDES.items()
            }

            def met(box: Box) -> tuple[int, int]:
                return sum(_meet(box, name) for name in names), sum(_meet(box, point) for point in points)

            sides[memory_id] = min(boxes, key=lambda side: met(boxes[side]))
            names.append(boxes[sides[memory_id]])
        return sides

    def focus(self) -> Trace:
        focus = self.scene.focus
        here = [focus] if focus is not None and self._is_there(focus) else []
        marker = {"symbol": "square-open", "size": 14 if self.lifted else 28, "color": RING, "line": {"width": 2}}
        return self._trace(here, "opened", mode="markers", marker=marker, hoverinfo="skip")

    def query(self) -> Trace:
        at = [self.scene.query] if self.scene.query is not None else []
        symbol = "diamond" if self.lifted else "star"
        marker = {"symbol": symbol, "size": 9 if self.lifted else 19, "color": QUERY, "line": {"width": 1.5}}
        height = {"z": [self.middle] * len(at)} if self.lifted else {}
        return {
            "type": "scatter3d" if self.lifted else "scatter",
            "x": [x for x, _ in at] or [None],
            "y": [y for _, y in at] or [None],
            **height,
            "name": "this task",
            "mode": "markers",
            "marker": {**marker, "line": {"width": 1.5, "color": RING}},
            "hoverinfo": "skip",
        }

    def colour_bar(self, colour: ColourBy, limits: Mapping[str, float]) -> Trace:
        marker = {**self._colours(colour)[1], **limits, "color": [0.0]}
        return {"type": "scatter", "x": [None], "y": [None], "name": "memories", "mode": "markers", "marker": marker}

    def _trace(self, ids: Sequence[str], name: str, by_webgl: bool = False, **look: Any) -> Trace:
        if not ids and not self.lifted:
            # Plotly leaves a trace without any point out of the legend, and the map would grow and shrink with that.
            return {"type": "scatter", "x": [None], "y": [None], "name": name, **look}
        height = {"z": np.array([self._q(i) for i in ids])} if self.lifted else {}
        flat = "scattergl" if by_webgl else "scatter"
        return {
            "type": "scatter3d" if self.lifted else flat,
            "x": np.array([self.scene.places[i][0] for i in ids]),
            "y": np.array([self.scene.places[i][1] for i in ids]),
            **height,
            "name": name,
            **look,
        }

    def _is_there(self, memory_id: str) -> bool:
        return memory_id in self.scene.utilities and memory_id in self.scene.places

    def _q(self, memory_id: str) -> float:
        known = self.scene.utilities.get(memory_id)
        return self.middle if known is None else known.q

    def _sign_colour(self, change: float) -> str:
        scale = q_colorscale()
        return str(scale[-2][1] if change > 0 else scale[1][1])

    def _colours(self, colour: ColourBy) -> tuple[list[float | None], dict[str, Any]]:
        scale = colour_scale(self.scene, colour)
        bar = {"title": {"text": _BAR_TITLES[colour]}, "thickness": 10, "len": 0.75, **scale.pop("colorbar", {})}
        return colour_values(self.scene, self.ids, colour), {**scale, "colorbar": bar, "showscale": True}

    def _card(self, memory_id: str) -> list[str]:
        scene, memory = self.scene, self.scene.memories[memory_id]
        known = scene.utilities[memory_id]
        similarity, change = scene.similarities.get(memory_id), scene.moved.get(memory_id)
        nearness = "" if similarity is None else f" · similarity {similarity:.3f}"
        return [
            memory_id,
            memory_label(memory_id, scene.run),
            signed(known.q) if change is None else f"{signed(known.q - change)} → {signed(known.q)}",
            str(known.visits),
            plain(memory.intent),
            f"{memory.outcome} · step {memory.step}{nearness}",
        ]


_BAR_TITLES = {"q": "q", "Δq": "Δq", "similarity": "cosine", "visits": "uses", "age": "step", "outcome": ""}


def _meet(one: Box, other: Box) -> bool:
    """Whether two boxes, each a centre and half its width and height, overlap."""
    apart = np.abs(one[0] - other[0]) + 1  # Those that only touch do not.
    return bool(apart[0] < one[1][0] + other[1][0] and apart[1] < one[1][1] + other[1][1])


def _frame(scene: MapScene, low: Plane | None = None, high: Plane | None = None) -> Frame | None:
    """What the axes show: every place from `low` (2,) to `high` (2,), of all the memories if not given, and the query.

    Rounded outwards, so that most queries and memories that come later change nothing. None where nothing has a place.
    """
    if low is None or high is None:
        if not scene.places:
            return None
        everywhere = np.array(list(scene.places.values()), dtype=float)
        low, high = everywhere.min(axis=0), everywhere.max(axis=0)
    ends = []
    for axis in (0, 1):
        first, last = float(low[axis]), float(high[axis])
        span = last - first if last - first > 1e-9 else 1.0
        grid, margin = 2.0 ** math.floor(math.log2(span)) / 16, 0.06 * span
        first, last = math.floor((first - margin) / grid) * grid, math.ceil((last + margin) / grid) * grid
        if scene.query is not None:
            first = min(first, math.floor(scene.query[axis] / grid - 0.5) * grid)
            last = max(last, math.ceil(scene.query[axis] / grid + 0.5) * grid)
        ends.append((first, last))
    return ends[0], ends[1]


def _layout(scene: MapScene, frame: Frame | None, lifted: bool) -> dict[str, Any]:
    layout: dict[str, Any] = {
        # On the right as much as the widest bar of colours takes, so that another colour moves no point.
        "margin": {"l": 0, "r": 80, "t": 8, "b": 0},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "uirevision": scene.layout_id,
        "hovermode": "closest",
        "dragmode": "orbit" if lifted else "pan",
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.02, "x": 0},
        "showlegend": True,
    }
    if not lifted:
        ranges: Sequence[dict[str, Any]] = [{"range": list(ends)} for ends in frame] if frame else [{}, {}]
        return {**layout, "xaxis": {"visible": False, **ranges[0]}, "yaxis": {"visible": False, **ranges[1]}}
    low, _, high = q_range(scene.settings)
    hidden = {"visible": False, "showspikes": False}
    space = {
        "xaxis": hidden,
        "yaxis": hidden,
        "zaxis": {"title": {"text": "q"}, "range": [low, high]},
        "aspectmode": "manual",
        "aspectratio": {"x": 1, "y": 1, "z": 0.6},
        "bgcolor": CLEAR,
        "uirevision": scene.layout_id,
    }
    return {**layout, "scene": space}


def map_table(scene: MapScene) -> pd.DataFrame:
    """A row a memory that the run knows, with what the map shows of it."""
    rows = [
        {
            "memory": memory_label(memory_id, scene.run),
            "intent": scene.memories[memory_id].intent,
            "outcome": scene.memories[memory_id].outcome,
            "q": known.q,
            "Δq": scene.moved.get(memory_id),
            "uses": known.visits,
            "similarity": scene.similarities.get(memory_id),
            "this step": "given to the model"
            if memory_id in scene.selected
            else "in the pool"
            if memory_id in scene.pool
            else "",
            "x": scene.places[memory_id][0] if memory_id in scene.places else None,
            "y": scene.places[memory_id][1] if memory_id in scene.places else None,
        }
        for memory_id, known in scene.utilities.items()
    ]
    return pd.DataFrame(rows)


def map_title(scene: MapScene) -> str:
    """The finding: how many memories there are, and what the step did with them."""
    count = len(scene.utilities)
    parts = [f"{count:,} memor{'y' if count == 1 else 'ies'}"]
    if scene.pool:
        parts.append(f"{len(scene.pool):,} in the pool, {len(scene.selected):,} given to the model")
    if scene.moved:
        up = sum(change > 0 for change in scene.moved.values())
        parts.append(f"{up} q rose, {len(scene.moved) - up} fell")
    return "; ".join(parts)


def map_alt(scene: MapScene, colour: str, lifted: bool) -> str:
    """The map in words."""
    return (
        f"A map of {map_title(scene)}. Near points have similar intents; colour shows {colour}"
        f"{', height shows q' if lifted else ', triangles up or down show whether q is above or below its middle'}."
    )
