"""Two dimensions for many: projections that can place new vectors without moving the old ones.

PCA is there at once; UMAP (arXiv 1802.03426, umap-learn) shows neighbourhoods better but takes seconds to fit.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Plane = npt.NDArray[np.float64]

NEIGHBOURS = 15
SEED = 0
MIN_DISTANCE = 0.5
"""Wider than umap-learn's default, so that repeated intents do not hide each other."""

SPREAD = 5.0
"""The median distance from the middle of a PCA map: about what UMAP gives, so that both fill a screen alike."""

# umap-learn compiles with numba, which must not be entered by two threads at once.
_ONE_AT_A_TIME = threading.Lock()


class Projector(Protocol):
    """Places vectors on a map that is already there."""

    def place(self, vectors: Vectors) -> Plane:
        """(m, d) unit vectors to (m, 2)."""
        ...


class Pca:
    """The two directions in which the fitted vectors differ most; linear, so old points never move.

    Where fewer than three different vectors leave directions open, fixed random ones complete them.
    """

    def __init__(self, vectors: Vectors) -> None:
        given = vectors.astype(np.float64)
        self._middle = given.mean(axis=0)
        centred = given - self._middle
        kept = _strongest(centred)
        self._axes = _completed(kept, given.shape[1])
        radius = float(np.median(np.linalg.norm(centred @ self._axes.T, axis=1)))
        typical = np.sqrt(2 / given.shape[1])
        self._scale = SPREAD / (radius if radius > 1e-6 else typical)

    def place(self, vectors: Vectors) -> Plane:
        """(m, d) unit vectors to (m, 2)."""
        placed: Plane = (vectors.astype(np.float64) - self._middle) @ self._axes.T * self._scale
        return placed


class TurnedPca:
    """A PCA map in the turn in which it was stored: `stored` (n, 2) are the frozen places of `vectors` (n, d)."""

    def __init__(self, vectors: Vectors, stored: Plane) -> None:
        self._pca = Pca(vectors)
        placed = self._pca.place(vectors)
        self._from, self._to = placed.mean(axis=0), stored.mean(axis=0)
        left, _, right = np.linalg.svd((placed - self._from).T @ (stored - self._to))
        self._turn = left @ right if len(vectors) > 2 else np.eye(2)

    def place(self, vectors: Vectors) -> Plane:
        """(m, d) unit vectors to (m, 2)."""
        turned: Plane = (self._pca.place(vectors) - self._from) @ self._turn + self._to
        return turned


class Umap:
    """UMAP fitted on `vectors` (n, d), n >= 4, by cosine and with a fixed seed.

    With `coordinates` (n, 2) the map is the given one, and new vectors are placed relative to it.
    """

    def __init__(self, vectors: Vectors, coordinates: Plane | None = None) -> None:
        # Importing umap takes seconds, which an app that shows a stored map need not wait for.
        import umap

        with _ONE_AT_A_TIME:
            self._reducer: Any = umap.UMAP(
                n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
                min_dist=MIN_DISTANCE,
                metric="cosine",
                random_state=SEED,
                n_jobs=1,
            ).fit(vectors)
            # The first transform compiles for seconds; whoever fits has time for that, whoever places a point has not.
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
        with _ONE_AT_A_TIME:
            placed = self._reducer.transform(vectors)
        return np.asarray(placed, dtype=np.float64)


def aligned(new: Plane, old: Plane, shared: npt.NDArray[np.int64]) -> Plane:
    """`new` (n, 2) turned, mirrored and shifted so that its rows `shared` (m,) come close to `old` (m, 2).

    Orthogonal Procrustes; distances within `new` do not change. Fewer than two shared points leave it as it is.
    """
    if len(shared) < 2:
        return new
    middle_new, middle_old = new[shared].mean(axis=0), old.mean(axis=0)
    left, _, right = np.linalg.svd((new[shared] - middle_new).T @ (old - middle_old))
    turned: Plane = (new - middle_new) @ (left @ right) + middle_old
    return turned


def _strongest(centred: Plane) -> Plane:
    """The directions (0 to 2, d) in which the rows of `centred` (n, d) differ most."""
    if len(centred) <= centred.shape[1]:
        _, strength, directions = np.linalg.svd(centred, full_matrices=False)
    else:
        # With more rows than columns the small d x d problem has the same directions, many times sooner.
        squares, columns = np.linalg.eigh(centred.T @ centred)
        strength, directions = np.sqrt(np.clip(squares[::-1], 0, None)), columns.T[::-1]
    kept: Plane = directions[:2][strength[:2] > 1e-6]
    return kept


def near_neighbours(vectors: Vectors, known: Vectors, coordinates: Plane, count: int = 3) -> Plane:
    """A rough place (m, 2) for each of `vectors` (m, d): the middle of its most similar `known` (n, d), n >= 1."""
    similarity = vectors @ known.T
    nearest = np.argsort(-similarity, axis=1)[:, :count]
    weights = np.clip(np.take_along_axis(similarity, nearest, axis=1), 1e-3, None) ** 4
    weights /= weights.sum(axis=1, keepdims=True)
    middle: Plane = np.einsum("mk,mkd->md", weights.astype(np.float64), coordinates[nearest])
    return middle


def _completed(axes: Plane, dimension: int) -> Plane:
    """Two orthonormal axes (2, d) that begin with `axes` (0 to 2, d), each with its largest part positive."""
    candidates = np.vstack([axes, np.random.default_rng(SEED).normal(size=(2, dimension))])
    orthonormal: Plane = np.linalg.qr(candidates.T)[0].T[:2]
    strongest = np.abs(orthonormal).argmax(axis=1)
    signs = np.sign(orthonormal[[0, 1], strongest])
    return orthonormal * signs[:, None]
