"""How often something went well, with what the count allows to say about it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # Its parts are loaded where they are first used.

CONFIDENCE = 0.95
RATED = ("success", "failure")


@dataclass(frozen=True, slots=True)
class Rate:
    """`successes` of `n`; `low` … `high` is the 95 % Wilson interval of the share. All three are None when n is 0."""

    successes: int
    n: int
    share: float | None
    low: float | None
    high: float | None


def rate(outcomes: Iterable[str]) -> Rate:
    """The share of successes among the rated outcomes; what was not rated does not count."""
    rated = [outcome == "success" for outcome in outcomes if outcome in RATED]
    successes, n = sum(rated), len(rated)
    if n == 0:
        return Rate(0, 0, None, None, None)
    interval = scipy.stats.binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return Rate(successes, n, successes / n, float(interval.low), float(interval.high))


def effective_count(clusters: npt.ArrayLike) -> float:
    """How many independent outcomes the uses in these clusters (n,) stand for: (Σ nᵢ)² / Σ nᵢ² (Kish 1965).

    The memories of one step share its outcome, so the uses of one step are one cluster.
    """
    _, sizes = np.unique(np.asarray(clusters), return_counts=True)
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if sizes.size else 0.0


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 95 % Wilson interval of a share that `n` > 0 independent outcomes, perhaps an effective count, show."""
    z = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2))
    middle, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max(0.0, (middle - half) / (1 + z**2 / n)), min(1.0, (middle + half) / (1 + z**2 / n))
