"""A bank as one file: all of it (zip), its facts for programs (JSONL), its memories for other tools (Parquet, CSV).

A zip holds the two parts of a bank's folder as they are at one moment, and a manifest with the size and the SHA-256 of
each file: unpacked, it is the bank. The format: docs/format.md.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from os import SEEK_END
from pathlib import Path
from typing import IO, Any, BinaryIO
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from pydantic_core import to_json

from memrl_core import __version__
from memrl_core.bank import EmbedderIdentity, MemoryBank
from memrl_core.bank.check import INSTALL, check
from memrl_core.bank.ledger import now
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.connecting import limited
from memrl_core.bank.storage.database import FILE
from memrl_core.bank.storage.folders import disk_sentences
from memrl_core.bank.storage.lance_files import LeadsElsewhere, is_own, must_stay_inside
from memrl_core.bank.storage.schema import FORMAT
from memrl_core.bank.storage.vectors import FOLDER, TABLE
from memrl_core.errors import InputError, MemRLError
from memrl_core.exchange.contents import NOTHING, Contents, contents_of
from memrl_core.exchange.safe_files import csv_bytes, drafted, opened
from memrl_core.records import LedgerEvent, Memory, StepTrace

MANIFEST = "manifest.json"
NAME = "memrl-bank"
SCHEMA_VERSION = 1
"""Of the JSONL and the Parquet file; a zip has the format of the bank in it."""
LARGEST_MANIFEST = 2**20
LARGEST = 4 * 2**30
LARGEST_RATIO = 200
RATIO_FROM = 64 * 2**20
"""Below this many bytes unpacked, no ratio is suspicious: a small bank may well repeat itself."""
ROWS_WRITTEN = 1000
TABLE_COLUMNS = (
    "id", "intent", "experience", "outcome", "q", "visits", "run", "step", "task", "created", "parents", "x", "y",
)  # fmt: skip
AGAIN = f"{NOTHING} Export the bank again, or take another copy of the file."
_CHUNK = 2**20
_UNREADABLE = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, TypeError, KeyError)
_TRACE = TypeAdapter(StepTrace)
_EVENT = TypeAdapter(LedgerEvent)


def write_bank(bank: MemoryBank, target: Path, overwrite: bool = False) -> None:
    """Write `bank` as it is at this moment to `target`, whole or not at all; its suffix chooses the kind.

    `.zip` is a backup, `.jsonl` holds all facts, `.parquet` the memories that any run sees now with their q in each;
    these can be imported. `.csv` has the memories with the q of the newest run, for people.
    Raises `InputError` for another suffix or a target that cannot be written, `BankFull`, `BankReadOnly`,
    `BankDamaged`.
    """
    kind = target.suffix.lower()
    if kind not in (".zip", *_WRITERS):
        raise InputError(
            f"A bank cannot be written as “{target.name}”. Nothing was written; choose a name that ends in "
            f"{', '.join(('.zip', *_WRITERS))}."
        )
    with drafted(target, overwrite) as file, tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "bank"
        bank.write_parts(copy)
        if kind == ".zip":
            _write_zip(file, copy, bank.embedder)
        else:
            with MemoryBank.open(str(copy)) as snapshot:
                _WRITERS[kind](file, snapshot)


def bank_bytes(bank: MemoryBank, kind: str) -> bytes:
    """What `write_bank` writes for the suffix `kind` ("zip", "jsonl", "parquet", "csv"). Raises as it does."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"bank.{kind}"
        write_bank(bank, target)
        return target.read_bytes()


# --- zip --------------------------------------------------------------------------------------------------------------


def _write_zip(file: BinaryIO, folder: Path, embedder: EmbedderIdentity) -> None:
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    described = {}
    for name, path in paths.items():
        with path.open("rb") as part:
            digest = hashlib.file_digest(part, "sha256").hexdigest()
        described[name] = {"bytes": path.stat().st_size, "sha256": digest}
    manifest = {
        "format": NAME,
        "version": FORMAT,
        "program": __version__,
        "created": now(),
        "embedder": embedder.name,
        "dimension": embedder.dimension,
        "files": described,
    }
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        for name, path in paths.items():
            archive.write(path, name)


def is_archive(path: Path) -> bool:
    """Whether a file is a zip, whole or not. Raises `InputError` when it cannot be read."""
    with opened(path) as file:
        return file.read(4).startswith(b"PK")


