"""Events on their way into the ledger: numbered, dated, appended, and only then taken in."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memrl_core.bank import codec
from memrl_core.bank.appends import Appends
from memrl_core.bank.knowledge import Knowledge
from memrl_core.bank.mirror import RunState
from memrl_core.bank.roles import Role, must_allow, must_be, person_name
from memrl_core.errors import InputError
from memrl_core.learning import assigned_credit, order_key
from memrl_core.learning.scales import LARGEST_REWARD
from memrl_core.records import EventKind, LedgerEvent

LONGEST_NOTE = 4000


def now() -> str:
    """This moment as it is stored."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def must_be_reward(value: float) -> None:
    """Raise `InputError` for what is not a number that any reward can be."""
    if not abs(value) <= LARGEST_REWARD:
        raise InputError(
            f"{value:g} is not a reward: give a finite number from −{LARGEST_REWARD:g} to {LARGEST_REWARD:g}. Nothing "
            "was saved."
        )


class Ledger:
    """The ledger of one bank as one handle writes it; `changed` says whether anything was appended since it was set."""

    def __init__(self, known: Knowledge, appends: Appends, lock: threading.RLock) -> None:
        self._known = known
        self._appends = appends
        self._lock = lock
        self.last_saved: datetime | None = None
        self.changed = False

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
        state = self._known.states.setdefault(run, RunState())
        begun = max(state.begun, self._known.newest_step(run) or 0)
        return LedgerEvent(
            id=event_id or uuid.uuid4().hex,
            seq=self._known.seq + 1,
            run=run,
            step=step,
            step_id=step_id,
            known_at=begun if known_at is None else known_at,
            kind=kind,
            created=now(),
            **values,
        )

    def revoking(self, reward: LedgerEvent, rater: str, reason: str = "") -> LedgerEvent:
        """A new event by which a reward no longer counts, not appended yet."""
        return self.event(
            reward.run,
            reward.step,
            reward.step_id,
            EventKind.REWARD_REVOKED,
            memory_ids=reward.memory_ids,
            source="person",
            rater=person_name(rater),
            reason=reason.strip(),
            revokes=reward.id,
        )

    def append(self, *events: LedgerEvent) -> None:
        """Append events in one write, then take them in. Raises `NotAllowed` by the role of the person behind one."""
        with self._lock:
            for event in events:
                must_allow(self._known, event)
            self.adopt(*events)

    def must_allow(self, person: str, role: Role) -> None:
        """Raise `NotAllowed` when the role of a person, if one is named, does not cover `role`."""
        if person:
            must_be(self._known, person_name(person), role)

    def append_in_order(self, events: Sequence[LedgerEvent]) -> list[LedgerEvent]:
        """Append events of one moment so that every reader sorts them as they are given; returns them as stored."""
        numbered = [replace(event, seq=event.seq + position) for position, event in enumerate(events)]
        self.append(*numbered)
        return numbered

    def adopt(self, *events: LedgerEvent) -> None:
        """Append events as they are: what people did elsewhere asks for no role here."""
        with self._lock:
            self._appends.put("ledger", [codec.event_row(event) for event in events])
            for event in events:
                self._known.take_event(event)
            self.saved()

    def saved(self) -> None:
        """Note that something was appended."""
        self.last_saved = datetime.now(UTC)
        self.changed = True


