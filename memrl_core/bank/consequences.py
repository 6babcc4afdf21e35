"""The events that a finished step leaves in the ledger: told twice, by its record and by the ledger, so that either
can be held against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memrl_core.bank.operations import WRITING
from memrl_core.records import EventKind, StepTrace

Agreement = Literal["same", "other", "missing"]


@dataclass(frozen=True, slots=True)
class Consequence:
    """An event that a step must have left. `id` is the one it gets when it is written with the step."""

    id: str
    kind: EventKind
    memory_ids: tuple[str, ...]
    value: float | None = None
    source: str = ""
    reason: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)


def consequences(trace: StepTrace) -> list[Consequence]:
    """What a finished step must have left in the ledger, in the order in which it was appended."""
    found = []
    reward = trace.reward
    given = None
    if reward is not None:
        given = reward.reward if reward.source == "environment" else reward.environment
    if reward is not None and given is not None:
        found.append(
            Consequence(
                f"{trace.id}:environment", EventKind.REWARD_GIVEN, reward.credited, value=given, source="environment"
            )
        )
    for op in trace.write.operations if trace.write else ():
        if op.op == "DELETE":
            name = f"{trace.id}:deleted:{op.replaces[0] if op.replaces else ''}"
            found.append(Consequence(name, EventKind.MEMORY_FORGOTTEN, op.replaces, reason=op.why))
        elif op.op in WRITING:
            name, ids = f"{trace.id}:{op.memory_id}", (op.memory_id,)
            if op.op == "ADD":
                found.append(Consequence(name, WRITING[op.op], ids, value=op.q0, reason=op.why))
            else:
                told = {"replaces": list(op.replaces)}
                found.append(Consequence(name, WRITING[op.op], ids, reason=op.why, payload=told))
    return found


def agreement(expected: Consequence, events: Iterable[Consequence]) -> tuple[Agreement, str]:
    """Whether the events of the same attempt tell what is `expected`, and the id of the one that says otherwise."""
    alike = [
        event
        for event in events
        if event.id == expected.id
        or (
            (event.kind, event.source) == (expected.kind, expected.source)
            and (expected.kind is EventKind.REWARD_GIVEN or event.memory_ids == expected.memory_ids)
        )
    ]
    if any(_says(event) == _says(expected) for event in alike):
        return "same", ""
    return ("other", alike[0].id) if alike else ("missing", "")


def _says(event: Consequence) -> tuple[object, ...]:
    return event.kind, event.memory_ids, event.value, event.source, tuple(event.payload.get("replaces", ()))
