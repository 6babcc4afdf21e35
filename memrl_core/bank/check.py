"""Whether a bank is whole: each thing that was looked at, and what to do where it is not.

Every row of steps, ledger and memories carries a checksum, by which a bit that flipped is found and its row named; the
description and the maps have one as a whole. What follows from the facts is made anew and compared: candidates from the
traces, runs and q from the ledger.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Table, select

from memrl_core.bank.bank import MemoryBank
from memrl_core.bank.matrix import UNIT_TOLERANCE
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.addresses import is_local
from memrl_core.bank.storage.database import Database
from memrl_core.bank.storage.digests import chained, digest
from memrl_core.bank.storage.folders import Address, address_of
from memrl_core.bank.storage.last import LastStored
from memrl_core.bank.updates import Updates
from memrl_core.errors import BankError, BankMissing, BankUnreachable, NotABank, few
from memrl_core.numerals import dimensions
from memrl_core.policies import is_installed
from memrl_core.records import EventKind
from memrl_core.retrieval import is_cosine

SPACE_NEEDED = 200_000_000
AT_ONCE = 500
RESTORE = "Restore a copy of the bank; what can still be read of this one can be exported (memrl export)."
LOST = "Put bank.db-wal or a whole copy of the folder back; `memrl doctor --rebuild` keeps the bank as it is."
REBUILD = "Run `memrl doctor --rebuild` on it: what follows from the ledger is written anew."
INSTALL = (
    "Install the package that the policy is from, then run `memrl doctor --rebuild`: q is computed from the ledger."
)
_BY_A_RECORDER = schema.steps.c.trace.contains('"origin":"recorder"', autoescape=True)
_NUMBERED = [table for table in schema.metadata.sorted_tables if "position" in table.c]
_CAUSE = schema.q_moves.c.event
_HAS_NO_EVENT = (_CAUSE != "") & _CAUSE.notin_(select(schema.ledger.c.id))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `remedy` is empty where nothing is amiss."""

    name: str
    ok: bool
    sentence: str
    remedy: str = ""


def check(uri: str) -> list[Finding]:
    """Look at every part of the bank at `uri`, reading all of it. No fact is changed and nothing is raised."""
    try:
        address = address_of(uri)
        address.must_be_there()
        database = Database.at(address.database, address.shown)
    except BankError as error:
        return [_unopened(error)]
    try:
        return list(_looked_at(address, database))
    finally:
        database.close()


def rebuild(uri: str) -> int:
    """Write anew what follows from the facts: q of every run and its moves. How many runs that were.

    Raises what opening and writing a bank raises, and `BankDamaged` where an event cannot be folded.
    """
    with MemoryBank.open(uri) as bank:
        bank.write.rebuild()
        return len(bank.runs())


def _looked_at(address: Address, database: Database) -> Iterator[Finding]:
    try:
        values = database.description()
    except BankError as error:
        yield _unopened(error)
        return
    yield Finding("opens", True, "The bank can be opened.")
    yield _described(values)
    # Before a row of any table is read: a check, a view or an index of another's making may take all day over one.
    schema_kept = _read("schema", lambda: _schema(database))
    yield schema_kept
    if not schema_kept.ok:
        return
    yield _read("newest", lambda: _newest(database))
    whole = [
        _read("database", lambda: _integrity(database)),
        _read("steps", lambda: _steps(database, values["embedder"])),
        _read("ledger", lambda: _ledger(database)),
    ]
    yield from whole
    vectors = _read("memories", lambda: _memories(address, int(values["dimension"]), database))
    yield vectors
    yield _read("maps", lambda: _maps(database, values))
    if all(one.ok for one in (*whole, vectors)):
        yield from _of_the_whole(address, database)
    if is_local(address.uri):
        yield _space(Path(address.uri))


def _unopened(error: BankError) -> Finding:
    remedy = RESTORE
    if isinstance(error, BankUnreachable):
        remedy = "Check the address, the keys and the network."
    elif isinstance(error, (BankMissing, NotABank)):
        remedy = "Check the place, or restore a copy of the bank."
    return Finding("opens", False, str(error), remedy)


def _described(values: Mapping[str, str]) -> Finding:
    by = f"Embeddings of {dimensions(int(values['dimension']))} by {values['embedder'][:80]}."
    later = (
        "" if "digest" in values else " An earlier version wrote it: it gets its checksums when something is stored."
    )
    return Finding("description", True, by + later)


