"""What comes from elsewhere into a bank: its own files, and those of the official code."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_STORED, ZipFile, ZipInfo

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.exchange.archive import bank_bytes, read_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.reading import read_any
from tests.builders import DIMENSION
from tests.fuzz.mutations import Cut, Edit, as_json, cut, cuts, edited, edits, reals, texts, wholes
from tests.fuzz.sources import (
    archive,
    bank_path,
    copied,
    facts_of,
    is_a_sentence,
    is_whole,
    jsonl,
    official_files,
    small_bank_path,
)

MEMBERS = ("run.json", "steps.jsonl", "ledger.jsonl", "memories.parquet")
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
        again = folder / "again.jsonl"
        again.write_bytes(bank_bytes(bank, "jsonl"))
        contents = read_bank(again)
        assert set(contents.memories) == set(bank.memory_ids())
        assert [event.id for event in contents.events] == [event.id for event in bank.events()]


@dataclass(frozen=True, slots=True)
class Line:
    """One change to the lines of a file: a line goes, stands twice, moves to the front, or is edited."""

    how: str
    at: int
    edits: Sequence[Edit] = ()


def lines(most: int = 3) -> st.SearchStrategy[list[Line]]:
    """A few changes to lines, most of them edits."""
    how = st.sampled_from(["edit", "edit", "edit", "edit", "drop", "double", "first"])
    return st.lists(st.builds(Line, how, st.integers(0, 500), edits(2)), min_size=1, max_size=most)


def spoilt(records: Sequence[Any], changes: Sequence[Line], is_counted: bool) -> list[Any]:
    """The lines of a bank's file with all changes made; with `is_counted`, its header counts what there is then."""
    made = list(records)
    for change in changes:
        at = change.at % len(made)
        if change.how == "edit":
            made[at] = edited(made[at], change.edits)
        elif change.how == "double":
            made.insert(at, made[at])
        elif len(made) > 1:
            line = made.pop(at)
            made[0:0] = [line] if change.how == "first" else []
    if is_counted and isinstance(made[0], dict) and isinstance(made[0].get("counts"), dict):
        keys = {"memories": "memory", "steps": "step", "ledger": "event"}
        counted = {name: sum(isinstance(m, dict) and key in m for m in made) for name, key in keys.items()}
        made[0] = {**made[0], "counts": counted}
    return made


@dataclass(frozen=True, slots=True)
class JsonlCase:
    """Changes to the JSONL file of a bank."""

    lines: list[Line]
    is_counted: bool
    cuts: list[Cut]
    into: str


JSONL_CASES = st.builds(JsonlCase, lines(), st.booleans(), st.just([]) | cuts(1), st.sampled_from(PLACES))


def check_jsonl(case: JsonlCase, folder: Path) -> None:
    """A bank's JSONL file."""
    text = "\n".join(map(as_json, spoilt(jsonl(), case.lines, case.is_counted)))
    path = folder / "bank.jsonl"
    path.write_bytes(cut(text.encode("utf-8", "surrogatepass"), case.cuts))
    taken_or_refused(path, folder, case.into)


@dataclass(frozen=True, slots=True)
class ZipCase:
    """Changes to the zip of a bank: to the lines of its members, a member's bytes, how it is packed, its own bytes."""

    lines: list[Line]
    member: str
    inside: list[Cut]
    packing: str
    cuts: list[Cut]
    into: str


PACKINGS = ("", "", "", "stored", "bzip2", "twice", "stranger", "out", "link", "missing", "empty", "comment", "sizes")
ZIP_CASES = st.builds(
    ZipCase,
    st.just([]) | lines(2),
    st.sampled_from(MEMBERS),
    st.just([]) | cuts(1),
    st.sampled_from(PACKINGS),
    st.just([]) | cuts(1),
    st.sampled_from(PLACES),
)


def check_zip(case: ZipCase, folder: Path) -> None:
    """A bank's zip."""
    path = folder / "bank.zip"
    path.write_bytes(cut(_packed(_members(case), case), case.cuts))
    taken_or_refused(path, folder, case.into)


