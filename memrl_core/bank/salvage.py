"""Tables read in spite of damage: in batches while they are whole, cell by cell where they are not.

A version of a table that cannot be opened, and rows of the newest version that cannot be read, are looked for in older
versions: rows are only ever appended, so what an older version holds belongs to the newest too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memrl_core.bank.addresses import connect, is_local
from memrl_core.bank.codec import schemas
from memrl_core.bank.journal import Readable, raw, readable
from memrl_core.bank.store import PANICS
from memrl_core.errors import BankDamaged

AT_ONCE = 2000
FINEST = 4096
"""A column is halved until the part that cannot be read is a row, or this fraction of a large table."""


@dataclass(slots=True)
class Salvaged:
    """What could be read of a table. A row's cell that could not be read is absent from its dictionary.

    `announced` is how many rows the newest version says it has, None when it cannot be opened. `older` says that rows
    came from older versions, or that no newer one could be opened. `dimension` is how many numbers the embedding
    column holds; 0 where that is not known.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    announced: int | None = None
    older: bool = False
    dimension: int = 0

    @property
    def lost(self) -> int | None:
        """How many rows could not be read at all; None when nobody can tell."""
        return None if self.announced is None else max(0, self.announced - len(self.rows))


def opened(uri: str, name: str) -> Any:
    """A table at its newest version. Raises `BankDamaged`."""
    with _damage(uri, name):
        if is_local(uri) and not (Path(uri) / f"{name}.lance").is_dir():
            raise ValueError("The folder of the table is not there.")
        return connect(uri).open_table(name)


