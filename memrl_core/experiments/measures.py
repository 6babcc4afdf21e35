"""What an experiment measured, how sure it is, and how two of its arms differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrl_core.analysis.run.rates import percentiles, resampled

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One memory, used frozen on one set of tasks or by one model, which `on` names.

    `success` (seeds, tasks) is 1 where the task ended well; `runs` are the runs in which it was used, one a seed.
    """

    memory: str
    on: str
    runs: tuple[str, ...]
    success: Floats

    @property
    def rates(self) -> Floats:
        """The success rate of each seed (seeds,)."""
        rates: Floats = self.success.mean(axis=1)
        return rates

    @property
    def n(self) -> int:
        """How many seeds there are."""
        return len(self.success)

    @property
    def mean(self) -> float | None:
        """The mean success rate; None without a seed."""
        return float(self.rates.mean()) if self.n else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation of the success rate over seeds; None for fewer than two."""
        return float(self.rates.std(ddof=1)) if self.n > 1 else None


@dataclass(frozen=True, slots=True)
class Difference:
    """The success rate with one memory minus that with another, with its 95 % interval."""

    memory: str
    other: str
    on: str
    mean: float
    low: float
    high: float


def difference(one: Arm, other: Arm) -> Difference:
    """Two arms that met the same tasks with the same luck: the mean of the paired differences.

    Tasks and seeds are both drawn anew (Owen, 2007, the pigeonhole bootstrap): the interval covers other tasks and
    other luck, as far as the few seeds show it.
    """
    paired = one.success - other.success
    rng = np.random.default_rng(1)

    def means(tasks: Floats) -> Floats:
        seeds = rng.multinomial(one.n, np.full(one.n, 1 / one.n), size=len(tasks)).astype(np.float64)
        weighed: Floats = np.einsum("bs,st,bt->b", seeds, paired, tasks) / paired.size
        return weighed

    low, high = percentiles(resampled(paired.shape[1], means))
    return Difference(one.memory, other.memory, one.on, float(paired.mean()), float(low), float(high))
