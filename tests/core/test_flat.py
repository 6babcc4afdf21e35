"""Flat copies of large tables: a bank opened by them is the bank that its tables say, whatever became of either."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank, flat, knowledge
from memrl_core.bank.coming import Coming, Rows
from memrl_core.bank.integrity import check
from memrl_core.bank.knowledge import Knowledge
from memrl_core.bank.places import _still, copy_bank
from memrl_core.bank.repair import repair
from memrl_core.bank.store import Store
from memrl_core.errors import BankError
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from tests.builders import DIMENSION, a_bank, a_run, a_step
from tests.core.test_opening_many import FEW, META, by_person, put, read, some_facts, told

STEPS = 40


@pytest.fixture(autouse=True)
def small_tables_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "LARGE", 1)
    monkeypatch.setattr(knowledge, "MANY", 1)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were opened by a copy."""
    names: list[str] = []
    rows = Coming._copied

    def noted(self: Coming, name: str) -> Rows | None:
        found = rows(self, name)
        names.extend([name] * (found is not None))
        return found

    monkeypatch.setattr(Coming, "_copied", noted)
    return names


def a_copied_bank(folder: Path, steps: int = STEPS) -> str:
    with a_bank(folder) as bank:
        bank.start_run(a_run("s"))
        for step in range(1, steps + 1):
            bank.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
            bank.commit_step(*a_step(step, run="s"))
        return bank.uri


def contents(bank: MemoryBank) -> object:
    """All that a handle knows."""
    runs = {}
    for info in bank.runs():
        view = bank.view(info.id)
        runs[info.id] = (
            view.ids,
            view.embeddings.tolist(),
            view.q.tolist(),
            view.visits.tolist(),
            bank.histories(info.id),
            bank.traces(info.id),
            bank.step_rows(info.id),
            bank.unfinished_steps(info.id),
        )
    return runs, bank.memories(), bank.events(), bank.memory_ids(), bank.clock, bank.facts


def by_tables(uri: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """What the tables alone say."""
    with monkeypatch.context() as patch:
        patch.setattr(knowledge, "MANY", FEW)
        return contents(MemoryBank.open(uri))


@pytest.mark.slow
@given(st.integers(0, 1_000_000))
@settings(max_examples=15, deadline=None)
def test_a_copy_and_what_came_after_it_say_what_the_rows_say(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("memrl_core.bank.coming.MOST", 0.0)
        patch.setattr("memrl_core.bank.store.FEW", 1)
        patch.setattr(flat, "LARGE", 1)
        store = Store.create(f"{folder}/bank", META, DIMENSION)
        facts = some_facts(seed, turns=12)
        put(store, facts)
        store.refresh_flat_copies()
        facts.taken = []
        for _ in range(int(facts.rng.integers(3)) * 6):
            run = facts.some(list(facts.known.runs))[0]
            facts.some([facts.step, facts.reward, facts.change, facts.other])[0](run)
        put(store, facts)
        assert store.flat_copy("steps") is not None and store.flat_copy("ledger") is not None
        rows, copied = read(store, FEW, patch), read(store, 1, patch)
        assert list(copied.runs.values()) == list(rows.runs.values())
        assert copied.seq == rows.seq and copied.facts == rows.facts
        for run in rows.runs:
            for step in range((rows.newest_step(run) or 0) + 2):
                assert copied.states[run].at(step) == rows.states[run].at(step)
                assert told(copied.past(run, step)) == told(rows.past(run, step))
            assert told(copied.live(run)) == told(rows.live(run))
            assert dict(copied.steps_of(run)) == dict(rows.steps_of(run))
            assert sorted(copied.states[run].told_late) == sorted(rows.states[run].told_late)
            assert copied.states[run].told_from_outside == rows.states[run].told_from_outside
        assert by_person(copied) == by_person(rows)
        assert list(copied.events.values()) == list(rows.events.values())


def test_a_bank_opened_by_its_copies_is_the_one_of_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]
) -> None:
    uri = a_copied_bank(tmp_path)
    copied = MemoryBank.open(uri)
    assert set(used) == {"memories", "ledger", "steps"}
    assert contents(copied) == by_tables(uri, monkeypatch)


