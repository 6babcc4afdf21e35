"""Phase A for methods that look at every memory and rank by more than similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from memrl_core.exploration import Ties
from memrl_core.policies.base import Vector, seed_of
from memrl_core.records import Reason, Recalled, RecallRecord
from memrl_core.retrieval import NEAR_MISSES, recall
from memrl_core.view import MemoryView

Order = Callable[[Sequence[Recalled]], Sequence[int]]


def wide_recall(
    query: Vector,
    view: MemoryView,
    inside: npt.NDArray[np.bool_],
    best_first: Order,
    *,
    k1: int,
    delta: float,
    strict: bool,
    coarse: Vector | None,
    exclude_task: str,
    ties: Ties,
) -> RecallRecord:
    """The first `k1` by `best_first` of all memories of `view` that are `inside` (n,) and beyond the gate.

    `best_first` gives the positions of measured memories in the order in which they are wanted. Ranks of the recall
    count by similarity to `query` (d,); `left_out` holds the next in that order, and the nearest before the gate.
    """
    seen = inside if view.visible is None else inside & view.visible
    everything = recall(
        query,
        replace(view, visible=seen),
        k1=max(1, int(seen.sum())),
        k1_counts="record",
        delta=delta,
        strict=strict,
        coarse=coarse,
        exclude_task=exclude_task,
        ties=ties,
        seed=seed_of(view),
    )
    order = list(best_first(everything.pool))
    kept, next_best = set(order[:k1]), order[k1 : k1 + NEAR_MISSES]
    missed = [replace(everything.pool[place], reason=Reason.BEYOND_K1) for place in sorted(next_best)]
    return replace(
        everything,
        k1=k1,
        memories=view.size,
        pool=tuple(member for place, member in enumerate(everything.pool) if place in kept),
        left_out=(*missed, *everything.left_out),
    )


def up_to(
    most: int, query: Vector, view: MemoryView, *, by_chance: bool, coarse: Vector | None, exclude_task: str, ties: Ties
) -> RecallRecord:
    """Every memory where there are at most `most`; else the most similar, or so many drawn by chance.

    Phase B's uniform draw from a uniform draw is a uniform draw from all. The step's number decides the first one,
    because recall has no seed and every replay knows the number.
    """
    number = view.asked.step if view.asked is not None else 0

    def best_first(members: Sequence[Recalled]) -> Sequence[int]:
        mixed = by_chance and len(members) > most
        return np.random.default_rng(number).permutation(len(members)).tolist() if mixed else range(len(members))

    found = wide_recall(
        query, view, np.ones(len(view.ids), dtype=np.bool_), best_first, k1=most, delta=-1.0, strict=False,
        coarse=coarse, exclude_task=exclude_task, ties=ties,
    )  # fmt: skip
    is_cut = any(missed.reason is Reason.BEYOND_K1 for missed in found.left_out)
    if by_chance:
        drawn = f"{most} memories, drawn from all by the step's number" if is_cut else "all memories"
        return replace(found, rule="random", why=f"Phase B draws from {drawn}.")
    compared = f"the {most} most similar memories" if is_cut else "all memories"
    return replace(found, rule="everything", why=f"Phase B compares {compared}.")
