"""Phase A and phase B of MemRL as pure functions of arrays.

Sources: arXiv 2601.03192 v2, equations 6 and 7, and the official code's `retrieve_query` and `ValueAwareSelector` for
the `fixed` normaliser, for intents as the unit of k1, and for bounds on q. Exploration is in `memrl_core.exploration`.

The same input gives the same selection bit for bit: the float32 product over the whole memory only makes a shortlist;
the similarities that decide are computed again in float64 and rounded to `DIGITS`, because a BLAS product may differ in
its last bits with the shape of the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.exploration import BY_CHANCE, Exploration, added, note_of, order_of_equals, slate
from memrl_core.records import (
    Candidate,
    Decision,
    NormaliserLine,
    Reason,
    Recalled,
    RecallRecord,
    Term,
)
from memrl_core.view import MemoryView

Floats = npt.NDArray[np.float64]

FLAT_SD = 1e-9
CLIP = 3.0
DIGITS = 9
NEAR_MISSES = 5
_FLOAT32_SLACK = 1e-5
_INVISIBLE = np.float32(-2.0)


@dataclass(frozen=True, slots=True)
class Standardised:
    """A pool's values as z-scores: z (n,), the mean and sd used, and which values the clip cut (n,)."""

    z: Floats
    mean: float
    sd: float
    flat: bool
    clipped: npt.NDArray[np.bool_]


def zscore(values: Floats) -> Standardised:
    """Standardise a pool: (n,) -> (n,), population sd; all zeros when the sd is below 1e-9 (eq. 7)."""
    if len(values) == 0:
        return Standardised(values.copy(), 0.0, 0.0, True, np.zeros(0, dtype=bool))
    mean, sd = float(values.mean()), float(values.std())
    flat = sd < FLAT_SD
    z = np.zeros_like(values) if flat else (values - mean) / sd
    return Standardised(z, mean, sd, flat, np.zeros(len(values), dtype=bool))


def clipped(standardised: Standardised, limit: float = CLIP) -> Standardised:
    """The same with every z cut at ±limit, as the official code does (`value_driven.py`)."""
    z = np.clip(standardised.z, -limit, limit)
    return Standardised(z, standardised.mean, standardised.sd, standardised.flat, np.abs(standardised.z) > limit)


def standardised_by(values: Floats, mean: float, sd: float) -> Standardised:
    """z-scores against a configured mean and sd instead of the pool's: (n,) -> (n,)."""
    return Standardised((values - mean) / sd, mean, sd, False, np.zeros(len(values), dtype=bool))


def recall(
    query: npt.NDArray[np.float32],
    view: MemoryView,
    *,
    k1: int,
    k1_counts: Literal["record", "intent"],
    delta: float,
    strict: bool,
    coarse: npt.NDArray[np.float32] | None = None,
    exclude_task: str = "",
) -> RecallRecord:
    """Phase A (eq. 6): the k1 memories, or the memories of the k1 intents, nearest to `query` (d,) beyond the gate.

    Ties go to the older memory. `left_out` are the nearest `NEAR_MISSES` that missed the pool. `coarse` (n,) may hold
    the float32 product of the view's embeddings and the query, where many queries were multiplied at once; it is
    changed in place. Memories of the task `exclude_task` stay outside. Raises `InputError` when the query is not a
    finite vector of the view's dimension.
    """
    if query.shape != view.embeddings.shape[1:] or not np.isfinite(query).all():
        raise InputError("The query's embedding is not a finite vector of the bank's dimension. Nothing was recalled.")
    if coarse is None:
        coarse = view.embeddings @ query
    own = np.array(_of_task(view, exclude_task) if exclude_task else [], dtype=np.int64)
    own_similarity = exact_similarity(view.embeddings[own], query)
    coarse[own] = _INVISIBLE
    near, similarity, is_member = _ranked(query, view, coarse, k1, k1_counts, delta, strict)
    pool: list[Recalled] = []
    left_out: list[Recalled] = []
    for rank, (position, value, member) in enumerate(zip(near, similarity, is_member, strict=True), start=1):
        if member:
            pool.append(Recalled(view.ids[position], float(value), rank, None))
        elif len(left_out) < NEAR_MISSES:
            open_gate = value > delta if strict else value >= delta
            reason = Reason.BEYOND_K1 if open_gate else Reason.BELOW_DELTA
            left_out.append(Recalled(view.ids[position], float(value), rank, reason))
    for place in np.lexsort((own, -own_similarity))[:NEAR_MISSES].tolist():
        rank = len(pool) + len(left_out) + 1
        left_out.append(Recalled(view.ids[own[place]], float(own_similarity[place]), rank, Reason.SAME_TASK))
    return RecallRecord(k1, k1_counts, delta, strict, view.size, tuple(pool), tuple(left_out))


