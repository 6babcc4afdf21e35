"""Vectors that lead elsewhere are refused before Lance opens anything; those that this program writes are opened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from memrl_core.bank import EmbedderIdentity, MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage import lance_files, vectors
from memrl_core.bank.storage.folders import copy_bank
from memrl_core.bank.storage.lance_files import LeadsElsewhere, must_stay_inside
from memrl_core.errors import BankDamaged, InputError
from memrl_core.exchange import archive
from tests.builders import a_chain
from tests.object_store import object_store, set_environment

TABLE = "memories.lance"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    a_chain(tmp_path / "bank", 4).close()
    return tmp_path / "bank"


def connection(place: Path | str) -> Any:
    return lancedb.connect(str(place))


def opened_table(bank: Path) -> Any:
    return connection(bank / "vectors").open_table("memories")


def manifests(bank: Path) -> list[Path]:
    return sorted((bank / "vectors" / TABLE / "_versions").glob("*.manifest"))


def number(value: int) -> bytes:
    digits = b""
    while value > 127:
        digits, value = digits + bytes([value & 127 | 128]), value >> 7
    return digits + bytes([value])


def field(key: int, value: bytes | int) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    return number(key << 3 | 2) + number(len(value)) + value


def with_fields(manifest: Path, *more: bytes) -> None:
    """Add fields to the message in a manifest's file."""
    data = manifest.read_bytes()
    start = int.from_bytes(data[-16:-8], "little")
    message = data[start + 4 : -16] + b"".join(more)
    manifest.write_bytes(data[:start] + len(message).to_bytes(4, "little") + message + data[-16:])


def base(path: bytes) -> bytes:
    return field(18, field(3, 1) + field(4, path))


def fragment(path: bytes, *more: bytes) -> bytes:
    return field(2, field(2, field(1, path) + b"".join(more)))


def transaction(bank: Path, *fields: bytes) -> None:
    next((bank / "vectors" / TABLE / "_transactions").glob("*.txn")).write_bytes(b"".join(fields))


# --- ways out of the folder -------------------------------------------------------------------------------------------


def shallow_clone(bank: Path) -> None:
    source = bank.rename(bank.with_name("source"))
    shutil.copytree(source, bank, ignore=shutil.ignore_patterns("vectors"))
    connection(bank / "vectors").clone_table("memories", str(source / "vectors" / TABLE))


def clone_without_its_transaction(bank: Path) -> None:
    shallow_clone(bank)
    shutil.rmtree(bank / "vectors" / TABLE / "_transactions")


def base_in_an_old_version(bank: Path) -> None:
    with_fields(manifests(bank)[-1], base(b"/etc"))


def branch(bank: Path) -> None:
    opened_table(bank).branches.create("other")


def tag(bank: Path) -> None:
    table = opened_table(bank)
    table.tags.create("mine", table.version)


def table_of_tables(bank: Path) -> None:
    connection(bank / "vectors").create_table("__manifest", schema=pa.schema({"location": pa.string()}))


