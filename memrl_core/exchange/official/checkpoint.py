"""What the official MemRL code leaves on disk: its files, opened without trust, and the memories of a checkpoint.

Layout (MemTensor/MemRL, February 2026): a checkpoint is a folder with `cube/textual_memory.json` and `local_cache/`,
in `<run>/snapshot/<n>`, `<run>/epoch<n>/snapshot/<n>` or `<run>/snapshot/final`; a name of one's own
gives no age. Only JSON, JSON lines and CSV are opened: never `qdrant/`, which holds pickles, and never a configuration,
which may hold keys. A file behind a link that leads out of the folder is refused.

The stores are `cube/textual_memory.json` (every memory with vector, text and q), and in `local_cache/`
`dict_memory.json` (the index: ids by the intent they are filed under), `query_embeddings.json` (the vectors of those
intents), `q_cache.json` (the current q of what was retrieved) and `mem_cache.json` (memories as they were when first
retrieved, so with an old q).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from memrl_core.bank.matrix import UNIT_TOLERANCE
from memrl_core.errors import InputError, few
from memrl_core.exchange.contents import NOTHING, Skipped
from memrl_core.exchange.safe_files import opened
from memrl_core.policies.base import intent_key
from memrl_core.records import Memory, Outcome, Utility

LARGEST_FILE = 2**30
"""Decoded vectors take ten times the room of float32."""
AGAIN = f"{NOTHING} Take another copy of the checkpoint."
SAME_Q = 1e-9
STORED_CHARACTERS = 4096
"""The official code cuts a task's text here for the store, and not for the index."""
CUBE = Path("cube", "textual_memory.json")
CACHES = ("dict_memory.json", "mem_cache.json", "q_cache.json")

Vector = npt.NDArray[np.float32]


# --- files ------------------------------------------------------------------------------------------------------------


def data_of(path: Path, root: Path) -> bytes:
    """The bytes of a file in `root`. Raises `InputError` when it leads elsewhere, is too large or cannot be read."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path.name} cannot be found. {AGAIN}") from error
    if not real.is_relative_to(root.resolve()):
        raise InputError(f"{path.name} is a link that leads out of the folder. {NOTHING} Put the file itself there.")
    if not real.is_file():
        raise InputError(f"{path.name} is not a plain file. {AGAIN}")
    if real.stat().st_size > LARGEST_FILE:
        raise InputError(
            f"{path.name} is larger than {LARGEST_FILE / 2**30:g} GB. {NOTHING} Take a smaller checkpoint."
        )
    with opened(real) as file:
        return file.read()


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def value_of(data: bytes, name: str) -> Any:
    """Decoded JSON. Raises `InputError` for NaN, infinities, and what is cut short or not JSON."""
    try:
        # A whole number that no 64 bits hold becomes a float, perhaps infinite.
        return json.loads(
            data.decode("utf-8-sig"),
            parse_constant=_no_constant,
            parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits),
        )
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise InputError(f"{name} cannot be read as JSON ({why}). {AGAIN}") from error


def lines_of(path: Path, root: Path, skipped: list[Skipped]) -> Iterator[tuple[int, Any]]:
    """The decoded records of a file of JSON lines, or of one JSON list, numbered from 1.

    A line that cannot be read, as a run that was broken off leaves it, is noted in `skipped`. Raises `InputError` for
    a file that cannot be read at all.
    """
    data = data_of(path, root)
    if data.lstrip().startswith(b"["):
        yield from enumerate(value_of(data, path.name), start=1)
        return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            try:
                value = value_of(line, "It")
            except InputError as error:
                skipped.append(Skipped(f"{path.name}, line {number}", str(error).split(". ")[0]))
            else:
                yield number, value


def text_of(value: Any) -> str:
    """Text that can be stored: halves of a surrogate pair, which JSON may hold, become question marks."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def task_of(*names: Any) -> str:
    """The first of several fields that names a task, as text; "" when none does."""
    for name in names:
        if isinstance(name, str) and name:
            return text_of(name)[:200]
        if isinstance(name, int) and not isinstance(name, bool):
            return str(name)
    return ""


def moment(value: Any, precision: str = "milliseconds") -> str:
    """A time as ISO 8601 in UTC; one without a zone is taken as UTC. "" when it is no time."""
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec=precision)
    except (TypeError, ValueError, OverflowError):
        return ""


