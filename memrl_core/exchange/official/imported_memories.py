"""What the stores of an official checkpoint come to: memories with one vector, one intent and one q each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from memrl_core.bank.matrix import UNIT_TOLERANCE
from memrl_core.errors import InputError
from memrl_core.exchange.contents import Skipped
from memrl_core.exchange.official.json_files import text_of
from memrl_core.exchange.official.stores import Item, Stores, Vector, faults_between, named, stored_q, visits_of
from memrl_core.policies.base import intent_key
from memrl_core.records import Memory, Outcome, Utility

STORED_CHARACTERS = 4096
"""The official code cuts a task's text here for the store, and not for the index."""
SAME_INTENT = 0.9
"""From this cosine on the official code files a memory under an intent that is there already (LLB: 0.99)."""


@dataclass(slots=True)
class Taken:
    """The memories of a checkpoint, oldest first, with what they believe; `intents` are unit vectors by text."""

    dimension: int
    memories: dict[str, tuple[Memory, Vector]] = field(default_factory=dict)
    utilities: dict[str, Utility] = field(default_factory=dict)
    intents: dict[str, Vector] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)


def taken_from(stores: Stores) -> Taken:
    """The memories that can be taken over, not belonging to a run yet.

    q is that of `q_cache.json`, else of `textual_memory.json`, else of `mem_cache.json`. A memory stands where the
    official retrieval looks for it: at the vector of the intent it is filed under, which all memories filed there
    share; one that is not filed, or under an intent without a vector, at its own. Raises `InputError` when no vector
    can be used.
    """
    items = {**stores.cached, **stores.cube}
    taken = Taken(_dimension(items.values(), stores))
    taken.faults += stores.faults
    q = {i: stores.current_q.get(i, stored_q(item)) for i, item in items.items()}
    valued = {i: 0.0 if value is None else value for i, value in q.items()}
    taken.faults += faults_between(stores, valued)
    filed = {i: intent for intent, ids in (stores.index or {}).items() for i in ids}
    places = {i: number for number, i in enumerate(filed)}
    fits = _Unit(taken.dimension)
    taken.intents = {text: unit for text, vector in stores.intents.items() if (unit := fits.unit(vector)) is not None}
    rows = []
    shared = cut = 0
    elsewhere: list[str] = []
    apart: list[str] = []
    for memory_id, item in items.items():
        own, intent = fits.unit(item.vector), filed.get(memory_id)
        place = None if intent is None else taken.intents.get(intent)
        vector = own if place is None else place
        if vector is None:
            why = "it has no vector that can be used" if item.vector is None else "its vector does not fit the others"
            taken.skipped.append(Skipped(f"memory {memory_id}", why))
            continue
        same_text = intent is not None and _same_text(item.text, intent)
        if place is not None and own is not None and float(place @ own) < SAME_INTENT:
            (apart if same_text else elsewhere).append(memory_id)
        shared += intent is not None and not same_text
        cut += same_text and item.text != intent
        rows.append((_memory(item, intent, same_text), vector))
    rows.sort(key=lambda row: (row[0].created, _stored(items[row[0].id]), places.get(row[0].id, len(places))))
    taken.memories = {memory.id: (memory, vector) for memory, vector in rows}
    taken.utilities = {i: Utility(valued[i], visits_of(items[i])) for i in taken.memories}
    taken.faults += fits.faults()
    taken.faults += _faults(elsewhere, apart, [i for i in taken.memories if q[i] is None])
    taken.faults += _lost_parents(taken.memories)
    taken.read += _read(taken, stores, shared, cut, fits.stretched)
    taken.lacks += _lacks(taken.memories, items)
    return taken