def _newest(database: Database) -> Finding:
    missing = LastStored(database).missing
    return Finding("newest", not missing, missing or "What was stored last is there.", LOST if missing else "")


def _of_the_whole(address: Address, database: Database) -> Iterator[Finding]:
    with MemoryBank.open(address.uri) as bank:
        yield _read("runs", lambda: _runs(bank, database))
        yield _read("utilities", lambda: _utilities(bank, database), REBUILD)
        yield _read("unfinished", lambda: _unfinished(bank))
        if recorded := database.rows(select(schema.steps.c.run, schema.steps.c.step).where(_BY_A_RECORDER)):
            yield _read("reported", lambda: _reported(bank, recorded))


def _unfinished(bank: MemoryBank) -> Finding:
    count = sum(len(bank.steps.unfinished(info.id)) for info in bank.runs())
    unended = f"Steps that began and never ended: {count}. They do not count." if count else "Every step has ended."
    return Finding("unfinished", True, unended)


def _read(name: str, look: Callable[[], Finding], remedy: str = RESTORE) -> Finding:
    """What `look` finds; where it cannot read something, that."""
    try:
        return look()
    except BankError as error:
        return Finding(name, False, str(error), remedy)
    except Exception as error:  # A damaged row may stop a look in any way.
        return Finding(name, False, f"It cannot be read ({type(error).__name__}). Nothing was changed.", remedy)


# --- facts ------------------------------------------------------------------------------------------------------------


def _schema(database: Database) -> Finding:
    if not database.is_sqlite:
        return Finding("schema", True, "The server keeps the tables.")
    if odd := database.foreign_parts():
        return Finding("schema", False, f"The tables are not those of a bank: {few(odd)}. Nothing was read.", RESTORE)
    return Finding("schema", True, "Tables, indexes and triggers are those of a bank.")


def _integrity(database: Database) -> Finding:
    if not database.is_sqlite:
        return Finding("database", True, "The server keeps the database whole.")
    faults = [str(row[0]) for row in database.raw("PRAGMA integrity_check(5)")]
    if faults != ["ok"]:
        return Finding("database", False, f"SQLite finds the file damaged: {'; '.join(faults)[:200]}.", RESTORE)
    if odd_tables := [table.name for table in _NUMBERED if not _is_numbered(database, table)]:
        sentence = f"Rows were removed, added or renumbered: {few(odd_tables)} is not numbered from 1 without a gap."
        return Finding("database", False, sentence, RESTORE)
    return Finding("database", True, "SQLite finds nothing amiss in the file.")


def _is_numbered(database: Database, table: Table) -> bool:
    """Whether the positions of a table of SQLite are 1, 2, 3 …: its rows are appended and never deleted."""
    ((count, first, last),) = database.raw(f"SELECT count(*), min(position), max(position) FROM {table.name}")
    return (first or 1, last or 0) == (1, count)


def _steps(database: Database, embedder: str) -> Finding:
    count, odd = 0, []
    columns = [column.name for column in schema.candidates.c if column.name != "position"]
    of_step = f"SELECT {', '.join(columns)} FROM candidates WHERE run = ? AND step = ? ORDER BY position"
    for row in _rows(database, schema.steps):
        count += 1
        name = f"step {row['step']} of run {str(row['run'])[:80]}"
        if digest(row) != row["digest"]:
            odd.append(f"{name} is not as it was written")
            continue
        trace = codec.trace_of(row["trace"], row["embedding"])
        if trace.embed is not None and trace.embed.embedder != embedder:
            odd.append(f"the vector of {name} is by {trace.embed.embedder[:80]}, which is not the bank's embedder")
        made = [tuple(one[column] for column in columns) for one in codec.candidate_rows(trace)]
        if [tuple(one) for one in database.raw(of_step, (trace.run, trace.step))] != made:
            odd.append(f"the candidates of {name} are not those of its record")
    strays = "SELECT DISTINCT run, step FROM candidates EXCEPT SELECT run, step FROM steps"
    odd += [
        f"candidates are of step {step} of run {str(run)[:80]}, which is not there"
        for run, step in database.raw(strays)
    ]
    return _account("steps", odd, f"Every step is as it was written ({count:,}).")


