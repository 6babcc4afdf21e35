"""What people wait for when they ask about a decision or a run, and when they rate: each question a row.

A person's reward for one of the first steps moves q in every later step that used the same memories. Repetitions give
two values in turn, so that each of them changes something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from benchmarks.measuring import Aim, Row, Sizes, in_turns, peak
from benchmarks.synthetic import RUN, SETTINGS, rated_bank, synthetic_bank, vectors
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.analysis.memory.exposure import ROLES, profile, uses, with_role
from memrl_core.analysis.people.rating_queue import QueueFilter, RatedStep, facts_of, queue
from memrl_core.analysis.run.calibration import in_sample, prequential
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.policies.methods.memrl import MemRL

NAME = "questions"
MEMORIES = 2000
STEPS = 1000
POOL = 200
EARLY = 5
RATER = "rater"


def measure(sizes: Sizes) -> list[Row]:
    """On at most `MEMORIES` memories and `STEPS` steps with whole records; the queue of all steps, rewards alone."""
    return [*_of_a_decision(sizes), *_of_a_run(sizes), *_of_raters(sizes)]


def _row(
    what: str,
    action: Callable[[], object],
    reference: str,
    beside: Callable[[], object],
    sizes: Sizes,
    size: str,
    limit: float = 1.0,
) -> Row:
    with peak() as highest:
        taken, others = in_turns(action, beside, sizes.repeat)
    return Row(NAME, what, sizes.memories, sizes.dimension, taken, reference, others, aim=Aim("median_s", limit),
               peak_mb=highest.mb, size=size)  # fmt: skip


def _of_a_decision(sizes: Sizes) -> Iterator[Row]:
    with synthetic_bank(sizes.memories, dimension=sizes.dimension) as bank:
        view = bank.view(RUN)
        policy = MemRL(SETTINGS.model_copy(update={"k1": POOL}))
        recalled = policy.recall(vectors(1, np.random.default_rng(1), sizes.dimension)[0], view)
        decision = policy.select(recalled, view, 0)
        lines, weight = spectrum(decision), SETTINGS.weight
        row = partial(
            _row, reference="selecting from the pool once", beside=lambda: policy.select(recalled, view, 0),
            sizes=sizes, size=f"a pool of {min(POOL, sizes.memories)}",
        )  # fmt: skip
        yield row("flip points over all λ", lambda: spectrum(decision))
        yield row("their diagram", lambda: decision_diagram(lines, weight, weight, RUN).to_json())


def _of_a_run(sizes: Sizes) -> Iterator[Row]:
    sizes = replace(sizes, memories=min(sizes.memories, MEMORIES), steps=min(sizes.steps, STEPS))
    steps = sizes.steps
    other = {**SETTINGS.model_dump(), "weight": 0.0}
    with synthetic_bank(sizes.memories, steps, dimension=sizes.dimension) as bank:
        row = partial(
            _row, reference="reading its steps", beside=lambda: bank.traces(RUN), sizes=sizes, size=f"{steps:,} steps"
        )
        yield row("distractors and other roles", lambda: roles(bank))
        yield row("calibration of q", lambda: calibrations(bank))
        yield row("the run under other settings", lambda: counterfactual(bank, RUN, other))
        early, turns = min(EARLY, steps), count()
        value = -(bank.ratings.effective(RUN, early) or 0.0)
        yield row("what a late reward would do",
                  lambda: bank.ratings.supposed(Rating(RUN, early, value, RATER)), limit=0.2)  # fmt: skip

        def rate() -> object:
            bank.write.ratings.rate(Rating(RUN, early, value * (-1) ** next(turns), RATER))
            return bank.utilities(RUN)

        yield row("a late reward, and q after it", rate, limit=0.2)


def _of_raters(sizes: Sizes) -> Iterator[Row]:
    sizes = replace(sizes, memories=min(sizes.memories, MEMORIES))
    with rated_bank(sizes.memories, sizes.steps, dimension=sizes.dimension) as bank:
        yield _row("the queue of what to rate next", lambda: awaiting(bank), "reading the ledger",
                   lambda: bank.events(RUN), sizes, f"{sizes.steps:,} steps", 2.0)  # fmt: skip


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


def awaiting(bank: MemoryBank) -> list[RatedStep]:
    """The steps that nobody has rated."""
    bounds = {RUN: (SETTINGS.reward_failure, SETTINGS.reward_success)}
    return queue(facts_of(bank), QueueFilter(show="unrated"), RATER, {}, bounds)
