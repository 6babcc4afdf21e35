"""Everything that anyone did in a bank, one row per event of its ledger; and each q move with the events behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from memrl_core.analysis.decision.findings import names
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.people.linked_filter import LinkedFilter
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import NEWCOMERS, Role, actor_of
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.learning import active_rewards, assigned_credit, by_step, named_by, order_key, shares_in
from memrl_core.learning.scales import RatingScales
from memrl_core.numerals import short, signed
from memrl_core.policies import settings_fields_of
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


# --- what each event did, as one plain sentence -----------------------------------------------------------------------

CUT = 80
MOST_NAMED = 8
AS = {Role.LOOK: "an onlooker (may look)", Role.RATE: "a rater (may rate)", Role.MANAGE: "a manager (may manage)"}
CHOICES = {
    "thumb": {"up": "thumbs up", "down": "thumbs down"},
    "choice": {"better": "the better of two", "worse": "the worse of two", "equal": "one of two equals"},
}


def who(event: LedgerEvent) -> str:
    """Who appended an event: a person by name, "the environment" for its own rewards, else "the program"."""
    given = event.kind is EventKind.REWARD_GIVEN and event.source == "environment"
    return actor_of(event) or ("the environment" if given else "the program")


class Sentences:
    """Tells the events of one ledger, given in its order. `undone` are those that the same person took back later."""

    def __init__(self, events: Iterable[LedgerEvent]) -> None:
        known = list(events)
        self._events = {event.id: event for event in known}
        started = (event for event in known if event.kind is EventKind.RUN_STARTED)
        self._policies = {event.run: str(event.payload.get("policy", "memrl")) for event in started}
        self._before: dict[str, LedgerEvent] = {}
        self._together: dict[str, list[LedgerEvent]] = {}
        standing: dict[tuple[str, str], LedgerEvent] = {}
        rules: dict[tuple[EventKind, str], list[LedgerEvent]] = {}
        undoing = []
        for event in known:
            # Most of a ledger is the program's own, and says nothing about other events.
            if not event.payload and event.source != "person":
                continue
            if event.payload:
                if UNDOES in event.payload:
                    undoing.append(event)
                if TOGETHER in event.payload:
                    self._together.setdefault(event.payload[TOGETHER], []).append(event)
            if event.kind is EventKind.REWARD_GIVEN:
                if event.source == "person":
                    self._replaces(event, standing.get((event.step_id, event.rater)))
                    standing[event.step_id, event.rater] = event
            elif event.kind is EventKind.REWARD_REVOKED:
                revoked = self._events.get(event.revokes)
                if revoked is not None and standing.get((revoked.step_id, revoked.rater)) is revoked:
                    del standing[revoked.step_id, revoked.rater]
            elif event.kind in _RULES:
                earlier = rules.setdefault((event.kind, event.run), [])
                in_force = [other for other in earlier if order_key(other) < order_key(event)]
                self._replaces(event, max(in_force, key=order_key, default=None))
                earlier.append(event)
            elif event.kind is EventKind.RUN_STARTED:
                for kind in (EventKind.SETTINGS_CHANGED, EventKind.ENVIRONMENT_CHANGED):
                    rules.setdefault((kind, event.run), []).append(event)
        self.undone = {event.id for undo in undoing for event in self._action(undo)}

    def of(self, event: LedgerEvent) -> str:
        """The event in words."""
        if UNDOES in event.payload:
            action = self._action(event)
            group = self._together.get(event.payload.get(TOGETHER, ""), [event])
            # A action of several events is taken back from its last to its first.
            place = next((n for n, member in enumerate(group) if member.id == event.id), 0)
            taken_back = action[-1 - place] if place < len(action) else None
            return f"undid: {self._plain(taken_back)}" if taken_back else "undid something that is not in this bank"
        return f"did again: {self._plain(event)}" if REDOES in event.payload else self._plain(event)

    def _replaces(self, event: LedgerEvent, before: LedgerEvent | None) -> None:
        if before is not None:
            self._before[event.id] = before

    def _action(self, undo: LedgerEvent) -> Sequence[LedgerEvent]:
        """The events of the action that an undo takes back, if the same person did it."""
        first = self._events.get(undo.payload[UNDOES])
        if first is None or actor_of(first) != actor_of(undo):
            return []
        return self._together.get(first.payload.get(TOGETHER, ""), [first])

    def _plain(self, event: LedgerEvent) -> str:
        return _WORDS[event.kind](self, event)

    # --- rewards ------------------------------------------------------------------------------------------------------

    def _given(self, event: LedgerEvent) -> str:
        value, before = event.value or 0.0, self._before.get(event.id)
        actor = actor_of(event)
        whose = "" if actor in ("", event.rater) else f" in the name of {_short(event.rater) or 'the environment'}"
        more = f"{whose}{_choice(event.payload)}"
        if before is None:
            return f"gave {signed(value)} to step {event.step}{more}"
        if before.value == value:
            return f"gave {signed(value)} to step {event.step} again{more}"
        return f"changed {signed(before.value or 0.0)} to {signed(value)} for step {event.step}{more}"

    def _revoked(self, event: LedgerEvent) -> str:
        reward = self._events.get(event.revokes)
        if reward is None:
            return f"took back a reward for step {event.step}"
        other = "" if reward.rater == actor_of(event) else f"{_short(reward.rater) or 'the environment'}'s "
        return f"took back {other}{signed(reward.value or 0.0)} for step {event.step}"

    def _credited(self, event: LedgerEvent) -> str:
        parts = [f"{memory_label(i, event.run)} {signed(reward)}" for i, reward in event.payload["rewards"].items()]
        return f"gave memories of step {event.step} rewards of their own: {', '.join(parts[:MOST_NAMED])}"

    def _discredited(self, event: LedgerEvent) -> str:
        return f"took back the memories' own rewards for step {event.step}"

    # --- memories -----------------------------------------------------------------------------------------------------

    def _written(self, event: LedgerEvent) -> str:
        return f"wrote {_named(event.memory_ids, event.run)} with q {signed(event.value or 0.0)}"

    def _imported(self, event: LedgerEvent) -> str:
        return f"brought in {_named(event.memory_ids, event.run)} with q {signed(event.value or 0.0)}"

    def _forgotten(self, event: LedgerEvent) -> str:
        return f"forgot {_named(event.memory_ids, event.run)}"

    def _restored(self, event: LedgerEvent) -> str:
        gone = event.payload.get("takes_away", ())
        instead = f" in the place of {_named(gone, event.run)}" if gone else ""
        return f"restored {_named(event.memory_ids, event.run)}{instead}"

    def _edited(self, event: LedgerEvent) -> str:
        return f"edited {_named(event.payload['replaces'], event.run)}: now {_named(event.memory_ids, event.run)}"

    def _merged(self, event: LedgerEvent) -> str:
        return f"merged {_named(event.payload['replaces'], event.run)} into {_named(event.memory_ids, event.run)}"

    def _pinned(self, event: LedgerEvent) -> str:
        return f"pinned {_named(event.memory_ids, event.run)}"

    def _unpinned(self, event: LedgerEvent) -> str:
        return f"unpinned {_named(event.memory_ids, event.run)}"

    # --- rules, people, notes -----------------------------------------------------------------------------------------

    def _started(self, event: LedgerEvent) -> str:
        base = event.payload.get("base")
        since = f" from what {base} knew after step {event.payload.get('base_step')}" if base else ""
        return f"started the run {event.run}{since}"

    def _settings(self, event: LedgerEvent) -> str:
        before = self._before[event.id].payload["settings"] if event.id in self._before else {}
        fields = settings_fields_of(self._policies.get(event.run, "memrl"))
        return f"changed settings: {_changes(before, event.payload['settings'], fields)}"

    def _environment(self, event: LedgerEvent) -> str:
        before = self._before[event.id].payload if event.id in self._before else {}
        known = before.get("options", before.get("environment_options", {}))
        return f"changed the environment: {_changes(known, event.payload['options'])}"

    def _scales(self, event: LedgerEvent) -> str:
        before = self._before.get(event.id)
        known = before.payload["scales"] if before else RatingScales().model_dump(mode="json")
        return f"changed the rating scales: {_changes(known, event.payload['scales'], RatingScales.model_fields)}"

    def _role(self, event: LedgerEvent) -> str:
        person = str(event.payload["person"])
        return f"made {'everybody else' if person == NEWCOMERS else _short(person)} {AS[Role(event.payload['role'])]}"

    def _batch_made(self, event: LedgerEvent) -> str:
        # Which steps are gold is not said: raters read this, too.
        parts = event.payload.get("parts")
        raters = ", ".join(parts) if isinstance(parts, Mapping) else "nobody"
        return f"made the batch {_short(event.reason)} for {_short(raters)}"

    def _batch_closed(self, event: LedgerEvent) -> str:
        batch = self._events.get(event.revokes)
        return f"closed the batch {_short(batch.reason)}" if batch else "closed a batch"

    def _noted(self, event: LedgerEvent) -> str:
        return f"noted: {_short(event.reason)}"

    def _note_removed(self, event: LedgerEvent) -> str:
        note = self._events.get(event.revokes)
        return f"removed the note: {_short(note.reason)}" if note else "removed a note"


_RULES = (EventKind.SETTINGS_CHANGED, EventKind.ENVIRONMENT_CHANGED, EventKind.SCALES_CHANGED)
_WORDS: Mapping[EventKind, Callable[[Sentences, LedgerEvent], str]] = {
    EventKind.RUN_STARTED: Sentences._started,
    EventKind.SETTINGS_CHANGED: Sentences._settings,
    EventKind.ENVIRONMENT_CHANGED: Sentences._environment,
    EventKind.SCALES_CHANGED: Sentences._scales,
    EventKind.MEMORY_WRITTEN: Sentences._written,
    EventKind.MEMORY_IMPORTED: Sentences._imported,
    EventKind.MEMORY_FORGOTTEN: Sentences._forgotten,
    EventKind.MEMORY_RESTORED: Sentences._restored,
    EventKind.MEMORY_EDITED: Sentences._edited,
    EventKind.MEMORY_MERGED: Sentences._merged,
    EventKind.MEMORY_PINNED: Sentences._pinned,
    EventKind.MEMORY_UNPINNED: Sentences._unpinned,
    EventKind.REWARD_GIVEN: Sentences._given,
    EventKind.REWARD_REVOKED: Sentences._revoked,
    EventKind.CREDIT_ASSIGNED: Sentences._credited,
    EventKind.CREDIT_REVOKED: Sentences._discredited,
    EventKind.NOTE_PINNED: Sentences._noted,
    EventKind.NOTE_REMOVED: Sentences._note_removed,
    EventKind.ROLE_ASSIGNED: Sentences._role,
    EventKind.BATCH_MADE: Sentences._batch_made,
    EventKind.BATCH_CLOSED: Sentences._batch_closed,
}


def _choice(payload: Mapping[str, Any]) -> str:
    """What a person chose on a scale, in brackets; a file may have brought in anything."""
    rated = ""
    if "stars" in payload:
        rated = f"{payload['stars']} of 5 stars"
    elif "grade" in payload:
        rated = f"grade {_shown(payload['grade'])}"
    elif isinstance(payload.get("marks"), Mapping):
        rated = ", ".join(f"{name} {mark}" for name, mark in payload["marks"].items())
    else:
        for name, words in CHOICES.items():
            rated = rated or words.get(str(payload.get(name)), "")
    return f" ({_short(rated)})" if rated else ""


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], fields: Mapping[str, FieldInfo] | None = None) -> str:
    """What differs, such as "λ 0.5 → 0.7"."""
    fields = fields or {}
    changes = []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            title = fields[name].title if name in fields else None
            symbol = (title or name).partition(" · ")[0]
            changes.append(f"{symbol} {_shown(before.get(name))} → {_shown(after.get(name))}")
    return ", ".join(changes) or "nothing differs"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return short(value)
    if isinstance(value, Mapping):
        return _short(" ".join(map(_shown, value.values())))
    return _short(", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value))


def _named(memory_ids: Sequence[str], run: str) -> str:
    if not 1 < len(memory_ids) <= MOST_NAMED:
        return names(tuple(memory_ids), run, MOST_NAMED)
    *first, last = (memory_label(memory_id, run) for memory_id in memory_ids)
    return f"{', '.join(first)} and {last}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CUT else f"{line[: CUT - 1]}…"
