"""What can be read of a bank: runs and their settings, views, utilities, histories, traces, events."""

from __future__ import annotations

import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memrl_core.bank import codec
from memrl_core.bank.appends import Appends
from memrl_core.bank.knowledge import FOLLOWING, Knowledge, StepRow
from memrl_core.bank.ledger import Ledger
from memrl_core.bank.mirror import MovingView
from memrl_core.bank.store import Store
from memrl_core.errors import BankDamaged, BankError, InputError
from memrl_core.learning import Fold, active_rewards, effective_reward, in_ledger
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace, Utility, UtilityPoint
from memrl_core.retrieval.view import MemoryView

TRACES_KEPT = 256
INDEX_PAYS_FROM = 300_000
"""With fewer memories one product with all of them is as quick as the index (`memrl bench retrieval`)."""

Search = Literal["auto", "exact", "indexed"]


class BankReading:
    """The reading half of a bank; `MemoryBank` adds what is appended.

    `search` says how phase A looks for the nearest memories: by a product with all of them ("exact"), by LanceDB's
    index where the bank has one ("indexed"), or by that only where it pays ("auto"); `by_index` is what came of it.
    `handle` is a name for this opened bank that no other has, not even one at the same place later.
    """

    def __init__(self, store: Store, dimension: int, search: Search = "auto") -> None:
        self.search = search
        self.by_index = False
        self.uri = store.uri
        self.handle = secrets.token_hex(8)
        self._store = store
        self._lock = threading.RLock()
        self._known = Knowledge(dimension)
        self._appends = Appends(store)
        self._ledger = Ledger(self._known, self._appends, self._lock)
        self._traces: OrderedDict[str, StepTrace] = OrderedDict()

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        return list(self._known.runs.values())

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        return self._known.run(run)

    def settings(self, run: str, step: int | None = None) -> Mapping[str, Any]:
        """The settings in force now, or at `step`."""
        with self._lock:
            return self._known.settings_at(run)(sys.maxsize if step is None else step)

    def next_step(self, run: str) -> int:
        """The number of the step that comes next."""
        with self._lock:
            first, newest = self.run(run).first_step, self._known.newest_step(run)
            return first if newest is None else newest + 1

    @property
    def last_saved(self) -> datetime | None:
        """When this handle last appended something; None when it has not."""
        return self._ledger.last_saved

    def saved(self, run: str) -> datetime | None:
        """When something was last stored, as far as is known: by this handle, else the newest step of `run`."""
        with self._lock:
            row = self._known.steps_of(run).get(self.next_step(run) - 1)
        if self.last_saved is not None or row is None:
            return self.last_saved
        try:
            at = datetime.fromisoformat(row.created)
        except ValueError:  # A step may come from a file.
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    @property
    def state(self) -> str:
        """A name for what this handle knows now: another one after every fact, and in every other handle."""
        return f"{self.handle}·{self.facts}"

    @property
    def clock(self) -> int:
        """The highest `seq` of the ledger: the next event has one more."""
        with self._lock:
            return self._known.seq

    @property
    def facts(self) -> int:
        """How many facts this handle has taken in: grows with every append, whoever made it."""
        return self._known.facts

    def view(self, run: str) -> MemoryView:
        """What the run sees now. Searched by the index where this handle does so; replays never are."""
        with self._lock:
            view = self._known.view(run)
            return replace(view, nearest=partial(self._nearest, view.rows)) if self.by_index else view

    def index(self) -> None:
        """Index the memories for LanceDB's own search, anew where that was done; a million take minutes.

        From then on this handle searches by it, unless it was opened with `search="exact"`.
        """
        with self._lock:
            self._appends.flush()
        self._store.index_vectors()
        self.by_index = self._searches_by_index()

    def _searches_by_index(self) -> bool:
        if self.search == "exact":
            return False
        many = len(self._known.memories) >= INDEX_PAYS_FROM or self.search == "indexed"
        return many and self._store.indexed() > 0

    def _nearest(self, rows: Mapping[str, int], query: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
        """About the `count` rows nearest to `query` (d,), and those that are not appended yet."""
        found = [rows[memory_id] for memory_id in self._store.nearest(query, count) if memory_id in rows]
        waiting = [rows[row["id"]] for row in self._appends.waiting("memories") if row["id"] in rows]
        return np.unique(np.array([*found, *waiting], dtype=np.int64))

    def as_of(self, run: str, step: int) -> MemoryView:
        """What the run saw when step `step` had ended and the next had not begun; 0 is its start."""
        with self._lock:
            seen = self._known.mirror.view(self._known.past(run, step))
            return replace(seen, memories=self._known.memories)

    def walk(self, run: str) -> Iterator[tuple[int, MemoryView]]:
        """Every finished step with what the run saw when it began: `as_of(run, step - 1)` for all, in one pass.

        The view changes in place from one to the next. Steps that end meanwhile are not met. Raises `UnknownRun`.
        """
        with self._lock:
            # Its first step makes the list of all steps, so nothing later than `moving` covers can come.
            steps = self._known.walk(run)
            following = next(steps, None)
            moving = MovingView(self._known.mirror, self._known.live(run), self._known.memories)
        while following is not None:
            step, fold, changed = following
            view = moving.follow(fold, changed)
            yield step, view
            with self._lock:
                following = next(steps, None)

    def utilities(self, run: str, as_of: int | None = None) -> Mapping[str, Utility]:
        """q and visits of every memory of the run, oldest first, now or as of a step."""
        with self._lock:
            return dict(self._fold(run, as_of).utilities)

    def utilities_of(self, run: str, memory_ids: Iterable[str]) -> Mapping[str, Utility]:
        """q and visits now of those of `memory_ids` that the run knows; does not look at the others."""
        with self._lock:
            known = self._known.live(run).utilities
            return {memory_id: known[memory_id] for memory_id in memory_ids if memory_id in known}

    def memory_count(self, run: str, as_of: int | None = None) -> int:
        """How many memories the run knows, now or as of a step."""
        with self._lock:
            return len(self._fold(run, as_of).utilities)

    def pinned(self, run: str) -> frozenset[str]:
        """Of the memories that the run sees, those that it must not forget."""
        with self._lock:
            fold = self._known.live(run)
            return frozenset(fold.pinned.intersection(fold.utilities))

    def away(self, run: str) -> Mapping[str, Utility]:
        """q and visits of every memory that the run knew once and no longer sees."""
        with self._lock:
            return dict(self._known.live(run).away)

    def histories(self, run: str) -> dict[str, Sequence[UtilityPoint]]:
        """How every q of the run came about; what it began with has the step before its first."""
        with self._lock:
            return self._known.as_told(run, self._known.live(run).histories)

    def histories_of(self, run: str, memory_ids: Iterable[str]) -> dict[str, Sequence[UtilityPoint]]:
        """The same, of those of `memory_ids` that the run has ever known."""
        with self._lock:
            known = self._known.live(run).histories
            return self._known.as_told(run, {i: known[i] for i in memory_ids if i in known})

    def history(self, run: str, memory_id: str, as_of: int | None = None) -> list[UtilityPoint]:
        """How the memory's q came about, from its writing on."""
        with self._lock:
            return list(self._fold(run, as_of).histories.get(memory_id, ()))

    def active_rewards(self, run: str, step: int, step_id: str, as_of: int | None = None) -> list[LedgerEvent]:
        """The rewards that stand for an attempt at a step, finished or not: the environment's and each person's.

        With `as_of`, those that stood when that step had ended and the next had not begun.
        """
        with self._lock:
            events = self._known.states[run].at(step) if run in self._known.states else ()
            known = (e for e in events if e.step_id == step_id and (as_of is None or e.known_at <= as_of))
            return active_rewards(sorted(known, key=in_ledger))

    def effective_reward(self, run: str, step: int) -> float | None:
        """The reward that a finished step has now, by the run's rules."""
        row = self._known.steps_of(run).get(step)
        if row is None:
            return None
        return effective_reward(self.active_rewards(run, step, row.id), self.settings(run, step))

    def memory(self, memory_id: str) -> Memory:
        """A memory's text; raises `BankError` when there is none of that id."""
        self._must_hold(memory_id)
        return self._known.memories[memory_id]

    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A memory's vector (d,); raises `BankError` when there is none of that id."""
        self._must_hold(memory_id)
        with self._lock:
            return self._known.mirror.embedding(memory_id)

    def _must_hold(self, memory_id: str) -> None:
        if memory_id not in self._known.memories:
            raise BankError(f"This bank holds no memory “{memory_id[:80]}”.")

    def memories(self, run: str | None = None) -> list[Memory]:
        """All memories, oldest first; of one run, those it sees now."""
        with self._lock:
            if run is None:
                return [self._known.memories[memory_id] for memory_id in self.memory_ids()]
            return [self._known.memories[memory_id] for memory_id in self._known.live(run).utilities]

    def memory_ids(self) -> list[str]:
        """The ids of all memories, oldest first."""
        with self._lock:
            self._known.mirror.put_in_order()
            return list(self._known.mirror.ids)

    def has_step(self, run: str, step: int) -> bool:
        """Whether the run has a finished step of this number."""
        return step in self._known.steps_of(run)

    def step_rows(self, run: str) -> list[StepRow]:
        """The finished steps of a run in short."""
        with self._lock:
            return [row for _, row in sorted(self._known.steps_of(run).items())]

    def trace(self, run: str, step: int) -> StepTrace:
        """The whole record of a finished step. Raises `InputError` when the run has no such step."""
        with self._lock:
            self.run(run)
            row = self._known.steps_of(run).get(step)
            if row is None:
                last = self.next_step(run) - 1
                raise InputError(f"Run {run} has no step {step}: it has {last} finished steps.")
            if row.id not in self._traces:
                found = self._store.find("steps", "id", row.id).to_pylist()
                self._keep_trace(_readable(found[0] if found else {}, run, step))
            return self._traces[row.id]

    def traces(self, run: str, steps: tuple[int, int] | None = None) -> list[StepTrace]:
        """The whole records of the finished steps of a run, or of the first to the last of `steps`, read in one go."""
        rows = self.step_table(run, steps=steps).to_pylist()
        return [_readable(row, run, row["step"]) for row in rows]

    def step_table(
        self, run: str, columns: Sequence[str] | None = None, steps: tuple[int, int] | None = None
    ) -> pa.Table:
        """The rows of `steps` of a run, or of a part of it, in the order of their steps (see `codec.schemas`)."""
        with self._lock:
            self.run(run)
            self._appends.flush()
            ids = {row.id: row.step for row in self._known.steps_of(run).values()}
            wanted = None if columns is None else list(dict.fromkeys(["id", *columns]))
            found = self._store.find("steps", "run", run, wanted, steps)
        first: dict[str, int] = {}
        for position, step_id in enumerate(found["id"].to_pylist()):
            if step_id in ids:
                first.setdefault(step_id, position)
        return found.take(pa.array([first[step_id] for step_id in sorted(first, key=lambda i: ids[i])], pa.int64()))

    def told_late(self, run: str) -> list[int]:
        """For each reward, credit or setting that came when a later step than its own had begun: that later step."""
        with self._lock:
            return sorted(self._known.states[self.run(run).id].told_late)

    def told_from_outside(self, run: str) -> int:
        """How many rewards, credits and settings came from others than the steps themselves, in the run and its bases:
        while this stays, what its finished steps taught stays.
        """
        with self._lock:
            info = self.run(run)
            return self._known.states[run].told_from_outside + (self.told_from_outside(info.base) if info.base else 0)

    def events(self, run: str | None = None) -> list[LedgerEvent]:
        """The ledger, in the order in which its events were appended by their clock."""
        with self._lock:
            known = self._known
            chosen: Iterable[LedgerEvent] = known.events.values() if run is None else known.states[run].events
            return sorted(chosen, key=in_ledger)

    def events_of(self, event_ids: Iterable[str]) -> list[LedgerEvent]:
        """The events of these ids that are known, in the order given."""
        return [self._known.events[event_id] for event_id in event_ids if event_id in self._known.events]

    def raters(self, run: str) -> set[str]:
        """Everybody in whose name there has ever been a reward in a run, whether it stands or not."""
        with self._lock:
            return {
                event.rater
                for events in self._known.by_person.values()
                for event in events
                if event.run == run and event.kind is EventKind.REWARD_GIVEN and event.source == "person"
            }

    def lately(self) -> list[LedgerEvent]:
        """The newest event of each person who did something, for themselves or others (`actor_of`), newest first."""
        with self._lock:
            newest = [max(events, key=in_ledger) for events in self._known.by_person.values()]
        return sorted(newest, key=in_ledger, reverse=True)

    def unfinished_steps(self, run: str) -> list[int]:
        """Steps that left rewards or memories in the ledger and that no attempt has ended."""
        with self._lock:
            if run not in self._known.states:
                return []
            ended, attempts = self._known.steps_of(run), self._known.states[run].attempts()
            return sorted(
                {step for step, attempt in attempts if attempt not in self._known.steps and step not in ended}
            )

    def cut_short(self, run: str) -> frozenset[str]:
        """The attempts, by id, at the step that comes next that never ended and left events, none of which counts."""
        with self._lock:
            if run not in self._known.states:
                return frozenset()
            attempts = {event.step_id for event in self._known.states[run].at(self.next_step(run))}
            return frozenset(one for one in attempts if one and one not in self._known.steps)

    def refresh(self) -> bool:
        """Take in what other processes appended; True when there was something."""
        with self._lock:
            try:
                read = [self._known.follow(self._store, name, self._appends.held(name)) for name in FOLLOWING]
            finally:
                self._known.stop_coming()
            return any(read)

    def _steps_have_grown(self) -> bool:
        """Whether somebody else has finished steps that this handle does not know."""
        return self._known.has_grown(self._store, "steps", self._appends.held("steps"))

    def _fold(self, run: str, as_of: int | None) -> Fold:
        return self._known.live(run) if as_of is None else self._known.past(run, as_of)

    def _keep_trace(self, trace: StepTrace) -> None:
        self._traces[trace.id] = trace
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)


def _readable(row: Mapping[str, Any], run: str, step: int) -> StepTrace:
    """The record in a row of `steps`. Raises `BankDamaged` when it cannot be read."""
    try:
        return codec.trace_of(row)
    except (ValueError, KeyError) as error:
        raise BankDamaged(f"Step {step} of run {run} cannot be read. Nothing was changed.") from error
