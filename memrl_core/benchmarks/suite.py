"""All benchmarks by name, and the machine that they ran on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memrl_core import __version__
from memrl_core.benchmarks import counterfactual, diagram, headless, policies, ratings, recorder, retrieval, whole_run
from memrl_core.benchmarks.measuring import Measurement
from memrl_core.errors import InputError

BENCHMARKS: Mapping[str, Callable[[int, int, int], list[Measurement]]] = {
    module.NAME: module.measure
    for module in (retrieval, policies, diagram, whole_run, counterfactual, recorder, ratings, headless)
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when something was measured; `memory` is in GiB, None where the system does not tell."""

    date: str
    system: str
    cores: int
    memory: float | None
    version: str
    python: str


def this_machine() -> Machine:
    """This machine, now."""
    return Machine(
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        f"{platform.system()} {platform.machine()}",
        os.cpu_count() or 1,
        _memory(),
        __version__,
        platform.python_version(),
    )


def _memory() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return None


def run_benchmarks(
    names: Sequence[str] = (),
    memories: int = 10_000,
    steps: int = 10_000,
    repeat: int = 5,
    on_begin: Callable[[str], None] | None = None,
) -> list[Measurement]:
    """The benchmarks of these names, or all: their measurements in order. `on_begin` hears each name as it begins.

    Raises `InputError` for a name that is none of `BENCHMARKS` and for sizes below 1, before anything is measured.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise InputError(f"There is no benchmark “{unknown[0][:80]}”. Known: {', '.join(BENCHMARKS)}.")
    if min(memories, steps, repeat) < 1:
        raise InputError("A benchmark needs at least one memory, one step and one repetition.")
    found = []
    for name in names or BENCHMARKS:
        if on_begin is not None:
            on_begin(name)
        found += BENCHMARKS[name](memories, steps, repeat)
    return found
