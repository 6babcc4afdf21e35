"""What one handle knows of a bank: runs, their events, and the folds of them, read from the tables when asked for.

What this handle appends is taken in at once and is in `pending` until it is stored; what others append is taken in
by `catch_up`. A run's fold comes from `q_values` and `q_moves`, follows each event, and is written back with it.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import takewhile
from operator import attrgetter, itemgetter
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, delete, func, select

from memrl_core.bank.matrix import Matrix
from memrl_core.bank.people.roles import actor_of
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.codec import Inserted, StepRow
from memrl_core.bank.storage.schema import Database, chunks
from memrl_core.bank.storage.vectors import Vectors
from memrl_core.errors import BankDamaged, InputError, MemRLError, RunMoved, UnknownRun
from memrl_core.learning import (
    CHANGES_MEMORIES,
    REWARDING,
    Fold,
    SettingsAt,
    by_step,
    copied,
    folded,
    named_by,
    order_key,
)
from memrl_core.learning.fold import Origin
from memrl_core.learning.histories import Histories
from memrl_core.policies import is_installed, update_rule
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace, Utility, UtilityPoint
from memrl_core.retrieval.view import MemoryView

PASTS_KEPT = 8
LOOKED_UP = 64
"""So often a run's events are looked up step by step; then all are read."""
MOVES_NOTHING = (
    EventKind.NOTE_PINNED,
    EventKind.NOTE_REMOVED,
    EventKind.MEMORY_JUDGED,
    EventKind.QUERY_JUDGED,
    EventKind.BATCH_MADE,
    EventKind.BATCH_CLOSED,
    EventKind.ENVIRONMENT_CHANGED,
    EventKind.SCALES_CHANGED,
    EventKind.ROLE_ASSIGNED,
)
OF_THE_RUN = (EventKind.SETTINGS_CHANGED, EventKind.SCALES_CHANGED, EventKind.ENVIRONMENT_CHANGED)
BRINGS_IN = frozenset(
    {EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED}
)
"""The events by which a run comes to know a memory that it may never have seen."""

_LEDGER, _STEPS, _VALUES, _MOVES = schema.ledger.c, schema.steps.c, schema.q_values.c, schema.q_moves.c
_AT_STEP = codec.EVENTS.where(
    _LEDGER.run == bindparam("r"), _LEDGER.step == bindparam("s"), _LEDGER.position <= bindparam("to")
).order_by(_LEDGER.position)
_NEWEST = select(func.max(_STEPS.step)).where(_STEPS.run == bindparam("r"))
_KNOWN_AT = select(func.max(_LEDGER.known_at)).where(_LEDGER.run == bindparam("r"))
_STEP_AT = codec.STEP_ROWS.where(
    _STEPS.run == bindparam("r"), _STEPS.step == bindparam("s"), _STEPS.position <= bindparam("to")
)
_WITHOUT_MOVES = delete(schema.q_moves).where(_MOVES.run == bindparam("r"), _MOVES.memory_id == bindparam("m"))
_HEAD = "SELECT (SELECT max(position) FROM ledger), (SELECT max(position) FROM steps)"


Given = ParamSpec("Given")
Found = TypeVar("Found")


def locked(method: Callable[Given, Found]) -> Callable[Given, Found]:
    """A method of something that has a `_state`, for one thread at a time."""

    @wraps(method)
    def alone(*given: Given.args, **named: Given.kwargs) -> Found:
        asked: Any = given[0]
        with asked._state.database.lock:
            return method(*given, **named)

    return alone


