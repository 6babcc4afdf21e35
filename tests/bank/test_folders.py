"""Banks of a folder: listed, copied and deleted whole."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from lancedb.db import LanceDBConnection
from lancedb.table import LanceTable

from memrl_core.bank import MemoryBank
from memrl_core.bank.begun import BegunStep, StepMark
from memrl_core.bank.storage import connecting
from memrl_core.bank.storage.folders import copy_bank, delete_bank, disk_sentences, list_banks, valid_name
from memrl_core.errors import BankError, BankFull, BankMisplaced, BankMissing, BankReadOnly, InputError, NotABank
from memrl_core.exchange.bring_in import read_any
from tests.builders import a_bank, a_step


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    with a_bank(tmp_path / "bank") as made:
        made.write.commit_step(*a_step(1))
    return tmp_path / "bank"


def test_only_banks_are_listed_by_name(bank: Path) -> None:
    a_bank(bank.with_name("another")).close()
    bank.with_name("folder").mkdir()
    shutil.copytree(bank, bank.with_name(".draft"))
    assert [summary.name for summary in list_banks(bank.parent)] == ["another", "bank"]


def test_a_copy_holds_everything_and_goes_its_own_way(bank: Path) -> None:
    under_way = StepMark(str(bank), "r")
    under_way.set(BegunStep(2, "cool the egg", "2026-11-23T08:00"))
    copy_bank(bank, bank.with_name("copy"))
    assert not list(bank.with_name("copy").glob("begun-*"))
    under_way.clear()
    with MemoryBank.open(str(bank.with_name("copy"))) as copy:
        assert copy.view("r").size == 1
        copy.write.commit_step(*a_step(2))
    assert MemoryBank.open(str(bank)).view("r").size == 1


def test_a_copy_that_is_cut_short_leaves_nothing_behind(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("memrl_core.bank.storage.vectors.LanceVectors.append", full)
    with pytest.raises(BankFull, match="disk is full"):
        copy_bank(bank, bank.with_name("copy"))
    assert [path.name for path in bank.parent.iterdir()] == ["bank"]


def test_what_cannot_be_copied_is_said(bank: Path) -> None:
    with pytest.raises(BankMissing):
        copy_bank(bank.with_name("nothing"), bank.with_name("copy"))
    with pytest.raises(NotABank):
        copy_bank(bank.parent, bank.with_name("copy"))
    with pytest.raises(NotABank, match="already stored"):
        copy_bank(bank, bank)
    with pytest.raises(InputError, match="on this machine"):
        copy_bank("s3://somewhere/bank", bank.with_name("copy"))


def test_a_deleted_bank_is_gone_and_nothing_else_is_deleted(bank: Path) -> None:
    delete_bank(bank)
    assert list(bank.parent.iterdir()) == []
    keep = bank.with_name("photos")
    keep.mkdir()
    with pytest.raises(NotABank):
        delete_bank(keep)
    assert keep.exists()


def test_a_folder_that_cannot_be_changed_is_said(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(BankReadOnly, match="writable"):
        delete_bank(bank)
    assert MemoryBank.open(str(bank)).view("r").size == 1


def refused(*given: object, **more: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(
    "raised",
    [
        RuntimeError("LanceError(IO): Unable to rename file: Operation not permitted (os error 1)"),
        NotImplementedError("the filesystem does not support an operation required for safe Lance commits"),
    ],
)
def test_a_place_without_hard_links_is_named_and_nothing_is_left_there(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    def commit(*given: object, **more: object) -> None:
        raise raised

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(LanceDBConnection, "create_table", commit)
    monkeypatch.setattr(LanceTable, "add", commit)
    for place in (tmp_path / "new", tmp_path / "deep" / "new"):
        with pytest.raises(BankMisplaced, match=r"no hard links.*a local disk"):
            MemoryBank.create(str(place), "hashing", 8)
        assert not place.exists()
    with MemoryBank.open(str(bank)) as kept:
        with pytest.raises(BankMisplaced, match=r"no hard links.*a local disk"):
            kept.write.commit_step(*a_step(2))
        assert kept.next_step("r") == 2


def test_a_place_that_has_hard_links_and_refuses_is_not_writable(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(*given: object, **more: object) -> None:
        raise RuntimeError("LanceError(IO): Operation not permitted (os error 1)")

    monkeypatch.setattr(LanceTable, "add", commit)
    with MemoryBank.open(str(bank)) as kept, pytest.raises(BankReadOnly, match="cannot be written"):
        kept.write.commit_step(*a_step(2))


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_PROTOCOL, 0])
def test_a_place_without_a_shared_log_is_named_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Cursor(sqlite3.Cursor):
        def execute(self, statement: str, *values: Any) -> Any:
            if "journal_mode" not in statement:
                return super().execute(statement, *values)
            if not code:
                return super().execute("SELECT 'delete'")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = code
            raise error

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = None) -> Any:
            return super().cursor(Cursor)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, factory=Connection))
    with pytest.raises(BankMisplaced, match=r"write-ahead log.*a local disk"):
        MemoryBank.create(str(tmp_path / "new"), "hashing", 8)
    assert not (tmp_path / "new").exists()


def test_a_place_without_locks_is_told_from_one_that_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "PATIENCE", 0.1)
    a_bank(tmp_path / "bank").close()
    busy = sqlite3.connect(tmp_path / "bank" / "bank.db", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        with pytest.raises(BankError, match="Another process"):
            bank.write.commit_step(*a_step(1))
        monkeypatch.setattr(pytest.importorskip("fcntl"), "lockf", refused)
        with pytest.raises(BankMisplaced, match=r"no locks.*a local disk"):
            bank.write.commit_step(*a_step(1))
    busy.close()


@pytest.mark.parametrize(
    "name", ["", "  ", "../up", "a/b", ".hidden", "..", "-rf", "x" * 61, "naïve", "tab\t", "nul\x00"]
)
def test_names_that_are_no_folder_names_are_refused(name: str) -> None:
    if name == "tab\t":
        assert valid_name(name) == "tab"
        return
    with pytest.raises(InputError, match="A bank's name"):
        valid_name(name)


@pytest.mark.parametrize("path", ["x" * 5000, "x" * 300, "y/" * 3000, "nul\x00"])
@pytest.mark.parametrize("ending", ["", ".toml"])
def test_a_path_that_no_file_can_have_is_said(tmp_path: Path, path: str, ending: str) -> None:
    for uri in (path + ending, str(tmp_path / path) + ending):
        with pytest.raises(NotABank, match=r"path may be|NUL"):
            MemoryBank.open(uri)
        with pytest.raises(NotABank, match=r"path may be|NUL"):
            MemoryBank.create(uri, "x", 8)
        with pytest.raises(NotABank, match=r"path may be|NUL"):
            read_any(Path(uri))


@pytest.mark.parametrize("key", ["database", "vectors"])
def test_a_toml_file_that_names_a_path_that_cannot_be_is_said(tmp_path: Path, key: str) -> None:
    named = {"database": "bank.db", "vectors": "vectors", key: "x" * 5000}
    file = tmp_path / "team.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in named.items()))
    for door in (MemoryBank.open, lambda uri: MemoryBank.create(uri, "x", 8)):
        with pytest.raises(NotABank, match="path may be"):
            door(str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["team.toml"]


def test_the_folder_that_cannot_be_written_is_named_and_no_draft_in_it(tmp_path: Path) -> None:
    with pytest.raises(BankReadOnly) as refused, disk_sentences(tmp_path / ".new-1a2b" / "bank.db"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / ".new-1a2b"))
    assert str(refused.value).startswith(f"{tmp_path} cannot be changed (Read-only file system).")
    assert ".new" not in str(refused.value)
