"""Does q move about as much as theory says, once it has forgotten where it began?

Source: arXiv 2601.03192 v2, equations 13 and 18: in the long run the variance of q is α/(2 − α) times that of rewards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from memrl_core.records import UtilityPoint

UPPER = 0.975


@dataclass(frozen=True, slots=True)
class Fluctuation:
    """The variance of q over its last `n` moves, with its 95 % interval, beside the `limit` of theory."""

    n: int
    variance: float
    low: float
    high: float
    limit: float

    @property
    def agrees(self) -> bool:
        """Whether theory lies within what was measured."""
        return self.low <= self.limit <= self.high


def fluctuation(points: Sequence[UtilityPoint], alpha: float) -> Fluctuation | None:
    """How much q moves about once its start is forgotten, against the long-run variance of theory (eq. 13).

    The moves of the first two windows are left out: less than 2 % of the start is then left. Neighbouring q are
    correlated by 1 − α, so they count as fewer: the variance of n of them has the freedom of
    n (1 − (1 − α)²)/(1 + (1 − α)²). None when that leaves less than two.
    """
    moves = [p for p in points if p.reward is not None]
    window = (2 - alpha) / alpha
    late = np.array([p.after for p in moves[math.ceil(2 * window) :]], dtype=np.float64)
    n, kept = len(late), (1 - alpha) ** 2
    freedom = n * (1 - kept) / (1 + kept) - 1
    if freedom < 1 or n <= window:
        return None
    variance = float(late.var()) / (1 - window / n)
    low, high = (freedom * variance / float(chi2.ppf(p, freedom)) for p in (UPPER, 1 - UPPER))
    rewards = np.array([p.reward for p in moves], dtype=np.float64)
    return Fluctuation(n, variance, low, high, alpha / (2 - alpha) * float(rewards.var(ddof=1)))
