"""Every weight at once: each candidate's score is a straight line in λ, so the choice changes at exact points only.

Source: arXiv 2601.03192, equation 7; two lines i and j cross at λ* = Δs / (Δs + Δq) with Δs = z_sim(i) − z_sim(j) and
Δq = z_q(j) − z_q(i).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from memrl_core.records import Decision
from memrl_core.retrieval import Floats, score_order

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

    `ids` (n,) are in the order of phase A; `z_similarity` and `z_q` (n,); `intervals` cover [0, 1]; `flips` lie between
    them.
    """

    ids: tuple[str, ...]
    z_similarity: Floats
    z_q: Floats
    k2: int
    intervals: tuple[Interval, ...]
    flips: tuple[Flip, ...]


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
    orders = [score_order((1 - w) * z_similarity + w * z_q, similarity, equals)[: decision.k2] for w in middles]
    sets = [frozenset(ids[position] for position in order) for order in orders]
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
