"""A run as a film: every move of every q in one array, for a browser to play."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.learning.fold import named_by
from memrl_core.records import EventKind

_TAKES_AWAY = (
    EventKind.MEMORY_FORGOTTEN,
    EventKind.MEMORY_EDITED,
    EventKind.MEMORY_MERGED,
    EventKind.MEMORY_RESTORED,
)


def film_data(bank: MemoryBank, run: str) -> dict[str, Any]:
    """All moves of q of a run, as the ledger has them now: {ids, count, moves, gone: [[memory, step]]}.

    `ids` name the memories and `moves` is base64 of three little-endian arrays, one behind the other: float64 q after
    each move, int32 the step of it, int32 the memory by its place in `ids`. They are in the order of the steps; the
    first move of a memory is its writing. What the run knew before its first step has the step before that. `gone` are
    the memories that the run sees no longer, with the step that took them away. Raises `UnknownRun`.
    """
    histories = bank.histories(run)
    index_of = {memory_id: index for index, memory_id in enumerate(histories)}
    points = [(point.step, index_of[name], point.after) for name, history in histories.items() for point in history]
    points.sort(key=lambda point: point[0])
    steps, memories, after = zip(*points, strict=True) if points else ((), (), ())
    packed = (np.array(after, "<f8"), np.array(steps, "<i4"), np.array(memories, "<i4"))
    moves = base64.b64encode(b"".join(array.tobytes() for array in packed)).decode("ascii")
    return {"ids": list(histories), "count": len(points), "moves": moves, "gone": _gone(bank, run, index_of)}


def _gone(bank: MemoryBank, run: str, index_of: dict[str, int]) -> list[list[int]]:
    away = bank.editing.away(run)
    if not away:
        return []
    gone: dict[str, int] = {}
    for event in bank.events(run, _TAKES_AWAY):
        gone |= {name: max(event.step, gone.get(name, 0)) for name in named_by(event) if name in away}
    return [[index_of[name], step] for name, step in gone.items() if name in index_of]
