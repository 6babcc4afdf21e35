"""Is a memory good in general, or only for some intents? Its rewards by neighbourhood of the intents it served; and
q of all memories on the map, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank import MemoryBank

FARTHEST = 0.5
"""Cosine distance below which intents count as one neighbourhood (average linkage)."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Intents near to one another that a memory was used for.

    `intent` is the most central of them; `similarity` the mean cosine of them to the memory; `mean_reward` is None when
    none of the uses was rated.
    """

    intent: str
    uses: int
    similarity: float
    mean_reward: float | None
    successes: int
    rated: int
    steps: tuple[int, ...]


def neighbourhoods(bank: MemoryBank, run: str, memory_id: str, uses: pd.DataFrame) -> list[Neighbourhood]:
    """The neighbourhoods of the intents that `memory_id` was given to the model for, most used first."""
    mine = uses[(uses["memory_id"] == memory_id) & uses["selected"]].drop_duplicates("step").set_index("step")
    if mine.empty:
        return []
    table = bank.step_table(run, ["step", "embedding"])
    vectors = dict(zip(table["step"].to_pylist(), table["embedding"].to_numpy(), strict=True))
    steps = [int(step) for step in mine.index if vectors.get(int(step)) is not None]
    if not steps:
        return []
    matrix = np.stack([np.asarray(vectors[step], dtype=np.float64) for step in steps])
    labels = np.zeros(len(steps), dtype=int)
    if len(steps) > 1:
        from sklearn.cluster import AgglomerativeClustering  # Its import takes longer than most pages.

        grouping = AgglomerativeClustering(
            n_clusters=None, metric="cosine", linkage="average", distance_threshold=FARTHEST
        )
        labels = grouping.fit_predict(matrix)
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        centre = matrix[members].mean(axis=0)
        central = steps[int(members[int((matrix[members] @ centre).argmax())])]
        rows = mine.loc[[steps[int(position)] for position in members]]
        rewards = rows["reward"].dropna()
        found.append(
            Neighbourhood(
                intent=bank.trace(run, central).task.intent,
                uses=len(members),
                similarity=float(rows["similarity"].mean()),
                mean_reward=float(rewards.mean()) if len(rewards) else None,
                successes=int((rows["outcome"] == "success").sum()),
                rated=int(rows["outcome"].isin(["success", "failure"]).sum()),
                steps=tuple(int(step) for step in rows.index),
            )
        )
    return sorted(found, key=lambda n: (-n.uses, n.steps))


def opposed(found: list[Neighbourhood], middle: float) -> bool:
    """Whether the rewards of two neighbourhoods lie on different sides of the middle: one q then hides both."""
    means = [n.mean_reward for n in found if n.mean_reward is not None]
    return bool(means) and min(means) < middle < max(means)


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


def landscape(
    bank: MemoryBank, run: str, places: Mapping[str, Place], frames: int = 60, until: int | None = None
) -> Landscape:
    """The landscape of a run at `frames` moments evenly among all up to the end of step `until` (None: of the last).

    The first and the last are always among them; of one, it is the last. `places` has the place of every intent; a
    memory of another one is left out. Raises `UnknownRun`.
    """
    finished = [row.step for row in bank.step_rows(run) if until is None or row.step <= until]
    last = finished[-1] if finished else 0
    steps = _evenly([*(step - 1 for step in finished), last], frames)
    known = bank.utilities(run, last)
    place_of = {memory_id: places.get(bank.memory(memory_id).intent) for memory_id in known}
    ids = [memory_id for memory_id, place in place_of.items() if place is not None]
    q = np.full((len(steps), len(ids)), np.nan)
    visits = np.zeros((len(steps), len(ids)), dtype=np.int64)
    row_of = {step: row for row, step in enumerate(steps[:-1])}
    for step, view in bank.walk(run) if len(steps) > 1 else ():
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
        positions=np.array([place_of[memory_id] for memory_id in ids], dtype=np.float64).reshape(-1, 2),
        steps=steps,
        q=q,
        visits=visits,
    )


def _evenly(moments: Sequence[int], count: int) -> list[int]:
    chosen = np.linspace(len(moments) - 1, 0, min(count, len(moments))).round().astype(int)
    return [moments[position] for position in chosen[::-1]]
