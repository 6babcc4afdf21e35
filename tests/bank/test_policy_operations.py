"""Operations of a policy on memories that are there: q goes on, people's word stands, and every reader copes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.analysis.people.audit import audit, reconstruct
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import BankFull, InputError, PolicyFailed
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.records import EventKind, MemoryOperation, StepTrace, Utility, WriteRecord
from tests.builders import DIMENSION, a_bank, a_run, a_step, a_vector
from tests.oracles.operations import Rewriting

ALPHA = 0.5
EMBEDDER = HashingEmbedder(DIMENSION)
ONE, TWO, THREE, FOUR = (f"r-{n:04d}" for n in range(1, 5))


def an_operation(op: str, memory_id: str = "", replaces: Sequence[str] = (), **values: Any) -> MemoryOperation:
    reported = {"intent": f"intent of {memory_id}", "experience": f"text of {memory_id}", "why": f"to {op.lower()}"}
    made = MemoryOperation("ADD", memory_id, outcome="success", intent_key=memory_id, q0=0.0, parents=(), **reported)
    return replace(made, **{"op": op, "replaces": tuple(replaces), **values})


def doing(
    step: int, *operations: MemoryOperation, credited: tuple[str, ...] = (), reward: float = 1.0, run: str = "r"
) -> tuple[StepTrace, dict[str, np.ndarray]]:
    """A step that did these operations, with the vectors of what it wrote."""
    trace, _ = a_step(step, credited, reward, run)
    vectors = {op.memory_id: a_vector(step * 100 + n) for n, op in enumerate(operations) if op.memory_id}
    return replace(trace, write=WriteRecord(operations)), vectors


def updated(
    bank: MemoryBank, step: int, old: str, new: str, credited: tuple[str, ...] = (), reward: float = 1.0
) -> str:
    bank.write.commit_step(*doing(step, an_operation("UPDATE", new, [old]), credited=credited, reward=reward))
    return new


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    """Three steps; the second and the third used the first memory."""
    made = a_bank(tmp_path / "bank", alpha=ALPHA)
    with made.write.batch(3):
        for step in range(1, 4):
            made.write.commit_step(*a_step(step, (ONE,) if step > 1 else ()))
    return made


def both(bank: MemoryBank) -> tuple[MemoryBank, MemoryBank]:
    """The handle that made everything, and one that reads it."""
    return bank, MemoryBank.open(bank.uri)


# --- q goes on --------------------------------------------------------------------------------------------------------


def test_operations_of_one_step_are_done_in_their_order_however_many(bank: MemoryBank) -> None:
    names = [f"r-0004-{n}" for n in range(12)]
    chain = [an_operation("UPDATE", new, [old]) for old, new in zip([ONE, *names], names, strict=False)]
    bank.write.commit_step(*doing(4, *chain))
    for handle in both(bank):
        assert list(handle.utilities("r")) == [TWO, THREE, names[-1]]
        assert handle.utilities("r")[names[-1]] == Utility(0.75, 2)


def test_a_fork_rewrites_what_it_knows_and_its_base_keeps_it(bank: MemoryBank) -> None:
    bank.write.start_run(replace(a_run("fork", base="r", base_step=3, alpha=ALPHA), first_step=4))
    bank.write.commit_step(*doing(4, an_operation("UPDATE", "fork-0004", [ONE]), run="fork"))
    for handle in both(bank):
        assert list(handle.utilities("r")) == [ONE, TWO, THREE]
        assert handle.utilities("fork")["fork-0004"] == handle.utilities("r")[ONE]


def test_what_is_only_reworded_stays_of_its_task(bank: MemoryBank) -> None:
    same = bank.memory(ONE).intent
    bank.write.commit_step(*doing(4, an_operation("UPDATE", "r-0004", [ONE], intent=same)))
    updated(bank, 5, TWO, "r-0005")
    assert [bank.memory(i).task for i in ("r-0004", "r-0005")] == [bank.memory(ONE).task, "t5"]
    assert [bank.memory(i).step for i in ("r-0004", "r-0005")] == [4, 5]


HAPPENINGS = ["ADD", "ADD", "UPDATE", "UPDATE", "MERGE", "DELETE", "rate", "pin"]


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=9))
def test_any_sequence_of_operations_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[tuple[str, int, int]]
) -> None:
    bank, model = a_bank(tmp_path_factory.mktemp("b") / "bank", alpha=ALPHA), Rewriting(ALPHA)
    before: dict[int, Any] = {}
    for what, one, two in [("ADD", 0, 0), ("ADD", 0, 1), *happenings]:
        seen = list(model.now()[0])
        chosen = tuple(dict.fromkeys(seen[n % len(seen)] for n in (one, two))) if seen else ()
        if what == "rate":
            step, value = 1 + one % len(model.steps), 1.0 - two % 3
            bank.write.ratings.rate(Rating("r", step, value, "ann"))
            model.late[step] = value
        elif what == "pin" and chosen and chosen[0] not in model.now()[1]:
            bank.write.editing.pin("r", chosen[:1], "ann")
            model.pins.setdefault(len(model.steps), []).append(chosen[0])
        elif what in ("ADD", "UPDATE", "MERGE", "DELETE"):
            number = len(model.steps) + 1
            new = "" if what == "DELETE" else f"r-{number:04d}"
            olds = () if what == "ADD" else chosen
            if what in ("UPDATE", "MERGE") and not olds:
                continue
            before[number] = list(bank.utilities("r").items())
            bank.write.commit_step(*doing(number, an_operation(what, new, olds), credited=chosen, reward=1.0 - one))
            model.steps.append((chosen, 1.0 - one, ((what, new, olds),)))
    expected, pinned = model.now()
    for handle in both(bank):
        found = handle.utilities("r")
        assert list(found) == list(expected)
        assert [u.visits for u in found.values()] == [visits for _, visits in expected.values()]
        assert [u.q for u in found.values()] == pytest.approx([q for q, _ in expected.values()])
        assert handle.editing.pinned("r") == pinned
        for step, view in handle.walk("r"):
            assert [view.ids[i] for i in view.positions()] == list(handle.utilities("r", step - 1))
            assert list(handle.utilities("r", step - 1).items()) == before[step]


# --- people's word stands ---------------------------------------------------------------------------------------------


def test_a_pinned_memory_is_not_deleted_and_the_record_says_so(bank: MemoryBank) -> None:
    bank.write.editing.pin("r", [ONE], "ann")
    bank.write.commit_step(*doing(4, an_operation("DELETE", replaces=[ONE, TWO])))
    stored = bank.write.commit_step(*doing(5, an_operation("DELETE", replaces=[ONE])))
    for handle in both(bank):
        assert list(handle.utilities("r")) == [ONE, THREE]
        four, five = (handle.trace("r", step).write.operations[0] for step in (4, 5))
        assert four.replaces == (TWO,)
        assert (five.op, five.replaces) == ("NOOP", ()) and "pinned" in five.why
        assert handle.trace("r", 5) == stored


def test_a_pin_goes_on_with_what_took_the_place_and_can_be_undone_there(bank: MemoryBank) -> None:
    bank.write.editing.pin("r", [ONE], "ann")
    new = updated(bank, 5, updated(bank, 4, ONE, "r-0004"), "r-0005")
    assert bank.editing.pinned("r") == {new}
    bank.write.undo.undo("ann")
    assert bank.editing.pinned("r") == set()
    bank.write.undo.redo("ann")
    for handle in both(bank):
        assert handle.editing.pinned("r") == {new}


def test_undoing_one_pin_keeps_what_another_pin_is_in(bank: MemoryBank) -> None:
    bank.write.editing.pin("r", [TWO], "bo")
    bank.write.editing.pin("r", [ONE], "ann")
    bank.write.commit_step(*doing(4, an_operation("MERGE", "r-0004", [ONE, TWO])))
    bank.write.undo.undo("ann")
    assert bank.editing.pinned("r") == {"r-0004"}
    bank.write.undo.undo("bo")
    assert bank.editing.pinned("r") == set()


@pytest.mark.parametrize("op", ["UPDATE", "MERGE", "DELETE"])
def test_what_a_person_forgot_meanwhile_stays_forgotten(bank: MemoryBank, op: str) -> None:
    trace, vectors = doing(4, an_operation(op, "" if op == "DELETE" else "r-0004", [ONE]))
    bank.write.editing.forget("r", [ONE], "ann")
    stored = bank.write.commit_step(trace, vectors)
    assert stored.write.operations[0].op == "NOOP"
    for handle in both(bank):
        assert list(handle.utilities("r")) == [TWO, THREE]
        assert "r-0004" not in handle.memory_ids()


def test_what_a_person_reworded_meanwhile_is_not_rewritten_beside_it(bank: MemoryBank) -> None:
    trace, vectors = doing(4, an_operation("UPDATE", "r-0004", [ONE]), an_operation("ADD", "r-0004-2"))
    new = bank.write.editing.edit("r", ONE, bank.memory(ONE).intent, "better", EMBEDDER, "ann").id
    bank.write.commit_step(trace, vectors)
    assert list(bank.utilities("r")) == [TWO, THREE, new, "r-0004-2"]


def test_a_memory_is_replaced_once_in_a_step(bank: MemoryBank) -> None:
    bank.write.commit_step(*doing(4, *(an_operation("UPDATE", new, [ONE]) for new in ("r-0004", "r-0004-2"))))
    assert list(bank.utilities("r")) == [TWO, THREE, "r-0004"]


def test_the_stacks_of_people_hold_their_own_actions_only(bank: MemoryBank) -> None:
    bank.write.editing.edit("r", TWO, bank.memory(TWO).intent, "better", EMBEDDER, "ann")
    bank.write.editing.forget("r", [THREE], "ann")
    bank.write.undo.undo("ann")
    bank.write.commit_step(*doing(4, an_operation("UPDATE", "r-0004", [ONE]), an_operation("DELETE", replaces=[THREE])))
    for handle in both(bank):
        assert len(handle.undo.done("ann")) == len(handle.undo.undone("ann")) == 1
        assert handle.undo.done("the program") == []
    with pytest.raises(InputError, match="was changed since"):
        bank.write.undo.redo("ann")
    bank.write.undo.undo("ann")
    assert list(bank.utilities("r")) == [TWO, "r-0004"]


def test_an_edit_that_was_rewritten_since_cannot_be_undone_but_restored(bank: MemoryBank) -> None:
    worded = bank.write.editing.edit("r", ONE, bank.memory(ONE).intent, "better", EMBEDDER, "ann").id
    updated(bank, 4, worded, "r-0004")
    with pytest.raises(InputError, match="was changed since"):
        bank.write.undo.undo("ann")
    bank.write.editing.restore("r", [worded], "ann")
    assert list(bank.utilities("r")) == [TWO, THREE, worded]
    bank.write.undo.undo("ann")
    assert list(bank.utilities("r")) == [TWO, THREE, "r-0004"]


# --- what cannot be done ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        an_operation("ADD", ""),
        an_operation("ADD", ONE),
        an_operation("UPDATE", "r-0004"),
        an_operation("MERGE", "r-0004"),
        an_operation("UPDATE", ONE, [ONE]),
        an_operation("UPDATE", "r-0004", [ONE, "r-0004"]),
    ],
    ids=lambda op: f"{op.op} {op.memory_id} for {', '.join(op.replaces)}",
)
def test_an_operation_that_no_bank_could_fold_is_refused_and_nothing_is_stored(
    bank: MemoryBank, operation: MemoryOperation
) -> None:
    facts = bank.facts
    with pytest.raises(PolicyFailed, match="was not stored"):
        bank.write.commit_step(*doing(4, an_operation("ADD", "r-0004-9"), operation))
    assert bank.facts == facts
    bank.write.commit_step(*a_step(4))
    assert list(MemoryBank.open(bank.uri).utilities("r")) == [ONE, TWO, THREE, FOUR]


def test_a_memory_without_an_embedding_and_one_written_twice_are_refused(bank: MemoryBank) -> None:
    trace, vectors = doing(4, an_operation("UPDATE", "r-0004", [ONE]))
    with pytest.raises(PolicyFailed, match="without an embedding"):
        bank.write.commit_step(trace, {})
    with pytest.raises(PolicyFailed, match="id"):
        bank.write.commit_step(*doing(4, an_operation("ADD", "r-0004"), an_operation("ADD", "r-0004")))
    bank.write.commit_step(trace, vectors)


def test_a_failed_step_changes_nothing_and_can_be_repeated(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = bank._database.insert

    def full(table: Any, rows: Any) -> None:
        if table.name == "steps":
            raise BankFull("The disk is full.")
        insert(table, rows)

    monkeypatch.setattr(bank._database, "insert", full)
    step = doing(4, an_operation("UPDATE", "r-0004", [ONE]), an_operation("DELETE", replaces=[TWO]))
    with pytest.raises(BankFull):
        bank.write.commit_step(*step)
    for handle in both(bank):
        assert list(handle.utilities("r")) == [ONE, TWO, THREE]
    monkeypatch.setattr(bank._database, "insert", insert)
    bank.write.commit_step(*step)
    for handle in both(bank):
        assert list(handle.utilities("r")) == [THREE, "r-0004"]


# --- every reader -----------------------------------------------------------------------------------------------------


@pytest.fixture
def rewritten(bank: MemoryBank) -> MemoryBank:
    """Updated, merged and deleted by the policy, rated by a person."""
    updated(bank, 4, ONE, "r-0004", credited=(ONE, TWO))
    operations = [an_operation("MERGE", "r-0005", ["r-0004", TWO], data={"links": ["r-0004"]}), an_operation("NOOP")]
    bank.write.commit_step(*doing(5, *operations))
    bank.write.commit_step(*doing(6, an_operation("DELETE", replaces=[THREE]), an_operation("ADD", "r-0006")))
    bank.write.ratings.rate(Rating("r", 3, 0.0, "ann"))
    return bank


def test_what_became_of_a_memory_tells_what_the_policy_did(rewritten: MemoryBank) -> None:
    reported = rewritten.editing.changes("r", ONE)
    about = {ONE, TWO, "r-0004", "r-0005"}
    kinds = [EventKind.MEMORY_WRITTEN, EventKind.MEMORY_WRITTEN, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED]
    assert [event.kind for event in reported] == kinds
    assert {memory_id for event in reported for memory_id in event.memory_ids} == about
    assert [event.reason for event in reported[2:]] == ["to update", "to merge"]
    assert rewritten.editing.changes("r", THREE)[-1].kind is EventKind.MEMORY_FORGOTTEN


def test_the_audit_tells_what_the_policy_did_as_the_programs(rewritten: MemoryBank) -> None:
    rows = audit(rewritten, people_only=False, kind="memories")
    rows = [row for row in reversed(rows) if row["step"] > 3]
    assert [row["words"] for row in rows] == [
        "edited #1: now #4",
        "merged #4, #2 into #5",
        "forgot #3",
        "wrote #6 with q +0.000",
    ]
    assert {row["who"] for row in rows} == {"the program"}
    assert [row["words"] for row in audit(rewritten)] == ["gave +0.000 to step 3"]


def test_the_q_of_what_the_policy_replaced_and_of_what_took_its_place_is_followed_back(rewritten: MemoryBank) -> None:
    steps = {i: [move.step for move in reconstruct(rewritten, "r", i)] for i in (ONE, "r-0004", TWO, "r-0005")}
    assert steps == {ONE: [1, 2, 3, 4], "r-0004": [4], TWO: [2, 4], "r-0005": [5]}
    assert reconstruct(rewritten, "r", "r-0005")[-1].after == rewritten.utilities("r")["r-0005"].q


def test_an_archive_keeps_every_operation_and_what_followed(rewritten: MemoryBank, tmp_path: Path) -> None:
    write_bank(rewritten, tmp_path / "x.zip")
    contents = read_bank(tmp_path / "x.zip")
    bring_in(contents, str(tmp_path / "again"))
    again = MemoryBank.open(str(tmp_path / "again"))
    assert contents.account.faults == ()
    assert again.traces("r") == rewritten.traces("r")
    assert again.events() == rewritten.events()
    assert again.memories() == rewritten.memories()
    for step in (None, *range(7)):
        assert list(again.utilities("r", step).items()) == list(rewritten.utilities("r", step).items())
