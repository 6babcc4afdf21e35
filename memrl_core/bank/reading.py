"""What every reader of a bank sees: its runs, memories, steps and events, and the q that follow from them."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import and_, or_, select

from memrl_core.bank.facts import Facts, locked
from memrl_core.bank.finished_steps import Steps
from memrl_core.bank.ledger import Credits, Ledger, Notes, People
from memrl_core.bank.matrix import MovingView
from memrl_core.bank.operations import METADATA
from memrl_core.bank.people.batches import Batches
from memrl_core.bank.people.editing import Editing
from memrl_core.bank.people.judgements import Judgements
from memrl_core.bank.people.ratings import Ratings
from memrl_core.bank.people.undo import Undo
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.database import Database
from memrl_core.bank.storage.last import LastStored
from memrl_core.bank.storage.layouts import Layouts
from memrl_core.bank.storage.vectors import Vectors
from memrl_core.bank.utilities import Utilities
from memrl_core.bank.walk import walk
from memrl_core.errors import BankError
from memrl_core.learning import BRINGS_IN, REPLACES, in_ledger
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace, Utility, UtilityPoint
from memrl_core.retrieval.view import MemoryView

READ_AT_ONCE = 100
"""So many traces are read and held by who looks through all of a run."""

_STEPS, _LEDGER, _MOVES = schema.steps.c, schema.ledger.c, schema.q_moves.c


class Reader:
    """Memories, traces and the ledger of any number of runs, as they are stored. Threads may share one.

    `handle` is a name for this opened bank that no other has, not even one at the same place later.
    """

    def __init__(self, uri: str, database: Database, vectors: Vectors) -> None:
        self.uri = uri
        self.handle = secrets.token_hex(8)
        self._database, self._vectors = database, vectors
        self._lock = database.lock
        self._facts = Facts(database, vectors)
        self._q = Utilities(self._facts)
        self._last = LastStored(database)
        self.layouts = Layouts(database)
        parts = self._facts, self._q, Ledger(self._facts)
        self.steps = Steps(*parts)
        self.notes = Notes(*parts)
        self.credits = Credits(*parts)
        self.ratings = Ratings(*parts)
        self.editing = Editing(*parts)
        self.undo = Undo(*parts)
        self.people = People(*parts)
        self.batches = Batches(*parts)
        self.judgements = Judgements(*parts)

    @locked
    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        return [self._facts.run(run) for run in self._facts.ids()]

    @locked
    def run(self, run: str) -> RunInfo:
        """One run; raises `UnknownRun`."""
        return self._facts.run(run)

    @locked
    def settings(self, run: str, step: int | None = None) -> Mapping[str, Any]:
        """The settings in force now, or at `step`."""
        return self._facts.settings_at(run)(sys.maxsize if step is None else step)

    @locked
    def next_step(self, run: str) -> int:
        """The number of the step that comes next."""
        return self._facts.next_step(run)

    @property
    def missing(self) -> str:
        """A sentence where something that was stored in this bank is not in it any more, else ""."""
        return self._last.missing

    @locked
    def saved(self, run: str | None = None) -> datetime | None:
        """When this handle last stored something; before it has, when the newest step of `run` was stored."""
        if self._facts.last_saved is not None or run is None:
            return self._facts.last_saved
        row = self._facts.step_row(run, self.next_step(run) - 1)
        if row is None:
            return None
        try:
            at = datetime.fromisoformat(row.created)
        except ValueError:  # A step may come from a file.
            return None
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    @property
    def state(self) -> str:
        """A name for what this handle knows now: another one after every fact, and in every other handle."""
        return f"{self.handle}·{self._facts.version}"

    @property
    @locked
    def clock(self) -> int:
        """The highest `seq` of the ledger: the next event has one more."""
        return self._facts.clock

    @property
    def facts(self) -> int:
        """How many facts this handle has taken in: grows with every append, whoever made it."""
        return self._facts.facts

    @locked
    def view(self, run: str, as_of: int | None = None) -> MemoryView:
        """What the run sees now, or saw when step `as_of` had ended and the next had not begun; 0 is its start."""
        return self._q.view(run) if as_of is None else self._facts.memories.view(self._q.past(run, as_of))

    def walk(self, run: str) -> Iterator[tuple[int, MemoryView]]:
        """Every finished step with what it recalled from: `view(run, steps.seen_until(run, step, epoch))`.

        Read in one pass: the view changes in place from one to the next. Steps that end meanwhile are not met. Raises
        `UnknownRun`.
        """
        with self._lock:
            # Its first step makes the list of all steps, so nothing later than `moving` covers can come.
            steps = walk(self._facts, self._q, run)
            following = next(steps, None)
            moving = MovingView(self._facts.memories, self._q.ever_known(run))
        while following is not None:
            step, fold, changed = following
            view = moving.follow(fold, changed)
            yield step, view
            with self._lock:
                following = next(steps, None)

    @locked
    def utilities(
        self, run: str, as_of: int | None = None, *, of: Iterable[str] | None = None
    ) -> Mapping[str, Utility]:
        """q and visits of every memory that the run sees, oldest first, now or as of a step.

        With the ids `of` some memories, in the order given, the others are left out, and now they are not read.
        """
        wanted = None if of is None else list(of)
        if as_of is not None:
            known = self._q.earlier(run, as_of)
        else:
            known = (self._q.now(run) if wanted is None else self._q.known(run, wanted)).utilities
        return dict(known) if wanted is None else {i: known[i] for i in wanted if i in known}

    @locked
    def memory_count(self, run: str, as_of: int | None = None) -> int:
        """How many memories the run knows, now or as of a step."""
        if as_of is not None:
            return len(self._q.past(run, as_of).utilities)
        known = self._facts.of(run)
        if known.count is None:
            ((known.count,),) = self._database.raw("SELECT count(*) FROM q_values WHERE run = ? AND NOT away", (run,))
        return known.count

    @locked
    def histories(self, run: str, of: Iterable[str] | None = None) -> dict[str, Sequence[UtilityPoint]]:
        """How every q of the run came about, or those of the ids in `of`, in the order given.

        What the run began with has the step before its first.
        """
        wanted = None if of is None else list(of)
        known = self._q.histories(run, wanted)
        return self._q.beginning_before(run, known if wanted is None else {i: known[i] for i in wanted if i in known})

    @locked
    def history(self, run: str, memory_id: str, as_of: int | None = None) -> list[UtilityPoint]:
        """How the memory's q came about, from its writing on."""
        found = self._q.histories(run, [memory_id]) if as_of is None else self._q.past(run, as_of).histories
        return list(found.get(memory_id, ()))

    @locked
    def memory(self, memory_id: str) -> Memory:
        """A memory's text; raises `BankError` when there is none of that id."""
        self._must_hold(memory_id)
        return self._facts.memories[memory_id]

    @locked
    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A memory's vector (d,); raises `BankError` when there is none of that id."""
        self._must_hold(memory_id)
        return self._facts.memories.embedding(memory_id)

    def _must_hold(self, memory_id: str) -> None:
        if memory_id not in self._facts.memories:
            raise BankError(f"This bank holds no memory “{memory_id[:80]}”.")

    @locked
    def memories(self, run: str | None = None) -> list[Memory]:
        """All memories, oldest first; of one run, those it sees now."""
        ids = self.memory_ids() if run is None else self._q.now(run).utilities
        return [self._facts.memories[memory_id] for memory_id in ids]

    @locked
    def memory_ids(self) -> list[str]:
        """The ids of all memories that a run has come to know, oldest first."""
        named = self._facts.named()
        return [memory_id for memory_id in self._facts.memories if memory_id in named]

    @locked
    def holds(self, memory_id: str) -> bool:
        """Whether a run has come to know a memory of this id."""
        known = "SELECT 1 FROM q_values WHERE run IN (SELECT id FROM runs) AND memory_id = ? LIMIT 1"
        return memory_id in self._facts.memories and bool(self._database.raw(known, (memory_id,)))

    @locked
    def metadata(self, run: str) -> dict[str, Mapping[str, Any]]:
        """What is known of memories besides their texts (user, tags, source …), as JSON, of those that have any.

        Those that a run began with are among them. Where nothing is said of a memory that takes the place of others, it
        has what these have in common.
        """
        found: dict[str, Mapping[str, Any]] = {}
        for event in self._described(run):
            first, *others = [found.get(name, {}) for name in event.payload.get("replaces", ())] or [{}]
            common = {key: known for key, known in first.items() if all(key in o and o[key] == known for o in others)}
            if known := event.payload.get(METADATA, common):
                found |= dict.fromkeys(event.memory_ids, known)
        return found

    def _described(self, run: str) -> list[LedgerEvent]:
        """The events that brought memories into a run, or into the one it started from, and may say more of them."""
        info, inherited = self._facts.run(run), list[LedgerEvent]()
        if info.base:
            inherited = [event for event in self._described(info.base) if event.known_at <= info.base_step]
        describes = and_(_LEDGER.kind.in_(BRINGS_IN), _LEDGER.payload.contains(f'"{METADATA}"'))
        brought = _LEDGER.run == run, or_(describes, _LEDGER.kind.in_(REPLACES))
        return [*inherited, *sorted(self._facts.events_where(*brought), key=in_ledger)]

    @locked
    def trace(self, run: str, step: int) -> StepTrace:
        """The whole record of a finished step. Raises `InputError` when the run has no such step."""
        return self._facts.trace(run, step)

    def traces(self, run: str, steps: tuple[int, int] | None = None) -> list[StepTrace]:
        """The whole records of the finished steps of a run, or of the first to the last of `steps`, read in one go."""
        self.run(run)
        query = select(_STEPS.step, _STEPS.trace, _STEPS.embedding).where(_STEPS.run == run).order_by(_STEPS.step)
        found = self._database.rows(query if steps is None else query.where(_STEPS.step.between(*steps)))
        return [codec.trace_at(trace, embedding, run, step) for step, trace, embedding in found]

    def each_trace(self, run: str, steps: tuple[int, int] | None = None) -> Iterator[StepTrace]:
        """The same, one after the other: of a long run only some are held at a time."""
        first, last = steps or (self.run(run).first_step, self.next_step(run) - 1)
        for start in range(first, last + 1, READ_AT_ONCE):
            yield from self.traces(run, (start, min(last, start + READ_AT_ONCE - 1)))

    @locked
    def events(self, run: str | None = None, kinds: Collection[EventKind] = ()) -> list[LedgerEvent]:
        """The ledger, in the order in which its events were appended by their clock; of "", what is of no run.

        With `kinds`, the events of these alone: where there are few, the others are not read. Raises `UnknownRun`.
        """
        if run:
            return sorted(self._facts.events(run, kinds), key=in_ledger)
        of_no_run = () if run is None else (_LEDGER.run == "",)
        of_kinds = (_LEDGER.kind.in_(kinds),) if kinds else ()
        return sorted(self._facts.events_where(*of_no_run, *of_kinds), key=in_ledger)

    @locked
    def events_of(self, event_ids: Iterable[str]) -> list[LedgerEvent]:
        """The events of these ids that are known, in the order given."""
        return self._facts.events_of(event_ids)

    @locked
    def refresh(self) -> bool:
        """Take in what other processes appended; True when there was something."""
        self._facts.look()
        return self._facts.refreshed()
