"""What a person did, taken back and done again: every undo is another event, so it works across sessions and restarts.

An action is one event of the ledger, or several that were appended together. Undoing it appends its opposite, which
names it under "undoes"; doing it again appends it anew with "redoes". What can be undone is read from the ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memrl_core.bank.facts import locked
from memrl_core.bank.ledger import Part, WritingPart
from memrl_core.bank.people.editing import must_not_be_pinned
from memrl_core.bank.people.roles import actor_of, person_name
from memrl_core.errors import InputError, NotAllowed
from memrl_core.learning import CHANGES_MEMORIES, REPLACES, active_rewards, in_ledger, named_by
from memrl_core.records import EventKind, LedgerEvent

TOGETHER, UNDOES, REDOES = "together", "undoes", "redoes"
REWARDS = frozenset({EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED})
MEMORIES = CHANGES_MEMORIES - {EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED}
JUDGED = frozenset({EventKind.MEMORY_JUDGED, EventKind.QUERY_JUDGED, EventKind.USE_JUDGED})
PINS = frozenset({EventKind.MEMORY_PINNED, EventKind.MEMORY_UNPINNED})
REVERSIBLE = REWARDS | MEMORIES | JUDGED


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a person did: events that were appended together."""

    events: tuple[LedgerEvent, ...]

    @property
    def first(self) -> LedgerEvent:
        """The event that stands for all."""
        return self.events[0]


class Undo(Part):
    """What each person can undo and do again, without limit.

    `kinds` are `REWARDS`, `MEMORIES` or `JUDGED`, each undone by itself as if there were no others; None: all as
    one.
    """

    @locked
    def done(self, person: str, kinds: Collection[EventKind] | None = None) -> list[Action]:
        """What the person can undo, oldest first."""
        return self._stacks(person, kinds)[0]

    @locked
    def undone(self, person: str, kinds: Collection[EventKind] | None = None) -> list[Action]:
        """What the person can do again, the one undone first at the beginning."""
        return self._stacks(person, kinds)[1]

    @locked
    def undone_credit(self, run: str, step: int, person: str) -> LedgerEvent | None:
        """The credit of a step that the person took back last, to be given again next; None where a reward is next, or
        where they have said something else of the step since.
        """
        name, undone = person_name(person), list[LedgerEvent | None]()
        at = (*REWARDS, EventKind.CREDIT_ASSIGNED, EventKind.CREDIT_REVOKED)
        events = [e for e in self._facts.at(run, step) if e.kind in at]
        credits = {e.id: e for e in events if e.kind is EventKind.CREDIT_ASSIGNED}
        for event in sorted((e for e in events if actor_of(e) == name), key=in_ledger):
            last = undone[-1] if undone else None
            if event.kind is EventKind.CREDIT_REVOKED:
                undone.append(credits.get(event.revokes))
            elif UNDOES in event.payload:
                undone.append(None)
            elif REDOES in event.payload or (last is not None and last.payload == event.payload):
                del undone[-1:]
            elif event.kind is not EventKind.REWARD_REVOKED:
                undone.clear()
        return undone[-1] if undone else None

    def _stacks(self, person: str, kinds: Collection[EventKind] | None) -> tuple[list[Action], list[Action]]:
        done: list[Action] = []
        undone: list[Action] = []
        theirs = [e for e in self._facts.by_actor(person_name(person)) if kinds is None or e.kind in kinds]
        known = {e.id for e in self._facts.events_of({e.revokes for e in theirs if e.revokes})}
        # A file may have brought in that a reward was taken back without the reward.
        reversible = (e for e in theirs if e.kind in REVERSIBLE and (not e.revokes or e.revokes in known))
        for action in _actions(sorted(reversible, key=in_ledger)):
            payload = action.first.payload
            if UNDOES in payload:
                undone += _taken(done, payload[UNDOES])
            elif REDOES in payload:
                _taken(undone, payload[REDOES])
                done.append(action)
            else:
                done.append(action)
                undone.clear()
        return done, undone


