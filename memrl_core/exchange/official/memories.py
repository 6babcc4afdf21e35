"""The memories of an official checkpoint: its stores read into one, with what is wrong between them.

The stores are `cube/textual_memory.json` (every memory with vector, text and q), and in `local_cache/`
`dict_memory.json` (the index: ids by the intent they are filed under), `query_embeddings.json` (the vectors of those
intents), `q_cache.json` (the current q of what was retrieved) and `mem_cache.json` (memories as they were when first
retrieved, so with an old q). Source: MemTensor/MemRL, `memory_service.py`, February 2026.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
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
SAME_INTENT = 0.9
"""From this cosine on the official code files a memory under an intent that is there already (LLB: 0.99)."""


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
    """What each file of one checkpoint says; `faults` are those of a single file."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    cube: dict[str, Item] = field(default_factory=dict)
    cached: dict[str, Item] = field(default_factory=dict)
    current_q: dict[str, float] = field(default_factory=dict)
    index: dict[str, tuple[str, ...]] | None = None
    intents: dict[str, Vector] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


# --- reading the files ------------------------------------------------------------------------------------------------


def stores_of(found: Checkpoint, root: Path) -> Stores:
    """All stores of a checkpoint in `root`. Raises `InputError` for a file that is broken or leads out of `root`."""
    stores = Stores()
    meta = found.folder / "snapshot_meta.json"
    if meta.is_symlink() or meta.is_file():
        description = value_of(data_of(meta, root), meta.name)
        stores.meta = description if isinstance(description, dict) else {}
    if found.cube is not None:
        data = data_of(found.cube, root)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if stores.meta.get("textual_memory_md5", md5) not in (md5, None):
            stores.faults.append("textual_memory.json is not the file that snapshot_meta.json describes (other MD5).")
        _read_cube(value_of(data, found.cube.name), stores)
    if found.cache is not None:
        _read_caches(found.cache, root, stores)
    if not stores.cube and not stores.cached:
        raise InputError(f"The checkpoint {found.name} holds no memories. {NOTHING} Choose another.")
    return stores


def _read_cube(entries: Any, stores: Stores) -> None:
    if not isinstance(entries, list):
        raise InputError(f"textual_memory.json is not a list of memories. {AGAIN}")
    empty = []
    for number, entry in enumerate(entries, start=1):
        where = f"Entry {number} of textual_memory.json"
        item = _item(entry, where)
        if item is None:
            empty.append(number)
            continue
        if item.id in stores.cube:
            raise InputError(f"{where} has the id “{item.id}” of an earlier one. {AGAIN}")
        stores.cube[item.id] = item
        inner = entry["payload"].get("id") if isinstance(entry.get("payload"), dict) else None
        if inner is not None and inner != entry.get("id"):
            stores.faults.append(f"{where} names two ids: “{item.id}”, which was taken, and “{str(inner)[:80]}”.")
    if empty:
        stores.faults.append(f"{len(empty):,} vectors of textual_memory.json have no memory: entries {few(empty)}.")


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
        _read_index(index, stores)
    for intent, numbers in (entries("query_embeddings.json") or {}).items():
        if numbers is not None:
            stores.intents[text_of(intent)] = vector_of(numbers, "An intent of query_embeddings.json")


def _read_index(entries: Mapping[str, Any], stores: Stores) -> None:
    index: dict[str, tuple[str, ...]] = {}
    nobody, placed, twice = 0, set[str](), []
    for intent, ids in entries.items():
        if not isinstance(ids, list):
            raise InputError(f"dict_memory.json does not list the memories of “{intent[:80]}”. {AGAIN}")
        real = [text_of(i) for i in ids if isinstance(i, str) and i]
        nobody += len(ids) - len(real)
        twice += [i for i in real if i in placed]
        index[text_of(intent)] = tuple(i for i in dict.fromkeys(real) if i not in placed)
        placed.update(real)
    stores.index = index
    if nobody:
        stores.faults.append(f"The index has {nobody:,} entries without an id (a memory that failed to be written).")
    stores.faults += _about(twice, "are filed more than once; the first counts")


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
    taken = Taken(_dimension(items.values(), stores))
    q = {i: stores.current_q.get(i, item.q) for i, item in items.items()}
    valued = {i: 0.0 if value is None else value for i, value in q.items()}
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
    taken.utilities = {i: Utility(valued[i], items[i].visits) for i in taken.memories}
    parents = dict.fromkeys(parent for memory, _ in rows for parent in memory.parents)
    taken.faults = [
        *stores.faults,
        *_faults_between(stores, valued),
        *fits.faults(),
        *_about(
            elsewhere,
            f"are filed under an intent that is not theirs (another text, cosine below {SAME_INTENT:g}); they get "
            "its vector",
        ),
        *_about(
            apart,
            "have another vector in textual_memory.json than their own intent has in query_embeddings.json, which was "
            "taken",
        ),
        *_about([i for i in taken.memories if q[i] is None], "have no q; it was taken as 0"),
        *_about([p for p in parents if p not in taken.memories], "are named as parents and are not there"),
    ]
    taken.read = _read(taken, stores, shared, cut, fits.stretched)
    taken.lacks = _lacks(taken.memories, items)
    return taken


