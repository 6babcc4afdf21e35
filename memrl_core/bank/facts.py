"""The facts of a bank as its tables have them: runs, events, steps and memories, read by queries and appended to.

Two things are kept between calls, both dropped as soon as another connection has written: the matrix of embeddings, and
of each run its settings, its newest step and its memories as arrays. The traces read last are kept too: none changes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from memrl_core.bank.matrix import Matrix
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.codec import Inserted, StepRow
from memrl_core.bank.storage.connecting import chunks
from memrl_core.bank.storage.database import Database
from memrl_core.bank.storage.vectors import Vectors
from memrl_core.errors import BankDamaged, InputError, MemRLError, UnknownRun
from memrl_core.learning import BRINGS_IN, Fold, SettingsAt, order_key
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace
from memrl_core.retrieval.view import MemoryView

TRACES_KEPT = 256
OF_THE_RUN = (EventKind.SETTINGS_CHANGED, EventKind.SCALES_CHANGED, EventKind.ENVIRONMENT_CHANGED)

_LEDGER, _STEPS = schema.ledger.c, schema.steps.c
_EVENT = f"SELECT {', '.join(codec.EVENT_FIELDS)} FROM ledger WHERE"
_STEP = f"SELECT {', '.join(codec.STEP_COLUMNS)} FROM steps WHERE run = ?"
_HEAD = "SELECT (SELECT max(position) FROM ledger), (SELECT max(position) FROM steps)"

Given = ParamSpec("Given")
Found = TypeVar("Found")


def locked(method: Callable[Given, Found]) -> Callable[Given, Found]:
    """A method of something that has `_facts`, for one thread at a time."""

    @wraps(method)
    def alone(*given: Given.args, **named: Given.kwargs) -> Found:
        asked: Any = given[0]
        with asked._facts.database.lock:
            return method(*given, **named)

    return alone


@dataclass(slots=True)
class KnownRun:
    """What is kept of a run: `changes` of its settings, scales and environment, and its newest finished step.

    `view` are its memories with their q and visits as arrays, `now` what the run believes of them; `ever_known` counts
    those it has ever known, `count` those it sees. Each is None until it is asked for.
    """

    info: RunInfo
    changes: dict[EventKind, list[LedgerEvent]] = field(default_factory=dict)
    newest: int | None = None
    view: MemoryView | None = None
    now: Fold | None = None
    ever_known: int | None = None
    count: int | None = None


class Facts:
    """The tables and the vectors of a bank; `database.lock` guards it.

    `written` grows with all that is written, `dropped` whenever what was written last was not stored.
    """

    def __init__(self, database: Database, vectors: Vectors) -> None:
        self.database, self.vectors = database, vectors
        self.memories = Matrix(vectors)
        self.written = 0
        self.last_saved: datetime | None = None
        self._runs: dict[str, KnownRun] = {}
        self._ids: list[str] | None = None
        self._forks: dict[str, list[str]] = {}
        self._begun: dict[str, int] = {}
        self._traces: OrderedDict[str, StepTrace] = OrderedDict()
        self.dropped = 0
        database.may_have_changed()
        self._events_to, self._steps_to = self._head()
        self._refreshed = self.version

    # --- what is kept -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Another text after every fact that is stored or taken in."""
        return f"{self._events_to}·{self._steps_to}·{self.dropped}"

    @property
    def facts(self) -> int:
        """How many facts there are; grows with every one that is stored or taken in."""
        return self._events_to + self._steps_to

    def _head(self) -> tuple[int, int]:
        ((events, steps),) = self.database.raw(_HEAD)
        return events or 0, steps or 0

    def look(self) -> None:
        """Drop what is kept of the runs in which another connection has stored something. Raises `BankDamaged`."""
        if not self.database.is_writing and self.database.may_have_changed():
            self.take_in()

    def take_in(self) -> None:
        """The same, without the cheap look before."""
        events_to, steps_to = self._events_to, self._steps_to
        self._events_to, self._steps_to = self._head()
        if (events_to, steps_to) == (self._events_to, self._steps_to):
            return
        with self.readable():
            changed = self.database.raw("SELECT run, kind, memory_ids FROM ledger WHERE position > ?", (events_to,))
            new = [i for _, kind, ids in changed if kind in BRINGS_IN for i in json.loads(ids)]
        self.memories.take(new)
        self.memories.put_in_order()
        runs = {run for (run,) in self.database.raw("SELECT DISTINCT run FROM steps WHERE position > ?", (steps_to,))}
        runs.update(run for run, _, _ in changed)
        if any(kind == EventKind.RUN_STARTED for _, kind, _ in changed):
            self._ids = None
        for run in self.with_forks(runs):
            self._runs.pop(run, None)

    def refreshed(self) -> bool:
        """Whether anything was stored or taken in since this was asked last."""
        before, self._refreshed = self._refreshed, self.version
        return before != self._refreshed

    def forget(self) -> None:
        """Drop all that is kept: what was written last was not stored."""
        self._runs.clear()
        self._traces.clear()
        self._ids = None
        self.dropped += 1
        self.memories.forget()
        self.database.may_have_changed()
        self._events_to, self._steps_to = self._head()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The ids of all runs, oldest first."""
        self.look()
        if self._ids is None:
            found = self.database.rows(select(schema.runs.c.id, schema.runs.c.base).order_by(schema.runs.c.position))
            self._ids, self._forks = [run for run, _ in found], {}
            for run, base in found:
                if base is not None:
                    self._forks.setdefault(base, []).append(run)
        return self._ids

    def forks(self, run: str) -> Sequence[str]:
        """The runs that began with what this one knew."""
        self.ids()
        return self._forks.get(run, ())

    def with_forks(self, runs: Iterable[str]) -> set[str]:
        """These runs, those that began with what they knew, and so on."""
        found = set(runs)
        for run in list(found):
            found |= self.with_forks(self.forks(run))
        return found

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        return self.of(run).info

    def of(self, run: str) -> KnownRun:
        """What is kept of a run; raises `UnknownRun`."""
        self.look()
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = self._read_run(run)
        return found

    def _read_run(self, run: str) -> KnownRun:
        info = self.database.scalar(select(schema.runs.c.info).where(schema.runs.c.id == run))
        if info is None:
            known = ", ".join(self.ids()[-8:]) or "none"
            raise UnknownRun(f"This bank has no run “{run}”. Its runs: {known}.")
        with self.readable():
            found = KnownRun(codec.run_of(json.loads(info)))
            # All runs together have few of these; asked for those of one run, SQLite reads its whole ledger.
            for event in self.events_where(_LEDGER.kind.in_(OF_THE_RUN)):
                if event.run == run:
                    found.changes.setdefault(event.kind, []).append(event)
            if worlds := found.changes.get(EventKind.ENVIRONMENT_CHANGED):
                found.info = replace(found.info, environment_options=max(worlds, key=order_key).payload["options"])
        ((found.newest,),) = self.database.raw("SELECT max(step) FROM steps WHERE run = ?", (run,))
        return found

    def next_step(self, run: str) -> int:
        """The number of the step that comes next. Raises `UnknownRun`."""
        known = self.of(run)
        return known.info.first_step if known.newest is None else known.newest + 1

    def settings_at(self, run: str) -> SettingsAt:
        """The settings in force at any step of a run. Raises `UnknownRun`."""
        known = self.of(run)
        changes = sorted(known.changes.get(EventKind.SETTINGS_CHANGED, ()), key=order_key)
        first, steps = known.info.settings, [event.step for event in changes]

        def at(step: int) -> Mapping[str, Any]:
            later = bisect_right(steps, step)
            return changes[later - 1].payload["settings"] if later else first

        return at

    def begin_step(self, run: str, step: int) -> None:
        """Note that a step has begun: what is appended from now on was not known before it."""
        self._begun[run] = max(self._begun.get(run, 0), step)

    def begun(self, run: str) -> int:
        """The newest step of a run that has begun; 0 without one. Raises `UnknownRun`."""
        newest = self.of(run).newest
        ((known,),) = self.database.raw("SELECT max(known_at) FROM ledger WHERE run = ?", (run,))
        return max(self._begun.get(run, 0), newest or 0, known or 0)

    # --- events and steps ---------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """The highest `seq` of the ledger."""
        ((highest,),) = self.database.raw("SELECT max(seq) FROM ledger")
        return highest or 0

    def readable(self) -> AbstractContextManager[None]:
        """Rows that cannot be read within it, as `BankDamaged`."""
        return damage(f"In the bank at {self.database.shown}, a row cannot be read.")

    def events_where(self, *conditions: Any) -> list[LedgerEvent]:
        """The events that fulfil these conditions on columns of `ledger`, in the order of the ledger."""
        with self.readable():
            found = codec.EVENTS.where(*conditions).order_by(_LEDGER.position)
            return list(map(codec.event_of, self.database.rows(found)))

    def event(self, event_id: str) -> LedgerEvent | None:
        """An event by its id."""
        found = self.events_of([event_id])
        return found[0] if found else None

    def events_of(self, event_ids: Iterable[str]) -> list[LedgerEvent]:
        """The events of these ids that are known, in the order given."""
        wanted = list(event_ids)
        found = {event.id: event for some in chunks(wanted) for event in self.events_where(_LEDGER.id.in_(some))}
        return [found[i] for i in wanted if i in found]

    def events(self, run: str, kinds: Collection[EventKind] = ()) -> list[LedgerEvent]:
        """The events of a run, or those of these kinds, in the order they were appended. Raises `UnknownRun`."""
        self.of(run)
        of_kinds = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        return self._events(f"run = ?{of_kinds} ORDER BY position", run, *map(str, kinds))

    def at(self, run: str, step: int, since: int = 0) -> list[LedgerEvent]:
        """The events about one step from the clock `since` on, in the order in which they were appended."""
        return self._events("run = ? AND step = ? AND seq >= ? ORDER BY position", run, step, since)

    def _events(self, where: str, *values: Any) -> list[LedgerEvent]:
        with self.readable():
            return list(map(codec.event_of, self.database.raw(f"{_EVENT} {where}", values)))

    def of_kind(self, *kinds: EventKind) -> list[LedgerEvent]:
        """The events of these kinds, of all runs."""
        return self.events_where(_LEDGER.kind.in_(kinds))

    def by_actor(self, person: str) -> list[LedgerEvent]:
        """The events that a person appended."""
        return self.events_where(_LEDGER.actor == person)

    def step_row(self, run: str, step: int) -> StepRow | None:
        """A finished step in short; None when there is none of that number. Raises `UnknownRun`."""
        self.of(run)
        found = self.database.raw(f"{_STEP} AND step = ?", (run, step))
        return StepRow(*found[0]) if found else None

    def step_rows(self, run: str) -> list[StepRow]:
        """The finished steps of a run in short, in order. Raises `UnknownRun`."""
        self.of(run)
        return [StepRow(*row) for row in self.database.raw(f"{_STEP} ORDER BY step", (run,))]

    def trace(self, run: str, step: int) -> StepTrace:
        """The whole record of a finished step. Raises `InputError` when the run has no such step."""
        row = self.step_row(run, step)
        if row is None:
            last = self.next_step(run) - 1
            raise InputError(f"Run {run} has no step {step}: it has {last} finished steps.")
        if row.id not in self._traces:
            ((trace, embedding),) = self.database.rows(
                select(_STEPS.trace, _STEPS.embedding).where(_STEPS.id == row.id)
            )
            self.keep(codec.trace_at(trace, embedding, run, step))
        return self._traces[row.id]

    def keep(self, trace: StepTrace) -> None:
        """Keep the trace of a finished step for whoever asks for it soon."""
        self._traces[trace.id] = trace
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)

    def credited(self, run: str, step: int) -> tuple[str, ...]:
        """The memories that were in the prompt of a finished step: those that its rewards go to."""
        events = [event for event in self.at(run, step) if event.source == "environment"]
        committed = self.committed(events)
        for event in events:
            if event.step_id in committed:
                return event.memory_ids
        trace = self.trace(run, step)
        if trace.reward is not None:
            return trace.reward.credited
        return trace.decision.selected if trace.decision is not None else ()

    def committed(self, events: Iterable[LedgerEvent]) -> set[str]:
        """Of the attempts that these events belong to, those that ended."""
        return self.ended({event.step_id for event in events if event.step_id})

    def ended(self, attempts: Iterable[str]) -> set[str]:
        """Those of these attempts that are finished steps."""
        found: set[str] = set()
        for some in chunks(attempts):
            query = f"SELECT id FROM steps WHERE id IN ({', '.join('?' * len(some))})"
            found.update(i for (i,) in self.database.raw(query, tuple(some)))
        return found

    def counting(self, events: Iterable[LedgerEvent]) -> list[LedgerEvent]:
        """Of these events, those that count: of no attempt, or of one that ended."""
        listed = list(events)
        committed = self.committed(listed)
        return [event for event in listed if not event.step_id or event.step_id in committed]

    def named(self) -> set[str]:
        """The ids of all memories that a run has come to know."""
        return {i for (i,) in self.database.raw("SELECT DISTINCT memory_id FROM q_values")}

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[LedgerEvent], traces: Sequence[StepTrace], created: str) -> None:
        """Write events and finished steps, within the transaction of the caller."""
        self.written += 1
        self.last_saved = datetime.now(UTC)
        started = [codec.run_of(event.payload) for event in events if event.kind is EventKind.RUN_STARTED]
        self.database.insert(schema.runs, [codec.run_row(info) for info in started])
        for some in chunks(traces):  # The rows of a long run take as much memory as its steps.
            self.database.insert(schema.steps, [codec.step_row(trace, created) for trace in some])
            self.database.insert(schema.candidates, [row for trace in some for row in codec.candidate_rows(trace)])
        self.database.insert(schema.ledger, [codec.event_row(event) for event in events])
        if started:
            self._ids = None
        for event in events:
            if event.kind in OF_THE_RUN:
                self._runs.pop(event.run, None)
        for trace in traces:
            known = self._runs.get(trace.run)
            if known is not None:
                known.newest = trace.step if known.newest is None else max(known.newest, trace.step)
        self._events_to, self._steps_to = self._head()

    def write(self, memory: Memory, vector: npt.NDArray[np.float32], inserted: Inserted) -> None:
        """Write a memory with its embedding (d,), within the transaction of the caller."""
        self.written += 1
        self.memories.write(memory, vector, inserted)

    def make_way(self, memory_ids: Iterable[str]) -> None:
        """Sweep up memories of these ids that are stored and that nobody names: others take their names."""
        there = [memory_id for memory_id in memory_ids if memory_id in self.memories]
        named: set[str] = set()
        for some in chunks(there):
            in_some = schema.q_values.c.memory_id.in_(some)
            named.update(i for (i,) in self.database.rows(select(schema.q_values.c.memory_id).where(in_some)))
        left = [memory_id for memory_id in there if memory_id not in named]
        if left:
            self.written += 1
            self.vectors.delete(left)
            self.memories.forget()


@contextmanager
def damage(what: str) -> Iterator[None]:
    """What cannot be read within it, as `BankDamaged`."""
    try:
        yield
    except MemRLError:
        raise
    except codec.UNREADABLE as error:
        raise BankDamaged(
            f"{what} Nothing was changed; run `memrl doctor --bank` on the bank, or restore a copy."
        ) from error