def journaled(uri: str, dimension: int) -> Readable:
    """What can be read of the journal of a bank whose embeddings have `dimension` numbers."""
    return readable(raw(Path(uri)), schemas(max(1, dimension)))


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, embeddings as (d,) arrays."""
    return [row for batch in table.to_batches() for row in _rows_of(batch)]


def dimension_of(table: Any) -> int:
    """How many numbers the embeddings of an opened table have by its schema; 0 when it has no such column."""
    schema = table.schema
    kind = schema.field("embedding").type if "embedding" in schema.names else pa.null()
    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 0


def batches(uri: str, name: str, table: Any) -> Iterator[list[dict[str, Any]]]:
    """All rows of an opened table, a part at a time, embeddings as (d,) arrays. Raises `BankDamaged`."""
    with _damage(uri, name):
        reader = table.search().limit(max(1, table.count_rows())).to_batches(AT_ONCE)
    while True:
        with _damage(uri, name):
            batch = next(reader, None)
            if batch is None:
                return
            rows = _rows_of(batch)
        yield rows


def versions_lost(uri: str, name: str, version: int) -> int:
    """How many versions of a table came after `version`, the newest that is still there, by the note Lance keeps."""
    if not is_local(uri):
        return 0
    hint = Path(uri) / f"{name}.lance" / "_versions" / "latest_version_hint.json"
    try:
        noted = json.loads(hint.read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return max(0, noted - version) if isinstance(noted, int) else 0


def salvaged(uri: str, name: str) -> Salvaged:
    """Whatever can be read of a table of a bank on this machine, however damaged it is. Nothing is changed."""
    found = Salvaged()
    with tempfile.TemporaryDirectory(prefix="memrl-salvage-") as place:
        table = _openable(Path(uri), name, Path(place), found)
        if table is None:
            return found
        found.dimension = dimension_of(table)
        found.rows, complete = _read(table)
        if not complete and "id" in schemas(1)[name].names:
            _take_older(table, found)
    return found


def _openable(bank: Path, name: str, place: Path, found: Salvaged) -> Any:
    """The newest version that opens: of the table itself, or of a stand-in without the manifests that do not."""
    try:
        table = opened(str(bank), name)
        found.announced = int(table.count_rows())
        return table
    except Exception:
        found.announced, found.older = None, True
    here, stand_in = bank / f"{name}.lance", place / f"{name}.lance"
    if not (here / "_versions").is_dir():
        return None
    stand_in.mkdir()
    shutil.copytree(here / "_versions", stand_in / "_versions")
    (stand_in / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)
    if (here / "data").is_dir():
        (stand_in / "data").symlink_to((here / "data").resolve(), target_is_directory=True)
    # Lance numbers its manifests backwards: the first by name is the newest.
    for manifest in sorted((stand_in / "_versions").glob("*.manifest")):
        try:
            table = opened(str(place), name)
            table.count_rows()
            return table
        except Exception:
            manifest.unlink()
    return None


def _take_older(table: Any, found: Salvaged) -> None:
    here = {row["id"] for row in found.rows if "id" in row}
    try:
        versions = sorted((int(version["version"]) for version in table.list_versions()), reverse=True)[1:]
    except Exception:
        return
    whole = {row["id"]: at for at, row in enumerate(found.rows) if "id" in row}
    for version in versions:
        try:
            table.checkout(version)
            rows, complete = _read(table)
        except Exception:
            continue
        width = len(table.schema.names)
        for row in rows:
            if "id" not in row or len(row) < width:
                continue
            if row["id"] not in here:
                here.add(row["id"])
                found.rows.append(row)
                found.older = True
            elif row["id"] in whole and len(found.rows[whole[row["id"]]]) < width:
                found.rows[whole[row["id"]]] = row
                found.older = True
        if complete:
            return


def _read(table: Any) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a version, and whether every cell was read."""
    count = int(table.count_rows())
    try:
        rows = [row for part in batches("", "", table) for row in part]
        if len(rows) == count and all(len(row) == len(table.schema.names) for row in rows):
            return rows, True
    except BankDamaged:
        pass
    made: list[dict[str, Any]] = [{} for _ in range(count)]
    columns, finest = list(table.schema.names), max(1, count // FINEST)
    for first, last in _joined(_fill(table, columns, made, 0, count, finest)):
        for column in columns:
            _fill(table, [column], made, first, last, finest)
    return [row for row in made if row], False


def _fill(
    table: Any, columns: list[str], made: Sequence[dict[str, Any]], first: int, last: int, finest: int
) -> list[tuple[int, int]]:
    """Put the readable cells of these columns into the rows from `first` to before `last`.

    Returns the parts that cannot be read, but for those whose file is gone: those have no column that can.
    """
    if first >= last:
        return []
    try:
        with _damage("", ""):
            part = table.search().select(columns).limit(last - first).offset(first).to_arrow()
            cells = [row for batch in part.to_batches() for row in _rows_of(batch)]
        if len(cells) == last - first:
            for row, cell in zip(made[first:last], cells, strict=True):
                row.update(cell)
            return []
        is_gone = False
    except BankDamaged as error:
        is_gone = "not found" in str(error.__cause__).lower()
    if last - first > finest:
        middle = (first + last) // 2
        return [
            *_fill(table, columns, made, first, middle, finest),
            *_fill(table, columns, made, middle, last, finest),
        ]
    return [] if is_gone else [(first, last)]


def _joined(parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in parts:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def _rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for row, cell in zip(rows, _cells(column), strict=True):
            if cell is not _UNREADABLE:
                row[name] = cell
    return rows


_UNREADABLE = object()


def _cells(column: pa.Array) -> list[Any]:
    if pa.types.is_fixed_size_list(column.type) and pa.types.is_floating(column.type.value_type):
        known = column.filter(column.is_valid())
        matrix = known.flatten().to_numpy(zero_copy_only=False).reshape(len(known), column.type.list_size)
        vectors = iter(np.array(matrix, dtype=np.float32))
        return [next(vectors) if there else None for there in column.is_valid().to_pylist()]
    try:
        return list(column.to_pylist())
    except (ValueError, pa.ArrowException):
        return [_cell(value) for value in column]


def _cell(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, pa.ArrowException):
        return _UNREADABLE


@contextmanager
def _damage(uri: str, name: str) -> Iterator[None]:
    """Whatever a damaged file makes Lance do, as one error."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ not in PANICS:
            raise
        raise BankDamaged(
            f"In the bank at {uri}, the table {name} cannot be read. Nothing was changed; run `memrl repair` on it, or "
            "restore a copy."
        ) from (error if is_local(uri) else None)
