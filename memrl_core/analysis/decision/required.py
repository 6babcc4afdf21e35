"""How far a memory's q would have to move for the choice to change.

With z-scores a changed q moves the mean and the sd of the whole pool, so every score changes; the mean cancels in the
difference of two z, and what is left is a quadratic equation for each rival. Its roots, with those of the clip of q
where there is one, cut the axis into stretches on which the choice is constant; each stretch is then decided by scoring
the pool.

For a memory outside the pool: what keeps it out, and what δ or k1 would let in.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.decision.whatif import Situation, decided, rank_of
from memrl_core.records import Recalled
from memrl_core.retrieval import CLIP, DIGITS, FLAT_SD, exact_similarity, standardised_pool
from memrl_core.retrieval.exploration import order_of_equals
from memrl_core.settings import MemRLSettings


@dataclass(frozen=True, slots=True)
class Admission:
    """Where one memory stands before the pool. `rank` counts memories, or intents where k1 counts those.

    `passes_gate` and `within_k1` are the two conditions; a memory is in the pool when both hold. The gate lets it in
    when δ is below its similarity (`strict`), or not above it; k1 when it is at least `rank`.
    """

    memory_id: str
    similarity: float
    rank: int
    delta: float
    k1: int
    strict: bool
    passes_gate: bool
    within_k1: bool

    @property
    def in_pool(self) -> bool:
        """Whether phase A recalls it."""
        return self.passes_gate and self.within_k1


def admission(situation: Situation, memory_id: str, settings: MemRLSettings) -> Admission:
    """Why a memory is in the pool or not, under `settings`.

    Raises `InputError` for a memory that the run did not know at this step.
    """
    rank, similarity = rank_of(situation, memory_id)
    if settings.k1_counts == "intent":
        rank = _intent_rank(situation, memory_id)
    strict = settings.normaliser == "pool"
    passes = similarity > settings.delta if strict else similarity >= settings.delta
    return Admission(memory_id, similarity, rank, settings.delta, settings.k1, strict, passes, rank <= settings.k1)


def newcomers(situation: Situation, before: MemRLSettings, after: MemRLSettings) -> tuple[Recalled, ...]:
    """The memories that the pool holds under `after` and not under `before`, most similar first."""
    known = {member.memory_id for member in decided(situation, before.model_dump())[0].pool}
    return tuple(m for m in decided(situation, after.model_dump())[0].pool if m.memory_id not in known)


def _intent_rank(situation: Situation, memory_id: str) -> int:
    """How many distinct intents are at least as near, the memory's own included."""
    view = situation.view
    rows = np.arange(len(view.ids)) if view.visible is None else np.flatnonzero(view.visible)
    similarity = exact_similarity(view.embeddings[rows], situation.query)
    nearest: dict[object, float] = {}
    for group, value in zip(view.intent_groups[rows].tolist(), similarity.tolist(), strict=True):
        nearest[group] = max(value, nearest.get(group, -2.0))
    own = nearest[view.intent_groups[view.position(memory_id)]]
    return sum(value > own for value in nearest.values()) + 1


Floats = npt.NDArray[np.float64]

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
        edges = _edges(q, member, constant, s.weight, clip)
    inner = edges[np.isfinite(edges) & (np.abs(edges) < reach)]
    cuts = np.unique(np.concatenate([[-reach], inner, [reach]]))
    rows = np.repeat(q[None, :], len(cuts) - 1, axis=0)
    rows[:, member] = (cuts[1:] + cuts[:-1]) / 2
    z_q = rows if s.normaliser == "raw" else _z(rows, clip)
    score = np.round((1 - s.weight) * by_similarity + s.weight * z_q, DIGITS)
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


def _edges(values: Floats, member: int, constant: Floats, weight: float, clip: float | None) -> Floats:
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
