"""What a bank's other exports hold, ready for a bank: all facts (JSONL), or its memories with their q (Parquet).

Neither has the checksums of a zip. So a bank is made of what was read, and looked at as `memrl doctor` does, before
anything is taken over.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import FiniteFloat, TypeAdapter
from pydantic_core import from_json

from memrl_core.bank import MemoryBank
from memrl_core.bank.storage import codec
from memrl_core.errors import InputError, MemRLError
from memrl_core.exchange.archive import AGAIN, LARGEST, LARGEST_RATIO, NAME, RATIO_FROM, SCHEMA_VERSION, whole_contents
from memrl_core.exchange.contents import NOTHING, Contents, started_with
from memrl_core.exchange.safe_files import opened
from memrl_core.records import LedgerEvent, Memory, RunInfo, StepTrace, Utility

LONGEST_LINE = 64 * 2**20
LARGEST_HEADER = 2**24
LARGEST_WHOLE = 2**53
ROWS_READ = 100
PARQUET = b"PAR1"

_UNREADABLE = (*codec.UNREADABLE, MemRLError, pa.ArrowException, OSError, MemoryError)
_TRACE = TypeAdapter(StepTrace)
_EVENT = TypeAdapter(LedgerEvent)
_MEMORY = TypeAdapter(Memory)
_PLACES = TypeAdapter(tuple[FiniteFloat | None, FiniteFloat | None, int | None])
_BELIEF = TypeAdapter(tuple[str, float, int])
_MEMORY_FIELDS = tuple(Memory.__dataclass_fields__)


def is_export(path: Path) -> bool:
    """Whether a file is a bank's export as JSON lines or Parquet, whole or not."""
    with opened(path) as file:
        start = file.read(len(PARQUET))
        if start == PARQUET:
            return True
        file.seek(0)
        return start.startswith(b"{") and _header_of(file) is not None


def has_header(path: Path) -> bool:
    """Whether a file says of itself that a bank was exported to it."""
    with opened(path) as file:
        if file.read(len(PARQUET)) != PARQUET:
            file.seek(0)
            return _header_of(file) is not None
    try:
        return NAME.encode() in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def read_export(path: Path) -> Contents:
    """The facts in a bank's JSON lines, or the memories in its Parquet file with their q in each run.

    Raises `InputError` for a file that this program did not write, of another version, or that is not whole.
    """
    with opened(path) as file:
        try:
            if file.read(len(PARQUET)) == PARQUET:
                read = _from_parquet(path)
            else:
                file.seek(0)
                read = _from_lines(path.name, file)
        except InputError:
            raise
        except _UNREADABLE as error:
            raise _damaged(path) from error
    return _made(path, read)


def _damaged(path: Path) -> InputError:
    return InputError(f"{path.name} is damaged, or was changed since it was exported. {AGAIN}")


@dataclass(frozen=True, slots=True)
class _Read:
    """What a file holds; `places` maps memories to x, y and their place among those that the map was fitted on."""

    source: str
    header: Mapping[str, Any]
    memories: dict[str, tuple[Memory, npt.NDArray[np.float32]]] = field(default_factory=dict)
    events: list[LedgerEvent] = field(default_factory=list)
    traces: list[StepTrace] = field(default_factory=list)
    places: dict[str, tuple[float, float, int | None]] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    def take_step(self, trace: StepTrace) -> None:
        """One step."""
        _must_be_within(1, trace.step, trace.epoch)
        self.traces.append(trace)

    def take_event(self, event: LedgerEvent) -> None:
        """One event of the ledger."""
        _must_be_within(0, event.step, event.known_at)
        if not 0 <= event.seq <= LARGEST_WHOLE:
            raise ValueError("An event has a number that cannot be.")
        self.events.append(event)

    def take_memory(self, row: Mapping[str, Any]) -> None:
        """One memory, with its vector and place."""
        memory = _MEMORY.validate_python({name: row[name] for name in _MEMORY_FIELDS})
        _must_be_within(0, memory.step)
        if memory.id in self.memories:
            raise ValueError("A memory comes twice.")
        self.memories[memory.id] = memory, np.asarray(row["embedding"], dtype=np.float32)
        x, y, fitted = _PLACES.validate_python((row["x"], row["y"], row["fitted"]))
        if x is not None and y is not None:
            self.places[memory.id] = x, y, fitted


def _must_be_within(least: int, *steps: int) -> None:
    # Whoever walks through the steps of a run would not come to an end.
    if not all(least <= step <= codec.LARGEST_STEP for step in steps):
        raise ValueError("A step has a number that cannot be.")


