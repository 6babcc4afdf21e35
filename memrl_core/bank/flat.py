"""Flat copies of large tables: their rows in one file each, as they lie in memory, so that a bank opens in a blink.

A copy is derived. It holds the first rows of its table, no id twice, and is made when a bank that has grown is closed.
It is used if its checksum is right (its embeddings have none), and while some of its rows, the first and the last among
them, say the same in the table, embeddings included, and have the row ids there that they had: LanceDB gives a row id
once in the life of a table, rewriting rows gives them new ones, and deleting rows moves all that follow.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout

from memrl_core.bank.codec import STEP_COLUMNS, matrix_of
from memrl_core.logs import logger, said

COPIED: Mapping[str, tuple[str, ...] | None] = {"memories": None, "ledger": None, "steps": STEP_COLUMNS}
"""The tables that are copied, each with its columns; None: all."""
LARGE = 50_000
"""A table with fewer rows is read quickly as it is."""
ROOM_LEFT = 3
"""A copy is made where the disk has room for so many: no append is to fail for want of it."""
STALE = 0.1
"""A copy that lacks more of its table's rows than this share is made anew."""
ROWS_AT_ONCE = 65_536
SPARE = 8
"""A copy has room for an eighth more embeddings, as a hole in its file; bank and process grow into it."""
MAPS = os.name != "nt"
"""Whether files are mapped; on Windows a file that is mapped could not be replaced."""
FORMAT = 3
HEADER = 64
"""Bytes before the rows: what the file is, and the checksum of all that follows."""
LOCK = ".flat.lock"
"""Held by who copies tables or the whole bank, and by who compacts: a compaction deletes what others are reading."""
ENDING = ".flat"
DRAFT = ".flat-draft"
EMBEDDING = "embedding"
DESCRIPTION = b"flat copy"
LANDMARKS = 32
"""How many rows are compared with the table before a copy is used."""

log = logger(__name__)
Landmarks = list[list[int]]
"""Row ids in the table, each with the row's place in the copy."""


@dataclass(frozen=True, slots=True)
class FlatCopy:
    """The first rows of a table: `columns` without embeddings; these are in a file of their own."""

    columns: pa.Table
    landmarks: Landmarks
    embeddings: Path | None

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def matrix(self, dimension: int) -> npt.NDArray[np.float32]:
        """The embeddings (n and room for more, `dimension`). What is written there stays in this process.

        They are mapped from their file and read ahead in the background. Raises `OSError` or `ValueError` where the
        file is gone or is not as long as it was.
        """
        assert self.embeddings is not None
        rows = _with_room(len(self))
        with self.embeddings.open("rb") as file:
            self._must_be_whole(file, dimension)
            if not MAPS:
                return np.fromfile(file, np.float32).reshape(rows, dimension)
            mapped = np.memmap(file, np.float32, "c", shape=(rows, dimension))
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 4 * len(self) * dimension, os.POSIX_FADV_WILLNEED)
        return mapped.view(np.ndarray)

    def _vectors(self, places: Iterable[int], dimension: int) -> npt.NDArray[np.float32]:
        assert self.embeddings is not None
        with self.embeddings.open("rb") as file:
            self._must_be_whole(file, dimension)
            found = []
            for place in places:
                file.seek(4 * place * dimension)
                found.append(np.fromfile(file, np.float32, dimension))
        return np.stack(found)

    def _must_be_whole(self, file: BinaryIO, dimension: int) -> None:
        if os.fstat(file.fileno()).st_size != 4 * _with_room(len(self)) * dimension:
            raise ValueError("The embeddings are not as many as they were.")

    def is_of(self, table: Any, schema: pa.Schema) -> bool:
        """Whether the rows at its landmarks are in the table still, and say the same."""
        row_ids, places = zip(*self.landmarks, strict=True)
        found = table.take_offsets(list(places)).with_row_id().select(schema.names).to_arrow()
        order = pc.index_in(pa.array(row_ids, found["_rowid"].type), value_set=found["_rowid"].combine_chunks())
        if len(found) != len(places) or order.null_count:
            return False
        found = found.take(order)
        bare = self.columns.schema
        if not found.select(bare.names).cast(bare).equals(self.columns.take(pa.array(places))):
            return False
        if self.embeddings is None:
            return True
        dimension = schema.field(EMBEDDING).type.list_size
        return np.array_equal(matrix_of(found[EMBEDDING], dimension), self._vectors(places, dimension))


