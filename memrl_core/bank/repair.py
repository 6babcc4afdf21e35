"""A whole bank made of a damaged one: what can be read is kept, what is derived is made anew, the rest is set aside.

The damaged bank is only read. The repaired one is made under a hidden name and appears whole; where it is to take the
place of the damaged one, a full copy of that is made first, and the two names are exchanged in one step.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from memrl_core.bank import codec
from memrl_core.bank.addresses import plain
from memrl_core.bank.bank import ADOPTED_AT_ONCE, MemoryBank
from memrl_core.bank.description import LOST_MEMORIES, embedders_before, lost_memories
from memrl_core.bank.exchanging import exchange
from memrl_core.bank.faults import payload_in, trace_in
from memrl_core.bank.flat import LOCK as FLAT_LOCK
from memrl_core.bank.flat import is_flat
from memrl_core.bank.integrity import check
from memrl_core.bank.journal import JOURNAL, JOURNALED, MOVING, raw, readable
from memrl_core.bank.ledger import now
from memrl_core.bank.mended import Aside, Mended
from memrl_core.bank.mending import mended
from memrl_core.bank.places import copy_folder, disk_sentences
from memrl_core.bank.repair_report import Repair, TableRepair, report
from memrl_core.bank.salvage import Salvaged, opened, rows_of, salvaged, versions_lost
from memrl_core.bank.store import LARGEST_DIMENSION, LOCK_FILE, TABLES, Store, is_local
from memrl_core.errors import BankError, BankMissing, BankTooNew, InputError, NotABank
from memrl_core.records import EventKind

SET_ASIDE = "set-aside"
REPORT = "report.md"


def repair(uri: str, to: Path | None = None, in_place: bool = False, embedder: str = "") -> Repair:
    """Make a repaired copy of the bank at `uri`: at `to`, beside it, or in its place with a full copy beside it.

    `embedder` names who made the embeddings, where the bank itself cannot tell any more. Raises `InputError` for a bank
    that is not on this machine, a place that is taken and an embedder that is not known, `BankMissing`, `NotABank`,
    `BankTooNew`, `BankError` while another process writes, `BankFull`, `BankReadOnly`.
    """
    source = _bank_at(uri)
    if in_place and to is not None:
        raise InputError("A bank is repaired in its place or into a copy, not both. Nothing was changed; choose one.")
    findings = [finding for finding in check(uri) if finding.name != "disk"]
    if all(finding.ok for finding in findings):
        return Repair(uri, "", "", (), (), ())
    _must_not_be_newer(uri)
    target = source if in_place else to or _free(source, "repaired")
    if not in_place and (target.exists() or target.is_symlink()):
        raise InputError(f"Something is already stored at {target}. Nothing was changed; choose another place.")
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {target.parent}. Nothing was changed; make it first.")
    draft = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    copy = ""
    try:
        with disk_sentences(target), _alone(source, in_place):
            if in_place:
                kept = next(path for n in count(1) if not (path := _beside(source, f"before-repair-{n}")).exists())
                copy_folder(source, kept)
                copy = str(kept)
            made = _make(source, draft, target, copy, embedder)
            if in_place:
                exchange(draft, target)
            else:
                draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def _bank_at(uri: str) -> Path:
    if not is_local(plain(uri)):
        raise InputError("Only banks on this machine can be repaired. Nothing was changed; copy it here first.")
    path = Path(plain(uri)).absolute()
    if not path.exists():
        raise BankMissing(f"There is no bank at {uri}. Nothing was changed; check the place.")
    if not any((path / f"{name}.lance").is_dir() for name in TABLES):
        raise NotABank(f"The folder {uri} holds nothing of a bank. Nothing was changed; choose the folder of a bank.")
    return path


def _must_not_be_newer(uri: str) -> None:
    try:
        Store.open(uri)
    except BankTooNew:
        raise
    except BankError:
        pass


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}-{ending}")


def _free(path: Path, ending: str) -> Path:
    names = (_beside(path, ending if n == 1 else f"{ending}-{n}") for n in count(1))
    return next(name for name in names if not name.exists())


@contextmanager
def _alone(path: Path, needed: bool) -> Iterator[None]:
    if not needed:
        yield
        return
    lock = FileLock(path / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BankError(
            f"Another process is writing to {path}. Nothing was changed; wait for it, or end it, and try again."
        ) from None
    try:
        yield
    finally:
        lock.release()


# --- making -----------------------------------------------------------------------------------------------------------


def _make(source: Path, draft: Path, target: Path, copy: str, embedder: str) -> Repair:
    """Make the repaired bank at `draft`, with what was set aside and the report in it."""
    # Before the tables: what moves meanwhile is then found here, there or twice, and never missed.
    files = raw(source)
    found = {name: salvaged(str(source), name) for name in TABLES}
    description = _described(found["meta"])
    dimension = _dimension(found, description)
    journal = readable(files, codec.schemas(dimension))
    for name in JOURNALED:
        _add_waiting(found[name], (journal.moving[name], journal.waiting[name]))
    description |= {
        "schema_version": codec.SCHEMA_VERSION,
        "dimension": dimension,
        "embedder": embedder or _embedder(found, description),
    }
    description.setdefault("created", now())
    rows = {name: found[name].rows for name in ("memories", "steps", "ledger", "layouts")}
    made = mended(rows, dimension, _lost_some(source, found["steps"]) or journal.lost > 0)
    lost = sorted({*made.lost_memories, *lost_memories(description)} - made.memories.keys())
    description |= {LOST_MEMORIES: lost} if lost else {}
    store = Store.create(str(draft), description, dimension)
    for name, kept in (("memories", made.memories), ("ledger", made.ledger), ("steps", made.steps)):
        _append(store, name, kept.values())
    _append(store, "layouts", made.places)
    store.close()
    with MemoryBank.open(str(draft)) as bank:
        bank.checkpoint()
        was_indexed = any((source / "memories.lance" / "_indices").glob("*")) and bool(made.memories)
        if was_indexed:
            bank.index()
    _take_along(source, draft)
    tables = tuple(_account(name, found[name], made) for name in ("memories", "steps", "ledger", "layouts"))
    index = ("The index of the memories was made anew.",) if was_indexed else ()
    parts = (f"{journal.lost} parts of the journal could not be read.",) if journal.lost else ()
    told = (*_of_versions(source, found), *parts, *index, *made.told, *_of_description(found["meta"], description))
    remaining = tuple(f.sentence for f in check(str(draft)) if not f.ok and f.name != "disk")
    repaired = Repair(str(source), str(target), copy, tables, told, remaining)
    aside = _write_aside(draft, made.aside)
    (_free_in(draft, REPORT)).write_text(report(repaired, aside.name if aside else ""), encoding="utf-8")
    return repaired


def _add_waiting(found: Salvaged, waiting: Iterable[pa.Table]) -> None:
    """Add the rows of the journal that had not arrived in their table."""
    there = {row.get("id") for row in found.rows}
    late = [row for table in waiting for row in rows_of(table) if row["id"] not in there]
    found.rows += late
    if found.announced is not None:
        found.announced += len(late)


def _append(store: Store, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    waiting = iter(rows)
    while chunk := list(islice(waiting, ADOPTED_AT_ONCE)):
        store.append(name, chunk)


def _described(found: Salvaged) -> dict[str, Any]:
    description = {}
    for row in found.rows:
        try:
            description[str(row["key"])] = json.loads(row["value"])
        except (KeyError, ValueError, TypeError):
            continue
    return description


def _dimension(found: Mapping[str, Salvaged], description: Mapping[str, Any]) -> int:
    """How many numbers an embedding has: by the columns, which hold them, before the description, which says so."""
    said = description.get("dimension")
    for one in (found["memories"].dimension, found["steps"].dimension, said):
        if isinstance(one, int) and 1 <= one <= LARGEST_DIMENSION:
            return one
    raise InputError(
        "Neither embeddings nor the bank's description can be read, so nothing of this bank can be repaired. Nothing "
        "was changed; restore a copy."
    )


def _embedder(found: Mapping[str, Salvaged], description: Mapping[str, Any]) -> str:
    """Who made the embeddings: as most steps and runs say; by the description where they say nothing, or agree."""
    traces = (trace_in(row) for row in found["steps"].rows)
    named = Counter(trace.embed.embedder for trace in traces if trace is not None and trace.embed is not None)
    for row in found["ledger"].rows:
        if row.get("kind") == EventKind.RUN_STARTED:
            named[str((payload_in(row) or {}).get("embedder") or "")] += 1
    del named[""]
    said = description.get("embedder")
    fits = not named or not named.keys().isdisjoint([str(said), *embedders_before(description)])
    if isinstance(said, str) and said and fits:
        return said
    if not named:
        raise InputError(
            "Nothing in this bank says which embedder made its embeddings any more. Nothing was changed; name it with "
            "--embedder."
        )
    return named.most_common(1)[0][0]


def _lost_some(source: Path, steps: Salvaged) -> bool:
    return steps.lost != 0 or _versions_gone(source, "steps") > 0


def _versions_gone(source: Path, name: str) -> int:
    try:
        return versions_lost(str(source), name, int(opened(str(source), name).version))
    except BankError:
        return 0


def _take_along(source: Path, draft: Path) -> None:
    """Copy what lies beside the tables, such as what an earlier repair had set aside."""
    for path in source.iterdir():
        if path.suffix == ".lance" or path.name in (LOCK_FILE, JOURNAL, MOVING, FLAT_LOCK) or is_flat(path):
            continue
        if path.is_dir():
            shutil.copytree(path, draft / path.name)
        else:
            shutil.copy2(path, draft / path.name)


# --- telling ----------------------------------------------------------------------------------------------------------


def _account(name: str, found: Salvaged, made: Mended) -> TableRepair:
    there = {"memories": made.memories, "steps": made.steps, "ledger": made.ledger, "layouts": made.places}[name]
    aside = sum(1 for one in made.aside if one.table == name)
    rebuilt = made.rebuilt[name]
    return TableRepair(name, len(found.rows), len(there) - rebuilt, aside, rebuilt, found.lost)


def _of_versions(source: Path, found: Mapping[str, Salvaged]) -> list[str]:
    told = []
    for name, table in found.items():
        if table.older:
            told.append(f"Of the table {name} older versions were read where the newest could not be.")
        elif gone := _versions_gone(source, name):
            told.append(f"The newest {gone} versions of the table {name} are gone, with what was appended last.")
    told.append("The snapshot q_values was made anew from the ledger.")
    return told


def _of_description(found: Salvaged, description: Mapping[str, Any]) -> list[str]:
    before = _described(found)
    odd = [name for name in ("dimension", "embedder") if before.get(name) != description[name]]
    return [f"The bank's {name} could not be read or was wrong; it is now {description[name]}." for name in odd]


def _free_in(folder: Path, name: str) -> Path:
    stem, dot, ending = name.partition(".")
    names = (folder / (name if n == 1 else f"{stem}-{n}{dot}{ending}") for n in count(1))
    return next(path for path in names if not path.exists())


def _write_aside(draft: Path, aside: Sequence[Aside]) -> Path | None:
    if not aside:
        return None
    folder = _free_in(draft, SET_ASIDE)
    folder.mkdir()
    for name in dict.fromkeys(one.table for one in aside):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for one in aside:
                if one.table == name:
                    file.write(json.dumps({"reason": one.reason, "row": _plain(one.row)}, allow_nan=False) + "\n")
    return folder


def _plain(value: Any) -> Any:
    """A cell as JSON: numbers that are not finite become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | int | bool) else str(value)
