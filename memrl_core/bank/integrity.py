"""Whether a bank is whole: each thing that was looked at, and what to do where it is not.

LanceDB keeps no checksum of its data, so a bit that flips inside a text or a number is not seen when it is read. What
a bank says twice is therefore held against itself: a memory's text against the step that wrote it, rewards and memory
operations in the ledger against the steps, the columns of a step against its record, references against what they
name, the snapshot of q against the ledger. A flip in something that is said only once and still makes sense goes
unnoticed: in the text of a note, a date, a place on the map, the last digits of an embedding.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memrl_core.bank import salvage
from memrl_core.bank.addresses import plain
from memrl_core.bank.bank import MemoryBank
from memrl_core.bank.consequences import agreement
from memrl_core.bank.description import embedders_before, lost_memories
from memrl_core.bank.evidence import LOOKS, Seen
from memrl_core.bank.faults import BRINGS_IN
from memrl_core.bank.journal import Readable
from memrl_core.bank.store import TABLES, Store, is_local
from memrl_core.errors import BankDamaged, BankError, BankMissing, BankTooNew, BankUnreachable
from memrl_core.records import RunInfo

SPACE_NEEDED = 200_000_000
NAMED = 5
LOOKED_UP, NEIGHBOURS = 16, 10
"""Memories that are looked up in an index, among so many of the nearest; one in several alike may not be among them."""
INDEX_ANEW = "Make it anew with `memrl index`, or search without it; the memories themselves are not touched by this."
COPIES_ANEW = (
    "Delete the files that end in .flat from its folder while nothing uses it; the tables hold everything, and the "
    "copies are made anew."
)
REPAIR = "Run `memrl repair` on it: a repaired copy is made, and this bank stays as it is. Or restore a copy."
COPY_FIRST = "Copy it to this machine and run `memrl repair` on the copy; or restore a copy."


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `remedy` is empty where nothing is amiss."""

    name: str
    ok: bool
    sentence: str
    remedy: str = ""


def check(uri: str) -> list[Finding]:
    """Look at every part of the bank at `uri`, reading all of it. No fact is changed and nothing is raised.

    Rows that a process had begun to move from the journal when it ended are moved, as by every opening.
    """
    meta: Mapping[str, Any] = {}
    uri = plain(uri)
    try:
        _, meta = Store.open(uri)
        findings = [Finding("opens", True, "The bank can be opened.")]
    except BankUnreachable as error:
        return [Finding("opens", False, str(error), "Check the address, the keys and the network.")]
    except BankError as error:
        findings = [Finding("opens", False, str(error), REPAIR)]
        if isinstance(error, BankTooNew | BankMissing) or not _has_tables(uri):
            return [Finding("opens", False, str(error), "Check the place, or restore a copy of the bank.")]
    seen = Seen()
    dimensions = {}
    # Before the tables: what moves meanwhile is then seen here, there or twice, and never missed.
    journal = salvage.journaled(uri, int(meta.get("dimension", 0))) if is_local(uri) else None
    if journal is not None:
        findings.append(_journal(journal))
    for name in TABLES:
        finding, dimension = _table(uri, name, int(meta.get("dimension", 0)), seen, journal)
        findings.append(finding)
        if dimension:
            dimensions[name] = dimension
    if meta:
        findings.append(_description(meta, dimensions, seen))
    findings += _contents(seen)
    if {"memories", "ledger", "steps"} <= seen.rows.keys():
        lost = lost_memories(meta)
        findings += [look(seen, lost) for look in (_references, _rewards, _texts, _runs, _born, _parents)]
        findings += _flat_copies(uri)
        state = _state(uri, seen)
        findings += state
        # Of a bank that cannot be used whole, an index that cannot be searched says nothing.
        if all(finding.ok for finding in state):
            findings += _index(uri)
    if not is_local(uri):
        return [replace(one, remedy=COPY_FIRST) if one.remedy == REPAIR else one for one in findings]
    return [*findings, _space(Path(uri))]


def _has_tables(uri: str) -> bool:
    return not is_local(uri) or any((Path(uri) / f"{name}.lance").is_dir() for name in TABLES)


# --- reading ----------------------------------------------------------------------------------------------------------


