"""q over time on the frozen map, one run or two beside each other, played step by step in the browser.

Position never changes and never encodes q; colour does, on one fixed scale for all frames, and shape shows its sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.memory.relations import Landscape
from memrl_core.figures.palette import CLEAR, CUT, GAP, NEUTRAL, bare_layout, marks, plain, q_colorscale, q_range
from memrl_core.figures.picture import Picture
from memrl_core.retrieval import Floats

FRAME_MILLISECONDS = 300
EDGE = 0.06
"""Room around the outermost points, as a share of the map."""
SPREAD = 0.014
"""Distance between memories of one place, as a share of the map."""
HEADED = 1.2
"""The height of a map with the words above it, as a multiple of the map's."""
GOLDEN_ANGLE = np.pi * (3 - 5**0.5)


def landscape_picture(
    sides: Sequence[tuple[str, Landscape]], settings: Mapping[str, Any], shifts: Sequence[int] = ()
) -> Picture:
    """Named landscapes of the same moments side by side, as one frame a moment; it opens at the last one.

    Several moments have buttons to play them and a slider. Frames follow one another without a transition, so nothing
    moves that a wish for reduced motion would forbid: points appear, and change colour and shape where they are. Around
    a map stands a dotted frame from the first of the steps `shifts` on.
    """
    low, middle, high = q_range(settings)
    steps = sides[0][1].steps
    spread = [(name, replace(side, positions=fanned(side.positions))) for name, side in sides]
    said = [[_said(name, side, frame, middle, shifts) for name, side in spread] for frame in range(len(steps))]
    points = [trace for panel, (_, side) in enumerate(spread) for trace in _points(side, panel, middle)]
    looks = [
        [look for (_, side), words in zip(spread, sentences, strict=True)
         for look in _frame(side, frame, middle, words, shifts)]
        for frame, sentences in enumerate(said)
    ]  # fmt: skip
    points = [{**trace, **_joined(trace, look)} for trace, look in zip(points, looks[-1], strict=True)]
    frames = [
        {"name": str(step), "data": look, "traces": list(range(len(points)))}
        for step, look in zip(steps, looks, strict=True)
    ]
    bar = {"title": {"text": "q"}, "thickness": 10, "len": 0.75}
    scale = {"colorscale": q_colorscale(), "cmin": low, "cmax": high, "colorbar": bar}
    layout = {**_layout([side for _, side in spread], steps), "coloraxis": scale}
    figure = go.Figure(data=points, layout=layout, frames=frames if len(frames) > 1 else [])
    title = " and ".join(name for name, _ in sides) + ": colour and shape are q, places never move"
    alt = (
        f"Maps of memories at {len(steps):,} moments, from step {steps[0]} to step {steps[-1]}. Near points have "
        f"similar intents; colour shows q, triangles up or down show whether it is above or below {middle:g}, circles "
        f"were never updated or lie at {middle:g}. At the last: {'; '.join(said[-1]).replace('<br>', ': ')}. {title}."
    )
    return Picture(figure, pd.concat([_table(name, side) for name, side in spread], ignore_index=True), title, alt)


def fanned(positions: Floats) -> Floats:
    """`positions` (n, 2) with memories of one place laid out around it, oldest in the middle, so that each is seen.

    A memory's seat depends on the older ones alone: it stays where it is as others come.
    """
    if not len(positions):
        return positions
    seats = pd.DataFrame(positions.round(6)).groupby([0, 1]).cumcount().to_numpy()
    radius = SPREAD * np.ptp(positions, axis=0) * np.sqrt(seats)[:, None]
    turn = seats * GOLDEN_ANGLE
    fan: Floats = positions + radius * np.column_stack([np.cos(turn), np.sin(turn)])
    return fan


SHAPES = (("circle", 7), ("triangle-up", 11), ("triangle-down", 11))


def _points(landscape: Landscape, panel: int, middle: float) -> list[dict[str, Any]]:
    """What stays the same in all frames of a panel: a trace a shape, the frame of a shift, and a line of words."""
    cards = np.array([landscape.ids, [plain(label) for label in landscape.labels]], dtype=object).T
    names = (f"at {middle:g} or never updated", f"above {middle:g}", f"below {middle:g}")
    axes = {"xaxis": f"x{panel + 1}" if panel else "x", "yaxis": "y"}
    hover, edge = "<b>%{customdata[1]}</b> q %{marker.color:+.3f}", {"width": 1, "color": NEUTRAL}
    traces = [
        marks(landscape.positions[:, 0], None, name, None, hover, symbol=symbol, size=size, edge=edge, customdata=cards)
        for name, (symbol, size) in zip(names, SHAPES, strict=True)
    ]
    for trace in traces:
        trace["marker"] |= {"coloraxis": "coloraxis"}
        trace |= axes
    corner = {"xaxis": f"x{panel + 11}", "yaxis": "y2", "hoverinfo": "skip"}
    border = {**corner, "x": [0, 1, 1, 0, 0], "mode": "lines", "line": {"color": CUT, "dash": "dot", "width": 2}}
    # Words on axes of their own can change without a redraw, which titles need.
    words = {**corner, "x": [0], "y": [HEADED], "mode": "text", "textposition": "bottom right"}
    return [*traces, border, words]


