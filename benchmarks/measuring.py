"""Timing something against a reference in the same run: rows, their aims, and the memory taken meanwhile."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

Of = Literal["ratio", "over_s", "median_s", "value"]
MB = 1e6
DIMENSION = 384
YARDSTICK = "plain Python"
YARDSTICK_SIZE = 2000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: a benchmark takes of it what it knows, and may bound it.

    `memories` of `dimension` numbers and `steps` are those of a synthetic run, `repeat` the repetitions of a timing.
    """

    memories: int = 10_000
    steps: int = 10_000
    repeat: int = 5
    dimension: int = DIMENSION


@dataclass(frozen=True, slots=True)
class Aim:
    """The bound of a row: `of` it is at most `limit`, or at least.

    `of` is its "ratio" to the reference, its seconds beyond the reference ("over_s"), its "median_s" or its "value".
    """

    of: Of
    limit: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was measured.

    `seconds` are those of each repetition, `reference_seconds` those of `reference`, measured in turns with them. A
    figure that is no time stands in `value`, with its `unit`. `size` says what was worked on, beside `memories` of
    `dimension` numbers (None where there are none). `peak_mb` is the highest resident memory of the process meanwhile,
    in 10⁶ bytes, None where it was not looked at.
    """

    benchmark: str
    what: str
    memories: int
    dimension: int | None
    seconds: tuple[float, ...] = ()
    reference: str = ""
    reference_seconds: tuple[float, ...] = ()
    value: float | None = None
    unit: str = ""
    aim: Aim | None = None
    peak_mb: float | None = None
    size: str = ""

    @property
    def median(self) -> float | None:
        """Median of the seconds."""
        return median(self.seconds) if self.seconds else None

    @property
    def p95(self) -> float | None:
        """95th percentile of the seconds."""
        return float(np.percentile(self.seconds, 95)) if self.seconds else None

    @property
    def reference_median(self) -> float | None:
        """Median of the reference's seconds."""
        return median(self.reference_seconds) if self.reference_seconds else None

    @property
    def ratio(self) -> float | None:
        """Median divided by the reference's median."""
        if self.median is None or not self.reference_median:
            return None
        return self.median / self.reference_median

    @property
    def over_s(self) -> float | None:
        """Median minus the reference's median."""
        if self.median is None or self.reference_median is None:
            return None
        return self.median - self.reference_median

    @property
    def is_met(self) -> bool | None:
        """True if it keeps to its aim; None without one."""
        if self.aim is None:
            return None
        found = {"ratio": self.ratio, "over_s": self.over_s, "median_s": self.median, "value": self.value}[self.aim.of]
        return found is not None and (found >= self.aim.limit if self.aim.at_least else found <= self.aim.limit)


def seconds(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def in_turns(
    action: Callable[[], object], reference: Callable[[], object], repeat: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of `repeat` calls of each, one after the other, so that whatever disturbs them disturbs both."""
    action()
    reference()
    pairs = [(seconds(action), seconds(reference)) for _ in range(repeat)]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def yardstick() -> int:
    """The same little work everywhere: about what a screen does, in plain Python. Half a millisecond or so."""
    seen: dict[str, int] = {}
    for number in range(YARDSTICK_SIZE):
        name = f"m-{number % 97}"
        seen[name] = seen.get(name, 0) + number
    return len(sorted(seen, key=seen.__getitem__))


class Peak:
    """The highest resident memory of this process since it was made, in MB once it is over."""

    mb: float | None = None


@contextmanager
def peak() -> Iterator[Peak]:
    """Follow the memory of this process: `mb` of what it gives is the highest inside, 10⁶ bytes.

    Where the system cannot forget an earlier height (anything but Linux), it is the highest since the process began.
    """
    found = Peak()
    give_back()
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as forget:
        forget.write("5")
    try:
        yield found
    finally:
        found.mb = _highest() / MB


def give_back() -> None:
    """Collect what nobody refers to and hand freed memory back to the system, where it takes it."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def resident_mb() -> float | None:
    """Resident memory of this process now, in MB; None where the system does not say."""
    try:
        return _of_status("VmRSS") / MB
    except (OSError, ValueError):
        return None


def _highest() -> float:
    try:
        return _of_status("VmHWM")
    except (OSError, ValueError):
        import resource  # Windows has no such module.

        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(highest if sys.platform == "darwin" else highest * 1024)


def _of_status(name: str) -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return 1024 * float(line.split()[1])
    raise ValueError(name)
