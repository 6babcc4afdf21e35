"""The retrieval of MemRL's official code (arXiv 2601.03192, `retrieve_query` and `ValueAwareSelector`), by a
description of what it does: a loop in plain Python over every stored intent, each norm computed anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean, pstdev

from memrl_core.settings import MemRLSettings

CLIP = 3.0
FLAT_SD = 1e-9


@dataclass(frozen=True, slots=True)
class OfficialStore:
    """What that code keeps in memory: the embedding of each intent, the ids of its memories by age, the q of each."""

    embeddings: Mapping[str, Sequence[float]]
    memories: Mapping[str, Sequence[str]]
    q: Mapping[str, float]


def retrieved(query: Sequence[float], store: OfficialStore, settings: MemRLSettings) -> list[str]:
    """The ids of the k2 memories put before the model: of all memories of the k1 nearest intents, the best by score."""
    near = [(_cosine(query, embedding), intent) for intent, embedding in store.embeddings.items()]
    near = [(similarity, intent) for similarity, intent in near if similarity >= settings.delta]
    near.sort(key=lambda pair: pair[0], reverse=True)
    pool = [
        (similarity, memory_id, store.q[memory_id])
        for similarity, intent in near[: settings.k1]
        for memory_id in store.memories[intent]
    ]
    if not pool:
        return []
    utilities = [q for _, _, q in pool]
    mean, sd = fmean(utilities), pstdev(utilities)
    sd = 1.0 if sd <= FLAT_SD else sd

    def score(member: tuple[float, str, float]) -> float:
        similarity, _, q = member
        by_similarity = (similarity - settings.fixed_mean) / settings.fixed_sd
        return (1 - settings.weight) * by_similarity + settings.weight * _clipped((q - mean) / sd)

    return [memory_id for _, memory_id, _ in sorted(pool, key=score, reverse=True)[: settings.k2]]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.sqrt(sum(map(mul, one, one))) * math.sqrt(sum(map(mul, other, other)))
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


def _clipped(z: float) -> float:
    return max(-CLIP, min(CLIP, z))
