"""Every moment of a run, by walking through it, by asking for it, and by definition."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.errors import UnknownRun
from memrl_core.retrieval.view import MemoryView
from tests.analysis.eventful import an_eventful_bank, believed_by_definition
from tests.builders import a_bank, a_run, a_step


def _seen(view: MemoryView) -> dict[str, tuple[float, int, bytes, int]]:
    visible = range(len(view.ids)) if view.visible is None else view.visible.nonzero()[0]
    return {
        view.ids[i]: (view.q[i], view.visits[i], view.embeddings[i].tobytes(), view.intent_groups[i]) for i in visible
    }


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return a_bank(tmp_path / "bank")


@pytest.mark.parametrize("seed", range(5))
def test_walking_shows_what_each_step_saw_when_it_began(tmp_path: Path, seed: int) -> None:
    bank = an_eventful_bank(tmp_path / "bank", seed)
    for run in ("r", "other", "fork"):
        walked = {step: _seen(view) for step, view in bank.walk(run)}
        assert list(walked) == [row.step for row in bank.steps.rows(run)]
        for step, seen in walked.items():
            assert seen == _seen(bank.view(run, step - 1))
            believed = believed_by_definition(bank, run, step - 1)
            assert {i: q for i, (q, *_) in seen.items()} == pytest.approx({i: q for i, (q, _) in believed.items()})
            assert {i: n for i, (_, n, *_) in seen.items()} == {i: n for i, (_, n) in believed.items()}


@pytest.mark.parametrize("seed", range(5, 8))
def test_what_a_run_believes_now_is_the_fold_of_its_ledger_here_and_after_reopening(tmp_path: Path, seed: int) -> None:
    with an_eventful_bank(tmp_path / "bank", seed) as bank:
        here = {run: dict(bank.utilities(run)) for run in ("r", "other", "fork")}
    again = MemoryBank.open(str(tmp_path / "bank"))
    for run, utilities in here.items():
        believed = believed_by_definition(again, run)
        assert {i: u.q for i, u in utilities.items()} == pytest.approx({i: q for i, (q, _) in believed.items()})
        assert {i: u.visits for i, u in utilities.items()} == {i: n for i, (_, n) in believed.items()}
        assert dict(again.utilities(run)) == utilities


def test_others_can_use_the_bank_while_someone_walks(bank: MemoryBank) -> None:
    for step in (1, 2, 3):
        bank.write.commit_step(*a_step(step))
    walk = bank.walk("r")
    next(walk)
    read: list[int] = []

    def work() -> None:
        bank.write.commit_step(*a_step(4, ("r-0001",)))
        read.append(bank.next_step("r"))

    other = threading.Thread(target=work, daemon=True)
    other.start()
    other.join(10)
    assert read == [5]
    assert [step for step, _ in walk] == [2, 3]


def test_walking_an_empty_run_shows_nothing_and_an_unknown_one_is_said(bank: MemoryBank) -> None:
    assert list(bank.walk("r")) == []
    with pytest.raises(UnknownRun):
        list(bank.walk("nobody"))


def test_a_fork_that_was_never_continued_still_shows_its_base(bank: MemoryBank) -> None:
    bank.write.commit_step(*a_step(1))
    bank.write.start_run(a_run("fork", base="r", base_step=1))
    assert list(bank.walk("fork")) == []
    bank.write.commit_step(*a_step(1, ("r-0001",), run="fork"))
    ((step, view),) = bank.walk("fork")
    assert step == 1
    assert list(_seen(view)) == ["r-0001"]


def test_whole_traces_come_in_the_order_of_their_steps(bank: MemoryBank) -> None:
    bank.write.start_run(a_run("other"))
    for step in range(1, 31):
        bank.write.commit_step(*a_step(step))
        bank.write.commit_step(*a_step(step, run="other"))
    assert bank.traces("r") == [bank.trace("r", step) for step in range(1, 31)]
    assert bank.steps.table("r", ["step", "task"]).to_pydict() == {
        "step": list(range(1, 31)),
        "task": [f"t{step}" for step in range(1, 31)],
    }


def test_a_run_without_steps_has_empty_tables(bank: MemoryBank) -> None:
    assert bank.traces("r") == []
    assert bank.steps.table("r", ["step"]).num_rows == 0
    with pytest.raises(UnknownRun):
        bank.steps.table("nobody", ["step"])


def test_steps_that_are_held_back_are_in_the_table(bank: MemoryBank) -> None:
    with bank.write.batch(10):
        for step in (1, 2):
            bank.write.commit_step(*a_step(step))
        assert bank.steps.table("r", ["step"])["step"].to_pylist() == [1, 2]


def test_a_step_that_another_process_ends_between_two_looks_does_not_break_a_view(tmp_path: Path) -> None:
    writer = a_bank(tmp_path / "bank")
    writer.write.commit_step(*a_step(1))
    reader = MemoryBank.open(str(tmp_path / "bank"))
    assert reader.embedding("r-0001").size
    writer.write.commit_step(*a_step(2, ("r-0001",)))
    assert reader.view("r").size == len(reader.utilities("r"))
    reader.refresh()
    assert dict(reader.utilities("r")) == dict(writer.utilities("r"))
