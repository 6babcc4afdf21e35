"""The points of a large map as packed numbers, which a screen paints all at once: a mark a point is too slow there.

A cloud is sent once; what a step changes is sent as the difference to it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from plotly.colors import get_colorscale, sample_colorscale

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.drawing import Drawing
from memrl_core.figures.map.map_points import MapPoints, colours_of
from memrl_core.figures.map.memory_map import ColourBy, Labels, MapScene, colour_scale, marks_over
from memrl_core.figures.palette import q_range
from memrl_core.figures.text import one_line

SHADES = 64
NO_SHADE = 255
"""The shade of a point that there is no colour for."""

NAMED_POINTS = 20_000
"""In a larger cloud the hint at the mouse tells no names: they would be megabytes. A click still opens the memory."""

CHANGED_AT_MOST = 1000
"""With more differences than this a cloud is sent anew."""


@dataclass(frozen=True, slots=True, eq=False)
class PointCloud:
    """The memories of a map, oldest first: `ids` (n,), `places` (n, 2) float32, `q` (n,) float32, `visits` (n,) uint16.

    `shades` (n,) uint8 are rows of `palette`, `NO_SHADE` where the colour has nothing to go by. `middle` is that of q:
    points above and below it have another shape. `limits` are the `cmin` and `cmax` of the colours. `named`
    gives the label of a memory and its intent in one line.
    """

    ids: Sequence[str]
    places: npt.NDArray[np.float32]
    q: npt.NDArray[np.float32]
    visits: npt.NDArray[np.uint16]
    shades: npt.NDArray[np.uint8]
    palette: tuple[str, ...]
    middle: float
    limits: Mapping[str, float]
    named: Callable[[str], tuple[str, str]]

    @property
    def key(self) -> str:
        """A name that only this cloud has."""
        parts = (self.places, self.q, self.visits, self.shades)
        known = hashlib.blake2b(repr((self.palette, self.middle)).encode(), digest_size=8)
        for part in parts:
            known.update(part.tobytes())
        return known.hexdigest()

    def packed(self) -> dict[str, Any]:
        """The cloud as JSON: little-endian numbers in base64, and what the points are called."""
        return {
            **self._names(),
            "key": self.key,
            "palette": list(self.palette),
            "middle": self.middle,
            "x": _base64(self.places[:, 0], "<f4"),
            "y": _base64(self.places[:, 1], "<f4"),
            "q": _base64(self.q, "<f4"),
            "visits": _base64(self.visits, "<u2"),
            "shades": _base64(self.shades, "u1"),
        }

    def _names(self) -> dict[str, Any]:
        """Labels a point, and each intent once with the points that have it; nothing where there are too many."""
        if len(self.ids) > NAMED_POINTS:
            return {"labels": [], "intents": [], "intent_of": ""}
        names = [self.named(memory_id) for memory_id in self.ids]
        intents = {intent: number for number, intent in enumerate(dict.fromkeys(intent for _, intent in names))}
        of_each = np.array([intents[intent] for _, intent in names], dtype=np.uint32)
        return {
            "labels": [label for label, _ in names],
            "intents": list(intents),
            "intent_of": _base64(of_each, "<u4"),
        }

    def since(self, sent: PointCloud) -> dict[str, list[Any]] | None:
        """What to change in `sent`, a column a property and the row of each; None when it is to be sent anew."""
        before = len(sent.ids)
        if len(self.ids) < before or (self.palette, self.middle) != (sent.palette, sent.middle):
            return None
        same = (
            (self.places[:before, 0] == sent.places[:, 0])
            & (self.places[:before, 1] == sent.places[:, 1])
            & (self.q[:before] == sent.q)
            & (self.visits[:before] == sent.visits)
            & (self.shades[:before] == sent.shades)
        )
        rows = np.concatenate([np.flatnonzero(~same), np.arange(before, len(self.ids))])
        if len(rows) > CHANGED_AT_MOST:
            return None
        columns: dict[str, npt.NDArray[Any]] = {
            "x": self.places[:, 0],
            "y": self.places[:, 1],
            "q": self.q,
            "visits": self.visits,
            "shades": self.shades,
        }
        return {
            "rows": rows.tolist(),
            **{name: column[rows].tolist() for name, column in columns.items()},
            "added": [list(self.named(memory_id)) for memory_id in self.ids[before:]],
        }


def point_cloud(scene: MapScene, points: MapPoints, colour: ColourBy = "q") -> PointCloud:
    """The `points` of the scene, coloured as in its figure."""
    at = colours_of(scene, points, colour)
    scale = {**_limits(at), **colour_scale(scene, colour)}
    with np.errstate(invalid="ignore"):
        shares = np.clip((at - scale["cmin"]) / (scale["cmax"] - scale["cmin"]), 0, 1)
        shades = np.where(np.isnan(at), NO_SHADE, np.rint(np.nan_to_num(shares) * (SHADES - 1)))
    colours = scale["colorscale"]
    drawn = get_colorscale(colours) if isinstance(colours, str) else colours
    run, memories = scene.run, scene.memories
    return PointCloud(
        points.ids,
        points.places.astype(np.float32),
        points.q.astype(np.float32),
        np.minimum(points.visits, 65535).astype(np.uint16),
        shades.astype(np.uint8),
        tuple(sample_colorscale(drawn, np.linspace(0, 1, SHADES).tolist(), colortype="rgb")),
        q_range(scene.settings)[1],
        {"cmin": scale["cmin"], "cmax": scale["cmax"]},
        lambda memory_id: (memory_label(memory_id, run), one_line(memories[memory_id].intent)),
    )


def cloud_marks(scene: MapScene, cloud: PointCloud, colour: ColourBy = "q", labels: Labels = "chosen") -> Drawing:
    """What lies over a cloud: the marks of the step, with axes that show every point, and the bar of the colours."""
    # One after the other: numpy takes thirty times as long for both at once.
    low, high = (np.array([end(axis) for axis in cloud.places.T], dtype=float) for end in (np.min, np.max))
    return marks_over(scene, colour, labels, cloud.limits, low, high)


def _limits(values: npt.NDArray[np.float64]) -> dict[str, float]:
    """Where colours begin and end when only the values say it."""
    known = values[~np.isnan(values)]
    if not len(known):
        return {"cmin": 0.0, "cmax": 1.0}
    return {"cmin": float(known.min()), "cmax": float(max(known.max(), known.min() + 1e-9))}


def _base64(values: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(values.astype(kind).tobytes()).decode("ascii")
