"""A bank as one file: all of it (zip, JSONL), its memories for other tools (Parquet), or a table for people (CSV)."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from pydantic_core import to_json

from memrl_core.bank import Layout, MemoryBank, codec
from memrl_core.bank.ledger import now
from memrl_core.errors import InputError
from memrl_core.exchange.archive_format import EVENT, TRACE, Counts, Header
from memrl_core.exchange.archive_memories import schema_of, write_parquet
from memrl_core.exchange.archive_read import HEADER, LEDGER, MEMORIES, STEPS, read_bank
from memrl_core.exchange.spreadsheet import csv_bytes
from memrl_core.exchange.whole_files import drafted
from memrl_core.records import EventKind, LedgerEvent, Memory, StepTrace, Utility

__all__ = ["bank_bytes", "read_bank", "write_bank"]

TABLE_COLUMNS = (
    "id", "intent", "experience", "outcome", "q", "visits", "run", "step", "task", "created", "parents", "x", "y",
)  # fmt: skip

AT_ONCE = 500

Progress = Callable[[float], None]
Record = TypeVar("Record")


def write_bank(bank: MemoryBank, target: Path, overwrite: bool = False, on_progress: Progress | None = None) -> None:
    """Write `bank` to `target` whole or not at all; its suffix chooses the kind (`docs/format.md` describes each).

    `.zip` and `.jsonl` hold everything, `.parquet` the memories that any run sees now with their q in each, `.csv` with
    that of the newest for people. Steps are read some hundred at a time. `on_progress` is told the fraction done, from
    0 to 1. Raises `InputError` for another suffix or a target that cannot be written, `BankFull`, `BankReadOnly`,
    `BankDamaged`.
    """
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise InputError(
            f"A bank cannot be written as “{target.name}”. Nothing was written; choose a name that ends in "
            f"{', '.join(_WRITERS)}."
        )
    with drafted(target, overwrite) as file:
        write(file, _Held.by(bank, on_progress or (lambda fraction: None)))


def bank_bytes(bank: MemoryBank, kind: str) -> bytes:
    """What `write_bank` writes for the suffix `kind` ("zip", "jsonl", "parquet", "csv"). Raises as it does."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"bank.{kind}"
        write_bank(bank, target)
        return target.read_bytes()


@dataclass(frozen=True, slots=True)
class _Held:
    """What a bank held at one moment: what is appended while it is being written stays out."""

    bank: MemoryBank
    header: Header
    steps: list[tuple[str, int]]
    events: list[LedgerEvent]
    memories: list[Memory]
    layout: Layout | None
    utilities: Mapping[str, Mapping[str, Utility]]
    on_progress: Progress

    @classmethod
    def by(cls, bank: MemoryBank, on_progress: Progress) -> Self:
        bank.flush()
        bank.refresh()
        # A writer appends memories, then the ledger, then the step: read the other way round, no reference dangles.
        runs = bank.runs()
        steps = [(info.id, row.step) for info in runs for row in bank.step_rows(info.id)]
        known = {info.id for info in runs}
        events = [e for e in bank.events() if e.run in known or e.kind is EventKind.ROLE_ASSIGNED]
        memories = bank.memories()
        layout = bank.layouts.newest()
        header = Header(
            embedder=bank.embedder.name,
            dimension=bank.embedder.dimension,
            embedder_digest=bank.embedder.digest,
            created=now(),
            runs=tuple(codec.run_payload(info) for info in runs),
            layout=layout.method if layout else None,
            counts=Counts(memories=len(memories), steps=len(steps), ledger=len(events)),
        )
        utilities = {info.id: bank.utilities(info.id) for info in runs}
        return cls(bank, header, steps, events, memories, layout, utilities, on_progress)

    def seen(self) -> Self:
        """The same without the memories that no run sees any more: those that are left for replays only."""
        known = {memory_id for utilities in self.utilities.values() for memory_id in utilities}
        memories = [memory for memory in self.memories if memory.id in known]
        counts = self.header.counts.model_copy(update={"memories": len(memories)})
        return replace(self, header=self.header.model_copy(update={"counts": counts}), memories=memories)

    def traces(self) -> Iterator[StepTrace]:
        for run, members in groupby(self.steps, key=itemgetter(0)):
            numbers = [step for _, step in members]
            for chunk in (numbers[at : at + AT_ONCE] for at in range(0, len(numbers), AT_ONCE)):
                held = set(chunk)
                yield from (t for t in self.bank.traces(run, (chunk[0], chunk[-1])) if t.step in held)

    def followed(self) -> tuple[Iterator[StepTrace], Iterator[LedgerEvent], Iterator[dict[str, Any]]]:
        """Steps, events and memories, to be taken in this order; taking them moves the progress from 0 to 1."""
        steps, events = len(self.steps), len(self.events)
        total = steps + events + len(self.memories)
        return (
            _followed(self.traces(), 0, total, self.on_progress),
            _followed(self.events, steps, total, self.on_progress),
            _followed(self.memory_rows(), steps + events, total, self.on_progress),
        )

    def memory_rows(self) -> Iterator[dict[str, Any]]:
        places = self.layout.coordinates if self.layout else {}
        order = {memory_id: n for n, memory_id in enumerate(self.layout.fitted)} if self.layout else {}
        newest = list(self.utilities.values())[-1] if self.utilities else {}
        for memory in self.memories:
            x, y = places.get(memory.id, (None, None))
            utility = newest.get(memory.id)
            yield {
                **codec.memory_row(memory, self.bank.embedding(memory.id)),
                "x": x,
                "y": y,
                "fitted": order.get(memory.id),
                "q": utility.q if utility else None,
                "visits": utility.visits if utility else None,
                "believed": [
                    {"run": run, "q": known[memory.id].q, "visits": known[memory.id].visits}
                    for run, known in self.utilities.items()
                    if memory.id in known
                ],
            }