def _journal(found: Readable) -> Finding:
    if found.lost:
        sentence = f"{found.lost} parts of the journal cannot be read. Nothing was changed."
        return Finding("journal", False, sentence, REPAIR)
    waiting = sum(table.num_rows for table in (*found.waiting.values(), *found.moving.values()))
    return Finding("journal", True, f"{waiting} rows wait in the journal.")


def _table(uri: str, name: str, dimension: int, seen: Seen, journal: Readable | None) -> tuple[Finding, int]:
    """Read a table whole and remember what is needed of it; also how many numbers its embeddings have."""
    rows = 0
    found = 0
    try:
        table = salvage.opened(uri, name)
        announced, found = int(table.count_rows()), salvage.dimension_of(table)
        gone = salvage.versions_lost(uri, name, int(table.version))
        for batch in salvage.batches(uri, name, table):
            rows += len(batch)
            for row in batch:
                LOOKS[name](row, dimension or found, seen)
        waiting = _not_arrived(uri, name, dimension or found, seen, journal) if journal is not None else []
        for row in waiting:
            LOOKS[name](row, dimension or found, seen)
    except BankDamaged as error:
        return Finding(f"table {name}", False, str(error), REPAIR), found
    except Exception as error:
        sentence = f"The table {name} cannot be read ({type(error).__name__}). Nothing was changed."
        return Finding(f"table {name}", False, sentence, REPAIR), found
    seen.rows[name] = rows + len(waiting)
    if rows != announced:
        sentence = f"The table says that it has {announced} rows, and {rows} can be read. Nothing was changed."
        return Finding(f"table {name}", False, sentence, REPAIR), found
    if gone:
        sentence = (
            f"The newest {gone} versions of the table are gone, and with them what was appended last; the {rows} rows "
            "before can be read."
        )
        return Finding(f"table {name}", False, sentence, REPAIR), found
    return Finding(f"table {name}", True, f"{rows + len(waiting)} rows can be read."), found


def _not_arrived(uri: str, name: str, dimension: int, seen: Seen, journal: Readable) -> list[dict[str, Any]]:
    """The rows of the journal that did not come with their table; those that stand in both for good are among them."""
    if name not in journal.waiting:
        return []
    there = seen.ids.get(name, {})
    waiting, moving = salvage.rows_of(journal.waiting[name]), salvage.rows_of(journal.moving[name])
    if any(str(row["id"]) in there for row in waiting):
        still = set(salvage.journaled(uri, dimension).waiting[name]["id"].to_pylist())
        waiting = [row for row in waiting if str(row["id"]) not in there or row["id"] in still]
    return [*waiting, *(row for row in moving if str(row["id"]) not in there)]


def _flat_copies(uri: str) -> list[Finding]:
    """Whether what large tables are opened by says what they say; nothing where no such copy is in use."""
    try:
        differing = Store.open(uri)[0].differing_flat_copies()
    except Exception:
        return []
    if not differing:
        return []
    sentence = f"The flat copy of {_listed(differing)} does not say what the table says. Nothing was changed."
    return [Finding("flat copies", False, sentence, COPIES_ANEW)]


# --- what single tables say -------------------------------------------------------------------------------------------


def _contents(seen: Seen) -> list[Finding]:
    found = [_unique(seen)]
    if "memories" in seen.rows:
        found += [
            _faultless(seen, "memories", "Every memory has its cells."),
            _faultless(seen, "embeddings", "All are finite vectors of length 1."),
        ]
    if "steps" in seen.rows:
        found += [
            _faultless(seen, "intents", f"{seen.intents} steps hold the unit vector of their intent."),
            _faultless(seen, "traces", "Every step can be read."),
        ]
    if "ledger" in seen.rows:
        found.append(_faultless(seen, "events", "Every event can be read."))
    if "q_values" in seen.rows:
        found.append(_known(seen, "snapshot", {i for _, i in seen.snapshot}, "holds q of"))
    if "layouts" in seen.rows:
        found.append(_known(seen, "map", seen.placed, "holds places of"))
    return found


def _faultless(seen: Seen, name: str, whole: str) -> Finding:
    faults = seen.faults.get(name, ())
    if not faults:
        return Finding(name, True, whole)
    return Finding(name, False, f"{len(faults)} cannot be used: {_listed(faults)}. Nothing was changed.", REPAIR)


