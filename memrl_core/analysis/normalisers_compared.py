"""Did normalisation decide it? One pool ranked under every way to bring similarity and q to one scale.

`pool`, `fixed` and `raw` are those of the settings (see `retrieval.standardised_pool`); `ranks` takes the place of each
value in the pool, 0 for the lowest and 1 for the highest, equal values sharing theirs. The pool is held as it was
recorded: the gate, which is strict under one normaliser only, has no part in this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.stats import rankdata

from memrl_core.records import Decision
from memrl_core.retrieval import Floats, Standardised, score_order, standardised_pool
from memrl_core.settings import MemRLSettings

Normaliser = Literal["pool", "fixed", "raw", "ranks"]
NORMALISERS: tuple[Normaliser, ...] = get_args(Normaliser)


@dataclass(frozen=True, slots=True)
class Ranked:
    """One normaliser's greedy choice: `selected` best first, and every member's score.

    `flat` names the terms that say nothing because all their values are equal; `clipped` the members of which a term
    was cut.
    """

    normaliser: Normaliser
    selected: tuple[str, ...]
    scores: Mapping[str, float]
    flat: tuple[str, ...]
    clipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NormalisersCompared:
    """The same pool under each of `NORMALISERS`; `recorded` names the one that was in force."""

    recorded: str
    pool: int
    ranked: tuple[Ranked, ...]

    @property
    def deviating(self) -> tuple[str, ...]:
        """The normalisers that select another set than the one in force, or than `pool` when that one is not known."""
        sets: dict[str, set[str]] = {r.normaliser: set(r.selected) for r in self.ranked}
        own = sets.get(self.recorded, sets["pool"])
        return tuple(name for name, chosen in sets.items() if chosen != own)

    @property
    def pool_of_one(self) -> bool:
        """Whether there was nothing to rank."""
        return self.pool == 1


def normalisers_compared(decision: Decision, settings: MemRLSettings) -> NormalisersCompared:
    """Rank the recorded pool with the recorded weight and k2; the fixed mean and sd come from `settings`."""
    members = sorted((c for c in decision.candidates if c.rank_select is not None), key=lambda c: c.rank_recall)
    ids = [member.memory_id for member in members]
    similarity = np.array([member.similarity for member in members], dtype=np.float64)
    q = np.array([member.q for member in members], dtype=np.float64)
    equals = np.array([member.rank_select for member in members], dtype=np.int64)
    ranked = []
    for name in NORMALISERS:
        by_similarity, by_q = _sides(name, similarity, q, settings)
        score = (1 - decision.weight) * by_similarity.z + decision.weight * by_q.z
        order = score_order(score, similarity, equals)[: decision.k2]
        cut = by_similarity.clipped | by_q.clipped
        flat = [term for term, side in (("similarity", by_similarity), ("q", by_q)) if side.flat and len(ids) > 1]
        ranked.append(
            Ranked(
                name,
                tuple(ids[position] for position in order),
                dict(zip(ids, score.tolist(), strict=True)),
                tuple(flat),
                tuple(i for i, was_cut in zip(ids, cut, strict=True) if was_cut),
            )
        )
    return NormalisersCompared(decision.normaliser, len(ids), tuple(ranked))


def _sides(
    name: Normaliser, similarity: Floats, q: Floats, settings: MemRLSettings
) -> tuple[Standardised, Standardised]:
    if name == "pool" or name == "fixed":
        return standardised_pool(similarity, q, name, settings.fixed_mean, settings.fixed_sd)
    scale = _as_it_is if name == "raw" else _places
    return scale(similarity), scale(q)


def _as_it_is(values: Floats) -> Standardised:
    flat = len(values) > 0 and bool(np.ptp(values) == 0)
    return Standardised(values, 0.0, 1.0, flat, np.zeros(len(values), dtype=bool))


def _places(values: Floats) -> Standardised:
    n = len(values)
    places = (rankdata(values) - 1) / (n - 1) if n > 1 else np.zeros(n)
    return replace(_as_it_is(values), z=places)