def test_it_goes_on_and_grows_out_of_the_room_that_its_copy_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]
) -> None:
    uri = a_copied_bank(tmp_path)
    file = next(Path(uri).glob("embeddings-*.flat"))
    before = file.read_bytes()
    with MemoryBank.open(uri) as bank:
        assert "memories" in used
        for step in range(STEPS + 1, 2 * STEPS):
            bank.commit_step(*a_step(step, (f"r-{step - 1:04d}",)))
            if step == STEPS + 3:
                assert file.read_bytes() == before
        said = contents(bank)
    assert contents(MemoryBank.open(uri)) == said == by_tables(uri, monkeypatch)


def test_a_copy_is_made_anew_once_a_tenth_is_missing(tmp_path: Path) -> None:
    uri = a_copied_bank(tmp_path)
    first = (Path(uri) / "steps.flat").read_bytes()
    for number, (steps, is_new) in enumerate([(1, False), (20, True)]):
        with MemoryBank.open(uri) as bank:
            begun = bank.next_step("r")
            for step in range(begun, begun + steps):
                bank.commit_step(*a_step(step))
        assert ((Path(uri) / "steps.flat").read_bytes() != first) is is_new, number
    assert len(list(Path(uri).glob("embeddings-*.flat"))) == 1


def test_small_tables_and_banks_that_were_only_read_have_no_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat, "LARGE", 10_000)
    uri = a_copied_bank(tmp_path)
    assert flat.flat_files(Path(uri)) == []
    monkeypatch.setattr(flat, "LARGE", 1)
    with MemoryBank.open(uri) as bank:
        bank.view("r")
    assert flat.flat_files(Path(uri)) == []


def compacted(uri: str) -> None:
    Store.open(uri)[0].compact()


def told_by_another_program(uri: str) -> None:
    lancedb.connect(uri).open_table("memories").update(where="id = 'r-0003'", values={"experience": "told anew"})


def deleted_by_another_program(uri: str) -> None:
    lancedb.connect(uri).open_table("steps").delete("id = 's-5'")


def written_over(uri: str) -> None:
    database = lancedb.connect(uri)
    rows = database.open_table("ledger").to_arrow()
    values = pc.multiply(rows["value"], 0.5)
    changed = rows.set_column(rows.column_names.index("value"), "value", values)
    database.create_table("ledger", data=changed, mode="overwrite")


def made_anew(uri: str) -> None:
    database = lancedb.connect(uri)
    rows = database.open_table("steps").to_arrow().slice(0, 30)
    database.drop_table("steps")
    database.create_table("steps", data=rows)


def with_another_column(uri: str) -> None:
    table = lancedb.connect(uri).open_table("memories")
    table.add_columns({"nameless": "concat('told of ', intent)"})
    table.drop_columns(["experience"])
    table.alter_columns({"path": "nameless", "rename": "experience"})


CHANGES = [compacted, told_by_another_program, deleted_by_another_program, written_over, made_anew, with_another_column]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_what_became_of_a_table_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object) -> None:
    monkeypatch.setattr("memrl_core.bank.store.MANY_FRAGMENTS", 2)
    with monkeypatch.context() as patch:
        patch.setattr("memrl_core.bank.store.FEW", 1)
        patch.setattr(Store, "compact", lambda self, keep=None: None)
        uri = a_copied_bank(tmp_path)
    assert callable(change)
    change(uri)
    assert contents(MemoryBank.open(uri)) == by_tables(uri, monkeypatch)


