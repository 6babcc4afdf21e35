"""How far a q can be trusted: arXiv 2601.03192 v2, equations 12, 13, 17 and 18.

With mean reward β and variance σ² of the rewards, q has the expectation β + (1 − α)^t (q0 − β) and the variance
α/(2 − α) · σ² (1 − (1 − α)^(2t)) after t rewards. Where α changed on the way, each move counts with its own α.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from memrl_core.analysis.memory.provenance import step_size
from memrl_core.records import UtilityPoint

UPPER = 0.975


@dataclass(frozen=True, slots=True)
class Expected:
    """After n rewards: q as theory expects it for the memory's mean reward, its 95 % range, and as it was."""

    n: int
    expected: float
    low: float | None
    high: float | None
    recorded: float


@dataclass(frozen=True, slots=True)
class Trust:
    """What the rewards of one memory say about its q.

    `n` rewards are known with this `mean` and `variance` (None below two); `window` = (2 − α)/α is how many rewards q
    averages over in the long run; `q0_share` is the weight that the first q still has. `low` … `high` is the 95 % band
    of q around its value (Student's t); it has no width while all rewards were equal, which is not certainty. `limit`
    is the variance of q in the long run. `ladder` has a rung a reward.
    """

    q: float
    n: int
    mean: float | None
    variance: float | None
    window: float
    q0_share: float
    low: float | None
    high: float | None
    limit: float | None
    ladder: tuple[Expected, ...]


def trust(
    points: Sequence[UtilityPoint], alpha: float, rewards_within: tuple[float, float] = (-math.inf, math.inf)
) -> Trust:
    """Of a memory's history, from its writing on; `alpha` is the step size in force (also where a move shows none).

    q is a weighted mean of its first value and of rewards, so that no band reaches beyond these and `rewards_within`.
    """
    q0, q = points[0].after, points[-1].after
    moves = [p for p in points if p.reward is not None]
    rewards = np.array([p.reward for p in moves], dtype=np.float64)
    n = len(rewards)
    mean = float(rewards.mean()) if n else None
    variance = float(rewards.var(ddof=1)) if n > 1 else None
    reached = [*(p.after for p in points), *rewards]
    within = min(rewards_within[0], *reached), max(rewards_within[1], *reached)
    z = float(norm.ppf(UPPER))
    share, squares, ladder = 1.0, 0.0, []
    for number, point in enumerate(moves, start=1):
        assert mean is not None
        size = step_size(point, alpha)
        share *= 1 - size
        squares = (1 - size) ** 2 * squares + size**2
        expected = mean + share * (q0 - mean)
        ladder.append(Expected(number, expected, *_band(expected, z, squares, variance, within), point.after))
    low, high = _band(q, float(t.ppf(UPPER, n - 1)) if n > 1 else 0.0, squares, variance, within)
    limit = None if variance is None else alpha / (2 - alpha) * variance
    return Trust(q, n, mean, variance, (2 - alpha) / alpha, share, low, high, limit, tuple(ladder))


def _band(
    centre: float, quantile: float, squares: float, variance: float | None, within: tuple[float, float]
) -> tuple[float | None, float | None]:
    """`squares` is the sum of the squared weights that the rewards have in q: times σ², the variance of q (eq. 17)."""
    if variance is None:
        return None, None
    reach = quantile * math.sqrt(squares * variance)
    return max(centre - reach, within[0]), min(centre + reach, within[1])
