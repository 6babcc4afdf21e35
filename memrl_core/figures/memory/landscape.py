"""The q landscape over time: the frozen map, played step by step in the browser.

Position never changes and never encodes q; colour does, on one fixed scale for all frames, and shape shows its sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from memrl_core.analysis.memory.neighbourhoods import Landscape
from memrl_core.figures.palette import CLEAR, NEUTRAL, bare_layout, plain, q_colorscale, q_range
from memrl_core.figures.picture import Picture

FRAME_MILLISECONDS = 300
EDGE = 0.06
"""Room around the outermost points, as a share of the map."""
SPREAD = 0.014
"""Distance between memories of one place, as a share of the map."""
GOLDEN_ANGLE = np.pi * (3 - 5**0.5)

Floats = npt.NDArray[np.float64]


def landscape_picture(landscape: Landscape, settings: Mapping[str, Any]) -> Picture:
    """The landscape as one frame a moment, with buttons to play and a slider to scrub; it opens at the last moment.

    Frames follow one another without a transition, so nothing moves that a wish for reduced motion would forbid: points
    appear, and change colour and shape where they are.
    """
    landscape = replace(landscape, positions=fanned(landscape.positions))
    low, middle, high = q_range(settings)
    looks = [_looks(landscape, frame, middle) for frame in range(len(landscape.steps))]
    cards = np.array([landscape.ids, [plain(label) for label in landscape.labels]], dtype=object).T
    shapes = (
        ("circle", f"at {middle:g} or never updated", 7),
        ("triangle-up", f"above {middle:g}", 11),
        ("triangle-down", f"below {middle:g}", 11),
    )
    points = [
        {
            **look,
            "x": landscape.positions[:, 0],
            "mode": "markers",
            "name": name,
            "marker": {
                **look["marker"],
                "symbol": symbol,
                "coloraxis": "coloraxis",
                "size": size,
                "line": {"width": 1, "color": NEUTRAL},
            },
            "customdata": cards,
            "hovertemplate": "<b>%{customdata[1]}</b> q %{marker.color:+.3f}<extra></extra>",
        }
        for look, (symbol, name, size) in zip(looks[-1], shapes, strict=True)
    ]
    names = [str(step) for step in landscape.steps]
    sentence = [f"After step {step}: {_said(landscape, frame, middle)}" for frame, step in enumerate(landscape.steps)]
    points.append(_caption(sentence[-1]))
    frames = [
        {"name": name, "data": [*look, {"text": [words]}], "traces": [0, 1, 2, 3]}
        for name, look, words in zip(names, looks, sentence, strict=True)
    ]
    scale = {
        "colorscale": q_colorscale(),
        "cmin": low,
        "cmax": high,
        "colorbar": {"title": {"text": "q"}, "thickness": 10, "len": 0.75},
    }
    figure = go.Figure(data=points, layout={**_layout(landscape, names), "coloraxis": scale}, frames=frames)
    title = _title(landscape, middle)
    alt = (
        f"A map of memories at {len(names):,} moments, from step {names[0]} to step {names[-1]}. Near points have "
        f"similar intents; colour shows q, triangles up or down show whether it is above or below {middle:g}, circles "
        f"were never updated or lie at {middle:g}. {title}."
    )
    return Picture(figure, _table(landscape), title, alt)


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


def _looks(landscape: Landscape, frame: int, middle: float) -> list[dict[str, Any]]:
    """What differs between frames, for the points in the middle, above and below (see `q_symbol`).

    A trace a shape makes the legend, and spares 60 lists of symbols. Plotly draws no point that has no y.
    """
    q, updated, height = landscape.q[frame], landscape.visits[frame] > 0, landscape.positions[:, 1]
    up, down = updated & (q > middle), updated & (q < middle)
    shown = (~np.isnan(q) & ~up & ~down, up, down)
    colour = _short(q)
    return [{"y": _short(np.where(of, height, np.nan)), "marker": {"color": colour}} for of in shown]


def _short(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Single precision: it shows the same three decimals and takes half the room."""
    return values.astype(np.float32)


