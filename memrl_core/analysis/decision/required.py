"""How far a memory's q or similarity would have to move for the choice to change.

With the pool's normaliser a changed value moves the mean and the sd of the whole pool, so every score changes; the
mean cancels in the difference of two z, and what is left is a quadratic equation for each rival. Its roots, with those
of the clip of q where there is one, cut the axis into stretches on which the choice is constant; each stretch is then
decided by scoring the pool.

For a memory outside the pool: what keeps it out, and what δ or k1 would let in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.decision.whatif import Situation, decided, rank_of
from memrl_core.policies.base import seed_of
from memrl_core.records import Recalled
from memrl_core.retrieval import CLIP, DIGITS, FLAT_SD, exact_similarity, recall
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
    """From `low` to `high` of the value, the memory is given to the model (`selected`) or not."""

    low: float
    high: float
    selected: bool


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one value of one memory decides, everything else as it was.

    `now` is the value as recorded, `selected` what it leads to. `needed` is the nearest value beyond which greedy
    selection decides otherwise about this memory, None when no value does; it is `now` where any move in one direction
    is enough. `stretches` cover the range that was searched; what lies on an edge is decided by the order of ties.
    `note` says in words what stands in the way, "" when nothing does.
    """

    memory_id: str
    value: Literal["q", "similarity"]
    now: float
    selected: bool
    needed: float | None
    stretches: tuple[Stretch, ...]
    note: str = ""

    @property
    def change(self) -> float | None:
        """How far the value would have to move."""
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
    chosen = settings or MemRLSettings.of(situation.settings)
    rank_of(situation, memory_id)
    now = float(situation.view.q[situation.view.position(memory_id)])
    found, decision = decided(situation, chosen.model_dump())
    ids = [member.memory_id for member in found.pool]
    if memory_id not in ids:
        why = "It is not in the pool, and q has no say before phase B: no q would let it in."
        return Requirement(memory_id, "q", now, False, None, (Stretch(-Q_REACH, Q_REACH, False),), why)
    similarity = np.array([member.similarity for member in found.pool])
    q = _q_of(situation, ids)
    reach = Q_REACH * max(1.0, float(np.abs(q).max()))
    ranks = np.array([member.rank_recall for member in found.pool], dtype=np.int64)
    equals = order_of_equals(ranks, chosen.ties, situation.seed)
    stretches = _Pool(similarity, q, ids.index(memory_id), chosen, equals).stretches_of_q(-reach, reach)
    return _requirement(memory_id, "q", now, memory_id in decision.greedy, stretches)


def required_similarity(situation: Situation, memory_id: str, settings: MemRLSettings | None = None) -> Requirement:
    """The similarity at which greedy selection changes its mind about a memory; the gate and k1 apply first.

    Raises `InputError` for a memory that the run did not know at this step.
    """
    chosen = settings or MemRLSettings.of(situation.settings)
    _, now = rank_of(situation, memory_id)
    selected = memory_id in decided(situation, chosen.model_dump())[1].greedy
    if chosen.k1_counts == "intent":
        return Requirement(
            memory_id, "similarity", now, selected, None, (),
            "k1 counts intents here: the memories of one intent share their similarity and would all move.",
        )  # fmt: skip
    strict = chosen.normaliser == "pool"
    found = recall(
        situation.query, situation.view, k1=chosen.k1 + 1, k1_counts="record", delta=chosen.delta, strict=strict,
        ties=chosen.ties, seed=seed_of(situation.view),
    )  # fmt: skip
    rivals = [member for member in found.pool if member.memory_id != memory_id]
    gate = chosen.delta
    if len(rivals) >= chosen.k1:
        gate = max(gate, rivals[chosen.k1 - 1].similarity)
    rivals = rivals[: chosen.k1 - 1]
    # Positions stand for age: the pool's own order only breaks ties, which lie on the edges of the stretches.
    similarity = np.array([member.similarity for member in rivals] + [now])
    q = _q_of(situation, [*(member.memory_id for member in rivals), memory_id])
    pool = _Pool(similarity, q, len(rivals), chosen, np.arange(len(similarity)))
    shut = (Stretch(-1.0, gate, False),) if gate > -1 else ()
    inside = pool.stretches_of_similarity(gate, 1.0) if gate < 1 else ()
    return _requirement(memory_id, "similarity", now, selected, _joined((*shut, *inside)))


def _q_of(situation: Situation, ids: Sequence[str]) -> Floats:
    return situation.view.q[[situation.view.position(memory_id) for memory_id in ids]]


