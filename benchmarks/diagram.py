"""All weights at once: the exact flip points of one large pool, and the picture of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes, in_turns, peak
from benchmarks.synthetic import RUN, SETTINGS, synthetic_bank, vectors
from memrl_core.analysis.spectrum import spectrum
from memrl_core.figures.decision_diagram import decision_diagram
from memrl_core.policies.methods.memrl import MemRL

NAME = "diagram"
POOL = 200


def measure(sizes: Sizes) -> list[Row]:
    """The lines and flips of a decision over a pool of `POOL` memories, or of all when there are fewer.

    The reference is the one selection that they are about.
    """
    with synthetic_bank(sizes.memories, dimension=sizes.dimension) as bank:
        view = bank.view(RUN)
        policy = MemRL(SETTINGS.model_copy(update={"k1": POOL}))
        recalled = policy.recall(vectors(1, np.random.default_rng(1), sizes.dimension)[0], view)
        decision = policy.select(recalled, view, 0)
        pool = sum(candidate.rank_select is not None for candidate in decision.candidates)
        lines = spectrum(decision)

        def row(what: str, action: Callable[[], object]) -> Row:
            with peak() as highest:
                taken, selecting = in_turns(action, lambda: policy.select(recalled, view, 0), sizes.repeat)
            return Row(
                NAME,
                what,
                sizes.memories,
                sizes.dimension,
                taken,
                "selecting from the pool once",
                selecting,
                aim=Aim("median_s", 1.0),
                peak_mb=highest.mb,
                size=f"a pool of {pool}",
            )

        weight = SETTINGS.weight
        return [
            row("flip points over all λ", lambda: spectrum(decision)),
            row("their diagram", lambda: decision_diagram(lines, weight, weight, RUN).to_json()),
        ]
