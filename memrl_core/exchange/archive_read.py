"""A bank's own files back into what a bank can adopt. All of it is checked before any of it is used."""

from __future__ import annotations

import stat
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from memrl_core.bank import codec
from memrl_core.errors import InputError
from memrl_core.exchange.archive_format import (
    AGAIN,
    FORMAT,
    NOTHING,
    Counts,
    Header,
    event_of,
    header_of,
    parsed,
    reason_of,
    trace_of,
)
from memrl_core.exchange.archive_limits import BadLines, Budget, BudgetSpent, lines_of, must_not_swell
from memrl_core.exchange.archive_memories import Gathered, read_parquet, vector_of
from memrl_core.exchange.archive_whole import memories_by_id, whole
from memrl_core.exchange.contents import Account, Contents, Skipped
from memrl_core.exchange.whole_files import opened
from memrl_core.records import EventKind, LedgerEvent, RunInfo, StepTrace, Utility

HEADER, STEPS, LEDGER, MEMORIES = "run.json", "steps.jsonl", "ledger.jsonl", "memories.parquet"
MEMBERS = (HEADER, STEPS, LEDGER, MEMORIES)
MEMBERS_NAMED = 20
LARGEST_HEADER = 64 * 2**20
_CHUNK = 2**20
_UNREADABLE = (BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def read_bank(path: Path) -> Contents:
    """The bank in a zip, JSONL or Parquet file that `write_bank` wrote; its first bytes tell which.

    Raises `InputError` for anything else, and for a file in which anything is missing, doubled, out of range or larger
    than a bank plausibly is; nothing is taken over then.
    """
    with opened(path) as file:
        reader = _reader(file)
        if reader is None:
            raise InputError(
                f"{path.name} is not the file of a bank. {NOTHING} Choose a .zip, .jsonl or .parquet that was exported "
                "here; a .csv is for people and cannot be read back."
            )
        return reader(path.name, file)


def is_ours(path: Path) -> bool:
    """Whether a file looks like one that `write_bank` wrote, whole or not.

    Raises `InputError` when it cannot be read.
    """
    with opened(path) as file:
        reader = _reader(file)
        if reader is _read_jsonl:
            return f'"{FORMAT}"'.encode() in file.readline(_CHUNK)
        if reader is _read_zip:
            try:
                with ZipFile(file) as archive:
                    return not set(MEMBERS).isdisjoint(archive.namelist())
            except _UNREADABLE:
                return True
        return reader is not None


def _reader(file: BinaryIO) -> Callable[[str, BinaryIO], Contents] | None:
    start = file.read(64)
    file.seek(0)
    if start.startswith(b"PK"):
        return _read_zip
    if start.startswith(b"PAR1"):
        return _read_parquet
    return _read_jsonl if start.lstrip().startswith(b"{") else None


# --- zip --------------------------------------------------------------------------------------------------------------


def _read_zip(name: str, file: BinaryIO) -> Contents:
    budget = Budget()
    try:
        with ZipFile(file) as archive:
            skipped = _safe(name, archive)
            with archive.open(HEADER) as member:
                header = header_of(member.read(LARGEST_HEADER), f"{HEADER} in {name}")
            traces = _lines(archive, STEPS, budget, lambda values: trace_of(values, header.dimension))
            events: list[LedgerEvent] = _lines(archive, LEDGER, budget, event_of)
            with _unfolded(archive, MEMORIES, budget) as (memories, size):
                described, gathered = _gathered(memories, size, MEMORIES, budget)
    except BudgetSpent as error:
        raise InputError(f"{name} {error}. {NOTHING} Import a smaller bank.") from error
    except _UNREADABLE as error:
        raise InputError(f"{name} is damaged or not a zip that can be read ({reason_of(error)}). {AGAIN}") from error
    if (described.embedder, described.dimension) != (header.embedder, header.dimension):
        raise InputError(f"{name}: {HEADER} and {MEMORIES} tell of different embedders. {AGAIN}")
    return _whole(name, header, gathered, events, traces, Account("a bank (zip)", (), skipped))


def _safe(name: str, archive: ZipFile) -> tuple[Skipped, ...]:
    members = archive.infolist()
    for member in members:
        _refuse_path(name, member)
    present = [member for member in members if member.filename in MEMBERS]
    for wanted in MEMBERS:
        found = [member for member in present if member.filename == wanted]
        if not found:
            raise InputError(f"{name} has no {wanted}: it is not a whole bank. {AGAIN}")
        if len(found) > 1:
            raise InputError(f"{name} has {wanted} more than once. {AGAIN}")
        if found[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InputError(f"{wanted} in {name} is packed in a way that is not read here. {AGAIN}")
        must_not_swell(f"{wanted} in {name}", found[0].file_size, found[0].compress_size)
    must_not_swell(name, sum(member.file_size for member in present), sum(member.compress_size for member in present))
    strangers = [member.filename for member in members if member.filename not in MEMBERS]
    skipped = [Skipped(stranger[:200], "it is no part of a bank") for stranger in strangers[:MEMBERS_NAMED]]
    if len(strangers) > MEMBERS_NAMED:
        skipped.append(Skipped(f"{len(strangers) - MEMBERS_NAMED:,} more files", "they are no part of a bank"))
    return tuple(skipped)


def _refuse_path(name: str, member: ZipInfo) -> None:
    parts = member.filename.replace("\\", "/").split("/")
    outside = parts[0] == "" or ".." in parts or parts[0].endswith(":")
    if outside or stat.S_ISLNK(member.external_attr >> 16):
        kind = "points out of the zip" if outside else "is a link"
        raise InputError(
            f"{name} holds “{member.filename[:80]}”, which {kind}. {NOTHING} Take a copy from someone you trust."
        )


def _lines(archive: ZipFile, member: str, budget: Budget, record_of: Callable[[Any], Any]) -> list[Any]:
    records, bad = [], BadLines(member)
    with archive.open(member) as stream:
        for number, line in lines_of(cast(BinaryIO, stream), member, budget):
            try:
                records.append(record_of(parsed(line)))
            except (ValueError, TypeError) as error:
                bad.note(number, error)
    bad.refuse()
    return records


@contextmanager
def _unfolded(archive: ZipFile, member: str, budget: Budget) -> Iterator[tuple[IO[bytes], int]]:
    with tempfile.TemporaryFile() as copy:
        with archive.open(member) as stream:
            while chunk := stream.read(_CHUNK):
                budget.spend(len(chunk))
                copy.write(chunk)
        size = copy.tell()
        copy.seek(0)
        yield copy, size


# --- JSONL ------------------------------------------------------------------------------------------------------------


def _read_jsonl(name: str, file: BinaryIO) -> Contents:
    lines = lines_of(file, name, Budget())
    header = header_of(next(lines)[1], name)
    gathered, events, traces, bad = Gathered(), [], [], BadLines(name)
    for number, line in lines:
        try:
            match parsed(line):
                case {"memory": dict(values)}:
                    gathered.take(values, vector_of(values.get("embedding")))
                case {"event": values}:
                    events.append(event_of(values))
                case {"step": values}:
                    traces.append(trace_of(values, header.dimension))
                case _:
                    raise ValueError("it is neither a memory nor an event nor a step")
        except (ValueError, TypeError) as error:
            bad.note(number, error)
    bad.refuse()
    return _whole(name, header, gathered, events, traces, Account("a bank (JSONL)"))


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _read_parquet(name: str, file: BinaryIO) -> Contents:
    size = file.seek(0, 2)
    file.seek(0)
    header, gathered = _gathered(file, size, name, Budget())
    memories_by_id(name, header, gathered.memories)
    if not header.runs:
        raise InputError(f"{name} holds no run, so none of its memories has a q. {NOTHING} Choose another file.")
    runs = [info for payload in header.runs if (info := codec.run_of(payload)).id in gathered.utilities]
    known = {memory_id for believed in gathered.utilities.values() for memory_id in believed}
    count = len(gathered.memories) - len(known & {memory.id for memory, _ in gathered.memories})
    skipped = (Skipped(f"{count:,} memories", "no run knew them, so that they have no q"),) if count else ()
    kept = [(memory, vector) for memory, vector in gathered.memories if memory.id in known]
    events: list[LedgerEvent] = []
    payloads = []
    for info in runs:
        run = _run_of_memories(info, header.created)
        payloads.append(codec.run_payload(run))
        events += _beliefs(run, gathered.utilities[info.id], payloads[-1], header.created, len(events))
    held = Gathered(kept, {memory.id: gathered.spots[memory.id] for memory, _ in kept if memory.id in gathered.spots})
    counts = Counts(memories=len(kept), steps=0, ledger=len(events))
    now = header.model_copy(update={"runs": tuple(payloads), "counts": counts})
    lacks = ("A Parquet file tells of no steps and rewards: only the q that each run ended with.",)
    return _whole(name, now, held, events, [], Account("the memories of a bank (Parquet)", (), skipped, (), lacks))


def _beliefs(
    run: RunInfo, believed: Mapping[str, Utility], payload: Mapping[str, Any], created: str, seq: int
) -> Iterator[LedgerEvent]:
    """A run that begins with what it believed."""
    yield LedgerEvent(
        f"{run.id}:start", seq + 1, run.id, 0, "", 0, EventKind.RUN_STARTED, payload=payload, created=created
    )
    for memory_id, utility in believed.items():
        yield LedgerEvent(
            f"{run.id}:{memory_id}", seq + 2, run.id, 0, "", 0, EventKind.MEMORY_IMPORTED, (memory_id,), utility.q,
            payload={"visits": utility.visits}, created=created,
        )  # fmt: skip


def _run_of_memories(info: RunInfo, created: str) -> RunInfo:
    return replace(info, id=f"{info.id}-memories", base=None, base_step=0, first_step=1, created=created)


# --- all three --------------------------------------------------------------------------------------------------------


def _gathered(file: IO[bytes], size: int, name: str, budget: Budget) -> tuple[Header, Gathered]:
    header, rows = read_parquet(file, size, name, budget)
    gathered, bad = Gathered(), BadLines(name, "row")
    for number, (values, vector) in enumerate(rows, start=1):
        try:
            gathered.take(values, vector)
        except (ValueError, TypeError) as error:
            bad.note(number, error)
    bad.refuse()
    return header, gathered


def _whole(
    name: str,
    header: Header,
    gathered: Gathered,
    events: list[LedgerEvent],
    traces: list[StepTrace],
    account: Account,
) -> Contents:
    memories = memories_by_id(name, header, gathered.memories)
    places = gathered.places(header.layout)
    read = Contents(
        header.embedder,
        header.dimension,
        memories,
        tuple(events),
        tuple(traces),
        places,
        account,
        header.embedder_digest,
    )
    return whole(name, header, read)
