"""The memories of an official checkpoint: its stores read into one, with what is wrong between them.

The stores are `cube/textual_memory.json` (every memory with vector, text and q), and in `local_cache/`
`dict_memory.json` (the index: ids by the intent they are filed under), `query_embeddings.json` (the vectors of those
intents), `q_cache.json` (the current q of what was retrieved) and `mem_cache.json` (memories as they were when first
retrieved, so with an old q). Source: MemTensor/MemRL, `memory_service.py`, February 2026.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.exchange.official.json_files import (
    AGAIN,
    Checkpoint,
    data_of,
    entries_of,
    must_stay_inside,
    text_of,
    value_of,
    vector_of,
)

Vector = npt.NDArray[np.float32]
LONGEST_ID = 200
NAMED = 5
MOST_VISITS = 2**53
SAME_Q = 1e-9


@dataclass(frozen=True, slots=True)
class Item:
    """One memory as one file tells it; `vector` is None where the file has none."""

    id: str
    text: str
    metadata: Mapping[str, Any]
    vector: Vector | None


@dataclass(slots=True)
class Stores:
    """What the files of one checkpoint say, each for itself; `faults` are those of a single file."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    cube: dict[str, Item] = field(default_factory=dict)
    cached: dict[str, Item] = field(default_factory=dict)
    current_q: dict[str, float] = field(default_factory=dict)
    index: dict[str, tuple[str, ...]] | None = None
    intents: dict[str, Vector] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def stale(self, q: Mapping[str, float]) -> list[str]:
        """The memories whose q in `mem_cache.json` is not the one in `q`: there is no fault in that."""
        return [i for i, item in self.cached.items() if _differ(stored_q(item), q.get(i))]


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
        _read_cube(data, stores)
    if found.cache is not None:
        _read_caches(found.cache, root, stores)
    if not stores.cube and not stores.cached:
        raise InputError(f"The checkpoint {found.name} holds no memories. Nothing was imported; choose another.")
    return stores


def _read_cube(data: bytes, stores: Stores) -> None:
    empty = []
    for number, value in entries_of(data, "textual_memory.json"):
        where = f"Entry {number} of textual_memory.json"
        item = _item(value, where)
        if item is None:
            empty.append(number)
        elif item.id in stores.cube:
            raise InputError(f"{where} has the id “{item.id}” of an earlier one. {AGAIN}")
        else:
            stores.cube[item.id] = item
            found_id = value["payload"].get("id") if isinstance(value.get("payload"), dict) else None
            if found_id is not None and found_id != value.get("id"):
                stores.faults.append(
                    f"{where} names two ids: “{item.id}”, which was taken, and “{str(found_id)[:80]}”."
                )
    if empty:
        stores.faults.append(f"{len(empty):,} vectors of textual_memory.json have no memory: entries {named(empty)}.")


def _read_caches(cache: Path, root: Path, stores: Stores) -> None:
    def present(name: str) -> Path | None:
        path = cache / name
        if path.is_symlink() or path.exists():
            must_stay_inside(path, root)
            return path
        return None

    if path := present("mem_cache.json"):
        for memory_id, value in entries_of(data_of(path, root), path.name):
            item = _item(value, f"“{memory_id[:80]}” of {path.name}")
            if item is not None:
                stores.cached[item.id] = item
    if path := present("q_cache.json"):
        for memory_id, value in _object(value_of(data_of(path, root), path.name), path.name).items():
            stores.current_q[text_of(memory_id)] = number_of(value, f"“{memory_id[:80]}” of {path.name}", "q")
    if path := present("dict_memory.json"):
        _read_index(_object(value_of(data_of(path, root), path.name), path.name), stores)
    if path := present("query_embeddings.json"):
        for intent, numbers in entries_of(data_of(path, root), path.name):
            if numbers is not None:
                stores.intents[text_of(intent)] = vector_of(numbers, f"An intent of {path.name}")


def _read_index(index_file: Mapping[str, Any], stores: Stores) -> None:
    index: dict[str, tuple[str, ...]] = {}
    nobody, placed, twice = 0, set[str](), []
    for intent, ids in index_file.items():
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
    if twice:
        stores.faults.append(f"{len(twice):,} memories are filed more than once; the first counts: {named(twice)}.")


