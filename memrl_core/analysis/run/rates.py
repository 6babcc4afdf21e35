"""Rates and means with the interval that the data allow: Wilson's for counts, percentiles of redrawn tasks otherwise.

Whole tasks are drawn anew (Efron, 1979), not steps: the epochs of one task hang together, and the steps of several runs
on it stay paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95
AT_ONCE = 100


def resampled(tasks: int, statistic: Callable[[Floats], Floats], seed: int = 0) -> Floats:
    """A statistic on `RESAMPLES` draws of `tasks` tasks with replacement: (RESAMPLES, ...).

    `statistic` maps how often each task was drawn (b, tasks) to values (b, ...).
    """
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = rng.integers(tasks, size=(AT_ONCE, tasks)) + np.arange(AT_ONCE)[:, None] * tasks
        counts = np.bincount(drawn.ravel(), minlength=AT_ONCE * tasks).reshape(AT_ONCE, tasks)
        blocks.append(statistic(counts.astype(np.float64)))
    return np.concatenate(blocks)


def percentiles(values: Floats) -> Floats:
    """The ends of the middle `LEVEL` of draws (n, ...) as (2, ...); draws without a value (nan) are left out.

    nan where no draw has a value.
    """
    tail = (1 - LEVEL) / 2
    flat = values.reshape(len(values), -1)
    ends = np.full((2, flat.shape[1]), np.nan)
    for column in range(flat.shape[1]):
        known = flat[~np.isnan(flat[:, column]), column]
        if known.size:
            ends[:, column] = np.quantile(known, (tail, 1 - tail))
    return ends.reshape(2, *values.shape[1:])


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
