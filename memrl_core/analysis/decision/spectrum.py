"""Every weight at once: each candidate's score is a straight line in λ, so the choice changes at exact points only.

Source: arXiv 2601.03192, equation 7; two lines i and j cross at λ* = Δs / (Δs + Δq) with Δs = z_sim(i) − z_sim(j) and
Δq = z_q(j) − z_q(i).

The same pool is also ranked under every way to bring similarity and q to one scale: `pool`, `fixed` and `raw` of the
settings, and `ranks`, the place of each value in the pool from 0 to 1, equal values sharing theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy  # Its parts are loaded where they are first used.

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
    places = (scipy.stats.rankdata(values) - 1) / (n - 1) if n > 1 else np.zeros(n)
    return replace(_as_it_is(values), z=places)


SAME = 1e-12
TIED = 1e-9
CROSSINGS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Interval:
    """Between the weights `low` and `high`, greedy selection takes these memories (a set: order may change within)."""

    low: float
    high: float
    selected: frozenset[str]


@dataclass(frozen=True, slots=True)
class Flip:
    """At `weight`, coming from below, these memories enter the selection and these leave it."""

    weight: float
    enters: tuple[str, ...]
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The pool of one step over all weights: score_i(λ) = (1 − λ) z_sim_i + λ z_q_i.

    `ids` (n,) in the order of phase A; `z_similarity` and `z_q` (n,); `intervals` cover [0, 1]; `flips` stand between
    them.
    """

    ids: tuple[str, ...]
    z_similarity: Floats
    z_q: Floats
    k2: int
    intervals: tuple[Interval, ...]
    flips: tuple[Flip, ...]

    def scores(self, weight: float) -> Floats:
        """All scores (n,) at one weight."""
        return (1 - weight) * self.z_similarity + weight * self.z_q


def spectrum(decision: Decision) -> Spectrum:
    """The lines of a decision's pool with the exact weights at which its greedy selection changes.

    z-scores do not depend on the weight, so the recorded ones serve for all weights. A pool whose scores were recorded
    without their terms has no lines: the spectrum is then empty.
    """
    pool = sorted(
        (
            c
            for c in decision.candidates
            if c.rank_select is not None and [t.name for t in c.terms[:2]] == ["similarity", "q"]
        ),
        key=lambda c: c.rank_recall,
    )
    # Candidates whose lines are equal stand at every weight as they stood when the step decided.
    equals = np.array([c.rank_select for c in pool], dtype=np.int64)
    ids = tuple(c.memory_id for c in pool)
    z_similarity = np.array([c.terms[0].normalised for c in pool], dtype=np.float64)
    z_q = np.array([c.terms[1].normalised for c in pool], dtype=np.float64)
    similarity = np.array([c.similarity for c in pool], dtype=np.float64)
    edges = _edges(z_similarity, z_q, decision.k2)
    middles = (edges[1:] + edges[:-1]) / 2
    # At an end of [0, 1] itself several candidates may tie; inside an interval they only do if their lines are equal.
    sets = [_selected(ids, z_similarity, z_q, similarity, equals, weight, decision.k2) for weight in middles]
    groups = (list(group) for _, group in groupby(zip(edges[:-1], edges[1:], sets, strict=True), key=itemgetter(2)))
    intervals = [Interval(float(group[0][0]), float(group[-1][1]), group[0][2]) for group in groups]
    flips = tuple(
        Flip(
            after.low, tuple(sorted(after.selected - before.selected)), tuple(sorted(before.selected - after.selected))
        )
        for before, after in pairwise(intervals)
    )
    return Spectrum(ids, z_similarity, z_q, decision.k2, tuple(intervals), flips)


def _crossings(z_similarity: Floats, z_q: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Where pairs of lines cross inside (0, 1): the weights, and a member of each pair."""
    first, second = np.triu_indices(len(z_similarity), 1)
    by_similarity = z_similarity[first] - z_similarity[second]
    by_q = z_q[second] - z_q[first]
    total = by_similarity + by_q
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = by_similarity / total
    inside = (np.abs(total) > SAME) & (weight > 0) & (weight < 1)
    return weight[inside], first[inside]


def _edges(z_similarity: Floats, z_q: Floats, k2: int) -> Floats:
    """0, 1, and between them every weight at which two candidates tie at the cut after k2."""
    if not 0 < k2 < len(z_similarity):
        return np.array([0.0, 1.0])
    band = _within_reach(z_similarity, z_q, k2)
    by_similarity, by_q = z_similarity[band], z_q[band]
    weight, first = _crossings(by_similarity, by_q)
    at_cut = [np.zeros(0, dtype=bool)]
    for start in range(0, len(weight), CROSSINGS_AT_ONCE):
        some = slice(start, start + CROSSINGS_AT_ONCE)
        score = np.outer(1 - weight[some], by_similarity) + np.outer(weight[some], by_q)
        own = score[np.arange(len(score)), first[some]][:, None]
        above = (score > own + TIED).sum(axis=1)
        not_below = (score > own - TIED).sum(axis=1)
        at_cut.append((above < k2) & (not_below > k2))
    return np.unique(np.concatenate([[0.0], weight[np.concatenate(at_cut)], [1.0]]))


def _within_reach(z_similarity: Floats, z_q: Floats, k2: int) -> npt.NDArray[np.int64]:
    """The candidates that can be among the k2 at some weight: fewer than k2 others beat them on both sides."""
    beaten = (z_similarity > z_similarity[:, None] + TIED) & (z_q > z_q[:, None] + TIED)
    return np.flatnonzero(beaten.sum(axis=1) < k2)


def _selected(
    ids: tuple[str, ...],
    z_similarity: Floats,
    z_q: Floats,
    similarity: Floats,
    equals: npt.NDArray[np.int64],
    weight: float,
    k2: int,
) -> frozenset[str]:
    order = score_order((1 - weight) * z_similarity + weight * z_q, similarity, equals)
    return frozenset(ids[position] for position in order[:k2])