def _item(value: Any, where: str) -> Item | None:
    """The memory that an entry tells of, in either form the code writes; None when it holds nothing but an id."""
    if not isinstance(value, dict):
        raise InputError(f"{where} is not a memory. {AGAIN}")
    payload = value.get("payload", value if "memory" in value else None)
    memory_id = text_of(value.get("id") or (payload.get("id") if isinstance(payload, dict) else None))
    if not memory_id or len(memory_id) > LONGEST_ID:
        raise InputError(f"{where} has no id that can be used. {AGAIN}")
    if payload is None:
        return None
    metadata = payload.get("metadata") if isinstance(payload, dict) else None
    if metadata is None:
        metadata = {}
    if not isinstance(payload, dict) or not isinstance(metadata, dict):
        raise InputError(f"{where} is not a memory. {AGAIN}")
    vector = value.get("vector")
    return Item(
        memory_id, text_of(payload.get("memory")), metadata, None if vector is None else vector_of(vector, where)
    )


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{name} is not a JSON object. {AGAIN}")
    return value


def number_of(value: Any, where: str, what: str) -> float:
    """A finite number. Raises `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} has a {what} that is not a number. {AGAIN}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{where} has a {what} that is not finite. {AGAIN}")
    return number


def visits_of(item: Item) -> int:
    """How often its q was updated. Raises `InputError` for what is no count."""
    visits = number_of(item.metadata.get("q_visits") or 0, f"The memory “{item.id[:80]}”", "number of visits")
    if not 0 <= visits <= MOST_VISITS or visits != int(visits):
        raise InputError(f"The memory “{item.id[:80]}” has {visits:g} visits. {AGAIN}")
    return int(visits)


def stored_q(item: Item) -> float | None:
    """The q that stands with the memory itself; None when there is none."""
    q = item.metadata.get("q_value")
    return None if q is None else number_of(q, f"The memory “{item.id[:80]}”", "q")


def faults_between(stores: Stores, q: Mapping[str, float]) -> list[str]:
    """What the stores say against each other; `q` is what was taken, by memory."""
    faults = []
    if stores.index is not None:
        filed = {i for ids in stores.index.values() for i in ids}
        orphans = [i for i in q if i not in filed]
        unknown = [i for i in filed if i not in stores.cube and i not in stores.cached]
        bare = [intent for intent, ids in stores.index.items() if ids and intent not in stores.intents]
        idle = [intent for intent in stores.intents if intent not in stores.index]
        faults += _fault(orphans, "stand in no place of the index, so the official code cannot retrieve them")
        faults += _fault(sorted(unknown), "stand in the index, and no file holds them")
        if bare:
            faults.append(f"{len(bare):,} intents of the index have no vector in query_embeddings.json.")
        if idle:
            faults.append(f"{len(idle):,} vectors of query_embeddings.json belong to no intent of the index.")
    if stores.cube:
        missing = [i for i in q if i not in stores.cube]
        faults += _fault(missing, "stand in mem_cache.json and not in textual_memory.json")
    lost = [i for i in stores.current_q if i not in q]
    faults += _fault(lost, "have a q in q_cache.json and were not found")
    apart = [i for i, item in stores.cube.items() if i in stores.current_q and _differ(stored_q(item), q.get(i))]
    faults += _fault(apart, "have another q in textual_memory.json than in q_cache.json, which was taken")
    only_cached = [i for i in q if i not in stores.cube and i not in stores.current_q]
    faults += _fault(only_cached, "have their q from mem_cache.json alone, which may be old")
    faults += _fault(
        [i for i in q if i not in stores.cube], "have their visits from mem_cache.json alone, which may be too few"
    )
    return faults


def _differ(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) > SAME_Q


def _fault(ids: list[str], what: str) -> list[str]:
    return [f"{len(ids):,} memories {what}: {named(ids)}."] if ids else []


def named(things: Iterable[object]) -> str:
    """The first few of many, for a sentence."""
    listed = list(things)
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(str(thing)[:80] for thing in listed[:NAMED]) + more
