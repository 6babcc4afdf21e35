"""Whether a bank is whole: each thing that was looked at, and what to do where it is not."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memrl_core.bank import codec
from memrl_core.bank.bank import MemoryBank
from memrl_core.bank.mirror import UNIT_TOLERANCE
from memrl_core.bank.store import Store, is_local
from memrl_core.errors import BankError, MemRLError
from memrl_core.records import EventKind

SPACE_NEEDED = 200_000_000
BRINGS_IN = frozenset(
    {EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED}
)
RESTORE = "Restore a copy of the bank. Every table that is named as readable can still be read with LanceDB."


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `remedy` is empty where nothing is amiss."""

    name: str
    ok: bool
    sentence: str
    remedy: str = ""


def check(uri: str) -> list[Finding]:
    """Look at every part of the bank at `uri`, reading all of it. Nothing is changed and no `MemRLError` is raised."""
    try:
        store, _ = Store.open(uri)
    except BankError as error:
        return [Finding("opens", False, str(error), RESTORE)]
    findings = [Finding("opens", True, "The bank can be opened.")]
    tables: dict[str, Any] = {}
    for name in ("memories", "ledger", "steps", "q_values", "layouts"):
        try:
            tables[name] = store.read(name)
        except BankError as error:
            findings.append(Finding(f"table {name}", False, str(error), RESTORE))
        else:
            findings.append(Finding(f"table {name}", True, f"{tables[name].num_rows} rows can be read."))
    if tables.keys() >= {"memories", "ledger", "steps"}:
        findings += [look(tables) for look in (_unique, _vectors, _queries, _traces, _references, _born, _parents)]
        findings += _state(uri, tables)
    if is_local(uri):
        findings.append(_space(Path(uri)))
    return findings


def _unique(tables: dict[str, Any]) -> Finding:
    doubled = [
        f"{value} ({name})"
        for name in ("memories", "ledger", "steps")
        for value, count in Counter(tables[name]["id"].to_pylist()).items()
        if count > 1
    ]
    if doubled:
        return Finding("ids", True, f"Stored twice and counted once: {', '.join(doubled[:5])}.")
    return Finding("ids", True, "Every id is there once.")


def _vectors(tables: dict[str, Any]) -> Finding:
    memories = tables["memories"]
    if memories.num_rows == 0:
        return Finding("embeddings", True, "There are none yet.")
    dimension = memories.schema.field("embedding").type.list_size
    bad = _not_unit(memories, dimension)
    if bad:
        sentence = f"{len(bad)} embeddings are not finite vectors of length 1: {', '.join(bad[:5])}."
        return Finding("embeddings", False, sentence, RESTORE)
    return Finding("embeddings", True, f"All are unit vectors of {dimension} numbers.")


def _queries(tables: dict[str, Any]) -> Finding:
    dimension = tables["memories"].schema.field("embedding").type.list_size
    steps = tables["steps"].filter(tables["steps"]["embedding"].is_valid())
    bad = _not_unit(steps, dimension) if steps.num_rows else []
    if bad:
        sentence = f"The intents of {len(bad)} steps are not finite vectors of length 1: {', '.join(bad[:5])}."
        return Finding("intents", False, sentence, RESTORE)
    return Finding("intents", True, f"{steps.num_rows} steps hold the unit vector of their intent.")


def _not_unit(table: Any, dimension: int) -> list[str]:
    """The ids of the rows whose embedding is not a finite vector of length 1."""
    lengths = np.linalg.norm(codec.matrix_of(table["embedding"], dimension).astype(np.float64), axis=1)
    return [table["id"][int(row)].as_py() for row in np.flatnonzero(~(np.abs(lengths - 1) <= UNIT_TOLERANCE))]


