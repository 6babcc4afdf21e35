"""The questions about a whole run: which memories mislead, and whether q says how likely a memory is to help."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measuring import Aim, Row, Sizes, in_turns, peak
from benchmarks.synthetic import RUN, SETTINGS, synthetic_bank
from memrl_core.analysis.calibration import in_sample, prequential
from memrl_core.analysis.roles import ROLES, profile, with_role
from memrl_core.analysis.uses import uses
from memrl_core.bank import MemoryBank

NAME = "whole-run"


def measure(sizes: Sizes) -> list[Row]:
    """Both questions from the bank to the table; the reference only reads the run's steps, as each of them does."""
    with synthetic_bank(sizes.memories, sizes.steps, dimension=sizes.dimension) as bank:
        pooled = len(uses(bank, RUN))

        def row(what: str, question: Callable[[MemoryBank], object]) -> Row:
            with peak() as highest:
                asked, reading = in_turns(lambda: question(bank), lambda: bank.step_table(RUN), sizes.repeat)
            return Row(
                NAME,
                what,
                sizes.memories,
                sizes.dimension,
                asked,
                "reading the steps as Arrow",
                reading,
                aim=Aim("median_s", 1.0),
                peak_mb=highest.mb,
                size=f"{sizes.steps:,} steps, {pooled:,} candidates",
            )

        return [row("distractors and other roles", roles), row("calibration of q", calibrations)]


def roles(bank: MemoryBank) -> dict[str, int]:
    """How many memories have each role."""
    known = bank.utilities(RUN)
    profiles = profile(uses(bank, RUN), known, {memory.id: memory for memory in bank.memories()}, SETTINGS.k2)
    return {role: len(with_role(profiles, role, SETTINGS.q_midpoint, SETTINGS.k2)) for role in ROLES}


def calibrations(bank: MemoryBank) -> tuple[int, int]:
    """How many uses the two calibrations rest on: before the fact, and after it."""
    table, low, high = uses(bank, RUN), SETTINGS.reward_failure, SETTINGS.reward_success
    return (
        prequential(table, low, high).per_use.n,
        int(in_sample(table, bank.utilities(RUN), low, high).bins["n"].sum()),
    )
