"""Events on their way into the ledger: numbered, dated and allowed; notes, credits and roles, which are events too."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from memrl_core.bank.facts import Facts, locked
from memrl_core.bank.people.roles import COVERS, LONGEST_NAME, NEWCOMERS, RATING, Role, actor_of, person_name
from memrl_core.bank.storage import schema
from memrl_core.bank.updates import Updates
from memrl_core.bank.utilities import Utilities
from memrl_core.errors import InputError, NotAllowed
from memrl_core.learning import assigned_credit, in_ledger, order_key
from memrl_core.learning.scales import RatingScales
from memrl_core.policies import is_installed
from memrl_core.records import EventKind, LedgerEvent

LONGEST_NOTE = 4000
ROUNDING = 1e-9


def now() -> str:
    """This moment as it is stored."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def in_the_name_of(person: str) -> dict[str, Any]:
    """The fields of an event that say who is behind it; none for "". Raises `InputError` for an impossible name."""
    return {"source": "person", "rater": person_name(person)} if person else {}


class Ledger:
    """What the ledger of one bank says of rewards and roles, and new events for it."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def event(
        self,
        run: str,
        step: int,
        step_id: str,
        kind: EventKind,
        *,
        event_id: str = "",
        known_at: int | None = None,
        **values: Any,
    ) -> LedgerEvent:
        """A new event of this moment, not appended yet."""
        if known_at is None:
            known_at = self._facts.begun(run) if run else 0
        return LedgerEvent(
            id=event_id or uuid.uuid4().hex,
            seq=self._facts.clock + 1,
            run=run,
            step=step,
            step_id=step_id,
            known_at=known_at,
            kind=kind,
            created=now(),
            **values,
        )

    def scales(self, run: str) -> RatingScales:
        """How ratings of a run become rewards now. Raises `UnknownRun`."""
        changes = self._facts.of(run).changes.get(EventKind.SCALES_CHANGED)
        return RatingScales.of(max(changes, key=in_ledger).payload["scales"]) if changes else RatingScales()

    def bounds(self, run: str, step: int) -> tuple[float, float]:
        """r− and r+ in force at a step. Raises `UnknownRun`."""
        settings = self._facts.settings_at(run)(step)
        return float(settings.get("reward_failure", -1.0)), float(settings.get("reward_success", 1.0))

    def must_be_reward(self, run: str, step: int, value: float) -> None:
        """Raise `InputError` for a reward of a person that lies outside what the run's scales give at a step."""
        low, high = self.scales(run).bounds(*self.bounds(run, step))
        if not low - ROUNDING <= value <= high + ROUNDING:
            raise InputError(
                f"{value:g} is outside the scale of run {run[:80]}: give {low:g} to {high:g}. Nothing was saved."
            )

    def revoking(self, reward: LedgerEvent, rater: str) -> LedgerEvent:
        """A new event by which a reward no longer counts, not appended yet."""
        return self.event(
            reward.run,
            reward.step,
            reward.step_id,
            EventKind.REWARD_REVOKED,
            memory_ids=reward.memory_ids,
            source="person",
            rater=person_name(rater),
            revokes=reward.id,
        )

    # --- roles --------------------------------------------------------------------------------------------------------

    def roles(self) -> dict[str, LedgerEvent]:
        """The newest event by which each person, or `NEWCOMERS`, got a role."""
        found: dict[str, LedgerEvent] = {}
        for event in self._facts.of_kind(EventKind.ROLE_ASSIGNED):
            person = str(event.payload["person"])
            found[person] = max((event, found.get(person, event)), key=order_key)
        return found

    def role_of(self, person: str) -> Role:
        """The person's role: their own, else that of newcomers, else all may manage."""
        roles = self.roles()
        event = roles.get(person) or roles.get(NEWCOMERS)
        return Role(event.payload["role"]) if event is not None else Role.MANAGE

    def must_be(self, person: str, role: Role) -> None:
        """Raise `NotAllowed` unless the person's role covers `role`."""
        has, order = self.role_of(person), list(Role)
        if order.index(has) < order.index(role):
            raise NotAllowed(
                f"{person[:LONGEST_NAME]} may {has} in this bank, not {COVERS[role]}. Nothing was changed; ask someone "
                "who may manage it."
            )

    def must_allow(self, person: str, role: Role) -> None:
        """Raise `NotAllowed` when the role of a person, if one is named, does not cover `role`."""
        if person:
            self.must_be(person_name(person), role)


