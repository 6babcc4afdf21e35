"""Does q say how likely a memory is to help? q against what came of its uses, before the fact and after it.

The paper's figure 7 correlates eight bin means of q with the success of the same episodes that made q (in-sample).
Held-out is the q *before* a step against the outcome of that step (prequential); both are given, per use and per bin.

The memories of one step share its outcome: they are one observation, not several. Intervals draw whole steps anew
(cluster bootstrap) or count a bin's uses as the independent outcomes that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from memrl_core.analysis.run.metrics import RATED, pearson, percentiles, resampled, wilson
from memrl_core.records import Utility
from memrl_core.retrieval import Floats

BINS = 10
NO_VARIANCE = 1e-12
FEWEST_STEPS = 4


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r over n pairs from `steps` steps, with its 95 % interval; all None where it is not defined."""

    n: int
    r: float | None
    low: float | None
    high: float | None
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """q against success. `pairs` has columns q (before the step, or now) and success (0/1 per use, or a rate).

    `per_use` correlates the pairs, `per_bin` the means of equal bins of q over [r−, r+]; `bins` has a row per bin that
    is not empty: low, high, q (mean), n, steps, success, and the 95 % Wilson interval success_low … success_high, in
    which the uses of one step count as one. The intervals of r draw steps anew; in-sample there are none, because those
    very steps made q.
    """

    kind: Literal["prequential", "in-sample"]
    pairs: pd.DataFrame
    bins: pd.DataFrame
    per_use: Correlation
    per_bin: Correlation


def prequential(uses: pd.DataFrame, low: float, high: float) -> Calibration:
    """q before each use against the outcome of that use; `low` and `high` are r− and r+."""
    rated = _rated(uses)
    return _calibrated("prequential", rated, rated["q"].to_numpy(dtype=float), low, high)


def in_sample(uses: pd.DataFrame, utilities: Mapping[str, Utility], low: float, high: float) -> Calibration:
    """q now against the outcomes of the very uses that made it: how q describes its own past."""
    rated = _rated(uses)
    rated = rated[rated["memory_id"].isin(utilities.keys())]
    q = np.array([utilities[i].q for i in rated["memory_id"]], dtype=np.float64)
    return _calibrated("in-sample", rated, q, low, high)


def _rated(uses: pd.DataFrame) -> pd.DataFrame:
    return uses[uses["selected"] & uses["outcome"].isin(RATED)]


def _calibrated(
    kind: Literal["prequential", "in-sample"], rated: pd.DataFrame, q: Floats, low: float, high: float
) -> Calibration:
    won = (rated["outcome"] == "success").to_numpy(dtype=float)
    steps, step = np.unique(rated["step"].to_numpy(), return_inverse=True)
    pairs, ends = pd.DataFrame({"q": q, "success": won}), np.full((2, 2), np.nan)
    if kind == "in-sample":
        pairs = pairs.groupby(rated["memory_id"].to_numpy(), sort=False).mean().reset_index(drop=True)
    elif len(steps) >= FEWEST_STEPS:
        ends = _by_steps(q, won, step, _places(q, low, high), len(steps))
    bins = calibrated_bins(q, won, step, low, high)
    found = (_correlation(part, ends[:, at], len(steps)) for at, part in enumerate((pairs, bins)))
    return Calibration(kind, pairs, bins, *found)


def _correlation(pairs: pd.DataFrame, ends: Floats, steps: int) -> Correlation:
    r = pearson(pairs["q"].to_numpy(), pairs["success"].to_numpy())
    low, high = (None, None) if r is None or np.isnan(ends).any() else ends.tolist()
    return Correlation(len(pairs), r, low, high, steps)


def _places(q: Floats, low: float, high: float) -> npt.NDArray[np.int64]:
    edges = np.linspace(low, high, BINS + 1)
    return np.clip(np.searchsorted(edges, q, side="right") - 1, 0, BINS - 1)


def calibrated_bins(
    q: npt.ArrayLike, won: npt.ArrayLike, cluster: npt.ArrayLike, low: float, high: float
) -> pd.DataFrame:
    """The row of each bin of [`low`, `high`] that is not empty (see `Calibration`), of uses (n,) in clusters (n,)."""
    q, won, cluster = np.asarray(q, dtype=np.float64), np.asarray(won, dtype=np.float64), np.asarray(cluster)
    edges, bin_of = np.linspace(low, high, BINS + 1), _places(q, low, high)
    rows = []
    for number in np.unique(bin_of).tolist():
        members = bin_of == number
        share = float(won[members].mean())
        ends = wilson(share, cluster[members])
        steps = len(np.unique(cluster[members]))
        rows.append((edges[number], edges[number + 1], q[members].mean(), int(members.sum()), steps, share, *ends))
    return pd.DataFrame(rows, columns=["low", "high", "q", "n", "steps", "success", "success_low", "success_high"])


def _by_steps(q: Floats, won: Floats, step: npt.NDArray[np.int64], bin_of: npt.NDArray[np.int64], steps: int) -> Floats:
    """The 95 % ends of r per use and of r per bin, (2, 2), when steps are drawn anew; nan where r is never defined."""
    ones = np.ones_like(q)
    moments = np.stack([np.bincount(step, x, steps) for x in (ones, q, won, q * q, won * won, q * won)], axis=1)
    cell = step * BINS + bin_of
    of_bins = [np.bincount(cell, x, steps * BINS).reshape(steps, BINS) for x in (ones, q, won)]

    def both(counts: Floats) -> Floats:
        n, *sums = (counts @ part for part in of_bins)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_q, mean_won = (np.where(n > 0, part / n, 0.0) for part in sums)
        full = (n > 0).astype(np.float64)
        binned = [full, mean_q, mean_won, mean_q**2, mean_won**2, mean_q * mean_won]
        return np.stack([_pearson(counts @ moments), _pearson(np.stack([x.sum(1) for x in binned], axis=1))], axis=1)

    return percentiles(resampled(steps, both))


def _pearson(sums: Floats) -> Floats:
    """r from rows (n, Σx, Σy, Σx², Σy², Σxy): (b, 6) -> (b,); nan with under three pairs or a side that is flat."""
    n, x, y, xx, yy, xy = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        of_x, of_y = xx / n - (x / n) ** 2, yy / n - (y / n) ** 2
        r = (xy / n - x * y / n**2) / np.sqrt(of_x * of_y)
        return np.where((n >= 3) & (np.minimum(of_x, of_y) > NO_VARIANCE), np.clip(r, -1, 1), np.nan)
