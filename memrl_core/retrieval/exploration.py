"""How phase B departs from the best that is known: by chance (ε), a bonus (UCB), noise on q (Thompson), seeded ties.

Sources: ε is the official code's of arXiv 2601.03192 (`ValueAwareSelector` draws the whole slate). The bonus is that of
UCB1 (Auer, Cesa-Bianchi & Fischer 2002), the noise follows Thompson (1933); putting them into MemRL's score is ours.

A bonus or noise is one more term of the score. Neither is standardised within the pool: that would make them equally
strong however small the differences in visits became, and exploration would never end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import comb
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.records import Reason, Term

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

Ties = Literal["seeded", "older"]
"""Which of equals goes first: the one that the step's seed draws, or the older (as in the official code)."""

SEEDED_TIES = "Of equal scores and similarities, the step's seed decides which goes first."
REACH = 9.0
"""Beyond this many sd of each score nothing is integrated: less than 1e-18 of its chances lies there."""
STEPS_PER_SD = 3.0
MOST_POINTS = 4_000_000
"""Of the grid of an integral, in all: a pool with very unequal sd gets a coarser one."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """Which exploration, with the numbers of UCB and Thompson; and who goes first among equals."""

    kind: Literal["epsilon", "ucb", "thompson"] = "epsilon"
    ucb_c: float = 1.0
    thompson_scale: float = 0.5
    ties: Ties = "seeded"


BY_CHANCE = Exploration()
"""ε alone, as in the official code; which of equals goes first is drawn by the step's seed, as everywhere."""


@dataclass(frozen=True, slots=True, eq=False)
class TermColumn:
    """One term of the score for a whole pool of n: `raw` (n,), `normalised` (n,) (`raw` when None), and its weight.

    `clipped` (n,) says which of the normalised values were cut; none when None.
    """

    name: str
    raw: Floats
    weight: float = 1.0
    normalised: Floats | None = None
    clipped: npt.NDArray[np.bool_] | None = None

    @property
    def values(self) -> Floats:
        """What is weighted (n,)."""
        return self.raw if self.normalised is None else self.normalised

    @property
    def contribution(self) -> Floats:
        """What the term adds to each score (n,)."""
        return self.weight * self.values

    def terms(self) -> list[Term]:
        """Its part of the score of each member of the pool."""
        raw, values, parts = (
            column.astype(np.float64).tolist() for column in (self.raw, self.values, self.contribution)
        )
        weight, cut = float(self.weight), repeat(False) if self.clipped is None else self.clipped.tolist()
        return list(map(Term, repeat(self.name), raw, values, repeat(weight), parts, cut))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is taken from a pool: positions in the order of the prompt, how that came about, and how likely it was.

    `reasons` maps positions to a reason other than the usual one. `greedy` are the positions that would have been taken
    without chance, the best k2 when None; `order` are all of them, best first, when that is not by their scores.
    """

    positions: Sequence[int]
    mode: Literal["greedy", "explore", "fallback", "cold", "sampled", "silent"]
    propensity: float = 1.0
    log_propensity: float | None = None
    draw: float | None = None
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    greedy: Sequence[int] | None = None
    order: Sequence[int] | None = None


def added(
    exploration: Exploration, visits: Places, sd_of_q: float, weight: float, seed: int
) -> tuple[TermColumn, Floats, str] | None:
    """The term that exploration adds to the scores of a pool with these `visits` (n,); None for one that adds none.

    With it comes the sd (n,) of what is added, 0 where nothing is drawn, and a note. `sd_of_q` is what z(q) was divided
    by, 0 where all q are equal: noise on q then counts as it is. `weight` is λ.
    """
    if exploration.kind == "ucb":
        c, bonus = exploration.ucb_c, ucb_bonus(visits)
        note = f"Exploration (UCB): c · √(ln(1 + N) / (1 + visits)) is added, c = {c:g}, N = {visits.sum()} visits."
        return TermColumn("exploration", bonus, c), np.zeros(len(visits)), note
    if exploration.kind == "thompson":
        scale = exploration.thompson_scale
        unit = sd_of_q if sd_of_q > 0 else 1.0
        sd = scale / np.sqrt(1.0 + visits)
        noise = sd * np.random.default_rng(seed).standard_normal(len(visits))
        note = (
            f"Exploration (Thompson): noise of sd s / √(1 + visits) is added to each q, s = {scale:g}. The probability "
            "is that of this set of memories, found by numerical integration."
        )
        return TermColumn("noise", noise, weight, noise / unit), weight * sd / unit, note
    return None


def ucb_bonus(visits: Places) -> Floats:
    """√(ln(1 + N) / (1 + visits)) of a pool whose visits (n,) sum to N: 0 for all as long as nothing was used."""
    bonus: Floats = np.sqrt(np.log1p(float(visits.sum())) / (1.0 + visits))
    return bonus


def order_of_equals(rank_recall: Places, ties: Ties, seed: int) -> Places:
    """By what candidates with equal scores and similarities are ordered (n,): age, or a draw of the seed's."""
    return rank_recall if ties == "older" else drawn_keys(rank_recall, seed, "select")