def read_bank(path: Path, cancelled: Callable[[], bool] = lambda: False) -> Contents:
    """The bank in a zip that `write_bank` wrote.

    Raises `InputError` for anything else, and for a zip that is not exactly what its manifest says, of another version,
    larger than a bank plausibly is, or whose bank is not whole or takes more work than others of its size; nothing is
    taken over then. The same once `cancelled` says so, which is asked again and again.
    """
    with tempfile.TemporaryDirectory() as folder, limited(cancelled), _unless(cancelled):
        with opened(path) as file:
            _unpack(path.name, file, Path(folder), cancelled)
        try:
            return whole_contents(folder, path.name, "a bank (zip)")
        except InputError:
            raise
        except (MemRLError, *_UNREADABLE) as error:
            raise InputError(f"The bank in {path.name} cannot be read. {AGAIN}") from error


def whole_contents(uri: str, file: str, source: str) -> Contents:
    """What the bank at `uri` holds, which was made of a `file` of this name. Raises `InputError` if it is not whole."""
    # A policy that is not installed here says nothing against the bank.
    faults = (one for one in check(uri) if not one.ok and one.name != "disk" and one.remedy != INSTALL)
    if fault := next((one.sentence for one in faults), ""):
        raise InputError(f"The bank in {file} is not whole. {fault.replace(uri, file)} {AGAIN}")
    with MemoryBank.open(uri) as bank:
        return contents_of(bank, source)


