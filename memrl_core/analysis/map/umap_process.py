"""UMAP as a process beside the app: nothing on a screen waits while it is loaded, compiled and fitted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from memrl_core.analysis.map.projection import Plane, Vectors
from memrl_core.environments.child import Child, ChildFailed

CHILD = "memrl_core.analysis.map.umap_child"
TIME_TO_FIT = 6 * 3600.0
"""Seconds; whoever finds it too long stops it."""

TIME_TO_PLACE = 120.0


class Umap:
    """UMAP of vectors by cosine and with a fixed seed, fitted by `fit`; it can be ended from any thread.

    Every method raises `ChildFailed` when the process died or was ended; what was fitted is lost with it.
    """

    def __init__(self) -> None:
        self._child = Child(CHILD)
        self._ended = False
        self.coordinates: Plane = np.zeros((0, 2))

    def fit(self, vectors: Vectors, coordinates: Plane | None = None) -> None:
        """Fit `vectors` (n, d), n >= 4; `coordinates` (n, 2) are then their places.

        With given `coordinates` the map is that one, and new vectors are placed relative to it.
        """
        given = {"vectors": vectors} if coordinates is None else {"vectors": vectors, "coordinates": coordinates}
        self._child.ask({"do": "begin"}, TIME_TO_PLACE)
        if self._ended:
            self._child.close()
            raise ChildFailed("it was ended")
        self.coordinates = self._asked("fit", TIME_TO_FIT, **given)

    def move_to(self, coordinates: Plane) -> None:
        """Take `coordinates` (n, 2) as the places of the fitted vectors."""
        self._asked("move", TIME_TO_PLACE, coordinates=coordinates)
        self.coordinates = coordinates

    def place(self, vectors: Vectors) -> Plane:
        """(m, d) unit vectors to (m, 2) by UMAP's transform; the fitted points stay where they are."""
        return self._asked("place", TIME_TO_PLACE, vectors=vectors)

    @property
    def ended(self) -> bool:
        """Whether it was ended for good."""
        return self._ended

    def end(self) -> None:
        """End the process, whatever it is at; it does nothing any more."""
        self._ended = True
        self._child.close()

    def _asked(self, do: str, within: float, **given: Vectors | Plane) -> Plane:
        with tempfile.TemporaryDirectory(prefix="memrl-map-") as folder:
            answer = Path(folder) / "answer.npy"
            files = {name: str(Path(folder) / f"{name}.npy") for name in given}
            for name, values in given.items():
                np.save(files[name], values, allow_pickle=False)
            knows = self._child.ask({"do": do, "to": str(answer), **files}, within).get("knows")
            if self._ended or not knows:
                self._child.close()
                raise ChildFailed("its process ended, and what it knew is gone")
            if not answer.exists():
                return np.zeros((0, 2))
            placed: Plane = np.load(answer, allow_pickle=False)
            return placed
