"""One bank: what agents append to it, and what every reader sees.

A step's memories go to the vectors first; then its row, its events and the q that follow from them are stored in one
transaction. q is never a fact: it is the fold of a run's events, and `q_values` holds the result.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from memrl_core.bank.ledger import Credits, Notes, People, in_the_name_of, must_be_reward, now
from memrl_core.bank.operations import WRITING, must_be_possible, readable, settled, task_of
from memrl_core.bank.people.batches import Batches
from memrl_core.bank.people.editing import Editing
from memrl_core.bank.people.ratings import Ratings
from memrl_core.bank.people.undo import Undo
from memrl_core.bank.reading import BankReading, Search
from memrl_core.bank.state import BRINGS_IN, Pending
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.codec import Inserted
from memrl_core.bank.storage.layouts import Layouts
from memrl_core.bank.storage.places import disk_sentences, place_of, write_parts
from memrl_core.bank.storage.schema import FORMAT, Database
from memrl_core.bank.storage.vectors import LanceVectors, Vectors
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

    def __init__(self, uri: str, database: Database, vectors: Vectors, search: Search = "auto") -> None:
        super().__init__(uri, database, vectors, search)
        values = database.description()
        self.embedder = EmbedderIdentity(
            values["embedder"],
            int(values["dimension"]),
            values.get("embedder_digest", ""),
            values.get("embedder_version", ""),
            tuple(json.loads(values.get("embedders_before", "[]"))),
        )
        self._is_alone = False
        self._steps_held = 0
        self.layouts = Layouts(database)
        parts = self._state, self._ledger, self.alone
        self.notes = Notes(*parts)
        self.credits = Credits(*parts, self.credited)
        self.ratings = Ratings(*parts, self.credited)
        self.editing = Editing(*parts, self.must_match)
        self.undo = Undo(*parts)
        self.people = People(*parts)
        self.batches = Batches(*parts)
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

        `uri` is a folder, a TOML file that names a database and vectors, or "memory://". Raises `NotABank` when
        something is there already, `BankUnreachable`, `BankReadOnly`, `BankFull`.
        """
        values = {
            "format": str(FORMAT),
            "embedder": embedder_name,
            "dimension": str(dimension),
            "embedder_digest": digest,
            "embedder_version": version,
            "embedders_before": json.dumps(list(before)),
            "created": now(),
        }
        place = place_of(str(uri))
        place.must_be_free()
        vectors = place.make_vectors(dimension)
        database = Database.at(place.database, place.shown)
        with database.closed_on_failure():
            database.create(values)
            return cls(place.uri, database, vectors)

    @classmethod
    def open(cls, uri: str, embedder: Embedder | None = None, search: Search = "auto") -> Self:
        """Open a bank; without an embedder it can be looked at. `search` is how its memories are found (`BankReading`).

        Raises `BankMissing`, `NotABank`, `BankTooNew`, `BankDamaged`, `BankUnreachable`, or `EmbedderMismatch` when
        `embedder` is not the one that made the vectors.
        """
        place = place_of(str(uri))
        place.must_be_there()
        database = Database.at(place.database, place.shown)
        with database.closed_on_failure():
            dimension = int(database.description()["dimension"])
            bank = cls(place.uri, database, place.open_vectors(dimension), search)
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
        """Write what is held back and tidy up what has grown; the handle can still be read."""
        with self._lock:
            self.flush()
            if self._ledger.last_saved is not None:
                self.compact()
            self._database.close()

    def compact(self) -> None:
        """Join the fragments of the vectors where there are many, and sweep up memories that nobody names."""
        if isinstance(self._vectors, LanceVectors) and self._vectors.is_scattered():
            # Within it, nobody is between the memory of a step and the step that names it.
            with self.alone():
                left = set(self._vectors.read(["id"])["id"].to_pylist()) - self._state.named()
                self._vectors.delete(left)
            self._vectors.compact()

    def rebuild(self) -> None:
        """Write anew what follows from the facts: the q of every run, and its moves.

        Raises `InputError` where the policy of a run is not installed.
        """
        with self.alone():
            for info in self.runs():
                self._state.must_know_rule(info)
            for run in self._state.ids():
                self._state.of(run).make_anew()
            for run in self._state.ids():
                self._state.save(run)
        self._state.stored()

    def write_parts(self, folder: Path) -> None:
        """Write a copy of the bank as it is at this moment into a new folder of this machine.

        Raises `BankFull`, `BankReadOnly`, `BankDamaged`.
        """
        self.flush()
        with disk_sentences(folder):
            write_parts(self._database, self._vectors, folder)

    def discard(self) -> None:
        """Delete the whole bank for good."""
        with self._lock:
            self._database.drop()
            self._vectors.drop()
            self._ledger.last_saved = None

    # --- runs ---------------------------------------------------------------------------------------------------------

    def new_run_id(self, prefix: str) -> str:
        """A short name that no run of this bank has."""
        with self._lock:
            while True:
                name = f"{prefix}-{secrets.token_hex(2)}"
                if name not in self._state.ids():
                    return name

    def start_run(self, info: RunInfo, by: str = "") -> None:
        """Append a new run, in the name of a person if one is given.

        Raises `InputError` for a name that is taken or is not letters, digits, - _ and . only, `NotAllowed`.
        """
        with self.alone():
            if info.id in self._state.ids():
                raise InputError(f"This bank has a run “{info.id}” already. Choose another name.")
            if not info.id or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in info.id):
                raise InputError("A run's name has letters, digits, “-”, “_” and “.” only.")
            if info.base is not None:
                self.run(info.base)
            payload = codec.run_payload(info)
            self._append(info.id, 0, EventKind.RUN_STARTED, payload, by, known_at=0)

    def change_settings(self, run: str, settings: Mapping[str, Any], from_step: int, by: str = "") -> None:
        """Append new settings that hold from `from_step` on. Raises `NotAllowed`."""
        with self.alone():
            self.run(run)
            self._append(run, from_step, EventKind.SETTINGS_CHANGED, {"settings": dict(settings)}, by)

    def change_settings_throughout(self, run: str, changes: Mapping[str, Any], by: str = "") -> None:
        """Append these settings for every step of the run, past and to come; all others stay as each step has them.

        The q of the run follow; what its steps selected and recorded stays. Raises `NotAllowed`.
        """
        with self.alone():
            info = self.run(run)
            periods = {info.first_step - 1: info.settings}
            for event in sorted(self._state.of(run).settings, key=in_ledger):
                periods[event.step] = event.payload["settings"]
            kind, name = EventKind.SETTINGS_CHANGED, in_the_name_of(by)
            changed = [(step, {"settings": {**settings, **changes}}) for step, settings in sorted(periods.items())]
            self._ledger.append_in_order(
                [self._ledger.event(run, step, "", kind, payload=payload, **name) for step, payload in changed]
            )

    def change_environment(self, run: str, options: Mapping[str, Any], by: str = "") -> None:
        """Append new options of the run's environment. Raises `NotAllowed`, `UnknownRun`."""
        with self.alone():
            self._append(run, self.next_step(run), EventKind.ENVIRONMENT_CHANGED, {"options": dict(options)}, by)

    def _append(
        self, run: str, step: int, kind: EventKind, payload: Mapping[str, Any], by: str, known_at: int | None = None
    ) -> None:
        event = self._ledger.event(run, step, "", kind, payload=payload, known_at=known_at, **in_the_name_of(by))
        self._ledger.append(event)

    # --- writing ------------------------------------------------------------------------------------------------------

    def begin_step(self, run: str, step: int) -> None:
        """Note that a step has begun: what is appended from now on was not known before it."""
        with self._lock:
            state = self._state.of(run)
            state.begun = max(state.begun, step)

    def next_memory_id(self, run: str) -> str:
        """An id that no memory of this bank has."""
        with self._lock:
            number = self.next_step(run)
            while f"{run}-{number:04d}" in self._state.memories:
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
        with self._lock, nullcontext() if self._steps_held else self.alone():
            if self._state.step_row(trace.run, trace.step) is not None:
                raise RunMoved(
                    f"Another process has already finished step {trace.step} of run {trace.run}. This attempt was not "
                    "stored; begin the next step."
                )
            self.begin_step(trace.run, trace.step)
            created = now()
            checked = {memory_id: self._state.memories.checked(vector) for memory_id, vector in vectors.items()}
            self._state.make_way(checked)
            self._state.prepare([trace.run])
            trace = self._settled(readable(trace), checked)
            new: dict[str, Memory] = {}
            for op in trace.write.operations if trace.write else ():
                if op.op in WRITING and op.memory_id not in self._state.memories:
                    new[op.memory_id] = self._memory_of(op, trace, created, new)
            events = self._events_of(trace)
            inserted = {memory_id: Inserted(event.seq) for event in events for memory_id in event.memory_ids}
            for memory in new.values():
                self._state.take_memory(
                    memory, checked[memory.id], inserted.get(memory.id, Inserted(self._state.clock))
                )
            for event in events:
                self._state.take_event(event)
            self._state.take_step(trace, created)
            self._keep_trace(trace)
            self._ledger.last_saved = datetime.now(UTC)
            if self._steps_held and len(self._state.pending.steps) >= self._steps_held:
                self.flush()
            return trace

    def _settled(self, trace: StepTrace, embedded: Mapping[str, object]) -> StepTrace:
        if trace.write is None:
            return trace
        operations = trace.write.operations
        must_be_possible(operations, embedded, self._state.memories)
        if all(op.op in ("ADD", "NOOP") for op in operations):
            return trace
        possible = settled(operations, self._state.live(trace.run))
        return replace(trace, write=replace(trace.write, operations=possible))

    def _memory_of(self, op: MemoryOperation, trace: StepTrace, created: str, new: Mapping[str, Memory]) -> Memory:
        known = self._state.memories
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
        # Those of an earlier call that failed wait with its step or are stored with it, and a stored step is refused.
        new = [event for event in events if event.id not in self._state.pending.events]
        # Equal numbers would be sorted by id, and an operation may be about what an earlier one has written.
        return [replace(event, seq=event.seq + position) for position, event in enumerate(new)]

    def _event_of(self, op: MemoryOperation, trace: StepTrace) -> LedgerEvent:
        if op.op == "DELETE":
            event_id, about = f"{trace.id}:deleted:{op.replaces[0]}", {"memory_ids": op.replaces}
        else:
            event_id, about = f"{trace.id}:{op.memory_id}", {"memory_ids": (op.memory_id,)}
        fields: dict[str, Any] = {**about, "reason": op.why}
        if op.op == "ADD":
            fields["value"] = op.q0
        elif op.op != "DELETE":
            fields["payload"] = {"replaces": list(op.replaces)}
        kind = WRITING.get(op.op, EventKind.MEMORY_FORGOTTEN)
        return self._ledger.event(trace.run, trace.step, trace.id, kind, event_id=event_id, **fields)

    def adopt(
        self,
        memories: Mapping[str, tuple[Memory, npt.NDArray[np.float32]]],
        events: Sequence[LedgerEvent],
        traces: Sequence[StepTrace],
    ) -> None:
        """Append facts from elsewhere as they are, all or none; what is here already, by its id, is passed over.

        `memories` maps ids to memory and embedding (d,). Raises `InputError` for a vector that cannot be stored,
        `BankFull`, `BankReadOnly`.
        """
        with self.alone():
            state = self._state
            state.make_way(memories)
            new = [(m, state.memories.checked(v)) for i, (m, v) in memories.items() if i not in state.memories]
            inserted = _insertions(events)
            for memory, vector in new:
                own = inserted.get((memory.id, memory.run)) or inserted.get((memory.id, ""))
                state.take_memory(memory, vector, own or Inserted(state.clock))
            known = {event.id for event in state.events_of(event.id for event in events)}
            fresh = [event for event in events if event.id not in known]
            state.prepare({event.run for event in fresh} | {trace.run for trace in traces})
            self._ledger.adopt(*sorted(fresh, key=lambda event: event.kind is not EventKind.RUN_STARTED))
            for trace in traces:
                row = state.step_row(trace.run, trace.step)
                if row is None or row.id != trace.id:
                    state.take_step(trace, now())

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
            event = self._ledger.rewarding(run, step, step_id, memory_ids, value, rater, reason, given)
            self._ledger.append(event)
            return event

    def revoke_reward(self, event_id: str, rater: str, reason: str = "") -> LedgerEvent:
        """Append that a reward no longer counts; of one that was taken back before, the event that did it.

        Raises `InputError` when there is no such reward, `NotAllowed`.
        """
        with self.alone():
            given = self._state.event(event_id)
            if given is None or given.kind is not EventKind.REWARD_GIVEN:
                raise InputError("That reward is not in this bank. Nothing was changed.")
            at_step = self._state.at(given.run, given.step)
            revoked = next((e for e in at_step if e.revokes == event_id), None)
            if revoked is not None:
                return revoked
            event = self._ledger.revoking(given, rater, reason)
            self._ledger.append(event)
            return event

    @contextmanager
    def batch(self, steps: int) -> Iterator[None]:
        """Within it, commits are written `steps` at a time: faster, and a crash loses at most that many steps."""
        with self._lock:
            self._steps_held = steps if steps > 1 else 0
        try:
            yield
        finally:
            with self._lock:
                self._steps_held = 0
                self.flush()

    def flush(self) -> None:
        """Write what is held back; what could not be written stays held."""
        with self._lock:
            if self._state.pending and not self._is_alone:
                with self.alone():
                    pass

    def credited(self, run: str, step: int) -> tuple[str, ...]:
        """The memories that were in the prompt of a finished step: those that its rewards go to."""
        with self._lock:
            events = [event for event in self._state.at(run, step) if event.source == "environment"]
            committed = self._state.committed(events)
            for event in events:
                if event.step_id in committed:
                    return event.memory_ids
            trace = self.trace(run, step)
            if trace.reward is not None:
                return trace.reward.credited
            return trace.decision.selected if trace.decision is not None else ()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it, this handle is the bank's only writer; what it appends is stored at the end, all or nothing.

        Begins with what the others appended, so several processes number their steps without conflict. Raises what
        writing raises; nothing of it is kept then.
        """
        with self._lock:
            if self._is_alone:
                yield
                return
            before, is_storing = self._state.pending.copied(), False
            try:
                with self._database.transaction():
                    self._is_alone = True
                    self._state.catch_up()
                    yield
                    is_storing = bool(self._state.pending)
                    if is_storing:
                        self._state.store()
                self._state.stored()
            except BaseException as error:
                if is_storing or len(self._state.pending) > len(before):
                    self._state.pending = Pending() if isinstance(error, RunMoved) else before
                    self._traces.clear()
                    self._state.forget()
                raise
            finally:
                self._is_alone = False
            self._vectors.tidy()


def _insertions(events: Iterable[LedgerEvent]) -> dict[tuple[str, str], Inserted]:
    """Where memories stand in the order of age: by the first event that brought each into a run, or into any ("").

    Its own run decides because the clocks of other banks, from which runs may come, are not this bank's.
    """
    found: dict[tuple[str, str], Inserted] = {}
    for event in sorted((event for event in events if event.kind in BRINGS_IN), key=in_ledger):
        for place, memory_id in enumerate(event.memory_ids):
            for run in (event.run, ""):
                found.setdefault((memory_id, run), Inserted(event.seq, place))
    return found


def _weights(embedder: EmbedderIdentity | Embedder) -> str:
    return f"{embedder.dimension:,} dimensions" + (f", {embedder.digest[:19]}" if embedder.digest else "")


def _environment_reward(trace: StepTrace) -> float | None:
    if trace.reward is None:
        return None
    return trace.reward.reward if trace.reward.source == "environment" else trace.reward.environment
