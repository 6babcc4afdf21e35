"""At which weight λ, and at which q of one memory, the choice changes.

Every weight at once: each candidate's score is a straight line in λ, so the choice changes at exact points only
(arXiv 2601.03192, equation 7). Two lines i and j cross at λ* = Δs / (Δs + Δq) with Δs = similarity_z(i) −
similarity_z(j) and Δq = q_z(j) − q_z(i).

Every q of one memory: with z-scores a changed q moves the mean and the sd of the whole pool, so every score changes.
The mean cancels in the difference of two z, and what is left is a quadratic equation for each rival. Its roots, with
those of the clip of q where there is one, cut the axis into stretches on which the choice is constant; each stretch is
then decided by scoring the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.decision.whatif import Situation, decided, rank_of
from memrl_core.records import Decision
from memrl_core.retrieval import CLIP, DIGITS, FLAT_SD, Floats, score_order, standardised_pool
from memrl_core.retrieval.exploration import order_of_equals
from memrl_core.settings import MemRLSettings

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

    `ids` (n,) are in the order of phase A; `similarity_z` and `q_z` (n,); `intervals` cover [0, 1]; `flips` lie between
    them.
    """

    ids: tuple[str, ...]
    similarity_z: Floats
    q_z: Floats
    k2: int
    intervals: tuple[Interval, ...]
    flips: tuple[Flip, ...]

    def taken(self, memory_id: str) -> list[tuple[float, float]]:
        """The ranges of λ, (from, to) each, in which greedy selection takes a memory; those that touch are one."""
        stretches = groupby(self.intervals, key=lambda interval: memory_id in interval.selected)
        held = (list(intervals) for is_selected, intervals in stretches if is_selected)
        return [(intervals[0].low, intervals[-1].high) for intervals in held]


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
    similarity_z = np.array([c.terms[0].normalised for c in pool], dtype=np.float64)
    q_z = np.array([c.terms[1].normalised for c in pool], dtype=np.float64)
    similarity = np.array([c.similarity for c in pool], dtype=np.float64)
    edges = _edges(similarity_z, q_z, decision.k2)
    middles = (edges[1:] + edges[:-1]) / 2
    # At an end of [0, 1] itself several candidates may tie; inside an interval they only do if their lines are equal.
    orders = [score_order((1 - w) * similarity_z + w * q_z, similarity, equals)[: decision.k2] for w in middles]
    sets = [frozenset(ids[position] for position in order) for order in orders]
    groups = (list(group) for _, group in groupby(zip(edges[:-1], edges[1:], sets, strict=True), key=itemgetter(2)))
    intervals = [Interval(float(group[0][0]), float(group[-1][1]), group[0][2]) for group in groups]
    flips = tuple(
        Flip(
            after.low, tuple(sorted(after.selected - before.selected)), tuple(sorted(before.selected - after.selected))
        )
        for before, after in pairwise(intervals)
    )
    return Spectrum(ids, similarity_z, q_z, decision.k2, tuple(intervals), flips)


