"""How phase B departs from the best that is known: by chance (ε), a bonus (UCB), noise on q (Thompson), seeded ties.

Sources: ε is the official code's of arXiv 2601.03192 (`ValueAwareSelector` draws the whole slate). The bonus is that of
UCB1 (Auer, Cesa-Bianchi & Fischer 2002), the noise follows Thompson (1933); putting them into MemRL's score is ours.

A bonus or noise is one more term of the score. Neither is standardised within the pool: that would make them equally
strong however small the differences in visits became, and exploration would never end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
_GOLDEN, _MIX, _LOW = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), 2**64 - 1
FEW = 24
"""So many keys are computed one by one more quickly than by NumPy."""


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
class Added:
    """What exploration adds to the scores of a pool of n: weight * normalised (n,).

    `raw` (n,) is the bonus, or the noise on q; `sd` (n,) is that of what is added, 0 where nothing is drawn.
    """

    name: Literal["exploration", "noise"]
    raw: Floats
    normalised: Floats
    weight: float
    sd: Floats
    note: str

    @property
    def contribution(self) -> Floats:
        """What is added to each score (n,)."""
        return self.weight * self.normalised

    @property
    def is_drawn(self) -> bool:
        """Whether chance has a say in it."""
        return bool(self.sd.any())

    def terms(self) -> list[Term]:
        """Its part of the score of each member of the pool."""
        numbers = zip(self.raw.tolist(), self.normalised.tolist(), self.contribution.tolist(), strict=True)
        return [Term(self.name, raw, normalised, self.weight, part) for raw, normalised, part in numbers]


@dataclass(frozen=True, slots=True)
class Slate:
    """The positions chosen from a pool in the order of the prompt, how, and the probability of this set."""

    positions: tuple[int, ...]
    mode: Literal["greedy", "explore", "fallback", "sampled"]
    draw: float | None
    propensity: float
    tied: bool = False  # whether the seed has drawn among equals at the cut

    def reason(self, position: int, greedy: Collection[int]) -> Reason:
        """Why the candidate at a position is in the slate or not, where `greedy` would be without exploration."""
        inside = position in self.positions
        if self.mode == "explore":
            return Reason.RANDOM_EXPLORE if inside else Reason.NOT_DRAWN
        if self.mode == "sampled" and inside != (position in greedy):
            return Reason.NOISE
        return Reason.TOP_K2 if inside else Reason.BEYOND_K2


def added(exploration: Exploration, visits: Places, sd_of_q: float, weight: float, seed: int) -> Added | None:
    """The term that exploration adds to the scores of a pool with these `visits` (n,); None for one that adds none.

    `sd_of_q` is what z(q) was divided by, 0 where all q are equal: noise on q then counts as it is. `weight` is λ.
    """
    if exploration.kind == "ucb":
        c, bonus = exploration.ucb_c, ucb_bonus(visits)
        note = f"Exploration (UCB): c · √(ln(1 + N) / (1 + visits)) is added, c = {c:g}, N = {visits.sum()} visits."
        return Added("exploration", bonus, bonus, c, np.zeros(len(visits)), note)
    if exploration.kind == "thompson":
        scale = exploration.thompson_scale
        unit = sd_of_q if sd_of_q > 0 else 1.0
        sd = scale / np.sqrt(1.0 + visits)
        noise = sd * np.random.default_rng(seed).standard_normal(len(visits))
        note = (
            f"Exploration (Thompson): noise of sd s / √(1 + visits) is added to each q, s = {scale:g}. The probability "
            "is that of this set of memories, found by numerical integration."
        )
        return Added("noise", noise, noise / unit, weight, weight * sd / unit, note)
    return None


def note_of(extra: Added | None, drawn: bool) -> str:
    """What is to be said of a decision: what exploration `extra` added, and whether the seed has `drawn` among equals;
    "" where it explored by chance ε, which the records show.
    """
    return " ".join(filter(None, ("" if extra is None else extra.note, SEEDED_TIES if drawn else "")))


def ucb_bonus(visits: Places) -> Floats:
    """√(ln(1 + N) / (1 + visits)) of a pool whose visits (n,) sum to N: 0 for all as long as nothing was used."""
    bonus: Floats = np.sqrt(np.log1p(float(visits.sum())) / (1.0 + visits))
    return bonus


def order_of_equals(rank_recall: Places, ties: Ties, seed: int) -> Places:
    """By what candidates with equal scores and similarities are ordered (n,): age, or a draw of the seed's."""
    return rank_recall if ties == "older" else drawn_keys(rank_recall, seed, "select")


def drawn_keys(numbers: Places, seed: int, phase: Literal["recall", "select"]) -> Places:
    """A random number for each of `numbers` (n,), which are not negative: (n,), by seed, phase and number alone.

    A number has the same key whatever others stand beside it, so equals keep their order when another one comes. The
    mixing is that of SplitMix64 (Steele, Lea & Flood 2014).
    """
    begin = int.from_bytes(hashlib.blake2b(f"{phase} {seed}".encode(), digest_size=8).digest(), "little")
    if len(numbers) <= FEW:
        return np.array([_drawn_key(number, begin) for number in numbers.tolist()], dtype=np.int64)
    z = numbers.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(begin)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX[0])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX[1])
    keys: Places = ((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return keys


def _drawn_key(number: int, begin: int) -> int:
    z = (number * _GOLDEN + begin) & _LOW
    z = ((z ^ (z >> 30)) * _MIX[0]) & _LOW
    z = ((z ^ (z >> 27)) * _MIX[1]) & _LOW
    return (z ^ (z >> 31)) >> 1


def slate(
    order: Sequence[int],
    k2: int,
    *,
    score: Floats,
    similarity: Floats,
    known: Floats,
    extra: Added | None,
    epsilon: float,
    ties: Ties,
    seed: int,
) -> Slate:
    """The first k2 of `order`, the positions of a pool of n from the best score to the worst, or any k2 of them.

    Any are drawn with a chance of `epsilon`, unless `extra` is drawn itself.
    `score` and `similarity` (n,) are what was compared, `known` (n,) the score without `extra`.
    """
    n, size = len(order), min(k2, len(order))
    best = tuple(order[:size])
    if n == 0:
        return Slate((), "fallback", None, 1.0)
    if extra is not None and extra.is_drawn:
        return Slate(best, "sampled", None, chance_of_best(known, extra.sd, best))
    draw, explores, chosen = None, False, best
    if epsilon > 0:
        rng = np.random.default_rng(seed)
        draw = float(rng.random())
        explores = draw < epsilon
        if explores:
            chosen = tuple(int(i) for i in rng.choice(n, size=size, replace=False))
    tied = tied_at_cut(order, size, score, similarity) if ties == "seeded" else set()
    propensity = epsilon / comb(n, size) + (1 - epsilon) * chance_by_ties(chosen, best, tied)
    return Slate(chosen, "explore" if explores else "greedy", draw, propensity, bool(tied))


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
