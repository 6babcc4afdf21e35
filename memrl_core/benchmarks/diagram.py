"""All weights at once: the exact flip points of one large pool, and the picture of them."""

from __future__ import annotations

import numpy as np

from memrl_core.analysis.spectrum import spectrum
from memrl_core.benchmarks.measuring import Measurement, repeated
from memrl_core.benchmarks.synthetic import RUN, SETTINGS, synthetic_bank, vectors
from memrl_core.figures.decision_diagram import decision_diagram
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
    weight = SETTINGS.weight
    size = f"a pool of {pool}"
    lines = spectrum(decision)
    found = repeated(lambda: spectrum(decision), repeat)
    drawn = repeated(lambda: decision_diagram(lines, weight, weight, RUN).figure.to_json(), repeat)
    return [
        Measurement(NAME, "flip points over all λ", size, "ms", tuple(1000 * spent for spent in found), "under 1 s"),
        Measurement(NAME, "their diagram", size, "ms", tuple(1000 * spent for spent in drawn), "under 1 s"),
    ]
