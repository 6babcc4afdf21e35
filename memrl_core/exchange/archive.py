"""A bank as one file: all of it (zip), its facts for programs (JSONL), its memories for other tools (Parquet, CSV).

A zip holds the two parts of a bank's folder as they are at one moment, and a manifest with the size and the SHA-256 of
each file: unpacked, it is the bank. The format: docs/format.md.
"""

from __future__ import annotations

import hashlib
import json
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from pydantic_core import to_json

from memrl_core import __version__
from memrl_core.bank import Layout, MemoryBank
from memrl_core.bank.check import INSTALL, check
from memrl_core.bank.ledger import now
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.schema import FILE, FORMAT
from memrl_core.bank.storage.vectors import FOLDER
from memrl_core.errors import InputError, MemRLError
from memrl_core.exchange.contents import NOTHING, Contents, contents_of
from memrl_core.exchange.spreadsheet import csv_bytes
from memrl_core.exchange.whole_files import drafted, opened
from memrl_core.records import EventKind, LedgerEvent, Memory, StepTrace, Utility

MANIFEST = "manifest.json"
NAME = "memrl-bank"
SCHEMA_VERSION = 1
"""Of the JSONL and the Parquet file; a zip has the format of the bank in it."""
LARGEST_MANIFEST = 2**20
LARGEST = 4 * 2**30
LARGEST_RATIO = 200
RATIO_FROM = 64 * 2**20
"""Below this many bytes unpacked, no ratio is suspicious: a small bank may well repeat itself."""
AT_ONCE = 500
ROWS_WRITTEN = 1000
TABLE_COLUMNS = (
    "id", "intent", "experience", "outcome", "q", "visits", "run", "step", "task", "created", "parents", "x", "y",
)  # fmt: skip
AGAIN = f"{NOTHING} Export the bank again, or take another copy of the file."
_CHUNK = 2**20
_UNREADABLE = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, TypeError, KeyError)
_TRACE = TypeAdapter(StepTrace)
_EVENT = TypeAdapter(LedgerEvent)

Progress = Callable[[float], None]
Record = TypeVar("Record")


def write_bank(bank: MemoryBank, target: Path, overwrite: bool = False, on_progress: Progress | None = None) -> None:
    """Write `bank` to `target` whole or not at all; its suffix chooses the kind.

    `.zip` is a backup that can be imported, `.jsonl` holds all facts, `.parquet` the memories that any run sees now
    with their q in each, `.csv` with that of the newest for people. `on_progress` hears the fraction done, from 0 to 1.
    Raises `InputError` for another suffix or a target that cannot be written, `BankFull`, `BankReadOnly`,
    `BankDamaged`.
    """
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise InputError(
            f"A bank cannot be written as “{target.name}”. Nothing was written; choose a name that ends in "
            f"{', '.join(_WRITERS)}."
        )
    with drafted(target, overwrite) as file:
        write(file, bank, on_progress or (lambda fraction: None))


