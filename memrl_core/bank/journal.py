"""Rows on their way into LanceDB: one file that is appended to, because a commit of one row costs LanceDB milliseconds.

The file `journal` begins with a mark and an id of its own; then come records, each a mark, the number of its table, its
length, two CRC-32s (of its rows, and of what stands before them) and an Arrow record batch without a schema. When rows
move into the tables it is called `journal.moving`, and it is deleted when all have arrived. A record whose end is
missing is of a process that was killed while it wrote: the next writer cuts it off. Any other that cannot be read is
damage.
"""

from __future__ import annotations

import os
import secrets
import struct
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

JOURNALED = ("memories", "ledger", "steps")
"""The tables whose rows wait here, in the order in which they are moved: a step counts once its row is there."""
JOURNAL = "journal"
MOVING = "journal.moving"
BEGINS = b"MemRLJ1\n"
RECORD = b"\x00rec\xf5ow\n"
HEAD = struct.Struct("<8sIIII")
ID_BYTES = 16
PREFIX = len(BEGINS) + ID_BYTES

Batches = dict[str, list[pa.RecordBatch]]


@dataclass(slots=True)
class Parsed:
    """The records of a file: the last whole one ends at `end`; `lost` is how many parts cannot be read."""

    batches: Batches = field(default_factory=lambda: {name: [] for name in JOURNALED})
    end: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """The rows that had not been moved at a moment; `identity` is of the file that held them, None without one."""

    identity: bytes | None
    tables: Mapping[str, pa.Table]


class JournalDamaged(ValueError):
    """A record of the journal is not what was written."""


class Journal:
    """The journal of a bank in a folder. Only who holds the bank's lock appends and moves; anybody reads."""

    def __init__(self, folder: Path, schemas: Mapping[str, pa.Schema]) -> None:
        self._path, self._moving = folder / JOURNAL, folder / MOVING
        self._schemas = {name: schemas[name] for name in JOURNALED}
        self._reading = threading.Lock()
        self._identity: bytes | None = None
        self._read = Parsed()

    @property
    def size(self) -> int:
        """How many bytes had been written when it was last looked at."""
        return self._read.end

    def append(self, name: str, rows: pa.Table) -> None:
        """Append rows of a table; they are on disk when this returns. Raises `OSError`, `JournalDamaged`."""
        records = b"".join(_record(name, batch) for batch in rows.combine_chunks().to_batches())
        with self._reading:
            self._catch_up()
            is_new = self._identity is None
            identity = secrets.token_bytes(ID_BYTES) if self._identity is None else self._identity
            begun = 0 if is_new else self._read.end
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                os.ftruncate(file, begun)
                try:
                    _write(file, begun, (BEGINS + identity if is_new else b"") + records)
                except OSError:
                    os.ftruncate(file, begun)
                    raise
            finally:
                os.close(file)
            if is_new:
                _sync_folder(self._path.parent)
            self._catch_up()

    def waiting(self) -> Waiting:
        """The rows that wait in `journal`. Raises `OSError`, `JournalDamaged`."""
        with self._reading:
            self._catch_up()
            return Waiting(self._identity, _tables(self._read.batches, self._schemas))

    def stands(self, seen: Waiting) -> bool:
        """Whether none of these rows can have been moved since they were read."""
        return not self.is_moving() and _identity(self._path) == seen.identity

    def is_moving(self) -> bool:
        """Whether rows are on their way into the tables, or were when the process that moved them ended."""
        return self._moving.exists()

    def begin_moving(self) -> None:
        """Set the rows that wait apart. Raises `OSError`, `JournalDamaged`."""
        with self._reading:
            self._catch_up()
            if self._identity is not None:
                self._path.replace(self._moving)
            self._catch_up()

    def moving(self) -> Mapping[str, pa.Table]:
        """The rows that are being moved. Raises `OSError`, `JournalDamaged`."""
        return _tables(_whole(parsed(_bytes_of(self._moving), self._schemas)).batches, self._schemas)

    def end_moving(self) -> None:
        """Forget the rows that were being moved."""
        self._moving.unlink(missing_ok=True)

    def delete(self) -> None:
        """Forget everything."""
        self._moving.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def _catch_up(self) -> None:
        """Read what was appended since."""
        try:
            with self._path.open("rb") as file:
                identity = _identity_in(file.read(PREFIX))
                is_known = identity is not None and identity == self._identity
                read = self._read if is_known else Parsed(end=0 if identity is None else PREFIX)
                file.seek(read.end)
                found = _whole(parsed(file.read(), self._schemas, is_part=identity is not None))
        except FileNotFoundError:
            identity, read, found = None, Parsed(), Parsed()
        for name, batches in found.batches.items():
            read.batches[name] += batches
        read.end += found.end
        self._identity, self._read = identity, read


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be read of a journal: rows that wait, rows that were being moved, how many parts cannot be read."""

    waiting: Mapping[str, pa.Table]
    moving: Mapping[str, pa.Table]
    lost: int


def raw(folder: Path) -> tuple[bytes | None, ...]:
    """The bytes of a bank's journal, of what waits and of what was being moved; None where they cannot be read."""
    found: list[bytes | None] = []
    for name in (JOURNAL, MOVING):
        try:
            found.append(_bytes_of(folder / name))
        except OSError:
            found.append(None)
    return tuple(found)


