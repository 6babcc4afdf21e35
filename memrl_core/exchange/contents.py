"""The facts of a bank, ready for another bank: what every import reads, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank
from memrl_core.bank.operations import METADATA
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.layouts import Layout
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace, Utility

NOTHING = "Nothing was imported."


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was not taken over: `where` it is (file, line or id) and `why`, as a clause."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Account:
    """What an import found, for the person who asked for it. All of it is plain, untrusted text.

    `source` names the kind of thing that was read. `read` says what was taken over, a sentence each; `skipped` what was
    not; `faults` what is wrong in the source itself although it was taken over; `lacks` what the source does not say.
    """

    source: str
    read: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    faults: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """Facts of any number of runs, ready to be adopted by a bank.

    `memories` maps ids to memory and unit embedding (d,) float32, oldest first; `events` is the ledger, in which every
    run begins with its RUN_STARTED; `traces` are the finished steps. `embedder`, `dimension` and `digest` say what made
    the vectors (`EmbedderIdentity`); `layout` is the newest map.
    """

    embedder: str
    dimension: int
    memories: Mapping[str, tuple[Memory, npt.NDArray[np.float32]]]
    events: tuple[LedgerEvent, ...]
    traces: tuple[StepTrace, ...] = ()
    layout: Layout | None = None
    account: Account = field(default_factory=lambda: Account("a bank"))
    digest: str = ""


def contents_of(bank: MemoryBank, source: str = "") -> Contents:
    """Everything that was written to `bank` until now, as it was written, with its newest map.

    `source` is what the account calls the bank. Raises `BankDamaged` for a step that cannot be read.
    """
    bank.write.flush()
    bank.refresh()
    # A writer appends memories, then the ledger, then the step: read the other way round, no reference dangles.
    runs = [info.id for info in bank.runs()]
    traces = tuple(trace for run in runs for trace in bank.traces(run))
    events = tuple(e for e in bank.events() if e.run in runs or e.kind is EventKind.ROLE_ASSIGNED)
    memories = {memory.id: (memory, bank.embedding(memory.id)) for memory in bank.memories()}
    layout = bank.layouts.newest()
    if layout is not None:
        known = {i: place for i, place in layout.coordinates.items() if i in memories}
        layout = replace(layout, coordinates=known, fitted=tuple(i for i in layout.fitted if i in known))
    read = f"Memories: {len(memories):,}. Steps: {len(traces):,}. Events: {len(events):,}. Runs: {len(runs):,}."
    return Contents(
        bank.embedder.name,
        bank.embedder.dimension,
        memories,
        events,
        traces,
        layout,
        Account(source or f"the bank at {bank.uri}", (read,)),
        bank.embedder.digest,
    )


def started_with(
    info: RunInfo,
    known: Mapping[str, Utility],
    first_seq: int = 1,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[LedgerEvent, ...]:
    """The events by which a run starts with memories from elsewhere: its start, then each memory's q and visits.

    `metadata` is what else is known of some of them.
    """
    about = metadata or {}
    start = LedgerEvent(
        id=f"{info.id}:start",
        seq=first_seq,
        run=info.id,
        step=0,
        step_id="",
        known_at=0,
        kind=EventKind.RUN_STARTED,
        payload=codec.run_payload(info),
        created=info.created,
    )
    imported = (
        replace(
            start,
            id=f"{info.id}:memory:{memory_id}",
            seq=seq,
            kind=EventKind.MEMORY_IMPORTED,
            memory_ids=(memory_id,),
            value=utility.q,
            payload={
                "visits": utility.visits,
                **({METADATA: about[memory_id]} if about.get(memory_id) else {}),
            },
        )
        for seq, (memory_id, utility) in enumerate(known.items(), start=first_seq + 1)
    )
    return (start, *imported)
