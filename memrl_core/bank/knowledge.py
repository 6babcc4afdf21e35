"""What one handle has read of a bank, and what follows from it: memories, steps and events by id, and their folds.

The tables are only appended to, so taking the same row twice changes nothing. The order of taking does not matter
either: a memory is as old as the event that brought it into its run, wherever its row lies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memrl_core.bank import codec
from memrl_core.bank.ages import by_age
from memrl_core.bank.appends import IN_ORDER
from memrl_core.bank.births import Births
from memrl_core.bank.coming import Coming, Rows
from memrl_core.bank.mirror import Mirror, RunState, copied, folded, nothing_collected
from memrl_core.bank.store import Store
from memrl_core.bank.unread import Records, UnreadLedger, UnreadRun, by_run, numbered, numbered_texts
from memrl_core.errors import BankDamaged, MemRLError, UnknownRun
from memrl_core.learning import Fold, SettingsAt, by_step, named_by, order_key
from memrl_core.policies import update_rule
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, UtilityPoint
from memrl_core.retrieval.view import MemoryView

PASTS_KEPT = 8
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError)
"""What rows raise that another program has written, or that were damaged."""
FOLLOWING = tuple(reversed(IN_ORDER))
"""Against the order of writing: what a row refers to is then there when the row is."""
MANY = 1000
"""So many rows are taken in as columns when a bank is opened."""
BRINGS_IN = frozenset(
    {EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED}
)
"""The events by which a run comes to know a memory that it may never have seen."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A finished step in short; `reward` is the one it ended with."""

    id: str
    run: str
    step: int
    epoch: int
    task: str
    outcome: str
    reward: float | None
    created: str


def _step_rows(table: pa.Table) -> Iterator[StepRow]:
    codec.must_be_usable(table)
    return map(StepRow, *(table[name].to_pylist() for name in codec.STEP_COLUMNS))


