"""Batches: steps of a run that are shared out among raters by name, to be rewarded or to have their recall labelled.

Of some steps, the gold items, the reward or the grades are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from memrl_core.bank.facts import locked
from memrl_core.bank.ledger import Part, WritingPart
from memrl_core.bank.people.roles import person_name
from memrl_core.errors import InputError
from memrl_core.learning import in_ledger
from memrl_core.records import EventKind

LONGEST_BATCH_NAME = 80


class Batch(BaseModel):
    """Steps of one run by number: each rater's part in the order of her queue, and the known rewards of gold items.

    In a batch of the kind recall, `pools` are the memories to grade for each step, in the order in which they are
    shown; `methods` are those whose results they are the union of, and `grades` the known grades of gold items.
    """

    model_config = ConfigDict(frozen=True)

    run: str
    name: str
    parts: Mapping[str, tuple[int, ...]]
    gold: Mapping[int, FiniteFloat] = {}
    overlap: int = 1
    seed: int = 0
    kind: Literal["reward", "recall"] = "reward"
    pools: Mapping[int, tuple[str, ...]] = {}
    grades: Mapping[int, Mapping[str, int]] = {}
    methods: tuple[str, ...] = ()
    id: str = ""
    made_by: str = ""
    created: str = ""
    closed: bool = False


class Batches(Part):
    """What is shared out, in the ledger: a second process sees it, and it goes wherever the bank goes."""

    @locked
    def of(self, run: str = "") -> list[Batch]:
        """The batches of a run, or of all, oldest first; what another program's file calls a batch and is none is not.

        Raises `UnknownRun`.
        """
        if run:
            self._facts.run(run)
        events = sorted(self._facts.of_kind(EventKind.BATCH_MADE, EventKind.BATCH_CLOSED), key=in_ledger)
        closed = {event.revokes for event in events if event.kind is EventKind.BATCH_CLOSED}
        found = []
        for event in events:
            if event.kind is EventKind.BATCH_MADE and run in ("", event.run):
                facts = {"run": event.run, "name": event.reason, "id": event.id, "closed": event.id in closed}
                try:
                    batch = Batch(**{**event.payload, **facts, "made_by": event.rater, "created": event.created})
                except (ValidationError, TypeError):
                    continue
                found.append(batch)
        return found


class BatchesWriter(Batches, WritingPart):
    """Shares steps out and ends that."""

    def make(self, batch: Batch, by: str) -> Batch:
        """Append a batch and return it as stored.

        Raises `InputError` for an impossible name, a step that has not ended or a memory that is not there,
        `NotAllowed`, `UnknownRun`.
        """
        name = " ".join(batch.name.split())
        if not 0 < len(name) <= LONGEST_BATCH_NAME or not name.isprintable():
            raise InputError(f"A batch's name has 1 to {LONGEST_BATCH_NAME} characters. Nothing was saved.")
        parts = {person_name(rater): steps for rater, steps in batch.parts.items()}
        with self._alone():
            run = self._facts.run(batch.run)
            for step in sorted({step for steps in parts.values() for step in steps}):
                if self._facts.step_row(run.id, step) is None:
                    raise InputError(f"Run {run.id} has no finished step {step}. Nothing was saved.")
            for memory_id in {memory_id for pool in batch.pools.values() for memory_id in pool}:
                if memory_id not in self._facts.memories:
                    raise InputError(f"This bank holds no memory “{memory_id[:80]}”. Nothing was saved.")
            newest, shared = self._facts.of(run.id).newest or 0, batch.model_copy(update={"parts": parts})
            stored = {"parts", "gold", "overlap", "seed"}
            if batch.kind == "recall":
                stored = {"kind", "parts", "pools", "grades", "methods", "overlap", "seed"}
            facts = shared.model_dump(mode="json", include=stored)
            event = self._ledger.by_person(by, run.id, newest, "", EventKind.BATCH_MADE, reason=name, payload=facts)
        return next(made for made in self.of(run.id) if made.id == event.id)

    def close(self, batch_id: str, by: str) -> None:
        """Append that a batch asks for no more ratings. Raises `InputError` when there is none, `NotAllowed`."""
        with self._alone():
            self._ledger.taken_back(by, batch_id, EventKind.BATCH_MADE, EventKind.BATCH_CLOSED, "batch")
