"""The doctor's look at a bank: every damage is found, named and given a remedy; what is derived is written anew."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import lancedb
import pytest
from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, Text

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check, rebuild
from memrl_core.bank.storage import schema
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.errors import BankDamaged, BankError, BankTooNew
from tests.builders import a_bank, a_chain, a_run, a_step, an_agent_after, numbers
from tests.small_banks import give_reward


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
        ("UPDATE runs SET info = json_set(info, '$.extra', hex(zeroblob(99)))", "runs", "run r"),
        ("UPDATE runs SET info = json_set(info, '$.settings.extra', 1)", "runs", "run r"),
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


# --- everything in bank.db --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank with rows in every table: steps with candidates, a fork, a person's reward, two maps."""
    path = tmp_path_factory.mktemp("everything") / "bank"
    with an_agent_after(path, 6).bank as bank:
        bank.write.start_run(a_run("fork", base="r", base_step=4))
        give_reward(bank, "r", 6, bank.trace("r", 6).id, bank.credits.of("r", 6), -1.0, "ann", "too slow")
        ids = bank.memory_ids()
        bank.write.layouts.save("umap", {ids[0]: (0.0, 0.5)})
        newest = bank.write.layouts.save("umap", {memory_id: (float(n), 0.5) for n, memory_id in enumerate(ids[:-1])})
        bank.write.layouts.add(newest, {ids[-1]: (0.25, -0.25)})
    return path


@pytest.fixture
def everything(of_everything: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_everything, tmp_path / "bank"))


COLUMNS = [column for table in schema.metadata.sorted_tables for column in table.c]
OTHER = {
    Boolean: "1 - coalesce({0}, 0)",
    Integer: "coalesce({0}, 0) + 1000",
    Float: "coalesce({0}, 0.0) + 0.0625",
    Text: "coalesce({0}, '') || 'x'",
    LargeBinary: "zeroblob(32)",
}
"""Another value of a column, by its type."""


@pytest.mark.parametrize("end", ["ASC", "DESC"])
@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_a_change_of_any_column_is_reported(everything: Path, column: Column[object], end: str) -> None:
    other = next(made for kind, made in OTHER.items() if isinstance(column.type, kind)).format(column.name)
    if end == "ASC" and column.name == "position":
        other = "-1"  # The one after it has the next number.
    keys = ", ".join(key.name for key in column.table.primary_key)
    order = ", ".join(f"{key.name} {end}" for key in column.table.primary_key)
    one = f"({keys}) IN (SELECT {keys} FROM {column.table.name} ORDER BY {order} LIMIT 1)"
    changed(everything, f"UPDATE {column.table.name} SET {column.name} = {other} WHERE {one}")
    assert problems(everything)


@pytest.mark.parametrize("key", ["format", "embedder", "dimension", "embedder_digest", "embedder_version",
                                 "embedders_before", "created", "layouts", "points", "digest"])  # fmt: skip
@pytest.mark.parametrize("change", ["UPDATE meta SET value = '1' || value", "DELETE FROM meta"])
def test_a_bank_whose_description_was_changed_is_not_opened(everything: Path, key: str, change: str) -> None:
    changed(everything, f"{change} WHERE key = '{key}'")
    assert "opens" in problems(everything)
    with pytest.raises((BankDamaged, BankTooNew)):
        MemoryBank.open(str(everything))


