"""All weights at once: the exact flip points of one large pool."""

from __future__ import annotations

import numpy as np

from memrl_core.analysis.spectrum import spectrum
from memrl_core.benchmarks.measuring import Measurement, repeated
from memrl_core.benchmarks.synthetic import RUN, SETTINGS, synthetic_bank, vectors
from memrl_core.policies.memrl import MemRL

NAME = "diagram"
POOL = 200


def measure(memories: int, steps: int, repeat: int) -> list[Measurement]:
    """The lines and flips of a decision over a pool of `POOL` memories, or of all when there are fewer."""
    with synthetic_bank(memories) as bank:
        view = bank.view(RUN)
        policy = MemRL(SETTINGS.model_copy(update={"k1": POOL}))
        decision = policy.select(policy.recall(vectors(1, np.random.default_rng(1))[0], view), view, 0)
    pool = sum(candidate.rank_select is not None for candidate in decision.candidates)
    values = tuple(1000 * spent for spent in repeated(lambda: spectrum(decision), repeat))
    return [Measurement(NAME, "decision diagram over all λ", f"a pool of {pool}", "ms", values, "under 1 s")]