def test_a_table_made_anew_twice_in_one_go_is_read_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]
) -> None:
    uri = a_copied_bank(tmp_path)
    database = lancedb.connect(uri)

    def remade(experience: str) -> None:
        rows = database.open_table("memories").to_arrow()
        told = pa.array([experience] * len(rows), rows["experience"].type)
        database.drop_table("memories")
        place = rows.column_names.index("experience")
        database.create_table("memories", data=rows.set_column(place, "experience", told))

    remade("first")
    store = Store.open(uri)[0]
    store.refresh_flat_copies()
    MemoryBank.open(uri)
    assert "memories" in used
    remade("second")
    opened = MemoryBank.open(uri)
    assert {memory.experience for memory in opened.memories()} == {"second"}
    assert contents(opened) == by_tables(uri, monkeypatch)


@pytest.mark.parametrize("name", ["memories", "ledger", "steps"])
def test_a_table_with_a_row_that_is_there_twice_has_no_copy_and_counts_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str], name: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(flat, "LARGE", FEW)
        uri = a_copied_bank(tmp_path, steps=4)
    table = lancedb.connect(uri).open_table(name)
    table.add(table.to_arrow().slice(2, 1))
    Store.open(uri)[0].refresh_flat_copies()
    assert contents(MemoryBank.open(uri)) == by_tables(uri, monkeypatch)
    assert set(used) == {"memories", "ledger", "steps"} - {name}


def test_rows_that_a_compaction_moves_while_a_bank_is_opened_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = a_copied_bank(tmp_path)
    monkeypatch.setattr("memrl_core.bank.store.FEW", 1)
    with MemoryBank.open(uri) as bank:
        for step in range(STEPS + 1, STEPS + 4):
            bank.commit_step(*a_step(step))
        take = Knowledge._take

        def late(self: Knowledge, store: Store, name: str, offset: int) -> int:
            database = lancedb.connect(uri)
            table = database.open_table(name).to_arrow()
            backwards = table.take(list(reversed(range(len(table)))))
            database.create_table(name, data=backwards, mode="overwrite")
            return take(self, store, name, offset)

        with monkeypatch.context() as patch:
            patch.setattr(Knowledge, "_take", late)
            copied = contents(MemoryBank.open(uri))
        assert copied == contents(bank)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def no_copy(path: Path) -> None:
    path.write_bytes(b"no copy at all" * 100)


def gone(path: Path) -> None:
    path.unlink()


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    # The length of embeddings is all that is known of them when a bank is opened.
    path.write_bytes(data[1:] if path.name.startswith("embeddings") else data)


def zeroed(path: Path) -> None:
    if path.name.startswith("embeddings"):
        path.write_bytes(bytes(path.stat().st_size))
    else:
        flipped(path)


@pytest.mark.parametrize("damage", [cut, emptied, no_copy, gone, flipped, zeroed])
@pytest.mark.parametrize("name", ["memories.flat", "ledger.flat", "steps.flat", "embeddings-*.flat"])
def test_a_damaged_copy_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: object, used: list[str]
) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    assert callable(damage)
    damage(next(Path(uri).glob(name)))
    assert contents(MemoryBank.open(uri)) == by_tables(uri, monkeypatch)
    assert set(used) == {"memories", "ledger", "steps"} - {name.partition(".")[0].replace("embeddings-*", "memories")}


def test_a_copy_of_another_version_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]
) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    monkeypatch.setattr(flat, "FORMAT", flat.FORMAT + 1)
    assert contents(MemoryBank.open(uri)) == by_tables(uri, monkeypatch)
    assert used == []


def test_a_full_disk_costs_the_copy_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: object, other: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, flat.__name__):
        patch.setattr(Path, "replace", full)
        patch.setattr("memrl_core.bank.store.FEW", 1)
        uri = a_copied_bank(tmp_path, steps=4)
    assert "put off: OSError" in caplog.text and "No space left" not in caplog.text
    assert flat.flat_files(Path(uri)) == []
    assert contents(MemoryBank.open(uri)) == by_tables(uri, monkeypatch)


