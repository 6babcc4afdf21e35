"""What people wait for when they rate: a late reward, what it would do, and the queue of what to rate next.

A person's reward for one of the first steps moves q in every later step that used the same memories. Repetitions give
two values in turn, so that each of them changes something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.measuring import YARDSTICK, Aim, Row, Sizes, in_turns, peak, seconds, yardstick
from benchmarks.synthetic import RATERS, RUN, SETTINGS, rated_bank, synthetic_bank
from memrl_core.analysis.later_selections import Choices, Differing, compiled, differing
from memrl_core.analysis.rated_steps import RatedStep, facts_of
from memrl_core.analysis.rating_queue import QueueFilter, queue
from memrl_core.bank import MemoryBank
from memrl_core.bank.codec import event_row
from memrl_core.bank.mirror import folded
from memrl_core.bank.ratings import Rating
from memrl_core.bank.store import Store
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.learning import Fold, memrl_rule
from memrl_core.records import Memory, Utility

NAME = "ratings"
MEMORIES = 2000
EARLY = 5
TIMES = 10
RATER = "rater"
REWORDED = "Look on the shelf first."
AIM = Aim("median_s", 0.2)


def measure(sizes: Sizes) -> list[Row]:
    """On at most `MEMORIES` memories: one reward among the steps, and the queue of `TIMES` as many."""
    sizes = replace(sizes, memories=min(sizes.memories, MEMORIES))
    return [*_one_reward(sizes), *_many_steps(sizes)]


def _one_reward(sizes: Sizes) -> Iterator[Row]:
    with synthetic_bank(sizes.memories, sizes.steps, dimension=sizes.dimension) as bank:
        row = partial(_row, sizes=sizes, size=f"{sizes.steps:,} steps")
        early = min(EARLY, sizes.steps)
        other = Rating(RUN, early, -(bank.effective_reward(RUN, early) or 0.0), RATER)
        choices = compiled(bank, RUN)
        assert choices is not None

        def anew() -> object:
            return from_nothing(bank)

        def reading() -> object:
            return compiled(bank, RUN)

        def supposed() -> object:
            return bank.ratings.supposed(other)

        def later() -> object:
            return would_differ(bank, choices, other)

        whole, selections = "folding it from nothing", "reading all selections for that"
        yield row("what a reward would do", supposed, whole, anew, aim=AIM)
        yield row("later selections that would differ", later, selections, reading)
        yield row(selections, reading, "reading the steps as Arrow", lambda: bank.step_table(RUN))
        yield row(whole, anew, YARDSTICK, yardstick)
        yield from _rated(bank, other, sizes, "")
        reword(bank, other)
        yield row("what a reward would do to a memory that was reworded", supposed, whole, anew, aim=AIM)
        yield from _rated(bank, other, sizes, " of a memory that was reworded")


def _rated(bank: MemoryBank, rating: Rating, sizes: Sizes, of: str) -> Iterator[Row]:
    with peak() as highest:
        turns = rated_in_turn(bank, rating, sizes.repeat)
    row = partial(
        Row, NAME, memories=sizes.memories, dimension=sizes.dimension, peak_mb=highest.mb, size=f"{sizes.steps:,} steps"
    )
    yield row(
        what=f"folding the ledger again after a late reward{of}",
        seconds=turns.again,
        reference="folding it from nothing",
        reference_seconds=turns.anew,
        aim=AIM,
    )
    yield row(
        what=f"a reward saved{of}",
        seconds=turns.saved,
        reference="one row appended to a table",
        reference_seconds=turns.appended,
    )


def _many_steps(sizes: Sizes) -> Iterator[Row]:
    steps = TIMES * sizes.steps
    with rated_bank(sizes.memories, steps, dimension=sizes.dimension) as bank:
        row = partial(_row, sizes=sizes)
        store, _ = Store.open(bank.uri)
        deeds = len(bank.deeds.done(RATERS[0]))
        reading = "reading its ledger as Arrow"

        def ledger() -> object:
            return store.read("ledger")

        yield row(
            "the queue of what to rate next",
            lambda: awaiting(bank),
            reading,
            ledger,
            size=f"{steps:,} steps",
            aim=Aim("median_s", 2.0),
        )
        yield row("opening the bank", lambda: MemoryBank.open(bank.uri), reading, ledger, size=f"{steps:,} steps")
        yield row(
            "what a person can undo",
            lambda: bank.deeds.done(RATERS[0]),
            YARDSTICK,
            yardstick,
            size=f"{deeds:,} rewards of theirs",
            aim=Aim("median_s", 0.01),
        )


def _row(
    what: str,
    action: Callable[[], object],
    reference: str,
    beside: Callable[[], object],
    *,
    sizes: Sizes,
    size: str,
    aim: Aim | None = None,
) -> Row:
    with peak() as highest:
        taken, others = in_turns(action, beside, sizes.repeat)
    return Row(
        NAME, what, sizes.memories, sizes.dimension, taken, reference, others, aim=aim, peak_mb=highest.mb, size=size
    )


@dataclass(frozen=True, slots=True)
class Turns:
    """The seconds of saving a reward and of the fold after it, of appending a bare row and of a whole fold."""

    saved: tuple[float, ...]
    again: tuple[float, ...]
    appended: tuple[float, ...]
    anew: tuple[float, ...]


def rated_in_turn(bank: MemoryBank, rating: Rating, repeat: int) -> Turns:
    """Rate a step again and again, with `rating` and its opposite; each turn does all that the seconds are of."""
    bank.utilities(RUN)
    turns = []
    with TemporaryDirectory(prefix="memrl-bench-", ignore_cleanup_errors=True) as folder:
        elsewhere = Store.create(folder, {}, bank.embedder.dimension)
        line = event_row(bank.events(RUN)[-1])
        for turn in range(1 + repeat):
            given = Rating(rating.run, rating.step, rating.value * (-1) ** turn, rating.rater)
            turns.append(
                (
                    seconds(partial(bank.ratings.rate, given)),
                    seconds(lambda: bank.utilities(RUN)),
                    seconds(lambda: elsewhere.append("ledger", [line])),
                    seconds(lambda: from_nothing(bank)),
                )
            )
    return Turns(*zip(*turns[1:], strict=True))


def reword(bank: MemoryBank, rating: Rating) -> Memory:
    """Put a new wording in the place of the first memory that a reward would reach."""
    old = bank.memory(next(iter(bank.ratings.supposed(rating).moved)))
    return bank.editing.edit(RUN, old.id, old.intent, REWORDED, HashingEmbedder(bank.embedder.dimension), RATER)


def from_nothing(bank: MemoryBank) -> Mapping[str, Utility]:
    """q and visits of every memory, by a fold of the whole ledger."""
    return folded(Fold(memrl_rule), bank.events(RUN), {row.id for row in bank.step_rows(RUN)}).utilities


def would_differ(bank: MemoryBank, choices: Choices, rating: Rating) -> list[Differing]:
    """The later selections that would be others with a reward, counted as the page of the rewards counts them."""
    now = bank.histories(RUN)
    return differing(choices, now, {**now, **bank.ratings.supposed(rating).histories})


def awaiting(bank: MemoryBank) -> list[RatedStep]:
    """The steps that nobody has rated."""
    bounds = {RUN: (SETTINGS.reward_failure, SETTINGS.reward_success)}
    return queue(facts_of(bank), QueueFilter(show="unrated"), RATER, {}, bounds)
