"""Everything that anyone did in a bank, one row per event of its ledger; and each q move with the events behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any, Literal

from pydantic.fields import FieldInfo

from memrl_core.analysis.decision.explain import names
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.outline import shortened
from memrl_core.analysis.memory.provenance import chapters, entries
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import USES
from memrl_core.bank.people.roles import NEWCOMERS, Role, actor_of
from memrl_core.bank.people.undo import REDOES, TOGETHER, UNDOES
from memrl_core.learning import BRINGS_IN, active_rewards, assigned_credit, named_by, order_key, shares_in
from memrl_core.learning.scales import RatingScales
from memrl_core.numerals import short, signed
from memrl_core.policies import settings_fields_of, with_defaults
from memrl_core.records import EventKind, LedgerEvent

# --- one q ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QMove:
    """One move of a q: after = before + alpha · (reward − before).

    A memory's first entry has no reward: `after` is what it began with, and `events` the one that wrote it, brought it
    in or put it in the place of others. Else `events` are the rewards that counted, with the credit that took their
    place for this memory.
    """

    step: int
    before: float | None
    reward: float | None
    alpha: float | None
    after: float
    events: tuple[LedgerEvent, ...]


def reconstruct(bank: MemoryBank, run: str, memory_id: str) -> list[QMove]:
    """Every entry of a memory's q in order; the last `after` is q now. Empty when the run has never known the memory.

    What a reworded or merged memory took over from older ones stands in their own moves. Raises `UnknownRun`.
    """
    behind = chapters(bank, run)
    moves: list[QMove] = []
    for (number, step), members in groupby(entries(bank, behind, memory_id), key=lambda e: (e[0], e[1].step)):
        events, settings = behind[number].steps[step], behind[number].settings[step]
        active, own = active_rewards(events), memory_id in assigned_credit(events)
        parts = iter(shares_in(active, settings)[-1:] if own else shares_in(active, settings))
        revoked = {event.revokes for event in events}
        credits = [e for e in events if e.kind is EventKind.CREDIT_ASSIGNED and e.id not in revoked][-1:] if own else []
        for _, point in members:
            if point.before is None:
                alpha, begun = None, [e for e in events if e.kind in BRINGS_IN and memory_id in e.memory_ids][:1]
            else:
                alpha, part = settings.get("alpha"), next(parts)
                begun = [*(event for event in active if event.id in part), *credits]
            moves.append(QMove(point.step, point.before, point.reward, alpha, point.after, tuple(begun)))
    return moves


# --- the rows ---------------------------------------------------------------------------------------------------------

Group = Literal["all", "rewards", "memories", "settings", "people", "notes"]

COLUMNS = ("created", "who", "words", "run", "step", "memories", "value", "reason", "undone", "kind", "seq", "event_id")
GROUPS: Mapping[Group, tuple[str, ...]] = {
    "all": ("",),
    "rewards": ("reward_", "credit_"),
    "memories": ("memory_",),
    "settings": ("run_", "settings_", "environment_", "scales_"),
    "people": ("role_", "batch_"),
    "notes": ("note_",),
}
"""How the names of the events of each group begin."""


def audit(
    bank: MemoryBank,
    *,
    who: str = "",
    kind: Group = "all",
    run: str = "",
    memory: str = "",
    since: date | None = None,
    until: date | None = None,
    people_only: bool = True,
) -> list[dict[str, Any]]:
    """What was done in a bank, the newest first by the ledger's own order; a row of `COLUMNS` for each event.

    Rows are of one person, kind, run or memory where these are given, and of the days (UTC) from `since` to `until`;
    with `people_only`, of persons only. `who` is a person, "the environment" or "the program"; `memories` are the ids
    of all that the event is about; `words` say in one sentence what was done; `undone` that the same person took it
    back later.
    """
    events = bank.events()
    sentences = Sentences(events)
    return [
        {
            "created": event.created,
            "who": who_did(event),
            "words": sentences.of(event),
            "run": event.run,
            "step": event.step,
            "memories": tuple(dict.fromkeys(named_by(event))),
            "value": event.value,
            "reason": event.reason,
            "undone": event.id in sentences.undone,
            "kind": event.kind,
            "seq": event.seq,
            "event_id": event.id,
        }
        for event in reversed(events)
        if (actor_of(event) or not people_only)
        and event.kind.startswith(GROUPS[kind])
        and run in ("", event.run)
        and who in ("", who_did(event))
        and str(since or "") <= event.created[:10] <= str(until or "9999")
        and (not memory or memory in named_by(event))
    ]


# --- what each event did, as one plain sentence -----------------------------------------------------------------------

CUT = 80
MOST_NAMED = 8
DID = {EventKind.MEMORY_FORGOTTEN: "forgot", EventKind.MEMORY_PINNED: "pinned", EventKind.MEMORY_UNPINNED: "unpinned"}
AS = {Role.LOOK: "an onlooker (may look)", Role.RATE: "a rater (may rate)", Role.MANAGE: "a manager (may manage)"}
RULES = (EventKind.SETTINGS_CHANGED, EventKind.ENVIRONMENT_CHANGED, EventKind.SCALES_CHANGED)
CHOSEN = ("stars", "grade", "thumb", "choice", "marks")
"""What the payload of a reward keeps of a choice on a scale."""


def who_did(event: LedgerEvent) -> str:
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
        self._together: dict[str, list[LedgerEvent]] = defaultdict(list)
        standing: dict[tuple[str, str], LedgerEvent] = {}
        rules: dict[tuple[str, str], list[LedgerEvent]] = defaultdict(list)
        for event in known:
            if TOGETHER in event.payload:
                self._together[event.payload[TOGETHER]].append(event)
            if event.kind is EventKind.REWARD_GIVEN and event.source == "person":
                self._before[event.id] = standing.get((event.step_id, event.rater))
                standing[event.step_id, event.rater] = event
            elif event.kind is EventKind.REWARD_REVOKED and event.revokes in self._events:
                revoked = self._events[event.revokes]
                if standing.get((revoked.step_id, revoked.rater)) is revoked:
                    del standing[revoked.step_id, revoked.rater]
            elif event.kind in RULES:
                earlier = rules[event.run, event.kind]
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
            index = next((n for n, member in enumerate(group) if member.id == event.id), 0)
            taken_back = action[-1 - index] if index < len(action) else None
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

        def named(memory_ids: Sequence[str]) -> str:
            return names(tuple(memory_ids), event.run, MOST_NAMED)

        memories = named(event.memory_ids)
        match event.kind:
            case EventKind.REWARD_GIVEN:
                return self._given(event)
            case EventKind.REWARD_REVOKED:
                if revoked is None:
                    return f"took back a reward for step {event.step}"
                whose = "" if revoked.rater == actor_of(event) else f"{_short(revoked.rater) or 'the environment'}'s "
                return f"took back {whose}{signed(revoked.value or 0.0)} for step {event.step}"
            case EventKind.CREDIT_ASSIGNED:
                parts = [
                    f"{memory_label(i, event.run)} {'no credit' if reward is None else signed(reward)}"
                    for i, reward in payload["rewards"].items()
                ]
                return f"gave memories of step {event.step} rewards of their own: {', '.join(parts[:MOST_NAMED])}"
            case EventKind.CREDIT_REVOKED:
                return f"took back the memories' own rewards for step {event.step}"
            case EventKind.MEMORY_WRITTEN:
                return f"wrote {memories} with q {value}"
            case EventKind.MEMORY_IMPORTED:
                return f"brought in {memories} with q {value}"
            case EventKind.MEMORY_RESTORED:
                gone = payload.get("takes_away", ())
                return f"restored {memories}{f' in the place of {named(gone)}' if gone else ''}"
            case EventKind.MEMORY_EDITED:
                return f"edited {named(payload['replaces'])}: now {memories}"
            case EventKind.MEMORY_MERGED:
                return f"merged {named(payload['replaces'])} into {memories}"
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
            case EventKind.MEMORY_JUDGED | EventKind.QUERY_JUDGED:
                return _labelled(event, memories)
            case EventKind.USE_JUDGED:
                said = next((used for used, value in USES.items() if value == event.value), "")
                return (
                    f"said that the answer of step {event.step} {said} {memories}"
                    if said
                    else (f"withdrew what they said of the use of {memories} in step {event.step}")
                )
            case EventKind.NOTE_PINNED:
                return f"noted: {_short(event.reason)}"
            case EventKind.NOTE_REMOVED:
                return f"removed the note: {_short(revoked.reason)}" if revoked else "removed a note"

    def _given(self, event: LedgerEvent) -> str:
        value, before, actor = event.value or 0.0, self._before.get(event.id), actor_of(event)
        whose = "" if actor in ("", event.rater) else f" in the name of {_short(event.rater) or 'the environment'}"
        chosen = [f"{name} {_shown(event.payload[name])}" for name in CHOSEN if name in event.payload]
        more = f"{whose} ({_short(', '.join(chosen))})" if chosen else whose
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
            return f"changed the environment: {_changes(known, event.payload['options'], {})}"
        known = before.payload["settings"] if before else began.get("settings", {})
        policy = str(began.get("policy", "memrl"))
        was, now = (with_defaults(policy, settings) for settings in (known, event.payload["settings"]))
        return f"changed settings: {_changes(was, now, settings_fields_of(policy))}"


def _labelled(event: LedgerEvent, memories: str) -> str:
    about = memories if event.kind is EventKind.MEMORY_JUDGED else "the query"
    came = "" if event.source == "person" else f" ({_short(event.rater)}, {_short(str(event.payload.get('from', '')))})"
    if event.value is None:
        return f"withdrew the label of {about} of step {event.step}{came}"
    if event.kind is EventKind.MEMORY_JUDGED:
        return f"labelled {about} {event.value:g} of 3 for step {event.step}{came}"
    return f"labelled step {event.step}: {'something' if event.value else 'nothing'} should come{came}"


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """What differs, such as "λ 0.5 → 0.7"."""
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
        return _short(", ".join(f"{name} {_shown(one)}" for name, one in value.items()))
    return _short(", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value))


def _short(text: str) -> str:
    return shortened(text, CUT)
