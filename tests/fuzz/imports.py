"""What comes from elsewhere into a bank: its own files, and those of the official code."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import struct
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_STORED, ZipFile, ZipInfo

from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.exchange.archive import MANIFEST, read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in, read_any
from tests.fuzz.mutations import Cut, Edit, as_json, cut, cuts, edited, edits, reals, texts, wholes
from tests.fuzz.sources import (
    archive,
    bank_path,
    copied,
    facts_of,
    is_a_sentence,
    is_whole,
    official_files,
    small_bank_path,
)

PLACES = ("a new bank", "the same bank", "another bank")


def taken_or_refused(path: Path, folder: Path, into: str) -> None:
    """Whatever stands at `path` is refused in a sentence, or comes into a bank that is whole then."""
    target = _target(folder, into)
    before = facts_of(target) if target.exists() else None
    try:
        contents = read_any(path)
        arrival = bring_in(contents, str(target))
    except MemRLError as error:
        is_a_sentence(error)
        assert (facts_of(target) if target.exists() else None) == before, "refused, and the bank is another"
        return
    assert arrival.account.read
    is_whole(target)
    if before is None:
        _comes_back(target, folder)


def _target(folder: Path, into: str) -> Path:
    if into == "a new bank":
        return folder / "new"
    return copied(bank_path() if into == "the same bank" else small_bank_path(), folder)


def _comes_back(uri: Path, folder: Path) -> None:
    with MemoryBank.open(str(uri)) as bank:
        again = folder / "again.zip"
        write_bank(bank, again)
        contents = read_bank(again)
        assert set(contents.memories) == set(bank.memory_ids())
        assert [event.id for event in contents.events] == [event.id for event in bank.events()]


@dataclass(frozen=True, slots=True)
class Cell:
    """Another value in one place of the database: table, row and column are counted around the end."""

    table: int
    row: int
    column: int
    value: str | int | float | bytes | None


@dataclass(frozen=True, slots=True)
class ZipCase:
    """Changes to the zip of a bank: cells of its database, the manifest, a member's bytes, how it is packed."""

    cells: list[Cell]
    manifest: list[Edit]
    member: int
    inside: list[Cut]
    is_described: bool
    packing: str
    cuts: list[Cut]
    into: str


VALUES = st.none() | texts() | wholes().filter(lambda n: abs(n) < 2**63) | reals() | st.binary(max_size=8)
CELLS = st.builds(Cell, st.integers(0, 50), st.integers(0, 500), st.integers(0, 50), VALUES)
PACKINGS = ("", "", "", "stored", "bzip2", "twice", "stranger", "out", "link", "missing", "empty", "comment", "sizes")
ZIP_CASES = st.builds(
    ZipCase,
    st.lists(CELLS, max_size=3),
    st.just([]) | edits(2),
    st.integers(0, 50),
    st.just([]) | cuts(1),
    st.booleans(),
    st.sampled_from(PACKINGS),
    st.just([]) | cuts(1),
    st.sampled_from(PLACES),
)


def check_zip(case: ZipCase, folder: Path) -> None:
    """A bank's zip."""
    path = folder / "bank.zip"
    path.write_bytes(cut(_packed(_members(case, folder), case), case.cuts))
    taken_or_refused(path, folder, case.into)


def _members(case: ZipCase, folder: Path) -> dict[str, bytes]:
    with ZipFile(io.BytesIO(archive())) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    if case.cells:
        path = folder / "spoiled.db"
        path.write_bytes(members["bank.db"])
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for cell in case.cells:
                _put(database, cell)
        members["bank.db"] = path.read_bytes()
    names = list(members)
    member = names[case.member % len(names)]
    members[member] = cut(members[member], case.inside)
    if member != MANIFEST:
        manifest = json.loads(members[MANIFEST])
        if case.is_described:
            for name, described in manifest["files"].items():
                described |= {"bytes": len(members[name]), "sha256": hashlib.sha256(members[name]).hexdigest()}
        members[MANIFEST] = as_json(edited(manifest, case.manifest)).encode("utf-8", "surrogatepass")
    return members


def _put(database: sqlite3.Connection, cell: Cell) -> None:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
    tables = [name for (name,) in database.execute(query)]
    table = tables[cell.table % len(tables)]
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    ((rows,),) = database.execute(f"SELECT count(*) FROM {table}")
    triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        database.execute(f"DROP TRIGGER {name}")
    key = columns[cell.column % len(columns)]
    where = " AND ".join(f'"{column}" IS ?' for column in columns)
    row = database.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (cell.row % max(1, rows),)).fetchone()
    # A value of which the table says that it cannot stand there is not put there.
    with suppress(sqlite3.Error, UnicodeEncodeError):
        if row is not None:
            database.execute(f'UPDATE {table} SET "{key}" = ? WHERE {where}', (cell.value, *row))
    for _, statement in triggers:
        database.execute(statement)


def _packed(members: dict[str, bytes], case: ZipCase) -> bytes:
    file = io.BytesIO()
    kind = {"stored": ZIP_STORED, "bzip2": ZIP_BZIP2}.get(case.packing, 8)
    odd = list(members)[case.member % len(members)]
    with ZipFile(file, "w", kind) as packed:
        for name, data in members.items():
            if name == odd and case.packing == "missing":
                continue
            packed.writestr(name, b"" if name == odd and case.packing == "empty" else data)
            if name == odd and case.packing == "twice":
                packed.writestr(name, data)
        if case.packing in ("stranger", "out", "link"):
            stranger = ZipInfo("../out.txt" if case.packing == "out" else "notes.txt")
            stranger.external_attr = (0o120777 if case.packing == "link" else 0o100644) << 16
            packed.writestr(stranger, b"x")
        if case.packing == "comment":
            packed.comment = b"PK\x05\x06" * 9
    data = file.getvalue()
    if case.packing == "sizes":  # The sizes that the list at the end gives to its first member.
        at = data.find(b"PK\x01\x02")
        data = data[: at + 20] + struct.pack("<II", 3, 2**31) + data[at + 28 :]
    return data


@dataclass(frozen=True, slots=True)
class OfficialCase:
    """Changes to what the official code left: edits of some files by number, bytes of one, files that are not there."""

    edits: list[tuple[int, list[Edit]]]
    absent: set[int]
    cut: int
    cuts: list[Cut]


OFFICIAL_CASES = st.builds(
    OfficialCase,
    st.lists(st.tuples(st.integers(0, 9), edits(3)), max_size=3),
    st.sets(st.integers(0, 9), max_size=3),
    st.integers(0, 9),
    st.just([]) | cuts(2),
)


def check_official(case: OfficialCase, folder: Path) -> None:
    """A checkpoint with the files of its runs, and a table of results."""
    root = folder / "checkpoint"
    for number, (name, sound) in enumerate(official_files().items()):
        if number in case.absent:
            continue
        changes = [change for at, some in case.edits if at == number for change in some]
        tree = edited(sound, changes)
        listed = name.endswith(".jsonl") and isinstance(tree, list)
        data = ("\n".join(map(as_json, tree)) if listed else as_json(tree)).encode("utf-8", "surrogatepass")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cut(data, case.cuts if number == case.cut else ()))
    root.mkdir(exist_ok=True)
    taken_or_refused(root, folder, "a new bank")
