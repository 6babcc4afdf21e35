"""What each person may do in a bank."""

from __future__ import annotations

from enum import StrEnum

from memrl_core.errors import InputError, printable
from memrl_core.records import EventKind, LedgerEvent

NEWCOMERS = "*"
SOMEONE = "someone"
LONGEST_NAME = 80


class Role(StrEnum):
    """Look: nothing is changed. Rate: rewards, labels and notes too. Manage: everything."""

    LOOK = "look"
    RATE = "rate"
    MANAGE = "manage"


COVERS = {Role.RATE: "give rewards or labels", Role.MANAGE: "change runs, memories, settings or roles"}
"""What a person may do by a role and not by the one before it."""

RATING = frozenset(
    {
        EventKind.REWARD_GIVEN,
        EventKind.REWARD_REVOKED,
        EventKind.CREDIT_ASSIGNED,
        EventKind.CREDIT_REVOKED,
        EventKind.NOTE_PINNED,
        EventKind.NOTE_REMOVED,
        EventKind.MEMORY_JUDGED,
        EventKind.QUERY_JUDGED,
        EventKind.USE_JUDGED,
    }
)


def person_name(text: str) -> str:
    """A person's name as it is stored: one line without control characters; "someone" when empty.

    Raises `InputError` for a name that is too long or stands for something else.
    """
    name = " ".join(printable(text).split())
    if len(name) > LONGEST_NAME or name == NEWCOMERS:
        raise InputError(
            f"“{name[:20]}” cannot be a person's name: it has 1 to {LONGEST_NAME} characters and is not “{NEWCOMERS}”. "
            "Nothing was saved."
        )
    return name or SOMEONE


def actor_of(event: LedgerEvent) -> str:
    """Who appended an event: the person it names, or the one who did it for them; "" for the program itself."""
    return str(event.payload.get("by") or (event.rater if event.source == "person" else ""))
