"""What keeps a memory out of the pool, and what δ or k1 would let in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memrl_core.analysis.whatif import Situation, decided, rank_of
from memrl_core.records import Recalled
from memrl_core.retrieval import exact_similarity
from memrl_core.settings import MemRLSettings


@dataclass(frozen=True, slots=True)
class Admission:
    """Where one memory stands before the pool. `rank` counts memories, or intents where k1 counts those.

    `passes_gate` and `within_k1` are the two conditions; a memory is in the pool when both hold. The gate lets it in
    when δ is below its similarity (`strict`), or not above it; k1 when it is at least `rank`.
    """

    memory_id: str
    similarity: float
    rank: int
    delta: float
    k1: int
    strict: bool
    passes_gate: bool
    within_k1: bool

    @property
    def in_pool(self) -> bool:
        """Whether phase A recalls it."""
        return self.passes_gate and self.within_k1


def admission(situation: Situation, memory_id: str, settings: MemRLSettings) -> Admission:
    """Why a memory is in the pool or not, under `settings`.

    Raises `InputError` for a memory that the run did not know at this step.
    """
    rank, similarity = rank_of(situation, memory_id)
    if settings.k1_counts == "intent":
        rank = _intent_rank(situation, memory_id)
    strict = settings.normaliser == "pool"
    passes = similarity > settings.delta if strict else similarity >= settings.delta
    return Admission(memory_id, similarity, rank, settings.delta, settings.k1, strict, passes, rank <= settings.k1)


def newcomers(situation: Situation, before: MemRLSettings, after: MemRLSettings) -> tuple[Recalled, ...]:
    """The memories that the pool holds under `after` and not under `before`, most similar first."""
    known = {member.memory_id for member in decided(situation, before.model_dump())[0].pool}
    return tuple(m for m in decided(situation, after.model_dump())[0].pool if m.memory_id not in known)


def _intent_rank(situation: Situation, memory_id: str) -> int:
    """How many distinct intents are at least as near, the memory's own included."""
    view = situation.view
    rows = np.arange(len(view.ids)) if view.visible is None else np.flatnonzero(view.visible)
    similarity = exact_similarity(view.embeddings[rows], situation.query)
    nearest: dict[object, float] = {}
    for group, value in zip(view.intent_groups[rows].tolist(), similarity.tolist(), strict=True):
        nearest[group] = max(value, nearest.get(group, -2.0))
    own = nearest[view.intent_groups[view.position(memory_id)]]
    return sum(value > own for value in nearest.values()) + 1
