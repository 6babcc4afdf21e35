"""Which memories a memory was born from, and which were born from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memrl_core.errors import InputError
from memrl_core.records import Memory


@dataclass(frozen=True, slots=True)
class Lineage:
    """One memory between its ancestors and its descendants.

    Level 1 of `ancestors` (the first entry) holds its parents, level 2 theirs, and so on; `descendants` likewise. Each
    memory stands once, on the level of the shortest way to it, oldest first. `links` are all (parent, child) among
    them; `missing` are parents that are named and not there.
    """

    memory_id: str
    ancestors: tuple[tuple[str, ...], ...]
    descendants: tuple[tuple[str, ...], ...]
    links: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def lineage(memories: Iterable[Memory], memory_id: str) -> Lineage:
    """The lineage of a memory among `memories` (`bank.memories()`, oldest first); imported circles are walked once.

    Raises `InputError` when the memory is not among them.
    """
    parents = {memory.id: tuple(dict.fromkeys(memory.parents)) for memory in memories}
    if memory_id not in parents:
        raise InputError(f"The memory {memory_id[:80]} is not among those looked at, so its lineage is not known.")
    age = {known: number for number, known in enumerate(parents)}
    children: dict[str, list[str]] = {}
    for child, named in parents.items():
        for parent in named:
            children.setdefault(parent, []).append(child)
    above, below = _levels(memory_id, parents, age), _levels(memory_id, children, age)
    family = [i for level in (*reversed(above), (memory_id,), *below) for i in level]
    inside = set(family)
    links = [(p, child) for child in dict.fromkeys(family) for p in parents[child] if p in inside]
    ends = [memory_id, *(i for level in above for i in level)]
    missing = dict.fromkeys(p for i in ends for p in parents[i] if p not in parents)
    return Lineage(memory_id, above, below, tuple(links), tuple(missing))


def _levels(start: str, next_to: Mapping[str, Sequence[str]], age: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Breadth first from `start`, which is on no level itself, even where a circle leads back to it."""
    seen, levels, level = {start}, [], [start]
    while level:
        found = {i for one in level for i in next_to.get(one, ()) if i in age} - seen
        seen |= found
        level = sorted(found, key=lambda i: age[i])
        if level:
            levels.append(tuple(level))
    return tuple(levels)
