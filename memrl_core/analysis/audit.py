"""Everything that anyone did in a bank, one row an event of its ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from memrl_core.analysis.audit_words import Sentences, who
from memrl_core.analysis.linked_filter import LinkedFilter
from memrl_core.analysis.q_moves import QMove, reconstruct
from memrl_core.bank import MemoryBank
from memrl_core.bank.roles import actor_of
from memrl_core.learning import named_by
from memrl_core.records import EventKind, LedgerEvent

__all__ = [
    "COLUMNS",
    "AuditFilter",
    "AuditRow",
    "QMove",
    "audit",
    "audit_rows_for_export",
    "jsonl_bytes",
    "reconstruct",
]

Group = Literal["all", "rewards", "memories", "settings", "people", "notes"]

COLUMNS = ("created", "who", "words", "run", "step", "memories", "value", "reason", "undone", "kind", "seq", "event_id")
"""The columns of the rows for an export, in their order."""
GROUPS: Mapping[EventKind, Group] = {
    EventKind.REWARD_GIVEN: "rewards",
    EventKind.REWARD_REVOKED: "rewards",
    EventKind.CREDIT_ASSIGNED: "rewards",
    EventKind.CREDIT_REVOKED: "rewards",
    EventKind.MEMORY_WRITTEN: "memories",
    EventKind.MEMORY_IMPORTED: "memories",
    EventKind.MEMORY_FORGOTTEN: "memories",
    EventKind.MEMORY_RESTORED: "memories",
    EventKind.MEMORY_EDITED: "memories",
    EventKind.MEMORY_MERGED: "memories",
    EventKind.MEMORY_PINNED: "memories",
    EventKind.MEMORY_UNPINNED: "memories",
    EventKind.RUN_STARTED: "settings",
    EventKind.SETTINGS_CHANGED: "settings",
    EventKind.ENVIRONMENT_CHANGED: "settings",
    EventKind.SCALES_CHANGED: "settings",
    EventKind.ROLE_ASSIGNED: "people",
    EventKind.NOTE_PINNED: "notes",
    EventKind.NOTE_REMOVED: "notes",
}


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One event of the ledger as a person reads it.

    `who` is a person, "the environment" or "the program"; `created` is ISO 8601 in UTC; roles have no run ("").
    `memories` are all that the event is about; `words` say in one sentence what was done; `undone` that the same person
    took it back later.
    """

    event_id: str
    seq: int
    created: str
    who: str
    kind: EventKind
    run: str
    step: int
    memories: tuple[str, ...]
    value: float | None
    reason: str
    words: str
    undone: bool


class AuditFilter(LinkedFilter):
    """Which events an audit shows; the same in the address bar of a page."""

    who: str = Field("", title="Who", description="What this person did only; what everybody did when empty.")
    kind: Group = Field("all", title="What", description="Deeds of this kind only.")
    memory: str = Field("", title="Memory", description="What is about this memory only; about any when empty.")
    people_only: bool = Field(
        True,
        title="People only",
        description="Without what no person is named for, such as rewards of the environment and written memories.",
    )


# --- the rows ---------------------------------------------------------------------------------------------------------


def audit(bank: MemoryBank, chosen: AuditFilter) -> list[AuditRow]:
    """What was done in a bank, as far as it was asked for; the newest first, by the ledger's own order."""
    events = bank.events()
    sentences = Sentences(events)
    return [_row(event, sentences) for event in reversed(events) if _asked(event, chosen)]


def _asked(event: LedgerEvent, chosen: AuditFilter) -> bool:
    return (
        (not chosen.people_only or bool(actor_of(event)))
        and (chosen.kind == "all" or GROUPS[event.kind] == chosen.kind)
        and (not chosen.run or event.run == chosen.run)
        and (not chosen.who or who(event) == chosen.who)
        and chosen.holds(event.created)
        and (not chosen.memory or chosen.memory in named_by(event))
    )


def _row(event: LedgerEvent, sentences: Sentences) -> AuditRow:
    return AuditRow(
        event.id,
        event.seq,
        event.created,
        who(event),
        event.kind,
        event.run,
        event.step,
        tuple(dict.fromkeys(named_by(event))),
        event.value,
        event.reason,
        sentences.of(event),
        event.id in sentences.undone,
    )


def audit_rows_for_export(rows: Sequence[AuditRow]) -> list[dict[str, Any]]:
    """The rows as a table of `COLUMNS`; several memories stand in one cell, separated by blanks."""
    return [
        {name: " ".join(row.memories) if name == "memories" else getattr(row, name) for name in COLUMNS} for row in rows
    ]


def jsonl_bytes(bank: MemoryBank, rows: Sequence[AuditRow]) -> bytes:
    """The events behind the rows as JSON Lines, whole and with what the rows say of them."""
    events = {event.id: event for event in bank.events()}
    return "".join(f"{json.dumps(_whole(events[row.event_id], row), ensure_ascii=False)}\n" for row in rows).encode()


def _whole(event: LedgerEvent, row: AuditRow) -> dict[str, Any]:
    facts = {name: getattr(event, name) for name in LedgerEvent.__dataclass_fields__}
    return {**facts, "payload": dict(event.payload), "who": row.who, "words": row.words, "undone": row.undone}
