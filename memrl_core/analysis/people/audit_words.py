"""What each event of a ledger did, as one plain sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from memrl_core.analysis.decision.findings import names
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank.people.roles import NEWCOMERS, Role, actor_of
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.learning import order_key
from memrl_core.learning.scales import RatingScales
from memrl_core.numerals import short, signed
from memrl_core.policies import settings_fields_of
from memrl_core.records import EventKind, LedgerEvent

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
