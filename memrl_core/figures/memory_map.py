"""The map of a memory: where each memory lies, what it is worth, and what this step did with it.

Position is frozen and never encodes q; colour does, on a fixed scale, and the shape shows its sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.explain import signed
from memrl_core.analysis.labels import memory_label
from memrl_core.figures.drawing import Drawing
from memrl_core.figures.palette import AMOUNTS, CLEAR, EDGE, QUERY, RING, q_colorscale, q_range, q_symbol
from memrl_core.figures.picture import Picture
from memrl_core.figures.text import plain
from memrl_core.records import Memory, Utility

ColourBy = Literal["q", "Δq", "similarity", "visits", "age", "outcome"]
Labels = Literal["off", "chosen", "all"]
Plane = npt.NDArray[np.floating[Any]]
Trace = dict[str, Any]
OUTCOMES = {"failure": 0.0, "unrated": 0.5, "success": 1.0}
SVG_POINTS = 1000
"""Beyond this a screen draws the points as a cloud (point_cloud.py), and a figure by WebGL."""

LIFTED_POINTS = 2000
LABELLED_POINTS = 300


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
    draw = _Pen(scene, lifted)
    traces = [draw.points(colour, labels), *_marks(draw, labels)]
    figure = go.Figure({"data": traces, "layout": _layout(scene, lifted)})
    return Picture(figure, map_table(scene), map_title(scene), map_alt(scene, colour, lifted))


def marks_over(
    scene: MapScene, colour: ColourBy, labels: Labels, limits: Mapping[str, float], low: Plane, high: Plane
) -> Drawing:
    """The flat map without its points, which lie between `low` (2,) and `high` (2,): the step's marks and the colours.

    `limits` are `cmin` and `cmax` of the colours.
    """
    draw = _Pen(scene, lifted=False, ids=())
    layout = _layout(scene, lifted=False)
    margin = 0.04 * (high - low) + 1e-9
    for axis, name in enumerate(("xaxis", "yaxis")):
        layout[name] |= {"range": [float(low[axis] - margin[axis]), float(high[axis] + margin[axis])]}
    return Drawing([draw.colour_bar(colour, limits), *_marks(draw, labels)], layout)


def left_out_when_lifted(scene: MapScene) -> str:
    """What a map in three dimensions leaves out, in a sentence; "" when it shows everything."""
    drawn, there = len(_Pen(scene, lifted=True).ids), len(_Pen(scene, lifted=False).ids)
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


def _few(ids: Sequence[str], scene: MapScene) -> list[str]:
    """`LIFTED_POINTS` of `ids`, evenly spread, and all that the step's marks lie on."""
    marked = {*scene.pool, *scene.selected, *scene.moved, scene.focus}
    step = -(-len(ids) // LIFTED_POINTS)
    return [memory_id for row, memory_id in enumerate(ids) if row % step == 0 or memory_id in marked]


class _Pen:
    """Makes the traces of one scene, flat or lifted."""

    def __init__(self, scene: MapScene, lifted: bool, ids: Sequence[str] | None = None) -> None:
        self.scene = scene
        self.lifted = lifted
        there = ids if ids is not None else [memory_id for memory_id in scene.utilities if memory_id in scene.places]
        self.ids = _few(there, scene) if lifted and len(there) > LIFTED_POINTS else there
        self.low, self.middle, self.high = q_range(scene.settings)

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
            textposition="bottom center",
            hoverinfo="skip",
        )

    def halos(self, named: bool) -> Trace:
        moved = {i: d for i, d in self.scene.moved.items() if self._is_there(i)}
        widths = [3 + 8 * abs(d) / (self.high - self.low) for d in moved.values()]
        marker = {
            "symbol": "circle-open",
            "size": 14 if self.lifted else 30,
            "color": [self._sign_colour(d) for d in moved.values()],
            "line": {"width": widths if not self.lifted else 3},
        }
        return self._trace(
            list(moved),
            "q just moved",
            mode="markers+text",
            marker=marker,
            text=[f"{memory_label(i, self.scene.run)} {signed(d)}" if named else signed(d) for i, d in moved.items()],
            textposition="top center",
            hoverinfo="skip",
        )

    def focus(self) -> Trace:
        focus = self.scene.focus
        here = [focus] if focus is not None and self._is_there(focus) else []
        marker = {"symbol": "square-open", "size": 14 if self.lifted else 28, "color": RING, "line": {"width": 2}}
        return self._trace(here, "opened below", mode="markers", marker=marker, hoverinfo="skip")

    def query(self) -> Trace:
        at = [self.scene.query] if self.scene.query is not None else []
        symbol = "diamond" if self.lifted else "star"
        marker = {"symbol": symbol, "size": 9 if self.lifted else 19, "color": QUERY, "line": {"width": 1.5}}
        height = {"z": [self.middle] * len(at)} if self.lifted else {}
        return {
            "type": "scatter3d" if self.lifted else "scatter",
            "x": [x for x, _ in at],
            "y": [y for _, y in at],
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
        similarity = scene.similarities.get(memory_id)
        nearness = "" if similarity is None else f" · similarity {similarity:.3f}"
        return [
            memory_id,
            memory_label(memory_id, scene.run),
            signed(known.q),
            str(known.visits),
            plain(memory.intent),
            f"{memory.outcome} · step {memory.step}{nearness}",
        ]


_BAR_TITLES = {"q": "q", "Δq": "Δq", "similarity": "cosine", "visits": "uses", "age": "step", "outcome": ""}


def _layout(scene: MapScene, lifted: bool) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "margin": {"l": 0, "r": 0, "t": 8, "b": 0},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "uirevision": scene.layout_id,
        "hovermode": "closest",
        "dragmode": "orbit" if lifted else "pan",
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.02, "x": 0},
        "showlegend": True,
    }
    if not lifted:
        return {**layout, "xaxis": {"visible": False}, "yaxis": {"visible": False}}
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
    parts = [f"{count} memor{'y' if count == 1 else 'ies'}"]
    if scene.pool:
        parts.append(f"{len(scene.pool)} in the pool, {len(scene.selected)} given to the model")
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
