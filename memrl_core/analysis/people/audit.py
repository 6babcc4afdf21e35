"""Everything that anyone did in a bank, one row per event of its ledger; and each q move with the events behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from memrl_core.analysis.decision.findings import names
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.memory.provenance import chapters, entries
from memrl_core.analysis.people.linked_filter import LinkedFilter
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import NEWCOMERS, Role, actor_of
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.learning import active_rewards, assigned_credit, named_by, order_key, shares_in
from memrl_core.learning.scales import RatingScales
from memrl_core.numerals import short, signed
from memrl_core.policies import settings_fields_of
from memrl_core.records import EventKind, LedgerEvent, UtilityPoint


@dataclass(frozen=True, slots=True)
class QMove:
    """One move of a q: after = before + alpha · (reward − before).

    A memory's first entry has no reward: `after` is what it began with, and `events` the one that wrote it, brought it
    in or put it in the place of others. Else `events` are the rewards that counted, with the credit that took their
    place for this memory; `given` says by whom each was given, and when.
    """

    step: int
    before: float | None
    reward: float | None
    alpha: float | None
    after: float
    events: tuple[str, ...]
    given: tuple[tuple[str, str], ...]


BEGINS = (
    EventKind.MEMORY_WRITTEN,
    EventKind.MEMORY_IMPORTED,
    EventKind.MEMORY_EDITED,
    EventKind.MEMORY_MERGED,
)


def reconstruct(bank: MemoryBank, run: str, memory_id: str) -> list[QMove]:
    """Every entry of a memory's q in order; the last `after` is q now. Empty when the run has never known the memory.

    What a reworded or merged memory took over from older ones stands in their own moves. Raises `UnknownRun`.
    """
    behind = chapters(bank, run)
    found: list[QMove] = []
    for (number, step), members in groupby(entries(bank, behind, memory_id), key=lambda e: (e[0], e[1].step)):
        events, settings = behind[number].steps[step], behind[number].settings[step]
        points = [point for _, point in members]
        if points[0].before is None:
            begun = [event for event in events if event.kind in BEGINS and memory_id in event.memory_ids]
            found.append(_move(points.pop(0), begun[:1], None))
        if points:
            found += _moves(points, events, settings)
    return found


def _moves(
    points: Sequence[UtilityPoint], events: Sequence[LedgerEvent], settings: Mapping[str, Any]
) -> Iterator[QMove]:
    """A memory's moves in one step, each with the events that are in its reward."""
    active, own = active_rewards(events), points[0].memory_id in assigned_credit(events)
    parts = shares_in(active, settings)
    revoked = {event.revokes for event in events}
    credits = [e for e in events if e.kind is EventKind.CREDIT_ASSIGNED and e.id not in revoked][-1:] if own else []
    for point, part in zip(points, parts[-1:] if own else parts, strict=True):
        yield _move(point, [*(event for event in active if event.id in part), *credits], settings.get("alpha"))


def _move(point: UtilityPoint, events: Sequence[LedgerEvent], alpha: float | None) -> QMove:
    given = tuple((who(event), event.created) for event in events)
    ids = tuple(event.id for event in events)
    return QMove(point.step, point.before, point.reward, alpha, point.after, ids, given)


Group = Literal["all", "rewards", "memories", "settings", "people", "notes"]

COLUMNS = ("created", "who", "words", "run", "step", "memories", "value", "reason", "undone", "kind", "seq", "event_id")
"""The columns of the rows for an export, in their order."""
GROUPS: Mapping[Group, tuple[str, ...]] = {
    "all": ("",),
    "rewards": ("reward_", "credit_"),
    "memories": ("memory_",),
    "settings": ("run_", "settings_", "environment_", "scales_"),
    "people": ("role_", "batch_"),
    "notes": ("note_",),
}
"""How the names of the events of each group begin."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One event of the ledger as a person reads it.

    `who` is a person, "the environment" or "the program"; `memories` are all that the event is about; `words` say in
    one sentence what was done; `undone` that the same person took it back later.
    """

    event: LedgerEvent
    who: str
    memories: tuple[str, ...]
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
    return [
        AuditRow(
            event, who(event), tuple(dict.fromkeys(named_by(event))), sentences.of(event), event.id in sentences.undone
        )
        for event in reversed(events)
        if _asked(event, chosen)
    ]