def bank_bytes(bank: MemoryBank, kind: str) -> bytes:
    """What `write_bank` writes for the suffix `kind` ("zip", "jsonl", "parquet", "csv"). Raises as it does."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"bank.{kind}"
        write_bank(bank, target)
        return target.read_bytes()


# --- zip --------------------------------------------------------------------------------------------------------------


def _write_zip(file: BinaryIO, bank: MemoryBank, on_progress: Progress) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "bank"
        bank.write_parts(copy)
        paths = {path.relative_to(copy).as_posix(): path for path in sorted(copy.rglob("*")) if path.is_file()}
        manifest = {
            "format": NAME,
            "version": FORMAT,
            "program": __version__,
            "created": now(),
            "embedder": bank.embedder.name,
            "dimension": bank.embedder.dimension,
            "files": {name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for name, path in paths.items()},
        }
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
            for number, (name, path) in enumerate(paths.items(), start=1):
                archive.write(path, name)
                on_progress(number / len(paths))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_archive(path: Path) -> bool:
    """Whether a file is a zip, whole or not. Raises `InputError` when it cannot be read."""
    with opened(path) as file:
        return file.read(4).startswith(b"PK")


def read_bank(path: Path) -> Contents:
    """The bank in a zip that `write_bank` wrote.

    Raises `InputError` for anything else, and for a zip that is not exactly what its manifest says, of another version,
    larger than a bank plausibly is, or whose bank is not whole; nothing is taken over then.
    """
    with tempfile.TemporaryDirectory() as folder:
        with opened(path) as file:
            _unpack(path.name, file, Path(folder))
        try:
            # A policy that is not installed here says nothing against the bank.
            faults = (one for one in check(folder) if not one.ok and one.name != "disk" and one.remedy != INSTALL)
            if amiss := next((one.sentence for one in faults), ""):
                raise InputError(f"The bank in {path.name} is not whole. {amiss.replace(folder, path.name)} {AGAIN}")
            with MemoryBank.open(folder) as bank:
                return contents_of(bank, "a bank (zip)")
        except InputError:
            raise
        except (MemRLError, *_UNREADABLE) as error:
            raise InputError(f"The bank in {path.name} cannot be read. {AGAIN}") from error


def _unpack(name: str, file: BinaryIO, folder: Path) -> None:
    """Unpack a zip into an empty folder, as far as its manifest describes it."""
    try:
        with ZipFile(file) as archive:
            members = archive.infolist()
            for member in members:
                _must_stay_inside(name, member)
            files = _files_of(name, archive)
            packed = {member.filename: member for member in members}
            if len(packed) < len(members):
                raise InputError(f"{name} holds a file more than once. {AGAIN}")
            if packed.keys() != {MANIFEST, *files}:
                odd = min(packed.keys() ^ {MANIFEST, *files})
                raise InputError(f"{name} does not hold what its manifest names: {odd[:80]}. {AGAIN}")
            _must_not_swell(name, packed, files)
            for inside, described in files.items():
                (folder / inside).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(packed[inside]) as source, (folder / inside).open("wb") as target:
                    if _copied(source, target, described["bytes"]) != described["sha256"]:
                        raise InputError(f"{inside[:80]} in {name} is not as it was written. {AGAIN}")
    except _UNREADABLE as error:
        raise InputError(f"{name} is damaged, or not a zip that can be read. {AGAIN}") from error


def _must_stay_inside(name: str, member: ZipInfo) -> None:
    parts = member.filename.replace("\\", "/").split("/")
    outside = parts[0] == "" or ".." in parts or parts[0].endswith(":")
    if outside or stat.S_ISLNK(member.external_attr >> 16):
        kind = "points out of the zip" if outside else "is a link"
        raise InputError(
            f"{name} holds “{member.filename[:80]}”, which {kind}. {NOTHING} Take a copy from someone you trust."
        )


def _files_of(name: str, archive: ZipFile) -> dict[str, dict[str, Any]]:
    """The files that the manifest of a zip names, with their `bytes` and `sha256`."""
    if MANIFEST not in archive.namelist():
        raise InputError(f"{name} has no {MANIFEST}: it is not a bank that was exported here. {NOTHING}")
    with archive.open(MANIFEST) as member:
        manifest = json.loads(member.read(LARGEST_MANIFEST))
    version = manifest["version"]
    if manifest["format"] != NAME or type(version) is not int:
        raise InputError(f"{name} was not written by this program. {NOTHING} Choose a bank that was exported here.")
    if version != FORMAT:
        other = "Update the program." if version > FORMAT else "Export the bank again with this version."
        raise InputError(
            f"{name} holds a bank of format {version}; this program reads format {FORMAT}. {NOTHING} {other}"
        )
    files: dict[str, dict[str, Any]] = manifest["files"]
    if FILE not in files or not all(one == FILE or one.startswith(f"{FOLDER}/") for one in files):
        raise InputError(f"{name} does not hold the two parts of a bank. {AGAIN}")
    if not all(type(one["bytes"]) is int and isinstance(one["sha256"], str) for one in files.values()):
        raise ValueError("the manifest gives no sizes and digests")
    return files


def _must_not_swell(name: str, packed: Mapping[str, ZipInfo], files: Mapping[str, Mapping[str, Any]]) -> None:
    unpacked = sum(described["bytes"] for described in files.values())
    if unpacked > LARGEST:
        raise InputError(f"{name} unpacks to {unpacked / 2**20:,.0f} MB. {NOTHING} Import a smaller bank.")
    if unpacked > RATIO_FROM and unpacked > LARGEST_RATIO * sum(packed[one].compress_size for one in files):
        raise InputError(
            f"{name} unpacks to more than {LARGEST_RATIO} times its size, as no bank does. {NOTHING} "
            "Take a copy from someone you trust."
        )
    for inside, described in files.items():
        if packed[inside].file_size != described["bytes"]:
            raise InputError(f"{inside[:80]} in {name} has another size than its manifest says. {AGAIN}")
        if packed[inside].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InputError(f"{inside[:80]} in {name} is packed in a way that is not read here. {AGAIN}")


def _copied(source: IO[bytes], target: IO[bytes], size: int) -> str:
    """Copy no more than `size` bytes and one; the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    left = size + 1
    while left and (chunk := source.read(min(left, _CHUNK))):
        left -= len(chunk)
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