def _crossings(similarity_z: Floats, q_z: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Where pairs of lines cross inside (0, 1): the weights, and a member of each pair."""
    first, second = np.triu_indices(len(similarity_z), 1)
    by_similarity = similarity_z[first] - similarity_z[second]
    by_q = q_z[second] - q_z[first]
    total = by_similarity + by_q
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = by_similarity / total
    inside = (np.abs(total) > SAME) & (weight > 0) & (weight < 1)
    return weight[inside], first[inside]


def _edges(similarity_z: Floats, q_z: Floats, k2: int) -> Floats:
    """0, 1, and between them every weight at which two candidates tie at the cut after k2."""
    if not 0 < k2 < len(similarity_z):
        return np.array([0.0, 1.0])
    band = _within_reach(similarity_z, q_z, k2)
    by_similarity, by_q = similarity_z[band], q_z[band]
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


def _within_reach(similarity_z: Floats, q_z: Floats, k2: int) -> npt.NDArray[np.int64]:
    """The candidates that can be among the k2 at some weight: fewer than k2 others beat them on both sides."""
    beaten = (similarity_z > similarity_z[:, None] + TIED) & (q_z > q_z[:, None] + TIED)
    return np.flatnonzero(beaten.sum(axis=1) < k2)


# --- every q of one memory --------------------------------------------------------------------------------------------

Q_REACH = 100.0
"""Beyond this many times the largest |q| of the pool (or 1) a q only repeats what an even larger one would do: the z of
a lone extreme value has a limit."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """From `low` to `high` of q, the memory is given to the model (`selected`) or not."""

    low: float
    high: float
    selected: bool


@dataclass(frozen=True, slots=True)
class Requirement:
    """What the q of one memory decides, everything else as it was.

    `now` is q as recorded, `selected` what it leads to. `needed` is the nearest q beyond which greedy selection decides
    otherwise about this memory, None when no q does; it is `now` where any move in one direction is enough. `stretches`
    cover the range that was searched; what lies on an edge is decided by the order of ties. `note` says in words what
    stands in the way, "" when nothing does.
    """

    memory_id: str
    now: float
    selected: bool
    needed: float | None
    stretches: tuple[Stretch, ...]
    note: str = ""

    @property
    def change(self) -> float | None:
        """How far q would have to move."""
        return None if self.needed is None else self.needed - self.now

    @property
    def beyond(self) -> Literal["above", "below"]:
        """On which side of `needed` the other choice lies."""
        above = any(s.low == self.needed and s.selected != self.selected for s in self.stretches)
        return "above" if above else "below"


def required_q(situation: Situation, memory_id: str, settings: MemRLSettings | None = None) -> Requirement:
    """The q at which greedy selection changes its mind about a memory.

    Raises `InputError` for a memory that the run did not know at this step.
    """
    chosen, view = settings or MemRLSettings.of(situation.settings), situation.view
    rank_of(situation, memory_id)
    now = float(view.q[view.position(memory_id)])
    recalled, decision = decided(situation, chosen.model_dump())
    ids = [member.memory_id for member in recalled.pool]
    if memory_id not in ids:
        why = "It is not in the pool, and q has no say before phase B: no q would let it in."
        return Requirement(memory_id, now, False, None, (Stretch(-Q_REACH, Q_REACH, False),), why)
    q = view.q[[view.position(member) for member in ids]]
    similarity = np.array([member.similarity for member in recalled.pool])
    ranks = np.array([member.rank_recall for member in recalled.pool], dtype=np.int64)
    stretches = _stretches(
        q, similarity, order_of_equals(ranks, chosen.ties, situation.seed), ids.index(memory_id), chosen
    )
    selected = memory_id in decision.greedy
    edges = [(s.low, s.high) for s in stretches if s.selected != selected]
    needed = min((min(max(now, low), high) for low, high in edges), key=lambda edge: abs(edge - now), default=None)
    note = ""
    if needed is None:
        note = f"No q changes this: it is {'always' if selected else 'never'} given to the model."
    return Requirement(memory_id, now, selected, needed, stretches, note)


def _stretches(
    q: Floats, similarity: Floats, equals: npt.NDArray[np.int64], member: int, s: MemRLSettings
) -> tuple[Stretch, ...]:
    """The stretches of one member's q within reach of the pool's, each decided by scoring the pool at its middle.

    Of members that are equal in all else the one with the lowest of `equals` goes first.
    """
    reach = Q_REACH * max(1.0, float(np.abs(q).max()))
    clip = CLIP if s.normaliser == "fixed" else None
    by_similarity = standardised_pool(similarity, q, s.normaliser, s.fixed_mean, s.fixed_sd)[0].z
    constant = (1 - s.weight) * (by_similarity[member] - by_similarity)
    if s.normaliser == "raw":
        edges = q - constant / s.weight if s.weight > 0 else q
    else:
        edges = _meetings(q, member, constant, s.weight, clip)
    inner = edges[np.isfinite(edges) & (np.abs(edges) < reach)]
    cuts = np.unique(np.concatenate([[-reach], inner, [reach]]))
    rows = np.repeat(q[None, :], len(cuts) - 1, axis=0)
    rows[:, member] = (cuts[1:] + cuts[:-1]) / 2
    q_z = rows if s.normaliser == "raw" else _z(rows, clip)
    score = np.round((1 - s.weight) * by_similarity + s.weight * q_z, DIGITS)
    own = score[:, [member]]
    goes_first = (similarity > similarity[member]) | ((similarity == similarity[member]) & (equals < equals[member]))
    selected = ((score > own) | ((score == own) & goes_first)).sum(axis=1) < s.k2
    every = map(Stretch, cuts[:-1].tolist(), cuts[1:].tolist(), selected.tolist())
    runs = (list(run) for _, run in groupby(every, key=attrgetter("selected")))
    return tuple(Stretch(run[0].low, run[-1].high, run[0].selected) for run in runs)


def _z(rows: Floats, clip: float | None) -> Floats:
    """z-scores of each row of (m, n), as `retrieval.zscore` gives them."""
    mean, sd = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
    z: Floats = np.where(sd < FLAT_SD, 0.0, (rows - mean) / np.where(sd < FLAT_SD, 1.0, sd))
    return z if clip is None else z.clip(-clip, clip)


def _meetings(values: Floats, member: int, constant: Floats, weight: float, clip: float | None) -> Floats:
    """Where the member's score may meet a rival's as its own q, x, varies.

    The score difference to rival j is constant_j + weight (z(x) − z_j), with z taken over the pool that holds x. Every
    case (nobody clipped, the member or the rival clipped, or a clip that begins) has the form
    (p x + r)² = k² var(x), in which var(x) = a x² + b x + c.
    """
    n = len(values)
    others = np.delete(values, member)
    rival_constant = np.delete(constant, member)
    total = others.sum()
    a = 1 / n - 1 / n**2
    b = -2 * total / n**2
    c = (others**2).sum() / n - (total / n) ** 2
    # x − y_j, y_j − mean(x) and x − mean(x) as p x + r.
    to_rival = (np.ones_like(others), -others)
    rival_to_mean = (np.full_like(others, -1 / n), others - total / n)
    own_to_mean = (np.full_like(others, 1 - 1 / n), np.full_like(others, -total / n))
    cases = []
    if weight:
        cases.append((to_rival, rival_constant / weight))
    if clip is not None and weight:
        for sign in (1, -1):
            cases.append((rival_to_mean, rival_constant / weight + sign * clip))
            cases.append((own_to_mean, -rival_constant / weight + sign * clip))
        cases.append((own_to_mean, np.full_like(others, clip)))
        cases.append((rival_to_mean, np.full_like(others, clip)))
    roots = [others]
    for (p, r), k in cases:
        roots += _roots(p**2 - k**2 * a, 2 * p * r - k**2 * b, r**2 - k**2 * c)
    return np.concatenate(roots)


def _roots(a: Floats, b: Floats, c: Floats) -> list[Floats]:
    """The real roots of a x² + b x + c = 0, in the form that loses no digits."""
    with np.errstate(all="ignore"):
        root = np.sqrt(b**2 - 4 * a * c)
        half = -0.5 * (b + np.where(b >= 0, root, -root))
        return [half / a, c / half]
