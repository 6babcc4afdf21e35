"""The crash harness: a few of its rounds, and that it sees what it is there to see."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.builders import a_bank, a_step
from tests.crash import crash
from tests.crash.crash import KINDS, crash_rounds
from tests.crash.whole import Rows, acknowledged_by, believed_by, faults
from tests.crash.work import stored_by
from tests.small_banks import give_reward

LONG_ENOUGH = 3.0
BROKEN = """
from memrl_core.bank.storage.database import Database
from memrl_core.bank.storage.vectors import LanceVectors
from tests.crash import work
insert, append = Database.insert, LanceVectors.append
def late(database, table, rows):
    if table.name != "steps":
        insert(database, table, rows)
def twice(vectors, rows):
    append(vectors, rows)
    append(vectors, rows)
{body}
work.main()
"""
LATE = "Database.insert = late"
TWICE = "LanceVectors.append = twice"


def _program(tmp_path: Path, body: str) -> tuple[str, ...]:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN.format(body=body))
    return sys.executable, str(script)


@pytest.mark.slow
def test_one_round_of_each_kind_finds_the_bank_whole(tmp_path: Path) -> None:
    rounds = crash_rounds(len(KINDS), 3, tmp_path)
    assert [one.kind for one in rounds] == list(KINDS)
    assert [fault for one in rounds for fault in one.faults] == []


@pytest.mark.slow
@pytest.mark.parametrize(("body", "message"), [(LATE, "lost"), (TWICE, "than once")], ids=["late", "twice"])
def test_a_store_that_acknowledges_what_is_not_there_once_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.setattr(crash, "drawn", lambda kind, number, seed: (LONG_ENOUGH, 0))
    (one,) = crash_rounds(1, 3, tmp_path, _program(tmp_path, body))
    assert one.acknowledged > 0
    assert any(message in fault for fault in one.faults)


def test_the_reference_believes_what_the_bank_believes(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    reported = []
    for step in range(1, 6):
        trace, vectors = a_step(step, tuple(bank.utilities("r"))[:2], float(step % 2))
        reported.append(stored_by([bank.write.commit_step(trace, vectors)]))
    given = give_reward(bank, "r", 3, bank.trace("r", 3).id, bank.credits.of("r", 3), -1.0, "ann")
    give_reward(bank, "r", 4, bank.trace("r", 4).id, bank.credits.of("r", 4), 0.5, "bo")
    give_reward(bank, "r", 4, bank.trace("r", 4).id, bank.credits.of("r", 4), -0.5, "ann")
    bank.write.ratings.revoke(given.id, "ann")
    give_reward(bank, "r", 6, "never ended", ("r-0001",), 1.0, "ann")
    rows = Rows.of(bank.uri)
    assert faults(bank, rows, acknowledged_by(reported)) == []
    assert rows.unfinished("r") == [6]
    assert believed_by(rows.events, rows.facts["steps"])["r"]["r-0001"][1] == 4
