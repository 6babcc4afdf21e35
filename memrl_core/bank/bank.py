"""One bank: what agents append to it, and what every reader sees.

Facts are appended in the order memories, ledger, steps. The row in `steps` commits the step: events of an attempt whose
row never came do not count. q is never stored as a fact; it is the fold of a run's events.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memrl_core.bank import codec
from memrl_core.bank.appends import IN_ORDER, Appends
from memrl_core.bank.knowledge import Knowledge, StepRow
from memrl_core.bank.layouts import Layouts
from memrl_core.bank.ledger import Credits, Ledger, Notes, now
from memrl_core.bank.mirror import MovingView
from memrl_core.bank.store import Store
from memrl_core.embedders.base import Embedder
from memrl_core.errors import BankDamaged, BankError, EmbedderMismatch, InputError, RunMoved
from memrl_core.learning import Fold, active_rewards, effective_reward
from memrl_core.records import (
    EventKind,
    LedgerEvent,
    Memory,
    RunInfo,
    StepTrace,
    Utility,
    UtilityPoint,
)
from memrl_core.view import MemoryView

TRACES_KEPT = 256
ADOPTED_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """The embedder that made a bank's vectors."""

    name: str
    dimension: int


class MemoryBank:
    """Memories, traces and the ledger of any number of runs. Threads may share one handle.

    `handle` is a name for this opened bank that no other has, not even one at the same place later.
    """

    def __init__(self, store: Store, meta: Mapping[str, Any]) -> None:
        self.uri = store.uri
        self.handle = secrets.token_hex(8)
        self.embedder = EmbedderIdentity(str(meta["embedder"]), int(meta["dimension"]))
        self._store = store
        self._lock = threading.RLock()
        self._is_alone = False
        self._known = Knowledge(self.embedder.dimension)
        self._appends = Appends(store)
        self._traces: OrderedDict[str, StepTrace] = OrderedDict()
        self.layouts = Layouts(store)
        self._ledger = Ledger(self._known, self._appends, self._lock)
        self.notes = Notes(self._known, self._ledger, self._appends, self._lock)
        self.credits = Credits(self._known, self._ledger, self._appends, self._lock)
        self.refresh()

    # --- open and close -----------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, uri: str, embedder_name: str, dimension: int) -> Self:
        """Make an empty bank for vectors of one embedder. Raises `NotABank` when something is there already."""
        meta = {
            "schema_version": codec.SCHEMA_VERSION,
            "embedder": embedder_name,
            "dimension": dimension,
            "created": now(),
        }
        return cls(Store.create(str(uri), meta, dimension), meta)

    @classmethod
    def open(cls, uri: str, embedder: Embedder | None = None) -> Self:
        """Open a bank; without an embedder it can be looked at.

        Raises `BankMissing`, `NotABank`, `BankTooNew`, `BankDamaged`, or `EmbedderMismatch` when `embedder` is not the
        one that made the vectors.
        """
        store, meta = Store.open(str(uri))
        bank = cls(store, meta)
        if embedder is not None:
            bank.must_match(embedder)
        return bank

    def must_match(self, embedder: Embedder) -> None:
        """Raise `EmbedderMismatch` unless `embedder` made this bank's vectors."""
        if (embedder.name, embedder.dimension) == (self.embedder.name, self.embedder.dimension):
            return
        raise EmbedderMismatch(
            f"This bank holds {self.embedder.dimension}-number vectors made by {self.embedder.name}; {embedder.name} "
            f"gives {embedder.dimension}. Nothing was changed; open it with {self.embedder.name}, or start a new bank."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is buffered and the snapshot of q; the handle can still be read."""
        with self._lock:
            self.flush()
            if self._ledger.changed:
                self.checkpoint()
                self._store.compact()
        self._store.close()

    def discard(self) -> None:
        """Delete every table of the bank for good."""
        with self._lock:
            self._store.drop()
            self._ledger.changed = False

    def checkpoint(self) -> None:
        """Refresh the table `q_values`, for readers that know nothing of the ledger."""
        with self._lock:
            self.flush()
            rows = [
                {"run": run, "memory_id": memory_id, "q": utility.q, "visits": utility.visits}
                for run in self._known.runs
                for memory_id, utility in self._known.live(run).utilities.items()
            ]
            self._store.overwrite("q_values", rows)
            self._ledger.changed = False

    # --- runs ---------------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        return list(self._known.runs.values())

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        return self._known.run(run)

    def new_run_id(self, prefix: str) -> str:
        """A short name that no run of this bank has."""
        while True:
            name = f"{prefix}-{secrets.token_hex(2)}"
            if name not in self._known.runs:
                return name

    def start_run(self, info: RunInfo) -> None:
        """Append a new run. Raises `InputError` for a name that is taken or is not letters, digits, - _ and . only."""
        with self._lock:
            self.refresh()
            if info.id in self._known.runs:
                raise InputError(f"This bank has a run “{info.id}” already. Choose another name.")
            if not info.id or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in info.id):
                raise InputError("A run's name has letters, digits, “-”, “_” and “.” only.")
            if info.base is not None:
                self.run(info.base)
            self._ledger.append(
                self._ledger.event(info.id, 0, "", EventKind.RUN_STARTED, payload=codec.run_payload(info), known_at=0)
            )
            self.flush()

    def settings(self, run: str, step: int | None = None) -> Mapping[str, Any]:
        """The settings in force now, or at `step`."""
        with self._lock:
            settings = self.run(run).settings
            for event in sorted(self._known.states[run].settings, key=lambda e: (e.step, e.seq)):
                if step is None or event.step <= step:
                    settings = event.payload["settings"]
            return settings

    def change_settings(self, run: str, settings: Mapping[str, Any], from_step: int) -> None:
        """Append new settings that hold from `from_step` on."""
        with self._lock:
            self.run(run)
            self._ledger.append(
                self._ledger.event(run, from_step, "", EventKind.SETTINGS_CHANGED, payload={"settings": dict(settings)})
            )
            self.flush()

    # --- writing ------------------------------------------------------------------------------------------------------

    def next_step(self, run: str) -> int:
        """The number of the step that comes next."""
        with self._lock:
            return max(self._known.steps_of(run), default=self.run(run).first_step - 1) + 1

    def begin_step(self, run: str, step: int) -> None:
        """Tell that a step has begun: what is appended from now on was not known before it."""
        with self._lock:
            state = self._known.states[run]
            state.begun = max(state.begun, step)

    def next_memory_id(self, run: str) -> str:
        """An id that no memory of this bank has."""
        with self._lock:
            number = self.next_step(run)
            while f"{run}-{number:04d}" in self._known.mirror.rows:
                number += 1
            return f"{run}-{number:04d}"

    def commit_step(self, trace: StepTrace, vectors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Append a finished step with the memories it wrote and the events that follow from it.

        `vectors` maps the id of each written memory to its embedding (d,). Raises `RunMoved` when another process
        committed this step number, `InputError` for a vector that cannot be stored, `BankFull`, `BankReadOnly`. After a
        failure the same call can be repeated: nothing is doubled.
        """
        with self._lock:
            if not self._appends.steps_held and not self._is_alone:
                self.refresh()
            taken = self._known.steps_of(trace.run).get(trace.step)
            if taken is not None:
                raise RunMoved(
                    f"Another process has already finished step {trace.step} of run {trace.run}. This attempt was not "
                    "stored; begin the next step."
                )
            self.begin_step(trace.run, trace.step)
            created = now()
            checked = {memory_id: self._known.mirror.checked(vector) for memory_id, vector in vectors.items()}
            written = [op for op in (trace.write.operations if trace.write else ()) if op.op == "ADD"]
            for op in written:
                memory = Memory(
                    op.memory_id,
                    op.intent,
                    op.experience,
                    op.outcome,
                    op.intent_key,
                    op.parents,
                    trace.run,
                    trace.step,
                    trace.task.id,
                    created,
                )
                if op.memory_id not in self._known.mirror.rows:
                    self._appends.put("memories", [codec.memory_row(memory, checked[op.memory_id])])
                    self._known.take_memory(memory, checked[op.memory_id])
            events = self._events_of(trace, created)
            self._appends.put("ledger", [codec.event_row(event) for event in events])
            for event in events:
                self._known.take_event(event)
            row = codec.step_row(trace, created)
            self._appends.put("steps", [row])
            self._known.take_step(StepRow(**{name: row[name] for name in codec.STEP_COLUMNS}))
            self._keep_trace(trace)
            self._appends.step_ended()
            self._ledger.saved()

    def _events_of(self, trace: StepTrace, created: str) -> list[LedgerEvent]:
        events = []
        if trace.reward and trace.reward.source == "environment" and trace.reward.reward is not None:
            events.append(
                self._ledger.event(
                    trace.run,
                    trace.step,
                    trace.id,
                    EventKind.REWARD_GIVEN,
                    event_id=f"{trace.id}:environment",
                    memory_ids=trace.reward.credited,
                    value=trace.reward.reward,
                    source="environment",
                )
            )
        for op in trace.write.operations if trace.write else ():
            if op.op == "ADD":
                events.append(
                    self._ledger.event(
                        trace.run,
                        trace.step,
                        trace.id,
                        EventKind.MEMORY_WRITTEN,
                        event_id=f"{trace.id}:{op.memory_id}",
                        memory_ids=(op.memory_id,),
                        value=op.q0,
                    )
                )
        return [event for event in events if event.id not in self._known.events]

    def adopt(
        self,
        memories: Mapping[str, tuple[Memory, npt.NDArray[np.float32]]],
        events: Sequence[LedgerEvent],
        traces: Sequence[StepTrace],
    ) -> None:
        """Append facts from elsewhere as they are; what is here already, by its id, is passed over.

        `memories` maps ids to memory and embedding (d,). The ledger is written last and at once: until then no run
        knows of the rest, so an adoption that is cut short shows nothing and can be repeated. Raises `InputError` for a
        vector that cannot be stored, `BankFull`, `BankReadOnly`.
        """
        with self._lock:
            self.refresh()
            new = [
                (m, self._known.mirror.checked(v)) for i, (m, v) in memories.items() if i not in self._known.memories
            ]
            for start in range(0, len(new), ADOPTED_AT_ONCE):
                chunk = new[start : start + ADOPTED_AT_ONCE]
                self._appends.put("memories", [codec.memory_row(memory, vector) for memory, vector in chunk])
            for memory, vector in new:
                self._known.take_memory(memory, vector)
            rows = [codec.step_row(trace, now()) for trace in traces if trace.id not in self._known.steps]
            for start in range(0, len(rows), ADOPTED_AT_ONCE):
                self._appends.put("steps", rows[start : start + ADOPTED_AT_ONCE])
            for row in rows:
                self._known.take_step(StepRow(**{name: row[name] for name in codec.STEP_COLUMNS}))
            self._ledger.append(*(event for event in events if event.id not in self._known.events))
            self.flush()

    def give_reward(
        self, run: str, step: int, step_id: str, memory_ids: Sequence[str], value: float, rater: str, reason: str = ""
    ) -> LedgerEvent:
        """Append a person's reward for a step, in the place of an earlier one of the same person.

        Raises `InputError` for a value that is not a finite number.
        """
        if not np.isfinite(value):
            raise InputError(f"{value} is not a reward: give a finite number. Nothing was saved.")
        with self._lock:
            self.run(run)
            event = self._person_reward(run, step, step_id, memory_ids, value, rater, reason)
            self._ledger.append(event)
            self.flush()
            return event

    def revoke_reward(self, event_id: str, rater: str, reason: str = "") -> LedgerEvent:
        """Append that a reward no longer counts. Raises `InputError` when there is no such reward."""
        with self._lock:
            given = self._known.events.get(event_id)
            if given is None or given.kind is not EventKind.REWARD_GIVEN:
                raise InputError("That reward is not in this bank. Nothing was changed.")
            event = self._ledger.event(
                given.run,
                given.step,
                given.step_id,
                EventKind.REWARD_REVOKED,
                memory_ids=given.memory_ids,
                source="person",
                rater=rater.strip() or "someone",
                reason=reason.strip(),
                revokes=event_id,
            )
            self._ledger.append(event)
            self.flush()
            return event

    @contextmanager
    def batch(self, steps: int) -> Iterator[None]:
        """Within it, commits are written `steps` at a time: faster, and a crash loses at most that many steps."""
        with self._lock:
            self._appends.steps_held = steps if steps > 1 else 0
        try:
            yield
        finally:
            with self._lock:
                self._appends.steps_held = 0
                self.flush()

    def flush(self) -> None:
        """Write what is held back; what could not be written stays held."""
        with self._lock:
            self._appends.flush()

    def _person_reward(
        self, run: str, step: int, step_id: str, memory_ids: Sequence[str], value: float, rater: str, reason: str = ""
    ) -> LedgerEvent:
        return self._ledger.event(
            run,
            step,
            step_id,
            EventKind.REWARD_GIVEN,
            memory_ids=tuple(memory_ids),
            value=float(value),
            source="person",
            rater=rater.strip() or "someone",
            reason=reason.strip(),
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def last_saved(self) -> datetime | None:
        """When this handle last appended something; None when it has not."""
        return self._ledger.last_saved

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
        """What the run sees now."""
        with self._lock:
            return self._known.mirror.view(self._known.live(run))

    def as_of(self, run: str, step: int) -> MemoryView:
        """What the run saw when step `step` had ended and the next had not begun; 0 is its start."""
        with self._lock:
            return self._known.mirror.view(self._known.past(run, step))

    def walk(self, run: str) -> Iterator[tuple[int, MemoryView]]:
        """Every finished step with what the run saw when it began: `as_of(run, step - 1)` for all, in one pass.

        The view changes in place from one to the next. Steps that end meanwhile are not met. Raises `UnknownRun`.
        """
        with self._lock:
            # Its first step makes the list of all steps, so nothing later than `moving` covers can come.
            steps = self._known.walk(run)
            following = next(steps, None)
            moving = MovingView(self._known.mirror, self._known.live(run))
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

    def memory_count(self, run: str) -> int:
        """How many memories the run knows now."""
        with self._lock:
            return len(self._known.live(run).utilities)

    def history(self, run: str, memory_id: str, as_of: int | None = None) -> list[UtilityPoint]:
        """How the memory's q came about, from its writing on."""
        with self._lock:
            return list(self._fold(run, as_of).histories.get(memory_id, ()))

    def active_rewards(self, run: str, step: int, step_id: str) -> list[LedgerEvent]:
        """The rewards that count for an attempt at a step, finished or not."""
        with self._lock:
            events = self._known.states[run].at_step.get(step, ()) if run in self._known.states else ()
            return active_rewards(sorted((e for e in events if e.step_id == step_id), key=_by_seq))

    def effective_reward(self, run: str, step: int) -> float | None:
        """The reward that moves q for a finished step now."""
        row = self._known.steps_of(run).get(step)
        return None if row is None else effective_reward(self.active_rewards(run, step, row.id))

    def preview_reward(
        self, run: str, step: int, step_id: str, memory_ids: Sequence[str], value: float, rater: str
    ) -> dict[str, tuple[float, float]]:
        """What `give_reward` would do: q of each credited memory now and then. Nothing is appended."""
        with self._lock:
            event = self._person_reward(run, step, step_id, memory_ids, value, rater)
            now_known, then_known = self._known.live(run).utilities, self._known.supposed(event).utilities
            return {memory_id: (now_known[memory_id].q, then_known[memory_id].q) for memory_id in memory_ids}

    def memory(self, memory_id: str) -> Memory:
        """A memory's text; raises `BankError` when there is none of that id."""
        try:
            return self._known.memories[memory_id]
        except KeyError:
            raise BankError(f"This bank holds no memory “{memory_id[:80]}”.") from None

    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A memory's vector (d,)."""
        self.memory(memory_id)
        return self._known.mirror.embedding(memory_id)

    def memories(self, run: str | None = None) -> list[Memory]:
        """All memories, oldest first; of one run, those it sees now."""
        with self._lock:
            if run is None:
                return list(self._known.memories.values())
            return [self._known.memories[memory_id] for memory_id in self._known.live(run).utilities]

    def memory_ids(self) -> list[str]:
        """The ids of all memories, oldest first."""
        with self._lock:
            return list(self._known.memories)

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
            self.flush()
            ids = {row.id: row.step for row in self._known.steps_of(run).values()}
            wanted = None if columns is None else list(dict.fromkeys(["id", *columns]))
            found = self._store.find("steps", "run", run, wanted, steps)
        first: dict[str, int] = {}
        for position, step_id in enumerate(found["id"].to_pylist()):
            if step_id in ids:
                first.setdefault(step_id, position)
        return found.take(pa.array([first[step_id] for step_id in sorted(first, key=lambda i: ids[i])], pa.int64()))

    def events(self, run: str | None = None) -> list[LedgerEvent]:
        """The ledger, in the order in which its events were appended by their clock."""
        with self._lock:
            known = self._known
            chosen: Iterable[LedgerEvent] = known.events.values() if run is None else known.states[run].events
            return sorted(chosen, key=_by_seq)

    def unfinished_steps(self, run: str) -> list[int]:
        """Steps that left rewards or memories in the ledger and never ended."""
        with self._lock:
            events = self._known.states[run].events if run in self._known.states else []
            return sorted({event.step for event in events if event.step_id and event.step_id not in self._known.steps})

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it, no other process of this machine that asks for the same writes to a bank on its disks.

        Begins with what the others appended, so several processes can number their steps without meeting. Other
        addresses have no such lock.
        """
        with self._lock, self._store.locked():
            self.refresh()
            self._is_alone, before = True, self._is_alone
            try:
                yield
            finally:
                self._is_alone = before

    def refresh(self) -> bool:
        """Take in what other processes appended; True when there was something."""
        with self._lock:
            # Against the order of writing: what a row refers to is then there when the row is.
            read = [self._known.follow(self._store, name, self._appends.held(name)) for name in reversed(IN_ORDER)]
            return any(read)

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


def _by_seq(event: LedgerEvent) -> tuple[int, str]:
    return event.seq, event.id
