"""The doctor's look at a bank: every damage is found, named and given a remedy; what is derived is written anew."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import lancedb
import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check, rebuild
from memrl_core.errors import BankDamaged, BankError
from tests.builders import a_bank, a_chain


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    a_chain(tmp_path / "bank", 5).close()
    return tmp_path / "bank"


def problems(path: Path) -> dict[str, str]:
    findings = check(str(path))
    assert all(finding.remedy for finding in findings if not finding.ok)
    return {finding.name: finding.sentence for finding in findings if not finding.ok}


def changed(path: Path, *statements: str) -> None:
    with sqlite3.connect(path / "bank.db") as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        for statement in (*statements, *(made for _, made in triggers)):
            database.execute(statement)


def test_a_whole_bank_has_nothing_amiss(bank: Path) -> None:
    assert problems(bank) == {}
    found = {finding.name: finding.sentence for finding in check(str(bank))}
    assert "5" in found["steps"] and "5" in found["memories"] and "11" in found["ledger"]


def test_nothing_at_the_place_is_said(tmp_path: Path) -> None:
    assert "no bank" in problems(tmp_path / "nothing")["opens"]


@pytest.mark.parametrize(
    ("statement", "name", "row"),
    [
        ("UPDATE steps SET outcome = 'failure' WHERE step = 3", "steps", "step 3 of run r"),
        ("UPDATE steps SET trace = replace(trace, 'did it', 'did If') WHERE step = 2", "steps", "step 2 of run r"),
        ("UPDATE steps SET embedding = zeroblob(32) WHERE step = 4", "steps", "step 4 of run r"),
        ("UPDATE ledger SET value = 0.5 WHERE step = 3 AND kind = 'reward_given'", "ledger", "environment of run r"),
        ("UPDATE ledger SET actor = 'ann' WHERE position = 1", "ledger", "of run r"),
        ("UPDATE runs SET info = replace(info, '\"memrl\"', '\"memento\"')", "runs", "run r"),
        ("UPDATE runs SET settings = replace(settings, 'k1', 'k7')", "runs", "run r"),
    ],
)
def test_a_row_that_is_not_as_it_was_written_is_named(bank: Path, statement: str, name: str, row: str) -> None:
    changed(bank, statement)
    assert row in problems(bank)[name]


@pytest.mark.parametrize("cell", ["experience = 'did iT'", "created = ''", "seq = 77"])
def test_a_memory_that_is_not_as_it_was_written_is_named(bank: Path, cell: str) -> None:
    column, value = cell.split(" = ")
    table = lancedb.connect(str(bank / "vectors")).open_table("memories")
    table.update(where="id = 'r-0003'", values_sql={column: value})
    assert "r-0003" in problems(bank)["memories"]


def test_a_memory_that_is_named_and_not_there_is_reported(bank: Path) -> None:
    lancedb.connect(str(bank / "vectors")).open_table("memories").delete("id = 'r-0002'")
    assert "r-0002" in problems(bank)["memories"]
    with MemoryBank.open(str(bank)) as opened, pytest.raises(BankDamaged, match="r-0002"):
        opened.view("r")


def test_what_is_derived_is_held_against_the_ledger_and_written_anew(bank: Path) -> None:
    before = dict(MemoryBank.open(str(bank)).utilities("r"))
    changed(
        bank,
        "UPDATE q_values SET q = 99 WHERE memory_id = 'r-0002'",
        "DELETE FROM q_moves WHERE memory_id = 'r-0003' AND number = 1",
        "UPDATE q_moves SET event = 'none' WHERE memory_id = 'r-0004' AND number = 0",
    )
    assert "r-0002 in run r, r-0003 in run r, r-0004" in problems(bank)["utilities"]
    assert rebuild(str(bank)) == 1
    assert problems(bank) == {}
    assert dict(MemoryBank.open(str(bank)).utilities("r")) == before


@pytest.mark.parametrize(
    "cell",
    [
        "q = 0.123", "visits = 7", "place = 99", "away = 1", "pinned = 1", "inherited = 1", "begun_anew = 1",
        "origin_step = 2, replaced = '[\"r-0001\"]'",
    ],
)  # fmt: skip
def test_every_column_of_a_memorys_q_is_held_against_the_ledger(bank: Path, cell: str) -> None:
    changed(bank, f"UPDATE q_values SET {cell} WHERE memory_id = 'r-0002'")
    assert "r-0002" in problems(bank)["utilities"]
    assert rebuild(str(bank)) == 1 and problems(bank) == {}


def test_steps_that_never_ended_are_counted_and_do_no_harm(bank: Path) -> None:
    made = a_bank(bank.with_name("open"))
    made.begin_step("r", 1)
    made.give_reward("r", 1, "an-attempt", (), 1.0, "ann")
    made.close()
    assert problems(bank.with_name("open")) == {}
    unfinished = next(one.sentence for one in check(str(bank.with_name("open"))) if one.name == "unfinished")
    assert "1" in unfinished


def test_garbled_files_are_reported_and_nothing_is_raised(bank: Path) -> None:
    data = (bank / "bank.db").read_bytes()
    (bank / "bank.db").write_bytes(data[: len(data) // 2])
    assert problems(bank)
    (bank / "bank.db").write_bytes(b"garbage" * 1000)
    assert "opens" in problems(bank)
    (bank / "bank.db").write_bytes(data)
    for file in (bank / "vectors" / "memories.lance" / "data").iterdir():
        file.write_bytes(b"garbage" * 10)
    assert "memories" in problems(bank)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_a_bit_that_flips_in_a_fact_is_reported_or_changes_nothing(bank: Path, seed: int) -> None:
    before = reported(bank)
    rng = random.Random(seed)
    files = [bank / "bank.db", *(bank / "vectors" / "memories.lance" / "data").iterdir()]
    file = rng.choice(files)
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    if not problems(bank):
        assert reported(bank) == before


def reported(path: Path) -> object:
    """Every fact of the bank, or why it cannot be read."""
    try:
        with MemoryBank.open(str(path)) as bank:
            vectors = [bank.embedding(memory.id).tobytes() for memory in bank.memories()]
            return bank.traces("r"), bank.events(), bank.memories(), vectors, bank.histories("r"), bank.utilities("r")
    except BankError as error:
        return str(error)
