"""The facts of a bank, ready for another bank: what every import reads, and what there is to say about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank
from memrl_core.bank.storage import codec
from memrl_core.errors import InputError
from memrl_core.learning import Fold, by_step, memrl_rule
from memrl_core.policies import update_rule
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
class Places:
    """The newest layout of the map: `method`, coordinates by memory, and the memories it was fitted on."""

    method: str
    coordinates: Mapping[str, tuple[float, float]]
    fitted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """Facts of any number of runs, ready to be adopted by a bank.

    `memories` maps ids to memory and unit embedding (d,) float32, oldest first; `events` is the ledger, in which every
    run begins with its RUN_STARTED; `traces` are the finished steps. `embedder`, `dimension` and `digest` say what made
    the vectors (`EmbedderIdentity`).
    """

    embedder: str
    dimension: int
    memories: Mapping[str, tuple[Memory, npt.NDArray[np.float32]]]
    events: tuple[LedgerEvent, ...]
    traces: tuple[StepTrace, ...] = ()
    places: Places | None = None
    account: Account = field(default_factory=lambda: Account("a bank"))
    digest: str = ""


def contents_of(bank: MemoryBank, source: str = "") -> Contents:
    """Everything that was written to `bank` until now, as it was written, with its newest map.

    `source` is what the account calls the bank. Raises `BankDamaged` for a step that cannot be read.
    """
    bank.flush()
    bank.refresh()
    # A writer appends memories, then the ledger, then the step: read the other way round, no reference dangles.
    runs = [info.id for info in bank.runs()]
    traces = tuple(trace for run in runs for trace in bank.traces(run))
    events = tuple(e for e in bank.events() if e.run in runs or e.kind is EventKind.ROLE_ASSIGNED)
    memories = {memory.id: (memory, bank.embedding(memory.id)) for memory in bank.memories()}
    layout = bank.layouts.newest()
    places = None
    if layout is not None:
        known = {i: place for i, place in layout.coordinates.items() if i in memories}
        places = Places(layout.method, known, tuple(i for i in layout.fitted if i in known))
    read = f"Memories: {len(memories):,}. Steps: {len(traces):,}. Events: {len(events):,}. Runs: {len(runs):,}."
    return Contents(
        bank.embedder.name,
        bank.embedder.dimension,
        memories,
        events,
        traces,
        places,
        Account(source or f"the bank at {bank.uri}", (read,)),
        bank.embedder.digest,
    )


def started_with(info: RunInfo, known: Mapping[str, Utility], first_seq: int = 1) -> tuple[LedgerEvent, ...]:
    """The events by which a run starts with memories from elsewhere: its start, then each memory's q and visits."""
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
            payload={"visits": utility.visits},
        )
        for seq, (memory_id, utility) in enumerate(known.items(), start=first_seq + 1)
    )
    return (start, *imported)


# --- two checkpoints of one run ---------------------------------------------------------------------------------------

Recovery = Literal["exact", "mean", "unchanged", "contradiction"]
ALPHA = 0.3
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class UtilityChange:
    """One memory in both checkpoints.

    `reward` is recovered from q alone, and `recovery` says what it is: "exact" after one visit; after several the
    "mean" of their rewards, in which each counts (1 - alpha) times as much as the one after it (the one reward that,
    given each time, explains the change); None when q and visits stayed ("unchanged"), or when they contradict each
    other ("contradiction": q moved without a visit, or visits went down). A run that raises q to a floor hides rewards
    below it.
    """

    memory_id: str
    before: Utility
    after: Utility
    reward: float | None
    recovery: Recovery

    @property
    def moved(self) -> float:
        """How far q went."""
        return self.after.q - self.before.q

    @property
    def visits(self) -> int:
        """How many updates lie between."""
        return self.after.visits - self.before.visits


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """The later checkpoint against the earlier: ids `added` and `gone`, `changes` by how far q went, farthest first."""

    alpha: float
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changes: tuple[UtilityChange, ...]


def compare_checkpoints(earlier: Contents, later: Contents, alpha: float = ALPHA) -> CheckpointDiff:
    """The difference of two checkpoints that were moved by q' = q + alpha (r - q) (arXiv 2601.03192, eq. 4).

    Raises `InputError` for an alpha outside of (0, 1], contents of several runs, or checkpoints without a memory in
    common.
    """
    if not (math.isfinite(alpha) and 0 < alpha <= 1):
        raise InputError(f"{alpha} is not a step size: α is above 0 and at most 1. Nothing was compared.")
    before, after = _utilities(earlier), _utilities(later)
    if before and after and not before.keys() & after.keys():
        raise InputError("These two checkpoints have no memory in common. Nothing was compared; choose two of one run.")
    changes = [_change(i, before[i], after[i], alpha) for i in after if i in before]
    changes.sort(key=lambda change: (-abs(change.moved), change.memory_id))
    return CheckpointDiff(
        alpha,
        added=tuple(i for i in after if i not in before),
        gone=tuple(i for i in before if i not in after),
        changes=tuple(changes),
    )


def _utilities(contents: Contents) -> Mapping[str, Utility]:
    if len({event.run for event in contents.events}) > 1:
        raise InputError("Only the checkpoints of single runs can be compared. Nothing was compared.")
    finished = {trace.id for trace in contents.traces}
    started = (event for event in contents.events if event.kind is EventKind.RUN_STARTED)
    fold = Fold(next((update_rule(str(event.payload["policy"])) for event in started), memrl_rule))
    for step, events in sorted(by_step(contents.events, finished.__contains__).items()):
        fold.take(step, events)
    return fold.utilities


def _change(memory_id: str, before: Utility, after: Utility, alpha: float) -> UtilityChange:
    visits, moved = after.visits - before.visits, after.q - before.q
    if visits > 0:
        # n updates by one r leave (1 - alpha)^n of the distance to it.
        covered = alpha if visits == 1 or alpha == 1 else -math.expm1(visits * math.log1p(-alpha))
        return UtilityChange(memory_id, before, after, before.q + moved / covered, "exact" if visits == 1 else "mean")
    quiet = visits == 0 and abs(moved) <= SAME
    return UtilityChange(memory_id, before, after, None, "unchanged" if quiet else "contradiction")
