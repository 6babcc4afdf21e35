"""How a bank is changed: every method of `bank.write` is one transaction, and a batch is one around many steps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.bank.facts import Facts, locked
from memrl_core.bank.identity import EmbedderIdentity
from memrl_core.bank.ledger import CreditsWriter, NotesWriter, PeopleWriter, WritableLedger, in_the_name_of, now
from memrl_core.bank.operations import (
    RUN_NAME,
    events_of,
    insertions,
    is_run_name,
    memories_of,
    readable,
    settled,
)
from memrl_core.bank.people.batches import BatchesWriter
from memrl_core.bank.people.editing import EditingWriter
from memrl_core.bank.people.judgements import JudgementsWriter
from memrl_core.bank.people.ratings import RatingsWriter
from memrl_core.bank.people.undo import UndoWriter
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.codec import Inserted
from memrl_core.bank.storage.last import LastStored
from memrl_core.bank.storage.layouts import LayoutsWriter
from memrl_core.bank.storage.vectors import LanceVectors
from memrl_core.bank.updates import Updates
from memrl_core.bank.utilities import Utilities
from memrl_core.errors import InputError, RunMoved
from memrl_core.learning import in_ledger
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace

PACE = 0.25
"""Seconds between two steps from which on those of a batch are stored one by one: then it gains nothing to wait."""


class Writer:
    """What changes a bank, beside the reading of the same handle. Threads may share one.

    `notes`, `credits`, `ratings`, `editing`, `undo`, `people`, `batches`, `judgements` and `layouts` change what the
    parts of the bank of the same names answer.
    """

    def __init__(
        self, facts: Facts, q: Utilities, last: LastStored, embedder: EmbedderIdentity, is_sealed: bool
    ) -> None:
        self._facts, self._q, self._last = facts, q, last
        self._database, self._vectors, self._lock = facts.database, facts.vectors, facts.database.lock
        self._updates = Updates(facts, q)
        self._ledger = WritableLedger(facts, self._updates)
        self._is_sealed = is_sealed
        self._is_alone = False
        self._stored = facts.written
        self._batch, self._held, self._paced = 0, 0, 0.0
        self.layouts = LayoutsWriter(self._database)
        parts = facts, q, self._ledger, self.alone
        self.notes = NotesWriter(*parts)
        self.credits = CreditsWriter(*parts)
        self.ratings = RatingsWriter(*parts)
        self.editing = EditingWriter(*parts, embedder)
        self.undo = UndoWriter(*parts)
        self.people = PeopleWriter(*parts)
        self.batches = BatchesWriter(*parts)
        self.judgements = JudgementsWriter(*parts)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def start_run(self, info: RunInfo, by: str = "") -> None:
        """Append a new run, in the name of a person if one is given.

        Raises `InputError` for a name that is taken or that no run may have, `NotAllowed`.
        """
        with self.alone():
            if info.id in self._facts.ids():
                raise InputError(f"This bank has a run “{info.id}” already. Choose another name.")
            if not is_run_name(info.id):
                raise InputError(f"{RUN_NAME} Choose another name.")
            if info.base is not None:
                self._facts.run(info.base)
            payload = codec.run_payload(info)
            self._append(info.id, 0, EventKind.RUN_STARTED, payload, by, known_at=0)

    def change_settings(self, run: str, settings: Mapping[str, Any], from_step: int, by: str = "") -> None:
        """Append new settings that hold from `from_step` on. Raises `NotAllowed`."""
        with self.alone():
            self._facts.run(run)
            self._append(run, from_step, EventKind.SETTINGS_CHANGED, {"settings": dict(settings)}, by)

    def change_settings_throughout(self, run: str, changes: Mapping[str, Any], by: str = "") -> None:
        """Append these settings for every step of the run, past and to come; all others stay as each step has them.

        The q of the run follow; what its steps selected and recorded stays. Raises `NotAllowed`.
        """
        with self.alone():
            info = self._facts.run(run)
            periods = {info.first_step - 1: info.settings}
            for event in sorted(self._facts.of(run).changes.get(EventKind.SETTINGS_CHANGED, ()), key=in_ledger):
                periods[event.step] = event.payload["settings"]
            kind, name = EventKind.SETTINGS_CHANGED, in_the_name_of(by)
            changed = [(step, {"settings": {**settings, **changes}}) for step, settings in sorted(periods.items())]
            self._ledger.append_in_order(
                [self._ledger.event(run, step, "", kind, payload=payload, **name) for step, payload in changed]
            )

    def change_environment(self, run: str, options: Mapping[str, Any], by: str = "") -> None:
        """Append new options of the run's environment. Raises `NotAllowed`, `UnknownRun`."""
        with self.alone():
            self._append(run, self._facts.next_step(run), EventKind.ENVIRONMENT_CHANGED, {"options": dict(options)}, by)

    def _append(
        self, run: str, step: int, kind: EventKind, payload: Mapping[str, Any], by: str, known_at: int | None = None
    ) -> None:
        event = self._ledger.event(run, step, "", kind, payload=payload, known_at=known_at, **in_the_name_of(by))
        self._ledger.append(event)

    # --- steps --------------------------------------------------------------------------------------------------------

    @locked
    def new_run_id(self, prefix: str) -> str:
        """A short name that no run of this bank has."""
        while True:
            name = f"{prefix}-{secrets.token_hex(2)}"
            if name not in self._facts.ids():
                return name

    @locked
    def next_memory_id(self, run: str) -> str:
        """An id that no memory of this bank has."""
        number = self._facts.next_step(run)
        while f"{run}-{number:04d}" in self._facts.memories:
            number += 1
        return f"{run}-{number:04d}"

    @locked
    def begin_step(self, run: str, step: int) -> None:
        """Note that a step has begun: what is appended from now on was not known before it."""
        self._facts.begin_step(run, step)

    def commit_step(self, trace: StepTrace, vectors: Mapping[str, npt.NDArray[np.float32]]) -> StepTrace:
        """Append a finished step with the memories it wrote and the events that follow from it; the step as stored.

        `vectors` maps the id of each written memory to its embedding (d,). What an operation would replace or delete is
        looked at once more: see `operations.settled`. Raises `RunMoved` when another process committed this step
        number, `InputError` for a vector that cannot be stored, `PolicyFailed` for an operation that cannot be done or
        a step that could not be read again, `BankFull`, `BankReadOnly`. After a failure the same call can be repeated:
        nothing is doubled.
        """
        with self._lock, self.alone(held=self._may_hold()):
            if self._facts.step_row(trace.run, trace.step) is not None:
                raise RunMoved(
                    f"Another process has already finished step {trace.step} of run {trace.run}. This attempt was not "
                    "stored; begin the next step."
                )
            self._facts.begin_step(trace.run, trace.step)
            known_at = self._facts.begun(trace.run)
            created, memories = now(), self._facts.memories
            checked = {memory_id: memories.checked(vector) for memory_id, vector in vectors.items()}
            self._facts.make_way(checked)
            trace = settled(readable(trace), checked, memories, self._q.known)
            new = memories_of(trace, created, memories)
            events = events_of(trace, self._ledger, known_at)
            self._append_facts([(memory, checked[memory.id]) for memory in new], events, [trace], created)
            self._facts.keep(trace)
            return trace

    def _may_hold(self) -> bool:
        """Whether the step of a batch that ends now waits for the next ones to be stored with them."""
        before, self._paced = self._paced, time.monotonic()
        self._held = self._held + 1 if self._database.is_writing else 1
        return self._held < self._batch and self._paced - before < PACE

    @locked
    def event(self, run: str, step: int, kind: EventKind, step_id: str = "", **values: Any) -> LedgerEvent:
        """A new event of this moment about what another program did, known since the newest finished step; for `adopt`.

        `values` are other fields of the event, and its id as `event_id`. Raises `UnknownRun`.
        """
        return self._ledger.event(run, step, step_id, kind, known_at=self._facts.next_step(run) - 1, **values)

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
            facts = self._facts
            facts.make_way(memories)
            new = [(m, facts.memories.checked(v)) for i, (m, v) in memories.items() if i not in facts.memories]
            known = {event.id for event in facts.events_of(event.id for event in events)}
            ended = facts.ended(trace.id for trace in traces)
            self._append_facts(
                new,
                sorted(events, key=lambda event: event.kind is not EventKind.RUN_STARTED),
                [trace for trace in traces if trace.id not in ended],
                now(),
                known,
            )

    def _append_facts(
        self,
        memories: Iterable[tuple[Memory, npt.NDArray[np.float32]]],
        events: Sequence[LedgerEvent],
        traces: Sequence[StepTrace],
        created: str,
        known: Collection[str] = (),
    ) -> None:
        """Write new memories with their vectors (d,), finished steps, and the events whose ids are not `known`."""
        inserted = insertions(events)
        for memory, vector in memories:
            own = inserted.get((memory.id, memory.run)) or inserted.get((memory.id, ""))
            self._facts.write(memory, vector, own or Inserted(self._facts.clock))
        self._updates.store([event for event in events if event.id not in known], traces, created)

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def batch(self, steps: int) -> Iterator[None]:
        """Within it, up to `steps` commits are one transaction: faster, and a crash loses at most that many steps.

        Meanwhile other processes read what was stored before, and wait to write. Steps that take long are stored one
        by one.
        """
        with self._lock:
            self._batch, self._paced = steps, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._batch = 0
                self.flush()

    def flush(self) -> None:
        """Store the steps of a batch that wait for the next ones."""
        with self._lock:
            if self._database.is_writing and not self._is_alone:
                with self.alone():
                    pass

    def is_busy(self, seconds: float) -> bool:
        """Whether another process is still writing to this bank after so many seconds."""
        return self._database.is_busy(seconds)

    @contextmanager
    def alone(self, held: bool = False) -> Iterator[None]:
        """Within it, this handle is the bank's only writer; what it appends is stored at the end, all or nothing.

        Begins with what the others appended, so several processes number their steps without conflict. Raises what
        writing raises; nothing of it is kept then. With `held`, the transaction stays open for the next one.
        """
        with self._lock:
            if self._is_alone:
                yield
                return
            facts, database = self._facts, self._database
            written, unstored, is_first = facts.written, len(facts.memories.new), not database.is_writing
            if is_first:
                database.begin()
            else:
                database.mark()
            self._is_alone = True
            try:
                if is_first and database.may_have_changed():
                    facts.take_in()
                yield
                if not held:
                    self._store()
                elif not is_first:
                    database.release()
                facts.refreshed()
            except BaseException:
                whole = database.take_back()
                if facts.written != (self._stored if whole else written):
                    del facts.memories.new[0 if whole else unstored :]
                    facts.forget()
                raise
            finally:
                self._is_alone = False
            if not held:
                self._vectors.tidy()

    def _store(self) -> None:
        """Commit what was written since the transaction began, its memories first."""
        facts, has_written = self._facts, self._facts.written != self._stored
        if has_written:
            self._last.begin()
            facts.memories.store()
            if not self._is_sealed:
                self._database.seal()
        self._database.commit()
        self._stored = facts.written
        self._is_sealed |= has_written
        facts.memories.put_in_order()
        if has_written:
            self._last.stored()

    # --- the whole bank -----------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Write anew what follows from the facts: the q of every run, and its moves.

        What is `missing` counts as given up. Raises `InputError` where the policy of a run is not installed.
        """
        with self.alone():
            for run in self._facts.ids():
                self._updates.must_know_rule(run)
            for run in self._facts.ids():
                self._updates.rewrite(run)
        self._last.accept()

    def compact(self) -> None:
        """Join the fragments of the vectors where there are many, and sweep up memories that nobody names."""
        if isinstance(self._vectors, LanceVectors) and self._vectors.is_scattered():
            # Within it, nobody is between the memory of a step and the step that names it.
            with self.alone():
                left = set(self._vectors.read(["id"])["id"].to_pylist()) - self._facts.named()
                self._vectors.delete(left)
            self._vectors.compact()

    def discard(self) -> None:
        """Delete the whole bank for good."""
        with self._lock:
            self.flush()
            self._database.drop()
            self._vectors.drop()
            self._last.forget()
            self._facts.last_saved = None
