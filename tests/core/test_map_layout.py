"""The map of a bank: places are frozen, guesses are said, and every new layout is announced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memrl_core.analysis import map_layout
from memrl_core.analysis.map_layout import PCA, UMAP, MapLayout
from memrl_core.analysis.projection import Plane, Vectors
from memrl_core.bank import MemoryBank
from memrl_core.errors import BankFull
from tests.builders import a_bank, a_step, a_vector


class InstantUmap:
    """Stands in for UMAP: at once when `gate` is open, so that a test decides when a fit ends."""

    gate = threading.Event()
    fails = False

    def __init__(self, vectors: Vectors, coordinates: Plane | None = None) -> None:
        assert self.gate.wait(30)
        if self.fails:
            raise TypeError("k >= N")
        self.coordinates = vectors[:, :2].astype(np.float64) if coordinates is None else coordinates

    def move_to(self, coordinates: Plane) -> None:
        self.coordinates = coordinates

    def place(self, vectors: Vectors) -> Plane:
        return vectors[:, 2:4].astype(np.float64)


@pytest.fixture
def umap(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[InstantUmap]]:
    monkeypatch.setattr(map_layout, "Umap", InstantUmap)
    monkeypatch.setattr(InstantUmap, "fails", False)
    InstantUmap.gate.set()
    yield InstantUmap
    InstantUmap.gate.set()


def grown(bank: MemoryBank, count: int) -> MemoryBank:
    first = bank.next_step("r")
    for step in range(first, first + count):
        bank.commit_step(*a_step(step))
    return bank


def settled(bank: MemoryBank) -> MapLayout:
    layout = MapLayout(bank)
    layout.places()
    layout.wait()
    layout.places()
    return layout


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_tiny_bank_opened_again_shows_the_same_map(tmp_path: Path, count: int) -> None:
    bank = grown(a_bank(tmp_path / "bank"), count)
    first = dict(MapLayout(bank).places())
    assert len(set(first.values())) == count
    assert dict(MapLayout(MemoryBank.open(bank.uri)).places()) == first


def test_equal_vectors_share_a_place_however_many(tmp_path: Path, umap: type[InstantUmap]) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in range(1, 17):
        trace, vectors = a_step(step)
        bank.commit_step(trace, dict.fromkeys(vectors, a_vector(1)))
    places = settled(bank).places()
    assert len(places) == 16
    assert np.ptp(list(places.values()), axis=0) == pytest.approx([0, 0])


@pytest.mark.parametrize(("count", "method"), [(14, PCA), (15, UMAP)])
def test_umap_begins_with_fifteen_memories(tmp_path: Path, umap: type[InstantUmap], count: int, method: str) -> None:
    assert settled(grown(a_bank(tmp_path / "bank"), count)).method == method


def test_a_memory_written_while_a_layout_is_fitted_gets_a_guess_that_is_not_stored(
    tmp_path: Path, umap: type[InstantUmap]
) -> None:
    layout = settled(grown(a_bank(tmp_path / "bank"), 16))
    umap.gate.clear()
    layout.relayout()
    grown(layout._bank, 1)
    assert "r-0017" in layout.places()
    assert layout.provisional == {"r-0017"}
    stored = layout._bank.layouts.newest()
    assert stored is not None and "r-0017" not in stored.coordinates
    umap.gate.set()
    layout.wait()
    assert layout.places()["r-0017"] == pytest.approx(tuple(a_vector(17)[2:4]))
    assert layout.provisional == frozenset()


def test_a_layout_of_another_process_is_followed_and_announced(tmp_path: Path, umap: type[InstantUmap]) -> None:
    layout = settled(grown(a_bank(tmp_path / "bank"), 16))
    layout.announcement = ""
    before = layout.id
    other = settled(MemoryBank.open(layout._bank.uri))
    other.relayout()
    other.wait()
    assert dict(layout.places()) == dict(other.places())
    assert layout.id == other.id != before
    assert "UMAP (16 memories)" in layout.announcement


def test_the_switch_to_umap_happens_once_for_two_processes(tmp_path: Path, umap: type[InstantUmap]) -> None:
    bank = grown(a_bank(tmp_path / "bank"), 16)
    slow = MapLayout(bank)
    umap.gate.clear()
    slow.places()
    quick = MapLayout(MemoryBank.open(bank.uri))
    quick.places()
    stored = quick._bank.layouts.save(UMAP, {**quick.places(), "r-0001": (9.0, 9.0)})
    umap.gate.set()
    slow.wait()
    quick.wait()
    assert slow.places()["r-0001"] == (9.0, 9.0)
    assert slow.id == stored.id
    assert "UMAP" in slow.announcement


def test_a_new_layout_is_turned_to_fit_the_old_one(tmp_path: Path, umap: type[InstantUmap]) -> None:
    layout = settled(grown(a_bank(tmp_path / "bank"), 16))
    ids = layout._bank.memory_ids()
    old = np.array([layout.places()[memory_id] for memory_id in ids])
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    original = umap.__init__

    def turned(self: InstantUmap, vectors: Vectors, coordinates: Plane | None = None) -> None:
        original(self, vectors, coordinates)
        self.coordinates = old @ turn + 7

    layout.announcement = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(umap, "__init__", turned)
        layout.relayout()
        layout.wait()
    assert np.array([layout.places()[memory_id] for memory_id in ids]) == pytest.approx(old)
    assert "laid out anew" in layout.announcement


def test_places_that_could_not_be_stored_stay_and_are_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = grown(a_bank(tmp_path / "bank"), 5)
    layout = MapLayout(bank)

    def full(*_: object) -> None:
        raise BankFull("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(bank.layouts, "save", full)
        patch.setattr(bank.layouts, "add", full)
        shown = dict(layout.places())
        grown(bank, 1)
        later = dict(layout.places())
        assert {memory_id: later[memory_id] for memory_id in shown} == shown
        shown = later
        assert "could not be stored" in layout.error
    grown(bank, 1)
    later = dict(layout.places())
    assert {memory_id: later[memory_id] for memory_id in shown} == shown
    assert (layout.error, layout.announcement) == ("", "")
    again = dict(MapLayout(MemoryBank.open(bank.uri)).places())
    assert again == later


def test_a_failed_fit_is_said_and_can_be_asked_for_again(tmp_path: Path, umap: type[InstantUmap]) -> None:
    umap.fails = True
    layout = settled(grown(a_bank(tmp_path / "bank"), 16))
    assert layout.method == PCA
    assert "UMAP could not lay out this memory (TypeError)" in layout.error
    umap.fails = False
    layout.relayout()
    layout.wait()
    assert (layout.method, layout.error) == (UMAP, "")


def test_a_closed_map_stores_nothing_any_more(tmp_path: Path, umap: type[InstantUmap]) -> None:
    layout = MapLayout(grown(a_bank(tmp_path / "bank"), 16))
    umap.gate.clear()
    layout.places()
    rows = layout._bank.layouts.count()
    layout.close()
    umap.gate.set()
    layout.wait()
    assert layout._bank.layouts.count() == rows