class _Unit:
    """Makes vectors of one dimension unit vectors and counts what it met."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._others: Counter[int] = Counter()
        self.stretched = 0

    def unit(self, vector: Vector | None) -> Vector | None:
        """The vector with length 1; None when there is none of this dimension or it has no direction."""
        if vector is None:
            return None
        if len(vector) != self._dimension:
            self._others[len(vector)] += 1
            return None
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if length == 0:
            return None
        if abs(length - 1) <= UNIT_TOLERANCE:
            return vector
        self.stretched += 1
        scaled: Vector = (vector.astype(np.float64) / length).astype(np.float32)
        return scaled

    def faults(self) -> list[str]:
        """The vectors of other sizes, in a sentence."""
        if not self._others:
            return []
        sizes = ", ".join(f"{count:,} of {size:,} dimensions" for size, count in sorted(self._others.items()))
        return [f"Most vectors have {self._dimension:,} dimensions; there are also {sizes}, which were not used."]


def _dimension(items: Iterable[Item], stores: Stores) -> int:
    sizes = Counter(len(item.vector) for item in items if item.vector is not None)
    sizes.update(len(vector) for vector in stores.intents.values())
    if not sizes:
        raise InputError(
            "This checkpoint holds no vectors, without which nothing can be recalled. Nothing was imported; give it "
            "with cube/textual_memory.json or local_cache/query_embeddings.json."
        )
    return max(sizes, key=lambda size: (sizes[size], size))


def _memory(item: Item, filed: str | None, same_text: bool) -> Memory:
    metadata = item.metadata
    intent = (filed if same_text else item.text) or text_of(metadata.get("task_description")) or filed or ""
    related = metadata.get("related_memory_ids")
    parents = [text_of(i) for i in related if isinstance(i, str) and i] if isinstance(related, list) else []
    return Memory(
        id=item.id,
        intent=intent,
        experience=text_of(metadata.get("full_content")) or item.text,
        outcome=_outcome(metadata),
        intent_key=intent_key(filed or intent),
        parents=tuple(i for i in dict.fromkeys(parents) if i != item.id),
        run="",
        step=0,
        task=task_of(metadata.get("task_id"), metadata.get("sample_index")),
        created=_created(metadata),
    )


def _same_text(text: str, intent: str) -> bool:
    return text == intent or (len(text) == STORED_CHARACTERS and intent.startswith(text))


def _outcome(metadata: Mapping[str, Any]) -> Outcome:
    success = metadata.get("success")
    if isinstance(success, bool):
        return "success" if success else "failure"
    named_outcome = metadata.get("outcome")
    if named_outcome == "success":
        return "success"
    return "failure" if named_outcome == "failure" else "unrated"


def task_of(*names: Any) -> str:
    """The first of several fields that names a task, as text; "" when none does."""
    for name in names:
        if isinstance(name, str) and name:
            return text_of(name)[:200]
        if isinstance(name, int) and not isinstance(name, bool) and abs(name) < 2**53:
            return str(name)
    return ""


def _stored(item: Item) -> str:
    # `memory_time` has whole seconds; `updated_at` is set in microseconds when a memory is made, and an update of q
    # leaves it as it is.
    return moment(item.metadata.get("updated_at"), "microseconds") or ""


def _created(metadata: Mapping[str, Any]) -> str:
    return next((m for name in ("memory_time", "created_at", "updated_at") if (m := moment(metadata.get(name)))), "")


def moment(value: Any, precision: str = "milliseconds") -> str | None:
    """A time as ISO 8601 in UTC; one without a zone is taken as UTC. None when it is no time."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec=precision)
    except (ValueError, OverflowError):
        return None


def _faults(elsewhere: list[str], apart: list[str], unvalued: list[str]) -> list[str]:
    faults = []
    if elsewhere:
        faults.append(
            f"{len(elsewhere):,} memories are filed under an intent that is not theirs (another text, cosine below "
            f"{SAME_INTENT:g}); they stand at its vector: {named(elsewhere)}."
        )
    if apart:
        faults.append(
            f"{len(apart):,} memories have another vector in textual_memory.json than their own intent has in "
            f"query_embeddings.json, which was taken: {named(apart)}."
        )
    if unvalued:
        faults.append(f"{len(unvalued):,} memories have no q; it was taken as 0: {named(unvalued)}.")
    return faults


def _lost_parents(memories: Mapping[str, tuple[Memory, Vector]]) -> list[str]:
    lost = dict.fromkeys(p for memory, _ in memories.values() for p in memory.parents if p not in memories)
    return [f"{len(lost):,} memories are named as parents and are not there: {named(lost)}."] if lost else []


def _read(taken: Taken, stores: Stores, shared: int, cut: int, stretched: int) -> list[str]:
    outcomes = Counter(memory.outcome for memory, _ in taken.memories.values())
    counts = ", ".join(f"{outcomes[o]:,} {o}" for o in ("success", "failure", "unrated") if outcomes[o])
    updated = sum(utility.visits > 0 for utility in taken.utilities.values())
    read = [
        f"{len(taken.memories):,} memories ({counts}) with vectors of {taken.dimension:,} dimensions; q was ever moved "
        f"of {updated:,} of them.",
    ]
    from_cache = sum(i in stores.current_q for i in taken.memories)
    read.append(f"The q of {from_cache:,} memories is that of q_cache.json; of all others, the one stored with them.")
    stale = stores.stale({i: utility.q for i, utility in taken.utilities.items()})
    if stale:
        read.append(
            f"{len(stale):,} memories have an old q in mem_cache.json, which was not used; the official code never "
            "renews it."
        )
    if shared:
        read.append(f"{shared:,} memories share the vector of an older intent that they were filed under.")
    if cut:
        read.append(f"{cut:,} intents were cut at {STORED_CHARACTERS:,} characters in the store and are whole here.")
    if stretched:
        read.append(f"{stretched:,} vectors were not of length 1 and were scaled to it.")
    return read


def _lacks(memories: Mapping[str, tuple[Memory, Vector]], items: Mapping[str, Item]) -> list[str]:
    lacks = ["the single rewards that made each q what it is"]
    bare = sum(not items[i].metadata.get("full_content") for i in memories)
    if bare:
        lacks.append(f"the experience of {bare:,} memories (their intent stands in its place)")
    undated = sum(not memory.created for memory, _ in memories.values())
    if undated:
        lacks.append(f"when {undated:,} memories were written")
    return lacks