@dataclass(frozen=True, slots=True)
class _Pool:
    """The pool of one step with one member whose value varies."""

    similarity: Floats
    q: Floats
    member: int
    settings: MemRLSettings
    equals: npt.NDArray[np.int64]  # of equals the lowest goes first

    def stretches_of_q(self, low: float, high: float) -> tuple[Stretch, ...]:
        s = self.settings
        z_similarity = self._z_similarity(self.similarity[None, :])[0]
        constant = (1 - s.weight) * (z_similarity[self.member] - z_similarity)
        if s.normaliser == "raw":
            edges = self.q - constant / s.weight if s.weight > 0 else self.q
        else:
            edges = _pool_edges(self.q, self.member, constant, s.weight, self._clip)

        def scores(values: Floats) -> Floats:
            rows = np.repeat(self.q[None, :], len(values), axis=0)
            rows[:, self.member] = values
            total: Floats = (1 - s.weight) * z_similarity + s.weight * self._z_q(rows)
            return total

        return self._stretches(low, high, edges, scores, np.repeat(self.similarity[None, :], 1, axis=0))

    def stretches_of_similarity(self, low: float, high: float) -> tuple[Stretch, ...]:
        s = self.settings
        z_q = self._z_q(self.q[None, :])[0]
        constant = s.weight * (z_q[self.member] - z_q)
        share = 1 - s.weight
        if s.normaliser != "pool":
            # Where scores are equal (no weight on similarity) the more similar comes first.
            edges = [*self.similarity]
            if share > 0:
                z_others = self._z_similarity(self.similarity[None, :])[0]
                mean, sd = self._set_scale
                edges += list(mean + sd * (z_others - constant / share))
            edges_array = np.array(edges)
        else:
            edges_array = _pool_edges(self.similarity, self.member, constant, share, None)

        def scores(values: Floats) -> Floats:
            total: Floats = share * self._z_similarity(self._varied(values)) + s.weight * z_q
            return total

        return self._stretches(low, high, edges_array, scores, None)

    def _varied(self, values: Floats) -> Floats:
        rows = np.repeat(self.similarity[None, :], len(values), axis=0)
        rows[:, self.member] = values
        return rows

    def _z_similarity(self, rows: Floats) -> Floats:
        if self.settings.normaliser == "pool":
            return _z(rows, None)
        mean, sd = self._set_scale
        standard: Floats = (rows - mean) / sd
        return standard

    def _z_q(self, rows: Floats) -> Floats:
        return rows if self.settings.normaliser == "raw" else _z(rows, self._clip)

    @property
    def _clip(self) -> float | None:
        return CLIP if self.settings.normaliser == "fixed" else None

    @property
    def _set_scale(self) -> tuple[float, float]:
        """The mean and sd of similarity where they are not the pool's."""
        s = self.settings
        return (0.0, 1.0) if s.normaliser == "raw" else (s.fixed_mean, s.fixed_sd)

    def _stretches(
        self, low: float, high: float, edges: Floats, scores: Callable[[Floats], Floats], similarity: Floats | None
    ) -> tuple[Stretch, ...]:
        """Decide each stretch between the edges that lie in (low, high) by scoring the pool at its middle."""
        inner = edges[np.isfinite(edges) & (edges > low) & (edges < high)]
        cuts = np.unique(np.concatenate([[low], inner, [high]]))
        middles = (cuts[1:] + cuts[:-1]) / 2
        score = np.round(scores(middles), DIGITS)
        own_similarity = self._varied(middles) if similarity is None else np.repeat(similarity, len(middles), axis=0)
        own, tie = score[:, [self.member]], own_similarity[:, [self.member]]
        first = self.equals < self.equals[self.member]
        ahead = (score > own) | ((score == own) & ((own_similarity > tie) | ((own_similarity == tie) & first)))
        selected = ahead.sum(axis=1) < self.settings.k2
        return _joined(
            tuple(
                Stretch(float(start), float(end), bool(inside))
                for start, end, inside in zip(cuts[:-1], cuts[1:], selected, strict=True)
            )
        )


def _z(rows: Floats, clip: float | None) -> Floats:
    """z-scores of each row of (m, n), as `retrieval.zscore` gives them."""
    mean, sd = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
    z: Floats = np.where(sd < FLAT_SD, 0.0, (rows - mean) / np.where(sd < FLAT_SD, 1.0, sd))
    return z if clip is None else z.clip(-clip, clip)


def _pool_edges(values: Floats, member: int, constant: Floats, weight: float, clip: float | None) -> Floats:
    """Where the member's score may meet a rival's as its own value x varies.

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


def _joined(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    groups = (list(group) for _, group in groupby(stretches, key=attrgetter("selected")))
    return tuple(Stretch(group[0].low, group[-1].high, group[0].selected) for group in groups)


def _requirement(
    memory_id: str, value: Literal["q", "similarity"], now: float, selected: bool, stretches: tuple[Stretch, ...]
) -> Requirement:
    edges = [(s.low, s.high) for s in stretches if s.selected != selected]
    needed = min((min(max(now, low), high) for low, high in edges), key=lambda edge: abs(edge - now), default=None)
    note = ""
    if needed is None:
        note = f"No {value} changes this: it is {'always' if selected else 'never'} given to the model."
    return Requirement(memory_id, value, now, selected, needed, stretches, note)
