"""A pool ranked by named terms, as a decision: what all policies but MemRL select with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import comb, exp
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.exploration import SEEDED_TIES, Ties, chance_by_ties, order_of_equals, tied_at_cut
from memrl_core.records import Candidate, Decision, Reason, Recalled, RecallRecord, Term
from memrl_core.retrieval import DIGITS, score_order
from memrl_core.view import MemoryView

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
    rows = [view.position(member.memory_id) for member in pool]
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
