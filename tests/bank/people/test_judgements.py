"""Labels of recall: facts beside the rewards, each rater's newest stands, undone without limit, and no q moves."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.people.judgements import Label, Use
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import JUDGED, REWARDS
from memrl_core.bank.storage.schema import VIEW
from memrl_core.errors import InputError, NotAllowed
from memrl_core.records import EventKind
from tests.builders import a_bank, a_step


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    """Three steps, each of which used the memory before it."""
    made = a_bank(tmp_path / "bank")
    for step in (1, 2, 3):
        made.write.commit_step(*a_step(step, tuple(f"r-{n:04d}" for n in range(max(1, step - 1), step)), 1.0))
    return made


def rows(bank: MemoryBank) -> list[tuple[object, ...]]:
    with sqlite3.connect(Path(bank.uri) / "bank.db") as connection:
        return connection.execute(f"SELECT run, step, memory_id, grade, rater, source FROM {VIEW}").fetchall()


def test_a_label_is_an_event_and_a_row_of_the_view_and_moves_no_q(bank: MemoryBank) -> None:
    before = bank.utilities("r")
    bank.write.judgements.judge(Label("r", 3, "r-0001", 2, "ann", reason="the same kind"))
    bank.write.judgements.judge(Label("r", 2, "", 0, "ann"))
    kinds = [event.kind for event in bank.events("r") if event.kind in JUDGED]
    assert kinds == [EventKind.MEMORY_JUDGED, EventKind.QUERY_JUDGED]
    assert rows(bank) == [("r", 3, "r-0001", 2, "ann", "person"), ("r", 2, None, 0, "ann", "person")]
    assert bank.utilities("r") == before
    assert all(finding.ok for finding in check(bank.uri))


def test_the_newest_label_of_each_rater_and_source_stands(bank: MemoryBank) -> None:
    for grade, rater, source in (
        (3, "ann", "person"), (0, "bo", "person"), (1, "ann", "person"), (2, "household", "derived"), (3, "m", "judge"),
        (None, "m", "judge"),
    ):  # fmt: skip
        bank.write.judgements.judge(Label("r", 3, "r-0001", grade, rater, source))  # type: ignore[arg-type]
    found = {(label.rater, label.source): label.grade for label in bank.judgements.standing("r")}
    assert found == {("bo", "person"): 0, ("ann", "person"): 1, ("household", "derived"): 2}
    assert {(row[4], row[5]): row[3] for row in rows(bank)} == found
    assert bank.judgements.standing("r", 2) == []


def test_the_same_label_again_changes_nothing(bank: MemoryBank) -> None:
    first = bank.write.judgements.judge(Label("r", 3, "r-0001", 2, "ann"))
    assert bank.write.judgements.judge(Label("r", 3, "r-0001", 2, "ann")) == first
    assert len([event for event in bank.events("r") if event.kind in JUDGED]) == 1


def test_undo_brings_back_the_label_of_before_and_redo_the_later_one(bank: MemoryBank) -> None:
    bank.write.judgements.judge(Label("r", 3, "r-0001", 2, "ann", reason="first"))
    bank.write.judgements.judge(Label("r", 3, "r-0001", 0, "ann"))
    bank.write.judgements.judge_all([Label("r", 3, "r-0002", 1, "ann"), Label("r", 2, "", 1, "ann")])
    assert bank.undo.done("ann", REWARDS) == []

    def stands() -> dict[tuple[int, str], tuple[int | None, str]]:
        return {(one.step, one.memory_id): (one.grade, one.reason) for one in bank.judgements.standing("r")}

    assert len(stands()) == 3
    bank.write.undo.undo("ann", JUDGED)
    assert stands() == {(3, "r-0001"): (0, "")}
    bank.write.undo.undo("ann", JUDGED)
    assert stands() == {(3, "r-0001"): (2, "first")}
    bank.write.undo.undo("ann", JUDGED)
    assert stands() == {} and rows(bank) == []
    for _ in range(3):
        bank.write.undo.redo("ann", JUDGED)
    assert stands() == {(3, "r-0001"): (0, ""), (3, "r-0002"): (1, ""), (2, ""): (1, "")}


def test_two_handles_label_at_once_and_both_labels_stand(bank: MemoryBank) -> None:
    with MemoryBank.open(bank.uri) as other:
        bank.write.judgements.judge(Label("r", 3, "r-0001", 2, "ann"))
        other.write.judgements.judge(Label("r", 3, "r-0001", 0, "bo"))
        bank.refresh()
        assert {label.rater: label.grade for label in bank.judgements.standing("r", 3)} == {"ann": 2, "bo": 0}


@pytest.mark.parametrize(
    "label",
    [
        Label("r", 9, "r-0001", 1, "ann"),
        Label("r", 3, "gone", 1, "ann"),
        Label("r", 3, "r-0001", 4, "ann"),
        Label("r", 3, "r-0001", -1, "ann"),
        Label("r", 3, "", 2, "ann"),
        Label("r", 3, "r-0001", 1, "ann", reason="x" * 2001),
        Label("r", 3, "r-0001", 1, "ann", "guess"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_label_is_refused_and_nothing_is_saved(bank: MemoryBank, label: Label) -> None:
    with pytest.raises(InputError, match="Nothing was saved"):
        bank.write.judgements.judge_all([Label("r", 3, "r-0002", 1, "ann"), label])
    assert bank.judgements.standing("r") == []


def test_who_may_only_look_cannot_label(bank: MemoryBank) -> None:
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("bo", Role.LOOK, "ann")
    with pytest.raises(NotAllowed):
        bank.write.judgements.judge(Label("r", 3, "r-0001", 1, "bo"))


def test_a_bank_of_before_gets_the_view_with_its_first_label(bank: MemoryBank) -> None:
    bank.close()
    with sqlite3.connect(Path(bank.uri) / "bank.db") as connection:
        connection.execute(f"DROP VIEW {VIEW}")
    assert all(finding.ok for finding in check(bank.uri))
    with MemoryBank.open(bank.uri) as again:
        assert again.judgements.standing() == []
        again.write.judgements.judge(Label("r", 3, "r-0001", 1, "ann"))
        assert len(rows(again)) == 1
    assert all(finding.ok for finding in check(bank.uri))


def test_what_an_answer_made_of_a_memory_is_said_apart_from_labels_and_undone_with_them(bank: MemoryBank) -> None:
    before = bank.utilities("r")
    bank.write.judgements.judge(Label("r", 3, "r-0001", 2, "ann"))
    bank.write.judgements.judge_use(Use("r", 3, "r-0001", "ignored", "ann", "never read"))
    bank.write.judgements.judge_use(Use("r", 3, "r-0001", "contradicted", "ann"))
    bank.write.judgements.judge_use(Use("r", 3, "r-0001", "used", "bo"))
    assert {use.rater: use.used for use in bank.judgements.uses("r", 3)} == {"ann": "contradicted", "bo": "used"}
    assert len(bank.judgements.standing()) == len(rows(bank)) == 1 and bank.utilities("r") == before
    bank.write.undo.undo("ann", JUDGED)
    (mine,) = [use for use in bank.judgements.uses() if use.rater == "ann"]
    assert (mine.used, mine.reason) == ("ignored", "never read")
    bank.write.judgements.judge_use(Use("r", 3, "r-0001", None, "ann"))
    assert [use.rater for use in bank.judgements.uses("r")] == ["bo"]
    for wrong in (
        Use("r", 9, "r-0001", "used", "a"),
        Use("r", 3, "gone", "used", "a"),
        Use("r", 3, "r-0001", "x", "a"),
    ):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="Nothing was saved"):
            bank.write.judgements.judge_use(wrong)
    assert all(finding.ok for finding in check(bank.uri))
