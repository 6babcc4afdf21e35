"""The people of a bank and their roles, kept in its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from memrl_core.bank.ledger import Ledger
from memrl_core.bank.roles import NEWCOMERS, Role, person_name
from memrl_core.bank.state import BankState, locked
from memrl_core.errors import InputError
from memrl_core.records import EventKind


class People:
    """Who may do what. Without any assignment everybody may manage: a bank of one person needs no roles."""

    def __init__(self, state: BankState, ledger: Ledger, alone: Callable[[], AbstractContextManager[None]]) -> None:
        self._state, self._ledger, self._alone = state, ledger, alone

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
            self._ledger.append(
                self._ledger.event(
                    "",
                    0,
                    "",
                    EventKind.ROLE_ASSIGNED,
                    source="person",
                    rater=person_name(by),
                    reason=reason.strip(),
                    payload={"person": name, "role": str(role)},
                )
            )
