"""How often something went well, with what the count allows to say about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.stats import binomtest

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
    interval = binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return Rate(successes, n, successes / n, float(interval.low), float(interval.high))
