"""The memories of an official checkpoint: its stores read into one, with what is wrong between them.

The stores are `cube/textual_memory.json` (every memory with vector, text and q), and in `local_cache/`
`dict_memory.json` (the index: ids by the intent they are filed under), `query_embeddings.json` (the vectors of those
intents), `q_cache.json` (the current q of what was retrieved) and `mem_cache.json` (memories as they were when first
retrieved, so with an old q). Source: MemTensor/MemRL, `memory_service.py`, February 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.bank.matrix import UNIT_TOLERANCE
from memrl_core.errors import InputError
from memrl_core.exchange.contents import NOTHING, Skipped
from memrl_core.exchange.official.json_files import (
    AGAIN,
    Checkpoint,
    data_of,
    few,
    is_number,
    object_of,
    text_of,
    value_of,
    vector_of,
)
from memrl_core.policies.base import intent_key
from memrl_core.records import Memory, Outcome, Utility

Vector = npt.NDArray[np.float32]
LONGEST_ID = 200
MOST_VISITS = 2**53
SAME_Q = 1e-9
STORED_CHARACTERS = 4096
"""The official code cuts a task's text here for the store, and not for the index."""


@dataclass(frozen=True, slots=True)
class Item:
    """One memory as one file has it; `vector` is None where the file has none."""

    id: str
    text: str
    metadata: Mapping[str, Any]
    vector: Vector | None

    def number(self, key: str, what: str) -> float | None:
        """A number of its metadata, None where there is none. Raises `InputError`."""
        value = self.metadata.get(key)
        return None if value is None else _number(value, f"The memory “{self.id[:80]}”", what)

    @property
    def q(self) -> float | None:
        return self.number("q_value", "q")

    @property
    def visits(self) -> int:
        visits = self.number("q_visits", "number of visits") or 0
        if not 0 <= visits <= MOST_VISITS or visits != int(visits):
            raise InputError(f"The memory “{self.id[:80]}” has {visits:g} visits. {AGAIN}")
        return int(visits)