def _known(seen: Seen, name: str, named: Iterable[str], holds: str) -> Finding:
    strangers = sorted(set(named) - seen.ids.get("memories", {}).keys()) if "memories" in seen.rows else []
    if strangers and name not in seen.faults:
        sentence = f"It {holds} {len(strangers)} memories that are not there: {_listed(strangers)}."
        return Finding(name, False, sentence, REPAIR)
    return _faultless(seen, name, "Every row can be read.")


def _unique(seen: Seen) -> Finding:
    if seen.contradicting:
        sentence = f"Stored twice with different content: {_listed(seen.contradicting)}. The first is used."
        return Finding("ids", False, sentence, REPAIR)
    if seen.doubled:
        return Finding("ids", True, f"Stored twice and counted once: {_listed(seen.doubled)}.")
    return Finding("ids", True, "Every id is there once.")


def _description(meta: Mapping[str, Any], dimensions: Mapping[str, int], seen: Seen) -> Finding:
    dimension, embedder = int(meta["dimension"]), str(meta["embedder"])
    odd = {name: found for name, found in dimensions.items() if found != dimension}
    if odd:
        told = ", ".join(f"those of {name} have {found}" for name, found in odd.items())
        sentence = f"The bank says that its embeddings have {dimension} numbers; {told}."
        return Finding("description", False, sentence, REPAIR)
    if seen.embedders and seen.embedders.isdisjoint([embedder, *embedders_before(meta)]):
        sentence = f"The bank says that {embedder[:80]} made its embeddings; its runs say {_listed(seen.embedders)}."
        return Finding("description", False, sentence, REPAIR)
    return Finding("description", True, f"Embeddings of {dimension} numbers by {embedder[:80]}.")


# --- one table against another ----------------------------------------------------------------------------------------


def _references(seen: Seen, lost: frozenset[str]) -> Finding:
    known = seen.ids.get("memories", {}).keys()
    counting = [*seen.outside, *(event for step_id in seen.left for event in seen.events.get(step_id, ()))]
    named = {i for event in counting for i in (*event.memory_ids, *event.payload.get("replaces", ()))}
    seeing = {i for event in counting if event.kind in BRINGS_IN for i in event.memory_ids}
    missing = sorted(((named | seen.written.keys()) - known - lost) | (seeing - known))
    if missing:
        sentence = f"The ledger and the steps name {len(missing)} memories that are not there: {_listed(missing)}."
        return Finding("references", False, sentence, REPAIR)
    if lost:
        return Finding("references", True, f"Known to be lost since a repair: {len(lost)} memories ({_listed(lost)}).")
    return Finding("references", True, "Every memory that the ledger names is there.")


def _rewards(seen: Seen, lost: frozenset[str]) -> Finding:
    odd = []
    for step_id, expected in seen.left.items():
        events = seen.events.get(step_id, ())
        if seen.places.get(step_id, set()) - {seen.at[step_id]}:
            odd.append(f"events of step {step_id[:80]} are said to be of another")
        for one in expected:
            if one.kind in BRINGS_IN and lost.intersection(one.memory_ids):
                continue
            said, _ = agreement(one, events)
            if said != "same":
                how = "is not in the ledger" if said == "missing" else "is another in the ledger"
                odd.append(f"{one.kind.replace('_', ' ')} of step {step_id[:80]} {how}")
    if odd:
        sentence = f"{len(odd)} things that steps did cannot be found in the ledger as they were: {_listed(odd)}."
        return Finding("ledger and steps", False, sentence, REPAIR)
    return Finding("ledger and steps", True, "The ledger holds what the steps say that they did.")


def _texts(seen: Seen, lost: frozenset[str]) -> Finding:
    odd = [
        memory_id
        for memory_id, told in seen.written.items()
        if memory_id in seen.texts and seen.texts[memory_id][0] == told[0] and seen.texts[memory_id] != told
    ]
    if odd:
        sentence = f"{len(odd)} memories have another text than the step says that wrote them: {_listed(odd)}."
        return Finding("texts", False, sentence, REPAIR)
    return Finding("texts", True, "Memories have the texts that their steps wrote.")