class UndoWriter(Undo, WritingPart):
    """Undo and redo for each person."""

    def undo(
        self, person: str, kinds: Collection[EventKind] | None = None, *, past_blocked: bool = False
    ) -> Action | None:
        """Take the person's last action back; None when there is none.

        Raises `NotAllowed`, and `InputError` when others have changed the same since. With `past_blocked` the newest
        action that can be undone is, unless it is about what a newer one that cannot is about; it raises when none can.
        """
        with self._alone():
            refused: NotAllowed | InputError | None = None
            blocked: set[str] = set()
            for action in reversed(self.done(person, kinds)):
                if blocked.isdisjoint(self._about(action)):
                    try:
                        self._append([self._opposite(e, action) for e in reversed(action.events)], UNDOES, action)
                    except (NotAllowed, InputError) as error:
                        refused = refused or error
                    else:
                        return action
                if not past_blocked:
                    break
                blocked |= self._about(action)
            if refused is not None:
                raise refused
            return None

    def redo(self, person: str, kinds: Collection[EventKind] | None = None) -> Action | None:
        """Do again what the person undid last; None when there is nothing. Raises as `undo`."""
        with self._alone():
            undone = self.undone(person, kinds)
            if not undone:
                return None
            self._append([self._again(event) for event in undone[-1].events], REDOES, undone[-1])
            return undone[-1]

    def _append(self, events: Sequence[LedgerEvent], names: str, action: Action) -> None:
        for event in events:
            self._must_apply(event, action)
        together = {TOGETHER: uuid.uuid4().hex} if len(events) > 1 else {}
        self._ledger.append_in_order(
            [replace(e, payload={**_bare(e.payload), names: action.first.id, **together}) for e in events]
        )

    def _must_apply(self, event: LedgerEvent, action: Action) -> None:
        """Raise `InputError` where others have changed the same since `action`: something else would come of it."""
        if event.kind in REWARDS:
            self._must_be_latest(event, action)
        if event.kind not in _MOVING:
            return
        leave, come_back = _MOVING[event.kind](event)
        fold = self._q.known(event.run, (*leave, *come_back))
        if event.kind is EventKind.MEMORY_FORGOTTEN:
            later = (e for e in self._facts.events(event.run) if in_ledger(e) > in_ledger(action.first))
            pinned_since = {i for e in later if e.kind is EventKind.MEMORY_PINNED for i in e.memory_ids}
            must_not_be_pinned(fold, pinned_since.intersection(leave))
        changed = [*(i for i in leave if i not in fold.utilities), *(i for i in come_back if i not in fold.away)]
        if changed:
            raise InputError(
                f"Memory “{changed[0][:80]}” was changed since. Nothing was changed now; its history says by whom."
            )

    def _must_be_latest(self, event: LedgerEvent, action: Action) -> None:
        """Raise `InputError` where a person's reward would give way to an older one that somebody else gave for them.

        What a person did in their own name they can take back whatever others have made of it.
        """
        reward, actor = self._rewarded(event), actor_of(event)
        if reward.rater == actor:
            return
        for later in self._facts.at(reward.run, reward.step):
            if later.kind in REWARDS and in_ledger(later) > in_ledger(action.first) and actor_of(later) != actor:
                same = self._rewarded(later)
                if (same.step_id, same.source, same.rater) == (reward.step_id, reward.source, reward.rater):
                    whose = f"The reward of {reward.rater}" if reward.rater else "The environment's reward"
                    raise InputError(
                        f"{whose} for step {reward.step} of run {reward.run} was changed since by {actor_of(later)}. "
                        "Nothing was changed now; the audit tells how."
                    )

    def _rewarded(self, event: LedgerEvent) -> LedgerEvent:
        """The reward that an event gives or takes back."""
        return (self._facts.event(event.revokes) if event.revokes else None) or event

    def _about(self, action: Action) -> set[str]:
        """The memories and the attempts at steps that an action changed something for."""
        rewards = {event.step_id for event in action.events if event.kind in REWARDS}
        return rewards or {memory_id for event in action.events for memory_id in named_by(event)}

    def _opposite(self, event: LedgerEvent, action: Action) -> LedgerEvent:
        kind, payload = event.kind, event.payload
        if kind in JUDGED:
            return self._judging(event, self._judged_before(event))
        if kind in REWARDS:
            reward = self._rewarded(event)
            before = self._standing(reward, before=action.first)
            return (
                self._giving(before, event)
                if before
                else self._ledger.revoking(self._standing(reward) or reward, actor_of(event))
            )
        if kind in REPLACES:
            return self._now(
                event,
                EventKind.MEMORY_RESTORED,
                memory_ids=tuple(payload["replaces"]),
                payload={"takes_away": list(event.memory_ids), "kind": str(kind)},
            )
        if kind is EventKind.MEMORY_RESTORED and payload.get("takes_away"):
            return self._now(
                event,
                EventKind(payload["kind"]),
                memory_ids=tuple(payload["takes_away"]),
                payload={"replaces": list(event.memory_ids)},
            )
        return self._now(event, _OPPOSITES[kind])

    def _again(self, event: LedgerEvent) -> LedgerEvent:
        if event.kind is EventKind.REWARD_GIVEN:
            return self._giving(event, event)
        if event.kind is EventKind.REWARD_REVOKED:
            revoked = self._rewarded(event)
            return self._ledger.revoking(self._standing(revoked) or revoked, actor_of(event))
        if event.kind in JUDGED:
            return self._judging(event, event)
        return self._now(event, event.kind)

    def _judged_before(self, event: LedgerEvent) -> LedgerEvent | None:
        """The label that stood for the same thing, by the same rater and from the same source, before an event."""
        at_step = self._facts.at(event.run, event.step)
        same = (e for e in at_step if e.kind in JUDGED and label_key(e) == label_key(event))
        return max((e for e in same if in_ledger(e) < in_ledger(event)), key=in_ledger, default=None)

    def _judging(self, event: LedgerEvent, label: LedgerEvent | None) -> LedgerEvent:
        """A new event by which `label` stands in the place of what `event` said; None: no label."""
        return self._ledger.event(
            event.run,
            event.step,
            "",
            event.kind,
            memory_ids=event.memory_ids,
            value=None if label is None else label.value,
            source=event.source,
            rater=event.rater,
            reason="" if label is None else label.reason,
            payload=event.payload if label is None else label.payload,
        )

    def _standing(self, reward: LedgerEvent, before: LedgerEvent | None = None) -> LedgerEvent | None:
        """The reward of whoever gave `reward`, for the same attempt, that stands now or stood before an event."""
        at_step = [
            e
            for e in self._facts.at(reward.run, reward.step)
            if e.step_id == reward.step_id and (before is None or in_ledger(e) < in_ledger(before))
        ]
        whose = (reward.source, reward.rater)
        standing = active_rewards(sorted(at_step, key=in_ledger))
        return next((e for e in standing if (e.source, e.rater) == whose), None)

    def _giving(self, reward: LedgerEvent, action: LedgerEvent) -> LedgerEvent:
        """`reward` once more, in the name of whoever gave it."""
        actor = actor_of(action)
        kept = {key: value for key, value in reward.payload.items() if key != "by"}
        return self._ledger.event(
            reward.run,
            reward.step,
            reward.step_id,
            EventKind.REWARD_GIVEN,
            memory_ids=reward.memory_ids,
            value=reward.value,
            source=reward.source,
            rater=reward.rater,
            reason=reward.reason,
            payload=kept if actor == reward.rater else {**kept, "by": actor},
        )

    def _now(self, event: LedgerEvent, kind: EventKind, **values: Any) -> LedgerEvent:
        """What becomes of memories, at this moment: steps that have used them stay as they are."""
        step = self._facts.of(event.run).newest
        memory_ids = self._where_now(event, kind) if kind in PINS else event.memory_ids
        given = {"memory_ids": memory_ids, "payload": event.payload, **values}
        return self._ledger.event(
            event.run, event.step if step is None else step, "", kind, source="person", rater=event.rater, **given
        )

    def _where_now(self, event: LedgerEvent, kind: EventKind) -> tuple[str, ...]:
        """The memories of an event about pins, with what the run sees in the place of those replaced since.

        The pin went on with it; it stays where another memory that it replaced was pinned too.
        """
        fold = self._q.known(event.run)
        replacements = {memory_id for memory_id in event.memory_ids if memory_id not in fold.utilities}
        for memory_id, origin in fold.origins.items():
            if not replacements.isdisjoint(origin.replaced):
                replacements.add(memory_id)
        held = fold.pinned - replacements if kind is EventKind.MEMORY_UNPINNED else set()
        moved = (i for i in replacements & fold.utilities.keys() if held.isdisjoint(fold.origins[i].replaced))
        return (*event.memory_ids, *sorted(moved))


