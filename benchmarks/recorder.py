"""What the recorder adds to a step of another agent, on top of the commit that stores any step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes, peak
from benchmarks.synthetic import EXPERIENCE, RUN, SETTINGS, Vectors, synthetic_bank, vectors
from memrl_core.bank import MemoryBank
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.recorder import Recorder

NAME = "recorder"
STEPS = 20


def measure(sizes: Sizes) -> list[Row]:
    """`STEPS` reported steps a repetition, the middle one; the reference is the bank's own part: commit and refresh."""
    rng = np.random.default_rng(1)
    with synthetic_bank(sizes.memories, dimension=sizes.dimension) as bank:
        clock, recorder = _Clock(bank), Recorder(bank, RUN)
        queries = [vectors(STEPS, rng, sizes.dimension) for _ in range(1 + sizes.repeat)]
        with peak() as highest:
            rounds = [_round(bank, recorder, clock, asked) for asked in queries][1:]
    return [
        Row(
            NAME,
            "a reported step",
            sizes.memories,
            sizes.dimension,
            tuple(median(step for step, _ in pairs) for pairs in rounds),
            "its commit alone",
            tuple(median(commit for _, commit in pairs) for pairs in rounds),
            aim=Aim("over_s", 0.001),
            peak_mb=highest.mb,
        )
    ]


class _Clock:
    """Adds up the seconds that a bank spends on what any commit of a step needs: reading on, and appending."""

    def __init__(self, bank: MemoryBank) -> None:
        self.spent = 0.0
        for name in ("refresh", "commit_step"):
            setattr(bank, name, self._timed(getattr(bank, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*given)
            finally:
                self.spent += time.perf_counter() - begun

        return timed


def _round(bank: MemoryBank, recorder: Recorder, clock: _Clock, queries: Vectors) -> list[tuple[float, float]]:
    policy, pairs = MemRL(SETTINGS), []
    for query in queries:
        pool = [(seen.memory_id, seen.similarity) for seen in policy.recall(query, bank.view(RUN)).pool]
        clock.spent, begun = 0.0, time.perf_counter()
        with recorder.step("put the warm mug on the shelf", embedding=query) as step:
            step.recalled(pool)
            step.selected([memory_id for memory_id, _ in pool[: SETTINGS.k2]])
            step.answered("done")
            step.rewarded(1.0)
            step.wrote(EXPERIENCE)
        pairs.append((time.perf_counter() - begun, clock.spent))
    return pairs