class RunState:
    """A run as it is known now.

    `settings`, `scales` and `environment` are the events that change these. `newest` is the number of the newest
    finished step and `begun` of the newest that has begun. `fold` holds all up to step `folded_to`; None when it was
    not read yet, or, with `is_stale`, has to be made anew of all events. What is not in the fold yet: `late` are the
    steps up to there that rewards have changed since, `appended` what has become of memories after all else that the
    newest of these steps holds, `ahead` the steps after it that hold events of no attempt, which count although their
    step has not ended. `view` is the fold as arrays and `moved` are the memories that have changed since; `unsaved`
    those whose derived rows are not as the fold is.
    """

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.settings: list[LedgerEvent] = []
        self.scales: list[LedgerEvent] = []
        self.environment: list[LedgerEvent] = []
        self.newest: int | None = None
        self.begun = 0
        self.fold: Fold | None = None
        self.is_stale = False
        self.late: set[int] = set()
        self.appended: list[LedgerEvent] = []
        self.ahead: set[int] = set()
        self.folded_to = 0
        self.last_change = (0, 0, "")
        self.view: MemoryView | None = None
        self.moved: set[str] = set()
        self.unsaved: set[str] = set()
        self.is_rewritten = False
        self.places: dict[str, int] = {}
        self.events: dict[str, LedgerEvent] | None = None
        self.by_step: dict[int, list[LedgerEvent]] = {}
        self.looked_up = 0

    def note(self, event: LedgerEvent) -> None:
        """Take note of what an event says of the run as a whole."""
        self.begun = max(self.begun, event.known_at)
        if event.kind is EventKind.SETTINGS_CHANGED:
            self.settings.append(event)
        elif event.kind is EventKind.SCALES_CHANGED:
            self.scales.append(event)
        elif event.kind is EventKind.ENVIRONMENT_CHANGED:
            self.environment.append(event)
            self.info = replace(self.info, environment_options=max(self.environment, key=order_key).payload["options"])

    def add(self, event: LedgerEvent) -> None:
        """Take note of an event that has been appended."""
        self.note(event)
        if self.events is not None and event.id not in self.events:
            self.events[event.id] = event
            self.by_step.setdefault(event.step, []).append(event)
        if self.is_stale or event.kind in MOVES_NOTHING:
            return
        if event.step > self.folded_to:
            if counts_at_once(event):
                self.ahead.add(event.step)
        elif event.kind in REWARDING:
            self.late.add(event.step)
        elif event.kind in CHANGES_MEMORIES and not event.step_id and order_key(event) > self.last_change:
            self.last_change = order_key(event)
            self.appended.append(event)
        else:
            self.make_anew()

    def make_anew(self) -> None:
        """Let the fold be made of all events by whoever asks next."""
        self.fold, self.is_stale = None, True

    def goes_to(self, at: Iterable[LedgerEvent], *steps: int) -> None:
        """Note that the fold holds everything up to the highest of these steps; `at` are the events there."""
        self.folded_to = max(steps)
        changes = (order_key(e) for e in at if e.step == self.folded_to and e.kind in CHANGES_MEMORIES)
        self.last_change = max(changes, default=(self.folded_to, 0, ""))
        self.late.clear()
        self.appended.clear()
        self.ahead.clear()


def counts_at_once(event: LedgerEvent) -> bool:
    """Whether an event moves or changes a memory even before its step has ended."""
    return not event.step_id and (event.kind in REWARDING or event.kind in CHANGES_MEMORIES)