def _runs(seen: Seen, lost: frozenset[str]) -> Finding:
    unknown = sorted((seen.runs_named | seen.bases) - seen.runs_begun)
    if unknown:
        return Finding("runs", False, f"These runs are named and never begin: {_listed(unknown)}.", REPAIR)
    gaps = [
        f"step {step} of run {run[:80]}"
        for run, step in sorted(set().union(*seen.places.values()))
        if step not in seen.numbers.get(run, set()) and step < max(seen.numbers.get(run, {0}))
    ]
    if gaps:
        sentence = f"{len(gaps)} steps left events in the ledger, later ones ended, and they are not there: "
        return Finding("runs", False, f"{sentence}{_listed(gaps)}.", REPAIR)
    return Finding("runs", True, "Every run begins, and its steps follow one another.")


def _born(seen: Seen, lost: frozenset[str]) -> Finding:
    events = [*seen.outside, *(event for left in seen.events.values() for event in left)]
    born = {memory_id for event in events if event.kind in BRINGS_IN for memory_id in event.memory_ids}
    orphans = [memory_id for memory_id in seen.ids.get("memories", {}) if memory_id not in born]
    if orphans:
        said = f"{len(orphans)} memories belong to no run and are never recalled: {_listed(orphans)}."
        return Finding("orphans", True, said)
    return Finding("orphans", True, "Every memory belongs to a run.")


def _parents(seen: Seen, lost: frozenset[str]) -> Finding:
    missing = sorted(seen.parents - seen.ids.get("memories", {}).keys())
    if missing:
        said = f"{len(missing)} parents of memories are not in this bank: {_listed(missing)}."
        return Finding("parents", True, said)
    return Finding("parents", True, "Every parent of a memory is there.")


def _state(uri: str, seen: Seen) -> list[Finding]:
    try:
        bank = MemoryBank.open(uri)
        runs: Sequence[RunInfo] = bank.runs()
        unfinished = sum(len(bank.unfinished_steps(info.id)) for info in runs)
        now = {(info.id, i): (u.q, u.visits) for info in runs for i, u in bank.utilities(info.id).items()}
        for info in runs:
            bank.view(info.id)
    except BankError as error:
        return [Finding("utilities", False, str(error), REPAIR)]
    except Exception as error:  # A damaged ledger may stop the fold in any way.
        sentence = f"q does not follow from the ledger ({type(error).__name__}). Nothing was changed."
        return [Finding("utilities", False, sentence, REPAIR)]
    said = f"{unfinished} steps began and never ended; they do not count." if unfinished else "Every step has ended."
    return [Finding("steps", True, said), _snapshot(now, seen.snapshot)]


def _index(uri: str) -> list[Finding]:
    """Whether memories are found by their own embeddings, where the bank has an index."""
    try:
        if not Store.open(uri)[0].indexed():
            return []
        bank = MemoryBank.open(uri, search="indexed")
        if not bank.runs():
            return []
        ids = bank.memory_ids()
        sample = ids[:: max(1, len(ids) // LOOKED_UP)]
        view = bank.view(bank.runs()[0].id)
        assert view.nearest is not None
        missed = [i for i in sample if view.rows[i] not in view.nearest(bank.embedding(i), NEIGHBOURS)]
    except Exception as error:  # A damaged index may fail in any way.
        sentence = f"The index of the memories cannot be searched ({type(error).__name__}). Nothing was changed."
        return [Finding("index", False, sentence, INDEX_ANEW)]
    if 2 * len(missed) > len(sample):
        sentence = f"The index does not find {len(missed)} of {len(sample)} memories by their own embeddings."
        return [Finding("index", False, sentence, INDEX_ANEW)]
    return [Finding("index", True, "The index finds memories by their own embeddings.")]


def _snapshot(now: Mapping[Any, Any], stored: Mapping[Any, Any]) -> Finding:
    counted = f"q of {len(now)} memories follows from the ledger; "
    stale = sorted({memory_id for run, memory_id in now.keys() | stored.keys()
                    if now.get((run, memory_id)) != stored.get((run, memory_id))})  # fmt: skip
    if not stale:
        return Finding("utilities", True, f"{counted}the snapshot q_values agrees with it.")
    told = f"the snapshot q_values differs for {len(stale)}: {_listed(stale)}. Closing the bank renews it."
    return Finding("utilities", True, counted + told)


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    if free < SPACE_NEEDED:
        return Finding("disk", False, f"Only {free / 1e6:.0f} MB are free.", "Free some space before the next run.")
    return Finding("disk", True, f"{free / 1e9:.1f} GB are free.")


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(name[:160] for name in listed[:NAMED]) + more
