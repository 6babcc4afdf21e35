"""One bank: what agents append to it, and what every reader sees.

A step's memories go to the vectors first; then its row, its events and the q that follow from them are stored in one
transaction. q is never a fact: it is the fold of a run's events, and `q_values` holds the result.
"""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import case, func, or_, select

from memrl_core.bank.ledger import Credits, Ledger, Notes, People, in_the_name_of, now
from memrl_core.bank.matrix import MovingView
from memrl_core.bank.operations import RUN_NAME, WRITING, is_run_name, must_be_possible, readable, settled, task_of
from memrl_core.bank.people.batches import Batches
from memrl_core.bank.people.editing import Editing
from memrl_core.bank.people.judgements import Judgements
from memrl_core.bank.people.ratings import Ratings
from memrl_core.bank.people.undo import Undo
from memrl_core.bank.state import BRINGS_IN, BankState, Pending
from memrl_core.bank.step_search import FoundStep, StepQuery, found_steps, matching_steps, steps_with_unusable_reports
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.codec import Inserted, StepRow
from memrl_core.bank.storage.last import LastStored
from memrl_core.bank.storage.layouts import Layouts
from memrl_core.bank.storage.places import disk_sentences, place_of, write_parts
from memrl_core.bank.storage.schema import FORMAT, Database
from memrl_core.bank.storage.vectors import LanceVectors, Vectors
from memrl_core.embedders.base import Embedder
from memrl_core.errors import BankDamaged, BankError, EmbedderMismatch, InputError, RunMoved
from memrl_core.learning import REWARDING, Fold, active_rewards, effective_reward, in_ledger
from memrl_core.logs import logger
from memrl_core.policies import is_installed
from memrl_core.records import (
    EventKind,
    LedgerEvent,
    Memory,
    MemoryOperation,
    RunInfo,
    StepTrace,
    Utility,
    UtilityPoint,
)
from memrl_core.retrieval.view import MemoryView

TRACES_KEPT = 256
METADATA = "metadata"
"""Under which name the events that bring a memory in hold what is known of it besides (JSON)."""
READ_AT_ONCE = 100
"""So many traces are read and held by who looks through all of a run."""
log = logger(__name__)