def _asked(event: LedgerEvent, chosen: AuditFilter) -> bool:
    return (
        (not chosen.people_only or bool(actor_of(event)))
        and event.kind.startswith(GROUPS[chosen.kind])
        and (not chosen.run or event.run == chosen.run)
        and (not chosen.who or who(event) == chosen.who)
        and chosen.holds(event.created)
        and (not chosen.memory or chosen.memory in named_by(event))
    )


def audit_rows_for_export(rows: Sequence[AuditRow]) -> list[dict[str, Any]]:
    """The rows as a table of `COLUMNS`; several memories stand in one cell, separated by blanks."""
    return [
        {
            "created": row.event.created,
            "who": row.who,
            "words": row.words,
            "run": row.event.run,
            "step": row.event.step,
            "memories": " ".join(row.memories),
            "value": row.event.value,
            "reason": row.event.reason,
            "undone": row.undone,
            "kind": row.event.kind,
            "seq": row.event.seq,
            "event_id": row.event.id,
        }
        for row in rows
    ]


# --- what each event did, as one plain sentence -----------------------------------------------------------------------

CUT = 80
MOST_NAMED = 8
DID = {
    EventKind.MEMORY_FORGOTTEN: "forgot",
    EventKind.MEMORY_PINNED: "pinned",
    EventKind.MEMORY_UNPINNED: "unpinned",
}
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
    """Says what the events of one ledger did. `undone` are those that the same person took back later."""

    def __init__(self, events: Iterable[LedgerEvent]) -> None:
        known = list(events)
        self._events = {event.id: event for event in known}
        self._runs = {event.run: event for event in known if event.kind is EventKind.RUN_STARTED}
        self._before: dict[str, LedgerEvent | None] = {}
        self._together: dict[str, list[LedgerEvent]] = {}
        standing: dict[tuple[str, str], LedgerEvent] = {}
        for event in known:
            if TOGETHER in event.payload:
                self._together.setdefault(event.payload[TOGETHER], []).append(event)
            if event.kind is EventKind.REWARD_GIVEN and event.source == "person":
                self._before[event.id] = standing.get((event.step_id, event.rater))
                standing[event.step_id, event.rater] = event
            elif event.kind is EventKind.REWARD_REVOKED:
                revoked = self._events.get(event.revokes)
                if revoked is not None and standing.get((revoked.step_id, revoked.rater)) is revoked:
                    del standing[revoked.step_id, revoked.rater]
        for kind in (EventKind.SETTINGS_CHANGED, EventKind.ENVIRONMENT_CHANGED, EventKind.SCALES_CHANGED):
            rules: dict[str, list[LedgerEvent]] = {}
            for event in known:
                if event.kind is kind:
                    earlier = rules.setdefault(event.run, [])
                    in_force = [other for other in earlier if order_key(other) < order_key(event)]
                    self._before[event.id] = max(in_force, key=order_key, default=None)
                    earlier.append(event)
        self.undone = {event.id for undo in known if UNDOES in undo.payload for event in self._action(undo)}

    def of(self, event: LedgerEvent) -> str:
        """The event in words."""
        if UNDOES in event.payload:
            action = self._action(event)
            group = self._together.get(event.payload.get(TOGETHER, ""), [event])
            # An action of several events is taken back from its last to its first.
            place = next((n for n, member in enumerate(group) if member.id == event.id), 0)
            taken_back = action[-1 - place] if place < len(action) else None
            return f"undid: {self._plain(taken_back)}" if taken_back else "undid something that is not in this bank"
        return f"did again: {self._plain(event)}" if REDOES in event.payload else self._plain(event)

    def _action(self, undo: LedgerEvent) -> Sequence[LedgerEvent]:
        """The events of the action that an undo takes back, if the same person did it."""
        first = self._events.get(undo.payload[UNDOES])
        if first is None or actor_of(first) != actor_of(undo):
            return []
        return self._together.get(first.payload.get(TOGETHER, ""), [first])

    def _plain(self, event: LedgerEvent) -> str:
        payload, value = event.payload, signed(event.value or 0.0)
        revoked = self._events.get(event.revokes)
        memories = _named(event.memory_ids, event.run)
        match event.kind:
            case EventKind.REWARD_GIVEN:
                return self._given(event)
            case EventKind.REWARD_REVOKED:
                if revoked is None:
                    return f"took back a reward for step {event.step}"
                whose = "" if revoked.rater == actor_of(event) else f"{_short(revoked.rater) or 'the environment'}'s "
                return f"took back {whose}{signed(revoked.value or 0.0)} for step {event.step}"
            case EventKind.CREDIT_ASSIGNED:
                parts = [f"{memory_label(i, event.run)} {signed(reward)}" for i, reward in payload["rewards"].items()]
                return f"gave memories of step {event.step} rewards of their own: {', '.join(parts[:MOST_NAMED])}"
            case EventKind.CREDIT_REVOKED:
                return f"took back the memories' own rewards for step {event.step}"
            case EventKind.MEMORY_WRITTEN:
                return f"wrote {memories} with q {value}"
            case EventKind.MEMORY_IMPORTED:
                return f"brought in {memories} with q {value}"
            case EventKind.MEMORY_RESTORED:
                gone = payload.get("takes_away", ())
                return f"restored {memories}{f' in the place of {_named(gone, event.run)}' if gone else ''}"
            case EventKind.MEMORY_EDITED:
                return f"edited {_named(payload['replaces'], event.run)}: now {memories}"
            case EventKind.MEMORY_MERGED:
                return f"merged {_named(payload['replaces'], event.run)} into {memories}"
            case EventKind.MEMORY_FORGOTTEN | EventKind.MEMORY_PINNED | EventKind.MEMORY_UNPINNED:
                return f"{DID[event.kind]} {memories}"
            case EventKind.RUN_STARTED:
                base = payload.get("base")
                since = f" from what {base} knew after step {payload.get('base_step')}" if base else ""
                return f"started the run {event.run}{since}"
            case EventKind.SETTINGS_CHANGED | EventKind.ENVIRONMENT_CHANGED | EventKind.SCALES_CHANGED:
                return self._changed(event)
            case EventKind.ROLE_ASSIGNED:
                person = str(payload["person"])
                return f"made {'everybody else' if person == NEWCOMERS else _short(person)} {AS[Role(payload['role'])]}"
            case EventKind.BATCH_MADE:
                # Which steps are gold is not said: raters read this, too.
                shared = payload.get("parts")
                raters = ", ".join(shared) if isinstance(shared, Mapping) else "nobody"
                return f"made the batch {_short(event.reason)} for {_short(raters)}"
            case EventKind.BATCH_CLOSED:
                return f"closed the batch {_short(revoked.reason)}" if revoked else "closed a batch"
            case EventKind.NOTE_PINNED:
                return f"noted: {_short(event.reason)}"
            case EventKind.NOTE_REMOVED:
                return f"removed the note: {_short(revoked.reason)}" if revoked else "removed a note"

    def _given(self, event: LedgerEvent) -> str:
        value, before, actor = event.value or 0.0, self._before.get(event.id), actor_of(event)
        whose = "" if actor in ("", event.rater) else f" in the name of {_short(event.rater) or 'the environment'}"
        more = f"{whose}{_choice(event.payload)}"
        if before is None or before.value == value:
            return f"gave {signed(value)} to step {event.step}{' again' if before else ''}{more}"
        return f"changed {signed(before.value or 0.0)} to {signed(value)} for step {event.step}{more}"

    def _changed(self, event: LedgerEvent) -> str:
        before, started = self._before.get(event.id), self._runs.get(event.run)
        began: Mapping[str, Any] = started.payload if started else {}
        if event.kind is EventKind.SCALES_CHANGED:
            known = before.payload["scales"] if before else RatingScales().model_dump(mode="json")
            return f"changed the rating scales: {_changes(known, event.payload['scales'], RatingScales.model_fields)}"
        if event.kind is EventKind.ENVIRONMENT_CHANGED:
            known = before.payload["options"] if before else began.get("environment_options", {})
            return f"changed the environment: {_changes(known, event.payload['options'])}"
        known = before.payload["settings"] if before else began.get("settings", {})
        fields = settings_fields_of(str(began.get("policy", "memrl")))
        return f"changed settings: {_changes(known, event.payload['settings'], fields)}"


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
