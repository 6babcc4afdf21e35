"""Banks of a folder: listed, copied and deleted whole."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.begun import BegunStep, StepMark
from memrl_core.bank.storage.places import copy_bank, delete_bank, list_banks, valid_name
from memrl_core.errors import BankFull, BankMissing, BankReadOnly, InputError, NotABank
from tests.builders import a_bank, a_step


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    with a_bank(tmp_path / "bank") as made:
        made.commit_step(*a_step(1))
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
        copy.commit_step(*a_step(2))
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


@pytest.mark.parametrize("name", ["", "  ", "../up", "a/b", ".hidden", "x" * 61, "naïve", "tab\t", "nul\x00"])
def test_names_that_are_no_folder_names_are_refused(name: str) -> None:
    if name == "tab\t":
        assert valid_name(name) == "tab"
        return
    with pytest.raises(InputError, match="A bank's name"):
        valid_name(name)