def without_poor(recalled: RecallRecord, view: MemoryView, least_q: float | None, floor: float | None) -> RecallRecord:
    """A recall whose pool has lost the memories with q, raised to `floor`, below `least_q`; nothing takes their place.

    Source: the official code, `q_min_threshold`.
    """
    if least_q is None:
        return recalled
    rows = [view.position(member.memory_id) for member in recalled.pool]
    poor = floored(view.q[rows], floor) < least_q
    pool = tuple(member for member, out in zip(recalled.pool, poor, strict=True) if not out)
    dropped = (
        replace(member, reason=Reason.Q_BELOW_MINIMUM) for member, out in zip(recalled.pool, poor, strict=True) if out
    )
    left_out = sorted((*recalled.left_out, *dropped), key=lambda member: member.rank_recall)
    return replace(recalled, pool=pool, left_out=tuple(left_out))


def floored(q: Floats, floor: float | None) -> Floats:
    """q (n,) with what lies below `floor` raised to it (official code, `q_floor`); as it is when there is no floor."""
    return q if floor is None else np.maximum(q, floor)


def _of_task(view: MemoryView, task: str) -> list[int]:
    """The positions of the memories that the run sees which come from a task."""
    return [i for i in view.positions().tolist() if view.memories[view.ids[i]].task == task]


def _ranked(
    query: npt.NDArray[np.float32],
    view: MemoryView,
    coarse: npt.NDArray[np.float32],
    k1: int,
    k1_counts: str,
    delta: float,
    strict: bool,
) -> tuple[npt.NDArray[np.int64], Floats, npt.NDArray[np.bool_]]:
    """The nearest memories as (positions, similarities, is in the pool), most similar first, older first in ties."""
    if view.visible is not None:
        coarse[~view.visible] = _INVISIBLE
    wanted = k1 + NEAR_MISSES
    near = _shortlist(coarse, wanted)
    while k1_counts == "intent" and len(near) < view.size and len(np.unique(view.intent_groups[near])) <= k1:
        wanted *= 2
        near = _shortlist(coarse, wanted)
    exact = exact_similarity(view.embeddings[near], query)
    order = np.lexsort((near, -exact))
    near, exact = near[order], exact[order]
    passed = exact > delta if strict else exact >= delta
    if k1_counts == "record":
        return near, exact, passed & (np.arange(len(near)) < k1)
    _, first = np.unique(view.intent_groups[near], return_index=True)
    chosen = view.intent_groups[near[np.sort(first)[:k1]]]
    members = np.flatnonzero(np.isin(view.intent_groups, chosen) & (coarse > _INVISIBLE))
    near = np.union1d(near, members)
    exact = exact_similarity(view.embeddings[near], query)
    order = np.lexsort((near, -exact))
    near, exact = near[order], exact[order]
    passed = exact > delta if strict else exact >= delta
    return near, exact, passed & np.isin(view.intent_groups[near], chosen)


def _shortlist(coarse: npt.NDArray[np.float32], wanted: int) -> npt.NDArray[np.int64]:
    """Positions of at least the `wanted` largest visible values, with all that float32 cannot tell from the last."""
    if len(coarse) > wanted:
        edge = np.partition(coarse, len(coarse) - wanted)[len(coarse) - wanted] - _FLOAT32_SLACK
        return np.flatnonzero(coarse >= max(edge, _INVISIBLE + 0.5))
    return np.flatnonzero(coarse > _INVISIBLE)


def exact_similarity(embeddings: npt.NDArray[np.float32], query: npt.NDArray[np.float32]) -> Floats:
    """Cosines of unit vectors (n, d) and (d,) -> (n,), in float64 and rounded to `DIGITS`: the ones that decide."""
    products = embeddings.astype(np.float64) @ query.astype(np.float64)
    rounded: Floats = np.clip(np.round(products, DIGITS), -1.0, 1.0)
    return rounded


def standardised_pool(
    similarity: Floats, q: Floats, normaliser: Literal["pool", "fixed"], fixed_mean: float, fixed_sd: float
) -> tuple[Standardised, Standardised]:
    """Both sides of a pool, (n,) each, by the paper's normaliser or the official code's."""
    if normaliser == "pool":
        return zscore(similarity), zscore(q)
    return clipped(standardised_by(similarity, fixed_mean, fixed_sd)), clipped(zscore(q))