_STRIDE, _MIX_30, _MIX_27 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_30, _27, _31, _1 = (np.uint64(n) for n in (30, 27, 31, 1))


def drawn_keys(numbers: Places, seed: int, phase: Literal["recall", "select"]) -> Places:
    """A random number for each of `numbers` (n,), which are not negative: (n,), by seed, phase and number alone.

    A number has the same key whatever others stand beside it, so equals keep their order when another one comes. The
    mixing is that of SplitMix64 (Steele, Lea & Flood 2014).
    """
    begin = int.from_bytes(hashlib.blake2b(f"{phase} {seed}".encode(), digest_size=8).digest(), "little")
    z = numbers.astype(np.uint64) * _STRIDE + np.uint64(begin)
    z = (z ^ (z >> _30)) * _MIX_30
    z = (z ^ (z >> _27)) * _MIX_27
    keys: Places = ((z ^ (z >> _31)) >> _1).astype(np.int64)
    return keys


def chosen_from(
    order: Sequence[int], k2: int, score: Floats, similarity: Floats, epsilon: float, ties: Ties, seed: int
) -> tuple[Chosen, bool]:
    """The first k2 of `order`, the positions of a pool of n from the best score (n,) to the worst, or any k2 of them.

    Any are drawn with a chance of `epsilon`. With it comes whether the seed has drawn among equals at the cut.
    """
    n, size = len(order), min(k2, len(order))
    best = tuple(order[:size])
    if n == 0:
        return Chosen((), "fallback"), False
    draw, explores, taken = None, False, best
    if epsilon > 0:
        rng = np.random.default_rng(seed)
        draw = float(rng.random())
        explores = draw < epsilon
        if explores:
            taken = tuple(int(i) for i in rng.choice(n, size=size, replace=False))
    tied = tied_at_cut(order, size, score, similarity) if ties == "seeded" else set()
    chance = epsilon / comb(n, size) + (1 - epsilon) * chance_by_ties(taken, best, tied)
    if not explores:
        return Chosen(taken, "greedy", chance, draw=draw), bool(tied)
    reasons = {i: Reason.RANDOM_EXPLORE if i in taken else Reason.NOT_DRAWN for i in range(n)}
    return Chosen(taken, "explore", chance, draw=draw, reasons=reasons), bool(tied)


def tied_at_cut(order: Sequence[int], size: int, score: Floats, similarity: Floats) -> set[int]:
    """The positions of the equals that the cut goes through."""
    if not 0 < size < len(order):
        return set()
    last = order[size - 1]
    equal = (score == score[last]) & (similarity == similarity[last])
    return set(np.flatnonzero(equal).tolist()) if equal[order[size]] else set()


def chance_by_ties(chosen: Collection[int], best: Collection[int], tied: Collection[int]) -> float:
    """The probability that ranking by score takes the set `chosen`, where it took `best` this time.

    Of the `tied` each choice of as many is as likely; all else is certain.
    """
    certain = set(best) - set(tied)
    if not certain <= set(chosen) <= certain | set(tied):
        return 0.0
    return 1 / comb(len(tied), len(best) - len(certain))


def chance_of_best(mean: Floats, sd: Floats, chosen: Sequence[int]) -> float:
    """The probability that of independent normal scores (n,) the `chosen` are the largest, in any order.

    It is the integral over x of the density of the least of the chosen at x times the chance that all others are below
    x, by the trapezoidal rule, which is exact to about 1e-9 here: the integrand is smooth and vanishes at both ends.
    Every sd must be above 0.
    """
    # Loading it takes a third of a second, and only runs with noise need it.
    from scipy.special import ndtr

    inside = np.zeros(len(mean), dtype=bool)
    inside[list(chosen)] = True
    if inside.all() or not inside.any():
        return 1.0
    low, high = mean - REACH * sd, mean + REACH * sd
    begin, end = max(low[~inside].max(), low[inside].min()), float(high[inside].min())
    if high[~inside].max() <= low[inside].min():
        return 1.0
    if begin >= end:
        return 0.0
    steps = min(MOST_POINTS // len(mean), int((end - begin) / sd.min() * STEPS_PER_SD) + 1)
    x, width = np.linspace(begin, end, steps + 1, retstep=True)
    z = (x[:, None] - mean) / sd
    above = ndtr(-z[:, inside])
    density = np.exp(-(z[:, inside] ** 2) / 2) / (sd[inside] * np.sqrt(2 * np.pi))
    least = np.zeros(len(x))
    for member in range(above.shape[1]):
        least += density[:, member] * np.delete(above, member, axis=1).prod(axis=1)
    chance = float((least * ndtr(z[:, ~inside]).prod(axis=1)).sum() * width)
    return min(1.0, max(0.0, chance))
