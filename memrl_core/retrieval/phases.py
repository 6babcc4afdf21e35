"""Phase A and phase B of MemRL as pure functions of arrays.

Sources: arXiv 2601.03192 v2, equations 6 and 7, and the official code's `retrieve_query` and `ValueAwareSelector` for
the `fixed` normaliser, for intents as the unit of k1, and for bounds on q. Exploration is in `exploration.py`.

The same input gives the same selection bit for bit. Pools are small and both phases run in every step, so what costs
here is the number of calls and of records, not the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.errors import InputError
from memrl_core.records import Candidate, Decision, NormaliserLine, Reason, Recalled, RecallRecord
from memrl_core.retrieval.exploration import (
    BY_CHANCE,
    SEEDED_TIES,
    Chosen,
    Exploration,
    TermColumn,
    Ties,
    added,
    chance_of_best,
    chosen_from,
    drawn_keys,
    order_of_equals,
)
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import Normaliser

Vector = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DIGITS = 9
_FLOAT32_SLACK = np.float32(1e-5)
_CLOSED = np.float32(-2.0)
_LEAST = np.float32(-1.5)
ROUNDING = 1e-3
"""How far beyond ±1 a cosine may lie that another program computed."""
CONTRADICTED = 0.02
"""How far it may lie from ours; beyond that it is no cosine of these vectors."""


def exact_similarity(embeddings: Vector, query: Vector) -> npt.NDArray[np.float64]:
    """Cosines of unit vectors (n, d) and (d,) -> (n,), in float64 and rounded to `DIGITS`: the ones that decide."""
    products = embeddings.astype(np.float64) @ query.astype(np.float64)
    rounded: npt.NDArray[np.float64] = np.minimum(np.maximum(products.round(DIGITS), -1.0), 1.0)
    return rounded


def is_cosine(score: float, measured: float | None) -> bool:
    """Whether a score from elsewhere can be the cosine that is `measured` by stored vectors (None: not known)."""
    return abs(score) <= 1 + ROUNDING and (measured is None or abs(score - measured) <= CONTRADICTED)


def nearest(products: Vector, wanted: int) -> Positions:
    """Positions, oldest first, of at least the `wanted` largest of `products` (n,) above −1.5, or of all.

    With all that float32 cannot tell from the last of them.
    """
    least = _LEAST
    if len(products) > wanted:
        least = max(np.partition(products, len(products) - wanted)[len(products) - wanted] - _FLOAT32_SLACK, least)
    return np.flatnonzero(products >= least)


FLAT_SD = 1e-9
CLIP = 3.0
NEAR_MISSES = 5


@dataclass(frozen=True, slots=True)
class Standardised:
    """A pool's values as z-scores: z (n,), the mean and sd used, and which values the clip cut (n,)."""

    z: Floats
    mean: float
    sd: float
    flat: bool
    clipped: npt.NDArray[np.bool_]


def zscore(values: Floats) -> Standardised:
    """A pool (n,) standardised (eq. 7): its z (n,) with the mean and population sd used.

    Below an sd of 1e-9 all z are 0 and `flat` says so. The scores are in `.z`; nothing is clipped.
    """
    if len(values) == 0:
        return Standardised(values.copy(), 0.0, 0.0, True, np.zeros(0, dtype=bool))
    n = len(values)
    mean = float(np.add.reduce(values)) / n
    apart = values - mean
    sd = math.sqrt(float(np.add.reduce(apart * apart)) / n)
    flat = sd < FLAT_SD
    return Standardised(np.zeros(n) if flat else apart / sd, mean, sd, flat, np.zeros(n, dtype=bool))


def clipped(standardised: Standardised) -> Standardised:
    """The same with every z cut at ±`CLIP`, as the official code does with q (`_normalize_q`)."""
    z = np.clip(standardised.z, -CLIP, CLIP)
    return Standardised(z, standardised.mean, standardised.sd, standardised.flat, np.abs(standardised.z) > CLIP)