@dataclass(slots=True)
class Stores:
    """What each file of one checkpoint says."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    cube: dict[str, Item] = field(default_factory=dict)
    cached: dict[str, Item] = field(default_factory=dict)
    current_q: dict[str, float] = field(default_factory=dict)
    index: dict[str, tuple[str, ...]] | None = None
    intents: dict[str, Vector] = field(default_factory=dict)


# --- reading the files ------------------------------------------------------------------------------------------------


def stores_of(found: Checkpoint, root: Path) -> Stores:
    """All stores of a checkpoint in `root`. Raises `InputError` for a file that is broken or leads out of `root`."""
    stores = Stores()
    meta = found.folder / "snapshot_meta.json"
    if meta.is_symlink() or meta.is_file():
        description = value_of(data_of(meta, root), meta.name)
        stores.meta = description if isinstance(description, dict) else {}
    if found.cube is not None:
        _read_cube(value_of(data_of(found.cube, root), found.cube.name), stores)
    if found.cache is not None:
        _read_caches(found.cache, root, stores)
    if not stores.cube and not stores.cached:
        raise InputError(f"The checkpoint {found.name} holds no memories. {NOTHING} Choose another.")
    return stores


def _read_cube(entries: Any, stores: Stores) -> None:
    if not isinstance(entries, list):
        raise InputError(f"textual_memory.json is not a list of memories. {AGAIN}")
    for number, entry in enumerate(entries, start=1):
        where = f"Entry {number} of textual_memory.json"
        item = _item(entry, where)
        if item is not None and item.id in stores.cube:
            raise InputError(f"{where} has the id “{item.id}” of an earlier one. {AGAIN}")
        if item is not None:
            stores.cube[item.id] = item


def _read_caches(cache: Path, root: Path, stores: Stores) -> None:
    def entries(name: str) -> Mapping[str, Any] | None:
        path = cache / name
        return object_of(path, root) if path.is_symlink() or path.exists() else None

    for memory_id, value in (entries("mem_cache.json") or {}).items():
        if (item := _item(value, f"“{memory_id[:80]}” of mem_cache.json")) is not None:
            stores.cached[item.id] = item
    for memory_id, value in (entries("q_cache.json") or {}).items():
        stores.current_q[text_of(memory_id)] = _number(value, f"“{memory_id[:80]}” of q_cache.json", "q")
    if (index := entries("dict_memory.json")) is not None:
        stores.index, placed = {}, set[str]()
        for intent, ids in index.items():
            if not isinstance(ids, list):
                raise InputError(f"dict_memory.json does not list the memories of “{intent[:80]}”. {AGAIN}")
            real = [text_of(i) for i in ids if isinstance(i, str) and i]
            stores.index[text_of(intent)] = tuple(i for i in dict.fromkeys(real) if i not in placed)
            placed.update(real)
    for intent, numbers in (entries("query_embeddings.json") or {}).items():
        if numbers is not None:
            stores.intents[text_of(intent)] = vector_of(numbers, "An intent of query_embeddings.json")


def _item(entry: Any, where: str) -> Item | None:
    """The memory of an entry, in either form the code writes; None when it holds nothing but an id."""
    if not isinstance(entry, dict):
        raise InputError(f"{where} is not a memory. {AGAIN}")
    payload = entry.get("payload", entry if "memory" in entry else None)
    memory_id = text_of(entry.get("id") or (payload.get("id") if isinstance(payload, dict) else None))
    if not memory_id or len(memory_id) > LONGEST_ID:
        raise InputError(f"{where} has no id that can be used. {AGAIN}")
    if payload is None:
        return None
    metadata = payload.get("metadata") or {} if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(metadata, dict):
        raise InputError(f"{where} is not a memory. {AGAIN}")
    vector = entry.get("vector")
    return Item(
        memory_id, text_of(payload.get("memory")), metadata, None if vector is None else vector_of(vector, where)
    )


def _number(value: Any, where: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} has a {what} that is not a number. {AGAIN}")
    if not is_number(value):
        raise InputError(f"{where} has a {what} that is not finite. {AGAIN}")
    return float(value)


# --- what can be taken over -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Taken:
    """The memories of a checkpoint, oldest first, with their utilities; `intents` are unit vectors by text."""

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

    q is that of `q_cache.json`, else of `textual_memory.json`, else of `mem_cache.json`. A memory has the vector by
    which the official retrieval finds it: that of the intent it is filed under, which all memories filed there share;
    one that is not filed, or under an intent without a vector, has its own. Raises `InputError` when no vector can be
    used.
    """
    items = {**stores.cached, **stores.cube}
    dimension = _dimension(items.values(), stores)
    q = {i: stores.current_q.get(i, item.q) for i, item in items.items()}
    filed = {i: intent for intent, ids in (stores.index or {}).items() for i in ids}
    places = {i: number for number, i in enumerate(filed)}
    intents = {text: unit for text, vector in stores.intents.items() if (unit := _unit(vector, dimension)) is not None}
    rows, skipped = [], []
    for memory_id, item in items.items():
        intent = filed.get(memory_id)
        vector = intents.get(intent or "")
        vector = _unit(item.vector, dimension) if vector is None else vector
        if vector is None:
            why = "it has no vector that can be used" if item.vector is None else "its vector does not fit the others"
            skipped.append(Skipped(f"memory {memory_id}", why))
        else:
            rows.append((_memory(item, intent), vector))
    rows.sort(key=lambda row: (row[0].created, _stored(items[row[0].id]), places.get(row[0].id, len(places))))
    memories = {memory.id: (memory, vector) for memory, vector in rows}
    utilities = {i: Utility(q[i] or 0.0, items[i].visits) for i in memories}
    return Taken(
        dimension,
        memories,
        utilities,
        intents,
        read=_read(dimension, memories, utilities, stores),
        skipped=skipped,
        faults=_faults(stores, q, dimension),
        lacks=_lacks(memories, items),
    )


def _unit(vector: Vector | None, dimension: int) -> Vector | None:
    """The vector with length 1; None when there is none of this dimension or it has no direction."""
    if vector is None or len(vector) != dimension or not vector.any():
        return None
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if abs(length - 1) <= UNIT_TOLERANCE:
        return vector
    scaled: Vector = (vector.astype(np.float64) / length).astype(np.float32)
    return scaled


def _dimension(items: Iterable[Item], stores: Stores) -> int:
    sizes = Counter(len(item.vector) for item in items if item.vector is not None)
    sizes.update(len(vector) for vector in stores.intents.values())
    if not sizes:
        raise InputError(
            "This checkpoint holds no vectors, without which nothing can be recalled. Nothing was imported; give it "
            "with cube/textual_memory.json or local_cache/query_embeddings.json."
        )
    return max(sizes, key=lambda size: (sizes[size], size))