@pytest.mark.parametrize("number", ["-3", "0", "1", "2.0", "two", ""])
def test_a_format_that_never_was_is_no_banks(everything: Path, number: str) -> None:
    changed(everything, f"UPDATE meta SET value = '{number}' WHERE key = 'format'")
    assert "opens" in problems(everything)
    changed(everything, "DELETE FROM meta WHERE key IN ('digest', 'layouts', 'points')")
    assert ("opens" in problems(everything)) == (number != "2")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE points SET x = x + 0.001 WHERE position = 2",
        "UPDATE points SET y = 9e999 WHERE position = 3",
        "UPDATE points SET x = 'left' WHERE position = 3",
        "UPDATE points SET fitted = 2 WHERE position = 3",
        "DELETE FROM points WHERE position = (SELECT max(position) FROM points)",
        "DELETE FROM points",
        "DELETE FROM layouts WHERE position = 1",
        "DELETE FROM layouts",
        "INSERT INTO points (layout, memory_id, x, y, fitted) SELECT id, 'nobody', 0, 0, 0 FROM layouts",
        "INSERT INTO points (layout, memory_id, x, y, fitted) SELECT 'none', memory_id, 0, 0, 0 FROM q_values",
    ],
)
def test_a_map_that_is_not_as_it_was_written_is_reported(everything: Path, statement: str) -> None:
    changed(everything, statement)
    assert "maps" in problems(everything)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("DELETE FROM candidates WHERE position = (SELECT max(position) FROM candidates)", "steps"),
        ("UPDATE candidates SET selected = 2 WHERE position = 1", "steps"),
        ("INSERT INTO candidates (run, step, memory_id, selected) VALUES ('nowhere', 1, 'm', 0)", "steps"),
        ("INSERT INTO candidates (run, step, memory_id, selected) VALUES ('r', 99, 'm', 0)", "steps"),
        ("DELETE FROM ledger WHERE position = 3", "database"),
        ("UPDATE steps SET position = position + 100 WHERE step >= 4", "database"),
        ("INSERT INTO q_values SELECT 'nowhere', memory_id, q, visits, place, away, pinned, inherited, origin_step,"
         " replaced, begun_anew FROM q_values WHERE run = 'r'", "utilities"),
        ("UPDATE q_moves SET event = (SELECT id FROM ledger WHERE kind = 'run_started') WHERE run = 'r'"
         " AND number = 0", "utilities"),
    ],
)  # fmt: skip
def test_rows_that_belong_to_nothing_or_are_gone_are_reported(everything: Path, statement: str, name: str) -> None:
    changed(everything, statement)
    assert name in problems(everything)


def test_vectors_of_another_dimension_than_described_are_reported(everything: Path) -> None:
    changed(
        everything,
        "DELETE FROM meta WHERE key IN ('digest', 'layouts', 'points')",
        "UPDATE meta SET value = '512' WHERE key = 'dimension'",
    )
    assert "512" in problems(everything)["memories"]
    with pytest.raises(BankDamaged, match="512"):
        MemoryBank.open(str(everything))


def test_a_bank_of_an_earlier_version_is_whole_and_gets_its_checksums_with_the_next_write(everything: Path) -> None:
    changed(everything, "DELETE FROM meta WHERE key IN ('digest', 'layouts', 'points')")
    assert problems(everything) == {}
    changed(everything, "UPDATE meta SET value = 'hashing-1025' WHERE key = 'embedder'")
    assert "hashing-1025" not in problems(everything)["steps"] and "embedder" in problems(everything)["steps"]
    changed(everything, "UPDATE meta SET value = 'hashing-1024' WHERE key = 'embedder'")
    with MemoryBank.open(str(everything)) as bank:
        bank.write.start_run(a_run("later"))
    assert problems(everything) == {}
    changed(everything, "UPDATE meta SET value = 'hashing-1025' WHERE key = 'embedder'")
    assert "hashing-1025" in problems(everything)["opens"]


def test_places_that_an_earlier_version_added_are_no_fault(everything: Path) -> None:
    changed(
        everything,
        "INSERT INTO points (layout, memory_id, x, y, fitted) SELECT layout, memory_id, x, y, 0 FROM points LIMIT 1",
    )
    assert problems(everything) == {}
    with MemoryBank.open(str(everything)) as bank:
        newest = bank.layouts.newest()
        assert newest is not None
        bank.write.layouts.add(newest, {bank.memory_ids()[0]: (1.0, 1.0)})
    assert problems(everything) == {}
    changed(everything, "UPDATE points SET x = x + 1 WHERE position = (SELECT max(position) FROM points)")
    assert "maps" in problems(everything)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TABLE extra (a, CHECK (length(zeroblob(a)) > 0))", "table extra"),
        ("ALTER TABLE steps ADD COLUMN note TEXT", "table steps"),
        ("ALTER TABLE q_values ADD COLUMN h INTEGER AS (length(hex(zeroblob(q)))) VIRTUAL", "table q_values"),
        ("ALTER TABLE points DROP COLUMN fitted", "table points"),
        ("DROP TABLE layouts", "table layouts"),
        ("DROP INDEX q_moves_by_step", "index q_moves_by_step"),
        ("CREATE INDEX extra ON ledger (hex(payload))", "index extra"),
        ("CREATE UNIQUE INDEX extra ON ledger (seq)", "index extra"),
        ("CREATE VIEW extra AS SELECT * FROM ledger", "view extra"),
        ("CREATE TRIGGER extra AFTER INSERT ON steps BEGIN DELETE FROM steps; END", "trigger extra"),
        ("CREATE VIRTUAL TABLE extra USING fts5(a)", "table extra"),
        ("ANALYZE", "table sqlite_stat1"),
        ("PRAGMA user_version = 7", "user_version 7"),
        ("PRAGMA application_id = 252006674", "application_id 252006674"),
    ],
)
def test_a_schema_that_is_not_that_of_a_bank_is_named_before_any_row_is_read(
    bank: Path, statement: str, named: str
) -> None:
    changed(bank, statement)
    assert named in problems(bank)["schema"]
    assert not {"steps", "ledger", "database"} & {finding.name for finding in check(str(bank))}


