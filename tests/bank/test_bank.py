"""The bank: what is appended is there, q is the fold of it, and every failure is a sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lancedb
import numpy as np
import pytest
from filelock import FileLock, Timeout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.storage.database import FILE, TURNS, Database
from memrl_core.embedders.base import Vectors
from memrl_core.errors import (
    BankDamaged,
    BankError,
    BankMissing,
    BankReadOnly,
    BankTooNew,
    EmbedderMismatch,
    InputError,
    NotABank,
    RunMoved,
    UnknownRun,
)
from tests.builders import DIMENSION, a_bank, a_run, a_step
from tests.oracles.fold import Given, utilities_by_definition
from tests.small_banks import give_reward

moves = st.lists(
    st.tuples(
        st.sampled_from(["commit", "rate", "revoke", "interrupt"]),
        st.integers(0, 30),
        st.sampled_from(["ann", "bo"]),
        st.sampled_from([-1.0, 0.25, 1.0]),
    ),
    max_size=25,
)


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return a_bank(tmp_path / "bank")


def test_what_changes_a_bank_is_asked_of_its_writer_alone(bank: MemoryBank) -> None:
    parts = ("notes", "credits", "ratings", "editing", "undo", "people", "batches", "judgements", "layouts")
    pairs = [(bank, bank.write), *((getattr(bank, part), getattr(bank.write, part)) for part in parts)]
    for reading, writing in pairs:
        changing = {name for name in vars(type(writing)) if not name.startswith("_")}
        assert changing and changing.isdisjoint(dir(reading))


@given(moves)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_steps_and_rewards_folds_as_defined(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[str, int, str, float]]
) -> None:
    bank = a_bank(tmp_path_factory.mktemp("b") / "bank", alpha=0.3)
    steps: list[tuple[str, tuple[str, ...], float]] = []
    log: list[Given] = []
    seen: list[dict[str, tuple[float, int]]] = [{}]
    for move, number, rater, value in sequence:
        if move == "commit":
            step = len(steps) + 1
            credited = tuple(f"r-{1 + (number + i) % (step - 1):04d}" for i in range(min(2, step - 1)))
            credited = tuple(dict.fromkeys(credited))
            bank.write.begin_step("r", step)
            trace, vectors = a_step(step, credited, reward=value)
            bank.write.commit_step(trace, vectors)
            steps.append((trace.id, credited, value))
            seen.append({m: (u.q, u.visits) for m, u in bank.utilities("r").items()})
        elif move == "rate" and steps:
            step = number % len(steps)
            event = give_reward(bank, "r", step + 1, steps[step][0], steps[step][1], value, rater)
            log.append(Given(event.id, step, rater, value))
        elif move == "revoke" and log:
            chosen = log[number % len(log)]
            bank.write.ratings.revoke(chosen.id, rater)
            chosen.revoked = True
        elif move == "interrupt":
            give_reward(bank, "r", len(steps) + 1, "never finished", ("r-0001",), value, rater)
    expected = utilities_by_definition([(c, r) for _, c, r in steps], log, alpha=0.3)
    live = {m: (u.q, u.visits) for m, u in bank.utilities("r").items()}
    assert live == expected
    bank.write.flush()
    again = MemoryBank.open(bank.uri)
    assert {m: (u.q, u.visits) for m, u in again.utilities("r").items()} == live
    if not log:
        for step, state in enumerate(seen):
            assert {m: (u.q, u.visits) for m, u in bank.utilities("r", as_of=step).items()} == state


def test_another_handle_follows_what_is_appended(bank: MemoryBank) -> None:
    other = MemoryBank.open(bank.uri)
    assert not other.refresh()
    for step in range(1, 4):
        bank.write.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
        assert other.refresh()
    assert other.utilities("r") == bank.utilities("r")
    give_reward(other, "r", 3, bank.steps.rows("r")[-1].id, ("r-0002",), -1.0, "bo")
    bank.refresh()
    assert bank.utilities("r") == other.utilities("r")


def test_the_same_step_is_not_committed_twice(bank: MemoryBank) -> None:
    other = MemoryBank.open(bank.uri)
    bank.write.commit_step(*a_step(1))
    with pytest.raises(RunMoved, match="already finished step 1"):
        other.write.commit_step(*a_step(1))
    assert len(other.steps.rows("r")) == 1


def test_a_batch_keeps_other_writers_out_and_shows_them_what_was_stored_before(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = MemoryBank.open(bank.uri)
    monkeypatch.setattr("memrl_core.bank.storage.connecting.PATIENCE", 0.1)
    monkeypatch.setattr("memrl_core.bank.writing.PACE", 60.0)
    with other.write.batch(4):
        kept = other.write.commit_step(*a_step(1))
        assert bank.steps.rows("r") == [] and other.steps.has("r", 1)
        with pytest.raises(BankError, match="Another process"):
            bank.write.commit_step(*a_step(1))
        with pytest.raises(RunMoved):
            other.write.commit_step(*a_step(1))
        other.write.commit_step(*a_step(2, ("r-0001",)))
    assert [row.id for row in other.steps.rows("r")] == [row.id for row in bank.steps.rows("r")]
    assert bank.steps.rows("r")[0].id == kept.id and len(bank.steps.rows("r")) == 2
    assert dict(other.utilities("r")) == dict(bank.utilities("r"))


def test_a_step_of_a_batch_that_takes_long_is_stored_by_itself(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrl_core.bank.writing.PACE", 0.0)
    with bank.write.batch(4):
        bank.write.commit_step(*a_step(1))
        assert MemoryBank.open(bank.uri).steps.has("r", 1)


def test_a_later_step_takes_as_few_statements_as_an_early_one(bank: MemoryBank) -> None:
    statements: list[str] = []
    bank._database._connection.connection.driver_connection.set_trace_callback(statements.append)
    counts = []
    for step in range(1, 81):
        statements.clear()
        bank.write.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
        assert statements.count("COMMIT") == 1
        counts.append(len([one for one in statements if not one.startswith("INSERT")]))
    assert max(counts[2:]) == counts[2] <= 20, statements


def test_a_batch_is_on_disk_when_it_ends(bank: MemoryBank) -> None:
    with bank.write.batch(4):
        for step in range(1, 11):
            bank.write.commit_step(*a_step(step))
    assert len(MemoryBank.open(bank.uri).steps.rows("r")) == 10
    assert not bank.refresh()


def test_a_failed_append_can_be_repeated_without_doubling(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, vectors = a_step(1)
    with monkeypatch.context() as broken, pytest.raises(ZeroDivisionError):
        broken.setattr("memrl_core.bank.updates.Updates._write", lambda *_, **__: 1 / 0)
        bank.write.commit_step(trace, vectors)
    cut_short = MemoryBank.open(bank.uri)
    assert cut_short.events("r") == bank.events("r") and len(bank.events("r")) == 1
    assert bank.steps.rows("r") == []
    bank.write.commit_step(trace, vectors)
    again = MemoryBank.open(bank.uri)
    assert again.steps.unfinished("r") == []
    assert list(again.utilities("r")) == ["r-0001"]
    assert lancedb.connect(f"{bank.uri}/vectors").open_table("memories").count_rows() == 1


FULL_DISK = """
import resource, sys
sys.path.insert(0, {root!r})
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.errors import BankFull
from tests.small_banks import a_step
import signal
bank = MemoryBank.open({uri!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
try:
    bank.write.commit_step(*a_step(2, ("r-0001",)))
except BankFull as error:
    print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    bank.write.commit_step(*a_step(2, ("r-0001",)))
    print("kept", len(bank.steps.rows("r")))
"""


def test_a_full_disk_is_said_and_nothing_is_lost(bank: MemoryBank) -> None:
    bank.write.commit_step(*a_step(1))
    root = str(Path(__file__).resolve().parents[2])
    script = FULL_DISK.format(root=root, uri=bank.uri)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "is full" in done.stdout, done.stderr
    assert "kept 2" in done.stdout
    assert len(MemoryBank.open(bank.uri).steps.rows("r")) == 2


@pytest.mark.parametrize("vector", [np.zeros(DIMENSION), np.full(DIMENSION, np.nan), np.ones(3) / np.sqrt(3)])
def test_a_vector_that_cannot_be_compared_is_refused(bank: MemoryBank, vector: np.ndarray) -> None:
    trace, _ = a_step(1)
    with pytest.raises(InputError, match="Nothing was stored"):
        bank.write.commit_step(trace, {"r-0001": vector.astype(np.float32)})
    assert bank.steps.rows("r") == []


def test_a_place_without_a_bank_is_said(tmp_path: Path) -> None:
    with pytest.raises(BankMissing, match="no bank"):
        MemoryBank.open(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotABank, match="is a file"):
        MemoryBank.open(str(tmp_path / "letter.txt"))
    with pytest.raises(NotABank, match="holds no bank"):
        MemoryBank.open(str(tmp_path))
    with pytest.raises(NotABank, match="already stored"):
        MemoryBank.create(str(tmp_path), "hashing-8", 8)


class Other:
    name, dimension, digest, version = "nomic-embed-text", 64, "", ""

    def embed(self, texts: object) -> Vectors:
        raise AssertionError("not asked for")


def test_another_embedder_is_refused_with_both_names(bank: MemoryBank) -> None:
    with pytest.raises(EmbedderMismatch, match=r"8-.*hashing-8; nomic-embed-text.* 64"):
        MemoryBank.open(bank.uri, Other())


def test_a_bank_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    with sqlite3.connect(tmp_path / "bank" / "bank.db") as database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    with pytest.raises(BankTooNew, match="newer version"):
        MemoryBank.open(bank.uri)


def test_a_damaged_part_is_said(tmp_path: Path) -> None:
    with a_bank(tmp_path / "bank") as bank:
        bank.write.commit_step(*a_step(1))
    shutil.copytree(tmp_path / "bank", tmp_path / "other")
    for file in (tmp_path / "bank" / "vectors" / "memories.lance" / "data").iterdir():
        file.write_bytes(b"\0" * 100)
    with pytest.raises(BankDamaged, match="memories"):
        MemoryBank.open(bank.uri).view("r")
    (tmp_path / "other" / "bank.db").write_bytes(b"\0" * 8192)
    with pytest.raises(BankDamaged, match="memrl doctor"):
        MemoryBank.open(str(tmp_path / "other"))


def test_the_ledger_refuses_to_be_changed(tmp_path: Path) -> None:
    a_bank(tmp_path / "bank").close()
    database = sqlite3.connect(tmp_path / "bank" / "bank.db")
    for statement in ("UPDATE ledger SET value = 1", "DELETE FROM ledger"):
        with pytest.raises(sqlite3.IntegrityError, match="only appended to"):
            database.execute(statement)


def test_a_read_only_place_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bank(tmp_path / "bank") as bank:
        bank.write.commit_step(*a_step(1))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    closed = MemoryBank.open(bank.uri)
    assert closed.view("r").size == 1
    with pytest.raises(BankReadOnly, match="cannot be written"):
        closed.write.commit_step(*a_step(2))
    assert closed.next_step("r") == 2


def test_a_name_of_a_run_that_is_taken_or_odd_is_refused(bank: MemoryBank) -> None:
    for name in ("r", "", "../up", "a b", "x'y"):
        with pytest.raises(InputError):
            bank.write.start_run(a_run(name))
    with pytest.raises(UnknownRun, match="no run “q”"):
        bank.view("q")


def test_a_reward_that_is_not_a_number_is_refused(bank: MemoryBank) -> None:
    trace, vectors = a_step(1)
    bank.write.commit_step(trace, vectors)
    with pytest.raises(InputError, match="scale"):
        bank.write.ratings.rate(Rating("r", 1, float("nan"), "ann"))


def test_frozen_coordinates_stay(bank: MemoryBank) -> None:
    assert bank.layouts.newest() is None
    layout = bank.write.layouts.save("pca", {"a": (0.0, 1.0), "b": (2.0, 3.0)})
    bank.write.layouts.add(layout, {"c": (4.0, 5.0)})
    stored = MemoryBank.open(bank.uri).layouts.newest()
    assert stored.coordinates == {"a": (0.0, 1.0), "b": (2.0, 3.0), "c": (4.0, 5.0)}
    assert stored.fitted == ("a", "b")


def test_a_bank_whose_making_was_cut_short_can_be_made_again(tmp_path: Path) -> None:
    a_bank(tmp_path / "bank").close()
    with pytest.raises(NotABank, match="already"):
        a_bank(tmp_path / "bank")
    (tmp_path / "bank" / "bank.db").write_bytes(b"")
    with pytest.raises(BankMissing):
        MemoryBank.open(str(tmp_path / "bank"))
    a_bank(tmp_path / "bank").write.commit_step(*a_step(1))


def test_a_memory_that_no_step_names_is_not_seen_and_swept_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.bank.storage.vectors.MANY_FRAGMENTS", 2)
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1))
    monkeypatch.setattr(bank._database, "commit", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bank.write.commit_step(*a_step(2))
    monkeypatch.undo()
    monkeypatch.setattr("memrl_core.bank.storage.vectors.MANY_FRAGMENTS", 2)
    table = lancedb.connect(f"{bank.uri}/vectors").open_table("memories")
    assert table.count_rows() == 2
    assert bank.memory_ids() == ["r-0001"] == [memory.id for memory in MemoryBank.open(bank.uri).memories()]
    bank.close()
    table.checkout_latest()
    assert table.count_rows() == 1
    assert MemoryBank.open(bank.uri).view("r").size == 1


def test_a_bank_in_memory_works_like_any_other() -> None:
    bank = MemoryBank.create("memory://", "hashing-8", DIMENSION)
    bank.write.start_run(a_run())
    bank.write.commit_step(*a_step(1))
    bank.write.commit_step(*a_step(2, ("r-0001",)))
    bank.close()
    assert bank.utilities("r")["r-0001"].visits == 1
    assert bank.view("r").memories["r-0002"].intent == "task 2"
    with pytest.raises(BankMissing):
        MemoryBank.open("memory://")


def test_what_is_stored_is_what_a_handle_knows(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1))
    bank.write.commit_step(*a_step(2, ("r-0001",)))
    give_reward(bank, "r", 2, bank.steps.rows("r")[1].id, ("r-0001",), -1.0, "ann")
    database = sqlite3.connect(tmp_path / "bank" / "bank.db")
    assert database.execute("SELECT run, memory_id, q, visits FROM q_values ORDER BY memory_id").fetchall() == [
        (run, memory_id, utility.q, utility.visits)
        for run in ("r",)
        for memory_id, utility in sorted(bank.utilities(run).items())
    ]
    moves = database.execute(
        "SELECT step, before, after, reward, event FROM q_moves WHERE memory_id = ? AND reward IS NOT NULL", ("r-0001",)
    ).fetchall()
    (given,) = [event for event in bank.events("r") if event.source == "person"]
    assert moves == [(2, 0.0, bank.utilities("r")["r-0001"].q, -1.0, given.id)]
    assert database.execute("SELECT count(*) FROM steps").fetchone() == (2,)


def is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        with FileLock(lock).acquire(timeout=0):
            return False
    except Timeout:
        return True


def test_of_two_that_write_without_a_pause_each_comes_to_write_in_turn(tmp_path: Path) -> None:
    a_bank(tmp_path / "bank").close()
    one, two = (Database.at(str(tmp_path / "bank" / FILE), "the bank") for _ in range(2))
    waits = tmp_path / "bank" / f"{FILE}{TURNS}"
    written: list[str] = []

    def write(database: Database, name: str) -> None:
        with database.transaction():
            written.append(name)

    with ThreadPoolExecutor(1) as beside:
        for _ in range(8):
            with one.transaction():
                other = beside.submit(write, two, "two")
                for _ in range(1000):
                    if is_held(waits):
                        break
                    time.sleep(0.005)
            write(one, "one")  # At once: it would be quicker than the one that waits.
            other.result()
    assert written == ["two", "one"] * 8
    assert not waits.exists()
    one.close()
    two.close()


def test_a_mark_of_a_waiting_process_that_was_killed_stops_nobody(tmp_path: Path) -> None:
    waits = tmp_path / "bank" / f"{FILE}{TURNS}"
    with a_bank(tmp_path / "bank") as bank:
        waits.touch()
        bank.write.commit_step(*a_step(1))
        assert bank.steps.has("r", 1)
    assert not waits.exists()