class WritableLedger(Ledger):
    """The ledger as one handle appends to it, within the transactions of its callers."""

    def __init__(self, facts: Facts, updates: Updates) -> None:
        super().__init__(facts)
        self._updates = updates

    def by_person(self, person: str, run: str, step: int, step_id: str, kind: EventKind, **values: Any) -> LedgerEvent:
        """Append what a person did. Raises `InputError` for an impossible name, `NotAllowed`."""
        event = self.event(run, step, step_id, kind, source="person", rater=person_name(person), **values)
        self.append(event)
        return event

    def taken_back(self, person: str, event_id: str, given: EventKind, kind: EventKind, what: str) -> None:
        """Append, as `kind`, that an event of the kind `given` no longer stands; `what` names it in sentences.

        Raises `InputError` when there is none of that id, `NotAllowed`.
        """
        event = self._facts.event(event_id)
        if event is None or event.kind is not given:
            raise InputError(f"That {what} is not in this bank. Nothing was changed.")
        about = event.memory_ids if given is EventKind.CREDIT_ASSIGNED else ()
        self.by_person(person, event.run, event.step, event.step_id, kind, memory_ids=about, revokes=event_id)

    def append(self, *events: LedgerEvent) -> None:
        """Append events. Raises `NotAllowed` by the role of the person behind one."""
        for event in events:
            self._must_allow(event)
        self.adopt(*events)

    def append_in_order(self, events: Sequence[LedgerEvent]) -> list[LedgerEvent]:
        """Append events of one moment so that every reader sorts them as they are given; returns them as stored."""
        numbered = [replace(event, seq=event.seq + position) for position, event in enumerate(events)]
        self.append(*numbered)
        return numbered

    def adopt(self, *events: LedgerEvent) -> None:
        """Append events as they are: what people did elsewhere asks for no role here."""
        self._updates.store(events, [], now())

    def _must_allow(self, event: LedgerEvent) -> None:
        """Raise `NotAllowed` where a person's role does not cover an event; others' rewards are the manager's."""
        person = actor_of(event)
        if person:
            given = (self._facts.event(event.revokes) if event.revokes else None) or event
            others = given.kind in RATING and given.rater != person
            self.must_be(person, Role.RATE if event.kind in RATING and not others else Role.MANAGE)


@dataclass(frozen=True)
class Part:
    """What a bank answers about one subject, read from facts and q."""

    _facts: Facts
    _q: Utilities
    _ledger: Ledger


@dataclass(frozen=True)
class WritingPart(Part):
    """What `bank.write` changes about one subject; a method is one transaction (`Writer.alone`)."""

    _ledger: WritableLedger
    _alone: Callable[[], AbstractContextManager[None]]


class Notes(Part):
    """Findings that people pinned to steps: text beside the facts, which moves nothing."""

    @locked
    def standing(self, run: str | None = None, step: int | None = None) -> list[LedgerEvent]:
        """The notes that were not removed, of the whole bank, of a run or of a step, oldest first.

        Raises `UnknownRun`.
        """
        if run is not None:
            self._facts.run(run)
        removed = {event.revokes for event in self._facts.of_kind(EventKind.NOTE_REMOVED)}
        pinned = (e for e in self._facts.of_kind(EventKind.NOTE_PINNED) if e.id not in removed)
        return sorted((e for e in pinned if run in (None, e.run) and step in (None, e.step)), key=in_ledger)


class NotesWriter(Notes, WritingPart):
    """Pins notes to steps and removes them."""

    def pin(
        self, run: str, step: int, text: str, author: str, memory_ids: Sequence[str] = (), **seen: Any
    ) -> LedgerEvent:
        """Append a note about a step; `seen` is what the person saw (JSON).

        Raises `InputError` when it is empty or too long, `UnknownRun`.
        """
        words = text.strip()
        if not words or len(words) > LONGEST_NOTE:
            raise InputError(f"A note has 1 to {LONGEST_NOTE:,} characters. Nothing was saved.")
        with self._alone():
            self._facts.run(run)
            about = tuple(memory_ids)
            return self._ledger.by_person(
                author, run, step, "", EventKind.NOTE_PINNED, memory_ids=about, reason=words, payload=seen
            )

    def remove(self, note_id: str, author: str) -> None:
        """Append that a note no longer stands. Raises `InputError` when there is none of that id, `NotAllowed`."""
        with self._alone():
            self._ledger.taken_back(author, note_id, EventKind.NOTE_PINNED, EventKind.NOTE_REMOVED, "note")


