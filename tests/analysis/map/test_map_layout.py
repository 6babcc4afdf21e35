"""The map of a bank: a place is decided once and stays, and every new layout is announced."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.analysis.map import map_layout
from memrl_core.analysis.map.map_layout import PCA, UMAP, MapLayout
from memrl_core.analysis.map.projection import Plane
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Vectors
from memrl_core.errors import BankFull
from tests.builders import a_bank, a_step, a_vector, grown, numbers
from tests.instant_umap import InstantUmap


@pytest.fixture
def umap(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[InstantUmap]]:
    monkeypatch.setattr(map_layout, "Umap", InstantUmap)
    monkeypatch.setattr(InstantUmap, "fails", False)
    InstantUmap.gate.set()
    yield InstantUmap
    InstantUmap.gate.set()


def settled(bank: MemoryBank) -> MapLayout:
    layout = MapLayout(bank)
    layout.places()
    layout.wait()
    layout.places()
    return layout


@pytest.fixture
def layout(tmp_path: Path, umap: type[InstantUmap]) -> MapLayout:
    """The map of sixteen memories, fitted, with nothing announced."""
    layout = settled(grown(a_bank(tmp_path / "bank"), 16))
    layout.announcement = ""
    return layout


def laid_out_anew(layout: MapLayout) -> MapLayout:
    layout.relayout()
    layout.wait()
    layout.take_proposal()
    return layout


def unmoved(layout: MapLayout, before: dict[str, tuple[float, float]]) -> bool:
    """Whether all memories of an earlier map lie where they lay."""
    places = layout.places()
    return {memory_id: places[memory_id] for memory_id in before} == before


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
        bank.write.commit_step(trace, dict.fromkeys(vectors, a_vector(1)))
    places = settled(bank).places()
    assert len(places) == 16
    assert np.ptp(list(places.values()), axis=0) == pytest.approx([0, 0])


@pytest.mark.parametrize(("count", "method"), [(14, PCA), (15, UMAP)])
def test_umap_begins_with_fifteen_memories(tmp_path: Path, umap: type[InstantUmap], count: int, method: str) -> None:
    assert settled(grown(a_bank(tmp_path / "bank"), count)).method == method


def test_the_first_new_memory_of_a_map_opened_anew_lies_where_its_query_was_shown_and_stays_there(
    layout: MapLayout,
) -> None:
    before = dict(layout.places())
    again = MapLayout(MemoryBank.open(layout._bank.uri))
    assert again.places() == before
    query = again.place_query(a_vector(17))
    grown(again._bank, 1)
    assert again.places()["r-0017"] == query
    again.wait()
    assert again.places() == {**before, "r-0017": query}
    assert (again.state, again.announcement) == ("ready", "")
    assert MapLayout(MemoryBank.open(layout._bank.uri)).places() == again.places()


def test_a_memory_stays_where_its_query_was_shown_though_others_came_in_between(layout: MapLayout) -> None:
    query = layout.place_query(a_vector(18))
    trace, vectors = a_step(17)
    layout._bank.write.commit_step(trace, dict.fromkeys(vectors, a_vector(18)))
    layout.places()
    grown(layout._bank, 1)
    assert layout.places()["r-0018"] == query


def test_a_memory_written_while_a_layout_is_fitted_has_its_place_in_both_maps(layout: MapLayout) -> None:
    InstantUmap.gate.clear()
    layout.relayout()
    grown(layout._bank, 1)
    place = layout.places()["r-0017"]
    assert layout._bank.layouts.newest().coordinates["r-0017"] == place
    InstantUmap.gate.set()
    layout.wait()
    assert layout.places()["r-0017"] == place
    layout.take_proposal()
    assert layout.places().keys() == set(layout._bank.memory_ids())


def test_a_map_that_was_fitted_on_few_is_outgrown_until_it_is_laid_out_anew(layout: MapLayout) -> None:
    grown(layout._bank, 16)
    before = dict(layout.places())
    assert not layout.outgrown
    grown(layout._bank, 1)
    assert unmoved(layout, before)
    assert layout.outgrown and layout.fitted == 16 and layout.announcement == ""
    assert len(laid_out_anew(layout).places()) == layout.fitted == 33
    assert not layout.outgrown and layout.announcement


def test_a_new_layout_moves_nothing_until_it_is_taken_and_is_undone_by_going_back(layout: MapLayout) -> None:
    grown(layout._bank, 1)
    before, stored = dict(layout.places()), layout._bank.layouts.count()
    for take in (False, True):
        layout.relayout()
        layout.wait()
        assert len(layout.proposal.coordinates) == 17
        assert unmoved(layout, before)
        if not take:
            assert layout._bank.layouts.count() == stored
            layout.drop_proposal()
            layout.places()
            layout.wait()
            layout.places()
    proposed = dict(layout.proposal.coordinates)
    shown = dict(layout.places())
    layout.take_proposal()
    assert dict(layout.places()) == proposed != shown
    assert layout.proposal is None and layout.can_go_back
    grown(layout._bank, 1)
    layout.go_back()
    assert unmoved(layout, shown) and len(layout.places()) == 18
    assert not layout.can_go_back
    assert unmoved(MapLayout(MemoryBank.open(layout._bank.uri)), shown)


def test_a_layout_of_another_process_is_followed_and_announced(layout: MapLayout) -> None:
    before = layout.id
    other = laid_out_anew(settled(MemoryBank.open(layout._bank.uri)))
    assert dict(layout.places()) == dict(other.places())
    assert layout.id == other.id != before
    assert numbers(layout.announcement)[0] == "16"


def test_the_switch_to_umap_happens_once_for_two_processes(tmp_path: Path, umap: type[InstantUmap]) -> None:
    bank = grown(a_bank(tmp_path / "bank"), 16)
    slow = MapLayout(bank)
    umap.gate.clear()
    slow.places()
    quick = MapLayout(MemoryBank.open(bank.uri))
    quick.places()
    stored = quick._bank.write.layouts.save(UMAP, {**quick.places(), "r-0001": (9.0, 9.0)})
    umap.gate.set()
    slow.wait()
    quick.wait()
    assert slow.places()["r-0001"] == (9.0, 9.0)
    assert slow.id == stored.id
    assert "UMAP" in slow.announcement


def test_a_new_layout_is_turned_to_fit_the_old_one(layout: MapLayout) -> None:
    ids = layout._bank.memory_ids()
    old = np.array([layout.places()[memory_id] for memory_id in ids])
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])

    def turned(self: InstantUmap, vectors: Vectors) -> Plane:
        return old @ turn + 7

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InstantUmap, "fit", turned)
        laid_out_anew(layout)
    assert np.array([layout.places()[memory_id] for memory_id in ids]) == pytest.approx(old)
    assert layout.announcement


def test_places_that_could_not_be_stored_stay_and_are_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = grown(a_bank(tmp_path / "bank"), 5)
    layout = MapLayout(bank)

    def full(*_: object) -> None:
        raise BankFull("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(bank.write.layouts, "save", full)
        patch.setattr(bank.write.layouts, "add", full)
        shown = dict(layout.places())
        grown(bank, 1)
        assert unmoved(layout, shown)
        shown = dict(layout.places())
        assert layout.error
    grown(bank, 1)
    assert unmoved(layout, shown)
    assert (layout.error, layout.announcement) == ("", "")
    assert dict(MapLayout(MemoryBank.open(bank.uri)).places()) == dict(layout.places())


def test_a_failed_fit_is_said_and_can_be_asked_for_again(tmp_path: Path, umap: type[InstantUmap]) -> None:
    umap.fails = True
    layout = settled(grown(a_bank(tmp_path / "bank"), 16))
    assert layout.method == PCA
    assert "TypeError" in layout.error
    umap.fails = False
    laid_out_anew(layout)
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


@pytest.mark.slow
def test_a_fit_that_is_stopped_ends_its_process_and_leaves_the_map(tmp_path: Path) -> None:
    layout = MapLayout(grown(a_bank(tmp_path / "bank"), 16))
    before = dict(layout.places())
    assert "16" in layout.progress
    layout.stop()
    layout.wait(30)
    assert (layout.state, layout.method, layout.progress) == ("ready", PCA, "")
    assert layout.error
    assert dict(layout.places()) == before
    assert layout.state == "ready"


@pytest.mark.slow
def test_a_fit_whose_process_is_killed_says_so_and_keeps_the_map(tmp_path: Path) -> None:
    layout = MapLayout(grown(a_bank(tmp_path / "bank"), 16))
    before = dict(layout.places())
    child_of(layout).kill()
    layout.wait(30)
    assert "Re-layout" in layout.error
    assert dict(layout.places()) == before


def test_on_a_map_of_umap_new_memories_lie_amid_their_neighbours(layout: MapLayout) -> None:
    known = np.array(list(layout.places().values()))
    grown(layout._bank, 1)
    placed = np.array(layout.places()["r-0017"])
    assert (known.min(axis=0) <= placed).all() and (placed <= known.max(axis=0)).all()


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_old_places_never_move_when_memories_are_added(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int]
) -> None:
    bank = grown(a_bank(tmp_path_factory.mktemp("map") / "bank"), 5)
    layout = MapLayout(bank)
    before = dict(layout.places())
    for count in batches[:3]:
        grown(bank, count)
        assert unmoved(layout, before)
        before = dict(layout.places())
        assert len(before) == bank.view("r").size
    assert not layout.announcement


def test_a_small_bank_gets_one_better_map_and_says_so(tmp_path: Path) -> None:
    bank = grown(a_bank(tmp_path / "bank"), 2)
    layout = MapLayout(bank)
    first = dict(layout.places())
    grown(bank, 2)
    assert unmoved(layout, first)
    assert not layout.announcement
    grown(bank, 1)
    layout.places()
    assert "PCA" in layout.announcement and numbers(layout.announcement) == ["5"]


@pytest.mark.slow
def test_pca_is_there_at_once_and_umap_takes_its_place_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # For two dozen memories, compiling takes longer than all that is compiled for.
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    bank = grown(a_bank(tmp_path / "bank"), 20)
    layout = MapLayout(bank)
    at_once = dict(layout.places())
    assert (layout.method, len(at_once)) == (PCA, 20)
    layout.wait()
    frozen = dict(layout.places())
    assert layout.method == UMAP
    assert "20" in layout.announcement

    grown(bank, 3)
    assert unmoved(layout, frozen) and len(layout.places()) == 23
    again = MapLayout(MemoryBank.open(bank.uri))
    assert again.places() == layout.places()
    laid_out_anew(again)
    assert "23" in again.announcement
    assert layout.places() == again.places()


def test_an_empty_bank_has_an_empty_map(tmp_path: Path) -> None:
    layout = MapLayout(a_bank(tmp_path / "bank"))
    assert layout.places() == {}
    assert layout.place_query(a_vector(1)) == (0.0, 0.0)


def child_of(layout: MapLayout) -> subprocess.Popen[bytes]:
    """The process in which a layout is being fitted, once there is one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        process = layout._umap._child._process if layout._umap is not None else None
        if process is not None:
            return process.popen
        time.sleep(0.01)
    raise AssertionError("no process was started")
