"""A whole run decided again under other settings, every step in the state in which it was really made."""

from __future__ import annotations

from benchmarks.measuring import Aim, Row, Sizes, in_turns, peak
from benchmarks.synthetic import RUN, SETTINGS, synthetic_bank
from memrl_core.analysis.counterfactual import counterfactual

NAME = "counterfactual"
SHARE = 10


def measure(sizes: Sizes) -> list[Row]:
    """A tenth of the steps, decided again with λ = 0; the reference only reads them."""
    count = max(1, sizes.steps // SHARE)
    other = {**SETTINGS.model_dump(), "weight": 0.0}
    with synthetic_bank(sizes.memories, count, dimension=sizes.dimension) as bank, peak() as highest:
        timed = in_turns(lambda: counterfactual(bank, RUN, other), lambda: bank.step_table(RUN), sizes.repeat)
    return [
        Row(
            NAME,
            "the run under other settings",
            sizes.memories,
            sizes.dimension,
            timed[0],
            "reading its steps as Arrow",
            timed[1],
            aim=Aim("median_s", 1.0),
            peak_mb=highest.mb,
            size=f"{count:,} steps",
        )
    ]