class Notes:
    """Findings that people pinned to steps: text beside the facts, which moves nothing."""

    def __init__(
        self,
        known: Knowledge,
        ledger: Ledger,
        appends: Appends,
        alone: Callable[[], AbstractContextManager[None]],
        lock: threading.RLock,
    ) -> None:
        self._known, self._ledger, self._appends, self._alone, self._lock = known, ledger, appends, alone, lock

    def pin(
        self, run: str, step: int, text: str, author: str, memory_ids: Sequence[str] = (), **place: Any
    ) -> LedgerEvent:
        """Append a note about a step; `place` is what the person saw (JSON).

        Raises `InputError` when it is empty or too long, `UnknownRun`.
        """
        words = text.strip()
        if not words or len(words) > LONGEST_NOTE:
            raise InputError(f"A note has 1 to {LONGEST_NOTE:,} characters. Nothing was saved.")
        with self._alone():
            self._known.run(run)
            event = self._ledger.event(
                run,
                step,
                "",
                EventKind.NOTE_PINNED,
                memory_ids=tuple(memory_ids),
                source="person",
                rater=person_name(author),
                reason=words,
                payload=place,
            )
            self._ledger.append(event)
            self._appends.flush()
            return event

    def remove(self, note_id: str, author: str) -> None:
        """Append that a note no longer stands. Raises `InputError` when there is none of that id, `NotAllowed`."""
        with self._alone():
            note = self._known.events.get(note_id)
            if note is None or note.kind is not EventKind.NOTE_PINNED:
                raise InputError("That note is not in this bank. Nothing was changed.")
            self._ledger.append(
                self._ledger.event(
                    note.run,
                    note.step,
                    "",
                    EventKind.NOTE_REMOVED,
                    source="person",
                    rater=person_name(author),
                    revokes=note_id,
                )
            )
            self._appends.flush()

    def standing(self, run: str | None = None, step: int | None = None) -> list[LedgerEvent]:
        """The notes that were not removed, of the whole bank, of a run or of a step, oldest first.

        Raises `UnknownRun`.
        """
        with self._lock:
            events = self._known.events.values() if run is None else self._known.states[self._known.run(run).id].events
            removed = {e.revokes for e in events if e.kind is EventKind.NOTE_REMOVED}
            return sorted(
                (
                    e
                    for e in events
                    if e.kind is EventKind.NOTE_PINNED and e.id not in removed and step in (None, e.step)
                ),
                key=lambda e: (e.seq, e.id),
            )


class Credits:
    """Rewards of single memories that a person let count in the place of the step's one reward for all.

    `credited(run, step)` names the memories that were in the prompt of a finished step.
    """

    def __init__(
        self,
        known: Knowledge,
        ledger: Ledger,
        appends: Appends,
        alone: Callable[[], AbstractContextManager[None]],
        lock: threading.RLock,
        credited: Callable[[str, int], tuple[str, ...]],
    ) -> None:
        self._known, self._ledger, self._appends, self._alone, self._lock = known, ledger, appends, alone, lock
        self._credited = credited

    def assign(
        self, run: str, step: int, step_id: str, rewards: Mapping[str, float], rater: str, reason: str
    ) -> LedgerEvent:
        """Let each memory move towards its own reward in this step; `reason` says how the rewards were found.

        Raises `InputError` for a reward that is not a number from −10 to 10 and for a memory that was not in the prompt
        of a finished step, `NotAllowed`, `UnknownRun`.
        """
        for reward in rewards.values():
            must_be_reward(reward)
        with self._alone():
            self._known.run(run)
            if step in self._known.steps_of(run):
                strangers = rewards.keys() - set(self._credited(run, step))
                if strangers:
                    raise InputError(
                        f"Memory “{min(strangers)[:80]}” was not in the prompt of step {step}, so no reward of it is "
                        "its own. Nothing was saved."
                    )
            event = self._ledger.event(
                run,
                step,
                step_id,
                EventKind.CREDIT_ASSIGNED,
                memory_ids=tuple(rewards),
                source="person",
                rater=person_name(rater),
                reason=reason,
                payload={"rewards": {memory_id: float(reward) for memory_id, reward in rewards.items()}},
            )
            self._ledger.append(event)
            self._appends.flush()
            return event

    def revoke(self, credit_id: str, rater: str) -> None:
        """Go back to one reward for all. Raises `InputError` when there is no such credit, `NotAllowed`."""
        with self._alone():
            given = self._known.events.get(credit_id)
            if given is None or given.kind is not EventKind.CREDIT_ASSIGNED:
                raise InputError("That credit is not in this bank. Nothing was changed.")
            self._ledger.append(
                self._ledger.event(
                    given.run,
                    given.step,
                    given.step_id,
                    EventKind.CREDIT_REVOKED,
                    memory_ids=given.memory_ids,
                    source="person",
                    rater=person_name(rater),
                    revokes=credit_id,
                )
            )
            self._appends.flush()

    def standing(self, run: str, step: int) -> LedgerEvent | None:
        """The credit that counts for a step now; None when every memory gets the step's reward."""
        with self._lock:
            events = self._known.states[self._known.run(run).id].at(step)
            if not assigned_credit(events):
                return None
            revoked = {e.revokes for e in events}
            return max(
                (e for e in events if e.kind is EventKind.CREDIT_ASSIGNED and e.id not in revoked), key=order_key
            )