def label_key(event: LedgerEvent) -> tuple[object, ...]:
    """What a label is about, by whom and from where: of events with the same key the newest stands."""
    return event.kind, event.run, event.step, event.memory_ids, event.rater, event.payload.get("from")


_OPPOSITES = {
    EventKind.MEMORY_FORGOTTEN: EventKind.MEMORY_RESTORED,
    EventKind.MEMORY_RESTORED: EventKind.MEMORY_FORGOTTEN,
    EventKind.MEMORY_PINNED: EventKind.MEMORY_UNPINNED,
    EventKind.MEMORY_UNPINNED: EventKind.MEMORY_PINNED,
}


Ids = Sequence[str]
_MOVING: Mapping[EventKind, Callable[[LedgerEvent], tuple[Ids, Ids]]] = {
    EventKind.MEMORY_FORGOTTEN: lambda event: (event.memory_ids, ()),
    EventKind.MEMORY_RESTORED: lambda event: (event.payload.get("takes_away", ()), event.memory_ids),
    EventKind.MEMORY_EDITED: lambda event: (event.payload["replaces"], event.memory_ids),
    EventKind.MEMORY_MERGED: lambda event: (event.payload["replaces"], event.memory_ids),
}
"""Which memories go out of a run's sight by an event, and which come back."""


def _bare(payload: Any) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in (TOGETHER, UNDOES, REDOES)}


def _actions(events: Sequence[LedgerEvent]) -> Iterator[Action]:
    """Events of one person in the order of the ledger, those that were appended together as one."""
    group: list[LedgerEvent] = []
    for event in events:
        together = event.payload.get(TOGETHER)
        if group and (together is None or together != group[0].payload.get(TOGETHER)):
            yield Action(tuple(group))
            group = []
        group.append(event)
    if group:
        yield Action(tuple(group))


def _taken(stack: list[Action], event_id: str) -> list[Action]:
    """Take the action with this event from the stack, if it is there."""
    for position in range(len(stack) - 1, -1, -1):
        if any(event.id == event_id for event in stack[position].events):
            return [stack.pop(position)]
    return []
