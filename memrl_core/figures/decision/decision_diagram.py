"""The decision at every λ at once: one straight line a candidate, the top k2 shaded, and where the choice flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.spectrum import Spectrum
from memrl_core.figures.palette import (
    CHOSEN_SHADE,
    CUT,
    NEUTRAL,
    SELECTED,
    UTILITY,
    curve,
    drawn,
    note,
    titled,
    upright,
    words,
)
from memrl_core.figures.picture import Picture

GRID = 201
LABELLED = 30
CLOSE = 0.035


def decision_diagram(spectrum: Spectrum, weight: float, recorded: float, run: str) -> Picture:
    """Lines of score over λ from 0 (similarity alone) to 1 (utility alone); `weight` is the λ that is looked at.

    `recorded` is the λ with which the step was decided; it is drawn dashed, below the other.
    """
    # The same for every λ looked at: a browser keeps what a slider leaves as it was.
    grid = np.unique(np.concatenate([np.linspace(0, 1, GRID), [flip.weight for flip in spectrum.flips]]))
    scores = np.outer(1 - grid, spectrum.similarity_z) + np.outer(grid, spectrum.q_z)
    now = _chosen_at(spectrum, weight)
    traces: list[dict[str, Any]] = []
    if scores.size and 0 < spectrum.k2 < len(spectrum.ids):
        traces += _shade(grid, scores, spectrum.k2)
    traces += _lines(spectrum, [i for i in range(len(spectrum.ids)) if spectrum.ids[i] not in now], NEUTRAL, 1.2, run)
    traces += _lines(spectrum, [i for i in range(len(spectrum.ids)) if spectrum.ids[i] in now], SELECTED, 3, run)
    named = 0 < len(spectrum.ids) <= LABELLED
    if named:
        traces.append(_names(spectrum, run))
    # The recorded λ is always there, if below the other: a browser then has only moved marks to draw.
    shapes = [upright(flip.weight, color=CUT, width=1, dash="dot") for flip in spectrum.flips]
    shapes += [upright(recorded, color=UTILITY, width=1.5, dash="dash"), upright(weight, color=UTILITY, width=2.5)]
    look: dict[str, Any] = {"yref": "paper", "yanchor": "bottom", "font": {"color": UTILITY}}
    ticks = {"tickvals": [0, 0.25, 0.5, 0.75, 1], "ticktext": ["0 · similarity", "0.25", "0.5", "0.75", "1 · utility"]}
    figure = drawn(
        traces,
        height=430,
        showlegend=False,
        shapes=shapes,
        annotations=[note(weight, 1, f"λ = {weight:g}", **look)],
        # Lines end at 1; the room beyond is for the names of the memories.
        xaxis=titled("λ · weight of q", range=[-0.02, 1.14 if named else 1.02], **ticks),
        yaxis=titled("score"),
    )
    title = _title(spectrum, weight)
    alt = f"Each candidate's score as a line over λ. {title}."
    return Picture(figure, lambda: _table(spectrum, run), title, alt)


def _chosen_at(spectrum: Spectrum, weight: float) -> frozenset[str]:
    """The selected set at a weight; at a flip itself, that of the interval below."""
    return next((i.selected for i in spectrum.intervals if i.low <= weight <= i.high), frozenset())


def _shade(grid: np.ndarray, scores: np.ndarray, k2: int) -> list[dict[str, Any]]:
    cut = np.sort(scores, axis=1)[:, -k2]
    top = np.full_like(cut, scores.max() + 0.15 * max(np.ptp(scores), 1e-9))
    return [
        curve(grid, cut, "", CUT, dash="dot", width=1),
        curve(grid, top, "", CUT, width=0, fill="tonexty", fillcolor=CHOSEN_SHADE),
    ]


def _lines(spectrum: Spectrum, members: Sequence[int], colour: str, width: float, run: str) -> list[dict[str, Any]]:
    if not members:
        return []
    # One trace for all lines: a gap (None) after each keeps them apart and the browser quick.
    x = [x for _ in members for x in (0, 1, None)]
    y = [y for i in members for y in (spectrum.similarity_z[i], spectrum.q_z[i], None)]
    labels = [memory_label(spectrum.ids[i], run) for i in members for _ in range(3)]
    hover = "%{text}: score %{y:+.3f} at λ = %{x}"
    return [curve(x, y, "", colour, hover, width=width, symbol="circle", size=5, text=labels)]


def _names(spectrum: Spectrum, run: str) -> dict[str, Any]:
    """The memories' names at the right ends of their lines; ends that lie too close share one place."""
    apart = CLOSE * max(float(np.ptp(np.concatenate([spectrum.similarity_z, spectrum.q_z]))), 1e-9)
    places: list[tuple[float, list[str]]] = []
    for i in np.argsort(spectrum.q_z, kind="stable"):
        end, label = float(spectrum.q_z[i]), memory_label(spectrum.ids[int(i)], run)
        if places and end - places[-1][0] < apart:
            places[-1][1].append(label)
        else:
            places.append((end, [label]))
    texts = [" ".join(labels[:3]) + (f" +{len(labels) - 3}" if len(labels) > 3 else "") for _, labels in places]
    return words([1.01] * len(places), [end for end, _ in places], texts)


def _title(spectrum: Spectrum, weight: float) -> str:
    if not spectrum.ids:
        return "No lines: no candidate has a score with its two parts"
    if not spectrum.flips:
        return "The same memories are selected at every λ"
    nearest = min(spectrum.flips, key=lambda flip: abs(flip.weight - weight))
    count = len(spectrum.flips)
    times = "once" if count == 1 else f"{count} times"
    return f"Between λ = 0 and 1 the selection changes {times}; the nearest change is at λ = {nearest.weight:.4f}"


def _table(spectrum: Spectrum, run: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "λ from": [interval.low for interval in spectrum.intervals],
            "λ to": [interval.high for interval in spectrum.intervals],
            "selected": [
                ", ".join(memory_label(i, run) for i in spectrum.ids if i in interval.selected)
                for interval in spectrum.intervals
            ],
        }
    )
