"""The finished steps of a run as tables and numbers, and the attempts that never ended: asked of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlalchemy import func, or_, select

from memrl_core.bank.facts import locked
from memrl_core.bank.ledger import Part
from memrl_core.bank.people.ratings import Ratings
from memrl_core.bank.step_search import FoundStep, StepQuery, found_steps, matching_steps, steps_with_unusable_reports
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.codec import StepRow
from memrl_core.bank.walk import seen_until
from memrl_core.learning import REWARDING
from memrl_core.records import EventKind

_STEPS, _LEDGER = schema.steps.c, schema.ledger.c
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


class Steps(Part):
    """What is known of the finished steps of a run without reading their traces. All raise `UnknownRun`."""

    @locked
    def rows(self, run: str) -> list[StepRow]:
        """The finished steps of a run in short, in order."""
        return self._facts.step_rows(run)

    @locked
    def has(self, run: str, step: int) -> bool:
        """Whether the run has a finished step of this number."""
        return self._facts.step_row(run, step) is not None

    @locked
    def matching(self, run: str, query: StepQuery) -> list[int]:
        """The numbers of the finished steps of a run that the query lets in, in their order."""
        return matching_steps(self._facts.database, run, query)

    @locked
    def found(self, run: str, steps: Sequence[int]) -> list[FoundStep]:
        """The finished steps of these numbers as rows of a table, in the order given."""
        standing = Ratings(self._facts, self._q, self._ledger)
        return [
            row if row.as_it_ended else replace(row, now=standing.effective(run, row.step))
            for row in found_steps(self._facts.database, run, steps)
        ]

    def table(self, run: str, columns: Sequence[str], steps: tuple[int, int] | None = None) -> pa.Table:
        """The rows of `steps` of a run in the order of their steps, with these of its columns.

        With `steps`, those from the first to the last of them.
        """
        asked = select(*(_STEPS[name] for name in columns)).where(_STEPS.run == run).order_by(_STEPS.step)
        if steps is not None:
            asked = asked.where(_STEPS.step.between(*steps))
        with self._facts.database.lock:
            self._facts.run(run)
            found = self._facts.database.rows(asked)
        return self._table(columns, found)

    def candidates(self, run: str, columns: Sequence[str]) -> pa.Table:
        """The rows of `candidates` that a decision of a run was about, with these columns of `candidates` and
        `steps`; in the order of their steps, and within one in that of the decision.
        """
        seen = schema.candidates.c
        of = {**dict(_STEPS.items()), **dict(seen.items())}
        query = (
            select(*(of[name] for name in columns))
            .join_from(schema.candidates, schema.steps, (seen.run == _STEPS.run) & (seen.step == _STEPS.step))
            .where(seen.run == run, seen.q.is_not(None))
            .order_by(seen.step, seen.position)
        )
        with self._facts.database.lock:
            self._facts.run(run)
            found = self._facts.database.rows(query)
        return self._table(columns, found)

    def _table(self, columns: Sequence[str], rows: Sequence[Any]) -> pa.Table:
        """Rows of a query as a table."""
        types = {**_TYPES, "embedding": pa.list_(pa.float32(), self._facts.vectors.dimension)}
        listed: Any = zip(*rows, strict=True) if rows else [()] * len(columns)
        arrays = []
        for name, values in zip(columns, listed, strict=True):
            if name == "embedding":
                values = [None if value is None else codec.vector_of(value) for value in values]
            arrays.append(pa.array(values, types.get(name, pa.string())))
        return pa.table(arrays, names=list(columns))

    @locked
    def attempt(self, step_id: str) -> StepRow | None:
        """The finished step of this id, which no other step of the bank has; None where there is none."""
        rows = select(*(_STEPS[name] for name in codec.STEP_COLUMNS)).where(_STEPS.id == step_id)
        return next((StepRow(*row) for row in self._facts.database.rows(rows)), None)

    @locked
    def unusable_reports(self, run: str) -> int:
        """In how many steps of a run something that another agent reported could not be used."""
        return steps_with_unusable_reports(self._facts.database, run)

    @locked
    def unfinished(self, run: str) -> list[int]:
        """Steps that left rewards or memories in the ledger and that no attempt has ended."""
        if run not in self._facts.ids():
            return []
        ended = select(_STEPS.id)
        attempts = select(_LEDGER.step).where(_LEDGER.run == run, _LEDGER.step_id != "", _LEDGER.step_id.not_in(ended))
        numbers = select(_STEPS.step).where(_STEPS.run == run)
        query = attempts.where(_LEDGER.step.not_in(numbers)).distinct().order_by(_LEDGER.step)
        return [step for (step,) in self._facts.database.rows(query)]

    @locked
    def cut_short(self, run: str) -> frozenset[str]:
        """The attempts, by id, at the step that comes next that never ended and left events, none of which counts."""
        if run not in self._facts.ids():
            return frozenset()
        events = self._facts.at(run, self._facts.next_step(run))
        return frozenset({event.step_id for event in events if event.step_id} - self._facts.committed(events))

    @locked
    def seen_until(self, run: str, step: int, epoch: int) -> int:
        """The step after which the memory stood that a step of an epoch recalls from: the one before its mini-batch.

        A mini-batch has `batch_size` steps of one epoch, the last perhaps fewer; with 1 it is the step before.
        """
        return seen_until(self._facts, run, step, epoch)

    @locked
    def late_changes(self, run: str) -> list[int]:
        """For each reward, credit or setting that came when a later step than its own had begun: that later step."""
        self._facts.run(run)
        late = select(_LEDGER.known_at).where(_LEDGER.run == run, _NOT_FROM_STEPS, _LEDGER.known_at > _LEDGER.step)
        return sorted(known_at for (known_at,) in self._facts.database.rows(late))

    @locked
    def changed_later(self, run: str) -> list[int]:
        """For each reward and credit that did not come from a step itself, and each that was taken back: the step that
        it is about, in the order in which they were appended.
        """
        self._facts.run(run)
        about = select(_LEDGER.step).where(
            _LEDGER.run == run, _NOT_FROM_STEPS, _LEDGER.kind != EventKind.SETTINGS_CHANGED
        )
        return [step for (step,) in self._facts.database.rows(about.order_by(_LEDGER.position))]

    @locked
    def outside_changes(self, run: str) -> int:
        """How many rewards, credits and settings came from others than the steps themselves, in the run and its bases:
        while this stays, what was learned from its finished steps stays.
        """
        info = self._facts.run(run)
        count = select(func.count()).select_from(schema.ledger).where(_LEDGER.run == run, _NOT_FROM_STEPS)
        return int(self._facts.database.scalar(count)) + (self.outside_changes(info.base) if info.base else 0)
