"""Two dimensions for many: how vectors are placed, and new ones without moving the old ones.

PCA is there at once; UMAP (umap_child.py) shows neighbourhoods better but takes seconds to fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.embedders.base import Vectors

Plane = npt.NDArray[np.float64]

SEED = 0
SPREAD = 5.0
"""The median distance from the middle of a PCA map: about what UMAP gives, so that both fill a screen alike."""

PCA_FITTED_ON = 20_000
"""Of more vectors, as many as this, evenly spread, give the directions: others would hardly turn them."""

PLACED_AT_ONCE = 20_000


class Pca:
    """The two directions in which the fitted vectors differ most; linear, so old points never move.

    Where fewer than three different vectors leave directions open, fixed random ones complete them.
    """

    def __init__(self, vectors: Vectors) -> None:
        given = thinned(vectors, PCA_FITTED_ON).astype(np.float64)
        self._middle = given.mean(axis=0)
        centred = given - self._middle
        kept = _strongest(centred)
        self._axes = _completed(kept, given.shape[1])
        radius = float(np.median(np.linalg.norm(centred @ self._axes.T, axis=1)))
        typical = np.sqrt(2 / given.shape[1])
        self._scale = SPREAD / (radius if radius > 1e-6 else typical)

    def place(self, vectors: Vectors) -> Plane:
        """(m, d) unit vectors to (m, 2)."""
        parts = [
            (vectors[first : first + PLACED_AT_ONCE].astype(np.float64) - self._middle) @ self._axes.T * self._scale
            for first in range(0, len(vectors), PLACED_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 2))


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


def as_points(places: Plane) -> list[tuple[float, float]]:
    """The rows of `places` (n, 2) as they are stored."""
    return [(x, y) for x, y in places.tolist()]


NEIGHBOURS, JUDGED = 8, 1_000


def trustworthiness(vectors: Vectors, places: Plane) -> float:
    """How far neighbours on a map are neighbours by cosine, from 0 to 1: of `vectors` (n, d) at `places` (n, 2).

    scikit-learn's measure over 8 neighbours (Venna and Kaski, 2001), on at most 1,000 different vectors; NaN for few.
    """
    from sklearn.manifold import trustworthiness as of

    different = np.sort(np.unique(vectors, axis=0, return_index=True)[1])
    kept = thinned(different, JUDGED)
    if len(kept) <= 2 * NEIGHBOURS:
        return float("nan")
    return float(of(vectors[kept], places[kept], n_neighbors=NEIGHBOURS, metric="cosine"))


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


def thinned(vectors: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    """At most `most` rows, evenly spread, without a copy."""
    return vectors[:: -(-len(vectors) // most)] if len(vectors) > most else vectors


COMPARED_AT_ONCE = 1_000


def near_neighbours(vectors: Vectors, known: Vectors, coordinates: Plane, count: int = 3) -> Plane:
    """A place (m, 2) for each of `vectors` (m, d): the middle of its most similar `known` (n, d), n >= 1."""
    parts = []
    for first in range(0, len(vectors), COMPARED_AT_ONCE):
        similarity = vectors[first : first + COMPARED_AT_ONCE] @ known.T
        nearest = np.argpartition(-similarity, min(count, len(known)) - 1, axis=1)[:, :count]
        weights = np.clip(np.take_along_axis(similarity, nearest, axis=1), 1e-3, None) ** 4
        weights /= weights.sum(axis=1, keepdims=True)
        parts.append(np.einsum("mk,mkd->md", weights.astype(np.float64), coordinates[nearest]))
    return np.concatenate(parts) if parts else np.zeros((0, 2))


def _completed(axes: Plane, dimension: int) -> Plane:
    """Two orthonormal axes (2, d) that begin with `axes` (0 to 2, d), each with its largest part positive."""
    candidates = np.vstack([axes, np.random.default_rng(SEED).normal(size=(2, dimension))])
    orthonormal: Plane = np.linalg.qr(candidates.T)[0].T[:2]
    strongest = np.abs(orthonormal).argmax(axis=1)
    signs = np.sign(orthonormal[[0, 1], strongest])
    return orthonormal * signs[:, None]
