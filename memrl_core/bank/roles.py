"""What each person may do in a bank."""

from __future__ import annotations

from enum import StrEnum

from memrl_core.bank.knowledge import Knowledge
from memrl_core.errors import InputError, NotAllowed
from memrl_core.records import EventKind, LedgerEvent

NEWCOMERS = "*"
SOMEONE = "someone"
LONGEST_NAME = 80


class Role(StrEnum):
    """Look: nothing is changed. Rate: rewards and notes too. Manage: everything."""

    LOOK = "look"
    RATE = "rate"
    MANAGE = "manage"


RATING = frozenset(
    {
        EventKind.REWARD_GIVEN,
        EventKind.REWARD_REVOKED,
        EventKind.CREDIT_ASSIGNED,
        EventKind.CREDIT_REVOKED,
        EventKind.NOTE_PINNED,
        EventKind.NOTE_REMOVED,
    }
)
_DOES = {Role.RATE: "give rewards", Role.MANAGE: "change runs, memories, settings or roles"}


def person_name(text: str) -> str:
    """A person's name as it is stored: one line without control characters; "someone" when empty.

    Raises `InputError` for a name that is too long or stands for something else.
    """
    name = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(name) > LONGEST_NAME or name == NEWCOMERS:
        raise InputError(
            f"“{name[:20]}” cannot be a person's name: it has 1 to {LONGEST_NAME} characters and is not “{NEWCOMERS}”. "
            "Nothing was saved."
        )
    return name or SOMEONE


def actor_of(event: LedgerEvent) -> str:
    """Who appended an event: the person it names, or the one who did it for them; "" for the program itself."""
    return str(event.payload.get("by") or (event.rater if event.source == "person" else ""))


def must_allow(known: Knowledge, event: LedgerEvent) -> None:
    """Raise `NotAllowed` when a person's role does not cover an event of theirs.

    Rewards, credits and notes of others are the manager's.
    """
    person = actor_of(event)
    if not person:
        return
    given = known.events.get(event.revokes, event)
    others = given.kind in RATING and given.rater != person
    must_be(known, person, Role.RATE if event.kind in RATING and not others else Role.MANAGE)


def role_of(known: Knowledge, person: str) -> Role:
    """The person's role: their own, else that of newcomers, else all may manage."""
    event = known.roles.get(person) or known.roles.get(NEWCOMERS)
    return Role(event.payload["role"]) if event is not None else Role.MANAGE


def must_be(known: Knowledge, person: str, role: Role) -> None:
    """Raise `NotAllowed` unless the person's role covers `role`."""
    has, order = role_of(known, person), list(Role)
    if order.index(has) < order.index(role):
        raise NotAllowed(
            f"{person[:LONGEST_NAME]} may {has} in this bank, not {_DOES[role]}. Nothing was changed; ask someone who "
            "may manage it."
        )