class FlatCopies:
    """The flat copies in a bank's folder. Whatever is wrong with one, the table is there to be read."""

    def __init__(self, folder: Path, schemas: Mapping[str, pa.Schema]) -> None:
        self._folder = folder
        self._schemas = {
            name: pa.schema([schemas[name].field(column) for column in columns or schemas[name].names])
            for name, columns in COPIED.items()
        }

    def of(self, name: str, table: Any) -> FlatCopy | None:
        """The copy of a table that LanceDB has opened; None without one that holds what the table says."""
        if name not in COPIED:
            return None
        path = self._path(name)
        rows = int(table.count_rows())
        try:
            copy = _opened(path, self._schemas[name])
            return copy if 0 < len(copy) <= rows and copy.is_of(table, self._schemas[name]) else None
        except FileNotFoundError:
            return None
        except Exception as error:
            log.warning("%s cannot be used: %s", path.name, said(error))
            return None

    def refresh(self, name: str, opened: Callable[[], Any]) -> None:
        """Make the copy of a large table, opened for this alone, where there is none or one that lacks many rows.

        Failures are logged: the table is there. Where another process makes copies, nothing is done.
        """
        lock = FileLock(self._folder / LOCK)
        try:
            table = opened()
            rows = int(table.count_rows())
            if rows < LARGE:
                return
            with lock.acquire(timeout=0):
                known = self.of(name, table)
                if known is None or len(known) < (1 - STALE) * rows:
                    self._make_if_fit(name, table, rows)
        except Timeout:
            return
        except Exception as error:
            log.warning("the flat copy of %s was put off: %s", name, said(error))

    def agrees(self, name: str, table: Any) -> bool:
        """Whether the copy that would be used of a table, if there is one, holds what its rows say."""
        copy = self.of(name, table)
        if copy is None:
            return True
        matrix = None if copy.embeddings is None else copy.matrix(self._schemas[name].field(EMBEDDING).type.list_size)
        first = 0
        for portion in table.search().select(self._schemas[name].names).limit(len(copy)).to_batches():
            bare = pa.Table.from_batches([portion]).select(copy.columns.column_names)
            if not bare.cast(copy.columns.schema).equals(copy.columns.slice(first, len(bare))):
                return False
            if matrix is not None:
                numbers = matrix_of(portion[EMBEDDING], matrix.shape[1])
                if not np.array_equal(numbers, matrix[first : first + len(bare)]):
                    return False
            first += len(bare)
        return True

    def delete(self) -> None:
        """Forget all copies."""
        for path in flat_files(self._folder):
            with suppress(OSError):
                path.unlink()

    def _make_if_fit(self, name: str, table: Any, rows: int) -> None:
        ids = table.search().select(["id"]).limit(rows).to_arrow()["id"]
        if pc.count_distinct(ids).as_py() < rows:
            log.info("%s has no flat copy: an id is there twice", name)
        elif shutil.disk_usage(self._folder).free < ROOM_LEFT * table.stats()["total_bytes"]:
            log.warning("%s has no flat copy: the disk would be full", name)
        else:
            self._make(name, table, rows)

    def _make(self, name: str, table: Any, rows: int) -> None:
        """Write the first `rows` rows of a table, which must stay at its version, to a draft that becomes the copy.

        The embeddings are there under a name of their own before the rows that belong to them.
        """
        for left in self._folder.glob(f"*{DRAFT}-*"):
            left.unlink()
        schema = self._schemas[name]
        bare = pa.schema([field for field in schema if field.name != EMBEDDING])
        token = secrets.token_hex(4)
        draft, numbers = self._folder / f"{name}{DRAFT}-{token}", self._folder / f"{EMBEDDING}s-{token}{ENDING}"
        described = {"landmarks": _landmarks(table, rows), "embeddings": ""}
        portions = table.search().select(schema.names).limit(rows).to_batches()
        try:
            with ExitStack() as files:
                if bare != schema:
                    described["embeddings"] = numbers.name
                    dimension = schema.field(EMBEDDING).type.list_size
                    portions = _written(portions, files.enter_context(numbers.open("wb")), rows, dimension)
                described_schema = bare.with_metadata({DESCRIPTION: json.dumps(described)})
                file = files.enter_context(draft.open("wb"))
                file.write(b" " * HEADER)
                written = files.enter_context(pa.ipc.new_file(file, described_schema))
                for batch in _regrouped(portions, bare):
                    written.write_batch(batch)
            _seal(draft)
            # Or a power cut could leave the name of a copy whose bytes had not arrived.
            for path in (numbers, draft) if bare != schema else (draft,):
                _sync(path)
            draft.replace(self._path(name))
        except BaseException:
            draft.unlink(missing_ok=True)
            numbers.unlink(missing_ok=True)
            raise
        if bare != schema:
            for older in set(self._folder.glob(f"{EMBEDDING}s-*{ENDING}")) - {numbers}:
                older.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{ENDING}"