class Credits(Part):
    """Rewards of single memories that a person let count in the place of the step's one reward for all."""

    @locked
    def standing(self, run: str, step: int) -> LedgerEvent | None:
        """The credit that counts for a step now; None when every memory gets the step's reward."""
        events = self._facts.at(run, step)
        if not assigned_credit(events):
            return None
        revoked = {e.revokes for e in events}
        return max((e for e in events if e.kind is EventKind.CREDIT_ASSIGNED and e.id not in revoked), key=order_key)

    @locked
    def of(self, run: str, step: int) -> tuple[str, ...]:
        """The memories that were in the prompt of a finished step: those that its rewards go to."""
        return self._facts.credited(run, step)

    @locked
    def unmoved(self, run: str) -> str:
        """A sentence where no q of a run follows its rewards, as the policy that says how is not installed; else ""."""
        info = self._facts.run(run)
        if is_installed(info.policy):
            return ""
        rewards, moves = self._q.followed(run)
        if not rewards or moves:
            return ""
        return (
            f"No reward has moved a q of run “{run[:80]}”: its policy “{info.policy[:80]}”, which says how they move, "
            "is not installed here, so each q stands as it began."
        )


class CreditsWriter(Credits, WritingPart):
    """Assigns credit and takes it back."""

    def assign(
        self, run: str, step: int, step_id: str, rewards: Mapping[str, float | None], rater: str, reason: str
    ) -> LedgerEvent:
        """Let each memory move towards its own reward in this step, or with None not at all.

        `reason` says how the rewards were found; a memory that is not among them moves by the step's reward.

        Raises `InputError` for a reward outside the run's scale and for a memory that was not in the prompt of a
        finished step, `NotAllowed`, `UnknownRun`.
        """
        with self._alone():
            for reward in (one for one in rewards.values() if one is not None):
                self._ledger.must_be_reward(run, step, reward)
            if self._facts.step_row(run, step) is not None:
                strangers = rewards.keys() - set(self._facts.credited(run, step))
                if strangers:
                    raise InputError(
                        f"Memory “{min(strangers)[:80]}” was not in the prompt of step {step}, so no reward of it is "
                        "its own. Nothing was saved."
                    )
            own = {"rewards": {name: None if reward is None else float(reward) for name, reward in rewards.items()}}
            kind, about = EventKind.CREDIT_ASSIGNED, tuple(rewards)
            return self._ledger.by_person(rater, run, step, step_id, kind, memory_ids=about, reason=reason, payload=own)

    def revoke(self, credit_id: str, rater: str) -> None:
        """Go back to one reward for all. Raises `InputError` when there is no such credit, `NotAllowed`."""
        with self._alone():
            self._ledger.taken_back(rater, credit_id, EventKind.CREDIT_ASSIGNED, EventKind.CREDIT_REVOKED, "credit")


class People(Part):
    """Who may do what. Without any assignment everybody may manage: a bank of one person needs no roles."""

    @locked
    def role_of(self, person: str) -> Role:
        """What this person may do."""
        return self._ledger.role_of(person_name(person))

    @locked
    def must_be(self, person: str, role: Role) -> None:
        """Raise `NotAllowed` unless the person's role covers `role`."""
        self._ledger.must_be(person_name(person), role)

    @locked
    def roles(self) -> Mapping[str, Role]:
        """The people whose role was assigned, and `NEWCOMERS` for all others if theirs was."""
        return {person: Role(event.payload["role"]) for person, event in sorted(self._ledger.roles().items())}

    def lately(self) -> list[LedgerEvent]:
        """The newest event of each person who did something, for themselves or others (`actor_of`), newest first."""
        with self._facts.database.lock:
            people = [
                person for (person,) in self._facts.database.rows(select(schema.ledger.c.actor).distinct()) if person
            ]
            newest = [max(self._facts.by_actor(person), key=in_ledger) for person in people]
        return sorted(newest, key=in_ledger, reverse=True)


class PeopleWriter(People, WritingPart):
    """Assigns roles."""

    def assign(self, person: str, role: Role, by: str, reason: str = "") -> None:
        """Append a role for a person, or for `NEWCOMERS`.

        Raises `NotAllowed` when `by` may not manage the bank, `InputError` for an impossible name and when nobody
        known by name could manage the bank any more.
        """
        name = person if person == NEWCOMERS else person_name(person)
        with self._alone():
            then = {**self.roles(), name: role}
            if then.get(NEWCOMERS, Role.MANAGE) is not Role.MANAGE and Role.MANAGE not in then.values():
                raise InputError(
                    "Then nobody could manage this bank. Nothing was changed; let someone manage it by name first."
                )
            given = {"person": name, "role": str(role)}
            self._ledger.by_person(by, "", 0, "", EventKind.ROLE_ASSIGNED, reason=reason.strip(), payload=given)