@contextmanager
def _readable(store: Store, name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise BankDamaged(
            f"In the bank at {store.uri}, a row of the table {name} cannot be read. Nothing was changed; run "
            "`memrl doctor --bank` on it, or restore a copy."
        ) from error


@contextmanager
def _foldable(run: str) -> Iterator[None]:
    try:
        yield
    except MemRLError:
        raise
    except UNREADABLE as error:
        raise BankDamaged(
            f"The q of run “{run[:80]}” does not follow from its ledger: an event there cannot be folded. Nothing was "
            "changed; run `memrl doctor --bank` on the bank, then `memrl repair`."
        ) from error


class StepsOfRun(Mapping[int, StepRow]):
    """The finished steps of a run by number."""

    def __init__(self, ids: Mapping[int, str], rows: Mapping[str, StepRow]) -> None:
        self._ids, self._rows = ids, rows

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __contains__(self, step: object) -> bool:
        return step in self._ids

    def __getitem__(self, step: int) -> StepRow:
        return self._rows[self._ids[step]]


class Knowledge:
    """The facts of a bank of `dimension`-number embeddings that were taken in so far. Not safe for several threads."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.mirror = Mirror(dimension)
        self.memories: Records[Memory] = Records()
        self.events: Records[LedgerEvent] = Records()
        self.steps: Records[StepRow] = Records()
        self.runs: dict[str, RunInfo] = {}
        self.states: dict[str, RunState] = {}
        self.roles: dict[str, LedgerEvent] = {}
        self._by_person: dict[str, list[LedgerEvent]] = {}
        self._unread: UnreadLedger | None = None
        self.seq = 0
        self._births = Births()
        self._by_run: dict[str, dict[int, str]] = {}
        self._unnumbered: dict[str, pa.Table] = {}
        self._newest: dict[str, int] = {}
        self._forks: dict[str, list[RunInfo]] = {}
        self._pasts: OrderedDict[tuple[str, int, int], Fold] = OrderedDict()
        self._synced = {"memories": 0, "steps": 0, "ledger": 0}
        self._doubles = {"memories": 0, "steps": 0, "ledger": 0}
        self._coming: Coming | None = None

    @property
    def facts(self) -> int:
        """How many facts there are; grows with every one that is taken in."""
        return len(self.memories) + len(self.events) + len(self.steps)

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        try:
            return self.runs[run]
        except KeyError:
            known = ", ".join(list(self.runs)[-8:]) or "none"
            raise UnknownRun(f"This bank has no run “{run}”. Its runs: {known}.") from None

    def steps_of(self, run: str) -> Mapping[int, StepRow]:
        """The finished steps of a run by number."""
        return StepsOfRun(self._numbered(run), self.steps)

    def _numbered(self, run: str) -> dict[int, str]:
        """The ids of a run's finished steps by number."""
        if run not in self._by_run:
            unread = self._unnumbered.get(run)
            ids = (
                {} if unread is None else dict(zip(*(unread[name].to_pylist() for name in ("step", "id")), strict=True))
            )
            self._by_run.setdefault(run, ids)
        return self._by_run[run]

    def newest_step(self, run: str) -> int | None:
        """The highest number of a finished step of a run; None when none has finished."""
        return self._newest.get(run)

    # --- taking in ----------------------------------------------------------------------------------------------------

    def take_memory(self, memory: Memory, vector: npt.NDArray[np.float32]) -> None:
        """Take in a memory with its embedding (d,)."""
        if memory.id not in self.memories:
            self.memories[memory.id] = memory
            self.mirror.append([memory.id], [memory.intent_key], vector[None, :])
            self._date(memory)

    def take_event(self, event: LedgerEvent) -> None:
        """Take in an event of the ledger."""
        if event.id in self.events:
            return
        self.events[event.id] = event
        self.seq = max(self.seq, event.seq)
        self.states.setdefault(event.run, RunState()).add(event)
        self._reach_forks(event.run, event.known_at)
        self._note(event)
        if event.kind in BRINGS_IN:
            for place, memory_id in enumerate(event.memory_ids):
                self._births.add(memory_id, event.run, (event.seq, event.id, place))
                if memory_id in self.memories:
                    self._date(self.memories[memory_id])

    def _note(self, event: LedgerEvent) -> None:
        """Take note of what an event says of its run as a whole, and of who did it."""
        self._note_person(event)
        if event.kind in (EventKind.RUN_STARTED, EventKind.ENVIRONMENT_CHANGED):
            self._describe(event.run)
        elif event.kind is EventKind.ROLE_ASSIGNED:
            person = str(event.payload["person"])
            self.roles[person] = max((event, self.roles.get(person, event)), key=order_key)

    def _note_person(self, event: LedgerEvent) -> None:
        if event.source == "person" or "by" in event.payload:
            self._by_person.setdefault(str(event.payload.get("by") or event.rater), []).append(event)

    @property
    def by_person(self) -> Mapping[str, Sequence[LedgerEvent]]:
        """The events of each person, in no order."""
        unread, self._unread = self._unread, None
        for event in unread.ratings() if unread is not None else ():
            self._note_person(event)
        return self._by_person

    def _date(self, memory: Memory) -> None:
        age = self._births.age(memory.id, memory.run)
        if age is not None:
            self.mirror.date(memory.id, age)

    def _reach_forks(self, run: str, known_at: int | None = None) -> None:
        """Drop the folds of the runs that began with what `run` knew then; None: with anything of it."""
        for info in self._forks.get(run, ()):
            if known_at is None or known_at <= info.base_step:
                self.states[info.id].fold = None
                self._reach_forks(info.id)

    def _describe(self, run: str) -> None:
        """Keep what the run was started as, with the environment's options as last changed."""
        events = self.states[run].descriptions
        start = next((event for event in events if event.kind is EventKind.RUN_STARTED), None)
        if start is None:
            return
        info = codec.run_of(start.payload)
        changes = [event for event in events if event.kind is EventKind.ENVIRONMENT_CHANGED]
        if changes:
            info = replace(info, environment_options=max(changes, key=order_key).payload["options"])
        if info.base is not None and run not in self.runs:
            self._forks.setdefault(info.base, []).append(info)
        self.runs[run] = info

    def take_step(self, row: StepRow) -> None:
        """Take in a finished step: its attempt's events count from now on."""
        if row.id in self.steps:
            return
        self.steps[row.id] = row
        self._numbered(row.run)[row.step] = row.id
        self._newest[row.run] = max(row.step, self._newest.get(row.run, row.step))
        state = self.states.setdefault(row.run, RunState())
        if row.step <= state.folded_to:
            state.fold = None

    def has_grown(self, store: Store, name: str, buffered: int) -> bool:
        """Whether a table holds rows that were not taken in; `buffered` as in `follow`."""
        known: Mapping[str, Mapping[str, object]]
        known = {"memories": self.memories, "ledger": self.events, "steps": self.steps}
        return store.count(name) + buffered != len(known[name]) + self._doubles[name]

    def follow(self, store: Store, name: str, buffered: int) -> bool:
        """Take in what was appended to a table since; True when there was something new.

        `buffered` is how many rows this handle has taken in but not appended yet. Raises `BankDamaged`.
        """
        tables: dict[str, Mapping[str, object]]
        tables = {"memories": self.memories, "ledger": self.events, "steps": self.steps}
        known = tables[name]
        rows = store.count(name)
        if rows + buffered == len(known) + self._doubles[name]:
            self._synced[name] = rows
            return False
        before = len(known)
        if not known and rows >= MANY and self._begins_with(store, name):
            if len(known) < rows:
                rows = self._take(store, name, len(known))
        else:
            rows = self._take(store, name, self._synced[name])
        # A compaction puts what it joins behind what was appended meanwhile: new rows may lie before those known.
        if rows + buffered != len(known) + self._doubles[name]:
            rows = self._take(store, name, 0)
        self._doubles[name] = rows + buffered - len(known)
        self._synced[name] = rows
        return len(known) > before

    @nothing_collected()
    def _take(self, store: Store, name: str, offset: int) -> int:
        """Take in the rows of a table from `offset` on; how many it has in all."""
        table = store.read(name, list(codec.STEP_COLUMNS) if name == "steps" else None, offset)
        with _readable(store, name):
            if name == "memories":
                vectors = codec.matrix_of(table["embedding"], self.dimension)
                memories = list(codec.memories_of(table))
                ages = [self._births.age(memory.id, memory.run) for memory in memories]
                for place in by_age([memory.id for memory in memories], ages):
                    self.take_memory(memories[place], vectors[place])
            elif name == "ledger":
                for event in codec.events_of(table):
                    self.take_event(event)
            else:
                for row in _step_rows(table):
                    self.take_step(row)
        return offset + int(table.num_rows)

    # --- beginning with many ------------------------------------------------------------------------------------------

    @nothing_collected()
    def _begins_with(self, store: Store, name: str) -> bool:
        """Take in a whole table as columns, the first of its rows that this handle sees; False where ids are doubled.

        Records are made of few of its rows, the others' when somebody asks.
        """
        if self._coming is None:
            following = FOLLOWING[FOLLOWING.index(name) + 1 :]
            self._coming = Coming(store, self.dimension, [name, *(n for n in following if store.count(n) >= MANY)])
        begins: Mapping[str, Callable[[Rows], bool]] = {
            "steps": self._begins_with_steps,
            "ledger": self._begins_with_events,
            "memories": self._begins_with_memories,
        }
        with _readable(store, name):
            begun = name in self._coming and begins[name](self._coming.take(name))
        if not begun:
            self.stop_coming()
        return begun

    def stop_coming(self) -> None:
        """Let go of tables that are being read and that nobody has taken in."""
        if self._coming is not None:
            self._coming.end()
            self._coming = None

    def _begins_with_steps(self, rows: Rows) -> bool:
        columns = rows.columns
        codec.must_be_usable(columns)
        if any(state.events for state in self.states.values()):
            return False
        positions = None if rows.ids_differ else numbered(columns["id"])
        if positions is not None and len(positions) < len(columns):
            return False
        self.steps.begin_with(columns, _step_rows, positions)
        for run, places in by_run(columns).items():
            self._unnumbered[run] = columns.select(["step", "id"]).take(pa.array(places))
            self._newest[run] = pc.max(self._unnumbered[run]["step"]).as_py()
            self.states.setdefault(run, RunState())
        return True

    def _begins_with_events(self, rows: Rows) -> bool:
        ledger = UnreadLedger(rows.columns)
        positions = None if rows.ids_differ else numbered(rows.columns["id"])
        if positions is not None and len(positions) < len(ledger.kinds):
            return False
        self.events.begin_with(rows.columns, codec.events_of, positions)
        self.seq = int(ledger.seq.max())
        for run, places in by_run(rows.columns).items():
            self.states[run] = RunState(UnreadRun(ledger, places))
            self.states[run].begun = int(ledger.known_at[places].max())
        for event in ledger.events(ledger.others):
            self.states[event.run].note(event)
            self._note(event)
            if event.kind in BRINGS_IN:
                for place, memory_id in enumerate(event.memory_ids):
                    self._births.add(memory_id, event.run, (event.seq, event.id, place))
        self._births.begin_with(ledger)
        self._unread = ledger
        return True

    def _begins_with_memories(self, rows: Rows) -> bool:
        columns = rows.columns
        codec.must_be_usable(columns)
        positions = numbered(columns["id"])
        if len(positions) < len(columns) or rows.embeddings is None:
            return False
        groups, keys = numbered_texts(columns["intent_key"])
        ages = self._births.ages(positions, columns["id"].combine_chunks(), columns["run"].to_pylist())
        self.memories.begin_with(columns, codec.memories_of, None if rows.ids_differ else dict(positions))
        self.mirror.begin_with(positions, groups, keys, ages, rows.embeddings)
        return True

    # --- folding ------------------------------------------------------------------------------------------------------

    def live(self, run: str) -> Fold:
        """The fold of all that is known, brought up to date. Raises `UnknownRun`."""
        self.run(run)
        state, newest = self.states[run], self.newest_step(run) or 0
        if state.fold is not None:
            state.fold = self._caught_up(run, state.fold, newest)
        if state.fold is None:
            with _foldable(run):
                state.keep(state.folded(self.start(run), self.steps), newest)
        assert state.fold is not None
        return state.fold

    def _caught_up(self, run: str, fold: Fold, newest: int) -> Fold | None:
        """The fold of a run brought up to date in place; None where that cannot be done."""
        state = self.states[run]
        steps = [*range(state.folded_to + 1, newest + 1), *sorted(step for step in state.ahead if step > newest)]
        if not (state.late or state.appended or steps):
            return fold
        state.fold = None  # Should folding fail halfway, the next to ask folds anew.
        settings_at = self.settings_at(run)
        histories = fold.mended(self._counting(run, state.late), settings_at)
        if histories is None:
            return None
        fold.mend(histories)
        fold.take(state.folded_to, state.appended)
        for step in steps:
            fold.settings = settings_at(step)
            folded(fold, state.at(step), self.steps)
        come = chain(state.appended, *(state.at(step) for step in steps))
        state.moved.update(histories, (memory_id for event in come for memory_id in named_by(event)))
        state.goes_to(state.folded_to, *steps)
        return fold

    def view(self, run: str) -> MemoryView:
        """The live fold as arrays, made once until it changes. Raises `UnknownRun`."""
        fold, state = self.live(run), self.states[run]
        self.mirror.put_in_order()
        if state.view is None or state.view.rows is not self.mirror.rows:
            state.view = replace(self.mirror.view(fold), memories=self.memories)
        elif state.moved:
            state.view = replace(self.mirror.changed(state.view, fold, state.moved), memories=self.memories)
        state.moved.clear()
        return state.view

    def past(self, run: str, step: int) -> Fold:
        """The fold of what was known when `step` had ended and the next had not begun. Raises `UnknownRun`."""
        self.run(run)
        key = (run, step, self.facts)
        if key not in self._pasts:
            with _foldable(run):
                self._pasts[key] = self.states[run].folded(self.start(run), self.steps, until=step)
            while len(self._pasts) > PASTS_KEPT:
                self._pasts.popitem(last=False)
        return self._pasts[key]

    def walk(self, run: str) -> Iterator[tuple[int, Fold, Collection[str] | None]]:
        """Every finished step with the fold of what was known before it, and which memories changed since the last.

        The fold grows in place, so it is to be read before the next is asked for. The changes are None where everything
        has to be read again: at first, and after a reward that came late. Raises `UnknownRun`.
        """
        arrivals: dict[int, list[LedgerEvent]] = {}
        for event in self.states[self.run(run).id].events:
            if not event.step_id or event.step_id in self.steps:
                arrivals.setdefault(event.known_at, []).append(event)
        fold, changed, at = self.start(run), None, -1
        waiting: dict[int, list[LedgerEvent]] = {}
        for step in sorted(self.steps_of(run)):
            moved: set[str] | None = set() if changed is not None else None
            for known in range(at + 1, step):
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
            at = step - 1
            changed = moved
            yield step, fold, changed
            changed = set()

    def supposed(self, event: LedgerEvent) -> Mapping[str, Sequence[UtilityPoint]]:
        """The histories that would differ if `event`, a rewarding one, were taken in too; its attempt counts as
        finished.
        """
        live, state = self.live(event.run), self.states[event.run]

        def counts(step_id: str) -> bool:
            return step_id == event.step_id or step_id in self.steps

        histories = live.mended(by_step([*state.at(event.step), event], counts), self.settings_at(event.run))
        if histories is not None:
            return histories
        then = folded(self.start(event.run), [*state.events, event], {*self.steps, event.step_id}).histories
        return {i: points for i, points in then.items() if points != live.histories.get(i)}

    def as_told(self, run: str, histories: Mapping[str, Sequence[UtilityPoint]]) -> dict[str, Sequence[UtilityPoint]]:
        """Histories of a run in which what it began with has the step before its first."""
        inherited, before = self.live(run).inherited, self.run(run).first_step - 1
        found: dict[str, Sequence[UtilityPoint]] = {}
        for memory_id, points in histories.items():
            given = inherited.get(memory_id, 0)
            found[memory_id] = [*(replace(p, step=before) for p in points[:given]), *points[given:]]
        return found

    def settings_at(self, run: str) -> SettingsAt:
        """The settings in force at any step of a run. Raises `UnknownRun`."""
        changes = sorted(self.states[self.run(run).id].settings, key=order_key)
        first, steps = self.run(run).settings, [event.step for event in changes]

        def at(step: int) -> Mapping[str, Any]:
            later = bisect_right(steps, step)
            return changes[later - 1].payload["settings"] if later else first

        return at

    def _counting(self, run: str, steps: Iterable[int]) -> dict[int, list[LedgerEvent]]:
        state = self.states[run]
        return by_step([event for step in steps for event in state.at(step)], self.steps.__contains__)

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