def test_a_view_in_the_place_of_the_description_is_not_read(bank: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS key, i AS value FROM n"
    changed(bank, "DROP TABLE meta", f"CREATE VIEW meta AS {endless}")
    assert "its description" in problems(bank)["opens"]
    with pytest.raises(BankDamaged):
        MemoryBank.open(str(bank))


def test_a_schema_in_other_spaces_and_quotes_is_that_of_a_bank(bank: Path) -> None:
    with sqlite3.connect(bank / "bank.db") as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            """UPDATE sqlite_master SET sql = replace(replace(sql, 'run TEXT', '"run" TEXT'), '\t', '  ')"""
        )
    assert problems(bank) == {}


# --- what was stored last ---------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from memrl_core.bank import MemoryBank
from tests.builders import a_chain
from tests.small_banks import give_reward
bank = a_chain(sys.argv[1], 3)
for value in (1.0, 0.5, 0.0, -1.0):
    give_reward(bank, "r", 3, bank.trace("r", 3).id, (), value, "ann")
os._exit(9)
"""


@pytest.fixture(scope="module")
def of_a_killed_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of 3 steps and 11 events, the last 4 of them rewards, whose process was killed: its log holds them."""
    path = tmp_path_factory.mktemp("killed") / "bank"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    return path


@pytest.fixture
def killed(of_a_killed_process: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_a_killed_process, tmp_path / "killed"))


def cut_to(events: int, path: Path) -> None:
    """Cut the log of a bank so that so many events are left."""
    log, whole = path / "bank.db-wal", (path / "bank.db-wal").read_bytes()
    for size in range(len(whole), 0, -(4096 + 24)):
        log.write_bytes(whole[:size])
        (path / "bank.db-shm").unlink(missing_ok=True)
        copy = Path(shutil.copytree(path, path.with_name("look"), dirs_exist_ok=True))
        with sqlite3.connect(copy / "bank.db") as database:
            left = database.execute("SELECT count(*) FROM ledger").fetchone()[0]
        database.close()
        shutil.rmtree(copy)
        if left == events:
            return
    raise AssertionError


def test_after_a_kill_nothing_is_missing(killed: Path) -> None:
    assert (killed / "bank.db-wal").stat().st_size > 0
    assert problems(killed) == {}
    with MemoryBank.open(str(killed)) as bank:
        assert bank.missing == "" and len(bank.events("r")) == 11
        bank.write.commit_step(*a_step(4))
    assert not (killed / "bank.db-wal").exists()
    assert problems(killed) == {}


def test_a_copy_with_its_log_and_without_the_mark_is_whole_each_time_it_is_opened(killed: Path) -> None:
    (killed / "bank.db-last").unlink()
    for _ in range(2):
        assert problems(killed) == {}
        with MemoryBank.open(str(killed)) as bank:
            assert bank.missing == "" and len(bank.events("r")) == 11