def _memory(item: Item, filed: str | None) -> Memory:
    metadata = item.metadata
    same = filed is not None and _same_text(item.text, filed)
    intent = (filed if same else item.text) or text_of(metadata.get("task_description")) or filed or ""
    related = metadata.get("related_memory_ids")
    parents = [text_of(i) for i in related if isinstance(i, str) and i] if isinstance(related, list) else []
    times = (moment(metadata.get(name)) for name in ("memory_time", "created_at", "updated_at"))
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
        created=next(filter(None, times), ""),
    )


def _same_text(text: str, intent: str) -> bool:
    return text == intent or (len(text) == STORED_CHARACTERS and intent.startswith(text))


def _outcome(metadata: Mapping[str, Any]) -> Outcome:
    success = metadata.get("success")
    if not isinstance(success, bool):
        success = {"success": True, "failure": False}.get(str(metadata.get("outcome")))
    return "unrated" if success is None else "success" if success else "failure"


def task_of(*names: Any) -> str:
    """The first of several fields that names a task, as text; "" when none does."""
    for name in names:
        if isinstance(name, str) and name:
            return text_of(name)[:200]
        if isinstance(name, int) and not isinstance(name, bool):
            return str(name)
    return ""


def _stored(item: Item) -> str:
    # `memory_time` has whole seconds; `updated_at` is set in microseconds when a memory is made, and an update of q
    # leaves it as it is.
    return moment(item.metadata.get("updated_at"), "microseconds") or ""


def moment(value: Any, precision: str = "milliseconds") -> str | None:
    """A time as ISO 8601 in UTC; one without a zone is taken as UTC. None when it is no time."""
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec=precision)
    except (TypeError, ValueError, OverflowError):
        return None


# --- what to say of it ------------------------------------------------------------------------------------------------


def _about(ids: Sequence[str], what: str) -> list[str]:
    return [f"{len(ids):,} memories {what}: {few(ids)}."] if ids else []


def _faults(stores: Stores, q: Mapping[str, float | None], dimension: int) -> list[str]:
    """What is wrong between the stores; `q` is what was taken, by memory."""
    filed = {i for ids in (stores.index or {}).values() for i in ids}
    sizes = Counter(len(item.vector) for item in stores.cube.values() if item.vector is not None)
    del sizes[dimension]
    others = ", ".join(f"{count:,} of {size:,} dimensions" for size, count in sorted(sizes.items()))
    unfiled = [i for i in q if stores.index is not None and i not in filed]
    stale = [i for i in q if i not in stores.cube and i not in stores.current_q]
    apart = [i for i, item in stores.cube.items() if i in stores.current_q and _differ(item.q, q[i])]
    faults = [f"Most vectors have {dimension:,} dimensions; there are also {others}, which were not used."]
    return [
        *(faults if others else []),
        *_about(unfiled, "are not in the index, so the official code cannot retrieve them"),
        *_about(sorted(filed - q.keys()), "are in the index, and no file holds them"),
        *_about(apart, "have another q in textual_memory.json than in q_cache.json, which was taken"),
        *_about(stale, "have their q from mem_cache.json alone, which may be old"),
        *_about([i for i, value in q.items() if value is None], "have no q; it was taken as 0"),
    ]


def _differ(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) > SAME_Q


def _read(
    dimension: int, memories: Mapping[str, tuple[Memory, Vector]], utilities: Mapping[str, Utility], stores: Stores
) -> list[str]:
    outcomes = Counter(memory.outcome for memory, _ in memories.values())
    counts = ", ".join(f"{outcomes[o]:,} {o}" for o in ("success", "failure", "unrated") if outcomes[o])
    updated = sum(utility.visits > 0 for utility in utilities.values())
    return [
        f"{len(memories):,} memories ({counts}) with vectors of {dimension:,} dimensions; q was ever moved of "
        f"{updated:,} of them.",
        f"The q of {sum(i in stores.current_q for i in memories):,} memories is that of q_cache.json; of all others, "
        "the one stored with them.",
    ]


def _lacks(memories: Mapping[str, tuple[Memory, Vector]], items: Mapping[str, Item]) -> list[str]:
    lacks = ["the single rewards that made each q what it is"]
    if bare := sum(not items[i].metadata.get("full_content") for i in memories):
        lacks.append(f"the experience of {bare:,} memories (their intent takes its place)")
    if undated := sum(not memory.created for memory, _ in memories.values()):
        lacks.append(f"when {undated:,} memories were written")
    return lacks
