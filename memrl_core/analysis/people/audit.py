"""Everything that anyone did in a bank, one row per event of its ledger; and each q move with the events behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pydantic import Field

from memrl_core.analysis.people.audit_words import Sentences, who
from memrl_core.analysis.people.linked_filter import LinkedFilter
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import actor_of
from memrl_core.learning import active_rewards, assigned_credit, by_step, named_by, shares_in
from memrl_core.records import EventKind, LedgerEvent, RewardSource, UtilityPoint


@dataclass(frozen=True, slots=True)
class QMove:
    """One move of a q: after = before + alpha · (reward − before).

    `memory_id` is the memory as it was then: an older id where it was edited or merged since. A memory's first entry
    has no reward: `after` is what it began with, and `events` the one that wrote it, brought it in or put it in the
    place of others. Else `events` are the rewards that counted, with the credit that took their place for this memory;
    `given` says by whom each was given, and when.
    """

    memory_id: str
    step: int
    before: float | None
    reward: float | None
    source: RewardSource | None
    raters: tuple[str, ...]
    alpha: float | None
    after: float
    events: tuple[str, ...]
    given: tuple[tuple[str, str], ...]


def reconstruct(bank: MemoryBank, run: str, memory_id: str) -> list[QMove]:
    """Every entry of a q in order, from those of the memories that this one was put in the place of.

    The last `after` is q now. Empty when the run has never known the memory. Raises `UnknownRun`.
    """
    chapters = _chapters(bank, run)
    begun = _beginnings(chapters)
    # A memory that several ways lead back to is listed once.
    entries = dict.fromkeys(_entries(bank, chapters, begun, memory_id))
    found: list[QMove] = []
    for (number, step, known), points in groupby(entries, key=lambda e: (e.chapter, e.point.step, e.point.memory_id)):
        of_step = [entry.point for entry in points]
        if of_step[0].before is None:
            found.append(_beginning(of_step.pop(0), begun))
        if of_step:
            found += _moves(of_step, chapters[number].steps[step], chapters[number].settings[step], known)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Chapter:
    """A run, or as much of it as the next one began with: the events that count and the settings, by step."""

    run: str
    as_of: int | None
    steps: Mapping[int, Sequence[LedgerEvent]]
    settings: Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Entry:
    chapter: int
    point: UtilityPoint


def _chapters(bank: MemoryBank, run: str, as_of: int | None = None) -> list[_Chapter]:
    """The runs behind what a run knows, the first one first."""
    info = bank.run(run)
    earlier = _chapters(bank, info.base, info.base_step) if info.base else []
    finished = {row.id for row in bank.step_rows(run)}
    known = (event for event in bank.events(run) if as_of is None or event.known_at <= as_of)
    steps = by_step(known, finished.__contains__)
    settings, in_force = {}, info.settings
    for step in sorted(steps):
        for event in steps[step]:
            if event.kind in (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED):
                in_force = event.payload["settings"]
        settings[step] = in_force
    return [*earlier, _Chapter(run, as_of, steps, settings)]


_BEGINS = (EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED)
_REPLACES = (EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED)


def _beginnings(chapters: Sequence[_Chapter]) -> dict[str, tuple[int, LedgerEvent]]:
    """What gave each memory its first q, and in which chapter; a replacement that is done again gives none."""
    begun: dict[str, tuple[int, LedgerEvent]] = {}
    for number, chapter in enumerate(chapters):
        for step in sorted(chapter.steps):
            for event in chapter.steps[step]:
                for memory_id in event.memory_ids:
                    if event.kind in _BEGINS or (event.kind in _REPLACES and memory_id not in begun):
                        begun[memory_id] = number, event
    return begun


def _entries(
    bank: MemoryBank, chapters: Sequence[_Chapter], begun: Mapping[str, tuple[int, LedgerEvent]], memory_id: str
) -> Iterator[_Entry]:
    """The entries of a memory after those that its first q was made of."""
    entries: list[_Entry] = []
    for number, chapter in enumerate(chapters):
        points = bank.history(chapter.run, memory_id, chapter.as_of)
        kept = len(entries) if points[: len(entries)] == [entry.point for entry in entries] else 0
        entries = [*entries[:kept], *(_Entry(number, point) for point in points[kept:])]
    number, event = begun.get(memory_id, (0, None))
    if entries and event is not None and event.kind in _REPLACES:
        for older in event.payload["replaces"]:
            for entry in _entries(bank, chapters, begun, older):
                if (entry.chapter, entry.point.step) <= (number, event.step):
                    yield entry
    yield from entries


def _beginning(point: UtilityPoint, begun: Mapping[str, tuple[int, LedgerEvent]]) -> QMove:
    _, event = begun[point.memory_id]
    given = ((who(event), event.created),)
    return QMove(point.memory_id, point.step, None, None, None, (), None, point.after, (event.id,), given)


def _moves(
    points: Sequence[UtilityPoint], events: Sequence[LedgerEvent], settings: Mapping[str, Any], memory_id: str
) -> Iterator[QMove]:
    """A memory's moves in one step, each with the events that are in its reward."""
    active, own = active_rewards(events), memory_id in assigned_credit(events)
    parts = shares_in(active, settings)
    for point, part in zip(points, parts[-1:] if own else parts, strict=True):
        behind = [event for event in active if event.id in part]
        if own:
            behind.append(_credit(events))
        yield QMove(
            memory_id,
            point.step,
            point.before,
            point.reward,
            point.source,
            point.raters,
            float(settings["alpha"]) if "alpha" in settings else None,
            point.after,
            tuple(event.id for event in behind),
            tuple((who(event), event.created) for event in behind),
        )


def _credit(events: Sequence[LedgerEvent]) -> LedgerEvent:
    """The credit that stands, where one does."""
    revoked = {event.revokes for event in events}
    return [event for event in events if event.kind is EventKind.CREDIT_ASSIGNED and event.id not in revoked][-1]


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
    EventKind.BATCH_MADE: "people",
    EventKind.BATCH_CLOSED: "people",
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
    kind: Group = Field("all", title="What", description="Events of this kind only.")
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
