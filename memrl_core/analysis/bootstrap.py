"""Percentile intervals for what was measured on the same tasks, by drawing the tasks anew (Efron, 1979).

Whole tasks are drawn, not steps: the epochs of one task hang together, and the steps of several runs on it stay paired.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

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