def _ledger(database: Database) -> Finding:
    count, odd = 0, []
    for row in _rows(database, schema.ledger):
        count += 1
        try:
            event = codec.event_of([row[name] for name in codec.EVENT_FIELDS])
            whole = codec.event_row(event) == row
        except codec.UNREADABLE:
            whole = False
        if not whole:
            odd.append(f"event {str(row['id'])[:80]} of run {str(row['run'])[:80]} is not as it was written")
    return _account("ledger", odd, f"Every event is as it was written ({count:,}).")


def _memories(address: Address, dimension: int, database: Database) -> Finding:
    named = {i for (i,) in database.rows(select(schema.q_values.c.memory_id).distinct())}
    odd, seen = [], set()
    for row in codec.rows_of(address.open_vectors(dimension).read()):
        memory_id = str(row["id"])
        if digest(row) == row["digest"]:
            seen.add(memory_id)
            if abs(float(np.linalg.norm(row["embedding"])) - 1) > UNIT_TOLERANCE:
                odd.append(f"memory {memory_id[:160]} has no vector of length 1")
        elif memory_id in named or memory_id not in seen:
            odd.append(f"memory {memory_id[:160]} is not as it was written")
    odd += [f"memory {memory_id[:160]} is named and not there" for memory_id in sorted(named - seen)]
    left = len(seen - named)
    rest = f" {left:,} more are left over from steps that never ended." if left else ""
    return _account("memories", odd, f"Every memory is as it was written ({len(seen & named):,}).{rest}")


def _maps(database: Database, values: Mapping[str, str]) -> Finding:
    odd = [
        f"the rows of {table.name} are not as they were written"
        for table in schema.SEALED
        for last, checksum in [schema.sealed(values, table)]
        if chained("", (row for at, row in database.numbered(table) if at <= last)) != checksum
    ]
    known = {i for (i,) in database.raw("SELECT DISTINCT memory_id FROM q_values")}
    left = {str(row["id"]) for _, row in database.numbered(schema.layouts)}
    there, count = set(left), 0
    for _, row in database.numbered(schema.points):
        count += 1
        left.discard(row["layout"])
        if row["layout"] not in there or row["memory_id"] not in known:
            odd.append(f"a place of memory {str(row['memory_id'])[:160]} is on no map, or of no memory of this bank")
        elif not all(isinstance(number, float) and math.isfinite(number) for number in (row["x"], row["y"])):
            odd.append(f"the place of memory {row['memory_id'][:160]} is none")
    odd += [f"map {layout[:80]} has no points" for layout in sorted(left)]
    return _account("maps", odd, f"Every point on a map is as it was written ({count:,}).")


def _rows(database: Database, table: Table) -> Iterator[dict[str, Any]]:
    """The rows of a table without their positions, in order, as they are stored."""
    last = 0
    while found := list(database.numbered(table, last, AT_ONCE)):
        yield from (row for _, row in found)
        last = found[-1][0]


def _account(name: str, odd: list[str], whole: str) -> Finding:
    if odd:
        return Finding(name, False, f"{len(odd):,} {'fault' if len(odd) == 1 else 'faults'}: {few(odd)}.", RESTORE)
    return Finding(name, True, whole)


# --- what follows from them -------------------------------------------------------------------------------------------


def _runs(bank: MemoryBank, database: Database) -> Finding:
    events = {e.run: e.payload for e in bank.events() if e.kind is EventKind.RUN_STARTED}
    begun = {run: codec.run_of(payload) for run, payload in events.items()}
    stored = {row["id"]: row for row in _rows(database, schema.runs)}
    odd = begun.keys() ^ stored.keys()
    for run in begun.keys() & stored.keys():
        rows = stored[run], codec.run_row(begun[run])
        found, made = ({**row, "settings": json.loads(row["settings"])} for row in rows)
        info = json.loads(found["info"])
        # An earlier version stored fewer keys of a run than this one has.
        written = info == events[run] or _is_part(info, json.loads(made["info"]))
        if not written or codec.run_of(info) != begun[run] or found != made | {"info": found["info"]}:
            odd.add(run)
    faults = [f"run {run[:80]} is not as its ledger says" for run in sorted(odd)]
    return _account("runs", faults, f"Every run is as the ledger says ({len(stored):,}).")


