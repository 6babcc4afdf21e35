"""Repeated measurement of one thing, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Measurement:
    """`values` of one thing, a repetition each, in `unit` ("s", "ms", "×", "/s" or "%").

    `size` says how much was worked on, `budget` what the values should keep to; a budget of "" belongs to a figure that
    is there for comparison.
    """

    benchmark: str
    what: str
    size: str
    unit: str
    values: tuple[float, ...]
    budget: str = ""

    @property
    def median(self) -> float:
        """The middle of the values."""
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return min(self.values), max(self.values)


def seconds(action: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def repeated(action: Callable[[], object], repeat: int) -> tuple[float, ...]:
    """The seconds of `repeat` calls, after one that only warms up."""
    action()
    return tuple(seconds(action) for _ in range(repeat))