@dataclass(slots=True)
class Pending:
    """Facts that were taken in and are not stored yet. `steps` maps ids to a step in short, its trace and its row."""

    memories: dict[str, tuple[Memory, npt.NDArray[np.float32], Inserted]] = field(default_factory=dict)
    events: dict[str, LedgerEvent] = field(default_factory=dict)
    steps: dict[str, tuple[StepRow, StepTrace, dict[str, Any]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.memories) + len(self.events) + len(self.steps)

    def copied(self) -> Pending:
        """The same, which stays as it is when these grow."""
        return Pending(dict(self.memories), dict(self.events), dict(self.steps))

    def runs(self) -> set[str]:
        """The runs that these facts are about."""
        return {event.run for event in self.events.values()} | {row.run for row, _, _ in self.steps.values()}


class BankState:
    """What one handle knows of a bank; `database.lock` guards it."""

    def __init__(self, database: Database, vectors: Vectors) -> None:
        self.database = database
        self.vectors = vectors
        self.memories = Matrix(vectors)
        self.pending = Pending()
        self._runs: dict[str, RunState] = {}
        self._ids: list[str] | None = None
        self._forks: dict[str, list[str]] = {}
        self._pasts: OrderedDict[tuple[str, int], tuple[str, Fold]] = OrderedDict()
        self._events_to, self._steps_to = 0, 0
        self._clock: int | None = None
        self._appended = 0
        self._may_be_overtaken = False
        database.may_have_changed()
        self._look()

    # --- the newest facts ---------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Another text after every fact that is taken in."""
        return f"{self._events_to}·{self._steps_to}·{self._appended}"

    @property
    def facts(self) -> int:
        """How many facts there are; grows with every one that is taken in."""
        return self._events_to + self._steps_to + len(self.pending)

    @property
    def clock(self) -> int:
        """The highest `seq` of the ledger."""
        if self._clock is None:
            stored = self.database.scalar(select(func.max(_LEDGER.seq))) or 0
            self._clock = max(stored, *(event.seq for event in self.pending.events.values()), 0)
        return self._clock

    def _look(self) -> None:
        ((events, steps),) = self.database.raw(_HEAD)
        self._events_to, self._steps_to = events or 0, steps or 0

    def catch_up(self) -> bool:
        """Take in what others have stored; True when there was something. Raises `BankDamaged`."""
        if not self.database.may_have_changed():
            return False
        events_to, steps_to = self._events_to, self._steps_to
        self._look()
        if (events_to, steps_to) == (self._events_to, self._steps_to):
            return False
        with self.readable():
            events = list(map(codec.event_of, self.database.rows(codec.EVENTS.where(_LEDGER.position > events_to))))
        runs = set(self._column(select(_STEPS.run).where(_STEPS.position > steps_to).distinct()))
        self.memories.take(memory_id for event in events if event.kind in BRINGS_IN for memory_id in event.memory_ids)
        if not self.pending:
            self.memories.put_in_order()
        self._may_be_overtaken |= bool(self.pending)
        self._clock = None
        self._appended += 1
        for event in events:
            runs.add(event.run)
        if any(event.kind is EventKind.RUN_STARTED for event in events):
            self._ids = None
        dropped = self._with_forks(runs)
        for run in dropped:
            self._runs.pop(run, None)
        self._pasts.clear()
        for run in dropped & self._with_forks(self.pending.runs()) & set(self.ids()):
            self.of(run).make_anew()
        return True

    def _with_forks(self, runs: Iterable[str]) -> set[str]:
        found = set(runs)
        for run in list(found):
            found |= self._with_forks(self.forks().get(run, ()))
        return found

    def forget(self) -> None:
        """Let go of everything but what is pending, to be read again: what was taken in last was not stored."""
        self._runs.clear()
        self._pasts.clear()
        self._ids, self._clock = None, None
        self.memories.forget()
        self.database.may_have_changed()
        self._look()
        self._may_be_overtaken = True
        for memory, vector, inserted in self.pending.memories.values():
            if memory.id not in self.memories:
                self.memories.add(memory, vector, inserted)
        for run in self._with_forks(self.pending.runs()) & set(self.ids()):
            self.of(run).make_anew()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The ids of all runs, oldest first."""
        if self._ids is None:
            self._ids = self._column(select(schema.runs.c.id).order_by(schema.runs.c.position))
            self._forks = {}
            for run, base in self.database.rows(select(schema.runs.c.id, schema.runs.c.base)):
                if base is not None:
                    self._forks.setdefault(base, []).append(run)
            for event in self.pending.events.values():
                if _starts(event):
                    self._list(codec.run_of(event.payload))
        return self._ids

    def _list(self, info: RunInfo) -> None:
        ids = self.ids()
        if info.id not in ids:
            ids.append(info.id)
            if info.base is not None:
                self._forks.setdefault(info.base, []).append(info.id)

    def forks(self) -> Mapping[str, list[str]]:
        """The runs that began with what another one knew, by that."""
        self.ids()
        return self._forks

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        return self.of(run).info

    def of(self, run: str) -> RunState:
        """What is known of a run; raises `UnknownRun`."""
        found = self._runs.get(run)
        return found if found is not None else self._read_run(run)

    def _read_run(self, run: str) -> RunState:
        if run not in self.ids():
            known = ", ".join(self.ids()[-8:]) or "none"
            raise UnknownRun(f"This bank has no run “{run}”. Its runs: {known}.")
        info = self.database.scalar(select(schema.runs.c.info).where(schema.runs.c.id == run))
        with self.readable():
            if info is None:
                (started,) = (e for e in self.pending.events.values() if e.run == run and _starts(e))
                state = RunState(codec.run_of(started.payload))
            else:
                state = RunState(codec.run_of(json.loads(info)))
            # All runs together have few of these; asked for those of one run, SQLite reads its whole ledger.
            for event in self.events_where(_LEDGER.kind.in_(OF_THE_RUN)):
                if event.run == run:
                    state.note(event)
        state.newest = self.database.scalar(_NEWEST, r=run)
        state.begun = max(state.begun, self.database.scalar(_KNOWN_AT, r=run) or 0)
        for row, _, _ in self.pending.steps.values():
            if row.run == run:
                state.newest = max(row.step, state.newest or row.step)
        for event in self.pending.events.values():
            if event.run == run:
                state.begun = max(state.begun, event.known_at)
                if event.kind in OF_THE_RUN:
                    state.note(event)
        self._runs[run] = state
        return state

    def settings_at(self, run: str) -> SettingsAt:
        """The settings in force at any step of a run. Raises `UnknownRun`."""
        state = self.of(run)
        changes = sorted(state.settings, key=order_key)
        first, steps = state.info.settings, [event.step for event in changes]

        def at(step: int) -> Mapping[str, Any]:
            later = bisect_right(steps, step)
            return changes[later - 1].payload["settings"] if later else first

        return at

    # --- events and steps ---------------------------------------------------------------------------------------------

    def readable(self) -> AbstractContextManager[None]:
        """Rows that cannot be read within it, as `BankDamaged`."""
        return _damage(f"In the bank at {self.database.shown}, a row cannot be read.")

    def events_where(self, *conditions: Any) -> list[LedgerEvent]:
        """The stored events that fulfil these conditions on columns of `ledger`, in the order of the ledger."""
        found = codec.EVENTS.where(*conditions, _LEDGER.position <= self._events_to)
        with self.readable():
            return list(map(codec.event_of, self.database.rows(found.order_by(_LEDGER.position))))

    def event(self, event_id: str) -> LedgerEvent | None:
        """An event by its id."""
        found = self.events_of([event_id])
        return found[0] if found else None

    def events_of(self, event_ids: Iterable[str]) -> list[LedgerEvent]:
        """The events of these ids that are known, in the order given."""
        wanted = list(event_ids)
        found = {i: self.pending.events[i] for i in wanted if i in self.pending.events}
        for some in chunks(i for i in wanted if i not in found):
            found |= {event.id: event for event in self.events_where(_LEDGER.id.in_(some))}
        return [found[i] for i in wanted if i in found]

    def events(self, run: str) -> Collection[LedgerEvent]:
        """All events of a run, in the order in which they were appended."""
        state = self.of(run)
        if state.events is None:
            waiting = (event for event in self.pending.events.values() if event.run == run)
            state.events, state.by_step = {}, {}
            for event in (*self.events_where(_LEDGER.run == run), *waiting):
                state.events[event.id] = event
                state.by_step.setdefault(event.step, []).append(event)
        return state.events.values()

    def at(self, run: str, step: int) -> list[LedgerEvent]:
        """The events about one step."""
        state = self.of(run)
        state.looked_up += 1
        if state.events is None and state.looked_up > LOOKED_UP:
            self.events(run)
        if state.events is not None:
            return state.by_step.get(step, [])
        with self.readable():
            found = self.database.rows(_AT_STEP, r=run, s=step, to=self._events_to)
            stored = list(map(codec.event_of, found))
        waiting = [event for event in self.pending.events.values() if event.run == run and event.step == step]
        return [*stored, *waiting]

    def of_kind(self, *kinds: EventKind) -> list[LedgerEvent]:
        """The events of these kinds, of all runs."""
        waiting = (event for event in self.pending.events.values() if event.kind in kinds)
        return [*self.events_where(_LEDGER.kind.in_(kinds)), *waiting]

    def by_actor(self, person: str) -> list[LedgerEvent]:
        """The events that a person appended."""
        waiting = (e for e in self.pending.events.values() if actor_of(e) == person)
        return [*self.events_where(_LEDGER.actor == person), *waiting]

    def step_row(self, run: str, step: int) -> StepRow | None:
        """A finished step in short; None when there is none of that number."""
        newest = self.of(run).newest
        if newest is None or step > newest:
            return None
        for row, _, _ in self.pending.steps.values():
            if (row.run, row.step) == (run, step):
                return row
        found = self.database.rows(_STEP_AT, r=run, s=step, to=self._steps_to)
        return codec.step_of(found[0]) if found else None

    def step_rows(self, run: str) -> list[StepRow]:
        """The finished steps of a run in short, in order."""
        self.of(run)
        query = codec.STEP_ROWS.where(_STEPS.run == run, _STEPS.position <= self._steps_to).order_by(_STEPS.step)
        stored = [codec.step_of(row) for row in self.database.rows(query)]
        return sorted(
            [*stored, *(row for row, _, _ in self.pending.steps.values() if row.run == run)], key=attrgetter("step")
        )

    def committed(self, events: Iterable[LedgerEvent]) -> set[str]:
        """Of the attempts that these events belong to, those that ended."""
        events = list(events)
        attempts = {event.step_id for event in events if event.step_id}
        found = attempts & self.pending.steps.keys()
        if len(attempts) > schema.AT_ONCE:
            runs = {event.run for event in events}
            query = select(_STEPS.id).where(_STEPS.run.in_(runs), _STEPS.position <= self._steps_to)
            found.update(attempts.intersection(self._column(query)))
            if len(runs) == 1:
                return found
        for some in chunks(attempts - found):
            found.update(self._column(select(_STEPS.id).where(_STEPS.id.in_(some), _STEPS.position <= self._steps_to)))
        return found

    def _column(self, query: Any) -> list[Any]:
        return [value for (value,) in self.database.rows(query)]

    # --- taking in ----------------------------------------------------------------------------------------------------

    def prepare(self, runs: Iterable[str]) -> None:
        """Bring the folds of these runs up to date, so that they can follow what is taken in next."""
        for run in runs:
            if run in self.ids():
                self.live(run)

    def take_memory(self, memory: Memory, vector: npt.NDArray[np.float32], inserted: Inserted) -> None:
        """Take in a memory with its embedding (d,)."""
        self.pending.memories[memory.id] = (memory, vector, inserted)
        self.memories.add(memory, vector, inserted)

    def make_way(self, memory_ids: Iterable[str]) -> None:
        """Sweep up memories of these ids that are stored and that nobody names: others take their names."""
        there = [memory_id for memory_id in memory_ids if memory_id in self.memories]
        named = set(self.pending.memories)
        for some in chunks(there):
            named.update(self._column(select(_VALUES.memory_id).where(_VALUES.memory_id.in_(some)).distinct()))
        left = [memory_id for memory_id in there if memory_id not in named]
        if left:
            self.vectors.delete(left)
            self.memories.forget()

    def take_event(self, event: LedgerEvent) -> None:
        """Take in an event of the ledger."""
        self.pending.events[event.id] = event
        self._clock = max(self.clock, event.seq)
        self._appended += 1
        self._pasts.clear()
        if _starts(event):
            self._list(codec.run_of(event.payload))
            self.of(event.run).make_anew()
        if event.run:
            state = self.of(event.run)
            if state.fold is None:
                state.make_anew()
            state.add(event)
            self._reach_forks(event.run, event.known_at)

    def take_step(self, trace: StepTrace, created: str) -> None:
        """Take in a finished step: its attempt's events count from now on."""
        stored = codec.step_row(trace, created)
        row = StepRow(*(stored[name] for name in codec.STEP_COLUMNS))
        self.pending.steps[row.id] = (row, trace, stored)
        self._appended += 1
        self._pasts.clear()
        state = self.of(row.run)
        state.newest = max(row.step, row.step if state.newest is None else state.newest)
        if row.step <= state.folded_to:
            state.make_anew()
        if row.run in self.forks():
            for event in self.at(row.run, row.step):
                self._reach_forks(row.run, event.known_at)

    def _reach_forks(self, run: str, known_at: int | None = None) -> None:
        """Let the runs that began with what `run` knew then be folded anew; None: with anything of it."""
        for fork in self.forks().get(run, ()):
            if known_at is None or known_at <= self.of(fork).info.base_step:
                self.of(fork).make_anew()
                self._reach_forks(fork)

    # --- folding ------------------------------------------------------------------------------------------------------

    def live(self, run: str) -> Fold:
        """The fold of all that is known, brought up to date. Raises `UnknownRun`, `BankDamaged`."""
        state = self.of(run)
        with self.foldable(run):
            if state.fold is None and not state.is_stale:
                state = self._restored(run)
            if state.fold is not None:
                state.fold = self._caught_up(run, state.fold, state.newest or 0)
            if state.fold is None:
                if self._derived("memory_id", run, "LIMIT 1"):
                    self.must_know_rule(state.info)
                events = self.events(run)
                state.fold = folded(self.start(run), events, self.committed(events))
                state.is_stale, state.is_rewritten, state.view = False, True, None
                state.moved.clear()
                state.goes_to(events, *(e.step for e in events if counts_at_once(e)), state.newest or 0)
        return state.fold

    def must_know_rule(self, info: RunInfo) -> None:
        """Raise `InputError` where nobody here knows how a run's rewards move q: what is stored of it would be lost."""
        if not is_installed(info.policy):
            raise InputError(
                f"The policy “{info.policy[:80]}” of run “{info.id[:80]}” is not installed here, so its q cannot be "
                "computed. Nothing was changed; install the package that the policy is from, and try again."
            )

    def _restored(self, run: str) -> RunState:
        """A run with its fold as the derived tables have it, after what others have stored was taken in."""
        with self.database.snapshot():
            self.catch_up()
            state = self.of(run)
            if not state.is_stale:
                state.fold = self._derived_fold(state)
            return state

    def _derived_fold(self, state: RunState) -> Fold:
        run = state.info.id
        names = "memory_id, q, visits, place, away, pinned, inherited, origin_step, replaced, begun_anew"
        rows = sorted(self._derived(names, run), key=itemgetter(3))
        fold = Fold(update_rule(state.info.policy), histories=Histories([row[0] for row in rows], self._reader(run)))
        for memory_id, q, visits, place, away, pinned, inherited, origin_step, replaced, begun_anew in rows:
            (fold.away if away else fold.utilities)[memory_id] = Utility(q, visits)
            state.places[memory_id] = place
            if pinned:
                fold.pinned.add(memory_id)
            if inherited:
                fold.inherited[memory_id] = inherited
            if begun_anew:
                fold.begun_anew.add(memory_id)
            if origin_step is not None:
                fold.origins[memory_id] = Origin(origin_step, tuple(json.loads(replaced)))
        fold.origins = dict(sorted(fold.origins.items(), key=lambda item: item[1].step))
        ahead = select(func.max(_LEDGER.step)).where(
            _LEDGER.run == run, _LEDGER.step_id == "", _LEDGER.kind.in_([*REWARDING, *CHANGES_MEMORIES])
        )
        last = max(state.newest or 0, self.database.scalar(ahead) or 0)
        state.goes_to(self.at(run, last), last)
        fold.settings = self.settings_at(run)(last)
        return fold

    def _derived(self, names: str, run: str, where: str = "") -> list[Any]:
        found: list[Any] = self.database.raw(f"SELECT {names} FROM q_values WHERE run = ? {where}", (run,))
        return found

    def _derived_values(self, run: str) -> tuple[list[str], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """The memories (n) that a run knows now, with their q (n,) and visits (n,)."""
        ids: list[str] = []
        q, visits = array("d"), array("q")
        query = "SELECT memory_id, q, visits FROM q_values WHERE run = ? AND NOT away"
        for memory_id, value, count in self.database.lazily(query, (run,)):
            ids.append(memory_id)
            q.append(value)
            visits.append(count)
        return ids, np.array(q, np.float64), np.array(visits, np.int64)

    def _reader(self, run: str) -> Any:
        def read(memory_ids: Iterable[str] | None) -> dict[str, list[UtilityPoint]]:
            found: dict[str, list[UtilityPoint]] = {}
            with self.readable():
                for ids in [()] if memory_ids is None else chunks(memory_ids):
                    among = f"AND memory_id IN ({', '.join('?' * len(ids))})" if ids else ""
                    for row in self.database.raw(f"{codec.MOVES} {among} ORDER BY memory_id, number", (run, *ids)):
                        found.setdefault(row[0], []).append(codec.move_of(row))
            return found

        return read

    def _caught_up(self, run: str, fold: Fold, newest: int) -> Fold | None:
        """The fold of a run brought up to date in place; None where that cannot be done."""
        state = self.of(run)
        steps = [*range(state.folded_to + 1, newest + 1), *sorted(step for step in state.ahead if step > newest)]
        if not (state.late or state.appended or steps):
            return fold
        if state.late:
            self.must_know_rule(state.info)
        state.fold, state.is_stale = None, True  # Should folding fail halfway, the next to ask folds anew.
        settings_at = self.settings_at(run)
        late = [event for step in state.late for event in self.at(run, step)]
        histories = fold.refolded(by_step(late, self.committed(late).__contains__), settings_at)
        if histories is None:
            return None
        fold.replace_histories(histories)
        fold.take(state.folded_to, state.appended)
        come = list(state.appended)
        for step in steps:
            events = self.at(run, step)
            fold.settings = settings_at(step)
            folded(fold, events, self.committed(events))
            come += events
        moved = {*histories, *(memory_id for event in come for memory_id in named_by(event))}
        state.moved |= moved
        state.unsaved |= moved
        state.goes_to(come if steps else self.at(run, state.folded_to), state.folded_to, *steps)
        state.is_stale = False
        return fold

    def view(self, run: str) -> MemoryView:
        """The live fold as arrays, made once until it changes. Raises `UnknownRun`."""
        state = self.of(run)
        if state.fold is None and not state.is_stale and not self.pending:
            if state.view is None or state.view.rows is not self.memories.rows:
                with self.database.snapshot(), ThreadPoolExecutor(1) as beside:
                    # LanceDB reads without Python's lock, and SQLite's rows need it for each.
                    reading = beside.submit(self.memories.read)
                    ids, q, visits = self._derived_values(run)
                    reading.result()
                    self.catch_up()
                state = self.of(run)
                with self.foldable(run):
                    state.view = self.memories.view_of(ids, q, visits)
            return state.view
        fold, state = self.live(run), self.of(run)
        if state.view is None or state.view.rows is not self.memories.rows:
            with self.foldable(run):
                state.view = self.memories.view(fold)
        elif state.moved:
            state.view = self.memories.changed(state.view, fold, state.moved)
        state.moved.clear()
        return state.view

    def foldable(self, run: str) -> AbstractContextManager[None]:
        """What cannot be folded within it, as `BankDamaged`."""
        return _damage(f"The q of run “{run[:80]}” does not follow from its ledger: an event there cannot be folded.")

    def past(self, run: str, step: int) -> Fold:
        """The fold of what was known when `step` had ended and the next had not begun. Raises `UnknownRun`."""
        key = (run, step)
        kept = self._pasts.get(key)
        if kept is None or kept[0] != self.version:
            with self.foldable(run):
                events = self.events(run)
                until = [event for event in events if event.known_at <= step]
                kept = self._pasts[key] = (self.version, folded(self.start(run), until, self.committed(until)))
            while len(self._pasts) > PASTS_KEPT:
                self._pasts.popitem(last=False)
        return kept[1]

    def seen_until(self, run: str, step: int, epoch: int) -> int:
        """The step after which the memory stood that a step of an epoch recalls from (`batch_size`)."""
        size = _batch_size(self.settings_at(run)(step))
        if size == 1:
            return step - 1
        earlier = (row for row in reversed(self.step_rows(run)) if row.step < step)
        first = min((row.step for row in takewhile(lambda row: row.epoch == epoch, earlier)), default=step)
        return _before_batch(first, step, size)

    def walk(self, run: str) -> Iterator[tuple[int, Fold, Collection[str] | None]]:
        """Every finished step with the fold of what it recalled from, and which memories changed since the last.

        The fold grows in place, so it is to be read before the next is asked for. The changes are None where everything
        has to be read again: at first, and after a reward that came late. Raises `UnknownRun`.
        """
        arrivals: dict[int, list[LedgerEvent]] = {}
        events = list(self.events(run))
        committed = self.committed(events)
        for event in events:
            if not event.step_id or event.step_id in committed:
                arrivals.setdefault(event.known_at, []).append(event)
        fold, changed, at = self.start(run), None, -1
        waiting: dict[int, list[LedgerEvent]] = {}
        settings_at, epoch, first = self.settings_at(run), None, 0
        for row in self.step_rows(run):
            step = row.step
            if row.epoch != epoch:
                epoch, first = row.epoch, step
            until = _before_batch(first, step, _batch_size(settings_at(step)))
            moved: set[str] | None = set() if changed is not None else None
            for known in range(at + 1, until + 1):
                come = sorted(arrivals.get(known, ()), key=order_key)
                if any(event.step < known for event in come):
                    fold, moved, waiting = copied(self.past(run, known)), None, {}
                    continue
                for event in come:
                    if event.step > known:
                        waiting.setdefault(event.step, []).append(event)
                now = [*waiting.pop(known, ()), *(event for event in come if event.step == known)]
                fold.take(known, now)
                if moved is not None:
                    moved.update(memory_id for event in now for memory_id in named_by(event))
            at = max(at, until)
            changed = moved
            yield step, fold, changed
            changed = set()

    def supposed(self, event: LedgerEvent) -> Mapping[str, Sequence[UtilityPoint]]:
        """The histories that would differ if `event`, a rewarding one, were taken in too; its attempt counts as
        finished.
        """
        live = self.live(event.run)
        at = [*self.at(event.run, event.step), event]
        counting = self.committed(at) | {event.step_id}
        histories = live.refolded(by_step(at, counting.__contains__), self.settings_at(event.run))
        if histories is not None:
            return histories
        events = [*self.events(event.run), event]
        then = folded(self.start(event.run), events, self.committed(events) | {event.step_id}).histories
        return {i: points for i, points in then.items() if points != live.histories.get(i)}

    def beginning_before(
        self, run: str, histories: Mapping[str, Sequence[UtilityPoint]]
    ) -> dict[str, Sequence[UtilityPoint]]:
        """Histories of a run in which what it began with has the step before its first."""
        inherited, before = self.live(run).inherited, self.run(run).first_step - 1
        found: dict[str, Sequence[UtilityPoint]] = {}
        for memory_id, points in histories.items():
            given = inherited.get(memory_id, 0)
            found[memory_id] = [*(replace(p, step=before) for p in points[:given]), *points[given:]]
        return found

    def start(self, run: str) -> Fold:
        """A new fold of what the run knew before its first step: nothing, or what its base knew then."""
        info = self.run(run)
        rule = update_rule(info.policy)
        if info.base is None:
            return Fold(rule)
        fold = copied(self.past(info.base, info.base_step))
        fold.rule = rule
        fold.settings = info.settings
        fold.inherited = {memory_id: len(points) for memory_id, points in fold.histories.items()}
        fold.origins, fold.begun_anew = {}, set()
        return fold

    # --- storing ------------------------------------------------------------------------------------------------------

    def store(self) -> None:
        """Store what is pending, with what follows from it, within the transaction of the caller.

        Raises `RunMoved` where another process has finished a step of the same number.
        """
        pending = self.pending
        for row, _, _ in pending.steps.values() if self._may_be_overtaken else ():
            if self.database.rows(_STEP_AT, r=row.run, s=row.step, to=self._steps_to):
                raise RunMoved(
                    f"Another process has already finished step {row.step} of run {row.run}. This attempt was not "
                    "stored; begin the next step."
                )
        # One after the other: side by side, Python's lock between them costs more than SQLite's part of a step.
        if pending.memories:
            rows = (codec.table_row(*one) for one in pending.memories.values())
            self.vectors.append(codec.arrow(rows, codec.table_schema(self.vectors.dimension)))
        touched = pending.runs() - {""}
        stale = (fork for run in touched for fork in self._stale_forks(run))
        for changed in dict.fromkeys([*touched, *stale]):
            self.save(changed)
        started = [codec.run_of(event.payload) for event in pending.events.values() if _starts(event)]
        self.database.insert(schema.runs, [codec.run_row(info) for info in started])
        self.database.insert(schema.steps, [stored for _, _, stored in pending.steps.values()])
        seen = [row for _, trace, _ in pending.steps.values() for row in codec.candidate_rows(trace)]
        self.database.insert(schema.candidates, seen)
        self.database.insert(schema.ledger, [codec.event_row(event) for event in pending.events.values()])
        # Before the end of the transaction: what others store afterwards has not been taken in.
        self._look()

    def stored(self) -> None:
        """Note that what was pending has been stored and committed."""
        self.pending = Pending()
        self._may_be_overtaken = False
        self.memories.put_in_order()
        for state in self._runs.values():
            state.unsaved.clear()
            state.is_rewritten = False
            if state.fold is not None:
                state.fold.histories.changed.clear()

    def _stale_forks(self, run: str) -> Iterator[str]:
        for fork in self.forks().get(run, ()):
            if fork in self._runs and (self._runs[fork].is_stale or self._runs[fork].is_rewritten):
                yield fork
            yield from self._stale_forks(fork)

    def save(self, run: str) -> None:
        """Write the rows of `q_values` and `q_moves` that are not as the fold of a run is."""
        fold, state = self.live(run), self.of(run)
        if state.is_rewritten:
            for table in (schema.q_values, schema.q_moves):
                self.database.execute(delete(table).where(table.c.run == run))
            state.places = {memory_id: place for place, memory_id in enumerate(fold.histories)}
            changed, first = list(fold.histories), dict.fromkeys(fold.histories, 0)
        else:
            changed = [memory_id for memory_id in state.unsaved if memory_id in fold.histories]
            first = {i: number for i, number in fold.histories.changed.items() if i in fold.histories}
            anew = [i for i, number in first.items() if number == 0 and i in state.places]
            self.database.execute(_WITHOUT_MOVES, [{"r": run, "m": i} for i in anew])
            for memory_id in first:
                state.places.setdefault(memory_id, len(state.places))
        self.database.put(schema.q_values, [self._value_row(run, fold, state.places, i) for i in changed])
        new = [(number, point) for i, at in first.items() for number, point in _since(fold.histories[i], at)]
        causes = self._causes(run, [point for _, point in new])
        moves = [codec.move_row(run, number, point, (causes(point) or [""])[-1]) for number, point in new]
        self.database.insert(schema.q_moves, moves)

    def derived(self, run: str, fold: Fold) -> Iterator[tuple[dict[str, Any], list[tuple[dict[str, Any], list[str]]]]]:
        """What the tables hold of each memory of a run that is as in `fold`: its row of `q_values` and those of
        `q_moves`, each with the events that may have caused the move ([] where none is in the run).
        """
        places = {memory_id: place for place, memory_id in enumerate(fold.histories)}
        causes = self._causes(run, [point for points in fold.histories.values() for point in points])
        for memory_id, points in fold.histories.items():
            moves = [(codec.move_row(run, n, point, ""), causes(point)) for n, point in enumerate(points)]
            yield self._value_row(run, fold, places, memory_id), moves

    def _value_row(self, run: str, fold: Fold, places: Mapping[str, int], memory_id: str) -> dict[str, Any]:
        away = memory_id not in fold.utilities
        utility = fold.away[memory_id] if away else fold.utilities[memory_id]
        origin = fold.origins.get(memory_id)
        return {
            "run": run,
            "memory_id": memory_id,
            "q": utility.q,
            "visits": utility.visits,
            "place": places[memory_id],
            "away": away,
            "pinned": memory_id in fold.pinned,
            "inherited": fold.inherited.get(memory_id, 0),
            "origin_step": origin.step if origin else None,
            "replaced": json.dumps(origin.replaced) if origin else "[]",
            "begun_anew": memory_id in fold.begun_anew,
        }

    def _causes(self, run: str, points: Sequence[UtilityPoint]) -> Callable[[UtilityPoint], list[str]]:
        """Which events a move may be by, the last of them the newest: those that gave one of its rewards, or that
        brought the memory in.
        """
        at = {step: self.at(run, step) for step in {point.step for point in points}}
        given: dict[tuple[int, str], list[str]] = {}
        inserted: dict[tuple[int, str], list[str]] = {}
        for step, events in at.items():
            for event in events:
                if event.kind in REWARDING and event.source is not None:
                    given.setdefault((step, event.source), []).append(event.id)
                elif event.kind in BRINGS_IN:
                    for memory_id in event.memory_ids:
                        inserted.setdefault((step, memory_id), []).append(event.id)

        def causes(point: UtilityPoint) -> list[str]:
            if point.source is None:
                return inserted.get((point.step, point.memory_id), [])
            return given.get((point.step, point.source), [])

        return causes

    def named(self) -> set[str]:
        """The ids of all memories that a run has come to know."""
        return set(self._column(select(_VALUES.memory_id).distinct()))


@contextmanager
def _damage(what: str) -> Iterator[None]:
    try:
        yield
    except MemRLError:
        raise
    except codec.UNREADABLE as error:
        raise BankDamaged(
            f"{what} Nothing was changed; run `memrl doctor --bank` on the bank, or restore a copy."
        ) from error


def _batch_size(settings: Mapping[str, Any]) -> int:
    return int(settings.get("batch_size", 1))


def _before_batch(first: int, step: int, size: int) -> int:
    """The step before the mini-batch of `size` steps that `step` is in, counted from the epoch's `first` step."""
    return first - 1 + (step - first) // size * size


def _since(points: Sequence[UtilityPoint], first: int) -> Iterator[tuple[int, UtilityPoint]]:
    return ((number, points[number]) for number in range(first, len(points)))


def _starts(event: LedgerEvent) -> bool:
    return event.kind is EventKind.RUN_STARTED
