"""What other settings would have recalled, over all labelled queries: curves over δ and λ, and a grid of k1 and k2.

Nothing is sampled. Over δ a pool changes only where the gate passes the similarity of one of its members, so each query
has at most k1 + 1 different decisions. Over λ a score is a straight line, and what is selected changes only where a
line of a memory outside crosses one inside: from crossing to crossing, the one that rises faster takes the other's
place.

The arithmetic is that of `retrieval.select` with the normaliser `pool` and without exploration; where a run decides
otherwise, `why_not` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.recall.found import mean_of
from memrl_core.analysis.recall.grades import RELEVANT
from memrl_core.analysis.recall.queries import Query
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.errors import InputError
from memrl_core.retrieval import DIGITS, FLAT_SD, Floats

Bools = npt.NDArray[np.bool_]
MEASURES = ("precision", "recall", "false_recall", "empty", "pool_recall")
"""precision: relevant of the k2; recall: of the relevant, those selected; pool_recall: those in the pool; false_recall
and empty as in `found`."""
NOTHING_LABELLED = "No step of this run is labelled yet. Label some with `memrl recall label`, or import a set."
_CLOSED = -np.inf


def why_not(settings: Mapping[str, Any], policy: str) -> str:
    """Why a run's decisions cannot be made again by this arithmetic, in a sentence; "" when they can."""
    if policy != "memrl":
        return f"Curves and tuning speak of MemRL's rule; this run decides by {policy[:80]}."
    odd = [
        text
        for text, is_so in (
            ("another normaliser than pool", settings.get("normaliser", "pool") != "pool"),
            ("k1 that counts intents", settings.get("k1_counts", "record") != "record"),
            ("a bonus or noise for exploration", settings.get("exploration", "epsilon") != "epsilon"),
        )
        if is_so
    ]
    return f"Curves and tuning are not computed for {' and '.join(odd)}." if odd else ""


@dataclass(frozen=True, slots=True, eq=False)
class Pools:
    """The nearest memories of queries as arrays (queries, depth), nearest first; `_CLOSED` similarity where none is.

    `grade` is 0 for what is not labelled. `relevant` (queries,) counts all memories that should come, also those that
    are not among the nearest. `should` and `nothing` (queries,) say whether something, or nothing, should come.
    """

    similarity: Floats
    q: Floats
    equals: npt.NDArray[np.int64]
    grade: npt.NDArray[np.int64]
    relevant: npt.NDArray[np.int64]
    should: Bools
    nothing: Bools
    strict: bool
    least_q: float | None = None
    floor: float | None = None


