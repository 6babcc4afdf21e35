"""Where something new lies on a map while no projection can say: amid what is most similar to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from memrl_core.analysis.projection import Plane, Vectors, near_neighbours
from memrl_core.bank import Layout

KNOWN = 20_000
"""Of a larger map as many memories as this, evenly spread, are looked at."""

GROWN = 1.05
"""How much larger the map may be than the one that was looked at; a small one must be the same."""

SMALL = 1_000


class Neighbours:
    """The vectors of a layout's memories beside their places; `vectors` gives those of some ids."""

    def __init__(self, layout: Layout, vectors: Callable[[Sequence[str]], Vectors]) -> None:
        known = list(layout.coordinates)
        self._layout, self._size = layout.id, len(known)
        kept = known[:: -(-len(known) // KNOWN)]
        self._vectors = vectors(kept)
        self._places: Plane = np.array([layout.coordinates[memory_id] for memory_id in kept], dtype=np.float64)

    def serve(self, layout: Layout) -> bool:
        """Whether what was looked at still does for this layout."""
        size = len(layout.coordinates)
        allowed = self._size if self._size < SMALL else GROWN * self._size
        return layout.id == self._layout and self._size <= size <= allowed

    def place(self, vectors: Vectors) -> Plane:
        """A rough place (m, 2) for each of `vectors` (m, d)."""
        return near_neighbours(vectors, self._vectors, self._places)
