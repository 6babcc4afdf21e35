"""Phases A and B for policies: a pool ranked by named terms, wide recall, and ordered samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import comb, exp
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.policies.base import Vector, seed_of
from memrl_core.records import Candidate, Decision, Reason, Recalled, RecallRecord, Term
from memrl_core.retrieval import DIGITS, NEAR_MISSES, recall, score_order, zscore
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
    return _similar(recalled.pool)


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
    told, scores = _terms_of(terms, n), score.tolist()
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
                told[position],
                scores[position],
                member.rank_recall,
                rank,
                position in taken,
                reasons.get(position, usual),
            )
        )
    for missed in recalled.left_out:
        assert missed.reason is not None
        worth, uses = believed(view, missed.memory_id)
        candidates.append(
            Candidate(
                missed.memory_id, missed.similarity, worth, uses, (), None, missed.rank_recall, None, False,
                missed.reason,
            )
        )  # fmt: skip
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
    return score_order(score, _similar(pool), order_of_equals(rank_recall, ties, seed))


def chance_of(
    best: Sequence[int], score: Floats, order: Places, pool: Sequence[Recalled], ties: Ties
) -> tuple[float, bool]:
    """The probability that ranking a pool by score (n,) takes just these, the first of `order`; if the seed drew."""
    tied = set() if ties == "older" else tied_at_cut(order.tolist(), len(best), score.round(DIGITS), _similar(pool))
    return chance_by_ties(best, best, tied), bool(tied)


def _similar(pool: Sequence[Recalled]) -> Floats:
    return np.array([member.similarity for member in pool], dtype=np.float64)


def _numbers(values: Floats) -> list[float]:
    numbers: list[float] = values.astype(np.float64).tolist()
    return numbers


def _terms_of(terms: Sequence[TermColumn], n: int) -> list[tuple[Term, ...]]:
    """The terms of each of the n members of a pool."""
    columns = [
        map(
            Term, repeat(t.name), _numbers(t.raw), _numbers(t.values), repeat(float(t.weight)), _numbers(t.contribution)
        )
        for t in terms
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * n


def believed(view: MemoryView, memory_id: str) -> tuple[float, int]:
    """q and visits of a memory of the view."""
    position = view.position(memory_id)
    return float(view.q[position]), int(view.visits[position])


def explored(
    recalled: RecallRecord, k2: int, greedy: Sequence[int], epsilon: float, rng: np.random.Generator
) -> Chosen | None:
    """With probability `epsilon` the whole slate drawn at random from the pool; None where the scores decide.

    The propensity is that of the set drawn, as `retrieval.select` gives it.
    """
    n = len(recalled.pool)
    if epsilon <= 0 or n == 0:
        return None
    draw = float(rng.random())
    size = min(k2, n)
    if draw >= epsilon:
        return Chosen(list(greedy), "greedy", epsilon / comb(n, size) + 1 - epsilon, draw=draw)
    drawn = [int(i) for i in rng.choice(n, size=size, replace=False)]
    propensity = epsilon / comb(n, size) + (1 - epsilon if set(drawn) == set(greedy) else 0.0)
    reasons = {i: Reason.RANDOM_EXPLORE if i in drawn else Reason.NOT_DRAWN for i in range(n)}
    return Chosen(drawn, "explore", propensity, draw=draw, reasons=reasons)


# --- phase A over every memory ----------------------------------------------------------------------------------------


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
