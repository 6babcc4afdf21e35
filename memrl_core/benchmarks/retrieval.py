"""Two-phase retrieval against the one matrix product that nobody can do without.

The ratio is given twice. With all threads it is what the app pays, but on a busy machine the threads of the product
wait for each other, which makes the product slow and the ratio look good. With one thread that hardly happens.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from memrl_core.bank import MemoryBank
from memrl_core.benchmarks.measuring import Measurement, seconds
from memrl_core.benchmarks.synthetic import DIMENSION, RUN, SETTINGS, Vectors, synthetic_bank, vectors
from memrl_core.policies.memrl import MemRL

NAME = "retrieval"
QUERIES = 100
THREADS = {"one thread": 1, "all threads": None}


def measure(memories: int, steps: int, repeat: int) -> list[Measurement]:
    """Phases A and B of `QUERIES` queries, in turns with the bare product; of each repetition, the middle query's."""
    size = f"{memories:,} memories × {DIMENSION}"
    queries = vectors(QUERIES, np.random.default_rng(1))
    found = []
    with synthetic_bank(memories) as bank:
        for label, threads in THREADS.items():
            with threadpool_limits(limits=threads, user_api="blas"):
                rounds = [_round(bank, queries) for _ in range(1 + repeat)][1:]
            ratios = tuple(both / bare for both, bare in rounds)
            both, bare = (tuple(1000 * value for value in column) for column in zip(*rounds, strict=True))
            found += [
                Measurement(NAME, f"phases A and B ÷ the bare product, {label}", size, "×", ratios, "under 2 ×"),
                Measurement(NAME, f"phases A and B, {label}", size, "ms", both),
                Measurement(NAME, f"the bare product, {label}", size, "ms", bare),
            ]
        views = tuple(1000 * seconds(lambda: bank.view(RUN)) for _ in range(1 + repeat))[1:]
    return [*found, Measurement(NAME, "what the run knows as arrays, once a step", size, "ms", views)]


def _round(bank: MemoryBank, queries: Vectors) -> tuple[float, float]:
    view, policy = bank.view(RUN), MemRL(SETTINGS)
    both, bare = [], []

    def two_phases(number: int, query: Vectors) -> None:
        policy.select(policy.recall(query, view), view, number)

    for number, query in enumerate(queries):
        both.append(seconds(partial(two_phases, number, query)))
        bare.append(seconds(partial(np.matmul, view.embeddings, query)))
    return median(both), median(bare)
