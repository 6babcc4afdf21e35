"""UMAP at work in a process of its own: `python -m memrl_core.analysis.map.umap_child`, asked by `map_layout`.

A question names the files that arrays stand in, and the one to write the answer to. The model never leaves the process:
it could only travel as a pickle, which whoever could write the file would make run anything.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from memrl_core.analysis.map.projection import SEED, Plane
from memrl_core.embedders.base import Vectors
from memrl_core.environments.child import serve

NEIGHBOURS = 15
MIN_DISTANCE = 0.5
"""Wider than umap-learn's default, so that repeated intents do not hide each other."""

POLITENESS = 5
"""By how much it steps behind the app, where the two share a processor."""


class FittedUmap:
    """UMAP (arXiv 1802.03426, umap-learn) of `vectors` (n, d), n >= 4, by cosine and with a fixed seed.

    With `coordinates` (n, 2) the map is the given one, and new vectors are placed relative to it.
    """

    def __init__(self, vectors: Vectors, coordinates: Plane | None = None) -> None:
        import umap

        self._reducer: Any = umap.UMAP(
            n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
            min_dist=MIN_DISTANCE,
            metric="cosine",
            random_state=SEED,
            n_jobs=1,
        ).fit(vectors)
        # The first transform compiles for seconds: better now than when a point is to be placed.
        self._reducer.transform(vectors[:1])
        self.coordinates: Plane = np.asarray(self._reducer.embedding_, dtype=np.float64)
        if coordinates is not None:
            self.move_to(coordinates)

    def move_to(self, coordinates: Plane) -> None:
        """Take `coordinates` (n, 2) as the places of the fitted vectors."""
        self.coordinates = coordinates
        self._reducer.embedding_ = coordinates.astype(np.float32)

    def place(self, vectors: Vectors) -> Plane:
        """(m, d) unit vectors to (m, 2) by UMAP's transform; the fitted points stay where they are."""
        placed = self._reducer.transform(vectors)
        return np.asarray(placed, dtype=np.float64)


class _Asked:
    """Answers `begin`, `fit`, `move` and `place`; the model is that of the last `fit`.

    A process that takes the place of one that ended `knows` nothing and does nothing, until it is to `begin`.
    """

    def __init__(self) -> None:
        self._begun = False
        self._fitted: FittedUmap | None = None

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        do = question["do"]
        self._begun = self._begun or do == "begin"
        if do == "begin" or not self._begun or (do != "fit" and self._fitted is None):
            return {"knows": do == "begin"}
        given = {name: _taken(question[name]) for name in ("vectors", "coordinates") if name in question}
        if do == "fit":
            self._fitted = FittedUmap(**given)
            np.save(question["to"], self._fitted.coordinates, allow_pickle=False)
        elif self._fitted is not None and do == "move":
            self._fitted.move_to(given["coordinates"])
        elif self._fitted is not None:
            np.save(question["to"], self._fitted.place(given["vectors"]), allow_pickle=False)
        return {"knows": True}


def _taken(file: str) -> Any:
    """The array in a file, which is then gone: where such files stand in memory, it would stand there twice."""
    array = np.load(file, allow_pickle=False)
    os.unlink(file)
    return array


if __name__ == "__main__":
    if sys.platform != "win32":
        os.nice(POLITENESS)
    serve(_Asked())