def pools_of(queries: Sequence[Query], settings: Mapping[str, Any]) -> Pools:
    """The arrays of labelled queries whose vectors are known. Raises `InputError` where none of them saw a memory."""
    known = [query for query in queries if query.comparable]
    if not any(len(query.ids) for query in known):
        raise InputError(NOTHING_LABELLED)
    depth = max(len(query.ids) for query in known)
    shape = len(known), depth
    similarity, q = np.full(shape, _CLOSED), np.zeros(shape)
    equals, grade = np.full(shape, np.iinfo(np.int64).max), np.zeros(shape, dtype=np.int64)
    for row, query in enumerate(known):
        n = len(query.ids)
        similarity[row, :n], q[row, :n], equals[row, :n] = query.similarity, query.q, query.equals
        grade[row, :n] = [query.judged.grades.get(memory_id, 0) for memory_id in query.ids]
    count = np.array([len(query.judged.relevant) for query in known], dtype=np.int64)
    should = np.array([query.judged.nothing is False for query in known]) | (count > 0)
    nothing = np.array([query.judged.nothing is True for query in known])
    least, floor = float(settings.get("q_min", -10.0)), float(settings.get("q_floor", -10.0))
    strict = settings.get("normaliser", "pool") == "pool"
    return Pools(
        similarity, q, equals, grade, count, should, nothing, strict,
        least if least > -10.0 else None, floor if floor > -10.0 else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of MemRL."""

    delta: float
    weight: float
    k1: int
    k2: int


class Outcomes(NamedTuple):
    """What one setting does for each query (queries,): relevant memories selected and in the pool, and the sizes."""

    hits: Floats
    pool_hits: Floats
    selected: Floats
    pool: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """The first k1 of each pool, ordered so that of equal scores the left one goes first; `sim`, `q`, `hit`, `open`."""

    sim: Floats
    q: Floats
    hit: Bools
    open: Bools


def _cut(pools: Pools, k1: int) -> _Cut:
    k1 = min(k1, pools.similarity.shape[1])
    sim, q, equals = pools.similarity[:, :k1], pools.q[:, :k1], pools.equals[:, :k1]
    order = np.lexsort((equals, -sim), axis=-1)
    sim, q = np.take_along_axis(sim, order, 1), np.take_along_axis(q, order, 1)
    hit = np.take_along_axis(pools.grade[:, :k1], order, 1) >= RELEVANT
    if pools.floor is not None:
        q = np.maximum(q, pools.floor)
    is_open = np.isfinite(sim)
    if pools.least_q is not None:
        is_open &= q >= pools.least_q
    return _Cut(sim, q, hit, is_open)


def _z(values: Floats, inside: Bools) -> Floats:
    """z-scores of each row over the members `inside`, 0 where the sd is flat; others have 0."""
    n = np.maximum(inside.sum(axis=1, keepdims=True), 1)
    kept = np.where(inside, values, 0.0)
    apart = np.where(inside, kept - kept.sum(axis=1, keepdims=True) / n, 0.0)
    sd = np.sqrt((apart * apart).sum(axis=1, keepdims=True) / n)
    z: Floats = np.where(sd < FLAT_SD, 0.0, apart / np.where(sd < FLAT_SD, 1.0, sd))
    return z


def _taken(score: Floats, inside: Bools, k2: int) -> npt.NDArray[np.int64]:
    """Columns of the best k2 of each row, best first (queries, k2); −1 where there are no more. Of equals the left."""
    rows, left = np.arange(len(score)), np.where(inside, score, _CLOSED)
    taken = np.full((len(score), k2), -1, dtype=np.int64)
    for rank in range(min(k2, score.shape[1])):
        best = left.argmax(axis=1)
        there = left[rows, best] > _CLOSED
        taken[there, rank] = best[there]
        left[rows, best] = _CLOSED
    return taken


def _score(cut: _Cut, inside: Bools, weight: float) -> Floats:
    scored: Floats = ((1 - weight) * _z(cut.sim, inside) + weight * _z(cut.q, inside)).round(DIGITS)
    return scored


def _inside(cut: _Cut, delta: float, strict: bool) -> Bools:
    return cut.open & ((cut.sim > delta) if strict else (cut.sim >= delta))


def outcomes(pools: Pools, point: Point) -> Outcomes:
    """What a setting selects for every query."""
    cut = _cut(pools, point.k1)
    inside = _inside(cut, point.delta, pools.strict)
    taken = _taken(_score(cut, inside, point.weight), inside, point.k2)
    return _outcomes(cut, inside, taken)


def _outcomes(cut: _Cut, inside: Bools, taken: npt.NDArray[np.int64]) -> Outcomes:
    rows = np.arange(len(cut.sim))[:, None]
    hits = (cut.hit[rows, taken] & (taken >= 0)).sum(axis=1)
    return Outcomes(
        hits.astype(np.float64),
        (cut.hit & inside).sum(axis=1).astype(np.float64),
        (taken >= 0).sum(axis=1).astype(np.float64),
        inside.sum(axis=1).astype(np.float64),
    )


def per_query(pools: Pools, found: Outcomes, k2: int, measure: str) -> Floats:
    """The value of one of `MEASURES` for each query that it is about (n,)."""
    asked = pools.relevant > 0
    values: Floats
    if measure == "precision":
        values = found.hits[asked] / k2
    elif measure == "recall":
        values = found.hits[asked] / pools.relevant[asked]
    elif measure == "pool_recall":
        values = found.pool_hits[asked] / pools.relevant[asked]
    elif measure == "false_recall":
        values = (found.pool[pools.nothing] > 0).astype(np.float64)
    else:
        values = (found.selected[pools.should] == 0).astype(np.float64)
    return values


# --- curves -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A measure that is constant between edges: `values[i]` holds up to `edges[i]`, the last one beyond all (n + 1,).

    `right` says to which side a value at an edge itself belongs: True to that beyond it.
    """

    edges: Floats
    values: Floats
    right: bool

    def at(self, x: npt.ArrayLike) -> Floats:
        """The exact values at `x` (m,)."""
        found: Floats = self.values[np.searchsorted(self.edges, x, "right" if self.right else "left")]
        return found


def _curves(
    pools: Pools, k2: int, edges: Floats, rows: npt.NDArray[np.int64], first: Outcomes, steps: Outcomes, right: bool
) -> dict[str, Curve]:
    """Curves from what holds before all edges and what changes at each: `rows` (n,) are the queries, `steps` (n,) each
    query's outcomes beyond the edge minus those before it."""
    order = np.argsort(edges, kind="stable")
    edges, rows = edges[order], rows[order]
    asked, relevant = pools.relevant > 0, np.maximum(pools.relevant, 1)
    weights = {
        "precision": (first.hits, steps.hits, asked / k2, asked.sum()),
        "recall": (first.hits, steps.hits, asked / relevant, asked.sum()),
        "pool_recall": (first.pool_hits, steps.pool_hits, asked / relevant, asked.sum()),
        "false_recall": (first.pool > 0, steps.pool, pools.nothing * 1.0, pools.nothing.sum()),
        "empty": (first.selected == 0, steps.selected, pools.should * 1.0, pools.should.sum()),
    }
    made = {}
    for name, (start, change, weight, count) in weights.items():
        if not count:
            made[name] = Curve(np.zeros(0), np.full(1, np.nan), right)
            continue
        total = float((start * weight).sum())
        values = np.concatenate([[total], total + np.cumsum(change[order] * weight[rows])]) / count
        made[name] = Curve(edges, values.round(12), right)
    return made


def over_delta(pools: Pools, point: Point) -> dict[str, Curve]:
    """The `MEASURES` over all δ, everything else as in `point`."""
    cut = _cut(pools, point.k1)
    n, width = cut.sim.shape
    hits, pool_hits, selected, pool = by_size = np.zeros((4, n, width + 1))
    for size in range(1, width + 1):
        nearest = _Cut(cut.sim[:, :size], cut.q[:, :size], cut.hit[:, :size], cut.open[:, :size])
        taken = _taken(_score(nearest, nearest.open, point.weight), nearest.open, point.k2)
        by_size[:, :, size] = _outcomes(nearest, nearest.open, taken)
    # At the similarity of its member `size` a pool shrinks from `size` members to one less.
    there = np.isfinite(cut.sim)
    rows, columns = np.nonzero(there)
    edges = cut.sim[rows, columns]
    change = (
        table[rows, columns] - table[rows, columns + 1]
        for table in (hits, pool_hits, 1.0 * (selected == 0), 1.0 * (pool > 0))
    )
    steps, first = Outcomes(*change), Outcomes(*by_size[:, np.arange(n), there.sum(axis=1)])
    return _curves(pools, point.k2, edges, rows, first, steps, right=pools.strict)


def over_weight(pools: Pools, point: Point) -> dict[str, Curve]:
    """The `MEASURES` over all λ from 0 to 1, everything else as in `point`."""
    cut = _cut(pools, point.k1)
    inside = _inside(cut, point.delta, pools.strict)
    by_similarity, by_q = _z(cut.sim, inside), _z(cut.q, inside)
    slope = by_q - by_similarity
    taken = _taken(by_similarity.round(DIGITS), inside, point.k2)
    first = _outcomes(cut, inside, taken)
    queries = np.flatnonzero((taken >= 0).all(axis=1) & (inside.sum(axis=1) > point.k2))
    taken, at = taken[queries].copy(), np.zeros(len(queries))
    edges, rows, changes = [], [], []
    while len(queries):
        out = inside[queries].copy()
        np.put_along_axis(out, taken, False, axis=1)
        a, s = by_similarity[queries], slope[queries]
        ahead = np.take_along_axis(a, taken, 1)[:, :, None] - a[:, None, :]
        faster = s[:, None, :] - np.take_along_axis(s, taken, 1)[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = np.where((faster > 0) & out[:, None, :], ahead / faster, np.inf)
        # A crossing that lies behind belongs to a pair that rounding has put the wrong way round.
        crossing = np.maximum(crossing, at[:, None, None])
        flat = crossing.reshape(len(queries), -1)
        best = flat.argmin(axis=1)
        each = np.arange(len(queries))
        weight = flat[each, best]
        on = weight < 1
        queries, taken, at, best = queries[on], taken[on], weight[on], best[on]
        leaves, enters = np.divmod(best, crossing.shape[2])
        new = np.arange(len(queries))
        # Of members with the very same line, that which comes last among equals leaves first.
        same = (by_similarity[queries[:, None], taken] == by_similarity[queries, taken[new, leaves]][:, None]) & (
            slope[queries[:, None], taken] == slope[queries, taken[new, leaves]][:, None]
        )
        leaves = np.where(same, taken, -1).argmax(axis=1)
        gone = taken[new, leaves]
        edges.append(at)
        rows.append(queries)
        changes.append(cut.hit[queries, enters].astype(np.float64) - cut.hit[queries, gone])
        taken[new, leaves] = enters
    if edges:
        where, which, change = np.concatenate(edges), np.concatenate(rows), np.concatenate(changes)
    else:
        where, which, change = np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0)
    none = np.zeros(len(where))
    return _curves(pools, point.k2, where, which, first, Outcomes(change, none, none, none), right=False)


def grid(pools: Pools, point: Point, k1s: Sequence[int], k2s: Sequence[int], measure: str = "recall") -> Floats:
    """The mean of a measure for every k1 and k2 (k1s, k2s), everything else as in `point`; nan where k2 exceeds k1."""
    made = np.full((len(k1s), len(k2s)), np.nan)
    for row, k1 in enumerate(k1s):
        cut = _cut(pools, k1)
        inside = _inside(cut, point.delta, pools.strict)
        taken = _taken(_score(cut, inside, point.weight), inside, max(k2s))
        for column, k2 in enumerate(k2s):
            if k2 <= k1:
                values = per_query(pools, _outcomes(cut, inside, taken[:, :k2]), k2, measure)
                made[row, column] = values.mean() if len(values) else np.nan
    return made


# --- the best setting -------------------------------------------------------------------------------------------------

WEIGHTS = tuple(float(weight) for weight in np.linspace(0, 1, 11).round(2))
DELTAS = 15
"""So many δ are tried for each kind of query."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting of those tried with a false recall of at most `bar`, by all queries.

    `value`, the recall in the selection, and `false_recall` are what leaving one query out measures: each query under
    the setting that the others chose, so nothing is reported on what it was tuned by. `now` is the run's own setting.
    `tried` counts settings; `stable` is the share of queries without which the same setting is chosen.
    """

    point: Point
    bar: float
    value: Estimate
    false_recall: Estimate
    now: Estimate
    now_false_recall: Estimate
    tried: int
    stable: float

    def gains_over(self, own: Point) -> bool:
        """Whether it is another setting than `own`, and better in something: in recall or in false recall."""
        better = self.value.value > self.now.value or self.false_recall.value < self.now_false_recall.value
        return (self.point.delta, self.point.weight) != (own.delta, own.weight) and better

    def sentences(self, own: Point) -> list[str]:
        """What it is, what it measures beside `own`, and what stands in the way of trusting it."""
        setting = f"δ {self.point.delta:g}, λ {self.point.weight:g}"
        what = "recall in the selection"
        knows_false = self.false_recall.known and self.now_false_recall.known
        if (self.point.delta, self.point.weight) == (own.delta, own.weight):
            said = [f"The setting of the run, {setting}, is the best of {self.tried:,}: {what} {_share(self.now)}."]
            if knows_false:
                said.append(f"False recall {_share(self.now_false_recall)}.")
        else:
            said = [f"{setting} of {self.tried:,} settings: {what} {_share(self.value)} instead of {_share(self.now)}."]
            if knows_false:
                said.append(f"False recall {_share(self.false_recall)} instead of {_share(self.now_false_recall)}.")
            if not self.gains_over(own):
                said.append(
                    "By all steps it looks best; measured on steps that had no say in the choice it is better in "
                    "nothing: keep what the run has."
                )
            if knows_false and self.false_recall.value > self.bar:
                said.append(
                    f"It keeps to {self.bar:g} by all steps, and not on steps that had no say in the choice: label "
                    "more of those for which nothing should come."
                )
        return said


def _share(found: Estimate) -> str:
    ends = "" if math.isnan(found.low) else f" ({found.low:.2f} – {found.high:.2f})"
    return f"{found.value:.2f}{ends}"


def _deltas(pools: Pools, own: float) -> Floats:
    """The δ to try: where relevant memories lie, and where queries for which nothing should come have their nearest."""
    known = np.isfinite(pools.similarity)
    relevant = pools.similarity[known & (pools.grade >= RELEVANT)]
    false = pools.similarity[pools.nothing & known[:, 0], 0]
    parts = [np.quantile(part, np.linspace(0, 1, DELTAS)) for part in (relevant, false) if len(part)]
    # Rounded up, so that a gate at the similarity of the last that should stay out does keep it out.
    found: Floats = np.unique(np.concatenate([np.ceil(np.concatenate([np.zeros(1), *parts]) * 1e4) / 1e4, [own]]))
    return found


def best_setting(pools: Pools, point: Point, bar: float) -> Best:
    """Over δ and λ, the setting with the highest recall in the selection whose false recall is at most `bar`.

    Of equal ones, that nearest to `point`. Raises `InputError` where no query has a relevant memory, or no setting
    keeps to the bar.
    """
    asked = pools.relevant > 0
    if not asked.any():
        raise InputError("No labelled step has a relevant memory, so no setting is better than another. Label some.")
    deltas = _deltas(pools, point.delta)
    points = [Point(float(d), w, point.k1, point.k2) for d in deltas for w in sorted({*WEIGHTS, point.weight})]
    points.sort(key=lambda one: abs(one.delta - point.delta) + abs(one.weight - point.weight))
    found = [outcomes(pools, one) for one in points]
    good = np.array([per_query(pools, one, point.k2, "recall") for one in found])
    false = np.array([per_query(pools, one, point.k2, "false_recall") for one in found]).reshape(len(points), -1)
    n, m = good.shape[1], false.shape[1]
    total, total_false = good.sum(axis=1, keepdims=True), false.sum(axis=1, keepdims=True)
    whole = np.where(total_false[:, 0] <= bar * max(m, 1) + 1e-9, total[:, 0], _CLOSED)
    if not np.isfinite(whole).any():
        raise InputError(f"No setting that was tried keeps false recall at {bar:g} or below. Allow more.")
    chosen = int(whole.round(9).argmax())
    left = np.where(total_false <= bar * max(m, 1) + 1e-9, total - good, _CLOSED).round(9).argmax(axis=0)
    held_out = good[left, np.arange(n)]
    # A query for which nothing should come decides whether a setting keeps to the bar: left out, it has no say in that.
    others = max(m - 1, 1)
    keeps = total_false - false <= bar * others + 1e-9
    without = np.where(keeps, total, _CLOSED).round(9).argmax(axis=0) if m else np.zeros(0, dtype=np.int64)
    held_false = false[without, np.arange(m)] if m else np.zeros(0)
    same = np.concatenate([left == chosen, without == chosen])
    return Best(
        points[chosen], bar, mean_of(held_out), mean_of(held_false), mean_of(good[0]), mean_of(false[0]),
        len(points), float(same.mean()),
    )  # fmt: skip