def standardised_by(values: Floats, mean: float, sd: float) -> Standardised:
    """Values (n,) standardised by a configured mean and sd, as the official code does (`_normalize_similarity`)."""
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
    ties: Ties = "seeded",
    seed: int = 0,
) -> RecallRecord:
    """Phase A (eq. 6): the k1 memories, or the memories of the k1 intents, nearest to `query` (d,) beyond the gate.

    Which of equal similarities goes first `seed` draws, or it is the older (`ties`). `left_out` are the nearest
    `NEAR_MISSES` that missed the pool. `coarse` (n,) may hold the float32 product of the view's embeddings and the
    query, where many queries were multiplied at once; it is changed in place. Memories of the task `exclude_task` stay
    outside. Raises `InputError` when the query is not a finite vector of the view's dimension.
    """
    if query.shape != view.embeddings.shape[1:] or not _is_finite(query):
        raise InputError("The query's embedding is not a finite vector of the bank's dimension. Nothing was recalled.")
    own, is_open = None, view.visible
    if exclude_task:
        own = of_task(view, exclude_task)
        is_open = _without(view, own)
    products = view.embeddings @ query if coarse is None else coarse
    if is_open is not None:
        np.putmask(products, ~is_open, _CLOSED)
    near, exact, ranks, size = _ranked(
        query, view, products, is_open, k1, k1_counts, delta, strict, None if ties == "older" else seed
    )
    reasons = _reasons(exact[size:], delta, strict)
    if own is not None:
        own_similarity = exact_similarity(view.embeddings[own], query)
        nearest = np.lexsort((own, -own_similarity))[:NEAR_MISSES]
        ranks = np.concatenate((ranks, len(near) + 1 + np.arange(len(nearest))))
        near, exact = np.concatenate((near, own[nearest])), np.concatenate((exact, own_similarity[nearest]))
        reasons += [Reason.SAME_TASK] * len(nearest)
    ids = [view.ids[position] for position in near.tolist()]
    seen = tuple(map(Recalled, ids, exact.tolist(), ranks.tolist(), [*repeat(None, size), *reasons]))
    return RecallRecord(k1, k1_counts, delta, strict, view.size, seen[:size], seen[size:])


def _reasons(left_out: Floats, delta: float, strict: bool) -> list[Reason]:
    """Why memories with such similarities (n,) are not in the pool."""
    beyond = left_out > delta if strict else left_out >= delta
    return [Reason.BEYOND_K1 if is_beyond else Reason.BELOW_DELTA for is_beyond in beyond.tolist()]


def positions_in(view: MemoryView, recalled: RecallRecord) -> Positions:
    """The positions (n,) in a view's arrays of the pool's memories, followed by those of the memories left out.

    `n` is more than the size of the pool: `select` takes q and visits in this order, and scores the first
    `len(recalled.pool)`. Raises `KeyError` for a memory that is not in the view.
    """
    return view.positions_of([member.memory_id for member in (*recalled.pool, *recalled.left_out)])


def _is_finite(query: npt.NDArray[np.float32]) -> bool:
    return math.isfinite(query @ query) or bool(np.isfinite(query).all())


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


def of_task(view: MemoryView, task: str) -> Positions:
    """The positions of the memories that the run sees which come from a task, oldest first; none for the task ""."""
    found = [i for i in view.positions().tolist() if view.memories[view.ids[i]].task == task] if task else []
    return np.array(found, dtype=np.int64)


def _without(view: MemoryView, own: Positions) -> Mask:
    """Which memories are open when those at the positions `own` are not."""
    is_open = np.ones(len(view.ids), dtype=np.bool_) if view.visible is None else view.visible.copy()
    is_open[own] = False
    return is_open


