"""What people have put in the place of memories that a policy remembers by their ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from memrl_core.retrieval.view import MemoryView

# What a person edits or merges goes on under the id of the oldest of the old ones, with a dot and a number behind it.
_REWORDED = re.compile(r"\.\d+$")


def followed(memory_id: str, places: Mapping[str, str], view: MemoryView) -> str | None:
    """The memory that the run sees in the place of another, perhaps itself; None when it sees none.

    `places` maps memories to those that took their place.
    """
    met: set[str] = set()
    at: str | None = memory_id
    while at is not None and at not in met:
        if view.sees(at):
            return at
        met.add(at)
        at = places.get(at)
    return None


def reworded(view: MemoryView, others: Iterable[str] = ()) -> dict[str, str]:
    """What people have put in the place of memories: of those that the run sees, and of `others`, by the older id."""
    waiting = [view.ids[position] for position in view.positions().tolist()]
    waiting += others
    found: dict[str, str] = {}
    while waiting:
        memory_id = waiting.pop()
        if _REWORDED.search(memory_id) and memory_id in view.memories:
            older = [i for i in view.memories[memory_id].parents if i not in found]
            found.update(dict.fromkeys(older, memory_id))
            waiting += older
    return found
