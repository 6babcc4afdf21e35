"""Targets, and how their cases are tried: for so many examples in a test, or for so many minutes by hand."""

from __future__ import annotations

import faulthandler
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import imports, texts
from tests.fuzz.sources import MEMORY, make_all

LONGEST_CASE = 30
"""Seconds after which a case counts as one that never ends; four times that ends the process."""
AT_ONCE = 200
LINES_TOLD = 60


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads what others wrote: its cases, and the check of one in an empty folder.

    `begin` is what a check needs that may take longer than a case.
    """

    name: str
    cases: st.SearchStrategy[Any]
    check: Callable[[Any, Path], None]
    in_a_test: int = 10
    begin: Callable[[], None] = lambda: None


TARGETS = (
    Target("bank-zip", imports.ZIP_CASES, imports.check_zip),
    Target("official-files", imports.OFFICIAL_CASES, imports.check_official),
    Target("reward-files", texts.REWARD_CASES, texts.check_rewards),
    Target("task-files", texts.TASK_CASES, texts.check_tasks, 25),
    Target("experiments", texts.TOML_CASES, texts.check_experiment, 25),
    Target("lessons", texts.TOML_CASES, texts.check_lesson, 40),
    Target("settings", texts.SETTINGS_CASES, texts.check_settings, 60),
)


class NeverEnded(Exception):
    """A case took longer than any may."""


@dataclass(slots=True)
class Tried:
    """What came of a target's cases. `faults` maps where each was raised to what hypothesis told of the first."""

    cases: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)


def slice_of(target: Target) -> None:
    """Try some cases, the same ones every time, and raise for the first fault, in its smallest form."""

    @settings(max_examples=target.in_a_test, derandomize=True, database=None, **_UNHURRIED)
    @given(target.cases)
    def some(case: Any) -> None:
        _try(target, case)

    make_all()
    target.begin()
    some()


def for_seconds(target: Target, seconds: float, first_seed: int) -> Tried:
    """Try cases until the time is over; a fault is noted once, and the search goes on for others."""
    make_all()
    target.begin()
    tried, began = Tried(), time.monotonic()

    def is_over() -> bool:
        return time.monotonic() - began > seconds

    while not is_over():
        first_seed += 1
        try:
            _batch(target, tried, is_over, first_seed)
        except Exception as error:  # A fault of any kind is what is looked for.
            reported = "".join(traceback.format_exception(error))
            tried.faults[place_of(error)] = "\n".join(reported.splitlines()[-LINES_TOLD:])
    tried.seconds = time.monotonic() - began
    return tried


_UNHURRIED: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": False}


def _batch(target: Target, tried: Tried, is_over: Callable[[], bool], number: int) -> None:
    # Making a case smaller may take longer than the whole search, and cases are short to begin with.
    @seed(number)
    @settings(max_examples=AT_ONCE, database=None, phases=[Phase.generate], report_multiple_bugs=False, **_UNHURRIED)
    @given(target.cases)
    def some(case: Any) -> None:
        if is_over() and not new:
            return
        began = time.monotonic()
        try:
            _try(target, case)
        except Exception as error:
            place = place_of(error)
            tried.met[place] += 1
            if place in tried.faults:
                return
            new.append(place)
            raise
        finally:
            tried.cases += 1
            tried.slowest = max(tried.slowest, time.monotonic() - began)

    new: list[str] = []
    some()


def _try(target: Target, case: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="memrl-case-", dir=MEMORY) as folder, _ending():
        target.check(case, Path(folder))


@contextmanager
def _ending() -> Iterator[None]:
    """Raise `NeverEnded` within it after a while; where nothing can be raised, tell where it is and end the process."""

    def stop(*_: Any) -> None:
        raise NeverEnded(f"a case took longer than {LONGEST_CASE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_CASE)
    faulthandler.dump_traceback_later(4 * LONGEST_CASE, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def place_of(error: BaseException) -> str:
    """Where a fault was raised: its type, and the innermost line of the program or of a target."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "memrl_core" in frame.filename or "/tests/" in frame.filename] or frames
    program = [frame for frame in ours if "memrl_core" in frame.filename]
    last = (program or ours)[-1]
    return f"{type(error).__name__} in {'/'.join(Path(last.filename).parts[-3:])}:{last.lineno}"
