"""Projections and the frozen map: what was placed never moves by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.analysis.map.map_layout import PCA, UMAP, MapLayout, Umap
from memrl_core.analysis.map.projection import Pca, aligned, near_neighbours
from memrl_core.analysis.map.umap_child import FittedUmap
from memrl_core.bank import MemoryBank
from memrl_core.environments.child import ChildFailed
from tests.builders import a_bank, a_step, a_vector, numbers


def vectors(count: int, dimension: int = 8, seed: int = 0) -> np.ndarray:
    return np.stack([a_vector(seed * 1000 + n, dimension) for n in range(count)])


def filled(bank: MemoryBank, count: int) -> MemoryBank:
    first = bank.next_step("r")
    for step in range(first, first + count):
        bank.commit_step(*a_step(step))
    return bank


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


def test_a_guess_lies_among_the_nearest() -> None:
    known = vectors(30)
    coordinates = np.random.default_rng(0).normal(size=(30, 2))
    assert near_neighbours(known[4:5], known, coordinates, count=1)[0] == pytest.approx(coordinates[4])


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_old_places_never_move_when_memories_are_added(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int]
) -> None:
    bank = filled(a_bank(tmp_path_factory.mktemp("map") / "bank"), 5)
    layout = MapLayout(bank)
    before = dict(layout.places())
    for count in batches[:3]:
        filled(bank, count)
        after = dict(layout.places())
        assert {i: after[i] for i in before} == before
        assert len(after) == bank.view("r").size
        before = after
    assert not layout.announcement


def test_a_small_bank_gets_one_better_map_and_says_so(tmp_path: Path) -> None:
    bank = filled(a_bank(tmp_path / "bank"), 2)
    layout = MapLayout(bank)
    first = dict(layout.places())
    filled(bank, 2)
    assert {i: layout.places()[i] for i in first} == first
    assert not layout.announcement
    filled(bank, 1)
    layout.places()
    assert "PCA" in layout.announcement and numbers(layout.announcement) == ["5"]


@pytest.mark.slow
def test_pca_is_there_at_once_and_umap_takes_its_place_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # For two dozen memories, compiling takes longer than all that is compiled for.
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    bank = filled(a_bank(tmp_path / "bank"), 20)
    layout = MapLayout(bank)
    at_once = dict(layout.places())
    assert (layout.method, len(at_once)) == (PCA, 20)
    layout.wait()
    frozen = dict(layout.places())
    assert layout.method == UMAP
    assert "20" in layout.announcement

    filled(bank, 3)
    grown = dict(layout.places())
    assert len(grown) == 23
    assert layout.provisional == frozenset()
    assert {i: grown[i] for i in frozen} == frozen

    again = MapLayout(MemoryBank.open(bank.uri))
    assert dict(again.places()) == grown
    filled(again._bank, 1)
    guessed = dict(again.places())
    assert again.provisional == {"r-0024"}
    again.wait()
    sure = dict(again.places())
    assert again.provisional == frozenset()
    assert {i: sure[i] for i in grown} == {i: guessed[i] for i in grown} == grown
    assert dict(MapLayout(MemoryBank.open(bank.uri)).places()) == sure

    query = a_vector(77)
    assert again.place_query(query) == again.place_query(query)
    again.relayout()
    again.wait()
    again.take_proposal()
    assert dict(again.places()).keys() == sure.keys()
    assert "24" in again.announcement
    assert dict(layout.places()) == dict(again.places())


def test_an_empty_bank_has_an_empty_map(tmp_path: Path) -> None:
    layout = MapLayout(a_bank(tmp_path / "bank"))
    assert layout.places() == {}
    assert layout.place_query(a_vector(1)) == (0.0, 0.0)


@pytest.mark.slow
def test_umap_in_its_process_gives_what_it_gives_here_and_keeps_the_places_it_is_given() -> None:
    given_vectors, new = vectors(16), vectors(1, seed=3)
    here, there = FittedUmap(given_vectors), Umap()
    there.fit(given_vectors)
    assert np.array_equal(there.coordinates, here.coordinates)
    places = np.random.default_rng(1).normal(size=(16, 2))
    here.move_to(places)
    there.move_to(places)
    assert np.array_equal(there.coordinates, places)
    assert np.array_equal(there.place(new), here.place(new))
    there.end()
    with pytest.raises(ChildFailed):
        there.place(new)
