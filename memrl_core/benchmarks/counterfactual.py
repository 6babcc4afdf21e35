"""A whole run decided again under other settings, every step in the state in which it was really made."""

from __future__ import annotations

from memrl_core.analysis.counterfactual import counterfactual
from memrl_core.benchmarks.measuring import Measurement, repeated
from memrl_core.benchmarks.synthetic import RUN, SETTINGS, synthetic_bank

NAME = "counterfactual"
SHARE = 10


def measure(memories: int, steps: int, repeat: int) -> list[Measurement]:
    """A tenth of `steps`, decided again with λ = 0."""
    count = max(1, steps // SHARE)
    other = {**SETTINGS.model_dump(), "weight": 0.0}
    with synthetic_bank(memories, count) as bank:
        values = repeated(lambda: counterfactual(bank, RUN, other), repeat)
    return [
        Measurement(
            NAME, "the run under other settings", f"{count:,} steps, {memories:,} memories", "s", values, "under 1 s"
        )
    ]