def test_a_place_that_cannot_be_written_is_read_with_its_log(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert problems(killed) == {}
    with MemoryBank.open(str(killed)) as bank:
        assert len(bank.events("r")) == 11


@pytest.mark.parametrize("left", [10, 9, 8])
def test_a_log_that_was_cut_is_missed_with_as_many_events(killed: Path, left: int) -> None:
    cut_to(left, killed)
    assert numbers(problems(killed)["newest"])[0] == str(11 - left)
    with MemoryBank.open(str(killed)) as bank:
        assert numbers(bank.missing)[0] == str(11 - left)


def test_a_flipped_bit_in_the_log_is_missed(killed: Path) -> None:
    data = bytearray((killed / "bank.db-wal").read_bytes())
    data[-100] ^= 4
    (killed / "bank.db-wal").write_bytes(data)
    assert set(problems(killed)) == {"newest"}


def test_what_is_missing_stays_known_after_more_was_stored_until_it_is_given_up(killed: Path) -> None:
    cut_to(9, killed)
    with MemoryBank.open(str(killed)) as bank:
        for _ in range(4):
            give_reward(bank, "r", 3, bank.trace("r", 3).id, (), 1.0, "bob")
    assert set(problems(killed)) == {"newest"}
    assert rebuild(str(killed)) == 1
    assert problems(killed) == {}
    with MemoryBank.open(str(killed)) as bank:
        give_reward(bank, "r", 3, bank.trace("r", 3).id, (), 0.5, "bob")
    assert problems(killed) == {}


def test_a_log_that_was_removed_is_missed(killed: Path) -> None:
    (killed / "bank.db-wal").unlink()
    (killed / "bank.db-shm").unlink(missing_ok=True)
    assert "newest" in problems(killed)


def test_a_copy_of_the_database_without_its_log_is_reported_and_stays_so(killed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(killed / "bank.db", copy)
    shutil.copytree(killed / "vectors", copy / "vectors")
    assert "newest" in problems(copy)
    with MemoryBank.open(str(copy)) as bank:
        assert bank.missing
        bank.write.start_run(a_run("later"))
    assert "newest" in problems(copy)


def test_copies_that_are_whole_miss_nothing(killed: Path, tmp_path: Path) -> None:
    with MemoryBank.open(str(killed)) as bank:
        give_reward(bank, "r", 3, bank.trace("r", 3).id, (), 1.0, "bob")
        copy_bank(killed, tmp_path / "copied")
        shutil.copytree(killed, tmp_path / "whole folder")
    assert problems(tmp_path / "copied") == {} == problems(tmp_path / "whole folder")
    (tmp_path / "closed").mkdir()
    shutil.copy(killed / "bank.db", tmp_path / "closed")
    shutil.copytree(killed / "vectors", tmp_path / "closed" / "vectors")
    assert problems(tmp_path / "closed") == {}


def test_of_several_writers_each_leaves_a_file_that_tells_whether_it_is_in_use(bank: Path, tmp_path: Path) -> None:
    def copied(name: str) -> Path:
        (tmp_path / name).mkdir()
        shutil.copy(bank / "bank.db", tmp_path / name)
        shutil.copytree(bank / "vectors", tmp_path / name / "vectors")
        return tmp_path / name

    def rate(opened: MemoryBank, person: str) -> None:
        give_reward(opened, "r", 3, opened.trace("r", 3).id, (), 1.0, person)

    one, two = MemoryBank.open(str(bank)), MemoryBank.open(str(bank))
    rate(one, "ann")
    rate(two, "bob")
    one.close()
    rate(two, "cid")
    assert "newest" in problems(copied("in use"))
    assert problems(bank) == {}
    two.close()
    assert problems(copied("closed")) == {} == problems(bank)


def test_steps_that_never_ended_are_counted_and_do_no_harm(bank: Path) -> None:
    made = a_bank(bank.with_name("open"))
    made.write.begin_step("r", 1)
    give_reward(made, "r", 1, "an-attempt", (), 1.0, "ann")
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


def test_moves_that_came_with_a_base_follow_although_steps_have_the_same_numbers(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in (1, 2):
        bank.write.commit_step(*a_step(step, ("r-0001",) if step == 2 else ()))
    bank.write.start_run(a_run("fork", base="r", base_step=2))
    for step in (1, 2):
        bank.write.commit_step(*a_step(step, ("r-0001",), run="fork"))
    bank.close()
    assert all(finding.ok for finding in check(str(tmp_path / "bank")))