def score_order(score: Floats, similarity: Floats, rank_recall: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Positions from the best score to the worst; ties go to the more similar, then to the older memory."""
    order: npt.NDArray[np.int64] = np.lexsort((rank_recall, -similarity, -np.round(score, DIGITS)))
    return order


def select(
    recalled: RecallRecord,
    q: Floats,
    visits: npt.NDArray[np.int64],
    *,
    k2: int,
    weight: float,
    normaliser: Literal["pool", "fixed"],
    fixed_mean: float,
    fixed_sd: float,
    epsilon: float,
    seed: int,
    exploration: Exploration = BY_CHANCE,
    floor: float | None = None,
) -> Decision:
    """Phase B (eq. 7): rank the pool by (1 - weight) z(similarity) + weight z(q) and keep the best k2.

    `q` and `visits` (n,) stand in the order of `recalled.pool` followed by `recalled.left_out`; a q below `floor` is
    raised to it before it is scored.
    With probability `epsilon` the k2 are drawn from the pool at random instead (official code: the whole slate), unless
    another `exploration` adds a term to the scores.
    Scores tie-break by higher similarity, then by age or by the seed. Raises `InputError` when a q is not finite.
    """
    if not np.isfinite(q).all():
        raise InputError("A utility in the pool is not a finite number. Nothing was selected; run `memrl doctor`.")
    chance = epsilon if exploration.kind == "epsilon" else 0.0
    pool = recalled.pool
    n = len(pool)
    similarity = np.array([member.similarity for member in pool], dtype=np.float64)
    pool_q = floored(np.asarray(q[:n], dtype=np.float64), floor)
    by_similarity, by_q = standardised_pool(similarity, pool_q, normaliser, fixed_mean, fixed_sd)
    similarity_part, q_part = (1 - weight) * by_similarity.z, weight * by_q.z
    known = similarity_part + q_part
    extra = added(exploration, visits[:n], 0.0 if by_q.flat else by_q.sd, weight, seed)
    score = known if extra is None else known + extra.contribution
    rank_recall = np.array([member.rank_recall for member in pool], dtype=np.int64)
    equals = order_of_equals(rank_recall, exploration.ties, seed)
    order = score_order(score, similarity, equals).tolist()
    greedy = order[:k2] if extra is None else score_order(known, similarity, equals).tolist()[:k2]
    taken = slate(
        order,
        k2,
        score=np.round(score, DIGITS),
        similarity=similarity,
        known=known,
        extra=extra,
        epsilon=chance,
        ties=exploration.ties,
        seed=seed,
    )

    candidates = []
    for rank, position in enumerate(order, start=1):
        member = pool[position]
        terms = (
            _term("similarity", similarity, by_similarity, 1 - weight, similarity_part, position),
            _term("q", pool_q, by_q, weight, q_part, position),
            *(() if extra is None else (extra.term(position),)),
        )
        value, uses, total, inside = q[position], visits[position], score[position], position in taken.positions
        candidates.append(
            Candidate(
                member.memory_id, member.similarity, float(value), int(uses), terms, float(total), member.rank_recall,
                rank, inside, taken.reason(position, greedy),
            )
        )  # fmt: skip
    for missed, value, uses in zip(recalled.left_out, q[n:], visits[n:], strict=True):
        assert missed.reason is not None
        similar, place = missed.similarity, missed.rank_recall
        candidates.append(
            Candidate(missed.memory_id, similar, float(value), int(uses), (), None, place, None, False, missed.reason)
        )
    return Decision(
        k2=k2,
        weight=weight,
        normaliser=normaliser,
        normaliser_lines=_lines(by_similarity, by_q, normaliser),
        candidates=tuple(candidates),
        selected=tuple(pool[i].memory_id for i in taken.positions),
        greedy=tuple(pool[i].memory_id for i in greedy),
        mode=taken.mode,
        epsilon=chance,
        draw=taken.draw,
        seed=seed,
        propensity=taken.propensity,
        note=note_of(exploration, extra) if n else "",
    )


def _term(name: str, raw: Floats, standard: Standardised, weight: float, parts: Floats, position: int) -> Term:
    return Term(
        name,
        float(raw[position]),
        float(standard.z[position]),
        weight,
        float(parts[position]),
        bool(standard.clipped[position]),
    )


def _lines(by_similarity: Standardised, by_q: Standardised, normaliser: str) -> tuple[NormaliserLine, ...]:
    fixed = normaliser == "fixed"
    clip = CLIP if fixed else None
    return (
        NormaliserLine(
            "similarity",
            by_similarity.mean,
            by_similarity.sd,
            "configured" if fixed else "pool",
            clip,
            by_similarity.flat,
        ),
        NormaliserLine("q", by_q.mean, by_q.sd, "pool", clip, by_q.flat),
    )
