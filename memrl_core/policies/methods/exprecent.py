"""ExpRecent: ExpRAG with recency in the place of similarity. Source: Evo-Memory (arXiv 2511.20857)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from memrl_core.policies.base import Vector
from memrl_core.policies.methods.exprag import LAID_OUT, ExpRag
from memrl_core.policies.ranking import Floats, TermColumn, positions, ranked
from memrl_core.records import Decision, Reason, Recalled, RecallRecord
from memrl_core.retrieval import NEAR_MISSES, exact_similarity, of_task, recall
from memrl_core.retrieval.view import MemoryView

Positions = npt.NDArray[np.int64]


class ExpRecent(ExpRag):
    """The k newest experiences, each with its label."""

    ignored = ("k1_counts", "delta", "ties")

    spec = replace(
        ExpRag.spec,
        name="exprecent",
        title="ExpRecent",
        citation="arXiv 2511.20857, baseline ExpRecent",
        deviations=(LAID_OUT, "Its k is taken from ExpRAG: 4."),
        idea="The newest experiences are put before the model, whatever they are about. What similarity is worth shows "
        "in the difference to ExpRAG.",
        recall="The k1 newest memories. Similarity is measured and shown, and decides nothing; δ is not used.",
        select="The k = k2 newest, the newest first.",
        forget="Nothing; what has left the window is not read again.",
        cannot="It has nothing to say about a task unless the last few were like it.",
        carries_over="Every memory by its age; one of another policy gets its label in the prompt. Its q is not read.",
    )

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The k1 newest memories; of the others the nearest are shown, with their place by age."""
        own = of_task(view, self.excluded_task(view))
        every = view.positions()
        eligible = np.delete(every, np.searchsorted(every, own))
        pool = eligible[::-1][: self.settings.k1]
        left_out = []
        for position, similarity in nearest_others(query, view, pool, coarse):
            is_own = position in own
            rank = len(eligible) - int(np.searchsorted(eligible, position))
            if is_own:
                rank = len(eligible) + len(own) - int(np.searchsorted(own, position))
            reason = Reason.SAME_TASK if is_own else Reason.NOT_RECENT
            left_out.append(Recalled(view.ids[position], similarity, rank, reason))
        return RecallRecord(
            self.settings.k1,
            "record",
            -1.0,
            False,
            view.size,
            measured(query, view, pool),
            tuple(left_out),
            rule="recency",
            why="the newest memories are recalled, whatever they are about",
        )

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The k2 newest of the pool."""
        return ranked(recalled, view, [TermColumn("age", ages(recalled, view), -1.0)], k2=self.settings.k2, seed=seed)


def ages(recalled: RecallRecord, view: MemoryView) -> Floats:
    """How many of the pool are newer, for each of its n members (n,)."""
    stands = positions(recalled, view)
    newer: Floats = (stands[None, :] > stands[:, None]).sum(axis=1).astype(np.float64)
    return newer


def measured(query: Vector, view: MemoryView, pool: Positions) -> tuple[Recalled, ...]:
    """The memories at these positions (n,) as a pool of that order, with their similarities to `query` (d,)."""
    similarity = exact_similarity(view.embeddings[pool], query).tolist()
    return tuple(
        Recalled(view.ids[position], value, rank, None)
        for rank, (position, value) in enumerate(zip(pool.tolist(), similarity, strict=True), start=1)
    )


def nearest_others(
    query: Vector, view: MemoryView, pool: Positions, coarse: Vector | None
) -> Sequence[tuple[int, float]]:
    """The `NEAR_MISSES` memories most similar to `query` (d,) that are not in the pool (n positions): where, and how
    similar. Raises `InputError` as `retrieval.recall` does.
    """
    near = recall(query, view, k1=len(pool), k1_counts="record", delta=-1.0, strict=False, coarse=coarse)
    taken = set(pool.tolist())
    found = [(view.position(seen.memory_id), seen.similarity) for seen in (*near.pool, *near.left_out)]
    return [(position, similarity) for position, similarity in found if position not in taken][:NEAR_MISSES]
