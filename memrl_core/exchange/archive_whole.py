"""Whether what was read of a bank's own file can be a bank: each id once, every run begun, every q computable."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank, codec
from memrl_core.bank.matrix import UNIT_TOLERANCE
from memrl_core.errors import InputError, MemRLError
from memrl_core.exchange.archive_format import AGAIN, Header
from memrl_core.exchange.contents import Contents, Skipped
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace

NAMED = 5
_BORN = (EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED)


def whole(name: str, header: Header, contents: Contents) -> Contents:
    """`contents` of the file `name`, with their account. Raises `InputError` when they cannot be taken over."""
    memories, events, traces = contents.memories, contents.events, contents.traces
    _counted(name, {"steps": (header.counts.steps, len(traces)), "events": (header.counts.ledger, len(events))})
    must_be_once(name, "step", (trace.id for trace in traces))
    must_be_once(name, "step", (f"{trace.step} of run {trace.run}" for trace in traces))
    must_be_once(name, "event", (event.id for event in events))
    runs = _runs(name, events, traces)
    if set(runs) != {str(payload["id"]) for payload in header.runs}:
        raise InputError(f"{name}: its list of runs is not that of its ledger. {AGAIN}")
    kept, unborn, faults = _referred(events, memories)
    _computable(name, replace(contents, events=kept))
    account = contents.account
    read = f"Memories: {len(memories):,}. Steps: {len(traces):,}. Events: {len(kept):,}. Runs: {len(runs):,}."
    return replace(
        contents,
        events=kept,
        account=replace(account, read=(read,), skipped=(*account.skipped, *unborn), faults=tuple(faults)),
    )


def memories_by_id(
    name: str, header: Header, memories: Sequence[tuple[Memory, npt.NDArray[np.float32]]]
) -> dict[str, tuple[Memory, npt.NDArray[np.float32]]]:
    """The memories of the file `name`. Raises `InputError` for a wrong number, a double id or a wrong vector."""
    _counted(name, {"memories": (header.counts.memories, len(memories))})
    must_be_once(name, "memory", (memory.id for memory, _ in memories))
    for memory, vector in memories:
        if vector.shape != (header.dimension,):
            raise InputError(
                f"{name} says {header.dimension:,}-dimensional vectors; memory “{memory.id[:80]}” has {vector.size:,}. "
                f"{AGAIN}"
            )
        if not abs(float(np.linalg.norm(vector)) - 1) <= UNIT_TOLERANCE:
            raise InputError(f"{name}: the vector of memory “{memory.id[:80]}” is not finite and of length 1. {AGAIN}")
    return {memory.id: (memory, vector) for memory, vector in memories}


def must_be_once(name: str, what: str, ids: Iterable[str]) -> None:
    """Raise `InputError` when an id stands there more than once."""
    double = [i for i, count in Counter(ids).items() if count > 1]
    if double:
        raise InputError(f"{name}: the {what} “{double[0][:80]}” stands there more than once. {AGAIN}")


def _counted(name: str, counts: Mapping[str, tuple[int, int]]) -> None:
    for what, (announced, found) in counts.items():
        if found != announced:
            raise InputError(f"{name} announces {announced:,} {what} and holds {found:,}. {AGAIN}")


def _runs(name: str, events: Sequence[LedgerEvent], traces: Sequence[StepTrace]) -> Mapping[str, RunInfo]:
    must_be_once(name, "start of run", (event.run for event in events if event.kind is EventKind.RUN_STARTED))
    runs = {e.run: codec.run_of(e.payload) for e in events if e.kind is EventKind.RUN_STARTED}
    for run, info in runs.items():
        if not run or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in run):
            raise InputError(f"{name}: “{run[:80]}” cannot be the name of a run. {AGAIN}")
        line = {run}
        while info.base is not None and info.base in runs:
            if info.base in line:
                raise InputError(f"{name}: the run “{run[:80]}” goes back to itself. {AGAIN}")
            line.add(info.base)
            info = runs[info.base]
    named = {e.run for e in events if e.kind is not EventKind.ROLE_ASSIGNED} | {t.run for t in traces}
    named |= {info.base for info in runs.values() if info.base is not None}
    if named - set(runs):
        raise InputError(f"{name}: the run “{min(named - set(runs))[:80]}” is named and never begins. {AGAIN}")
    return runs


def _referred(
    events: Sequence[LedgerEvent], known: Mapping[str, object]
) -> tuple[tuple[LedgerEvent, ...], list[Skipped], list[str]]:
    # A run that came to know of a memory that is not there could not be shown; other mentions of it do no harm.
    kept, skipped = [], []
    missing = dict.fromkeys(i for event in events for i in event.memory_ids if i not in known)
    for event in events:
        present = tuple(i for i in event.memory_ids if i in known)
        if event.kind not in _BORN or present == event.memory_ids:
            kept.append(event)
            continue
        skipped.append(Skipped(f"event {event.id[:80]}", "it brings in a memory that is not in the file"))
        if present:
            kept.append(replace(event, memory_ids=present))
    faults = []
    if missing:
        faults.append(f"The ledger names {len(missing):,} memories that are not in the file: {_named(missing)}.")
    born = {i for event in kept if event.kind in _BORN for i in event.memory_ids}
    lost = [i for i in known if i not in born]
    if lost:
        faults.append(f"No run knows {len(lost):,} of the memories: {_named(lost)}.")
    return tuple(kept), skipped, faults


def _named(ids: Iterable[str]) -> str:
    listed = list(ids)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(f"“{i[:80]}”" for i in listed[:NAMED]) + more


def _computable(name: str, contents: Contents) -> None:
    """Raise `InputError` where a bank of these contents could not be folded: it would be unreadable for good."""
    tried = MemoryBank.create("memory://", contents.embedder, contents.dimension)
    try:
        tried.adopt({}, contents.events, contents.traces)
        folds = {info.id: (tried.utilities(info.id), tried.away(info.id)) for info in tried.runs()}
    except (MemRLError, *codec.UNREADABLE) as error:
        raise InputError(f"{name}: the q of a run does not follow from its ledger. {AGAIN}") from error
    for run, beliefs in folds.items():
        if not all(math.isfinite(utility.q) for known in beliefs for utility in known.values()):
            raise InputError(f"{name}: a q of run “{run[:80]}” is not a finite number. {AGAIN}")