_STEPS, _LEDGER, _MOVES = schema.steps.c, schema.ledger.c, schema.q_moves.c
_TYPES = {
    **dict.fromkeys(("step", "epoch", "rank_recall", "rank_select"), pa.int64()),
    **dict.fromkeys(
        ("reward", "seconds", "similarity", "similarity_z", "q", "q_z", "score", "propensity"), pa.float64()
    ),
    "selected": pa.bool_(),
}
_NOT_FROM_STEPS = or_(
    _LEDGER.kind == EventKind.SETTINGS_CHANGED,
    _LEDGER.kind.in_(REWARDING) & ~((_LEDGER.kind == EventKind.REWARD_GIVEN) & (_LEDGER.source == "environment")),
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


class MemoryBank:
    """Memories, traces and the ledger of any number of runs. Threads may share one handle.

    `handle` is a name for this opened bank that no other has, not even one at the same place later.
    """

    def __init__(self, uri: str, database: Database, vectors: Vectors) -> None:
        self.uri = uri
        self.handle = secrets.token_hex(8)
        self._database, self._vectors = database, vectors
        self._lock = database.lock
        self._state = BankState(database, vectors)
        self._ledger = Ledger(self._state)
        self._traces: OrderedDict[str, StepTrace] = OrderedDict()
        self._last = LastStored(database)
        values = database.description()
        self.embedder = EmbedderIdentity(
            values["embedder"],
            int(values["dimension"]),
            values.get("embedder_digest", ""),
            values.get("embedder_version", ""),
            tuple(json.loads(values.get("embedders_before", "[]"))),
        )
        self._is_sealed = "digest" in values
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
        self.judgements = Judgements(*parts)

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
        something is there already, `BankUnreachable`, `BankReadOnly`, `BankMisplaced`, `BankFull`.
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
        with place.left_as_it_was():
            vectors = place.make_vectors(dimension)
            database = Database.at(place.database, place.shown)
            with database.closed_on_failure():
                database.create(values)
                bank = cls(place.uri, database, vectors)
                bank._last.accept()
                return bank

    @classmethod
    def open(cls, uri: str, embedder: Embedder | None = None) -> Self:
        """Open a bank; without an embedder it can be looked at.

        Raises `BankMissing`, `NotABank`, `BankTooNew`, `BankDamaged`, `BankUnreachable`, or `EmbedderMismatch` when
        `embedder` is not the one that made the vectors.
        """
        place = place_of(str(uri))
        place.must_be_there()
        database = Database.at(place.database, place.shown)
        with database.closed_on_failure():
            dimension = int(database.description()["dimension"])
            bank = cls(place.uri, database, place.open_vectors(dimension))
            if embedder is not None:
                bank.must_match(embedder)
            if bank.missing:
                log.warning("%s", bank.missing)
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
                self._last.end()
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

        What is `missing` counts as given up. Raises `InputError` where the policy of a run is not installed.
        """
        with self.alone():
            for info in self.runs():
                self._state.must_know_rule(info)
            for run in self._state.ids():
                self._state.of(run).make_anew()
            for run in self._state.ids():
                self._state.save(run)
        self._state.stored()
        self._last.accept()

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
            self._last.forget()
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

        Raises `InputError` for a name that is taken or that no run may have, `NotAllowed`.
        """
        with self.alone():
            if info.id in self._state.ids():
                raise InputError(f"This bank has a run “{info.id}” already. Choose another name.")
            if not is_run_name(info.id):
                raise InputError(f"{RUN_NAME} Choose another name.")
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

    # --- reading ------------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        with self._lock:
            return [self._state.run(run) for run in self._state.ids()]

    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        with self._lock:
            return self._state.run(run)

    def settings(self, run: str, step: int | None = None) -> Mapping[str, Any]:
        """The settings in force now, or at `step`."""
        with self._lock:
            return self._state.settings_at(run)(sys.maxsize if step is None else step)

    def next_step(self, run: str) -> int:
        """The number of the step that comes next."""
        with self._lock:
            state = self._state.of(run)
            return state.info.first_step if state.newest is None else state.newest + 1

    @property
    def missing(self) -> str:
        """A sentence where something that was stored in this bank is not in it any more, else ""."""
        return self._last.missing

    @property
    def last_saved(self) -> datetime | None:
        """When this handle last appended something; None when it has not."""
        return self._ledger.last_saved

    def saved(self, run: str) -> datetime | None:
        """When something was last stored, as far as is known: by this handle, else the newest step of `run`."""
        with self._lock:
            row = self._state.step_row(run, self.next_step(run) - 1)
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
        return f"{self.handle}·{self._state.version}"

    @property
    def clock(self) -> int:
        """The highest `seq` of the ledger: the next event has one more."""
        with self._lock:
            return self._state.clock

    @property
    def facts(self) -> int:
        """How many facts this handle has taken in: grows with every append, whoever made it."""
        return self._state.facts

    def view(self, run: str) -> MemoryView:
        """What the run sees now."""
        with self._lock:
            return self._state.view(run)

    def as_of(self, run: str, step: int) -> MemoryView:
        """What the run saw when step `step` had ended and the next had not begun; 0 is its start."""
        with self._lock:
            return self._state.memories.view(self._state.past(run, step))

    def seen_until(self, run: str, step: int, epoch: int) -> int:
        """The step after which the memory stood that a step of an epoch recalls from: the one before its mini-batch.

        A mini-batch has `batch_size` steps of one epoch, the last perhaps fewer; with 1 it is the step before.
        """
        with self._lock:
            return self._state.seen_until(run, step, epoch)

    def walk(self, run: str) -> Iterator[tuple[int, MemoryView]]:
        """Every finished step with what it recalled from: `as_of(run, seen_until(run, step, epoch))`, in one pass.

        The view changes in place from one to the next. Steps that end meanwhile are not met. Raises `UnknownRun`.
        """
        with self._lock:
            # Its first step makes the list of all steps, so nothing later than `moving` covers can come.
            steps = self._state.walk(run)
            following = next(steps, None)
            moving = MovingView(self._state.memories, self._state.live(run))
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
            known = self._state.live(run).utilities
            return {memory_id: known[memory_id] for memory_id in memory_ids if memory_id in known}

    def memory_count(self, run: str, as_of: int | None = None) -> int:
        """How many memories the run knows, now or as of a step."""
        with self._lock:
            return len(self._fold(run, as_of).utilities)

    def unmoved(self, run: str) -> str:
        """A sentence where no q of a run follows its rewards, as the policy that says how is not installed; else ""."""
        info = self.run(run)
        if is_installed(info.policy):
            return ""
        with self._lock:
            self._state.live(run)
            self.flush()
            credited = select(func.count(), func.sum(case((_MOVES.before != _MOVES.after, 1), else_=0))).where(
                _MOVES.run == run, _MOVES.reward.is_not(None)
            )
            ((rewards, moves),) = self._database.rows(credited)
        if not rewards or moves:
            return ""
        return (
            f"No reward has moved a q of run “{run[:80]}”: its policy “{info.policy[:80]}”, which says how they move, "
            "is not installed here, so each q stands as it began."
        )

    def pinned(self, run: str) -> frozenset[str]:
        """Of the memories that the run sees, those that it must not forget."""
        with self._lock:
            fold = self._state.live(run)
            return frozenset(fold.pinned.intersection(fold.utilities))

    def away(self, run: str) -> Mapping[str, Utility]:
        """q and visits of every memory that the run knew once and no longer sees."""
        with self._lock:
            return dict(self._state.live(run).away)

    def histories(self, run: str) -> dict[str, Sequence[UtilityPoint]]:
        """How every q of the run came about; what it began with has the step before its first."""
        with self._lock:
            histories = self._state.live(run).histories
            histories.read()
            return self._state.beginning_before(run, histories)

    def histories_of(self, run: str, memory_ids: Iterable[str]) -> dict[str, Sequence[UtilityPoint]]:
        """The same, of those of `memory_ids` that the run has ever known."""
        with self._lock:
            known = self._state.live(run).histories
            return self._state.beginning_before(run, {i: known[i] for i in memory_ids if i in known})

    def history(self, run: str, memory_id: str, as_of: int | None = None) -> list[UtilityPoint]:
        """How the memory's q came about, from its writing on."""
        with self._lock:
            return list(self._fold(run, as_of).histories.get(memory_id, ()))

    def active_rewards(self, run: str, step: int, step_id: str, as_of: int | None = None) -> list[LedgerEvent]:
        """The rewards that stand for an attempt at a step, finished or not: the environment's and each person's.

        With `as_of`, those that stood when that step had ended and the next had not begun.
        """
        with self._lock:
            events = self._state.at(run, step) if run in self._state.ids() else ()
            known = (e for e in events if e.step_id == step_id and (as_of is None or e.known_at <= as_of))
            return active_rewards(sorted(known, key=in_ledger))

    def effective_reward(self, run: str, step: int) -> float | None:
        """The reward that a finished step has now, by the run's rules."""
        with self._lock:
            row = self._state.step_row(run, step)
            if row is None:
                return None
            return effective_reward(self.active_rewards(run, step, row.id), self.settings(run, step))

    def memory(self, memory_id: str) -> Memory:
        """A memory's text; raises `BankError` when there is none of that id."""
        with self._lock:
            self._must_hold(memory_id)
            return self._state.memories[memory_id]

    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A memory's vector (d,); raises `BankError` when there is none of that id."""
        with self._lock:
            self._must_hold(memory_id)
            return self._state.memories.embedding(memory_id)

    def _must_hold(self, memory_id: str) -> None:
        if memory_id not in self._state.memories:
            raise BankError(f"This bank holds no memory “{memory_id[:80]}”.")

    def memories(self, run: str | None = None) -> list[Memory]:
        """All memories, oldest first; of one run, those it sees now."""
        with self._lock:
            ids = self.memory_ids() if run is None else self._state.live(run).utilities
            return [self._state.memories[memory_id] for memory_id in ids]

    def memory_ids(self) -> list[str]:
        """The ids of all memories that a run has come to know, oldest first."""
        with self._lock:
            self.flush()
            named = self._state.named()
            return [memory_id for memory_id in self._state.memories if memory_id in named]

    def has_step(self, run: str, step: int) -> bool:
        """Whether the run has a finished step of this number."""
        with self._lock:
            return self._state.step_row(run, step) is not None

    def attempt(self, step_id: str) -> StepRow | None:
        """The finished step of this id, which no other step of the bank has; None where there is none."""
        with self._lock:
            self.flush()
            return next(map(codec.step_of, self._database.rows(codec.STEP_ROWS.where(_STEPS.id == step_id))), None)

    def unusable_reports(self, run: str) -> int:
        """In how many steps of a run something that another agent reported could not be used."""
        with self._lock:
            self.flush()
            return steps_with_unusable_reports(self._database, run)

    def metadata(self, run: str) -> dict[str, Mapping[str, Any]]:
        """What is known of memories besides their texts (user, tags, source …), as JSON, of those that have any."""
        with self._lock:
            self.flush()
            brought = _LEDGER.run == run, _LEDGER.kind.in_(BRINGS_IN), _LEDGER.payload.contains(f'"{METADATA}"')
            events = sorted(self._state.events_where(*brought), key=in_ledger)
        return {
            name: event.payload[METADATA] for event in events for name in event.memory_ids if METADATA in event.payload
        }

    def step_rows(self, run: str) -> list[StepRow]:
        """The finished steps of a run in short."""
        with self._lock:
            return self._state.step_rows(run)

    def trace(self, run: str, step: int) -> StepTrace:
        """The whole record of a finished step. Raises `InputError` when the run has no such step."""
        with self._lock:
            row = self._state.step_row(run, step)
            if row is None:
                last = self.next_step(run) - 1
                raise InputError(f"Run {run} has no step {step}: it has {last} finished steps.")
            if row.id not in self._traces:
                self.flush()
                ((trace, embedding),) = self._database.rows(
                    select(_STEPS.trace, _STEPS.embedding).where(_STEPS.id == row.id)
                )
                self._keep_trace(_readable(trace, embedding, run, step))
            return self._traces[row.id]

    def traces(self, run: str, steps: tuple[int, int] | None = None) -> list[StepTrace]:
        """The whole records of the finished steps of a run, or of the first to the last of `steps`, read in one go."""
        with self._lock:
            found = self._step_columns(run, ("step", "trace", "embedding"), steps)
        return [_readable(trace, embedding, run, step) for step, trace, embedding in found]

    def each_trace(self, run: str, steps: tuple[int, int] | None = None) -> Iterator[StepTrace]:
        """The same, one after the other: of a long run only some are held at a time."""
        first, last = steps or (self.run(run).first_step, self.next_step(run) - 1)
        for start in range(first, last + 1, READ_AT_ONCE):
            yield from self.traces(run, (start, min(last, start + READ_AT_ONCE - 1)))

    def step_table(self, run: str, columns: Sequence[str]) -> pa.Table:
        """The rows of `steps` of a run in the order of their steps, with these of its columns."""
        with self._lock:
            found = self._step_columns(run, columns)
        made = {}
        for name, values in zip(columns, zip(*found, strict=True) if found else [()] * len(columns), strict=True):
            if name == "embedding":
                listed = [None if value is None else codec.vector_of(value) for value in values]
                made[name] = codec.vectors_of(listed, self._vectors.dimension)
            else:
                made[name] = pa.array(values, _TYPES.get(name, pa.string()))
        return pa.table(made)

    def candidate_table(self, run: str, columns: Sequence[str]) -> pa.Table:
        """The rows of `candidates` that a decision of a run was about, with these columns of `candidates` and
        `steps`; in the order of their steps, and within one in that of the decision.
        """
        self.run(run)
        seen = schema.candidates.c
        of = {**dict(_STEPS.items()), **dict(seen.items())}
        query = (
            select(*(of[name] for name in columns))
            .join_from(schema.candidates, schema.steps, (seen.run == _STEPS.run) & (seen.step == _STEPS.step))
            .where(seen.run == run, seen.q.is_not(None))
            .order_by(seen.step, seen.position)
        )
        with self._lock:
            self.flush()
            found = self._database.rows(query)
        listed = zip(*found, strict=True) if found else [()] * len(columns)
        arrays = [pa.array(values, _TYPES.get(name, pa.string())) for name, values in zip(columns, listed, strict=True)]
        return pa.table(arrays, names=list(columns))

    def _step_columns(
        self, run: str, columns: Sequence[str], steps: tuple[int, int] | None = None
    ) -> Sequence[tuple[Any, ...]]:
        self.run(run)
        self.flush()
        query = select(*(_STEPS[name] for name in columns)).where(_STEPS.run == run).order_by(_STEPS.step)
        if steps is not None:
            query = query.where(_STEPS.step.between(*steps))
        return self._database.rows(query)

    def matching_steps(self, run: str, query: StepQuery) -> list[int]:
        """The numbers of the finished steps of a run that the query lets in, in their order."""
        with self._lock:
            self.flush()
            return matching_steps(self._database, run, query)

    def found_steps(self, run: str, steps: Sequence[int]) -> list[FoundStep]:
        """The finished steps of these numbers as rows of a table, in the order given."""
        with self._lock:
            self.flush()
            return [
                row if row.as_it_ended else replace(row, now=self.effective_reward(run, row.step))
                for row in found_steps(self._database, run, steps)
            ]

    def late_changes(self, run: str) -> list[int]:
        """For each reward, credit or setting that came when a later step than its own had begun: that later step."""
        with self._lock:
            self.run(run)
            self.flush()
            late = select(_LEDGER.known_at).where(_LEDGER.run == run, _NOT_FROM_STEPS, _LEDGER.known_at > _LEDGER.step)
            return sorted(known_at for (known_at,) in self._database.rows(late))

    def outside_changes(self, run: str) -> int:
        """How many rewards, credits and settings came from others than the steps themselves, in the run and its bases:
        while this stays, what was learned from its finished steps stays.
        """
        with self._lock:
            info = self.run(run)
            self.flush()
            count = select(func.count()).select_from(schema.ledger).where(_LEDGER.run == run, _NOT_FROM_STEPS)
            return int(self._database.scalar(count)) + (self.outside_changes(info.base) if info.base else 0)

    def events(self, run: str | None = None) -> list[LedgerEvent]:
        """The ledger, in the order in which its events were appended by their clock; of "", what is of no run."""
        with self._lock:
            if run:
                return sorted(self._state.events(run), key=in_ledger)
            self.flush()
            return sorted(self._state.events_where(*(() if run is None else (_LEDGER.run == "",))), key=in_ledger)

    def events_of(self, event_ids: Iterable[str]) -> list[LedgerEvent]:
        """The events of these ids that are known, in the order given."""
        with self._lock:
            return self._state.events_of(event_ids)

    def raters(self, run: str) -> set[str]:
        """Everybody in whose name there has ever been a reward in a run, whether it stands or not."""
        with self._lock:
            self.flush()
            given = _LEDGER.run == run, _LEDGER.kind == EventKind.REWARD_GIVEN, _LEDGER.source == "person"
            return {rater for (rater,) in self._database.rows(select(_LEDGER.rater).where(*given).distinct())}

    def lately(self) -> list[LedgerEvent]:
        """The newest event of each person who did something, for themselves or others (`actor_of`), newest first."""
        with self._lock:
            self.flush()
            people = [person for (person,) in self._database.rows(select(_LEDGER.actor).distinct()) if person]
            newest = [max(self._state.by_actor(person), key=in_ledger) for person in people]
        return sorted(newest, key=in_ledger, reverse=True)

    def unfinished_steps(self, run: str) -> list[int]:
        """Steps that left rewards or memories in the ledger and that no attempt has ended."""
        with self._lock:
            if run not in self._state.ids():
                return []
            self.flush()
            ended = select(_STEPS.id)
            attempts = select(_LEDGER.step).where(
                _LEDGER.run == run, _LEDGER.step_id != "", _LEDGER.step_id.not_in(ended)
            )
            numbers = select(_STEPS.step).where(_STEPS.run == run)
            query = attempts.where(_LEDGER.step.not_in(numbers)).distinct().order_by(_LEDGER.step)
            return [step for (step,) in self._database.rows(query)]

    def cut_short(self, run: str) -> frozenset[str]:
        """The attempts, by id, at the step that comes next that never ended and left events, none of which counts."""
        with self._lock:
            if run not in self._state.ids():
                return frozenset()
            events = self._state.at(run, self.next_step(run))
            return frozenset({event.step_id for event in events if event.step_id} - self._state.committed(events))

    def refresh(self) -> bool:
        """Take in what other processes appended; True when there was something."""
        with self._lock:
            return self._state.catch_up()

    def _fold(self, run: str, as_of: int | None) -> Fold:
        return self._state.live(run) if as_of is None else self._state.past(run, as_of)

    def _keep_trace(self, trace: StepTrace) -> None:
        self._traces[trace.id] = trace
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)

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
        if op.op in WRITING and METADATA in op.data:
            fields["payload"] = {METADATA: op.data[METADATA]}
        if op.op == "ADD":
            fields["value"] = op.q0
        elif op.op != "DELETE":
            fields["payload"] = {**fields.get("payload", {}), "replaces": list(op.replaces)}
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
                        self._last.begin()
                        self._state.store()
                        if not self._is_sealed:
                            self._database.seal()
                self._is_sealed |= is_storing
                self._state.stored()
                if is_storing:
                    self._last.stored()
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


def _readable(trace: str, embedding: bytes | None, run: str, step: int) -> StepTrace:
    """The record in a row of `steps`. Raises `BankDamaged` when it cannot be read."""
    try:
        return codec.trace_of(trace, embedding)
    except (ValueError, KeyError) as error:
        raise BankDamaged(f"Step {step} of run {run} cannot be read. Nothing was changed.") from error