def _followed(records: Iterable[Record], done: int, total: int, on_progress: Progress) -> Iterator[Record]:
    for record in records:
        yield record
        done += 1
        if done * 100 // total != (done - 1) * 100 // total:
            on_progress(done / total)


def _write_zip(file: BinaryIO, held: _Held) -> None:
    steps, events, memories = held.followed()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr(HEADER, held.header.model_dump_json(indent=1))
        with archive.open(STEPS, "w", force_zip64=True) as member:
            member.writelines(TRACE.dump_json(trace) + b"\n" for trace in steps)
        with archive.open(LEDGER, "w", force_zip64=True) as member:
            member.writelines(EVENT.dump_json(event) + b"\n" for event in events)
        # Parquet goes back and forth in its file, which a zip does not allow; it is compressed already.
        with tempfile.TemporaryFile() as parquet:
            write_parquet(parquet, memories, schema_of(held.header))
            parquet.seek(0)
            stored = ZipInfo(MEMORIES, time.localtime()[:6])
            stored.compress_type = ZIP_STORED
            with archive.open(stored, "w", force_zip64=True) as member:
                shutil.copyfileobj(parquet, member)


def _write_jsonl(file: BinaryIO, held: _Held) -> None:
    steps, events, memories = held.followed()
    file.write(held.header.model_dump_json().encode() + b"\n")
    file.writelines(b'{"step":' + TRACE.dump_json(trace) + b"}\n" for trace in steps)
    file.writelines(b'{"event":' + EVENT.dump_json(event) + b"}\n" for event in events)
    for row in memories:
        file.write(to_json({"memory": {**row, "embedding": row["embedding"].tolist()}}) + b"\n")


def _write_parquet(file: BinaryIO, held: _Held) -> None:
    held = held.seen()
    write_parquet(file, _followed(held.memory_rows(), 0, len(held.memories), held.on_progress), schema_of(held.header))


def _write_csv(file: BinaryIO, held: _Held) -> None:
    held = held.seen()
    rows = ({**row, "parents": " ".join(row["parents"])} for row in held.memory_rows())
    file.write(csv_bytes(_followed(rows, 0, len(held.memories), held.on_progress), TABLE_COLUMNS))


_WRITERS: Mapping[str, Callable[[BinaryIO, _Held], None]] = {
    ".zip": _write_zip,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
