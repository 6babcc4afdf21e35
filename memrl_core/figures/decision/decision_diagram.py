"""The decision at every λ at once: one straight line a candidate, the top k2 shaded, and where the choice flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.spectrum import Spectrum
from memrl_core.figures.palette import CHOSEN_SHADE, CUT, NEUTRAL, SELECTED, UTILITY, bare_layout
from memrl_core.figures.picture import Drawing, DrawnPicture

GRID = 201
LABELLED = 30
CLOSE = 0.035


def decision_diagram(spectrum: Spectrum, weight: float, recorded: float, run: str) -> DrawnPicture:
    """Lines of score over λ from 0 (similarity alone) to 1 (utility alone); `weight` is the λ that is looked at.

    `recorded` is the λ with which the step was decided; it is drawn dashed, below the other.
    """
    # The same for every λ looked at: a browser keeps what a slider leaves as it was.
    grid = np.unique(np.concatenate([np.linspace(0, 1, GRID), [flip.weight for flip in spectrum.flips]]))
    scores = np.outer(1 - grid, spectrum.z_similarity) + np.outer(grid, spectrum.z_q)
    now = _chosen_at(spectrum, weight)
    traces: list[dict[str, Any]] = []
    if scores.size and 0 < spectrum.k2 < len(spectrum.ids):
        traces += _shade(grid, scores, spectrum.k2)
    traces += _lines(spectrum, [i for i in range(len(spectrum.ids)) if spectrum.ids[i] not in now], NEUTRAL, 1.2, run)
    traces += _lines(spectrum, [i for i in range(len(spectrum.ids)) if spectrum.ids[i] in now], SELECTED, 3, run)
    if 0 < len(spectrum.ids) <= LABELLED:
        traces.append(_names(spectrum, run))
    marks = [_upright(flip.weight, CUT, 1, "dot") for flip in spectrum.flips]
    # Always there, if below the other: a browser then has only moved marks to draw.
    marks.append(_upright(recorded, UTILITY, 1.5, "dash"))
    marks.append(_upright(weight, UTILITY, 2.5, "solid"))
    name = {
        "x": weight, "y": 1, "yref": "paper", "yanchor": "bottom", "text": f"λ = {weight:g}", "showarrow": False,
        "font": {"color": UTILITY},
    }  # fmt: skip
    # Lines end at 1; the room beyond is for the names of the memories.
    across = {
        "range": [-0.02, 1.14 if len(spectrum.ids) <= LABELLED else 1.02],
        "title": {"text": "λ · weight of q"},
        "zeroline": False,
        "tickvals": [0, 0.25, 0.5, 0.75, 1],
        "ticktext": ["0 · similarity", "0.25", "0.5", "0.75", "1 · utility"],
    }
    up = {"title": {"text": "score"}, "zeroline": False}
    layout = bare_layout(height=430, showlegend=False, shapes=marks, annotations=[name], xaxis=across, yaxis=up)
    title = _title(spectrum, weight)
    alt = f"Each candidate's score as a line over λ. {title}."
    return DrawnPicture(Drawing(traces, layout), lambda: _table(spectrum, run), title, alt)


def _upright(weight: float, colour: str, width: float, dash: str) -> dict[str, Any]:
    line = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", "x0": weight, "x1": weight, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _chosen_at(spectrum: Spectrum, weight: float) -> frozenset[str]:
    """The selected set at a weight; at a flip itself, that of the interval below."""
    return next((i.selected for i in spectrum.intervals if i.low <= weight <= i.high), frozenset())


def _shade(grid: np.ndarray, scores: np.ndarray, k2: int) -> list[dict[str, Any]]:
    cut = np.sort(scores, axis=1)[:, -k2]
    top = np.full_like(cut, scores.max() + 0.15 * max(np.ptp(scores), 1e-9))
    drawn = {"type": "scatter", "x": grid, "mode": "lines", "hoverinfo": "skip"}
    return [
        {**drawn, "y": cut, "line": {"color": CUT, "width": 1, "dash": "dot"}},
        {**drawn, "y": top, "line": {"width": 0}, "fill": "tonexty", "fillcolor": CHOSEN_SHADE},
    ]


def _lines(spectrum: Spectrum, members: Sequence[int], colour: str, width: float, run: str) -> list[dict[str, Any]]:
    if not members:
        return []
    low, high = spectrum.z_similarity, spectrum.z_q
    labels = [memory_label(spectrum.ids[i], run) for i in members]
    # One trace for all lines: a gap (None) after each keeps them apart and the browser quick.
    return [
        {
            "type": "scatter",
            "x": [x for _ in members for x in (0, 1, None)],
            "y": [y for i in members for y in (low[i], high[i], None)],
            "text": [label for label in labels for _ in range(3)],
            "mode": "lines+markers",
            "line": {"color": colour, "width": width},
            "marker": {"size": 5, "color": colour},
            "hovertemplate": "%{text}: score %{y:+.3f} at λ = %{x}<extra></extra>",
        }
    ]


def _names(spectrum: Spectrum, run: str) -> dict[str, Any]:
    """The memories' names at the right ends of their lines; ends that lie too close share one place."""
    apart = CLOSE * max(float(np.ptp(np.concatenate([spectrum.z_similarity, spectrum.z_q]))), 1e-9)
    places: list[tuple[float, list[str]]] = []
    for i in np.argsort(spectrum.z_q, kind="stable"):
        end, label = float(spectrum.z_q[i]), memory_label(spectrum.ids[int(i)], run)
        if places and end - places[-1][0] < apart:
            places[-1][1].append(label)
        else:
            places.append((end, [label]))
    texts = [" ".join(labels[:3]) + (f" +{len(labels) - 3}" if len(labels) > 3 else "") for _, labels in places]
    return {
        "type": "scatter",
        "x": [1.01] * len(places),
        "y": [end for end, _ in places],
        "text": texts,
        "mode": "text",
        "textposition": "middle right",
        "hoverinfo": "skip",
    }


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