# --- checkpoints ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint by its folder. `others` names those beside it that were not taken."""

    folder: Path
    others: tuple[str, ...] = ()


def checkpoint_in(folder: Path) -> Checkpoint | None:
    """The checkpoint that `folder` is, or the newest that it holds, or the only one; None when there is none.

    Raises `InputError`, naming them, when there are several whose names give no age.
    """
    if folder.name == "local_cache" and _has_caches(folder):
        return Checkpoint(folder.parent)
    if (folder / CUBE).is_file():
        return Checkpoint(folder)
    places = (folder, folder / "snapshot", *(epoch / "snapshot" for epoch in numbered(folder, "epoch")))
    children = [child for place in places if place.is_dir() for child in sorted(place.iterdir())]
    held = [child for child in children if (child / CUBE).is_file() or _has_caches(child / "local_cache")]
    ages = {child: age for child in held if (age := _age(child)) is not None}
    aged, named = sorted(ages, key=ages.__getitem__), [child for child in held if child not in ages]
    if aged:
        others = (*named, *aged[:-1])
        return Checkpoint(aged[-1], tuple(other.relative_to(folder).as_posix() for other in others))
    if _has_caches(folder / "local_cache"):
        return Checkpoint(folder)
    if len(named) > 1:
        listed = few(child.relative_to(folder).as_posix()[:80] for child in named)
        raise InputError(
            f"{folder.name} holds {len(named):,} checkpoints, and their names do not say which is the newest: "
            f"{listed}. {NOTHING} Name one of them."
        )
    return Checkpoint(named[0]) if named else None


def numbered(folder: Path, prefix: str) -> list[Path]:
    """The folders `<prefix><number>` in `folder`, by their number."""
    found = [child for child in folder.glob(f"{prefix}*") if child.name.removeprefix(prefix).isdecimal()]
    return sorted((child for child in found if child.is_dir()), key=lambda child: int(child.name.removeprefix(prefix)))


def _age(folder: Path) -> tuple[int, int] | None:
    # BigCodeBench runs end with a snapshot named `final`; all others are named by their epoch or section.
    if folder.name == "final":
        return 1, 0
    return (0, int(folder.name)) if folder.name.isdecimal() and len(folder.name) < 10 else None


def _has_caches(folder: Path) -> bool:
    return any((folder / name).is_file() for name in CACHES)


# --- its stores -------------------------------------------------------------------------------------------------------


