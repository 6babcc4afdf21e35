"""Memories in people's hands: pinned, reworded, merged, forgotten and restored, each an event with a reason.

A memory is never changed: an edit or a merge writes a new one in the place of the old, which stays for replays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.bank.facts import locked
from memrl_core.bank.identity import EmbedderIdentity
from memrl_core.bank.ledger import Part, WritingPart, in_the_name_of, now
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.codec import Inserted
from memrl_core.embedders.base import Embedder
from memrl_core.errors import InputError
from memrl_core.learning import CHANGES_MEMORIES, REPLACES, Fold, in_ledger, named_by
from memrl_core.policies.base import intent_key
from memrl_core.records import EventKind, LedgerEvent, Memory, Utility

LONGEST_TEXT = 20_000
NONE_CHOSEN = "No memory was chosen. Nothing was changed."


_TAKING = {
    EventKind.MEMORY_FORGOTTEN: "forgotten",
    EventKind.MEMORY_EDITED: "edited",
    EventKind.MEMORY_MERGED: "merged",
}


@dataclass(frozen=True, slots=True)
class Gone:
    """How a memory went ("forgotten", "edited" or "merged") and when; `now` stands in its place, "" where none does."""

    how: str
    when: str
    now: str


class Editing(Part):
    """What became of the memories of a run by people's hands."""

    @locked
    def changes(self, run: str, memory_id: str) -> list[LedgerEvent]:
        """What became of a memory in a run, and of those it came from and was replaced by, oldest first."""
        events = sorted(self._events_behind(run, CHANGES_MEMORIES), key=in_ledger)
        related, found = {memory_id}, [events[:0]]
        while len(found) < 2 or len(found[-1]) > len(found[-2]):
            chosen = [event for event in events if related.intersection(named_by(event))]
            related.update(i for event in chosen if event.payload.get("replaces") for i in named_by(event))
            found.append(chosen)
        return found[-1]

    @locked
    def pinned(self, run: str) -> frozenset[str]:
        """Of the memories that the run sees, those that it must not forget."""
        fold = self._q.now(run)
        return frozenset(fold.pinned.intersection(fold.utilities))

    @locked
    def away(self, run: str) -> Mapping[str, Utility]:
        """q and visits of every memory that the run knew once and no longer sees."""
        return dict(self._q.now(run).away)

    @locked
    def gone(self, run: str) -> dict[str, Gone]:
        """What became of every memory that the run knew once and no longer sees."""
        fold = self._q.now(run)
        if not fold.away:
            return {}
        last: dict[str, tuple[LedgerEvent, str]] = {}
        for event in sorted(self._events_behind(run, _TAKING), key=in_ledger):
            for memory_id in event.payload.get("replaces") or event.memory_ids:
                last[memory_id] = event, event.memory_ids[0] if event.payload.get("replaces") else ""
        found = {}
        for memory_id in fold.away:
            if memory_id not in last:
                continue
            event, now_id = last[memory_id]
            while now_id and now_id not in fold.utilities:
                now_id = last[now_id][1] if now_id in last else ""
            found[memory_id] = Gone(_TAKING[event.kind], event.created, now_id)
        return found

    @locked
    def replacing(self, run: str) -> frozenset[str]:
        """The memories that an edit or a merge put in the place of others, as long as that counts."""
        return frozenset(i for e in self._events_behind(run, REPLACES) for i in e.memory_ids)

    def _events_behind(self, run: str, kinds: Collection[EventKind]) -> list[LedgerEvent]:
        """The events of these kinds behind what a run sees, with those of the run that it started from."""
        info, inherited = self._facts.run(run), list[LedgerEvent]()
        if info.base:
            inherited = [e for e in self._events_behind(info.base, kinds) if e.known_at <= info.base_step]
        return [*inherited, *self._facts.counting(self._facts.events(run, kinds))]