def test_no_copy_is_made_that_would_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10_000))
    with caplog.at_level(logging.WARNING, flat.__name__):
        uri = a_copied_bank(tmp_path, steps=4)
    assert "the disk would be full" in caplog.text
    assert flat.flat_files(Path(uri)) == []


def test_a_bank_closes_where_a_table_cannot_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with a_bank(tmp_path) as bank:
        bank.commit_step(*a_step(1))
        bank.checkpoint()

        def refused(name: str) -> object:
            raise RuntimeError("Too many open files")

        monkeypatch.setattr(bank._store, "_database", SimpleNamespace(open_table=refused))
    assert "ledger was put off: RuntimeError" in caplog.text
    monkeypatch.undo()
    assert MemoryBank.open(bank.uri).memory_ids()


def test_a_bank_that_was_brought_in_whole_has_copies(tmp_path: Path, used: list[str]) -> None:
    with MemoryBank.open(a_copied_bank(tmp_path, steps=4)) as bank:
        write_bank(bank, tmp_path / "bank.zip")
    bring_in(read_bank(tmp_path / "bank.zip"), str(tmp_path / "other"))
    used.clear()
    MemoryBank.open(str(tmp_path / "other"))
    assert set(used) == {"memories", "ledger", "steps"}


def test_a_description_without_end_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    for path in Path(uri).glob("*.flat"):
        if not path.name.startswith("embeddings"):
            rows = pa.ipc.open_file(pa.BufferReader(path.read_bytes()[flat.HEADER :])).read_all()
            forged = pa.BufferOutputStream()
            described = rows.schema.with_metadata({flat.DESCRIPTION: b"[" * 200_000})
            with pa.ipc.new_file(forged, described) as written:
                written.write_table(rows.cast(described))
            whole = forged.getvalue().to_pybytes()
            path.write_bytes(flat._header(memoryview(whole)) + whole)
    assert contents(MemoryBank.open(uri)) == by_tables(uri, monkeypatch)
    assert used == []


def test_what_a_killed_process_left_is_cleared_away_by_the_next_copy(tmp_path: Path) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    for name in ("memories.flat-draft-0a1b2c3d", "embeddings-0a1b2c3d.flat"):
        (Path(uri) / name).write_bytes(b"cut short")
    with MemoryBank.open(uri) as bank:
        for step in range(5, 30):
            bank.commit_step(*a_step(step))
    names = sorted(path.name.partition("-")[0] for path in flat.flat_files(Path(uri)))
    assert names == ["embeddings", "ledger.flat", "memories.flat", "steps.flat"]


KILLED = """
import sys
from memrl_core.bank import flat, knowledge
from memrl_core.bank.store import Store
flat.LARGE, flat.STALE = 1, -1.0
store = Store.open(sys.argv[1])[0]
print("ready", flush=True)
while True:
    store.refresh_flat_copies()
"""


@pytest.mark.slow
def test_a_process_killed_while_it_copies_leaves_a_bank_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    expected = by_tables(uri, monkeypatch)
    rng = np.random.default_rng(0)
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", KILLED, uri], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            try:
                process.wait(float(rng.uniform(0, 0.1)))
            except subprocess.TimeoutExpired:
                process.kill()
        assert contents(MemoryBank.open(uri)) == expected
    assert all(finding.ok for finding in check(uri))


def test_a_bank_copied_whole_is_opened_by_its_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]
) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    copy_bank(uri, tmp_path / "copy")
    assert contents(MemoryBank.open(str(tmp_path / "copy"))) == by_tables(uri, monkeypatch)
    assert set(used) == {"memories", "ledger", "steps"}


def test_a_bank_is_copied_without_copies_that_are_not_whole_and_waits_for_one_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    (Path(uri) / "memories.flat-draft-0a1b2c3d").write_bytes(b"cut short")
    copy_bank(uri, tmp_path / "copy")
    assert not list((tmp_path / "copy").glob(f"*{flat.DRAFT}*"))
    monkeypatch.setattr("memrl_core.bank.places.LOCK_PATIENCE", 0.2)
    with FileLock(Path(uri) / flat.LOCK), pytest.raises(BankError, match="Nothing was copied"):
        copy_bank(uri, tmp_path / "another")