def _float32(numbers: Any) -> Any:
    """A list of finite numbers as a vector (d,)."""
    if numbers is None:
        return None
    if not isinstance(numbers, list) or not numbers or not set(map(type, numbers)) <= {int, float}:
        raise ValueError("a vector is a list of numbers")
    with np.errstate(over="ignore"):
        vector = np.asarray(numbers, dtype=np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("a vector has a number that is not finite")
    return vector


Text = Annotated[str, BeforeValidator(text_of)]
Numbers = Annotated[Any, BeforeValidator(_float32)]


class Metadata(BaseModel):
    """What a store says of a memory beside its text; fields that nobody reads are left out."""

    q: FiniteFloat | None = Field(None, alias="q_value")
    visits: Annotated[int, BeforeValidator(lambda value: value or 0), Field(ge=0, le=2**53)] = Field(
        0, alias="q_visits"
    )
    full_content: Text = ""
    task_description: Text = ""
    success: Any = None
    outcome: Any = None
    related_memory_ids: Any = None
    task_id: Any = None
    sample_index: Any = None
    memory_time: Any = None
    created_at: Any = None
    updated_at: Any = None
    model: Any = None


class Item(BaseModel):
    """One memory as one file has it; `vector` is None where the file has none."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: Annotated[str, BeforeValidator(text_of), Field(min_length=1, max_length=200)]
    memory: Text = ""
    metadata: Annotated[Metadata, BeforeValidator(lambda value: value or {})] = Field(default_factory=Metadata)
    vector: Numbers = None


@dataclass(slots=True)
class Stores:
    """What each file of one checkpoint says."""

    created: str = ""
    cube: dict[str, Item] = field(default_factory=dict)
    cached: dict[str, Item] = field(default_factory=dict)
    current_q: dict[str, float] = field(default_factory=dict)
    index: dict[str, tuple[str, ...]] | None = None
    intents: dict[str, Vector] = field(default_factory=dict)


_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_LIST: TypeAdapter[list[Any]] = TypeAdapter(list[Any])
_IDS: TypeAdapter[dict[Text, list[Any]]] = TypeAdapter(dict[Text, list[Any]])
_QS: TypeAdapter[dict[Text, float]] = TypeAdapter(dict[Text, FiniteFloat])
_VECTORS: TypeAdapter[dict[Text, Any]] = TypeAdapter(dict[Text, Numbers])


def _read(kind: TypeAdapter[Any], value: Any, where: str) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))[:80]
        raise InputError(f"{where}{f', {place}' if place else ''}: {problem['msg']}. {AGAIN}") from None


def stores_of(checkpoint: Checkpoint, root: Path) -> Stores:
    """All stores of a checkpoint in `root`. Raises `InputError` for a file that is broken or leads out of `root`."""

    def of(name: str, kind: TypeAdapter[Any]) -> Any:
        path = checkpoint.folder / name
        if not (path.is_symlink() or path.exists()):
            return None
        return _read(kind, value_of(data_of(path, root), path.name), path.name)

    stores = Stores(created=moment((of("snapshot_meta.json", _OBJECT) or {}).get("created_at")))
    for number, entry in enumerate(of(CUBE.as_posix(), _LIST) or (), start=1):
        where = f"Entry {number} of textual_memory.json"
        if (item := _item(entry, where)) is not None:
            if item.id in stores.cube:
                raise InputError(f"{where} has the id “{item.id}” of an earlier one. {AGAIN}")
            stores.cube[item.id] = item
    for memory_id, entry in (of("local_cache/mem_cache.json", _OBJECT) or {}).items():
        if (item := _item(entry, f"“{memory_id[:80]}” of mem_cache.json")) is not None:
            stores.cached[item.id] = item
    stores.current_q = of("local_cache/q_cache.json", _QS) or {}
    index = of("local_cache/dict_memory.json", _IDS)
    if index is not None:
        stores.index, placed = {}, set[str]()
        for intent, ids in index.items():
            real = [text_of(i) for i in ids if isinstance(i, str) and i]
            stores.index[intent] = tuple(i for i in dict.fromkeys(real) if i not in placed)
            placed.update(real)
    vectors = of("local_cache/query_embeddings.json", _VECTORS) or {}
    stores.intents = {intent: vector for intent, vector in vectors.items() if vector is not None}
    if not stores.cube and not stores.cached:
        raise InputError(f"The checkpoint {checkpoint.folder.name} holds no memories. {NOTHING} Choose another.")
    return stores


_ITEM: TypeAdapter[Item] = TypeAdapter(Item)


def _item(entry: Any, where: str) -> Item | None:
    """The memory of an entry, in either form the code writes; None when it holds nothing but an id."""
    entry = _read(_OBJECT, entry, where)
    payload = _read(_OBJECT, entry.get("payload", entry if "memory" in entry else None) or {}, where)
    item: Item = _read(
        _ITEM, {**payload, "id": entry.get("id") or payload.get("id"), "vector": entry.get("vector")}, where
    )
    return item if payload else None


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
    own = [item.vector for item in items.values() if item.vector is not None]
    sizes = Counter(len(vector) for vector in (*own, *stores.intents.values()))
    if not sizes:
        raise InputError(
            "This checkpoint holds no vectors, without which nothing can be recalled. Nothing was imported; give it "
            "with cube/textual_memory.json or local_cache/query_embeddings.json."
        )
    dimension = max(sizes, key=lambda size: (sizes[size], size))
    q = {i: stores.current_q.get(i, item.metadata.q) for i, item in items.items()}
    filed = {i: intent for intent, ids in (stores.index or {}).items() for i in ids}
    places = {i: number for number, i in enumerate(filed)}
    taken = Taken(dimension)
    units = {text: _unit(vector, dimension) for text, vector in stores.intents.items()}
    taken.intents = {text: vector for text, vector in units.items() if vector is not None}
    rows = []
    for memory_id, item in items.items():
        intent = filed.get(memory_id)
        vector = taken.intents.get(intent or "")
        vector = _unit(item.vector, dimension) if vector is None else vector
        if vector is None:
            why = "it has no vector that can be used" if item.vector is None else "its vector does not fit the others"
            taken.skipped.append(Skipped(f"memory {memory_id}", why))
            continue
        memory = _memory(item, intent)
        # `memory_time` has whole seconds; `updated_at` is set in microseconds when a memory is made, and an update of
        # q leaves it as it is.
        stored = moment(item.metadata.updated_at, "microseconds")
        rows.append(((memory.created, stored, places.get(memory_id, len(places))), memory, vector))
    rows.sort(key=lambda row: row[0])
    taken.memories = {memory.id: (memory, vector) for _, memory, vector in rows}
    taken.utilities = {i: Utility(q[i] or 0.0, items[i].metadata.visits) for i in taken.memories}
    _describe(taken, stores, items, q)
    return taken


def _unit(vector: Vector | None, dimension: int) -> Vector | None:
    """The vector with length 1; None when there is none of this dimension or it has no direction."""
    if vector is None or len(vector) != dimension or not vector.any():
        return None
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if abs(length - 1) <= UNIT_TOLERANCE:
        return vector
    scaled: Vector = (vector.astype(np.float64) / length).astype(np.float32)
    return scaled


def _memory(item: Item, filed: str | None) -> Memory:
    known, text = item.metadata, item.memory
    is_cut = filed is not None and len(text) == STORED_CHARACTERS and filed.startswith(text)
    intent = (filed if is_cut else text) or known.task_description or filed or ""
    related = known.related_memory_ids if isinstance(known.related_memory_ids, list) else []
    parents = dict.fromkeys(text_of(i) for i in related if isinstance(i, str) and i)
    success = known.success
    if not isinstance(success, bool):
        success = {"success": True, "failure": False}.get(str(known.outcome))
    outcome: Outcome = "unrated" if success is None else "success" if success else "failure"
    times = map(moment, (known.memory_time, known.created_at, known.updated_at))
    return Memory(
        id=item.id,
        intent=intent,
        experience=known.full_content or text,
        outcome=outcome,
        intent_key=intent_key(filed or intent),
        parents=tuple(i for i in parents if i != item.id),
        run="",
        step=0,
        task=task_of(known.task_id, known.sample_index),
        created=next(filter(None, times), ""),
    )


def _describe(taken: Taken, stores: Stores, items: Mapping[str, Item], q: Mapping[str, float | None]) -> None:
    """Say what was taken, what is wrong between the stores, and what they do not hold."""
    dimension, memories = taken.dimension, [memory for memory, _ in taken.memories.values()]
    outcomes = Counter(memory.outcome for memory in memories)
    counts = ", ".join(f"{outcomes[o]:,} {o}" for o in ("success", "failure", "unrated") if outcomes[o])
    updated = sum(utility.visits > 0 for utility in taken.utilities.values())
    taken.read = [
        f"{len(memories):,} memories ({counts}) with vectors of {dimension:,} dimensions; q was ever moved of "
        f"{updated:,} of them.",
        f"The q of {sum(i in stores.current_q for i in taken.memories):,} memories is that of q_cache.json; of all "
        "others, the one stored with them.",
    ]
    sizes = Counter(len(item.vector) for item in stores.cube.values() if item.vector is not None)
    others = ", ".join(f"{n:,} of {size:,} dimensions" for size, n in sorted(sizes.items()) if size != dimension)
    if others:
        taken.faults.append(
            f"Most vectors have {dimension:,} dimensions; there are also {others}, which were not used."
        )
    filed = {i for ids in (stores.index or {}).values() for i in ids}
    both = [i for i in stores.cube if i in stores.current_q]
    found: tuple[tuple[Sequence[str], str], ...] = (
        (
            [i for i in q if stores.index is not None and i not in filed],
            "are not in the index, so the official code cannot retrieve them",
        ),
        (sorted(filed - q.keys()), "are in the index, and no file holds them"),
        (
            [i for i in both if (old := items[i].metadata.q) is not None and abs(old - stores.current_q[i]) > SAME_Q],
            "have another q in textual_memory.json than in q_cache.json, which was taken",
        ),
        (
            [i for i in q if i not in stores.cube and i not in stores.current_q],
            "have their q from mem_cache.json alone, which may be old",
        ),
        ([i for i, value in q.items() if value is None], "have no q; it was taken as 0"),
    )
    taken.faults += [f"{len(ids):,} memories {what}: {few(i[:80] for i in ids)}." for ids, what in found if ids]
    taken.lacks.append("the single rewards that made each q what it is")
    if bare := sum(not items[i].metadata.full_content for i in taken.memories):
        taken.lacks.append(f"the experience of {bare:,} memories (their intent takes its place)")
    if undated := sum(not memory.created for memory in memories):
        taken.lacks.append(f"when {undated:,} memories were written")
