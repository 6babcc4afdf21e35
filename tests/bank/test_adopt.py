"""Facts taken over from elsewhere, and being alone with a bank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.storage import connecting
from memrl_core.errors import BankError, BankFull, InputError
from tests.analysis.eventful import an_eventful_bank
from tests.builders import DIMENSION, a_bank, a_step
from tests.small_banks import give_reward


def _all(bank: MemoryBank) -> tuple[Any, ...]:
    """All facts of a bank, in the form in which another adopts them."""
    memories = {m.id: (m, bank.embedding(m.id)) for m in bank.memories()}
    return memories, bank.events(), [t for info in bank.runs() for t in bank.traces(info.id)]


def _rows(path: Path) -> dict[str, int]:
    bank = MemoryBank.open(str(path))
    return {
        "memories": bank._vectors.read(["id"]).num_rows,
        "steps": sum(len(bank.steps.rows(info.id)) for info in bank.runs()),
        "ledger": len(bank.events()),
    }


def _empty(path: Path) -> MemoryBank:
    return MemoryBank.create(str(path), "hashing-8", DIMENSION)


def test_adopted_runs_are_as_they_were_and_adopting_again_changes_nothing(tmp_path: Path) -> None:
    facts = _all(source := an_eventful_bank(tmp_path / "source", 3, 30))
    bank = _empty(tmp_path / "bank")
    bank.write.adopt(*facts)
    rows = _rows(tmp_path / "bank")
    known = bank.facts
    for copy in (bank, MemoryBank.open(str(tmp_path / "bank"))):
        copy.write.adopt(*facts)
        assert copy.facts == known
        assert _rows(tmp_path / "bank") == rows
        for info in source.runs():
            assert copy.run(info.id) == info
            assert dict(copy.utilities(info.id)) == dict(source.utilities(info.id))
            assert copy.traces(info.id) == source.traces(info.id)


def test_steps_adopted_into_a_run_that_is_known_move_its_q(tmp_path: Path) -> None:
    source = a_bank(tmp_path / "source")
    source.write.commit_step(*a_step(1))
    bank = _empty(tmp_path / "bank")
    bank.write.adopt(*_all(source))
    assert bank.utilities("r")["r-0001"].q == 0
    source.write.commit_step(*a_step(2, ("r-0001",), 1.0))
    give_reward(source, "r", 2, source.trace("r", 2).id, ("r-0001",), -1.0, "ann")
    bank.write.adopt(*_all(source))
    assert dict(bank.utilities("r")) == dict(source.utilities("r"))
    assert bank.history("r", "r-0001") == source.history("r", "r-0001")


def test_an_adoption_that_fails_at_the_ledger_shows_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = _all(an_eventful_bank(tmp_path / "source", 4, 20))
    bank = _empty(tmp_path / "bank")
    insert = bank._database.insert

    def full(table: Any, rows: Any) -> None:
        if table.name == "ledger":
            raise BankFull("The disk is full.")
        insert(table, rows)

    monkeypatch.setattr(bank._database, "insert", full)
    with pytest.raises(BankFull):
        bank.write.adopt(*facts)
    for copy in (bank, MemoryBank.open(str(tmp_path / "bank"))):
        assert copy.runs() == []
        assert copy.events() == []
    monkeypatch.undo()
    bank.write.adopt(*facts)
    whole = _empty(tmp_path / "whole")
    whole.write.adopt(*facts)
    assert _rows(tmp_path / "bank") == _rows(tmp_path / "whole")
    for info in whole.runs():
        assert dict(bank.utilities(info.id)) == dict(whole.utilities(info.id))


def test_a_vector_that_cannot_be_stored_stops_the_adoption_before_it_begins(tmp_path: Path) -> None:
    memories, events, traces = _all(an_eventful_bank(tmp_path / "source", 5, 20))
    last = list(memories)[-1]
    memories[last] = (memories[last][0], memories[last][1] * 2)
    bank = _empty(tmp_path / "bank")
    with pytest.raises(InputError):
        bank.write.adopt(memories, events, traces)
    assert set(_rows(tmp_path / "bank").values()) == {0}


_HOLDER = """
import sys
from memrl_core.bank import MemoryBank
with MemoryBank.open(sys.argv[1]).write.alone():
    print("alone", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_alone_keeps_another_process_out_until_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = a_bank(tmp_path / "bank")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path / "bank")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "alone\n"
        monkeypatch.setattr(connecting, "PATIENCE", 0.2)
        with pytest.raises(BankError, match="process"), bank.write.alone():
            pass
        holder.communicate("\n", timeout=20)
        with bank.write.alone(), bank.write.alone():
            bank.write.commit_step(*a_step(1))
    finally:
        holder.kill()
    assert bank.next_step("r") == 2


def test_a_failure_within_alone_lets_others_in_again(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    with pytest.raises(ZeroDivisionError), bank.write.alone():
        _ = 1 / 0
    with MemoryBank.open(str(tmp_path / "bank")).write.alone():
        pass
