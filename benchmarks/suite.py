"""All benchmarks by name. A module is imported only when it is run: some need a browser, or take long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

from benchmarks.measuring import Row, Sizes
from memrl_core.errors import InputError

BENCHMARKS: Mapping[str, str] = {
    "retrieval": "benchmarks.retrieval",
    "step": "benchmarks.step",
    "open": "benchmarks.opening",
    "policies": "benchmarks.policies",
    "diagram": "benchmarks.diagram",
    "whole-run": "benchmarks.whole_run",
    "counterfactual": "benchmarks.counterfactual",
    "recorder": "benchmarks.recorder",
    "ratings": "benchmarks.ratings",
    "headless": "benchmarks.headless",
    "page": "benchmarks.page",
    "map": "benchmarks.map",
    "layout": "benchmarks.layout",
    "crash": "benchmarks.crash",
    "processes": "benchmarks.processes",
    "soak": "benchmarks.soak",
}
"""Name to module; a module has `NAME` and `measure`."""

DEFAULT = ("retrieval", "open", "policies", "diagram", "whole-run", "counterfactual", "recorder", "ratings", "headless")
"""Those that are run when none is named: minutes, and nothing but this process."""


class Benchmark(Protocol):
    """What the module of a benchmark holds."""

    NAME: str

    @staticmethod
    def measure(sizes: Sizes) -> list[Row]:
        """Measure, at most as much as `sizes` says."""


def run_benchmarks(
    names: Sequence[str] = (), sizes: Sizes | None = None, on_begin: Callable[[str], None] | None = None
) -> Iterator[Row]:
    """The benchmarks of these names, or `DEFAULT`, one after the other: their rows, those of one as soon as it ends.

    `on_begin` hears each name as it begins. Raises `InputError` before anything is measured: for a name that is none of
    `BENCHMARKS`, for sizes below 1 (minutes: not above 0), and where what a benchmark needs is not installed.
    """
    sizes = sizes or Sizes()
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise InputError(f"There is no benchmark “{unknown[0][:80]}”. Known: {', '.join(BENCHMARKS)}.")
    counts = (sizes.memories, sizes.steps, sizes.repeat, sizes.dimension, sizes.rounds)
    if min(counts) < 1 or not 0 < sizes.minutes < math.inf:
        raise InputError(
            "A benchmark needs at least one memory of one number, one step, one repetition, one round and some time. "
            "Nothing was measured."
        )
    chosen = {name: benchmark(name) for name in names or DEFAULT}
    return _measured(chosen, sizes, on_begin or (lambda name: None))


def benchmark(name: str) -> Benchmark:
    """The module of a benchmark. Raises `InputError` where what it imports is not installed, `KeyError`."""
    try:
        return cast(Benchmark, import_module(BENCHMARKS[name]))
    except ModuleNotFoundError as error:
        raise InputError(
            f"The benchmark {name} needs {error.name}, which is not installed. Nothing was measured; install "
            "memrl-inspector[test], or choose other benchmarks."
        ) from error


def _measured(chosen: Mapping[str, Benchmark], sizes: Sizes, on_begin: Callable[[str], None]) -> Iterator[Row]:
    for name, module in chosen.items():
        on_begin(name)
        yield from module.measure(sizes)