def _layout(landscape: Landscape, names: list[str]) -> dict[str, Any]:
    # SVG points need no redraw. Those of WebGL do, and vanish while frames play (a known fault of plotly.js), so
    # this map has SVG points however many there are.
    frame = {"duration": FRAME_MILLISECONDS, "redraw": False}
    at_once = {"mode": "immediate", "transition": {"duration": 0}}
    scrub = {**at_once, "frame": {**frame, "duration": 0}}
    play = [None, {**at_once, "frame": frame, "fromcurrent": True}]
    quiet = {"bgcolor": CLEAR, "bordercolor": NEUTRAL}
    # Fixed ranges: the frame would otherwise follow the points that are there.
    x, y = (_range(landscape.positions[:, axis]) for axis in (0, 1))
    return bare_layout(
        margin={"l": 0, "r": 0, "t": 34, "b": 8},
        hovermode="closest",
        # The swatches of a legend would take the colour of one memory.
        showlegend=False,
        dragmode="pan",
        xaxis={"visible": False, "range": x},
        yaxis={"visible": False, "range": y},
        xaxis2={"visible": False, "range": [0, 1], "overlaying": "x", "fixedrange": True},
        yaxis2={"visible": False, "range": [0, 1], "overlaying": "y", "fixedrange": True},
        updatemenus=[
            {
                **quiet,
                "type": "buttons",
                "direction": "left",
                "showactive": False,
                "x": 0,
                "xanchor": "left",
                "y": 0,
                "yanchor": "top",
                "pad": {"t": 28},
                "buttons": [
                    {"label": "▶ play", "method": "animate", "args": play},
                    {"label": "❚❚ pause", "method": "animate", "args": [[None], scrub]},
                ],
            }
        ],
        sliders=[
            {
                **quiet,
                "active": len(names) - 1,
                "x": 0.22,
                "len": 0.78,
                "y": 0,
                "pad": {"t": 12},
                "tickcolor": NEUTRAL,
                "currentvalue": {"prefix": "step "},
                "steps": [{"label": name, "method": "animate", "args": [[name], scrub]} for name in names],
            }
        ],
    )


def _range(values: npt.NDArray[np.float64]) -> list[float]:
    if not len(values):
        return [-1.0, 1.0]
    low, high = float(values.min()), float(values.max())
    edge = (high - low) * EDGE or 1.0
    return [low - edge, high + edge]


def _caption(text: str) -> dict[str, Any]:
    """A line in the corner, on axes of its own, that frames can change without a redraw, which titles need."""
    return {
        "x": [0], "y": [1], "xaxis": "x2", "yaxis": "y2", "mode": "text", "text": [text],
        "textposition": "bottom right", "hoverinfo": "skip",
    }  # fmt: skip


def _said(landscape: Landscape, frame: int, middle: float) -> str:
    """What a frame shows."""
    q = landscape.q[frame]
    there = ~np.isnan(q)
    count, updated = int(there.sum()), there & (landscape.visits[frame] > 0)
    up, down = int((updated & (q > middle)).sum()), int((updated & (q < middle)).sum())
    memories = "memory" if count == 1 else "memories"
    never = count - int(updated.sum())
    return (
        f"q is above {middle:g} for {up:,} of {count:,} {memories} and below for {down:,}; {never:,} were never updated"
    )


def _title(landscape: Landscape, middle: float) -> str:
    if not len(landscape.ids):
        return "No memories yet: the map is empty"
    return f"In the end, after step {landscape.steps[-1]}, {_said(landscape, -1, middle)}"


def _table(landscape: Landscape) -> pd.DataFrame:
    """One row a memory, one column of q a frame."""
    frame = {
        "memory": landscape.labels,
        "x": landscape.positions[:, 0],
        "y": landscape.positions[:, 1],
        "uses": landscape.visits[-1],
        **{f"q after step {step}": q for step, q in zip(landscape.steps, landscape.q, strict=True)},
    }
    return pd.DataFrame(frame)