def _made(path: Path, read: _Read) -> Contents:
    """What was read as a bank holds it. Raises where no whole bank comes of it."""
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "bank")
        try:
            _store(read, uri)
        except _UNREADABLE as error:
            raise _damaged(path) from error
        contents = whole_contents(uri, path.name, read.source)
    return replace(contents, account=replace(contents.account, lacks=read.lacks))


def _store(read: _Read, uri: str) -> None:
    """Make the bank at `uri` of what was read."""
    header = read.header
    made_by = str(header["embedder"]), int(header["dimension"]), str(header["embedder_digest"])
    with MemoryBank.create(uri, *made_by) as bank:
        bank.write.adopt(read.memories, read.events, read.traces)
        if header["layout"] is not None and read.places:
            by_age = sorted(read.places.items(), key=lambda place: (place[1][2] is None, place[1][2]))
            places = {memory_id: (x, y) for memory_id, (x, y, _) in by_age}
            fitted = {memory_id: places.pop(memory_id) for memory_id, (*_, n) in by_age if n is not None}
            bank.write.layouts.add(bank.write.layouts.save(str(header["layout"]), fitted), places)


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _header_of(file: BinaryIO) -> Mapping[str, Any] | None:
    """The first line, where it is the header of an export."""
    try:
        header = from_json(file.readline(LARGEST_HEADER))
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) and header.get("format") == NAME else None


def _from_lines(name: str, file: BinaryIO) -> _Read:
    header = _header_of(file)
    if header is None:
        raise InputError(f"{name} is not an export of a bank. {NOTHING} Choose one that was written here.")
    _must_be_known(name, header)
    read = _Read("a bank (JSON lines)", header)
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=2):
        try:
            kind, _, value = line.rstrip().removesuffix(b"}").partition(b":")
            if kind == b'{"step"':
                read.take_step(_TRACE.validate_json(value))
            elif kind == b'{"event"':
                read.take_event(_EVENT.validate_json(value))
            elif kind == b'{"memory"':
                read.take_memory(from_json(value, allow_inf_nan=False))
            else:
                raise ValueError("A line of another kind.")
        except _UNREADABLE as error:
            raise InputError(f"Line {number:,} of {name} is not as it was exported. {AGAIN}") from error
    held = {"memories": len(read.memories), "steps": len(read.traces), "ledger": len(read.events)}
    counts = header["counts"]
    if odd := [f"{held[kind]:,} of {count} {kind}" for kind, count in counts.items() if held[kind] != count]:
        raise InputError(f"{name} is not whole: it holds {', '.join(odd)}. {AGAIN}")
    return read


def _must_be_known(name: str, header: Mapping[str, Any]) -> None:
    if header.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{name} has version {str(header.get('schema_version'))[:20]} of this export; this program reads "
            f"{SCHEMA_VERSION}. {NOTHING} Export the bank again with this version of the program."
        )


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _from_parquet(path: Path) -> _Read:
    with pq.ParquetFile(path) as file:
        header = json.loads((file.schema_arrow.metadata or {}).get(NAME.encode(), b"null"))
        if not isinstance(header, dict):
            raise InputError(
                f"{path.name} is a Parquet file, and not one that a bank was exported to. {NOTHING} Make a bank "
                "of the memories of another program by: memrl open FILE --bank NEW"
            )
        _must_be_known(path.name, header)
        read = _Read(
            "the memories of a bank (Parquet)",
            header,
            lacks=("its steps and rewards, and memories that no run sees any more (a zip or JSON lines have them)",),
        )
        believed: dict[str, dict[str, Utility]] = {}
        for row in _rows(path, file):
            read.take_memory(row)
            for belief in row["believed"]:
                run, q, visits = _BELIEF.validate_python((belief["run"], belief["q"], belief["visits"]))
                believed.setdefault(run, {})[row["id"]] = Utility(q, visits)
    for payload in header["runs"]:
        info: RunInfo = replace(codec.run_of(payload), base=None, base_step=0, first_step=1)
        read.events.extend(started_with(info, believed.pop(info.id, {}), len(read.events) + 1))
    if believed:
        raise ValueError("A memory is known to a run that is not there.")
    for memory_id, (memory, vector) in read.memories.items():
        parents = tuple(parent for parent in memory.parents if parent in read.memories)
        read.memories[memory_id] = replace(memory, parents=parents), vector
    return read


def _rows(path: Path, file: pq.ParquetFile) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, as far as they are no more than a file of its size may hold."""
    left = min(LARGEST, max(RATIO_FROM, LARGEST_RATIO * path.stat().st_size))
    for batch in file.iter_batches(ROWS_READ):
        left -= batch.nbytes
        if left < 0:
            raise InputError(f"{path.name} unpacks to more than a bank of its size may. {AGAIN}")
        yield from codec.rows_of(pa.Table.from_batches([batch]))