def readable(files: tuple[bytes | None, ...], schemas: Mapping[str, pa.Schema]) -> Readable:
    """Whatever can be read of the files of a journal (see `raw`), however damaged they are."""
    found = [Parsed(lost=1) if data is None else parsed(data, schemas) for data in files]
    waiting, moving = (_tables(one.batches, schemas) for one in found)
    return Readable(waiting, moving, sum(one.lost for one in found))


def parsed(data: bytes, schemas: Mapping[str, pa.Schema], is_part: bool = False) -> Parsed:
    """The records in the bytes of a journal, or of a part of one that begins with a record."""
    found = Parsed()
    place = 0
    if not is_part:
        if _identity_in(data) is not None:
            place = PREFIX
        elif RECORD in data:
            place = data.index(RECORD)
            found.lost += 1
        else:
            # A process that was killed as it began the file has left no more than this.
            return found
    found.end = place
    while place < len(data):
        try:
            record = _record_at(data, place, schemas)
        except JournalDamaged:
            found.lost += 1
            place = _next_whole(data, place, schemas)
            continue
        if record is None:
            break
        name, batch, place = record
        found.batches[name].append(batch)
        found.end = place
    return found


def _next_whole(data: bytes, place: int, schemas: Mapping[str, pa.Schema]) -> int:
    """Where the next record that can be read begins; the end where there is none."""
    while (place := data.find(RECORD, place + 1)) >= 0:
        try:
            if _record_at(data, place, schemas) is not None:
                return place
        except JournalDamaged:
            continue
    return len(data)


def _record_at(data: bytes, place: int, schemas: Mapping[str, pa.Schema]) -> tuple[str, pa.RecordBatch, int] | None:
    """The table, the rows and the end of the record at a place; None where its end is missing."""
    if place + HEAD.size > len(data):
        return None
    mark, table, length, checksum, of_head = HEAD.unpack_from(data, place)
    # A wrong length would look like a record whose end is missing.
    if mark != RECORD or of_head != zlib.crc32(data[place : place + HEAD.size - 4]) or table >= len(JOURNALED):
        raise JournalDamaged("A record of the journal does not begin as one.")
    begin, end = place + HEAD.size, place + HEAD.size + length
    if end > len(data):
        return None
    payload = data[begin:end]
    if zlib.crc32(payload) != checksum:
        raise JournalDamaged("A record of the journal does not fit its checksum.")
    name = JOURNALED[table]
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schemas[name])
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise JournalDamaged("A record of the journal holds no rows of its table.") from error
    return name, batch, end


def _record(name: str, batch: pa.RecordBatch) -> bytes:
    payload: bytes = batch.serialize().to_pybytes()
    head = HEAD.pack(RECORD, JOURNALED.index(name), len(payload), zlib.crc32(payload), 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little") + payload


def _whole(found: Parsed) -> Parsed:
    if found.lost:
        raise JournalDamaged("A record of the journal cannot be read.")
    return found


def _tables(batches: Batches, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_batches(batches[name], schemas[name]) for name in JOURNALED}


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _identity(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return _identity_in(file.read(PREFIX))
    except FileNotFoundError:
        return None


def _identity_in(data: bytes) -> bytes | None:
    is_begun = len(data) >= PREFIX and data.startswith(BEGINS)
    return data[len(BEGINS) : PREFIX] if is_begun else None


def _write(file: int, place: int, data: bytes) -> None:
    rest = memoryview(data)
    os.lseek(file, place, os.SEEK_SET)
    while rest:
        rest = rest[os.write(file, rest) :]
    _sync(file)


def _sync_folder(path: Path) -> None:
    """Keep the name of a new file through a power cut, where folders can be told to."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


_sync = getattr(os, "fdatasync", os.fsync)
