"""What can be read of a bank: runs and their settings, views, utilities, histories, traces, events."""

from __future__ import annotations

import secrets
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import case, func, or_, select

from memrl_core.bank.ledger import Ledger
from memrl_core.bank.matrix import MovingView
from memrl_core.bank.state import BankState
from memrl_core.bank.step_search import FoundStep, StepQuery, found_steps, matching_steps
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.codec import StepRow
from memrl_core.bank.storage.schema import Database
from memrl_core.bank.storage.vectors import LanceVectors, Vectors
from memrl_core.errors import BankDamaged, BankError, InputError
from memrl_core.learning import REWARDING, Fold, active_rewards, effective_reward, in_ledger
from memrl_core.policies import is_installed
from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace, Utility, UtilityPoint
from memrl_core.retrieval.view import MemoryView

TRACES_KEPT = 256
READ_AT_ONCE = 100
"""So many traces are read and held by who looks through all of a run."""
INDEX_PAYS_FROM = 300_000
"""With fewer memories one product with all of them is as quick as the index (`memrl bench retrieval`)."""

Search = Literal["auto", "exact", "indexed"]
_STEPS, _LEDGER, _MOVES = schema.steps.c, schema.ledger.c, schema.q_moves.c
_TYPES = {
    **dict.fromkeys(("step", "epoch", "rank_recall", "rank_select"), pa.int64()),
    **dict.fromkeys(
        ("reward", "seconds", "similarity", "similarity_z", "q", "q_z", "score", "propensity"), pa.float64()
    ),
    "selected": pa.bool_(),
}
_COLUMNS = (*codec.STEP_COLUMNS, "seconds", "embedding", "trace")
_NOT_FROM_STEPS = or_(
    _LEDGER.kind == EventKind.SETTINGS_CHANGED,
    _LEDGER.kind.in_(REWARDING) & ~((_LEDGER.kind == EventKind.REWARD_GIVEN) & (_LEDGER.source == "environment")),
)


class BankReading:
    """The reading half of a bank; `MemoryBank` adds what is appended.

    `search` says how phase A looks for the nearest memories: by a product with all of them ("exact"), by LanceDB's
    index where the bank has one ("indexed"), or by that only where it pays ("auto"); `by_index` is what came of it.
    `handle` is a name for this opened bank that no other has, not even one at the same place later.
    """

    def __init__(self, uri: str, database: Database, vectors: Vectors, search: Search = "auto") -> None:
        self.search = search
        self.by_index = False
        self.uri = uri
        self.handle = secrets.token_hex(8)
        self._database, self._vectors = database, vectors
        self._lock = database.lock
        self._state = BankState(database, vectors)
        self._ledger = Ledger(self._state)
        self._traces: OrderedDict[str, StepTrace] = OrderedDict()

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
        """What the run sees now. Searched by the index where this handle does so; replays never are."""
        with self._lock:
            view = self._state.view(run)
            return replace(view, nearest=partial(self._nearest, view.rows)) if self.by_index else view

    def index(self) -> None:
        """Index the memories for LanceDB's own search, anew where that was done; a million take minutes.

        From then on this handle searches by it, unless it was opened with `search="exact"`. Raises `InputError` for a
        bank in memory.
        """
        if not isinstance(self._vectors, LanceVectors):
            raise InputError("A bank in memory has no index. Nothing was changed.")
        self.flush()
        self._vectors.index()
        self.by_index = self._searches_by_index()

    def indexed(self) -> int:
        """How many memories are in LanceDB's index; 0 without one."""
        return self._vectors.indexed() if isinstance(self._vectors, LanceVectors) else 0

    def flush(self) -> None:
        """Write what is held back."""
        raise NotImplementedError

    def _searches_by_index(self) -> bool:
        if self.search == "exact" or not isinstance(self._vectors, LanceVectors):
            return False
        if self.search != "indexed" and self._vectors.count() < INDEX_PAYS_FROM:
            return False
        return self._vectors.indexed() > 0

    def _nearest(self, rows: Mapping[str, int], query: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
        """About the `count` rows nearest to `query` (d,), and those that are not stored yet."""
        assert isinstance(self._vectors, LanceVectors)
        found = [rows[memory_id] for memory_id in self._vectors.nearest(query, count) if memory_id in rows]
        waiting = [rows[memory_id] for memory_id in self._state.pending.memories if memory_id in rows]
        return np.unique(np.array([*found, *waiting], dtype=np.int64))

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

    def step_table(
        self, run: str, columns: Sequence[str] | None = None, steps: tuple[int, int] | None = None
    ) -> pa.Table:
        """The rows of `steps` of a run, or of a part of it, in the order of their steps, with these of its columns."""
        wanted = list(_COLUMNS if columns is None else dict.fromkeys(columns))
        with self._lock:
            found = self._step_columns(run, wanted, steps)
        made = {}
        for name, values in zip(wanted, zip(*found, strict=True) if found else [()] * len(wanted), strict=True):
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
        self, run: str, columns: Sequence[str], steps: tuple[int, int] | None
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


def _readable(trace: str, embedding: bytes | None, run: str, step: int) -> StepTrace:
    """The record in a row of `steps`. Raises `BankDamaged` when it cannot be read."""
    try:
        return codec.trace_of(trace, embedding)
    except (ValueError, KeyError) as error:
        raise BankDamaged(f"Step {step} of run {run} cannot be read. Nothing was changed.") from error
