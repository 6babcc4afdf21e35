"""What a run sees as arrays is always what it believes, however often it was asked for before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.database import Database
from tests.builders import a_bank, a_run, a_step
from tests.small_banks import give_reward


def seen(bank: MemoryBank, run: str = "r") -> dict[str, tuple[float, int]]:
    """q and visits by memory, from the arrays."""
    view = bank.view(run)
    visible = np.ones(len(view.ids), dtype=bool) if view.visible is None else view.visible
    return {view.ids[n]: (float(view.q[n]), int(view.visits[n])) for n in np.flatnonzero(visible)}


def believed(bank: MemoryBank, run: str = "r") -> dict[str, tuple[float, int]]:
    return {memory_id: (known.q, known.visits) for memory_id, known in bank.utilities(run).items()}


def test_the_arrays_follow_another_handle(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1))
    other = MemoryBank.open(bank.uri)
    assert seen(other) == seen(bank)
    bank.write.commit_step(*a_step(2, ("r-0001",)))
    assert other.refresh()
    assert seen(other) == seen(bank) == believed(bank)


def test_the_arrays_of_a_fork_leave_out_what_its_base_learned_later(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1))
    bank.write.start_run(replace(a_run("f", base="r", base_step=1), first_step=2))
    before = seen(bank, "f")
    bank.write.commit_step(*a_step(2, ("r-0001",)))
    assert seen(bank, "f") == believed(bank, "f") == before
    bank.write.commit_step(*a_step(2, ("r-0001",), run="f"))
    assert seen(bank, "f") == believed(bank, "f") != before
    assert bank.next_step("f") == 3


def test_the_q_of_a_run_are_read_once_until_this_handle_or_another_changes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, read = a_bank(tmp_path / "bank"), []
    other = MemoryBank.open(bank.uri)

    def each_reads_what_is_stored() -> None:
        with MemoryBank.open(bank.uri) as fresh:
            stored = believed(fresh)
        assert believed(bank) == believed(other) == stored and list(believed(other)) == list(stored)
        assert (bank.editing.away("r"), bank.editing.pinned("r")) == (
            other.editing.away("r"),
            other.editing.pinned("r"),
        )

    raw = Database.raw
    monkeypatch.setattr(
        Database, "raw", lambda self, asked, values=(): (read.append(asked), raw(self, asked, values))[1]
    )
    changes = (
        lambda: bank.write.commit_step(*a_step(1)),
        lambda: other.write.commit_step(*a_step(2, ("r-0001",))),
        lambda: give_reward(bank, "r", 2, bank.trace("r", 2).id, ("r-0001",), -1.0, "ann"),
        lambda: other.write.undo.undo("ann"),
        lambda: bank.write.editing.forget("r", ["r-0001"], "ann"),
        lambda: other.write.undo.undo("ann"),
    )
    for change in changes:
        change()
        each_reads_what_is_stored()
        read.clear()
        each_reads_what_is_stored()
        assert sum("FROM q_values" in asked for asked in read) == 1, "the fresh handle's"
    with pytest.raises(ZeroDivisionError), bank.write.alone():
        bank.write.editing.forget("r", ["r-0001"], "ann")
        assert "r-0001" not in believed(bank)
        1 / 0  # noqa: B018
    each_reads_what_is_stored()


def test_a_view_taken_before_a_step_stays_as_it_was(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1))
    view = bank.view("r")
    assert bank.view("r") is view
    q = view.q.copy()
    bank.write.commit_step(*a_step(2, ("r-0001",)))
    assert np.array_equal(view.q, q)
    assert not np.array_equal(bank.view("r").q[:1], q)


def test_memories_are_found_in_the_arrays_of_a_run_that_begins_late(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1))
    bank.write.commit_step(*a_step(2))
    view = bank.view("r")
    late = replace(view, ids=view.ids[1:], q=view.q[1:], first_row=view.first_row + 1)
    assert view.positions_of(reversed(view.ids)).tolist() == list(range(len(view.ids)))[::-1]
    assert late.positions_of(late.ids).tolist() == [view.position(memory_id) - 1 for memory_id in late.ids]
    assert late.positions_of([]).dtype == np.int64
    with pytest.raises(KeyError):
        view.positions_of(["nobody"])
