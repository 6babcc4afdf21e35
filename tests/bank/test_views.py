"""What a run sees as arrays is always what it believes, however often it was asked for before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memrl_core.bank import MemoryBank
from tests.builders import a_bank, a_run, a_step


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
