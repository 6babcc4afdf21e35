"""Projections: where vectors are placed, and how one map is turned to another."""

from __future__ import annotations

import numpy as np
import pytest

from memrl_core.analysis.map.map_layout import Umap
from memrl_core.analysis.map.projection import Pca, aligned, near_neighbours
from memrl_core.analysis.map.umap_child import fit_umap
from memrl_core.environments.child import ChildFailed
from tests.builders import a_vector


def vectors(count: int, dimension: int = 8, seed: int = 0) -> np.ndarray:
    return np.stack([a_vector(seed * 1000 + n, dimension) for n in range(count)])


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_pca_places_any_number_of_vectors_apart(count: int) -> None:
    given_vectors = vectors(count)
    pca = Pca(given_vectors)
    placed = pca.place(np.vstack([given_vectors, vectors(5, seed=1)]))
    assert np.isfinite(placed).all()
    assert len(np.unique(placed.round(6), axis=0)) == count + 5


def test_pca_keeps_the_two_directions_of_largest_variance() -> None:
    given_vectors = vectors(50)
    placed = Pca(given_vectors).place(given_vectors)
    values = np.linalg.eigvalsh(np.cov(given_vectors.T.astype(float)))[::-1][:2]
    assert np.var(placed, axis=0, ddof=1) / np.var(placed[:, 0], ddof=1) == pytest.approx(values / values[0], rel=1e-6)


def test_alignment_finds_a_turn_and_a_shift_back() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(size=(10, 2))
    angle = 1.1
    mirror_turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag([1, -1])
    new = np.vstack([old, rng.normal(size=(3, 2))]) @ mirror_turn + [4, -7]
    back = aligned(new, old, np.arange(10))
    assert back[:10] == pytest.approx(old)
    assert np.linalg.norm(back[11] - back[12]) == pytest.approx(np.linalg.norm(new[11] - new[12]))


def test_a_place_lies_among_the_nearest() -> None:
    known = vectors(30)
    coordinates = np.random.default_rng(0).normal(size=(30, 2))
    assert near_neighbours(known[4:5], known, coordinates, count=1)[0] == pytest.approx(coordinates[4])


@pytest.mark.slow
def test_umap_in_its_process_gives_what_it_gives_here() -> None:
    given_vectors = vectors(16)
    assert np.array_equal(Umap().fit(given_vectors), fit_umap(given_vectors))


def test_umap_that_was_ended_before_it_began_fits_nothing() -> None:
    umap = Umap()
    umap.end()
    with pytest.raises(ChildFailed):
        umap.fit(vectors(16))
    assert umap._child.pid is None
