"""Phase B for policies: a pool ranked by named terms, and ordered samples of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import exp
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.records import Candidate, Decision, Reason, Recalled, RecallRecord, Term
from memrl_core.retrieval import DIGITS, score_order, zscore
from memrl_core.retrieval.exploration import SEEDED_TIES, Ties, chance_by_ties, order_of_equals, tied_at_cut
from memrl_core.retrieval.view import MemoryView

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TermColumn:
    """One term of the score for a whole pool of n: `raw` (n,), `normalised` (n,) (`raw` when None), and its weight."""

    name: str
    raw: Floats
    weight: float = 1.0
    normalised: Floats | None = None

    @property
    def values(self) -> Floats:
        """What is weighted (n,)."""
        return self.raw if self.normalised is None else self.normalised

    @property
    def contribution(self) -> Floats:
        """What the term adds to each score (n,)."""
        return self.weight * self.values


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice that does not follow the scores from the top: positions in the pool, in the order of the prompt.

    `reasons` maps positions to a reason other than the usual one.
    """

    positions: Sequence[int]
    mode: Literal["greedy", "explore", "fallback", "cold", "sampled", "silent"]
    propensity: float = 1.0
    log_propensity: float | None = None
    draw: float | None = None
    reasons: Mapping[int, Reason] | None = None


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
    n = len(pool)
    score = np.zeros(n) if not terms else np.sum([term.contribution for term in terms], axis=0)
    order = best_first(score, pool, ties, seed)
    greedy = [int(position) for position in order[:k2]]
    if chosen is None:
        chance, drawn = chance_of(greedy, score, order, pool, ties)
        chosen = Chosen(greedy, "greedy" if n else "fallback", chance)
        note = " ".join(filter(None, (note, SEEDED_TIES if drawn else "")))
    taken = set(chosen.positions)
    reasons = chosen.reasons or {}
    parts, scores = _terms_of(terms, n), score.tolist()
    rows = positions(recalled, view)
    q, visits = view.q[rows].tolist(), view.visits[rows].tolist()
    candidates = []
    for rank, position in enumerate(order.tolist(), start=1):
        member = pool[position]
        usual = Reason.TOP_K2 if position in taken else Reason.BEYOND_K2
        candidates.append(
            Candidate(
                member.memory_id,
                member.similarity,
                q[position],
                visits[position],
                parts[position],
                scores[position],
                member.rank_recall,
                rank,
                position in taken,
                reasons.get(position, usual),
            )
        )
    for missed in recalled.left_out:
        assert missed.reason is not None
        row, rank = view.position(missed.memory_id), missed.rank_recall
        q0, uses = float(view.q[row]), int(view.visits[row])
        candidates.append(
            Candidate(missed.memory_id, missed.similarity, q0, uses, (), None, rank, None, False, missed.reason)
        )
    log_propensity = chosen.log_propensity
    return Decision(
        k2=k2,
        weight=0.0,
        normaliser="none",
        normaliser_lines=(),
        candidates=tuple(candidates),
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


def _terms_of(terms: Sequence[TermColumn], n: int) -> list[tuple[Term, ...]]:
    """The terms of each of the n members of a pool."""
    columns = []
    for term in terms:
        numbers = [n.astype(np.float64).tolist() for n in (term.raw, term.values, term.contribution)]
        columns.append(map(Term, repeat(term.name), *numbers[:2], repeat(float(term.weight)), numbers[2]))
    return list(zip(*columns, strict=True)) if columns else [()] * n


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
