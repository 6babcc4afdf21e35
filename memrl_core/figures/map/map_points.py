"""The points of a map as columns, of which a step changes a few: the others are not looked at again one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.figures.map.memory_map import ColourBy, MapScene, colour_values
from memrl_core.records import Utility

STRETCH = 512


@dataclass(frozen=True, slots=True, eq=False)
class MapPoints:
    """The memories that a map shows, oldest first: `ids` (n,), `places` (n, 2), `q` and `visits` (n,).

    `known` (n,) is what the last two were taken from, `layout_id` the layout of the places, and `provisional` says
    whether some of them are not frozen.
    """

    layout_id: str
    ids: Sequence[str]
    known: Sequence[Utility]
    places: npt.NDArray[np.float64]
    q: npt.NDArray[np.float64]
    visits: npt.NDArray[np.int64]
    provisional: bool


def map_points(scene: MapScene, before: MapPoints | None = None) -> MapPoints:
    """The points of a scene; what it shares with the scene `before` is taken over."""
    shown = scene.utilities
    ids = list(shown)
    size = _shared(before, scene, ids) if before is not None else 0
    # The shared ones have kept their places; to look for those of a large map again takes longer than all the rest.
    if not scene.places.keys() >= set(ids[size:]):
        shown = {memory_id: known for memory_id, known in shown.items() if memory_id in scene.places}
        ids = list(shown)
        size = _shared(before, scene, ids) if before is not None else 0
    known = list(shown.values())
    places, q, visits = _columns(scene, ids[size:], known[size:])
    if before is not None and size:
        changed = _differing(before.known, known, size)
        old_q, old_visits = before.q[:size].copy(), before.visits[:size].copy()
        old_q[changed] = [known[row].q for row in changed]
        old_visits[changed] = [known[row].visits for row in changed]
        places = np.concatenate([before.places[:size], places])
        q, visits = np.concatenate([old_q, q]), np.concatenate([old_visits, visits])
    return MapPoints(scene.layout_id, ids, known, places, q, visits, bool(scene.provisional))


def pool_far_on_screen(scene: MapScene, points: MapPoints, nearest: int = 10) -> int:
    """How many members of the pool are not among the `nearest` points to the query as the map shows them."""
    if scene.query is None or not points.ids:
        return 0
    x, y = scene.query
    away = (points.places[:, 0] - x) ** 2 + (points.places[:, 1] - y) ** 2
    most = min(nearest, len(away))
    within = np.flatnonzero(away <= np.partition(away, most - 1)[most - 1])
    near = within[np.argsort(away[within], kind="stable")][:nearest]
    return len(set(scene.pool) - {points.ids[row] for row in near})


def colours_of(scene: MapScene, points: MapPoints, colour: ColourBy) -> npt.NDArray[np.float64]:
    """By what each point is coloured (n,); NaN where there is nothing to go by."""
    if colour == "q":
        return points.q
    if colour == "visits":
        return points.visits.astype(np.float64)
    return np.array(colour_values(scene, points.ids, colour), dtype=np.float64)


def _shared(before: MapPoints, scene: MapScene, ids: Sequence[str]) -> int:
    """How many of the oldest memories both show, in the same places; 0 when they do not begin alike."""
    size = min(len(before.ids), len(ids))
    frozen = not before.provisional and before.layout_id == scene.layout_id and size <= len(scene.places)
    return size if frozen and ids[:size] == before.ids[:size] else 0


def _differing(before: Sequence[Utility], now: Sequence[Utility], size: int) -> list[int]:
    """The rows of the first `size` in which the two may differ.

    Few do: stretches are compared as a whole, which looks no further at what is the same thing in both.
    """
    rows: list[int] = []
    for first in range(0, size, STRETCH):
        last = min(first + STRETCH, size)
        if before[first] is not now[first] or before[first:last] != now[first:last]:
            rows += [row for row in range(first, last) if before[row] is not now[row]]
    return rows


def _columns(
    scene: MapScene, ids: Sequence[str], known: Sequence[Utility]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[Any]]:
    return (
        np.array([scene.places[memory_id] for memory_id in ids], dtype=np.float64).reshape(-1, 2),
        np.array([utility.q for utility in known], dtype=np.float64),
        np.array([utility.visits for utility in known], dtype=np.int64),
    )
