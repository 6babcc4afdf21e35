"""The journal: few rows at a time wait in a file, everybody sees them, and they reach their tables once and whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from memrl_core.bank import MemoryBank, codec, journal, places, repair, store
from memrl_core.bank.integrity import check
from memrl_core.bank.journal import JOURNAL, JOURNALED, MOVING, Journal, parsed
from memrl_core.bank.places import copy_bank
from memrl_core.bank.store import Store
from memrl_core.errors import BankDamaged, BankError, BankFull, BankReadOnly
from tests.builders import DIMENSION, a_bank, a_run, a_step

ROOT = str(Path(__file__).resolve().parents[2])
STEPS = 4


def ids_in(uri: str) -> dict[str, Counter[str]]:
    """How often each id is in a table, as who opens the bank reads it."""
    made, _ = Store.open(uri)
    return {name: Counter(made.read(name, ["id"])["id"].to_pylist()) for name in JOURNALED}


def ids_in_tables(uri: str) -> dict[str, Counter[str]]:
    """The same as any other LanceDB client sees it."""
    database = lancedb.connect(uri)
    return {name: Counter(database.open_table(name).to_arrow()["id"].to_pylist()) for name in JOURNALED}


@pytest.fixture
def left(tmp_path: Path) -> MemoryBank:
    """A bank with a few steps and a reward of a person, all of it still in the journal."""
    bank = a_bank(tmp_path / "bank")
    for step in range(1, STEPS + 1):
        bank.commit_step(*a_step(step, credited=(f"r-{step - 1:04d}",) if step > 1 else ()))
    bank.give_reward("r", 2, bank.trace("r", 2).id, ("r-0001",), -1.0, "ann")
    return bank


def test_what_waits_is_seen_by_everybody_and_moves_when_the_bank_is_closed(left: MemoryBank) -> None:
    before = ids_in(left.uri)
    assert {name: len(ids) for name, ids in before.items()} == {"memories": 4, "ledger": 10, "steps": 4}
    assert sum(map(len, ids_in_tables(left.uri).values())) == 0
    with MemoryBank.open(left.uri) as other:
        assert other.utilities("r") == left.utilities("r")
        assert other.trace("r", 3) == left.trace("r", 3)
        assert [trace.step for trace in other.traces("r", (2, 3))] == [2, 3]
    left.close()
    assert ids_in_tables(left.uri) == before == ids_in(left.uri)
    assert not (Path(left.uri) / JOURNAL).exists()
    assert not left.refresh()
    assert MemoryBank.open(left.uri).utilities("r") == left.utilities("r")


def test_a_journal_that_has_grown_is_emptied_and_a_long_open_handle_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = a_bank(tmp_path / "bank")
    other = MemoryBank.open(bank.uri)
    monkeypatch.setattr(store, "JOURNAL_BYTES", 20_000)
    sizes = set()
    for step in range(1, 31):
        bank.commit_step(*a_step(step))
        other.refresh()
        assert other.view("r").size == step
        sizes.add((tmp_path / "bank" / JOURNAL).exists())
    assert sizes == {True, False}
    assert all(count == 1 for ids in ids_in(bank.uri).values() for count in ids.values())


def test_many_rows_at_once_do_not_wait(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.adopt({}, [], [a_step(step)[0] for step in range(1, store.FEW + 1)])
    assert len(ids_in_tables(bank.uri)["steps"]) == store.FEW


def test_an_address_of_this_machine_is_the_same_bank(left: MemoryBank) -> None:
    with MemoryBank.open(f"file://{left.uri}") as other:
        assert other.uri == left.uri
        assert other.utilities("r") == left.utilities("r")
    assert all(finding.ok for finding in check(f"file://{left.uri}") if finding.name != "disk")


# --- cut short ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wherever_a_write_was_cut_what_came_before_is_there_and_the_next_follows_it(
    left: MemoryBank, tmp_path: Path
) -> None:
    data = (Path(left.uri) / JOURNAL).read_bytes()
    schemas = codec.schemas(DIMENSION)
    ends = []
    for name, batches in parsed(data, schemas).batches.items():
        assert batches, name
    cuts = [*range(0, 60), *random.Random(0).sample(range(60, len(data)), 25), len(data)]
    rows_before = -1
    for cut in sorted(cuts):
        copy = tmp_path / f"cut-{cut}"
        shutil.copytree(left.uri, copy)
        (copy / JOURNAL).write_bytes(data[:cut])
        found = parsed(data[:cut], schemas)
        rows = sum(batch.num_rows for batches in found.batches.values() for batch in batches)
        assert found.lost == 0 and rows >= rows_before, "A longer beginning holds no less."
        rows_before = rows
        ends.append(rows)
        made, _ = Store.open(str(copy))
        there = ids_in(str(copy))
        assert sum(map(len, there.values())) == rows
        made.append("steps", [codec.step_row(a_step(77)[0], "now")])
        after = ids_in(str(copy))
        assert sum(map(len, after.values())) == rows + 1
        assert all(ids <= after[name] for name, ids in there.items())
        shutil.rmtree(copy)
    assert ends[0] == 0 and ends[-1] == 18


KILLED = """
import sys
sys.path.insert(0, {root!r})
from memrl_core.bank import MemoryBank, store
from tests.builders import a_step
store.JOURNAL_BYTES = 9_000
bank = MemoryBank.open({uri!r})
for step in range(bank.next_step("r"), 10_000):
    bank.commit_step(*a_step(step))
    print(step, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_loses_at_most_the_step_under_way(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.close()
    rng = random.Random(1)
    for _ in range(4):
        worker = subprocess.Popen(
            [sys.executable, "-c", KILLED.format(root=ROOT, uri=bank.uri)], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        told = [int(worker.stdout.readline()) for _ in range(rng.randint(3, 12))]
        os.kill(worker.pid, signal.SIGKILL)
        told += [int(line) for line in worker.stdout.read().split()]
        worker.wait()
        there = ids_in(bank.uri)
        assert all(count == 1 for ids in there.values() for count in ids.values())
        opened = MemoryBank.open(bank.uri)
        assert [row.step for row in opened.step_rows("r")][: told[-1]] == list(range(1, told[-1] + 1))
        assert len(opened.step_rows("r")) <= told[-1] + 1
    assert all(finding.ok for finding in check(bank.uri) if finding.name != "disk")


@pytest.mark.parametrize("arrived", range(len(JOURNALED) + 1))
def test_who_ends_while_rows_move_has_moved_each_once(
    left: MemoryBank, monkeypatch: pytest.MonkeyPatch, arrived: int
) -> None:
    before = ids_in(left.uri)
    commits = 0
    commit = Store.commit

    def until_killed(self: Store, name: str, rows: pa.Table) -> None:
        nonlocal commits
        commits += 1
        if commits > arrived:
            raise SystemExit
        commit(self, name, rows)

    def killed(self: Journal) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", until_killed)
        patched.setattr(Journal, "end_moving", killed)
        with pytest.raises(SystemExit):
            left._store.empty_journal()
    assert (Path(left.uri) / MOVING).exists()
    copy = Path(left.uri).with_name("read-only")
    shutil.copytree(left.uri, copy)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "locked", refused)
        assert ids_in(str(copy)) == before
    assert (copy / MOVING).exists()
    assert ids_in(left.uri) == before
    assert not (Path(left.uri) / MOVING).exists()
    assert ids_in_tables(left.uri) == before
    assert all(finding.ok for finding in check(left.uri) if finding.name != "disk")


def refused(*_: object) -> None:
    raise BankReadOnly("No.")


def test_readers_see_all_rows_at_every_moment_of_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "JOURNAL_BYTES", 4000)
    bank = a_bank(tmp_path / "bank")
    over, seen, wrong = threading.Event(), Counter[str](), list[Any]()
    reader, _ = Store.open(bank.uri)

    def read() -> None:
        before = 0
        while not over.is_set():
            ids = reader.read("ledger", ["id"])["id"].to_pylist()
            count = reader.count("ledger")
            if len(ids) != len(set(ids)) or not before <= len(ids) <= count:
                wrong.append((before, len(ids), len(set(ids)), count))
            before = len(ids)
            seen["reads"] += 1

    thread = threading.Thread(target=read)
    thread.start()
    for step in range(1, 61):
        bank.commit_step(*a_step(step))
    over.set()
    thread.join()
    assert wrong == []
    assert seen["reads"] > 1


def test_rows_that_move_between_two_looks_at_the_journal_are_seen(
    left: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move begins as the reader opens the journal, and ends after the reader has read the table."""
    before = ids_in(left.uri)["steps"]
    mover, _ = Store.open(left.uri)
    reader, _ = Store.open(left.uri)
    waiting, read = Journal.waiting, Store._read_newest
    begun = False

    def moves_first(self: Journal) -> Any:
        nonlocal begun
        if self is reader._journal and not begun:
            begun = True
            assert mover._journal is not None
            mover._journal.begin_moving()
        return waiting(self)

    def ends_afterwards(self: Store, *given: Any) -> Any:
        found = read(self, *given)
        if self is reader and mover._journal is not None and mover._journal.is_moving():
            mover._move(mover._journal.moving())
        return found

    monkeypatch.setattr(Journal, "waiting", moves_first)
    monkeypatch.setattr(Store, "_read_newest", ends_afterwards)
    assert Counter(reader.read("steps", ["id"])["id"].to_pylist()) == before


def test_a_copy_waits_for_a_writer_and_gives_up_in_a_sentence(
    left: MemoryBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LOCK_PATIENCE", 0.1)
    with left._store.locked(), pytest.raises(BankError, match="Nothing was copied"):
        copy_bank(left.uri, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


# --- damage -------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_told_or_changes_nothing(left: MemoryBank, tmp_path: Path) -> None:
    data = (Path(left.uri) / JOURNAL).read_bytes()
    schemas = codec.schemas(DIMENSION)
    before = ids_in(left.uri)
    of_the_id = range(len(journal.BEGINS), journal.PREFIX)
    for place in [*range(80), *random.Random(0).sample(range(80, len(data)), 150), len(data) - 1]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        found = parsed(bytes(flipped), schemas)
        assert (found.lost == 0) == (place in of_the_id), place
    copy = tmp_path / "flipped"
    shutil.copytree(left.uri, copy)
    for place in (3, len(data) // 2, len(data) - 9):
        flipped = bytearray(data)
        flipped[place] ^= 4
        (copy / JOURNAL).write_bytes(flipped)
        with pytest.raises(BankDamaged, match=r"cannot be read or written.*memrl doctor"):
            MemoryBank.open(str(copy))
        with pytest.raises(BankDamaged):
            Store.open(str(copy))[0].append("steps", [codec.step_row(a_step(77)[0], "now")])
        assert (copy / JOURNAL).read_bytes() == flipped, "Nothing is written over what cannot be read."
        assert "journal" in {finding.name for finding in check(str(copy)) if not finding.ok}
    assert ids_in(left.uri) == before


def test_a_damaged_journal_is_repaired_with_all_that_can_be_read(left: MemoryBank, tmp_path: Path) -> None:
    path = Path(left.uri) / JOURNAL
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    made = repair.repair(left.uri, tmp_path / "repaired")
    assert any("1 parts of the journal could not be read" in line for line in made.told)
    assert made.remaining == ()
    with MemoryBank.open(str(tmp_path / "repaired")) as bank:
        assert [row.step for row in bank.step_rows("r")] == [1, 2, 3, 4]
        assert len(bank.memory_ids()) >= STEPS - 1
    assert not (tmp_path / "repaired" / JOURNAL).exists()


def test_what_waits_is_in_a_repaired_bank(left: MemoryBank, tmp_path: Path) -> None:
    for file in (Path(left.uri) / "q_values.lance").rglob("*.manifest"):
        file.write_bytes(b"garbage")
    repair.repair(left.uri, tmp_path / "repaired")
    repaired = ids_in(str(tmp_path / "repaired"))
    assert {name: len(ids) for name, ids in repaired.items()} == {"memories": 4, "ledger": 10, "steps": 4}


def test_bytes_of_others_are_no_rows() -> None:
    schemas = codec.schemas(DIMENSION)
    rng = random.Random(0)
    for length in (1, 24, 25, 300, 4000):
        assert not any(parsed(rng.randbytes(length), schemas).batches.values())


def test_a_full_disk_leaves_no_half_a_row(left: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    before, data = ids_in(left.uri), (Path(left.uri) / JOURNAL).read_bytes()
    write = os.write

    def half(file: int, rest: bytes) -> int:
        if len(rest) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, rest[: len(rest) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(BankFull, match="saved before is safe"):
            left.commit_step(*a_step(5))
    assert (Path(left.uri) / JOURNAL).read_bytes() == data
    assert ids_in(left.uri) == before
    left.commit_step(*a_step(5))
    assert ids_in(left.uri)["steps"].total() == 5


def test_a_bank_that_is_deleted_leaves_nothing_to_the_next(left: MemoryBank) -> None:
    left.discard()
    assert not (Path(left.uri) / JOURNAL).exists()


def test_a_run_that_forks_waits_with_the_rest(left: MemoryBank) -> None:
    left.start_run(a_run("fork", base="r", base_step=2))
    assert set(MemoryBank.open(left.uri).utilities("fork")) == {"r-0001", "r-0002"}


@pytest.mark.slow
def test_a_copy_made_while_steps_are_written_holds_every_step_that_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "JOURNAL_BYTES", 4000)
    bank = a_bank(tmp_path / "bank")
    over = threading.Event()
    told = [0]

    def write() -> None:
        for step in range(1, 400):
            if over.is_set():
                return
            bank.commit_step(*a_step(step))
            told[0] = step

    thread = threading.Thread(target=write)
    thread.start()
    for number in range(8):
        before = told[0]
        copy_bank(bank.uri, tmp_path / f"copy-{number}")
        copied = MemoryBank.open(str(tmp_path / f"copy-{number}"))
        assert [row.step for row in copied.step_rows("r")][:before] == list(range(1, before + 1))
        while told[0] == before and thread.is_alive():
            time.sleep(0.01)
    over.set()
    thread.join()
    assert told[0] >= 8
