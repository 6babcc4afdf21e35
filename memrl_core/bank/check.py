"""Whether a bank is whole: each thing that was looked at, and what to do where it is not.

Every row of steps, ledger and memories carries a checksum, by which a bit that flipped is found and its row named. What
follows from the facts is made anew and compared: candidates from the traces, q from the ledger.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select

from memrl_core.bank.bank import MemoryBank
from memrl_core.bank.matrix import UNIT_TOLERANCE
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.addresses import is_local
from memrl_core.bank.storage.places import Place, place_of
from memrl_core.bank.storage.schema import Database
from memrl_core.errors import BankError, BankMissing, BankUnreachable, NotABank, few
from memrl_core.learning import folded
from memrl_core.numerals import dimensions
from memrl_core.policies import is_installed
from memrl_core.records import EventKind
from memrl_core.retrieval import is_cosine

SPACE_NEEDED = 200_000_000
AT_ONCE = 500
RESTORE = "Restore a copy of the bank; what can still be read of this one can be exported (memrl export)."
REBUILD = "Run `memrl doctor --rebuild` on it: what follows from the ledger is written anew."
INSTALL = (
    "Install the package that the policy is from, then run `memrl doctor --rebuild`: q is computed from the ledger."
)
_LEDGER_COLUMNS = ("id", "seq", "run", "step", "step_id", "known_at", "kind", "memory_ids", "value", "source", "rater",
                   "reason", "revokes", "payload", "created", "digest", "actor", "undoes")  # fmt: skip

_BY_A_RECORDER = schema.steps.c.trace.contains('"origin":"recorder"', autoescape=True)
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
        place = place_of(uri)
        place.must_be_there()
        database = Database.at(place.database, place.shown)
    except BankError as error:
        return [_unopened(error)]
    try:
        return list(_looked_at(place, database))
    finally:
        database.close()


def rebuild(uri: str) -> int:
    """Write anew what follows from the facts: q of every run and its moves. How many runs that were.

    Raises what opening and writing a bank raises, and `BankDamaged` where an event cannot be folded.
    """
    with MemoryBank.open(uri) as bank:
        bank.rebuild()
        return len(bank.runs())


def _looked_at(place: Place, database: Database) -> Iterator[Finding]:
    try:
        values = database.description()
    except BankError as error:
        yield _unopened(error)
        return
    yield Finding("opens", True, "The bank can be opened.")
    yield Finding(
        "description", True, f"Embeddings of {dimensions(int(values['dimension']))} by {values['embedder'][:80]}."
    )
    whole = [
        _read("database", lambda: _integrity(database)),
        _read("steps", lambda: _steps(database)),
        _read("ledger", lambda: _ledger(database)),
    ]
    yield from whole
    vectors = _read("memories", lambda: _memories(place, int(values["dimension"]), database))
    yield vectors
    if all(one.ok for one in (*whole, vectors)):
        yield from _of_the_whole(place, database)
    if is_local(place.uri):
        yield _space(Path(place.uri))


def _unopened(error: BankError) -> Finding:
    remedy = RESTORE
    if isinstance(error, BankUnreachable):
        remedy = "Check the address, the keys and the network."
    elif isinstance(error, (BankMissing, NotABank)):
        remedy = "Check the place, or restore a copy of the bank."
    return Finding("opens", False, str(error), remedy)


def _of_the_whole(place: Place, database: Database) -> Iterator[Finding]:
    bank = MemoryBank.open(place.uri)
    yield _read("runs", lambda: _runs(bank, database))
    yield _read("utilities", lambda: _utilities(bank, database), REBUILD)
    unfinished = sum(len(bank.unfinished_steps(info.id)) for info in bank.runs())
    unended = (
        f"Steps that began and never ended: {unfinished}. They do not count." if unfinished else "Every step has ended."
    )
    yield Finding("unfinished", True, unended)
    if recorded := database.rows(select(schema.steps.c.run, schema.steps.c.step).where(_BY_A_RECORDER)):
        yield _read("reported", lambda: _reported(bank, recorded))
    bank.close()


def _read(name: str, look: Callable[[], Finding], remedy: str = RESTORE) -> Finding:
    """What `look` finds; where it cannot read something, that."""
    try:
        return look()
    except BankError as error:
        return Finding(name, False, str(error), remedy)
    except Exception as error:  # A damaged row may stop a look in any way.
        return Finding(name, False, f"It cannot be read ({type(error).__name__}). Nothing was changed.", remedy)


# --- facts ------------------------------------------------------------------------------------------------------------


def _integrity(database: Database) -> Finding:
    if not database.is_sqlite:
        return Finding("database", True, "The server keeps the database whole.")
    faults = [str(row[0]) for row in database.raw("PRAGMA integrity_check(5)")]
    if faults != ["ok"]:
        return Finding("database", False, f"SQLite finds the file damaged: {'; '.join(faults)[:200]}.", RESTORE)
    found = {str(row[0]) for row in database.raw("SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view')")}
    if odd := found ^ {"ledger_refuses_update", "ledger_refuses_delete"}:
        return Finding("database", False, f"Triggers are missing or not a bank's own: {few(sorted(odd))}.", RESTORE)
    return Finding("database", True, "SQLite finds nothing amiss in the file.")


def _steps(database: Database) -> Finding:
    count, odd = 0, []
    for row in _rows(database, schema.steps, [*schema.steps.c.keys()][1:]):
        count += 1
        name = f"step {row['step']} of run {str(row['run'])[:80]}"
        if codec.digest(row) != row["digest"]:
            odd.append(f"{name} is not as it was written")
            continue
        trace = codec.trace_of(row["trace"], row["embedding"])
        of_step = schema.candidates.c.run == trace.run, schema.candidates.c.step == trace.step
        columns = [column for column in schema.candidates.c if column.name != "position"]
        stored = database.rows(select(*columns).where(*of_step).order_by(schema.candidates.c.position))
        made = [tuple(one[column.name] for column in columns) for one in codec.candidate_rows(trace)]
        if [tuple(one) for one in stored] != made:
            odd.append(f"the candidates of {name} are not those of its record")
    return _account("steps", odd, f"Every step is as it was written ({count:,}).")


def _ledger(database: Database) -> Finding:
    count, odd = 0, []
    for row in _rows(database, schema.ledger, _LEDGER_COLUMNS):
        count += 1
        cells = {name: row[name] for name in _LEDGER_COLUMNS[:-2]}
        try:
            event = codec.event_of([cells[name] for name in _LEDGER_COLUMNS[:15]])
            whole = codec.digest(cells) == row["digest"] and codec.event_row(event) == row
        except codec.UNREADABLE:
            whole = False
        if not whole:
            odd.append(f"event {str(row['id'])[:80]} of run {str(row['run'])[:80]} is not as it was written")
    return _account("ledger", odd, f"Every event is as it was written ({count:,}).")


def _memories(place: Place, dimension: int, database: Database) -> Finding:
    named = {i for (i,) in database.rows(select(schema.q_values.c.memory_id).distinct())}
    odd, seen = [], set()
    for row in codec.rows_of(place.open_vectors(dimension).read()):
        memory_id = str(row["id"])
        if codec.digest(row) == row["digest"]:
            seen.add(memory_id)
            if abs(float(np.linalg.norm(row["embedding"])) - 1) > UNIT_TOLERANCE:
                odd.append(f"memory {memory_id[:160]} has no vector of length 1")
        elif memory_id in named or memory_id not in seen:
            odd.append(f"memory {memory_id[:160]} is not as it was written")
    odd += [f"memory {memory_id[:160]} is named and not there" for memory_id in sorted(named - seen)]
    left = len(seen - named)
    rest = f" {left:,} more are left over from steps that never ended." if left else ""
    return _account("memories", odd, f"Every memory is as it was written ({len(seen & named):,}).{rest}")


def _rows(database: Database, table: Any, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    columns, last = list(names), 0
    while True:
        query = select(table.c.position, *(table.c[name] for name in columns)).where(table.c.position > last)
        found = database.rows(query.order_by(table.c.position).limit(AT_ONCE))
        for position, *values in found:
            last = position
            yield dict(zip(columns, values, strict=True))
        if not found:
            return


def _account(name: str, odd: list[str], whole: str) -> Finding:
    if odd:
        return Finding(name, False, f"{len(odd):,} {'fault' if len(odd) == 1 else 'faults'}: {few(odd)}.", RESTORE)
    return Finding(name, True, whole)


# --- what follows from them -------------------------------------------------------------------------------------------


def _runs(bank: MemoryBank, database: Database) -> Finding:
    begun = {e.run: codec.run_of(e.payload) for e in bank.events() if e.kind is EventKind.RUN_STARTED}
    columns = [column.name for column in schema.runs.c if column.name != "position"]
    stored = {row["id"]: row for row in _rows(database, schema.runs, columns)}
    odd = begun.keys() ^ stored.keys()
    for run in begun.keys() & stored.keys():
        rows = stored[run], codec.run_row(begun[run])
        found, made = ({**row, "settings": json.loads(row["settings"])} for row in rows)
        if codec.run_of(json.loads(found["info"])) != begun[run] or found != made | {"info": found["info"]}:
            odd.add(run)
    faults = [f"run {run[:80]} is not as its ledger says" for run in sorted(odd)]
    return _account("runs", faults, f"Every run is as the ledger says ({len(stored):,}).")


def _utilities(bank: MemoryBank, database: Database) -> Finding:
    """The derived tables against a fold of the whole ledger."""
    state, odd, count, unknown, unmoved = bank._state, [], 0, [], []
    for info in bank.runs():
        if not is_installed(info.policy):
            unknown.append(info.id)
            unmoved.append(bank.unmoved(info.id))
            continue
        events = state.events(info.id)
        made = folded(state.start(info.id), events, state.committed(events))
        kept = state.live(info.id)
        kept.histories.read()
        for memory_id in [*made.histories, *(kept.histories.keys() - made.histories.keys())]:
            count += 1
            utility = made.utilities.get(memory_id) or made.away.get(memory_id)
            same = (
                utility is not None
                and math.isfinite(utility.q)
                and kept.utilities.get(memory_id) == made.utilities.get(memory_id)
                and kept.away.get(memory_id) == made.away.get(memory_id)
                and (memory_id in kept.pinned) == (memory_id in made.pinned)
                and (memory_id in kept.begun_anew) == (memory_id in made.begun_anew)
                and kept.inherited.get(memory_id) == made.inherited.get(memory_id)
                and kept.origins.get(memory_id) == made.origins.get(memory_id)
                and kept.histories.get(memory_id) == made.histories.get(memory_id)
            )
            if not same:
                odd.append(f"{memory_id[:160]} in run {info.id[:80]}")
        if kept.histories.keys() == made.histories.keys():
            moved = [one for one, other in zip(kept.histories, made.histories, strict=True) if one != other]
            odd += [f"the place of {memory_id[:160]} in run {info.id[:80]}" for memory_id in moved]
    causes = database.rows(select(schema.q_moves.c.run, schema.q_moves.c.memory_id).where(_HAS_NO_EVENT))
    odd += [f"{memory_id[:160]} in run {run[:80]}" for run, memory_id in causes]
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


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    if free < SPACE_NEEDED:
        return Finding("disk", False, f"Only {free / 1e6:.0f} MB are free.", "Free some space before the next run.")
    return Finding("disk", True, f"{free / 1e9:.1f} GB are free.")