def _ranked(
    query: npt.NDArray[np.float32],
    view: MemoryView,
    products: Vector,
    is_open: Mask | None,
    k1: int,
    k1_counts: str,
    delta: float,
    strict: bool,
    seed: int | None,
) -> tuple[Positions, Floats, Positions, int]:
    """The pool followed by the `NEAR_MISSES` as (positions, similarities, ranks, size of the pool).

    Both parts are most similar first; of equals the one that `seed` draws, the older without one.
    """
    wanted = k1 + NEAR_MISSES
    near, exact = _measured(query, view, nearest(products, wanted), seed)
    if k1_counts == "record":
        size = sum([value > delta if strict else value >= delta for value in exact[:k1].tolist()])
        last = min(size + NEAR_MISSES, len(near))
        return near[:last], exact[:last], np.arange(1, last + 1), size
    groups = view.intent_groups
    most = len(view.ids) if is_open is None else int(np.count_nonzero(is_open))
    while len(near) < most and len(np.unique(groups[near])) <= k1:
        wanted *= 2
        near, exact = _measured(query, view, nearest(products, wanted), seed)
    _, first = np.unique(groups[near], return_index=True)
    chosen = groups[near[np.sort(first)[:k1]]]
    of_chosen = np.isin(groups, chosen)
    members = np.flatnonzero(of_chosen if is_open is None else of_chosen & is_open)
    near, exact = _measured(query, view, np.union1d(near, members), seed)
    member = (exact > delta if strict else exact >= delta) & of_chosen[near]
    inside, outside = np.flatnonzero(member), np.flatnonzero(~member)[:NEAR_MISSES]
    rows = np.concatenate((inside, outside))
    return near[rows], exact[rows], rows + 1, len(inside)


def _measured(
    query: npt.NDArray[np.float32], view: MemoryView, positions: Positions, seed: int | None
) -> tuple[Positions, Floats]:
    """Memories at ascending positions and their similarities, most similar first; in ties as `_ranked`."""
    exact = exact_similarity(view.embeddings[positions], query)
    order = (-exact).argsort(kind="stable")
    falling = exact[order]
    if seed is not None and (falling[1:] == falling[:-1]).any():
        order = np.lexsort((positions, turns_of(positions, view, seed), -exact))
    return positions[order], falling


def turns_of(positions: Positions, view: MemoryView, seed: int) -> Positions:
    """By what equally similar memories at these positions are ordered in phase A (n,): a draw of the seed's.

    It goes by the place that a memory has by age among those of the run, so other runs in the bank change nothing.
    """
    indices = positions if view.visible is None else np.flatnonzero(view.visible).searchsorted(positions)
    return drawn_keys(indices, seed, "recall")


def standardised_pool(
    similarity: Floats, q: Floats, normaliser: Normaliser, fixed_mean: float, fixed_sd: float
) -> tuple[Standardised, Standardised]:
    """Both sides of a pool, (n,) each, by the paper's normaliser, by the official code's, or as they are."""
    if normaliser == "pool":
        return zscore(similarity), zscore(q)
    if normaliser == "raw":
        return standardised_by(similarity, 0.0, 1.0), standardised_by(q, 0.0, 1.0)
    return standardised_by(similarity, fixed_mean, fixed_sd), clipped(zscore(q))


