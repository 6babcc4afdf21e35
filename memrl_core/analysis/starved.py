"""What the memory holds and never uses: never recalled, near-duplicates, loners, and how unevenly use is spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from memrl_core.retrieval.view import MemoryView

ROWS_AT_ONCE = 1024
FLOAT32_SLACK = 1e-6
"""By so much the float32 product of two equal unit vectors may miss 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Starvation:
    """`never_recalled` were in no pool since they were written, `never_selected` in some but never given to the model.

    `duplicates` are groups of memories whose intents are at least `threshold` similar; `loners` have no other memory
    beyond the gate. `gini` is 0 when all memories are used alike and near 1 when few have all uses; None without uses.
    `lorenz` (n + 1, 2) is the curve behind it: share of memories, share of uses.
    """

    never_recalled: tuple[str, ...]
    never_selected: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    loners: tuple[str, ...]
    gini: float | None
    lorenz: npt.NDArray[np.float64]


def starvation(
    view: MemoryView,
    uses: pd.DataFrame,
    *,
    threshold: float,
    delta: float,
    on_progress: Callable[[float], None] | None = None,
) -> Starvation:
    """What a run's memory holds and does not use; `uses` are its candidates (see `uses.uses`)."""
    rows = np.arange(len(view.ids)) if view.visible is None else np.flatnonzero(view.visible)
    ids = [view.ids[int(row)] for row in rows]
    pooled = set(uses["memory_id"]) if len(uses) else set()
    counts = uses[uses["selected"]].groupby("memory_id").size() if len(uses) else pd.Series(dtype=int)
    used = np.array([int(counts.get(i, 0)) for i in ids])
    groups, nearest = _alike(view.embeddings[rows], threshold, on_progress)
    return Starvation(
        never_recalled=tuple(i for i in ids if i not in pooled),
        never_selected=tuple(i for i, n in zip(ids, used, strict=True) if i in pooled and n == 0),
        duplicates=tuple(tuple(ids[row] for row in group) for group in groups),
        loners=tuple(i for i, near in zip(ids, nearest, strict=True) if near <= delta),
        gini=gini(used),
        lorenz=_lorenz(used),
    )


def gini(counts: npt.NDArray[np.int64]) -> float | None:
    """Gini's coefficient of non-negative counts (n,); None when there is nothing to share."""
    n, total = len(counts), int(counts.sum())
    if n == 0 or total == 0:
        return None
    ordered = np.sort(counts)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))


def _lorenz(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    total = int(counts.sum())
    if total == 0:
        return np.zeros((0, 2))
    share = np.concatenate([[0.0], np.cumsum(np.sort(counts)) / total])
    return np.column_stack([np.linspace(0, 1, len(share)), share])


def _alike(
    embeddings: npt.NDArray[np.float32], threshold: float, on_progress: Callable[[float], None] | None
) -> tuple[list[list[int]], npt.NDArray[np.float32]]:
    """Groups of rows joined by cosines of at least `threshold`, largest first, and each row's nearest other cosine."""
    n = len(embeddings)
    nearest = np.full(n, -1.0, dtype=np.float32)
    root = np.arange(
        n
    )  # The first row of each row's group; joined block by block, for pairs of equal intents are many.
    for start in range(0, n, ROWS_AT_ONCE):
        block = embeddings[start : start + ROWS_AT_ONCE] @ embeddings.T
        own = np.arange(len(block))
        block[own, own + start] = -1
        nearest[start : start + len(block)] = block.max(axis=1, initial=-1)
        i, j = np.nonzero(block >= threshold - FLOAT32_SLACK)
        pairs = np.concatenate([i + start, np.arange(n)]), np.concatenate([j, root])
        _, label = connected_components(
            coo_array((np.ones(len(pairs[0]), dtype=bool), pairs), shape=(n, n)), directed=False
        )
        _, first = np.unique(label, return_index=True)
        root = first[label]
        if on_progress is not None:
            on_progress(min(1.0, (start + len(block)) / n))
    groups: dict[int, list[int]] = {}
    for row, group in enumerate(root):
        groups.setdefault(int(group), []).append(row)
    return sorted((g for g in groups.values() if len(g) > 1), key=lambda g: (-len(g), g[0])), nearest