def _members(case: ZipCase) -> dict[str, bytes]:
    with ZipFile(io.BytesIO(archive("zip"))) as whole:
        members = {name: whole.read(name) for name in MEMBERS}
    if case.lines:
        made = spoilt(jsonl(), case.lines, False)
        members["run.json"] = as_json(made[0]).encode()
        for name, key in (("steps.jsonl", "step"), ("ledger.jsonl", "event")):
            found = [as_json(one[key]) for one in made[1:] if isinstance(one, dict) and key in one]
            members[name] = "\n".join(found).encode()
    members[case.member] = cut(members[case.member], case.inside)
    return members


def _packed(members: dict[str, bytes], case: ZipCase) -> bytes:
    file = io.BytesIO()
    kind = {"stored": ZIP_STORED, "bzip2": ZIP_BZIP2}.get(case.packing, 8)
    with ZipFile(file, "w", kind) as packed:
        for name, data in members.items():
            if name == case.member and case.packing == "missing":
                continue
            packed.writestr(name, b"" if name == case.member and case.packing == "empty" else data)
            if name == case.member and case.packing == "twice":
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
class Cell:
    """One value of a table: in which row and column, counted around the end. `text`, `whole` and `real` by its type."""

    row: int
    column: int
    text: str | None
    whole: int | None
    real: float | None


@dataclass(frozen=True, slots=True)
class ParquetCase:
    """Changes to the Parquet file of a bank: cells, a column that goes, its header, its bytes."""

    cells: list[Cell]
    without: int | None
    header: list[Edit]
    cuts: list[Cut]
    into: str


CELLS = st.builds(
    Cell,
    st.integers(0, 50),
    st.integers(0, 50),
    st.none() | texts(),
    st.none() | wholes(),
    st.none() | reals(),
)
PARQUET_CASES = st.builds(
    ParquetCase,
    st.lists(CELLS, max_size=4),
    st.just(None) | st.none() | st.integers(0, 20),
    st.just([]) | edits(2),
    st.just([]) | cuts(1),
    st.sampled_from(PLACES),
)


def check_parquet(case: ParquetCase, folder: Path) -> None:
    """A bank's Parquet file."""
    table = pq.read_table(io.BytesIO(archive("parquet")))
    for cell in case.cells:
        table = with_cell(table, cell)
    if case.without is not None:
        table = table.remove_column(case.without % table.num_columns)
    if case.header:
        told = as_json(edited(jsonl()[0], case.header))
        table = table.replace_schema_metadata({b"memrl-bank": told.encode("utf-8", "surrogatepass")})
    file = io.BytesIO()
    pq.write_table(table, file)
    path = folder / "bank.parquet"
    path.write_bytes(cut(file.getvalue(), case.cuts))
    taken_or_refused(path, folder, case.into)


def with_cell(table: pa.Table, cell: Cell) -> pa.Table:
    """The table with another value in one place, as far as its column can hold one; texts as null where they cannot."""
    at = cell.column % table.num_columns
    field = table.schema.field(at)
    column = table.column(at).to_pylist()
    row = cell.row % len(column)
    column[row] = _fitting(field.type, column[row], cell)
    try:
        return table.set_column(at, field, pa.array(column, field.type))
    except (pa.ArrowException, ValueError, OverflowError):
        return table


def _fitting(kind: pa.DataType, now: Any, cell: Cell) -> Any:
    if pa.types.is_string(kind):
        return cell.text
    if pa.types.is_integer(kind):
        return cell.whole
    if pa.types.is_floating(kind):
        return cell.real
    if pa.types.is_fixed_size_list(kind):
        return None if cell.real is None else [cell.real, *(now or [0.0] * DIMENSION)[1:]]
    if pa.types.is_struct(kind.value_type):
        return None if cell.text is None else [{"run": cell.text, "q": cell.real, "visits": cell.whole}]
    return None if cell.whole is None else [cell.text]


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
