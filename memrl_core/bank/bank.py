"""One bank: what agents append to it, and what every reader sees.

Facts are appended in the order memories, ledger, steps. The row in `steps` commits the step: events of an attempt whose
row never came do not count. q is never stored as a fact; it is the fold of a run's events.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from memrl_core.bank import codec
from memrl_core.bank.deeds import Deeds
from memrl_core.bank.description import EMBEDDERS_BEFORE, embedders_before
from memrl_core.bank.editing import Editing
from memrl_core.bank.knowledge import StepRow
from memrl_core.bank.layouts import Layouts
from memrl_core.bank.ledger import Credits, Notes, must_be_reward, now
from memrl_core.bank.mirror import free_closed, was_closed
from memrl_core.bank.operations import WRITING, must_be_possible, readable, settled, task_of
from memrl_core.bank.people import People
from memrl_core.bank.ratings import Ratings
from memrl_core.bank.reading import BankReading, Search
from memrl_core.bank.roles import person_name
from memrl_core.bank.store import KEEP_AT_CLOSE, Store
from memrl_core.embedders.base import Embedder
from memrl_core.errors import EmbedderMismatch, InputError, RunMoved
from memrl_core.learning import in_ledger
from memrl_core.records import (
    EventKind,
    LedgerEvent,
    Memory,
    MemoryOperation,
    RunInfo,
    StepTrace,
)

ADOPTED_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """The embedder that made a bank's vectors; `digest` of its weights and `version` of its server are "" if unknown.

    `before` are those that made the vectors before they were made anew.
    """

    name: str
    dimension: int
    digest: str = ""
    version: str = ""
    before: tuple[str, ...] = ()

    def is_another(self, name: str, dimension: int, digest: str = "") -> bool:
        """True if an embedder cannot have made these vectors: by its name, its size, or its weights where known."""
        return (name, dimension) != (self.name, self.dimension) or ("" != self.digest != digest != "")


class MemoryBank(BankReading):
    """Memories, traces and the ledger of any number of runs. Threads may share one handle."""

    def __init__(self, store: Store, meta: Mapping[str, Any], search: Search = "auto") -> None:
        super().__init__(store, int(meta["dimension"]), search)
        self.embedder = EmbedderIdentity(
            str(meta["embedder"]),
            int(meta["dimension"]),
            str(meta.get("embedder_digest", "")),
            str(meta.get("embedder_version", "")),
            embedders_before(meta),
        )
        self._is_alone = False
        self.layouts = Layouts(store)
        parts = self._known, self._ledger, self._appends, self.alone
        self.notes = Notes(*parts, self._lock)
        self.credits = Credits(*parts, self._lock, self.credited)
        self.ratings = Ratings(*parts, self.credited)
        self.editing = Editing(*parts, self.must_match)
        self.deeds = Deeds(*parts)
        self.people = People(*parts)
        self.refresh()
        self.by_index = self._searches_by_index()

    # --- open and close -----------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        uri: str,
        embedder_name: str,
        dimension: int,
        digest: str = "",
        version: str = "",
        before: Sequence[str] = (),
    ) -> Self:
        """Make an empty bank for vectors of one embedder (`EmbedderIdentity`).

        Raises `NotABank` when something is there already.
        """
        meta = {
            "schema_version": codec.SCHEMA_VERSION,
            "embedder": embedder_name,
            "dimension": dimension,
            "embedder_digest": digest,
            "embedder_version": version,
            EMBEDDERS_BEFORE: list(before),
            "created": now(),
        }
        return cls(Store.create(str(uri), meta, dimension), meta)

    @classmethod
    def open(cls, uri: str, embedder: Embedder | None = None, search: Search = "auto") -> Self:
        """Open a bank; without an embedder it can be looked at. `search` is how its memories are found (`BankReading`).

        Raises `BankMissing`, `NotABank`, `BankTooNew`, `BankDamaged`, or `EmbedderMismatch` when `embedder` is not the
        one that made the vectors.
        """
        free_closed()
        store, meta = Store.open(str(uri))
        bank = cls(store, meta, search)
        if embedder is not None:
            bank.must_match(embedder)
        return bank

    def must_match(self, embedder: Embedder) -> None:
        """Raise `EmbedderMismatch` unless `embedder` made this bank's vectors."""
        mine = self.embedder
        if not mine.is_another(embedder.name, embedder.dimension, embedder.digest):
            return
        if embedder.name == mine.name:
            raise EmbedderMismatch(
                f"{mine.name} has other weights now than those that made the vectors of this bank "
                f"({_weights(mine)} then, {_weights(embedder)} now). Nothing was changed; install those again, or make "
                f"the vectors anew: memrl reembed --bank {shlex.quote(self.uri)} --embedder {shlex.quote(mine.name)}"
            )
        raise EmbedderMismatch(
            f"This bank holds {self.embedder.dimension:,}-dimensional vectors made by {self.embedder.name}; "
            f"{embedder.name} gives {embedder.dimension:,}. Nothing was changed; open it with {self.embedder.name}, or "
            "make a bank with other vectors of it (memrl reembed)."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is buffered and the snapshot of q, and tidy up what has grown; the handle can still be read."""
        with self._lock:
            self.flush()
            if self._ledger.changed:
                self.checkpoint()
            if self._ledger.last_saved is not None:
                self._store.compact(KEEP_AT_CLOSE)
                self._store.refresh_flat_copies()
            self._appends.close()
        self._store.close()
        was_closed(self.facts)

    def discard(self) -> None:
        """Delete every table of the bank for good."""
        with self._lock:
            self._store.drop()
            self._ledger.changed, self._ledger.last_saved = False, None

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

    def new_run_id(self, prefix: str) -> str:
        """A short name that no run of this bank has."""
        while True:
            name = f"{prefix}-{secrets.token_hex(2)}"
            if name not in self._known.runs:
                return name

    def start_run(self, info: RunInfo, by: str = "") -> None:
        """Append a new run, in the name of a person if one is given.

        Raises `InputError` for a name that is taken or is not letters, digits, - _ and . only, `NotAllowed`.
        """
        with self._lock:
            self.refresh()
            if info.id in self._known.runs:
                raise InputError(f"This bank has a run “{info.id}” already. Choose another name.")
            if not info.id or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in info.id):
                raise InputError("A run's name has letters, digits, “-”, “_” and “.” only.")
            if info.base is not None:
                self.run(info.base)
            self._ledger.append(
                self._ledger.event(
                    info.id,
                    0,
                    "",
                    EventKind.RUN_STARTED,
                    payload=codec.run_payload(info),
                    known_at=0,
                    **_in_the_name_of(by),
                )
            )
            self.flush()

    def change_settings(self, run: str, settings: Mapping[str, Any], from_step: int, by: str = "") -> None:
        """Append new settings that hold from `from_step` on. Raises `NotAllowed`."""
        with self.alone():
            self.run(run)
            self._ledger.append(
                self._ledger.event(
                    run,
                    from_step,
                    "",
                    EventKind.SETTINGS_CHANGED,
                    payload={"settings": dict(settings)},
                    **_in_the_name_of(by),
                )
            )
            self.flush()

    def change_settings_throughout(self, run: str, changes: Mapping[str, Any], by: str = "") -> None:
        """Append these settings for every step of the run, past and to come; all others stay as each step has them.

        The q of the run follow; what its steps selected and recorded stays. Raises `NotAllowed`.
        """
        with self.alone():
            info = self.run(run)
            periods = {info.first_step - 1: info.settings}
            for event in sorted(self._known.states[run].settings, key=in_ledger):
                periods[event.step] = event.payload["settings"]
            self._ledger.append_in_order(
                [
                    self._ledger.event(
                        run,
                        step,
                        "",
                        EventKind.SETTINGS_CHANGED,
                        payload={"settings": {**settings, **changes}},
                        **_in_the_name_of(by),
                    )
                    for step, settings in sorted(periods.items())
                ]
            )
            self.flush()

    def change_environment(self, run: str, options: Mapping[str, Any], by: str = "") -> None:
        """Append new options of the run's environment. Raises `NotAllowed`, `UnknownRun`."""
        with self.alone():
            self.run(run)
            self._ledger.append(
                self._ledger.event(
                    run,
                    self.next_step(run),
                    "",
                    EventKind.ENVIRONMENT_CHANGED,
                    payload={"options": dict(options)},
                    **_in_the_name_of(by),
                )
            )
            self.flush()

    # --- writing ------------------------------------------------------------------------------------------------------

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

    def commit_step(self, trace: StepTrace, vectors: Mapping[str, npt.NDArray[np.float32]]) -> StepTrace:
        """Append a finished step with the memories it wrote and the events that follow from it; the step as stored.

        `vectors` maps the id of each written memory to its embedding (d,). What an operation would replace or delete is
        looked at once more: see `operations.settled`. Raises `RunMoved` when another process committed this step
        number, `InputError` for a vector that cannot be stored, `PolicyFailed` for an operation that cannot be done or
        a step that could not be read again, `BankFull`, `BankReadOnly`. After a failure the same call can be repeated:
        nothing is doubled.
        """
        with self._lock, self._numbering():
            taken = self._known.steps_of(trace.run).get(trace.step)
            if taken is not None:
                raise RunMoved(
                    f"Another process has already finished step {trace.step} of run {trace.run}. This attempt was not "
                    "stored; begin the next step."
                )
            self.begin_step(trace.run, trace.step)
            created = now()
            checked = {memory_id: self._known.mirror.checked(vector) for memory_id, vector in vectors.items()}
            trace = self._settled(readable(trace), checked)
            new: dict[str, Memory] = {}
            for op in trace.write.operations if trace.write else ():
                if op.op in WRITING and op.memory_id not in self._known.mirror.rows:
                    new[op.memory_id] = self._memory_of(op, trace, created, new)
            events = self._events_of(trace)

            def written(name: str) -> None:
                for memory in new.values() if name == "memories" else ():
                    self._known.take_memory(memory, checked[memory.id])
                for event in events if name == "ledger" else ():
                    self._known.take_event(event)

            rows = {
                "memories": [codec.memory_row(memory, checked[memory.id]) for memory in new.values()],
                "ledger": [codec.event_row(event) for event in events],
            }
            self._appends.put_together(rows, written)
            row = codec.step_row(trace, created)
            self._appends.put("steps", [row])
            self._known.take_step(StepRow(**{name: row[name] for name in codec.STEP_COLUMNS}))
            self._keep_trace(trace)
            self._appends.step_ended()
            self._ledger.saved()
            return trace

    @contextmanager
    def _numbering(self) -> Iterator[None]:
        """Within it, no other process of this machine that writes step by step finishes a step of the same number."""
        if self._appends.steps_held or self._is_alone:
            yield
            return
        with self._store.locked():
            if self._steps_have_grown():
                self.refresh()
            yield

    def _settled(self, trace: StepTrace, embedded: Mapping[str, object]) -> StepTrace:
        if trace.write is None:
            return trace
        operations = trace.write.operations
        must_be_possible(operations, embedded, self._known.memories)
        if all(op.op in ("ADD", "NOOP") for op in operations):
            return trace
        possible = settled(operations, self._known.live(trace.run))
        return replace(trace, write=replace(trace.write, operations=possible))

    def _memory_of(self, op: MemoryOperation, trace: StepTrace, created: str, new: Mapping[str, Memory]) -> Memory:
        known = self._known.memories
        replaced = {i: new[i] if i in new else known[i] for i in op.replaces if i in new or i in known}
        return Memory(
            op.memory_id,
            op.intent,
            op.experience,
            op.outcome,
            op.intent_key,
            op.parents,
            trace.run,
            trace.step,
            task_of(op, replaced, trace.task.id),
            created,
        )

    def _events_of(self, trace: StepTrace) -> list[LedgerEvent]:
        events = []
        given = _environment_reward(trace)
        if trace.reward and given is not None:
            events.append(
                self._ledger.event(
                    trace.run,
                    trace.step,
                    trace.id,
                    EventKind.REWARD_GIVEN,
                    event_id=f"{trace.id}:environment",
                    memory_ids=trace.reward.credited,
                    value=given,
                    source="environment",
                )
            )
        events += [self._event_of(op, trace) for op in trace.write.operations if op.op != "NOOP"] if trace.write else []
        new = [event for event in events if event.id not in self._known.events]
        # Equal numbers would be sorted by id, and an operation may be about what an earlier one has written.
        return [replace(event, seq=event.seq + position) for position, event in enumerate(new)]

    def _event_of(self, op: MemoryOperation, trace: StepTrace) -> LedgerEvent:
        if op.op == "DELETE":
            event_id, about = f"{trace.id}:deleted:{op.replaces[0]}", {"memory_ids": op.replaces}
        else:
            event_id, about = f"{trace.id}:{op.memory_id}", {"memory_ids": (op.memory_id,)}
        told: dict[str, Any] = {**about, "reason": op.why}
        if op.op == "ADD":
            told["value"] = op.q0
        elif op.op != "DELETE":
            told["payload"] = {"replaces": list(op.replaces)}
        kind = WRITING.get(op.op, EventKind.MEMORY_FORGOTTEN)
        return self._ledger.event(trace.run, trace.step, trace.id, kind, event_id=event_id, **told)

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
            self._ledger.adopt(*(event for event in events if event.id not in self._known.events))
            self.flush()

    def give_reward(
        self,
        run: str,
        step: int,
        step_id: str,
        memory_ids: Sequence[str],
        value: float,
        rater: str,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> LedgerEvent:
        """Append a person's reward for a step, in the place of an earlier one of the same person.

        `given` is kept with it: the scale and what they chose there.

        Raises `InputError` for a value that is not a number from −10 to 10, `NotAllowed`, `UnknownRun`.
        """
        must_be_reward(value)
        with self.alone():
            self.run(run)
            event = self._person_reward(run, step, step_id, memory_ids, value, rater, reason, given)
            self._ledger.append(event)
            self.flush()
            return event

    def revoke_reward(self, event_id: str, rater: str, reason: str = "") -> LedgerEvent:
        """Append that a reward no longer counts; of one that was taken back before, the event that did it.

        Raises `InputError` when there is no such reward, `NotAllowed`.
        """
        with self.alone():
            given = self._known.events.get(event_id)
            if given is None or given.kind is not EventKind.REWARD_GIVEN:
                raise InputError("That reward is not in this bank. Nothing was changed.")
            at_step = self._known.states[given.run].at(given.step)
            revoked = next((e for e in at_step if e.revokes == event_id), None)
            if revoked is not None:
                return revoked
            event = self._ledger.revoking(given, rater, reason)
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
        self,
        run: str,
        step: int,
        step_id: str,
        memory_ids: Sequence[str],
        value: float,
        rater: str,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> LedgerEvent:
        return self._ledger.event(
            run,
            step,
            step_id,
            EventKind.REWARD_GIVEN,
            memory_ids=tuple(memory_ids),
            value=float(value),
            source="person",
            rater=person_name(rater),
            reason=reason.strip(),
            payload=dict(given or {}),
        )

    def preview_reward(
        self, run: str, step: int, step_id: str, memory_ids: Sequence[str], value: float, rater: str
    ) -> dict[str, tuple[float, float]]:
        """What `give_reward` would do: q of each credited memory now and then. Nothing is appended."""
        with self._lock:
            event = self._person_reward(run, step, step_id, memory_ids, value, rater)
            now, then = self._known.live(run).histories, self._known.supposed(event)
            return {i: (now[i][-1].after, then.get(i, now[i])[-1].after) for i in memory_ids}

    def credited(self, run: str, step: int) -> tuple[str, ...]:
        """The memories that were in the prompt of a finished step: those that its rewards go to."""
        with self._lock:
            for event in self._known.states[run].at(step):
                if event.source == "environment" and event.step_id in self._known.steps:
                    return event.memory_ids
            trace = self.trace(run, step)
            if trace.reward is not None:
                return trace.reward.credited
            return trace.decision.selected if trace.decision is not None else ()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it, no other process of this machine that asks for the same writes to a bank on its disks.

        Begins with what the others appended, so several processes can number their steps without meeting. Other
        addresses have no such lock.
        """
        with self._lock:
            if self._is_alone:
                yield
                return
            with self._store.locked():
                self.refresh()
                self._is_alone = True
                try:
                    yield
                finally:
                    self._is_alone = False


def _weights(embedder: EmbedderIdentity | Embedder) -> str:
    return f"{embedder.dimension:,} dimensions" + (f", {embedder.digest[:19]}" if embedder.digest else "")


def _in_the_name_of(person: str) -> dict[str, Any]:
    return {"source": "person", "rater": person_name(person)} if person else {}


def _environment_reward(trace: StepTrace) -> float | None:
    if trace.reward is None:
        return None
    return trace.reward.reward if trace.reward.source == "environment" else trace.reward.environment