def score_order(score: Floats, similarity: Floats, equals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Positions from the best score to the worst; ties go to the more similar, then to the lower of `equals` (n,)."""
    order: npt.NDArray[np.int64] = np.lexsort((equals, -similarity, -score.round(DIGITS)))
    return order


def select(
    recalled: RecallRecord,
    q: Floats,
    visits: npt.NDArray[np.int64],
    *,
    k2: int,
    weight: float,
    normaliser: Normaliser,
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
    q = np.asarray(q, dtype=np.float64)
    values: list[float] = q.tolist()
    if not all(map(math.isfinite, values)):
        raise InputError("A utility in the pool is not a finite number. Nothing was selected; run `memrl doctor`.")
    uses: list[int] = visits.tolist()
    pool, n = recalled.pool, len(recalled.pool)
    assert len(values) == len(uses) == n + len(recalled.left_out)
    chance = epsilon if exploration.kind == "epsilon" else 0.0
    similarity = np.array([member.similarity for member in pool], dtype=np.float64)
    rank_recall = np.array([member.rank_recall for member in pool], dtype=np.int64)
    pool_q = floored(q[:n], floor)
    # The official code takes mean and sd of q before it drops memories below the least q.
    dropped = _dropped(recalled) if normaliser == "fixed" else []
    scale_q = floored(np.concatenate((q[:n], q[dropped])), floor) if dropped else pool_q
    by_similarity, by_q = standardised_pool(similarity, scale_q, normaliser, fixed_mean, fixed_sd)
    if dropped:
        by_q = replace(by_q, z=by_q.z[:n], clipped=by_q.clipped[:n])
    columns = [
        TermColumn("similarity", similarity, 1 - weight, by_similarity.z, by_similarity.clipped),
        TermColumn("q", pool_q, weight, by_q.z, by_q.clipped),
    ]
    known = score = columns[0].contribution + columns[1].contribution
    equals = order_of_equals(rank_recall, exploration.ties, seed)
    order = by_known = score_order(known, similarity, equals).tolist()
    extra = added(exploration, visits[:n], 0.0 if by_q.flat else by_q.sd, weight, seed)
    if extra is not None:
        columns.append(extra[0])
        score = known + extra[0].contribution
        order = score_order(score, similarity, equals).tolist()
    greedy = by_known[:k2]
    tied = False
    if extra is not None and n and extra[1].any():
        best = order[:k2]
        noise = dict.fromkeys(set(best) ^ set(greedy), Reason.NOISE)
        chosen = Chosen(best, "sampled", chance_of_best(known, extra[1], best), reasons=noise)
    else:
        chosen, tied = chosen_from(order, k2, score.round(DIGITS), similarity, chance, exploration.ties, seed)
    notes = ("" if extra is None else extra[2], SEEDED_TIES if tied else "")
    return Decision(
        k2=k2,
        weight=weight,
        normaliser=normaliser,
        normaliser_lines=_lines(by_similarity, by_q, normaliser),
        candidates=candidates_of(recalled, values, uses, columns, score, order, chosen),
        selected=tuple([pool[i].memory_id for i in chosen.positions]),
        greedy=tuple([pool[i].memory_id for i in greedy]),
        mode=chosen.mode,
        epsilon=chance,
        draw=chosen.draw,
        seed=seed,
        propensity=chosen.propensity,
        note=" ".join(filter(None, notes)) if n else "",
    )


def candidates_of(
    recalled: RecallRecord,
    q: Sequence[float],
    visits: Sequence[int],
    columns: Sequence[TermColumn],
    score: Floats,
    order: Sequence[int],
    chosen: Chosen,
) -> tuple[Candidate, ...]:
    """The pool of n in `order`, its positions from the best score (n,) to the worst, then those left out.

    `q` and `visits` are those of the pool followed by those of the memories left out.
    """
    terms = list(zip(*(column.terms() for column in columns), strict=True)) if columns else [()] * len(order)
    taken, scores, found = set(chosen.positions), score.tolist(), []
    for rank, i in enumerate(order, start=1):
        one, usual = recalled.pool[i], Reason.TOP_K2 if i in taken else Reason.BEYOND_K2
        seen = one.memory_id, one.similarity, q[i], visits[i]
        reason = chosen.reasons.get(i, usual)
        found.append(Candidate(*seen, terms[i], scores[i], one.rank_recall, rank, i in taken, reason))
    for i, one in enumerate(recalled.left_out, start=len(recalled.pool)):
        assert one.reason is not None
        seen = one.memory_id, one.similarity, q[i], visits[i]
        found.append(Candidate(*seen, (), None, one.rank_recall, None, False, one.reason))
    return tuple(found)


def _dropped(recalled: RecallRecord) -> list[int]:
    """Where those stand in the columns that were recalled and left for their q."""
    left_out = enumerate(recalled.left_out, start=len(recalled.pool))
    return [at for at, missed in left_out if missed.reason is Reason.Q_BELOW_MINIMUM]


def _lines(by_similarity: Standardised, by_q: Standardised, normaliser: Normaliser) -> tuple[NormaliserLine, ...]:
    fixed = normaliser == "fixed"
    if normaliser == "raw":
        return tuple([NormaliserLine(term, 0.0, 1.0, "none", None, False) for term in ("similarity", "q")])
    return (
        NormaliserLine(
            "similarity",
            by_similarity.mean,
            by_similarity.sd,
            "configured" if fixed else "pool",
            None,
            by_similarity.flat,
        ),
        NormaliserLine("q", by_q.mean, by_q.sd, "pool", CLIP if fixed else None, by_q.flat),
    )
