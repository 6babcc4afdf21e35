"""What the recorder adds to a step of another agent, on top of the commit that stores any step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from memrl_core.bank import MemoryBank
from memrl_core.benchmarks.measuring import Measurement
from memrl_core.benchmarks.synthetic import EXPERIENCE, RUN, SETTINGS, Vectors, synthetic_bank, vectors
from memrl_core.policies.memrl import MemRL
from memrl_core.recorder import Recorder

NAME = "recorder"
STEPS = 20


def measure(memories: int, steps: int, repeat: int) -> list[Measurement]:
    """`STEPS` reported steps a repetition; the time in the bank's own commit and refresh is taken out of each."""
    rng = np.random.default_rng(1)
    with synthetic_bank(memories) as bank:
        clock = _Clock(bank)
        recorder = Recorder(bank, RUN)
        rounds = [_round(bank, recorder, clock, vectors(STEPS, rng)) for _ in range(1 + repeat)][1:]
    size = f"{memories:,} memories"

    def each(what: str, value: Callable[[float, float], float], budget: str = "") -> Measurement:
        values = tuple(1000 * median(value(step, bare) for step, bare in pairs) for pairs in rounds)
        return Measurement(NAME, what, size, "ms", values, budget)

    return [
        each("added to the commit of a step", lambda step, bare: step - bare, "under 1 ms"),
        each("a reported step", lambda step, bare: step),
        each("the commit alone", lambda step, bare: bare),
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
