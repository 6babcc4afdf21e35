"""What people wait for when they rate: a late reward, what it would do, and the queue of what to rate next.

A person's reward for one of the first steps moves q in every later step that used the same memories. Repetitions give
two values in turn, so that each of them changes something.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from memrl_core.analysis.later_selections import Choices, Differing, compiled, differing
from memrl_core.analysis.rated_steps import RatedStep, facts_of
from memrl_core.analysis.rating_queue import QueueFilter, queue
from memrl_core.bank import MemoryBank
from memrl_core.bank.mirror import folded
from memrl_core.bank.ratings import Rating
from memrl_core.benchmarks.measuring import Measurement, repeated, seconds
from memrl_core.benchmarks.synthetic import DIMENSION, RATERS, RUN, SETTINGS, rated_bank, synthetic_bank
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.learning import Fold, memrl_rule
from memrl_core.records import Memory, Utility

NAME = "ratings"
MEMORIES = 2000
EARLY = 5
TIMES = 10
RATER = "rater"
REWORDED = "Look on the shelf first."
BUDGET = "under 200 ms"


def measure(memories: int, steps: int, repeat: int) -> list[Measurement]:
    """On at most `MEMORIES` memories: one reward among `steps` steps, and the queue of `TIMES` as many."""
    known = min(memories, MEMORIES)
    return [*_one_reward(known, steps, repeat), *_many_steps(known, TIMES * steps, repeat)]


def _one_reward(memories: int, steps: int, repeat: int) -> list[Measurement]:
    size = f"{steps:,} steps, {memories:,} memories"
    with synthetic_bank(memories, steps) as bank:
        early = min(EARLY, steps)
        other = Rating(RUN, early, -(bank.effective_reward(RUN, early) or 0.0), RATER)
        choices = compiled(bank, RUN)
        assert choices is not None
        supposed = repeated(lambda: bank.ratings.supposed(other), repeat)
        later = repeated(lambda: would_differ(bank, choices, other), repeat)
        reading = repeated(lambda: compiled(bank, RUN), repeat)
        saved, again = rated_in_turn(bank, other, repeat)
        anew = repeated(lambda: from_nothing(bank), repeat)
        reword(bank, other)
        supposed_on = repeated(lambda: bank.ratings.supposed(other), repeat)
        _, again_on = rated_in_turn(bank, other, repeat)
    return [
        Measurement(NAME, "folding the ledger again after a late reward", size, "ms", _ms(again), BUDGET),
        Measurement(NAME, "the same, of a memory that was reworded", size, "ms", _ms(again_on), BUDGET),
        Measurement(NAME, "folding it from nothing", size, "ms", _ms(anew)),
        Measurement(NAME, "what a reward would do", size, "ms", _ms(supposed), BUDGET),
        Measurement(NAME, "what it would do to a memory that was reworded", size, "ms", _ms(supposed_on), BUDGET),
        Measurement(NAME, "a reward saved", size, "ms", _ms(saved)),
        Measurement(NAME, "later selections that would differ", size, "ms", _ms(later)),
        Measurement(NAME, "reading all selections for that, once", size, "s", reading),
    ]


def _many_steps(memories: int, steps: int, repeat: int) -> list[Measurement]:
    size = f"{steps:,} steps"
    with rated_bank(memories, steps) as bank:
        waiting = repeated(lambda: awaiting(bank), repeat)
        opening = repeated(lambda: MemoryBank.open(bank.uri), repeat)
        done = repeated(lambda: bank.deeds.done(RATERS[0]), repeat)
        deeds = len(bank.deeds.done(RATERS[0]))
    return [
        Measurement(NAME, "the queue of what to rate next", size, "s", waiting, "under 2 s"),
        Measurement(NAME, "opening the bank", size, "s", opening),
        Measurement(NAME, "what a person can undo", f"{deeds:,} rewards of theirs", "ms", _ms(done), "under 10 ms"),
    ]


def rated_in_turn(bank: MemoryBank, rating: Rating, repeat: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rate a step again and again, with `rating` and its opposite: the seconds of saving, and of the fold after it."""
    bank.utilities(RUN)
    pairs = []
    for turn in range(1 + repeat):
        given = Rating(rating.run, rating.step, rating.value * (-1) ** turn, rating.rater)
        pairs.append((seconds(partial(bank.ratings.rate, given)), seconds(lambda: bank.utilities(RUN))))
    saved, again = zip(*pairs[1:], strict=True)
    return saved, again


def reword(bank: MemoryBank, rating: Rating) -> Memory:
    """Put a new wording in the place of the first memory that a reward would reach."""
    old = bank.memory(next(iter(bank.ratings.supposed(rating).moved)))
    return bank.editing.edit(RUN, old.id, old.intent, REWORDED, HashingEmbedder(DIMENSION), RATER)


def from_nothing(bank: MemoryBank) -> Mapping[str, Utility]:
    """q and visits of every memory, by a fold of the whole ledger."""
    return folded(Fold(memrl_rule), bank.events(RUN), {row.id for row in bank.step_rows(RUN)}).utilities


def would_differ(bank: MemoryBank, choices: Choices, rating: Rating) -> list[Differing]:
    """The later selections that would be others with a reward, counted as the page of the rewards counts them."""
    now = bank.histories(RUN)
    return differing(choices, now, {**now, **bank.ratings.supposed(rating).histories})


def awaiting(bank: MemoryBank) -> list[RatedStep]:
    """The steps that wait for somebody who has rated none, every step to be rated by one person."""
    bounds = {RUN: (SETTINGS.reward_failure, SETTINGS.reward_success)}
    return queue(facts_of(bank), QueueFilter(), RATER, 1, bounds)


def _ms(taken: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1000 * one for one in taken)
