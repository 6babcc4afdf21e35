"""One bank: what agents append to it, and what every reader sees.

Facts are appended in the order memories, ledger, steps. The row in `steps` commits the step: events of an attempt whose
row never came do not count. q is never stored as a fact; it is the fold of a run's events.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from memrl_core.bank import codec
from memrl_core.bank.mirror import Mirror, RunState, copied, folded
from memrl_core.bank.store import Store
from memrl_core.embedders.base import Embedder
from memrl_core.errors import BankDamaged, BankError, EmbedderMismatch, InputError, RunMoved, UnknownRun
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
PASTS_KEPT = 8


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """The embedder that made a bank's vectors."""

    name: str
    dimension: int


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


@dataclass(frozen=True, slots=True)
class Layout:
    """Frozen map coordinates: id to (x, y). `fitted` are the ids the layout was made from."""

    id: str
    method: str
    coordinates: Mapping[str, tuple[float, float]]
    fitted: tuple[str, ...]


def now() -> str:
    """This moment as it is stored."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class MemoryBank:
    """Memories, traces and the ledger of any number of runs. Threads may share one handle."""

    def __init__(self, store: Store, meta: Mapping[str, Any]) -> None:
        self.uri = store.uri
        self.embedder = EmbedderIdentity(str(meta["embedder"]), int(meta["dimension"]))
        self._store = store
        self._lock = threading.RLock()
        self._mirror = Mirror(self.embedder.dimension)
        self._memories: dict[str, Memory] = {}
        self._steps: dict[str, StepRow] = {}
        self._by_run: dict[str, dict[int, StepRow]] = {}
        self._events: dict[str, LedgerEvent] = {}
        self._runs: dict[str, RunInfo] = {}
        self._states: dict[str, RunState] = {}
        self._traces: OrderedDict[str, StepTrace] = OrderedDict()
        self._pasts: OrderedDict[tuple[str, int, int], Fold] = OrderedDict()
        self._synced = {"memories": 0, "steps": 0, "ledger": 0}
        self._doubles = {"memories": 0, "steps": 0, "ledger": 0}
        self._seq = 0
        self._buffer: dict[str, list[dict[str, Any]]] = {"memories": [], "ledger": [], "steps": []}
        self._buffer_steps = 0
        self._buffered_commits = 0
        self._dirty = False
        self.last_saved: datetime | None = None
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
            if self._dirty:
                self.checkpoint()
                self._store.compact()
        self._store.close()

    def checkpoint(self) -> None:
        """Refresh the table `q_values`, for readers that know nothing of the ledger."""
        with self._lock:
            self.flush()
            rows = [
                {"run": run, "memory_id": memory_id, "q": utility.q, "visits": utility.visits}
                for run in self._runs
                for memory_id, utility in self._live(run).utilities.items()
            ]
            self._store.overwrite("q_values", rows)
            self._dirty = False

    # --- runs ---------------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        return list(self._runs.values())

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        try:
            return self._runs[run]
        except KeyError:
            known = ", ".join(list(self._runs)[-8:]) or "none"
            raise UnknownRun(f"This bank has no run “{run}”. Its runs: {known}.") from None

    def new_run_id(self, prefix: str) -> str:
        """A short name that no run of this bank has."""
        while True:
            name = f"{prefix}-{secrets.token_hex(2)}"
            if name not in self._runs:
                return name

    def start_run(self, info: RunInfo) -> None:
        """Append a new run. Raises `InputError` for a name that is taken or is not letters, digits, - _ and . only."""
        with self._lock:
            self.refresh()
            if info.id in self._runs:
                raise InputError(f"This bank has a run “{info.id}” already. Choose another name.")
            if not info.id or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in info.id):
                raise InputError("A run's name has letters, digits, “-”, “_” and “.” only.")
            if info.base is not None:
                self.run(info.base)
            self._append_event(
                self._event(info.id, 0, "", EventKind.RUN_STARTED, payload=codec.run_payload(info), known_at=0)
            )
            self.flush()

    def settings(self, run: str, step: int | None = None) -> Mapping[str, Any]:
        """The settings in force now, or at `step`."""
        with self._lock:
            settings = self.run(run).settings
            for event in sorted(self._states[run].events, key=lambda e: (e.step, e.seq)):
                if event.kind is EventKind.SETTINGS_CHANGED and (step is None or event.step <= step):
                    settings = event.payload["settings"]
            return settings

    def change_settings(self, run: str, settings: Mapping[str, Any], from_step: int) -> None:
        """Append new settings that hold from `from_step` on."""
        with self._lock:
            self.run(run)
            self._append_event(
                self._event(run, from_step, "", EventKind.SETTINGS_CHANGED, payload={"settings": dict(settings)})
            )
            self.flush()

    # --- writing ------------------------------------------------------------------------------------------------------

    def next_step(self, run: str) -> int:
        """The number of the step that comes next."""
        with self._lock:
            return max(self._by_run.get(run, {}), default=0) + 1

    def begin_step(self, run: str, step: int) -> None:
        """Tell that a step has begun: what is appended from now on was not known before it."""
        with self._lock:
            state = self._states[run]
            state.begun = max(state.begun, step)

    def next_memory_id(self, run: str) -> str:
        """An id that no memory of this bank has."""
        with self._lock:
            number = self.next_step(run)
            while f"{run}-{number:04d}" in self._mirror.rows:
                number += 1
            return f"{run}-{number:04d}"

    def commit_step(self, trace: StepTrace, vectors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Append a finished step with the memories it wrote and the events that follow from it.

        `vectors` maps the id of each written memory to its embedding (d,). Raises `RunMoved` when another process
        committed this step number, `InputError` for a vector that cannot be stored, `BankFull`, `BankReadOnly`. After a
        failure the same call can be repeated: nothing is doubled.
        """
        with self._lock:
            if not self._buffer_steps:
                self.refresh()
            taken = self._by_run.get(trace.run, {}).get(trace.step)
            if taken is not None:
                raise RunMoved(
                    f"Another process has already finished step {trace.step} of run {trace.run}. This attempt was not "
                    "stored; begin the next step."
                )
            self.begin_step(trace.run, trace.step)
            created = now()
            checked = {memory_id: self._mirror.checked(vector) for memory_id, vector in vectors.items()}
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
                if op.memory_id not in self._mirror.rows:
                    self._put("memories", [codec.memory_row(memory, checked[op.memory_id])])
                    self._take_memory(memory, checked[op.memory_id])
            events = self._events_of(trace, created)
            self._put("ledger", [codec.event_row(event) for event in events])
            for event in events:
                self._take_event(event)
            row = codec.step_row(trace, created)
            self._put("steps", [row])
            self._take_step(StepRow(**{name: row[name] for name in codec.STEP_COLUMNS}), trace)
            self._buffered_commits += 1
            if self._buffered_commits >= self._buffer_steps:
                self.flush()
            self._saved()

    def _events_of(self, trace: StepTrace, created: str) -> list[LedgerEvent]:
        events = []
        if trace.reward and trace.reward.source == "environment" and trace.reward.reward is not None:
            events.append(
                self._event(
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
                    self._event(
                        trace.run,
                        trace.step,
                        trace.id,
                        EventKind.MEMORY_WRITTEN,
                        event_id=f"{trace.id}:{op.memory_id}",
                        memory_ids=(op.memory_id,),
                        value=op.q0,
                    )
                )
        return [event for event in events if event.id not in self._events]

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
            event = self._event(
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
            self._append_event(event)
            self.flush()
            return event

    def revoke_reward(self, event_id: str, rater: str, reason: str = "") -> LedgerEvent:
        """Append that a reward no longer counts. Raises `InputError` when there is no such reward."""
        with self._lock:
            given = self._events.get(event_id)
            if given is None or given.kind is not EventKind.REWARD_GIVEN:
                raise InputError("That reward is not in this bank. Nothing was changed.")
            event = self._event(
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
            self._append_event(event)
            self.flush()
            return event

    @contextmanager
    def batch(self, steps: int) -> Iterator[None]:
        """Within it, commits are written `steps` at a time: faster, and a crash loses at most that many steps."""
        with self._lock:
            self._buffer_steps = steps if steps > 1 else 0
        try:
            yield
        finally:
            with self._lock:
                self._buffer_steps = 0
                self.flush()

    def flush(self) -> None:
        """Write what is buffered; what could not be written stays buffered."""
        with self._lock:
            for name in ("memories", "ledger", "steps"):
                if self._buffer[name]:
                    self._store.append(name, self._buffer[name])
                    self._buffer[name] = []
            self._buffered_commits = 0

    def _put(self, name: str, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        if self._buffer_steps:
            self._buffer[name].extend(rows)
        else:
            self._store.append(name, rows)

    def _event(
        self,
        run: str,
        step: int,
        step_id: str,
        kind: EventKind,
        *,
        event_id: str = "",
        known_at: int | None = None,
        **values: Any,
    ) -> LedgerEvent:
        state = self._states.setdefault(run, RunState())
        begun = max(state.begun, max(self._by_run.get(run, {}), default=0))
        return LedgerEvent(
            id=event_id or uuid.uuid4().hex,
            seq=self._seq + 1,
            run=run,
            step=step,
            step_id=step_id,
            known_at=begun if known_at is None else known_at,
            kind=kind,
            created=now(),
            **values,
        )

    def _append_event(self, event: LedgerEvent) -> None:
        self._put("ledger", [codec.event_row(event)])
        self._take_event(event)
        self._saved()

    def _saved(self) -> None:
        self.last_saved = datetime.now(UTC)
        self._dirty = True

    # --- reading ------------------------------------------------------------------------------------------------------

    def view(self, run: str) -> MemoryView:
        """What the run sees now."""
        with self._lock:
            return self._mirror.view(self._live(run))

    def as_of(self, run: str, step: int) -> MemoryView:
        """What the run saw when step `step` had ended and the next had not begun; 0 is its start."""
        with self._lock:
            return self._mirror.view(self._past(run, step))

    def utilities(self, run: str, as_of: int | None = None) -> Mapping[str, Utility]:
        """q and visits of every memory of the run, oldest first, now or as of a step."""
        with self._lock:
            return dict((self._live(run) if as_of is None else self._past(run, as_of)).utilities)

    def history(self, run: str, memory_id: str, as_of: int | None = None) -> list[UtilityPoint]:
        """How the memory's q came about, from its writing on."""
        with self._lock:
            return list((self._live(run) if as_of is None else self._past(run, as_of)).histories.get(memory_id, ()))

    def active_rewards(self, run: str, step: int, step_id: str) -> list[LedgerEvent]:
        """The rewards that count for an attempt at a step, finished or not."""
        with self._lock:
            events = self._states[run].events if run in self._states else []
            return active_rewards(sorted((e for e in events if e.step_id == step_id and e.step == step), key=_by_seq))

    def effective_reward(self, run: str, step: int) -> float | None:
        """The reward that moves q for a finished step now."""
        row = self._by_run.get(run, {}).get(step)
        return None if row is None else effective_reward(self.active_rewards(run, step, row.id))

    def preview_reward(
        self, run: str, step: int, step_id: str, memory_ids: Sequence[str], value: float, rater: str
    ) -> dict[str, tuple[float, float]]:
        """What `give_reward` would do: q of each credited memory now and then. Nothing is appended."""
        with self._lock:
            event = self._event(
                run,
                step,
                step_id,
                EventKind.REWARD_GIVEN,
                memory_ids=tuple(memory_ids),
                value=float(value),
                source="person",
                rater=rater.strip() or "someone",
            )
            now_known = self._live(run).utilities
            committed = {*self._steps, step_id}
            then_known = folded(self._start(run), [*self._states[run].events, event], committed).utilities
            return {memory_id: (now_known[memory_id].q, then_known[memory_id].q) for memory_id in memory_ids}

    def memory(self, memory_id: str) -> Memory:
        """A memory's text; raises `BankError` when there is none of that id."""
        try:
            return self._memories[memory_id]
        except KeyError:
            raise BankError(f"This bank holds no memory “{memory_id[:80]}”.") from None

    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A memory's vector (d,)."""
        self.memory(memory_id)
        return self._mirror.embedding(memory_id)

    def memories(self, run: str | None = None) -> list[Memory]:
        """All memories, oldest first; of one run, those it sees now."""
        with self._lock:
            if run is None:
                return list(self._memories.values())
            return [self._memories[memory_id] for memory_id in self._live(run).utilities]

    def memory_ids(self) -> list[str]:
        """The ids of all memories, oldest first."""
        with self._lock:
            return list(self._memories)

    def step_rows(self, run: str) -> list[StepRow]:
        """The finished steps of a run in short."""
        with self._lock:
            return [row for _, row in sorted(self._by_run.get(run, {}).items())]

    def trace(self, run: str, step: int) -> StepTrace:
        """The whole record of a finished step. Raises `InputError` when the run has no such step."""
        with self._lock:
            self.run(run)
            row = self._by_run.get(run, {}).get(step)
            if row is None:
                last = self.next_step(run) - 1
                raise InputError(f"Run {run} has no step {step}: it has {last} finished steps.")
            if row.id not in self._traces:
                found = self._store.find("steps", "id", row.id)
                try:
                    self._keep_trace(codec.trace_of(found[0]))
                except (ValueError, IndexError, KeyError) as error:
                    raise BankDamaged(f"Step {step} of run {run} cannot be read. Nothing was changed.") from error
            return self._traces[row.id]

    def events(self, run: str | None = None) -> list[LedgerEvent]:
        """The ledger, in the order in which its events were appended by their clock."""
        with self._lock:
            chosen: Iterable[LedgerEvent] = self._events.values() if run is None else self._states[run].events
            return sorted(chosen, key=_by_seq)

    def unfinished_steps(self, run: str) -> list[int]:
        """Steps that left rewards or memories in the ledger and never ended."""
        with self._lock:
            events = self._states[run].events if run in self._states else []
            return sorted({event.step for event in events if event.step_id and event.step_id not in self._steps})

    # --- map layouts --------------------------------------------------------------------------------------------------

    @property
    def facts(self) -> int:
        """How many facts this handle has taken in: grows with every append, whoever made it."""
        return len(self._memories) + len(self._events) + len(self._steps)

    def layout_rows(self) -> int:
        """How many places were ever stored: changes whenever `layout` may."""
        return self._store.count("layouts")

    def layout(self) -> Layout | None:
        """The newest frozen coordinates."""
        rows = self._store.read("layouts").to_pylist()
        if not rows:
            return None
        # Places may still be added to an older layout after another process saved a newer one; ids sort by age.
        newest = max(row["layout"] for row in rows)
        members = [row for row in rows if row["layout"] == newest]
        return Layout(
            newest,
            members[0]["method"],
            {row["memory_id"]: (row["x"], row["y"]) for row in reversed(members)},
            tuple(row["memory_id"] for row in members if row["fitted"]),
        )

    def save_layout(self, method: str, coordinates: Mapping[str, tuple[float, float]]) -> Layout:
        """Append a new layout, fitted on exactly these memories; it takes the place of the one before."""
        number = f"{len(self._store.read('layouts', ['layout'])):08d}-{uuid.uuid4().hex[:8]}"
        layout = Layout(number, method, dict(coordinates), tuple(coordinates))
        self._append_coordinates(layout, coordinates, fitted=True)
        return layout

    def add_to_layout(self, layout: Layout, coordinates: Mapping[str, tuple[float, float]]) -> None:
        """Append the places of memories that came after the layout was fitted."""
        self._append_coordinates(layout, coordinates, fitted=False)

    def _append_coordinates(self, layout: Layout, coordinates: Mapping[str, tuple[float, float]], fitted: bool) -> None:
        rows = [
            {
                "layout": layout.id,
                "method": layout.method,
                "memory_id": memory_id,
                "x": float(x),
                "y": float(y),
                "fitted": fitted,
            }
            for memory_id, (x, y) in coordinates.items()
        ]
        if rows:
            self._store.append("layouts", rows)

    # --- following the tables -----------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Take in what other processes appended; True when there was something."""
        with self._lock:
            changed = [self._follow(name) for name in ("memories", "ledger", "steps")]
            return any(changed)

    def _follow(self, name: str) -> bool:
        kept: dict[str, Mapping[str, object]]
        kept = {"memories": self._memories, "ledger": self._events, "steps": self._steps}
        known = kept[name]
        count = self._store.count(name) + len(self._buffer[name])
        if count == self._synced[name] or count == len(known) + self._doubles[name]:
            self._synced[name] = count
            return False
        columns = list(codec.STEP_COLUMNS) if name == "steps" else None
        before = len(known)
        self._take(name, self._store.read(name, columns, self._synced[name]))
        if len(known) + self._doubles[name] < count:
            self._take(name, self._store.read(name, columns))
        self._doubles[name] = count - len(known)
        self._synced[name] = count
        return len(known) > before

    def _take(self, name: str, table: Any) -> None:
        try:
            if name == "memories":
                vectors = codec.matrix_of(table["embedding"], self.embedder.dimension)
                for row, vector in zip(table.drop_columns(["embedding"]).to_pylist(), vectors, strict=True):
                    self._take_memory(codec.memory_of(row), vector)
            elif name == "ledger":
                for row in table.to_pylist():
                    self._take_event(codec.event_of(row))
            else:
                for row in table.to_pylist():
                    self._take_step(StepRow(**row))
        except (ValueError, KeyError, TypeError) as error:
            raise BankDamaged(
                f"In the bank at {self.uri}, a row of the table {name} cannot be read. Nothing was changed; run "
                "`memrl doctor --bank` on it, or restore a copy."
            ) from error

    def _take_memory(self, memory: Memory, vector: npt.NDArray[np.float32]) -> None:
        if memory.id not in self._memories:
            self._memories[memory.id] = memory
            self._mirror.append([memory.id], [memory.intent_key], vector[None, :])

    def _take_event(self, event: LedgerEvent) -> None:
        if event.id in self._events:
            return
        self._events[event.id] = event
        self._seq = max(self._seq, event.seq)
        if event.kind is EventKind.RUN_STARTED:
            self._runs[event.run] = codec.run_of(event.payload)
        self._states.setdefault(event.run, RunState()).add(event)

    def _take_step(self, row: StepRow, trace: StepTrace | None = None) -> None:
        if row.id in self._steps:
            return
        self._steps[row.id] = row
        self._by_run.setdefault(row.run, {})[row.step] = row
        state = self._states.setdefault(row.run, RunState())
        if row.step <= state.folded_to:
            state.fold = None
        if trace is not None:
            self._keep_trace(trace)

    def _keep_trace(self, trace: StepTrace) -> None:
        self._traces[trace.id] = trace
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)

    # --- folding ------------------------------------------------------------------------------------------------------

    def _live(self, run: str) -> Fold:
        """The fold of all that is known, brought up to date."""
        self.run(run)
        state = self._states[run]
        if state.fold is None:
            state.fold = folded(self._start(run), state.events, self._steps)
            state.folded_to = max((e.step for e in state.events if e.step_id in self._steps), default=0)
            return state.fold
        newest = max(self._by_run.get(run, {}), default=0)
        if newest > state.folded_to:
            for step in range(state.folded_to + 1, newest + 1):
                folded(state.fold, state.at_step.get(step, ()), self._steps)
            state.folded_to = newest
        return state.fold

    def _past(self, run: str, step: int) -> Fold:
        """The fold of what was known when `step` had ended."""
        self.run(run)
        key = (run, step, self.facts)
        if key not in self._pasts:
            events = [event for event in self._states[run].events if event.known_at <= step]
            self._pasts[key] = folded(self._start(run), events, self._steps)
            while len(self._pasts) > PASTS_KEPT:
                self._pasts.popitem(last=False)
        return self._pasts[key]

    def _start(self, run: str) -> Fold:
        info = self.run(run)
        if info.base is None:
            return Fold()
        return replace(copied(self._past(info.base, info.base_step)), settings=info.settings)


def _by_seq(event: LedgerEvent) -> tuple[int, str]:
    return event.seq, event.id
