"""How a memory's q came about: every move, with the events that made it and the people behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from memrl_core.analysis.audit_words import who
from memrl_core.bank import MemoryBank
from memrl_core.learning import active_rewards, assigned_credit, by_step, shares_in
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
    # A memory that several ways lead back to is told once.
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
    told: list[_Entry] = []
    for number, chapter in enumerate(chapters):
        points = bank.history(chapter.run, memory_id, chapter.as_of)
        kept = len(told) if points[: len(told)] == [entry.point for entry in told] else 0
        told = [*told[:kept], *(_Entry(number, point) for point in points[kept:])]
    number, event = begun.get(memory_id, (0, None))
    if told and event is not None and event.kind in _REPLACES:
        for older in event.payload["replaces"]:
            for entry in _entries(bank, chapters, begun, older):
                if (entry.chapter, entry.point.step) <= (number, event.step):
                    yield entry
    yield from told


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