def flat_files(folder: Path) -> list[Path]:
    """The flat copies in a bank's folder, with what was left of those that were never whole."""
    return [path for path in folder.iterdir() if is_flat(path)]


def is_flat(path: Path) -> bool:
    """Whether a file in a bank's folder is, by its name, a flat copy or a part of one that was never whole."""
    return path.suffix == ENDING or f"{DRAFT}-" in path.name


def _opened(path: Path, schema: pa.Schema) -> FlatCopy:
    has_embeddings = EMBEDDING in schema.names
    # Of memories little is looked at when a bank is opened, of the others much.
    maps = has_embeddings and MAPS
    whole = pa.memory_map(str(path)).read_buffer() if maps else pa.py_buffer(path.read_bytes())
    rows = whole.slice(min(HEADER, len(whole)))
    if whole.slice(0, len(whole) - len(rows)).to_pybytes() != _header(rows):
        raise ValueError("The copy is damaged, or of another version.")
    table = pa.ipc.open_file(pa.BufferReader(rows)).read_all()
    # A checksum can be forged, and what is read of rows that are none would be somewhere else in memory.
    table.validate(full=True)
    described = json.loads((table.schema.metadata or {})[DESCRIPTION])
    bare = pa.schema([field for field in schema if field.name != EMBEDDING])
    if not table.schema.equals(bare):
        raise ValueError("The copy has other columns.")
    embeddings = path.with_name(described["embeddings"]) if has_embeddings else None
    if embeddings is not None and not (embeddings.parent == path.parent and is_flat(embeddings)):
        raise ValueError("The copy names no file of embeddings.")
    return FlatCopy(table.replace_schema_metadata(None), described["landmarks"], embeddings)


def _seal(draft: Path) -> None:
    """Put the header before the rows of a draft, which has left room for it."""
    with draft.open("r+b") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
        file.write(_header(memoryview(whole)[HEADER:]))


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _header(rows: pa.Buffer | memoryview) -> bytes:
    return f"memrl flat copy {FORMAT} {zlib.crc32(rows):08x}".encode().ljust(HEADER)


def _written(portions: Iterable[pa.RecordBatch], file: BinaryIO, rows: int, dimension: int) -> Iterator[pa.RecordBatch]:
    """The same rows without their embeddings, which go to a file that has room for more."""
    for portion in portions:
        file.write(np.ascontiguousarray(matrix_of(portion[EMBEDDING], dimension)).data)
        yield portion.drop_columns([EMBEDDING])
    file.truncate(4 * _with_room(rows) * dimension)


def _with_room(rows: int) -> int:
    return rows + rows // SPARE


def _landmarks(table: Any, rows: int) -> Landmarks:
    """The landmarks of so many rows: the first, the last, and others as far from each other."""
    places: Sequence[int] = np.unique(np.linspace(0, rows - 1, LANDMARKS).astype(int)).tolist()
    row_ids = (table.take_offsets([place]).with_row_id().select(["id"]).to_arrow()["_rowid"] for place in places)
    return [[row_id.to_pylist()[0], place] for row_id, place in zip(row_ids, places, strict=True)]


def _regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows in few batches, whose columns each lie in one piece."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(len(one) for one in group) >= ROWS_AT_ONCE:
            yield _joined(group, schema)
            group = []
    if group:
        yield _joined(group, schema)


def _joined(group: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(group).select(schema.names).cast(schema).combine_chunks().to_batches()
    return batch