def _traces(tables: dict[str, Any]) -> Finding:
    bad = [row["id"] for row in tables["steps"].to_pylist() if not _readable(codec.trace_of, row)]
    if bad:
        return Finding("traces", False, f"{len(bad)} steps cannot be read: {', '.join(bad[:5])}.", RESTORE)
    return Finding("traces", True, "Every step can be read.")


def _readable(reader: Callable[[Any], object], row: Any) -> bool:
    try:
        reader(row)
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _references(tables: dict[str, Any]) -> Finding:
    known = set(tables["memories"]["id"].to_pylist())
    committed = set(tables["steps"]["id"].to_pylist())
    named = {
        memory_id
        for row in tables["ledger"].to_pylist()
        if not row["step_id"] or row["step_id"] in committed
        for memory_id in (*row["memory_ids"], *_replaced(row))
    }
    missing = sorted(named - known)
    if missing:
        sentence = f"The ledger names {len(missing)} memories that are not there: {', '.join(missing[:5])}."
        return Finding("references", False, sentence, RESTORE)
    return Finding("references", True, "Every memory that the ledger names is there.")


def _replaced(row: dict[str, Any]) -> list[str]:
    if row["kind"] not in (EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED) or not _readable(codec.event_of, row):
        return []
    return [str(memory_id) for memory_id in codec.event_of(row).payload.get("replaces", ())]


def _born(tables: dict[str, Any]) -> Finding:
    ledger = tables["ledger"].select(["kind", "memory_ids"]).to_pylist()
    born = {memory_id for row in ledger if row["kind"] in BRINGS_IN for memory_id in row["memory_ids"]}
    orphans = [i for i in tables["memories"]["id"].to_pylist() if i not in born]
    if orphans:
        said = f"{len(orphans)} memories belong to no run and are never recalled: {', '.join(orphans[:5])}."
        return Finding("orphans", True, said)
    return Finding("orphans", True, "Every memory belongs to a run.")


def _parents(tables: dict[str, Any]) -> Finding:
    ids = set(tables["memories"]["id"].to_pylist())
    named = {parent for parents in tables["memories"]["parents"].to_pylist() for parent in parents or ()}
    missing = sorted(named - ids)
    if missing:
        said = f"{len(missing)} parents of memories are not in this bank: {', '.join(missing[:5])}."
        return Finding("parents", True, said)
    return Finding("parents", True, "Every parent of a memory is there.")


def _state(uri: str, tables: dict[str, Any]) -> list[Finding]:
    try:
        bank = MemoryBank.open(uri)
        unfinished = sum(len(bank.unfinished_steps(info.id)) for info in bank.runs())
        now = {(info.id, i): (u.q, u.visits) for info in bank.runs() for i, u in bank.utilities(info.id).items()}
    except MemRLError as error:
        return [Finding("utilities", False, str(error), RESTORE)]
    said = f"{unfinished} steps began and never ended; they do not count." if unfinished else "Every step has ended."
    stored = {
        (row["run"], row["memory_id"]): (row["q"], row["visits"])
        for row in (tables["q_values"].to_pylist() if "q_values" in tables else ())
    }
    return [Finding("steps", True, said), _snapshot(now, stored)]


def _snapshot(now: dict[Any, Any], stored: dict[Any, Any]) -> Finding:
    counted = f"q of {len(now)} memories follows from the ledger; "
    stale = sorted({memory_id for run, memory_id in now.keys() | stored.keys()
                    if now.get((run, memory_id)) != stored.get((run, memory_id))})  # fmt: skip
    if not stale:
        return Finding("utilities", True, f"{counted}the snapshot q_values agrees with it.")
    told = f"the snapshot q_values differs for {len(stale)}: {', '.join(stale[:5])}. Closing the bank renews it."
    return Finding("utilities", True, counted + told)


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    if free < SPACE_NEEDED:
        return Finding("disk", False, f"Only {free / 1e6:.0f} MB are free.", "Free some space before the next run.")
    return Finding("disk", True, f"{free / 1e9:.1f} GB are free.")