# --- JSONL, Parquet, CSV ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Held:
    """What a bank held at one moment: what is appended while it is being written stays out."""

    bank: MemoryBank
    header: dict[str, Any]
    steps: list[tuple[str, int]]
    events: list[LedgerEvent]
    memories: list[Memory]
    layout: Layout | None
    utilities: Mapping[str, Mapping[str, Utility]]

    @classmethod
    def by(cls, bank: MemoryBank) -> Self:
        bank.flush()
        bank.refresh()
        # A writer appends memories, then the ledger, then the step: read the other way round, no reference dangles.
        runs = bank.runs()
        steps = [(info.id, row.step) for info in runs for row in bank.step_rows(info.id)]
        known = {info.id for info in runs}
        events = [e for e in bank.events() if e.run in known or e.kind is EventKind.ROLE_ASSIGNED]
        memories = bank.memories()
        layout = bank.layouts.newest()
        header = {
            "format": NAME,
            "schema_version": SCHEMA_VERSION,
            "program": __version__,
            "embedder": bank.embedder.name,
            "dimension": bank.embedder.dimension,
            "embedder_digest": bank.embedder.digest,
            "created": now(),
            "runs": [codec.run_payload(info) for info in runs],
            "layout": layout.method if layout else None,
            "counts": {"memories": len(memories), "steps": len(steps), "ledger": len(events)},
        }
        utilities = {info.id: bank.utilities(info.id) for info in runs}
        return cls(bank, header, steps, events, memories, layout, utilities)

    def seen(self) -> Self:
        """The same without the memories that no run sees any more: those that are left for replays only."""
        known = {memory_id for utilities in self.utilities.values() for memory_id in utilities}
        memories = [memory for memory in self.memories if memory.id in known]
        counts = {**self.header["counts"], "memories": len(memories)}
        return replace(self, header={**self.header, "counts": counts}, memories=memories)

    def traces(self) -> Iterator[StepTrace]:
        for run, members in groupby(self.steps, key=itemgetter(0)):
            numbers = [step for _, step in members]
            for chunk in (numbers[at : at + AT_ONCE] for at in range(0, len(numbers), AT_ONCE)):
                held = set(chunk)
                yield from (t for t in self.bank.traces(run, (chunk[0], chunk[-1])) if t.step in held)

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


def _write_jsonl(file: BinaryIO, bank: MemoryBank, on_progress: Progress) -> None:
    held = _Held.by(bank)
    steps, events = len(held.steps), len(held.events)
    total = steps + events + len(held.memories)
    file.write(to_json(held.header) + b"\n")
    for trace in _followed(held.traces(), 0, total, on_progress):
        file.write(b'{"step":' + _TRACE.dump_json(trace) + b"}\n")
    for event in _followed(held.events, steps, total, on_progress):
        file.write(b'{"event":' + _EVENT.dump_json(event) + b"}\n")
    for row in _followed(held.memory_rows(), steps + events, total, on_progress):
        file.write(to_json({"memory": {**row, "embedding": row["embedding"].tolist()}}) + b"\n")


def _write_parquet(file: BinaryIO, bank: MemoryBank, on_progress: Progress) -> None:
    held = _Held.by(bank).seen()
    belief = pa.struct({"run": pa.string(), "q": pa.float64(), "visits": pa.int64()})
    numbers = {"x": pa.float64(), "y": pa.float64(), "fitted": pa.int64(), "q": pa.float64(), "visits": pa.int64()}
    columns = [*codec.memory_schema(bank.embedder.dimension), *numbers.items(), ("believed", pa.list_(belief))]
    schema = pa.schema(columns, metadata={NAME: to_json(held.header)})
    rows = _followed(held.memory_rows(), 0, len(held.memories), on_progress)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while chunk := list(islice(rows, ROWS_WRITTEN)):
            writer.write_table(codec.arrow(chunk, schema))


def _write_csv(file: BinaryIO, bank: MemoryBank, on_progress: Progress) -> None:
    held = _Held.by(bank).seen()
    rows = ({**row, "parents": " ".join(row["parents"])} for row in held.memory_rows())
    file.write(csv_bytes(_followed(rows, 0, len(held.memories), on_progress), TABLE_COLUMNS))


def _followed(records: Iterable[Record], done: int, total: int, on_progress: Progress) -> Iterator[Record]:
    for record in records:
        yield record
        done += 1
        if done * 100 // total != (done - 1) * 100 // total:
            on_progress(done / total)


_WRITERS: Mapping[str, Callable[[BinaryIO, MemoryBank, Progress], None]] = {
    ".zip": _write_zip,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
