"""Phase B for policies: a pool ranked by named terms, and ordered samples of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from memrl_core.records import Decision, Recalled, RecallRecord
from memrl_core.retrieval import DIGITS, Floats, positions_in, score_order, zscore
from memrl_core.retrieval.exploration import (
    SEEDED_TIES,
    Chosen,
    Places,
    TermColumn,
    Ties,
    chance_by_ties,
    order_of_equals,
    tied_at_cut,
)
from memrl_core.retrieval.phases import candidates_of
from memrl_core.retrieval.view import MemoryView

__all__ = (
    "Chosen", "Floats", "TermColumn", "best_first", "chance_of", "gumbel_top", "ordered_log_gradient",
    "ordered_log_probability", "positions", "ranked", "similar", "similarities", "z",
)  # fmt: skip


def similarities(recalled: RecallRecord) -> Floats:
    """The pool's similarities (n,)."""
    return similar(recalled.pool)


def similar(members: Sequence[Recalled]) -> Floats:
    """The similarities of recalled memories (n,)."""
    return np.array([member.similarity for member in members], dtype=np.float64)


def positions(recalled: RecallRecord, view: MemoryView) -> Places:
    """Where the pool's memories stand in the arrays of `view` (n,), as in `view.q[positions(recalled, view)]`.

    Those that were left out are not among them.
    """
    return view.positions_of(member.memory_id for member in recalled.pool)


def z(values: Floats) -> Floats:
    """The z-scores (n,) of a pool's values (n,), by its population sd; all 0 where that is below 1e-9 (eq. 7)."""
    return zscore(values).z


def ranked(
    recalled: RecallRecord,
    view: MemoryView,
    terms: Sequence[TermColumn],
    *,
    k2: int,
    seed: int,
    ties: Ties = "seeded",
    chosen: Chosen | None = None,
    epsilon: float = 0.0,
    note: str = "",
) -> Decision:
    """The pool in the order of its scores, the sums of `terms`; the best `k2` are selected unless `chosen` says others.

    Ties go to the more similar, then to the one that `seed` draws, or to the older (`ties`). A recall of nothing gives
    a decision that selects nothing.
    """
    pool = recalled.pool
    score = np.zeros(len(pool)) if not terms else np.sum([term.contribution for term in terms], axis=0)
    by_score = best_first(score, pool, ties, seed)
    order = by_score.tolist() if chosen is None or chosen.order is None else chosen.order
    best = order[:k2]
    if chosen is None:
        chance, drawn = chance_of(best, score, by_score, pool, ties)
        chosen = Chosen(best, "greedy" if pool else "fallback", chance)
        note = " ".join(filter(None, (note, SEEDED_TIES if drawn else "")))
    rows = positions_in(view, recalled)
    greedy = best if chosen.greedy is None else chosen.greedy
    log_propensity = chosen.log_propensity
    return Decision(
        k2=k2,
        weight=0.0,
        normaliser="none",
        normaliser_lines=(),
        candidates=candidates_of(
            recalled, view.q[rows].tolist(), view.visits[rows].tolist(), terms, score, order, chosen
        ),
        selected=tuple(pool[position].memory_id for position in chosen.positions),
        greedy=tuple(pool[position].memory_id for position in greedy),
        mode=chosen.mode,
        epsilon=epsilon,
        draw=chosen.draw,
        seed=seed,
        propensity=chosen.propensity if log_propensity is None else exp(log_propensity),
        log_propensity=log_propensity,
        note=note,
    )


def best_first(score: Floats, pool: Sequence[Recalled], ties: Ties, seed: int) -> Places:
    """The positions of a pool from the best score (n,) to the worst; in ties as `ranked`."""
    rank_recall = np.array([member.rank_recall for member in pool], dtype=np.int64)
    return score_order(score, similar(pool), order_of_equals(rank_recall, ties, seed))


def chance_of(
    best: Sequence[int], score: Floats, order: Places, pool: Sequence[Recalled], ties: Ties
) -> tuple[float, bool]:
    """The probability that ranking a pool by score (n,) takes just these, the first of `order`; if the seed drew."""
    tied = set() if ties == "older" else tied_at_cut(order.tolist(), len(best), score.round(DIGITS), similar(pool))
    return chance_by_ties(best, best, tied), bool(tied)


# --- ordered samples without replacement ------------------------------------------------------------------------------


def gumbel_top(scores: Floats, m: int, rng: np.random.Generator) -> tuple[tuple[int, ...], Floats]:
    """The positions of an ordered sample of `m` (or all, where there are fewer), and the noise (n,) that drew it.

    Each place goes to one of those left, by softmax of `scores` (n,): the Plackett–Luce model. Adding Gumbel noise and
    taking the largest draws from it exactly (Kool et al. 2019, arXiv 1903.06059).
    """
    noise = rng.gumbel(size=len(scores))
    order = np.argsort(-(scores + noise), kind="stable")[:m]
    return tuple(order.tolist()), noise


def ordered_log_probability(scores: Floats, order: Sequence[int]) -> float:
    """ln P of drawing the positions `order` (distinct) in this order from `scores` (n,); 0 for an empty order."""
    left = scores.astype(np.float64)
    total = 0.0
    for position in order:
        highest = left.max()
        total += float(left[position] - highest - np.log(np.exp(left - highest).sum()))
        left[position] = -np.inf
    return total


def ordered_log_gradient(scores: Floats, order: Sequence[int], weights: Sequence[float]) -> Floats:
    """The gradient (n,) in `scores` (n,) of Σ_j weights[j] ln P(order[j] | what was left when it was drawn)."""
    left = scores.astype(np.float64)
    gradient = np.zeros(len(left))
    for position, weight in zip(order, weights, strict=True):
        chances = np.exp(left - left.max())
        gradient -= weight * chances / chances.sum()
        gradient[position] += weight
        left[position] = -np.inf
    return gradient