def _is_part(part: Any, whole: Any) -> bool:
    """Whether every key of a JSON value stands in another, with the same value."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _is_part(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


def _utilities(bank: MemoryBank, database: Database) -> Finding:
    """The derived tables against a fold of the whole ledger."""
    odd, count, unknown, unmoved = [], 0, [], []
    for info in bank.runs():
        if not is_installed(info.policy):
            unknown.append(info.id)
            unmoved.append(bank.credits.unmoved(info.id))
            continue
        made = bank._q.anew(info.id)
        values = {row["memory_id"]: [row] for row in _derived(database, schema.q_values, info.id)}
        moves: dict[str, list[dict[str, Any]]] = {}
        for row in _derived(database, schema.q_moves, info.id):
            moves.setdefault(row["memory_id"], []).append(row)
        for value, moved in Updates(bank._facts, bank._q).derived(info.id, made):
            count += 1
            memory_id = value["memory_id"]
            stored = moves.pop(memory_id, [])
            # An event stays although the same reward was given again since, which moved nothing.
            same = (
                values.pop(memory_id, []) == [value]
                and math.isfinite(value["q"])
                and len(stored) == len(moved)
                and all(
                    row == {**move, "event": row["event"]} and row["event"] in (causes or [""])
                    for row, (move, causes) in zip(stored, moved, strict=True)
                )
            )
            if not same:
                odd.append(f"{memory_id[:160]} in run {info.id[:80]}")
        odd += [f"{str(memory_id)[:160]} in run {info.id[:80]}" for memory_id in dict.fromkeys([*values, *moves])]
    strays = "SELECT run, memory_id FROM {} WHERE run NOT IN (SELECT id FROM runs)"
    for table in (schema.q_values, schema.q_moves):
        odd += [f"{str(i)[:160]} in run {str(run)[:80]}" for run, i in database.raw(strays.format(table.name))]
    causes = database.rows(select(schema.q_moves.c.run, schema.q_moves.c.memory_id).where(_HAS_NO_EVENT))
    odd = list(dict.fromkeys([*odd, *(f"{memory_id[:160]} in run {run[:80]}" for run, memory_id in causes)]))
    if odd:
        sentence = f"q does not follow from the ledger for {len(odd):,} memories: {few(odd)}."
        return Finding("utilities", False, sentence, REBUILD)
    if sentence := next(filter(None, unmoved), ""):
        return Finding("utilities", False, sentence, INSTALL)
    left = f" Not computed, as their policies are not installed: {few(unknown)}." if unknown else ""
    return Finding(
        "utilities", True, f"Every q follows from the ledger, with each of its moves ({count:,} memories).{left}"
    )


def _reported(bank: MemoryBank, steps: Iterable[tuple[str, int]]) -> Finding:
    """The scores by which other agents recalled, against the cosines of the stored vectors."""
    count, apart = 0, []
    for run, step in steps:
        count += 1
        trace = bank.trace(run, step)
        if trace.embed is None or trace.embed.decided_by or trace.recall is None:
            continue
        query = np.asarray(trace.embed.embedding, dtype=np.float32)
        for one in trace.recall.pool:
            score = one.similarity if one.signal is None else one.signal
            if not is_cosine(score, float(bank.embedding(one.memory_id) @ query)):
                apart.append(f"step {step} of run {run[:80]}")
                break
    if apart:
        sentence = (
            f"Scores that other agents reported are no cosines of the stored vectors in {len(apart):,} of {count:,} "
            f"steps: {few(apart)}."
        )
        return Finding("reported", True, sentence, "The agent may report its cosines, or ids without scores.")
    return Finding("reported", True, f"No stored vector contradicts a score that another agent reported ({count:,}).")


def _derived(database: Database, table: Table, run: str) -> Iterator[dict[str, Any]]:
    """The rows of a table that follows from the ledger, of one run, in the order of their keys."""
    names = table.c.keys()
    keys = ", ".join(column.name for column in table.primary_key)
    query = f"SELECT {', '.join(names)} FROM {table.name} WHERE run = ? ORDER BY {keys}"
    return (dict(zip(names, row, strict=True)) for row in database.raw(query, (run,)))


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    if free < SPACE_NEEDED:
        return Finding("disk", False, f"Only {free / 1e6:.0f} MB are free.", "Free some space before the next run.")
    return Finding("disk", True, f"{free / 1e9:.1f} GB are free.")