@dataclass(frozen=True)
class EditingWriter(Editing, WritingPart):
    """What people do to the memories of a run, from its next step on. `by` is the person; all raise `NotAllowed`."""

    _embedder: EmbedderIdentity

    def pin(self, run: str, memory_ids: Sequence[str], by: str, reason: str = "") -> LedgerEvent:
        """Keep memories from being forgotten; those that are pinned already are passed over.

        Raises `InputError` for one that the run does not see, and when all are pinned.
        """
        return self._pin(run, memory_ids, EventKind.MEMORY_PINNED, by, reason)

    def unpin(self, run: str, memory_ids: Sequence[str], by: str, reason: str = "") -> LedgerEvent:
        """Let memories be forgotten again; those that are not pinned are passed over.

        Raises `InputError` for one that the run does not see, and when none is pinned.
        """
        return self._pin(run, memory_ids, EventKind.MEMORY_UNPINNED, by, reason)

    def forget(self, run: str, memory_ids: Sequence[str], by: str = "", reason: str = "") -> LedgerEvent:
        """Let the run see these memories no longer. Nobody's name: the program's own rules do it.

        Raises `InputError` for a memory that the run does not see, or that is pinned.
        """
        with self._alone():
            self._seen(run, memory_ids)
            must_not_be_pinned(self._q.known(run, memory_ids), memory_ids)
            return self._append(run, memory_ids, EventKind.MEMORY_FORGOTTEN, by, reason)

    def restore(self, run: str, memory_ids: Sequence[str], by: str) -> LedgerEvent:
        """Let the run see memories again that were forgotten, edited or merged; what took their place goes.

        With a merged memory all come back that were merged with it. Raises `InputError` for a memory that is not away,
        and for several of which one was replaced without the others.
        """
        with self._alone():
            if not memory_ids:
                raise InputError(NONE_CHOSEN)
            away = self._q.known(run, memory_ids).away
            for memory_id in memory_ids:
                if memory_id not in away:
                    raise InputError(f"Run {run} has not lost a memory “{memory_id[:80]}”. Nothing was restored.")
            found = self._replacement_of(run, memory_ids)
            if found is not None:
                replaced, event = found
                payload = {"takes_away": list(event.memory_ids), "kind": str(event.kind)}
                return self._append(run, replaced, EventKind.MEMORY_RESTORED, by, payload=payload)
            for memory_id in memory_ids:
                if self._replacement_of(run, [memory_id]):
                    raise InputError(
                        f"Another memory has replaced “{memory_id[:80]}”. Nothing was restored; restore it by itself."
                    )
            return self._append(run, memory_ids, EventKind.MEMORY_RESTORED, by)

    def edit(
        self, run: str, memory_id: str, intent: str, experience: str, embedder: Embedder, by: str, reason: str = ""
    ) -> Memory:
        """Put a new wording in the place of a memory, with its q and visits; another intent is embedded anew.

        Raises `InputError` for texts that are empty, too long or unchanged and for a memory that the run does not see,
        `EmbedderMismatch`, and what the embedder raises.
        """

        def chosen() -> list[Memory]:
            (old,) = self._seen(run, [memory_id])
            if (intent.strip(), experience.strip()) == (old.intent.strip(), old.experience.strip()):
                raise InputError("Nothing was changed: the texts are as they were.")
            return [old]

        return self._replace(run, chosen, intent, experience, embedder, EventKind.MEMORY_EDITED, by, reason)

    def merge(
        self,
        run: str,
        memory_ids: Sequence[str],
        intent: str,
        experience: str,
        embedder: Embedder,
        by: str,
        reason: str = "",
    ) -> Memory:
        """Put one memory in the place of several; its q is the mean of theirs, weighted by visits.

        Raises as `edit`, and `InputError` for fewer than two memories.
        """

        def chosen() -> list[Memory]:
            if len(set(memory_ids)) < 2:
                raise InputError("It takes two memories to merge. Nothing was changed; choose another one.")
            self._seen(run, memory_ids)
            return self._seen(run, list(self._q.known(run, memory_ids).utilities))

        return self._replace(run, chosen, intent, experience, embedder, EventKind.MEMORY_MERGED, by, reason)

    # --- within -------------------------------------------------------------------------------------------------------

    def _seen(self, run: str, memory_ids: Sequence[str]) -> list[Memory]:
        if not memory_ids:
            raise InputError(NONE_CHOSEN)
        known = self._q.known(run, memory_ids).utilities
        unseen = [memory_id for memory_id in memory_ids if memory_id not in known]
        if unseen:
            raise InputError(f"Run {run} sees no memory “{unseen[0][:80]}”. Nothing was changed.")
        return [self._facts.memories[memory_id] for memory_id in memory_ids]

    def _pin(self, run: str, memory_ids: Sequence[str], kind: EventKind, by: str, reason: str) -> LedgerEvent:
        with self._alone():
            self._seen(run, memory_ids)
            pinned, is_pin = self._q.known(run, memory_ids).pinned, kind is EventKind.MEMORY_PINNED
            chosen = [memory_id for memory_id in memory_ids if (memory_id in pinned) is not is_pin]
            if not chosen:
                state = "pinned already" if is_pin else "not pinned"
                raise InputError(f"Nothing was changed: what you chose is {state}.")
            return self._append(run, chosen, kind, by, reason)

    def _append(
        self, run: str, memory_ids: Sequence[str], kind: EventKind, by: str, reason: str = "", payload: Any = None
    ) -> LedgerEvent:
        fields = {"reason": reason.strip(), "payload": payload or {}, **in_the_name_of(by)}
        about = tuple(dict.fromkeys(memory_ids))
        event = self._ledger.event(run, self._newest(run), "", kind, memory_ids=about, **fields)
        self._ledger.append(event)
        return event

    def _newest(self, run: str) -> int:
        newest = self._facts.of(run).newest
        return self._facts.run(run).first_step - 1 if newest is None else newest

    def _replace(
        self,
        run: str,
        chosen: Callable[[], Sequence[Memory]],
        intent: str,
        experience: str,
        embedder: Embedder,
        kind: EventKind,
        by: str,
        reason: str,
    ) -> Memory:
        """`chosen` gives the memories to replace; it raises `InputError` when they cannot be replaced now."""
        intent, experience = intent.strip(), experience.strip()
        if not intent or not experience or max(len(intent), len(experience)) > LONGEST_TEXT:
            raise InputError(
                f"A memory's intent and experience have 1 to {LONGEST_TEXT:,} characters. Nothing was changed."
            )
        with self._alone():
            self._ledger.must_allow(by, Role.MANAGE)
            embedded_already = _of_intent(intent, chosen()) is not None
        # An embedder may take long: meanwhile others write, so everything is looked at again afterwards.
        vector = None if embedded_already else self._embedded(intent, embedder)
        with self._alone():
            self._ledger.must_allow(by, Role.MANAGE)
            old = chosen()
            alike = _of_intent(intent, old)
            outcomes = {memory.outcome for memory in old}
            new = Memory(
                id=self._free_id(old[0].id),
                intent=alike.intent if alike else intent,
                experience=experience,
                outcome=old[0].outcome if len(outcomes) == 1 else "unrated",
                intent_key=alike.intent_key if alike else intent_key(intent),
                parents=tuple(memory.id for memory in old),
                run=run,
                step=old[0].step,
                task=old[0].task,
                created=now(),
            )
            stored = self._facts.memories.embedding(alike.id) if alike else vector
            assert stored is not None
            self._facts.write(new, stored, Inserted(self._facts.clock + 1))
            self._append(run, [new.id], kind, by, reason, {"replaces": [memory.id for memory in old]})
            return new

    def _embedded(self, intent: str, embedder: Embedder) -> npt.NDArray[np.float32]:
        self._embedder.must_match(embedder)
        return self._facts.memories.checked(embedder.embed([intent])[0])

    def _free_id(self, memory_id: str) -> str:
        root = re.sub(r"\.\d+$", "", memory_id)
        return next(f"{root}.{n}" for n in count(2) if f"{root}.{n}" not in self._facts.memories)

    def _replacement_of(self, run: str, memory_ids: Sequence[str]) -> tuple[list[str], LedgerEvent] | None:
        """The edit or merge whose memory the run sees in the place of these, with all that it stands for.

        A wording of a wording stands for the first one.
        """
        seen = self._q.known(run).utilities
        replacing = sorted(self._events_behind(run, REPLACES), key=in_ledger, reverse=True)
        replaced, replacements = list(memory_ids), set(memory_ids)
        for _ in replacing:
            event = next((e for e in replacing if replacements <= set(e.payload["replaces"])), None)
            if event is None:
                return None
            replaced += [i for i in event.payload["replaces"] if i not in replacements]
            replacements = set(event.memory_ids)
            if replacements <= seen.keys():
                return replaced, event
        return None


def _of_intent(intent: str, memories: Iterable[Memory]) -> Memory | None:
    """The first memory with this intent."""
    return next((memory for memory in memories if memory.intent.strip() == intent), None)


def must_not_be_pinned(fold: Fold, memory_ids: Iterable[str]) -> None:
    """Raise `InputError` for a memory that must not be forgotten."""
    pinned = fold.pinned.intersection(memory_ids)
    if pinned:
        raise InputError(f"Memory {min(pinned)[:80]} is pinned. Nothing was forgotten; unpin it first.")