@contextmanager
def _unless(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Whatever ends work that was cancelled, as that."""
    try:
        yield
    except InputError:
        if cancelled():
            raise InputError(f"The import was stopped. {NOTHING}") from None
        raise


def _unpack(name: str, file: BinaryIO, folder: Path, cancelled: Callable[[], bool]) -> None:
    """Unpack a zip into an empty folder, as far as its manifest describes it."""
    try:
        with ZipFile(file) as archive:
            files = _files_of(name, archive)
            if odd := set(archive.namelist()) ^ {MANIFEST, *files}:
                raise InputError(f"{name} does not hold what its manifest names: {min(odd)[:80]}. {AGAIN}")
            unpacked = sum(described["bytes"] for described in files.values())
            # Not what the members say of themselves: that may be anything.
            packed = file.seek(0, SEEK_END)
            if unpacked > LARGEST or unpacked > max(RATIO_FROM, LARGEST_RATIO * packed):
                raise InputError(
                    f"{name} unpacks to {unpacked / 2**20:,.0f} MB, more than a bank of {packed / 2**20:,.0f} MB may. "
                    f"{NOTHING} Import a smaller bank, or take a copy from someone you trust."
                )
            for inside, described in files.items():
                # Only contents are written, so a member that is a link becomes a plain file.
                with disk_sentences(folder / inside), archive.open(inside) as source:
                    (folder / inside).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / inside).open("wb") as target:
                        if _copied(source, target, described["bytes"], cancelled) != described["sha256"]:
                            raise InputError(f"{inside[:80]} in {name} is not as it was written. {AGAIN}")
            must_stay_inside(folder / FOLDER, TABLE, exactly=True)
    except LeadsElsewhere as error:
        raise InputError(
            f"The vectors in {name} may lead to files or servers elsewhere: {error}. They were not opened. {NOTHING} "
            "Take a copy from someone you trust."
        ) from None
    except _UNREADABLE as error:
        raise InputError(f"{name} is damaged, or not a zip that can be read. {AGAIN}") from error


def _files_of(name: str, archive: ZipFile) -> dict[str, dict[str, Any]]:
    """The files that the manifest of a zip names, with their `bytes` and `sha256`: those of a bank, in its folder."""
    if MANIFEST not in archive.namelist():
        raise InputError(f"{name} has no {MANIFEST}: it is not a bank that was exported here. {NOTHING}")
    with archive.open(MANIFEST) as member:
        manifest = json.loads(member.read(LARGEST_MANIFEST))
    version, files = manifest["version"], manifest["files"]
    if manifest["format"] != NAME or type(version) is not int:
        raise InputError(f"{name} was not written by this program. {NOTHING} Choose a bank that was exported here.")
    if version != FORMAT:
        other = "Update the program." if version > FORMAT else "Export the bank again with this version."
        raise InputError(
            f"{name} holds a bank of format {str(version)[:20]}; this program reads format {FORMAT}. {NOTHING} {other}"
        )
    if type(files) is not dict or FILE not in files or not all(one == FILE or _is_of_vectors(one) for one in files):
        raise InputError(f"{name} does not hold the two parts of a bank. {AGAIN}")
    # A size of less than nothing would make room for the others; one of 4,000 digits is no float.
    if not all(type(one["bytes"]) is int and 0 <= one["bytes"] < 2**63 for one in files.values()):
        raise InputError(f"The manifest of {name} gives a file a size that none can have. {AGAIN}")
    if not all(isinstance(one["sha256"], str) for one in files.values()):
        raise InputError(f"The manifest of {name} gives a file no digest. {AGAIN}")
    return files


def _is_of_vectors(name: str) -> bool:
    return name.startswith(f"{FOLDER}/") and is_own(name.removeprefix(f"{FOLDER}/"), TABLE)


def _copied(source: IO[bytes], target: IO[bytes], size: int, cancelled: Callable[[], bool]) -> str:
    """The SHA-256 of what was copied, "" when `source` does not hold `size` bytes; no more than these are copied."""
    digest, left = hashlib.sha256(), size
    while left > 0 and not cancelled() and (chunk := source.read(min(left, _CHUNK))):
        left -= len(chunk)
        digest.update(chunk)
        target.write(chunk)
    return "" if left or source.read(1) else digest.hexdigest()


# --- JSONL, Parquet, CSV ----------------------------------------------------------------------------------------------


def _write_jsonl(file: BinaryIO, bank: MemoryBank) -> None:
    memories = bank.memories()
    header = _header(bank, memories)
    steps = (b'{"step":' + _TRACE.dump_json(t) + b"}" for info in bank.runs() for t in bank.each_trace(info.id))
    events = (b'{"event":' + _EVENT.dump_json(event) + b"}" for event in bank.events())
    rows = (
        to_json({"memory": {**row, "embedding": row["embedding"].tolist()}}) for row in _memory_rows(bank, memories)
    )
    file.write(to_json(header) + b"\n")
    file.writelines(line + b"\n" for line in chain(steps, events, rows))


def _write_parquet(file: BinaryIO, bank: MemoryBank) -> None:
    memories = _seen(bank)
    belief = pa.struct({"run": pa.string(), "q": pa.float64(), "visits": pa.int64()})
    numbers = {"x": pa.float64(), "y": pa.float64(), "fitted": pa.int64(), "q": pa.float64(), "visits": pa.int64()}
    columns = [*codec.memory_schema(bank.embedder.dimension), *numbers.items(), ("believed", pa.list_(belief))]
    schema = pa.schema(columns, metadata={NAME: to_json(_header(bank, memories))})
    rows = _memory_rows(bank, memories)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while chunk := list(islice(rows, ROWS_WRITTEN)):
            writer.write_table(codec.arrow(chunk, schema))


def _write_csv(file: BinaryIO, bank: MemoryBank) -> None:
    memories = _seen(bank)
    rows = ({**row, "parents": " ".join(row["parents"])} for row in _memory_rows(bank, memories))
    file.write(csv_bytes(rows, TABLE_COLUMNS))


def _header(bank: MemoryBank, memories: Sequence[Memory]) -> dict[str, Any]:
    runs, layout = bank.runs(), bank.layouts.newest()
    return {
        "format": NAME,
        "schema_version": SCHEMA_VERSION,
        "program": __version__,
        "embedder": bank.embedder.name,
        "dimension": bank.embedder.dimension,
        "embedder_digest": bank.embedder.digest,
        "created": now(),
        "runs": [codec.run_payload(info) for info in runs],
        "layout": layout.method if layout else None,
        "counts": {
            "memories": len(memories),
            "steps": sum(len(bank.steps.rows(info.id)) for info in runs),
            "ledger": len(bank.events()),
        },
    }


def _seen(bank: MemoryBank) -> list[Memory]:
    """The memories without those that no run sees any more, which are left for replays only."""
    known = {memory_id for info in bank.runs() for memory_id in bank.utilities(info.id)}
    return [memory for memory in bank.memories() if memory.id in known]


def _memory_rows(bank: MemoryBank, memories: Sequence[Memory]) -> Iterator[dict[str, Any]]:
    utilities = {info.id: bank.utilities(info.id) for info in bank.runs()}
    newest = list(utilities.values())[-1] if utilities else {}
    layout = bank.layouts.newest()
    places = layout.coordinates if layout else {}
    order = {memory_id: number for number, memory_id in enumerate(layout.fitted)} if layout else {}
    for memory in memories:
        x, y = places.get(memory.id, (None, None))
        utility = newest.get(memory.id)
        yield {
            **codec.memory_row(memory, bank.embedding(memory.id)),
            "x": x,
            "y": y,
            "fitted": order.get(memory.id),
            "q": utility.q if utility else None,
            "visits": utility.visits if utility else None,
            "believed": [
                {"run": run, "q": known[memory.id].q, "visits": known[memory.id].visits}
                for run, known in utilities.items()
                if memory.id in known
            ],
        }


_WRITERS: Mapping[str, Callable[[BinaryIO, MemoryBank], None]] = {
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