def _frame(landscape: Landscape, frame: int, middle: float, words: str, shifts: Sequence[int]) -> list[dict[str, Any]]:
    """What differs between frames, for each of `_points`. Plotly draws no point that has no y."""
    q, updated, height = landscape.q[frame], landscape.visits[frame] > 0, landscape.positions[:, 1]
    up, down = updated & (q > middle), updated & (q < middle)
    colour = _short(q)
    looks = [
        {"y": _short(np.where(of, height, np.nan)), "marker": {"color": colour}}
        for of in (~np.isnan(q) & ~up & ~down, up, down)
    ]
    border = [0, 0, 1, 1, 0] if _shifted(shifts, landscape.steps[frame]) else [None] * 5
    return [*looks, {"y": border}, {"text": [words]}]


def _joined(trace: Mapping[str, Any], look: Mapping[str, Any]) -> dict[str, Any]:
    return {**look, **({"marker": {**trace["marker"], **look["marker"]}} if "marker" in look else {})}


def _shifted(shifts: Sequence[int], step: int) -> list[int]:
    """The shifts in whose world a finished step was done."""
    return [shift for shift in shifts if shift <= step]


def _short(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Single precision: it shows the same three decimals and takes half the room."""
    return values.astype(np.float32)


def _layout(sides: Sequence[Landscape], steps: Sequence[int]) -> dict[str, Any]:
    # SVG points need no redraw. Those of WebGL do, and vanish while frames play (a known fault of plotly.js), so
    # these maps have SVG points however many there are.
    frame = {"duration": FRAME_MILLISECONDS, "redraw": False}
    at_once = {"mode": "immediate", "transition": {"duration": 0}}
    scrub = {**at_once, "frame": {**frame, "duration": 0}}
    quiet = {"bgcolor": CLEAR, "bordercolor": NEUTRAL}
    # Fixed ranges: the frame would otherwise follow the points that are there.
    x, y = (_range(np.concatenate([side.positions[:, axis] for side in sides])) for axis in (0, 1))
    width = (1 - GAP * (len(sides) - 1)) / len(sides)
    axes: dict[str, Any] = {}
    for panel in range(len(sides)):
        domain = [panel * (width + GAP), panel * (width + GAP) + width]
        own = f"x{panel + 1}" if panel else "x"
        axes[own.replace("x", "xaxis")] = {"visible": False, "range": x, "domain": domain}
        axes[f"xaxis{panel + 11}"] = {"visible": False, "range": [0, 1], "overlaying": own, "domain": domain,
                                      "fixedrange": True}  # fmt: skip
    buttons = [
        {"label": "▶ play", "method": "animate", "args": [None, {**at_once, "frame": frame, "fromcurrent": True}]},
        {"label": "❚❚ pause", "method": "animate", "args": [[None], scrub]},
    ]
    corner = {"x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": 18}}
    menu = {**quiet, **corner, "type": "buttons", "direction": "left", "showactive": False, "buttons": buttons}
    stops = [{"label": str(step), "method": "animate", "args": [[str(step)], scrub]} for step in steps]
    beside = {"x": 0.15, "len": 0.85, "y": 0, "pad": {"t": 2}, "tickcolor": NEUTRAL, "active": len(steps) - 1}
    slider = {**quiet, **beside, "currentvalue": {"prefix": "step "}, "steps": stops}
    return bare_layout(
        height=330,
        margin={"l": 0, "r": 0, "t": 8, "b": 8},
        hovermode="closest",
        # The swatches of a legend would take the colour of one memory.
        showlegend=False,
        dragmode="pan",
        yaxis={"visible": False, "range": [y[0], y[0] + HEADED * (y[1] - y[0])]},
        yaxis2={"visible": False, "range": [0, HEADED], "overlaying": "y", "fixedrange": True},
        **axes,
        **({"updatemenus": [menu], "sliders": [slider]} if len(steps) > 1 else {}),
    )


def _range(values: npt.NDArray[np.float64]) -> list[float]:
    if not len(values):
        return [-1.0, 1.0]
    low, high = float(values.min()), float(values.max())
    edge = (high - low) * EDGE or 1.0
    return [low - edge, high + edge]


def _said(name: str, landscape: Landscape, frame: int, middle: float, shifts: Sequence[int]) -> str:
    """What a frame shows of one side."""
    q, step = landscape.q[frame], landscape.steps[frame]
    there = ~np.isnan(q)
    updated = there & (landscape.visits[frame] > 0)
    up, down = int((updated & (q > middle)).sum()), int((updated & (q < middle)).sum())
    count, since = int(there.sum()), _shifted(shifts, step)
    world = f" · world shifted at step {since[-1]}" if since else ""
    return (
        f"{plain(name)}, after step {step}{world}<br>{count:,} {'memory' if count == 1 else 'memories'}, {up:,} above "
        f"{middle:g}, {down:,} below"
    )


def _table(name: str, landscape: Landscape) -> pd.DataFrame:
    """One row per memory, one column of q per frame."""
    x, y = landscape.positions.T
    known = {"arm": name, "memory": landscape.labels, "x": x, "y": y, "uses": landscape.visits[-1]}
    q = {f"q after step {step}": q for step, q in zip(landscape.steps, landscape.q, strict=True)}
    return pd.DataFrame({**known, **q})