def test_nothing_is_compacted_while_a_bank_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(a_copied_bank(tmp_path, steps=4))[0]
    monkeypatch.setattr("memrl_core.bank.store.MANY_FRAGMENTS", 2)
    table = lancedb.connect(store.uri).open_table("q_values")
    for _ in range(8):
        table.add(table.to_arrow())

    def fragments() -> int:
        table.checkout_latest()
        return int(table.stats()["fragment_stats"]["num_fragments"])

    before = fragments()
    (Path(store.uri) / flat.LOCK).unlink(missing_ok=True)
    with _still(Path(store.uri)):
        store.compact()
        assert fragments() == before
    store.compact()
    assert fragments() == 1


def test_a_bank_that_is_discarded_leaves_no_copy(tmp_path: Path) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    MemoryBank.open(uri).discard()
    assert flat.flat_files(Path(uri)) == []


SPOILT = r"""
import random, sys
from pathlib import Path
import pyarrow as pa
from memrl_core.bank import MemoryBank, flat, knowledge
from memrl_core.errors import MemRLError

flat.LARGE = knowledge.MANY = 1
uri, seed = sys.argv[1:]
draw = random.Random(int(seed))
files = {path: path.read_bytes() for path in Path(uri).glob("*.flat")}
read = 0
for path, whole in files.items():
    for _ in range(20):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 4])):
            at = draw.randrange(len(data) - 8)
            data[at : at + draw.choice([1, 4, 8])] = draw.choice([b"\xff", b"\x7f\xff\xff\xff", bytes(8), b"\x01"])
        if not path.name.startswith("embeddings"):
            data[: flat.HEADER] = flat._header(memoryview(data)[flat.HEADER :])
        path.write_bytes(data)
        try:
            with MemoryBank.open(uri) as bank:
                for info in bank.runs():
                    bank.view(info.id), bank.histories(info.id)
                bank.events(), bank.memories()
                read += 1
        except MemRLError as error:
            print(error)
    path.write_bytes(whole)
print("read", read)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_copy_that_somebody_has_forged_ends_no_process(tmp_path: Path, seed: int) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    done = subprocess.run([sys.executable, "-c", SPOILT, uri, str(seed)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 0


@pytest.mark.parametrize("name", ["memories.flat", "ledger.flat", "steps.flat", "embeddings-*.flat"])
def test_doctor_finds_a_copy_that_says_something_else_than_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(flat, "LANDMARKS", 2)
    uri = a_copied_bank(tmp_path, steps=4)
    assert all(finding.ok for finding in check(uri))
    file = next(Path(uri).glob(name))
    data = bytearray(file.read_bytes())
    if name.startswith("embeddings"):
        data[4 * DIMENSION] ^= 1
    else:
        second_id = Store.open(uri)[0].read(name.removesuffix(".flat"), ["id"])["id"][1].as_py()
        data[data.index(second_id.encode()) + len(second_id) - 1] ^= 1
        data[: flat.HEADER] = flat._header(memoryview(data)[flat.HEADER :])
    file.write_bytes(data)
    (finding,) = [finding for finding in check(uri) if not finding.ok and finding.name == "flat copies"]
    assert finding.name == "flat copies" and ".flat" in finding.remedy


def test_repair_leaves_copies_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = a_copied_bank(tmp_path, steps=4)
    shutil.rmtree(Path(uri) / "q_values.lance")
    with monkeypatch.context() as patch:
        patch.setattr(flat, "LARGE", FEW)
        made = repair(uri)
    assert made.target and flat.flat_files(Path(made.target)) == []
    assert all(finding.ok for finding in check(made.target))
