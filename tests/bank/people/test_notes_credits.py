"""Notes beside the facts, and single memories' own rewards: in the ledger, after reopening, and undone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from tests.analysis.eventful import believed_by_definition
from tests.builders import a_bank, a_step


def _learned(path: Path) -> MemoryBank:
    """Steps 1 and 2 write; step 3 uses both with reward 1, step 4 with reward -1 (alpha 0.3)."""
    bank = a_bank(path)
    bank.write.commit_step(*a_step(1))
    bank.write.commit_step(*a_step(2))
    bank.write.commit_step(*a_step(3, ("r-0001", "r-0002"), 1.0))
    bank.write.commit_step(*a_step(4, ("r-0001", "r-0002"), -1.0))
    return bank


def _q(bank: MemoryBank) -> dict[str, float]:
    return {memory_id: utility.q for memory_id, utility in bank.utilities("r").items()}


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return _learned(tmp_path / "bank")


def test_a_note_stands_after_reopening_until_it_is_removed(tmp_path: Path) -> None:
    with _learned(tmp_path / "bank") as bank:
        place = {"page": "Inspect", "candidates": ["r-0001"], "weight": 0.25}
        kept = bank.write.notes.pin("r", 3, "  both were used \n", " ann ", ("r-0001",), **place)
        gone = bank.write.notes.pin("r", 4, "a slip", "")
        assert gone.rater == "someone"
        bank.write.notes.remove(gone.id, "bob")
    again = MemoryBank.open(str(tmp_path / "bank"))
    (note,) = again.notes.standing()
    assert note == kept
    assert (note.reason, note.rater, note.memory_ids, note.step) == ("both were used", "ann", ("r-0001",), 3)
    assert note.payload == place
    again.write.notes.remove(note.id, "ann")
    assert MemoryBank.open(str(tmp_path / "bank")).notes.standing() == []


def test_notes_are_listed_by_run_and_step_oldest_first(bank: MemoryBank) -> None:
    for step, text in ((3, "one"), (2, "two"), (3, "three")):
        bank.write.notes.pin("r", step, text, "ann")
    assert [n.reason for n in bank.notes.standing("r")] == ["one", "two", "three"]
    assert [n.reason for n in bank.notes.standing("r", 3)] == ["one", "three"]
    assert bank.notes.standing("r", 4) == []


def test_notes_move_nothing(bank: MemoryBank) -> None:
    before, past = _q(bank), dict(bank.utilities("r", 3))
    bank.write.notes.remove(bank.write.notes.pin("r", 3, "look", "ann", ("r-0001",)).id, "ann")
    bank.write.commit_step(*a_step(5, ()))
    assert {i: q for i, q in _q(bank).items() if i in before} == before
    assert dict(bank.utilities("r", 3)) == past


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 4001])
def test_a_note_without_words_or_with_too_many_is_refused(tmp_path: Path, text: str) -> None:
    bank = a_bank(tmp_path / "bank")
    with pytest.raises(InputError, match="1 to 4,000 characters"):
        bank.write.notes.pin("r", 1, text, "ann")
    assert bank.notes.standing() == []


def test_only_notes_can_be_removed_and_only_credits_revoked(bank: MemoryBank) -> None:
    facts = bank.facts
    reward = next(e for e in bank.events("r") if e.kind == "reward_given")
    for event_id in ("nothing", reward.id):
        with pytest.raises(InputError, match="That note"):
            bank.write.notes.remove(event_id, "ann")
        with pytest.raises(InputError, match="That credit"):
            bank.write.credits.revoke(event_id, "ann")
    assert bank.facts == facts


def test_own_rewards_move_each_memory_by_itself_and_revoking_restores_every_bit(tmp_path: Path) -> None:
    bank = _learned(tmp_path / "bank")
    before = _q(bank)
    assert before["r-0001"] == before["r-0002"] == pytest.approx(0.3 + 0.3 * (-1 - 0.3))
    step_id = bank.trace("r", 3).id
    credit = bank.write.credits.assign("r", 3, step_id, {"r-0001": 0.5}, "ann", "leave-one-out")
    assert bank.credits.standing("r", 3) == credit
    after = _q(bank)
    assert after["r-0001"] == pytest.approx(0.15 + 0.3 * (-1 - 0.15))
    assert after["r-0002"] == before["r-0002"]
    assert dict(bank.utilities("r", 3))["r-0001"].q == pytest.approx(0.3), "it was not known at step 3"
    again = MemoryBank.open(str(tmp_path / "bank"))
    assert _q(again) == after
    again.write.credits.revoke(credit.id, "bob")
    bank.refresh()
    assert _q(again) == _q(bank) == before
    assert again.credits.standing("r", 3) is None


def test_a_memory_without_credit_stays_where_it_was_in_that_step_and_only_there(bank: MemoryBank) -> None:
    before, step_id = _q(bank), bank.trace("r", 3).id
    credit = bank.write.credits.assign("r", 3, step_id, {"r-0001": None}, "ann", "not its fault")
    assert [point.step for point in bank.history("r", "r-0001") if point.step == 3] == []
    after = _q(bank)
    assert after["r-0001"] != before["r-0001"] and after["r-0002"] == before["r-0002"]
    bank.write.credits.revoke(credit.id, "ann")
    assert _q(bank) == before


def test_the_latest_credit_that_stands_counts(bank: MemoryBank) -> None:
    step_id = bank.trace("r", 4).id
    first = bank.write.credits.assign("r", 4, step_id, {"r-0001": 1.0, "r-0002": 0.0}, "ann", "")
    with_first = _q(bank)
    second = bank.write.credits.assign("r", 4, step_id, {"r-0001": -0.5}, "bob", "")
    assert bank.credits.standing("r", 4) == second
    assert {i: (pytest.approx(q), n) for i, (q, n) in believed_by_definition(bank, "r").items()} == {
        i: (u.q, u.visits) for i, u in bank.utilities("r").items()
    }
    bank.write.credits.revoke(second.id, "ann")
    assert bank.credits.standing("r", 4) == first
    assert _q(bank) == with_first


def test_only_memories_of_the_prompt_get_a_reward_of_their_own(bank: MemoryBank) -> None:
    facts = bank.facts
    with pytest.raises(InputError, match="“r-0003”"):
        bank.write.credits.assign("r", 3, bank.trace("r", 3).id, {"r-0001": 0.5, "r-0003": 0.5}, "ann", "")
    assert bank.facts == facts


@pytest.mark.parametrize("reward", [math.nan, math.inf, 10.5, -11.0])
def test_an_own_reward_that_no_run_could_give_is_refused(bank: MemoryBank, reward: float) -> None:
    before = _q(bank)
    with pytest.raises(InputError, match="scale"):
        bank.write.credits.assign("r", 3, bank.trace("r", 3).id, {"r-0001": reward}, "ann", "")
    assert _q(bank) == before
