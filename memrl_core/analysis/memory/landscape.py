"""The q landscape over time: what a run believed of every memory on the map, moment by moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank import MemoryBank

Place = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Landscape:
    """q and visits of n memories at f moments.

    `positions` (n, 2) are frozen places on the map. Each of `steps` (f,), ascending, stands for the moment when that
    step had ended and the next had not begun; 0 is the start. `q` (f, n) is nan and `visits` (f, n) 0 before a memory
    was there.
    """

    ids: Sequence[str]
    labels: Sequence[str]
    positions: npt.NDArray[np.float64]
    steps: Sequence[int]
    q: npt.NDArray[np.float64]
    visits: npt.NDArray[np.int64]


def landscape(bank: MemoryBank, run: str, places: Mapping[str, Place], frames: int = 60) -> Landscape:
    """The landscape of a run at `frames` (>= 2) moments evenly among all, always with the first and the last.

    `places` are those of the bank's map (`MapLayout.places()`); a memory without a place is left out. Raises
    `UnknownRun`.
    """
    finished = [row.step for row in bank.step_rows(run)]
    last = finished[-1] if finished else 0
    steps = _evenly([*(step - 1 for step in finished), last], frames)
    known = bank.utilities(run, last)
    ids = [memory_id for memory_id in known if memory_id in places]
    q = np.full((len(steps), len(ids)), np.nan)
    visits = np.zeros((len(steps), len(ids)), dtype=np.int64)
    row_of = {step: row for row, step in enumerate(steps[:-1])}
    for step, view in bank.walk(run):
        row = row_of.get(step - 1)
        if row is None or not ids:
            continue
        at = np.array([view.position(memory_id) for memory_id in ids])
        there = np.ones(len(at), dtype=bool) if view.visible is None else view.visible[at]
        q[row, there], visits[row, there] = view.q[at][there], view.visits[at][there]
    # The walk ends where the last step began.
    q[-1] = [known[memory_id].q for memory_id in ids]
    visits[-1] = [known[memory_id].visits for memory_id in ids]
    return Landscape(
        ids=ids,
        labels=[memory_label(memory_id, run) for memory_id in ids],
        positions=np.array([places[memory_id] for memory_id in ids], dtype=np.float64).reshape(-1, 2),
        steps=steps,
        q=q,
        visits=visits,
    )


def _evenly(moments: Sequence[int], count: int) -> list[int]:
    chosen = np.linspace(0, len(moments) - 1, min(count, len(moments))).round().astype(int)
    return [moments[position] for position in chosen]
