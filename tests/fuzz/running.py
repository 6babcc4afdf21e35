"""Targets, and how their cases are tried."""

from __future__ import annotations

import faulthandler
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import imports, texts
from tests.fuzz.sources import MEMORY, make_all

LONGEST_CASE = 30
"""Seconds after which a case counts as one that never ends; four times that ends the process."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads what others wrote: its cases, and the check of one in an empty folder."""

    name: str
    cases: st.SearchStrategy[Any]
    check: Callable[[Any, Path], None]
    in_a_test: int = 10


TARGETS = (
    Target("bank-zip", imports.ZIP_CASES, imports.check_zip),
    Target("official-files", imports.OFFICIAL_CASES, imports.check_official),
    Target("reward-files", texts.REWARD_CASES, texts.check_rewards),
    Target("task-files", texts.TASK_CASES, texts.check_tasks, 25),
    Target("experiments", texts.TOML_CASES, texts.check_experiment, 25),
    Target("lessons", texts.TOML_CASES, texts.check_lesson, 40),
    Target("settings", texts.SETTINGS_CASES, texts.check_settings, 60),
)


def try_cases(target: Target, cases: int, number: int) -> None:
    """Try so many cases drawn by the seed `number`, and raise for the first fault, in its smallest form."""

    @seed(number)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(target.cases)
    def some(case: Any) -> None:
        _try(target, case)

    make_all()
    some()


def _try(target: Target, case: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="memrl-case-", dir=MEMORY) as folder, _ending():
        target.check(case, Path(folder))


@contextmanager
def _ending() -> Iterator[None]:
    """Raise `TimeoutError` within it after a while; where nothing can be raised, end the process."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"a case took longer than {LONGEST_CASE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_CASE)
    faulthandler.dump_traceback_later(4 * LONGEST_CASE, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
