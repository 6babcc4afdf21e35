"""Does q say how likely a memory is to help? q against what came of its uses, before the fact and after it.

The paper's figure 7 correlates eight bin means of q with the success of the same episodes that made q (in-sample).
Held-out is the q *before* a step against the outcome of that step (prequential); both are given, per use and per bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binomtest, pearsonr

from memrl_core.records import Utility

BINS = 10
CONFIDENCE = 0.95
FLAT = 1e-9


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r over n pairs with its 95 % interval (Fisher z); all None where it is not defined."""

    n: int
    r: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """q against success. `pairs` has columns q (before the step, or now) and success (0/1 a use, or a rate a memory).

    `per_use` correlates the pairs, `per_bin` the means of equal bins of q over [r−, r+]; `bins` has a row a bin that is
    not empty: low, high, q (mean), n, success, and the 95 % Wilson interval success_low … success_high.
    """

    kind: Literal["prequential", "in-sample"]
    pairs: pd.DataFrame
    bins: pd.DataFrame
    per_use: Correlation
    per_bin: Correlation


def prequential(uses: pd.DataFrame, low: float, high: float) -> Calibration:
    """q before each use against the outcome of that use; `low` and `high` are r− and r+."""
    rated = uses[uses["selected"] & uses["outcome"].isin(["success", "failure"])]
    pairs = pd.DataFrame({"q": rated["q"].to_numpy(), "success": (rated["outcome"] == "success").to_numpy(float)})
    return _calibration("prequential", pairs, pairs["q"].to_numpy(), pairs["success"].to_numpy(), low, high)


def in_sample(uses: pd.DataFrame, utilities: Mapping[str, Utility], low: float, high: float) -> Calibration:
    """q now against the outcomes of the very uses that made it: how q describes its own past."""
    rated = uses[uses["selected"] & uses["outcome"].isin(["success", "failure"])]
    won = (rated["outcome"] == "success").to_numpy(float)
    q = np.array([utilities[i].q if i in utilities else np.nan for i in rated["memory_id"]], dtype=np.float64)
    known = ~np.isnan(q)
    by_memory = pd.DataFrame({"memory": rated["memory_id"].to_numpy()[known], "q": q[known], "success": won[known]})
    pairs = by_memory.groupby("memory", sort=False).mean().reset_index(drop=True)
    return _calibration("in-sample", pairs, q[known], won[known], low, high)


def _calibration(
    kind: Literal["prequential", "in-sample"],
    pairs: pd.DataFrame,
    q: npt.NDArray[np.float64],
    won: npt.NDArray[np.float64],
    low: float,
    high: float,
) -> Calibration:
    edges = np.linspace(low, high, BINS + 1)
    place = np.clip(np.searchsorted(edges, q, side="right") - 1, 0, BINS - 1)
    rows = []
    for number in range(BINS):
        members = place == number
        n = int(members.sum())
        if n:
            successes = int(won[members].sum())
            interval = binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
            rows.append(
                (
                    edges[number],
                    edges[number + 1],
                    float(q[members].mean()),
                    n,
                    successes / n,
                    interval.low,
                    interval.high,
                )
            )
    bins = pd.DataFrame(rows, columns=["low", "high", "q", "n", "success", "success_low", "success_high"])
    return Calibration(
        kind,
        pairs,
        bins,
        correlation(pairs["q"].to_numpy(), pairs["success"].to_numpy()),
        correlation(bins["q"].to_numpy(), bins["success"].to_numpy()),
    )


def correlation(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> Correlation:
    """Pearson's r of two samples (n,) with its interval; r needs three pairs that differ, the interval four."""
    n = len(x)
    if n < 3 or np.ptp(x) < FLAT or np.ptp(y) < FLAT:
        return Correlation(n, None, None, None)
    found = pearsonr(x, y)
    if n < 4:
        return Correlation(n, float(found.statistic), None, None)
    interval = found.confidence_interval(CONFIDENCE)
    return Correlation(n, float(found.statistic), float(interval.low), float(interval.high))
