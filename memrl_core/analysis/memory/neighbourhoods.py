"""Is a memory good in general, or only for some intents? Its rewards by neighbourhood of the intents it served."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.cluster import AgglomerativeClustering

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
