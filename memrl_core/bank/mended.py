"""What a repair has made of the rows of a damaged bank so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from memrl_core.bank import codec
from memrl_core.bank.faults import Row, payload_in
from memrl_core.bank.ledger import now
from memrl_core.records import EventKind, LedgerEvent, RunInfo, StepTrace


@dataclass(frozen=True, slots=True)
class Aside:
    """A row that is not in the repaired bank as it was: what could be read of it, and why."""

    table: str
    row: Row
    reason: str


@dataclass(slots=True)
class Mended:
    """The rows of a repaired bank by table and id, and what became of the others.

    `rebuilt` counts the rows of each table that were made from other tables. `lost_memories` are named and not there.
    `told` are sentences for people.
    """

    memories: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    ledger: dict[str, dict[str, Any]] = field(default_factory=dict)
    places: list[dict[str, Any]] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)
    rebuilt: Counter[str] = field(default_factory=Counter)
    lost_memories: tuple[str, ...] = ()
    told: list[str] = field(default_factory=list)

    def set_aside(self, table: str, row: Row, reason: str) -> None:
        """Note that a row is not taken over as it is."""
        self.aside.append(Aside(table, row, reason))

    def add_event(self, event: LedgerEvent) -> None:
        """Put an event into the ledger that was not there."""
        self.ledger[event.id] = codec.event_row(event)
        self.rebuilt["ledger"] += 1

    def runs(self) -> Iterator[RunInfo]:
        """The runs that begin in the ledger."""
        for event in self.ledger.values():
            if event["kind"] == EventKind.RUN_STARTED:
                yield codec.run_of(payload_in(event) or {})


def step_row(trace: StepTrace, row: Row, vector: Any) -> dict[str, Any]:
    """A row of `steps` for a trace, dated as the damaged `row` was where that can be read."""
    created = row.get("created")
    made = codec.step_row(trace, created if isinstance(created, str) else now())
    return {**made, "embedding": vector}