class _Unit:
    """Makes vectors of one dimension unit vectors, and counts those of others and those that it scaled."""

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


def _about(ids: list[str], what: str) -> list[str]:
    return [f"{len(ids):,} memories {what}: {few(ids)}."] if ids else []


def _faults_between(stores: Stores, q: Mapping[str, float]) -> list[str]:
    """What the stores say against each other; `q` is what was taken, by memory."""
    faults = []
    if stores.index is not None:
        filed = {i for ids in stores.index.values() for i in ids}
        unknown = [i for i in filed if i not in stores.cube and i not in stores.cached]
        bare = [intent for intent, ids in stores.index.items() if ids and intent not in stores.intents]
        idle = [intent for intent in stores.intents if intent not in stores.index]
        orphans = [i for i in q if i not in filed]
        faults += _about(orphans, "are not in the index, so the official code cannot retrieve them")
        faults += _about(sorted(unknown), "are in the index, and no file holds them")
        if bare:
            faults.append(f"{len(bare):,} intents of the index have no vector in query_embeddings.json.")
        if idle:
            faults.append(f"{len(idle):,} vectors of query_embeddings.json belong to no intent of the index.")
    outside = [i for i in q if i not in stores.cube]
    apart = [i for i, item in stores.cube.items() if i in stores.current_q and _differ(item.q, q.get(i))]
    if stores.cube:
        faults += _about(outside, "are in mem_cache.json and not in textual_memory.json")
    faults += _about([i for i in stores.current_q if i not in q], "have a q in q_cache.json and were not found")
    faults += _about(apart, "have another q in textual_memory.json than in q_cache.json, which was taken")
    faults += _about(
        [i for i in outside if i not in stores.current_q], "have their q from mem_cache.json alone, which may be old"
    )
    return faults + _about(outside, "have their visits from mem_cache.json alone, which may be too few")


def _differ(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) > SAME_Q


def _read(taken: Taken, stores: Stores, shared: int, cut: int, stretched: int) -> list[str]:
    outcomes = Counter(memory.outcome for memory, _ in taken.memories.values())
    counts = ", ".join(f"{outcomes[o]:,} {o}" for o in ("success", "failure", "unrated") if outcomes[o])
    q = {i: utility.q for i, utility in taken.utilities.items()}
    updated = sum(utility.visits > 0 for utility in taken.utilities.values())
    stale = sum(_differ(item.q, q.get(i)) for i, item in stores.cached.items())
    sentences = {
        f"{len(q):,} memories ({counts}) with vectors of {taken.dimension:,} dimensions; q was ever moved of "
        f"{updated:,} of them.": True,
        f"The q of {sum(i in stores.current_q for i in q):,} memories is that of q_cache.json; of all others, the one "
        "stored with them.": True,
        f"{stale:,} memories have an old q in mem_cache.json, which was not used; the official code never renews it.": (
            stale
        ),
        f"{shared:,} memories share the vector of an older intent that they were filed under.": shared,
        f"{cut:,} intents were cut at {STORED_CHARACTERS:,} characters in the store and are whole here.": cut,
        f"{stretched:,} vectors were not of length 1 and were scaled to it.": stretched,
    }
    return [sentence for sentence, holds in sentences.items() if holds]


def _lacks(memories: Mapping[str, tuple[Memory, Vector]], items: Mapping[str, Item]) -> list[str]:
    lacks = ["the single rewards that made each q what it is"]
    if bare := sum(not items[i].metadata.get("full_content") for i in memories):
        lacks.append(f"the experience of {bare:,} memories (their intent takes its place)")
    if undated := sum(not memory.created for memory, _ in memories.values()):
        lacks.append(f"when {undated:,} memories were written")
    return lacks