def column_with_metadata(bank: Path) -> None:
    made = pa.field("far", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    opened_table(bank).add_columns(pa.schema([made]))


def index(bank: Path) -> None:
    opened_table(bank).create_index("id", config=lancedb.index.BTree())


def linked_data(bank: Path) -> None:
    data = bank / "vectors" / TABLE / "data"
    data.symlink_to(data.rename(bank.with_name("elsewhere")))


def linked_file(bank: Path) -> None:
    file = next((bank / "vectors" / TABLE / "data").iterdir())
    file.symlink_to(file.rename(bank.with_name("elsewhere")))


def linked_vectors(bank: Path) -> None:
    (bank / "vectors").symlink_to((bank / "vectors").rename(bank.with_name("elsewhere")))


WAYS: list[Callable[[Path], object]] = [
    shallow_clone, clone_without_its_transaction, base_in_an_old_version, branch, tag, table_of_tables,
    column_with_metadata, index, linked_data, linked_file, linked_vectors,
]  # fmt: skip
FIELDS = {
    "a base elsewhere": base(b"s3://bucket/bank"),
    "a base of no path": field(18, b""),
    "a base before the rest": number(18 << 3 | 2) + b"\x82\x80\x00" + field(1, 7),
    "metadata of the schema": field(5, field(1, b"embedding_functions") + field(2, b"[]")),
    "indexes": field(6, 0),
    "a tag": field(8, b"x"),
    "configuration": field(16, field(1, b"a") + field(2, b"b")),
    "a branch": field(20, b"x"),
    "a transaction elsewhere": field(12, b"../../x.txn"),
    "an absolute file": fragment(b"/etc/passwd"),
    "a file at an address": fragment(b"s3://bucket/x.lance"),
    "a file above": fragment(b"../x.lance"),
    "a file of a base": fragment(b"x.lance", field(7, 0)),
    "deletions of a base": field(2, field(3, field(7, 0))),
    "rows in another file": field(2, field(6, field(1, b"/etc/passwd"))),
    "an overlay": field(2, field(11, b"")),
    "a field with metadata": field(1, field(2, b"x") + field(10, field(1, b"a") + field(2, b"b"))),
    "a place in what a later version may add": field(90, b"https://host"),
    "a group": number(30 << 3 | 3) + number(30 << 3 | 4),
    "an end that is missing": field(2, b"x" * 20)[:-1],
}
TRANSACTIONS = {
    "a clone": field(113, field(1, 1) + field(4, b"/etc")),
    "a base": field(114, field(1, field(4, b"s3://bucket"))),
    "a first base": field(102, field(5, field(4, b"s3://bucket"))),
    "a file elsewhere": field(100, field(1, field(2, field(1, b"/etc/passwd")))),
    "new indexes": field(103, field(1, b"")),
}


def refused(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to open the bank says that its vectors lead elsewhere, and Lance is not even started."""
    monkeypatch.setattr(vectors, "connect", lambda *_: pytest.fail("Lance was asked to open it"))
    with pytest.raises(BankDamaged, match="elsewhere"):
        MemoryBank.open(str(bank))
    with pytest.raises(BankDamaged, match="elsewhere"):
        vectors.LanceVectors.create(str(bank / "vectors"), 8)
    with pytest.raises(BankDamaged, match="elsewhere"):
        copy_bank(bank, bank.with_name("copy"))
    toml = bank.with_suffix(".toml")
    toml.write_text(f'database = "{bank / "bank.db"}"\nvectors = "{bank / "vectors"}"\n')
    with pytest.raises(BankDamaged, match="elsewhere"):
        MemoryBank.open(str(toml))
    assert [finding.name for finding in check(str(bank)) if not finding.ok] == ["memories"]
    if not any(path.is_symlink() for path in bank.rglob("*")):  # Of a link, a zip holds the contents.
        zipped = bank.with_suffix(".zip")
        with zipped.open("wb") as file:
            archive._write_zip(file, bank, EmbedderIdentity("x", 8))
        with pytest.raises(InputError, match="Nothing was imported"):
            archive.read_bank(zipped)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_vectors_that_lead_elsewhere_are_never_opened(
    bank: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path], object]
) -> None:
    way(bank)
    refused(bank, monkeypatch)


@pytest.mark.parametrize("added", FIELDS.values(), ids=FIELDS)
def test_a_manifest_with_a_way_out_is_refused(bank: Path, monkeypatch: pytest.MonkeyPatch, added: bytes) -> None:
    with_fields(manifests(bank)[0], added)
    refused(bank, monkeypatch)


@pytest.mark.parametrize("operation", TRANSACTIONS.values(), ids=TRANSACTIONS)
def test_a_transaction_with_a_way_out_is_refused(bank: Path, monkeypatch: pytest.MonkeyPatch, operation: bytes) -> None:
    transaction(bank, field(1, 1), operation)
    refused(bank, monkeypatch)


def test_a_transaction_within_a_manifest_is_looked_at_too(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = manifests(bank)[0]
    data, hostile = newest.read_bytes(), field(1, 1) + TRANSACTIONS["a clone"]
    section = len(hostile).to_bytes(4, "little") + hostile
    start = len(section) + int.from_bytes(data[-16:-8], "little")
    newest.write_bytes(section + data[:-16] + start.to_bytes(8, "little") + data[-8:])
    refused(bank, monkeypatch)


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-16] + bytes(16)])
def test_what_is_no_manifest_is_refused(
    bank: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    newest = manifests(bank)[0]
    newest.write_bytes(change(newest.read_bytes()))
    refused(bank, monkeypatch)


def test_a_manifest_that_is_too_large_is_not_read(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_files, "LARGEST", 100)
    refused(bank, monkeypatch)


def test_a_table_after_all_that_this_program_does_to_it_stays_inside(bank: Path) -> None:
    table = opened_table(bank)
    table.delete("id = 'r-0002'")
    table.update(where="id = 'r-0003'", values={"task": "other"})
    must_stay_inside(bank / "vectors", "memories", exactly=True)
    table.optimize(cleanup_older_than=timedelta(seconds=5))
    table.restore(2)
    must_stay_inside(bank / "vectors", "memories", exactly=True)
    (bank / "vectors" / TABLE / ".DS_Store").touch()
    with_fields(manifests(bank)[0], field(90, b"what a later version may add"), field(91, 1))
    must_stay_inside(bank / "vectors", "memories")
    with pytest.raises(LeadsElsewhere):
        must_stay_inside(bank / "vectors", "memories", exactly=True)


# --- the network ------------------------------------------------------------------------------------------------------


def test_a_clone_of_an_object_store_asks_it_nothing(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store("key", "secret") as store:
        set_environment(store, monkeypatch)
        store.buckets["bucket"] = {}
        rows = opened_table(bank).to_arrow()
        connection(far := "s3://bucket/far").create_table("other", rows)
        connection(far).clone_table("memories", f"{far}/other.lance")
        shutil.rmtree(bank / "vectors")
        for key, data in store.buckets["bucket"].items():
            if key.startswith(f"far/{TABLE}/"):
                file = bank / "vectors" / key.removeprefix("far/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        assert opened_table(bank).to_arrow() == rows
        store.requests.clear()
        with pytest.raises(BankDamaged):
            MemoryBank.open(str(bank))
        assert [finding.name for finding in check(str(bank)) if not finding.ok] == ["memories"]
        assert store.requests == []
        opened_table(bank).to_arrow()
        assert store.requests, "Lance itself asks the store"
