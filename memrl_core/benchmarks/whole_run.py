"""The questions about a whole run: which memories mislead, and whether q says how likely a memory is to help."""

from __future__ import annotations

from memrl_core.analysis.calibration import in_sample, prequential
from memrl_core.analysis.roles import ROLES, profile, with_role
from memrl_core.analysis.uses import uses
from memrl_core.bank import MemoryBank
from memrl_core.benchmarks.measuring import Measurement, repeated
from memrl_core.benchmarks.synthetic import RUN, SETTINGS, synthetic_bank

NAME = "whole-run"


def measure(memories: int, steps: int, repeat: int) -> list[Measurement]:
    """Both questions from the bank to the table, each reading the run's steps anew."""
    with synthetic_bank(memories, steps) as bank:
        pooled = len(uses(bank, RUN))
        size = f"{steps:,} steps, {pooled:,} candidates"
        return [
            Measurement(
                NAME, "distractors and other roles", size, "s", repeated(lambda: roles(bank), repeat), "under 1 s"
            ),
            Measurement(NAME, "calibration of q", size, "s", repeated(lambda: calibrations(bank), repeat), "under 1 s"),
        ]


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
