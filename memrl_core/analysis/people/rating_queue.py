"""Which finished steps wait for a person's reward, in which order, and how long the rest will take.

A random sample is drawn among all steps of the asked run, policy and days, whoever has rated them; only then are those
left out that the person has rated. So a reward takes its own step out and moves no other, and the sample comes to an
end. As nobody's reward decides what is in it, it stands for all those steps, and people with the same seed rate the
same ones. Where some of it was rated before, fewer than `sample` steps are shown.

Each step gets one random number, the oldest step the first; the lowest numbers are the sample. A run that goes on adds
its steps at the end, so all earlier numbers stay: a new step may enter the sample and push its last one out, but the
others keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, pairwise
from operator import attrgetter
from statistics import median
from typing import Any, Literal

import numpy as np
from pydantic import Field

from memrl_core.analysis.people.agreement import disagreements
from memrl_core.analysis.people.linked_filter import LinkedFilter
from memrl_core.bank import MemoryBank
from memrl_core.records import EventKind

TOO_SOON = 0.3
"""Seconds after an output has come up within which nobody can have read it: a key that was held, or hit twice."""

Place = Any
"""What is rated at once: a step, as (run, number), or a pair of steps; hashable."""


@dataclass
class RatingSession:
    """A queue that one person goes through.

    `at` is the position looked at, `len(places)` when the end is reached. `rated` is what was rated in this session and
    when; `skipped` comes again when nothing else is left; `closed` needs no rating any more, since others gave theirs.
    """

    places: tuple[Place, ...]
    at: int = 0
    rated: dict[Place, datetime] = field(default_factory=dict)
    skipped: set[Place] = field(default_factory=set)
    closed: set[Place] = field(default_factory=set)
    _shown: tuple[Place, float] | None = None

    @property
    def place(self) -> Place | None:
        """What is looked at; None at the end."""
        return self.places[self.at] if self.at < len(self.places) else None

    @property
    def progress(self) -> Progress:
        """How far the person is."""
        remaining = len(self.places) - len(self.closed.union(self.rated))
        return progress(list(self.rated.values()), remaining, len(self.rated))

    def shows(self, clock: float) -> None:
        """Note that what is looked at has come up at `clock`, in seconds of a clock that only runs forward."""
        if self.place is not None and (self._shown is None or self._shown[0] != self.place):
            self._shown = self.place, clock

    def too_soon(self, place: Place, clock: float) -> bool:
        """Whether `place` came up less than `TOO_SOON` ago."""
        return self._shown is not None and self._shown[0] == place and clock - self._shown[1] < TOO_SOON

    def has_rated(self, place: Place, when: datetime) -> None:
        """Note a rating, and go on if it is of what is looked at: a click that arrives twice goes on once."""
        self.rated.setdefault(place, when)
        self.skipped.discard(place)
        if place == self.place:
            self._go_on()

    def skip(self) -> None:
        """Leave what is looked at for later."""
        if self.place is not None:
            self.skipped.add(self.place)
            self._go_on()

    def move(self, steps: int) -> None:
        """Look at another one, rated or not."""
        self.at = min(max(self.at + steps, 0), max(len(self.places) - 1, 0))

    def go_to(self, place: Place) -> None:
        """Look at one; what is not in the queue is put in before the one looked at."""
        if place not in self.places:
            self.places = (*self.places[: self.at], place, *self.places[self.at :])
        self.at = self.places.index(place)

    def take_back(self, place: Place) -> None:
        """Note that the rating of one was undone, and look at it."""
        self.rated.pop(place, None)
        self.closed.discard(place)
        self.go_to(place)

    def follow(self, waiting: Sequence[Place]) -> int:
        """Take in what waits now that others have rated, and say how many are new; those are added at the end.

        Who was through looks at the first that waits again.
        """
        known, wait = set(self.places), set(waiting)
        self.closed = {place for place in self.places if place not in wait and place not in self.rated}
        new = tuple(place for place in waiting if place not in known)
        self.places += new
        if self.place is None:
            self._go_on()
        return len(new)

    def _go_on(self) -> None:
        order = chain(range(self.at + 1, len(self.places)), range(min(self.at + 1, len(self.places))))
        waiting = (i for i in order if self.places[i] not in self.rated and self.places[i] not in self.closed)
        first_skipped = None
        for position in waiting:
            if self.places[position] not in self.skipped:
                self.at = position
                return
            first_skipped = position if first_skipped is None else first_skipped
        self.at = len(self.places) if first_skipped is None else first_skipped


Show = Literal["awaiting", "batch", "wanting", "unrated", "disputed", "influential", "random", "all"]
Bounds = Mapping[str, tuple[float, float]]

LARGEST_WHOLE = 2**53 - 1
"""The largest whole number that a field in a browser holds exactly."""
LONGEST_GAP = 600.0
"""Seconds between two ratings from which the person was away."""


_age = attrgetter("created", "run", "step", "id")
_influence = attrgetter("recalls", "created", "run", "step", "id")


class QueueFilter(LinkedFilter):
    """Which steps a queue shows; the same in the address bar of a page."""

    show: Show = Field(
        "awaiting",
        title="Show",
        description="awaiting: not rated by you. batch: of these, those assigned to you. wanting: of these, those that "
        "fewer people than are wanted have rated. unrated: rated by nobody. disputed: people differ among themselves. "
        "influential: awaiting, the most recalled first. random: a sample of "
        "those awaiting. all: every step.",
    )
    policy: str = Field("", title="Policy", description="Steps under this policy only; under any when empty.")
    seed: int = Field(
        0, ge=0, le=LARGEST_WHOLE, title="Seed", description="The same seed draws the same random sample."
    )
    sample: int = Field(30, ge=1, le=100_000, title="Sample size", description="How many steps are drawn at random.")


# --- the queue --------------------------------------------------------------------------------------------------------


def ratings_wanted(facts: Iterable[RatedStep], wanted: int | None) -> int:
    """How many should rate a step: what was `wanted`, else one, and two once two people have rated in the bank."""
    return wanted or min(max(len({rater for step in facts for rater in step.people}), 1), 2)


def queue(
    facts: Sequence[RatedStep],
    chosen: QueueFilter,
    rater: str,
    wanted: Mapping[str, int],
    bounds: Bounds,
    assigned: Sequence[tuple[str, int]] = (),
) -> list[RatedStep]:
    """The steps that `rater` is shown, first one first.

    `wanted` maps every run to how many people should rate its steps, `bounds` to its (r−, r+); `assigned` are the steps
    of the rater's parts of batches, in their order. Runs stand in the order
    in which `facts` names them first, their steps by number; the newest steps are those created last. What is equal
    there goes by run, step and id. A step given twice counts once, as given last.
    """
    asked = [
        step
        for step in {fact.id: fact for fact in facts}.values()
        if (not chosen.run or step.run == chosen.run)
        and (not chosen.policy or step.policy == chosen.policy)
        and chosen.holds(step.created)
    ]
    match chosen.show:
        case "awaiting":
            return _in_run_order(_awaiting(asked, rater), facts)
        case "batch":
            waiting = {(step.run, step.step): step for step in _awaiting(asked, rater)}
            return [waiting[place] for place in dict.fromkeys(assigned) if place in waiting]
        case "wanting":
            few = [step for step in _awaiting(asked, rater) if len(step.people) < wanted[step.run]]
            return _in_run_order(few, facts)
        case "unrated":
            return _in_run_order([step for step in asked if not step.people], facts)
        case "disputed":
            return _disputed(asked, bounds)
        case "influential":
            return sorted(_awaiting(asked, rater), key=_influence, reverse=True)
        case "random":
            return _awaiting(_drawn(asked, chosen.seed, chosen.sample), rater)
        case "all":
            return sorted(asked, key=_age, reverse=True)


def pairs(facts: Sequence[RatedStep], chosen: QueueFilter, rater: str) -> list[tuple[RatedStep, RatedStep]]:
    """Two answers to one task each, of which `rater` has not rated both: the two oldest, the two after them, and so on.

    No answer is in two pairs, so no comparison takes the place of another. Of the filter, run, policy and days count. A
    task that was answered once has no pair.
    """
    tasks: dict[str, list[RatedStep]] = {}
    for step in sorted(queue(facts, chosen.model_copy(update={"show": "all"}), rater, {}, {}), key=_age):
        tasks.setdefault(step.task, []).append(step)
    return [
        (first, second)
        for steps in tasks.values()
        for first, second in zip(steps[::2], steps[1::2], strict=False)
        if rater not in first.people or rater not in second.people
    ]


def _awaiting(steps: Iterable[RatedStep], rater: str) -> list[RatedStep]:
    return [step for step in steps if rater not in step.people]


def _in_run_order(steps: Iterable[RatedStep], facts: Sequence[RatedStep]) -> list[RatedStep]:
    runs: dict[str, list[RatedStep]] = {fact.run: [] for fact in facts}
    for step in steps:
        runs[step.run].append(step)
    return [step for members in runs.values() for step in sorted(members, key=attrgetter("step", "id"))]


def _disputed(steps: Sequence[RatedStep], bounds: Bounds) -> list[RatedStep]:
    """Those that count as in dispute among people, run by run, each run's most disputed first."""
    found: list[RatedStep] = []
    for run in dict.fromkeys(step.run for step in steps):
        (low, high), members = bounds[run], {step.id: step for step in steps if step.run == run}
        given = {step.id: step.people for step in members.values()}
        found += [members[one.step_id] for one in disagreements(given, (low + high) / 2, (high - low) / 2)]
    return found


def _drawn(steps: Iterable[RatedStep], seed: int, size: int) -> list[RatedStep]:
    ordered = sorted(steps, key=_age)
    numbers = np.random.default_rng(seed).random(len(ordered))
    return [ordered[place] for place in np.argsort(numbers, kind="stable")[:size].tolist()]


# --- how far the person is --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """How many of `total` steps are `done`.

    `pace` is seconds per rating and `left` seconds until all are done; None while that is not known.
    """

    done: int
    total: int
    pace: float | None
    left: float | None


def progress(times: Sequence[datetime], remaining: int, done: int) -> Progress:
    """How fast a person rates, by the `times` of this session's ratings in the order in which they were given.

    The pace is the median gap. A gap of more than ten minutes was a break, and one below zero a clock that was set
    back: neither counts. Without any gap that counts the pace is not known.
    """
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    counted = [gap for gap in gaps if 0 <= gap <= LONGEST_GAP]
    pace = median(counted) if counted else None
    return Progress(done, done + remaining, pace, None if pace is None else pace * remaining)


def duration_words(seconds: float) -> str:
    """A duration of zero or more seconds for a person, such as "about 40 s", "about 4 min" or "about 1 h 20 min"."""
    if round(seconds) < 60:
        return f"about {round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return "about " + " ".join([f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0))


NOBODY: Mapping[str, float] = {}
CHANGES = (EventKind.REWARD_REVOKED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED)


@dataclass(frozen=True, slots=True)
class RatedStep:
    """A finished step and who has rated it.

    `created` is ISO 8601 in UTC. `environment` is the environment's reward, None when it gave none; `people` maps each
    rater to their active reward. `recalls` is how often memories that this step wrote were put before the model later,
    a step counting once for each of them.
    """

    id: str
    run: str
    step: int
    epoch: int
    task: str
    policy: str
    created: str
    environment: float | None
    people: Mapping[str, float]
    recalls: int


def facts_of(bank: MemoryBank) -> list[RatedStep]:
    """Every finished step of every run, oldest run first, with the rewards that `bank.active_rewards` finds for it.

    No trace is read. A step wrote a memory when an event of its attempt says so, which tells it from an imported one;
    other words that people put in its place count as that memory, and a merged one as the oldest of those merged. A
    step's prompt held the parents of what it wrote, and what its environment's reward went to; a step without either is
    not known to have used any memory.
    """
    policies = {info.id: info.policy for info in bank.runs()}
    rows = [row for run in policies for row in bank.step_rows(run)]
    places = {row.id: place for place, row in enumerate(rows)}
    environment: list[float | None] = [None] * len(rows)
    people: dict[int, dict[str, float]] = {}
    prompts: list[tuple[str, ...]] = [()] * len(rows)
    writers: dict[str, int] = {}
    events = bank.events()
    changes = [event for event in events if event.kind in CHANGES]
    revoked = {event.revokes for event in changes}
    given, written = EventKind.REWARD_GIVEN, EventKind.MEMORY_WRITTEN
    for event in events:
        place = places.get(event.step_id)
        if place is None or event.step != rows[place].step or event.run != rows[place].run:
            continue
        if event.kind is written:
            for memory_id in event.memory_ids:
                writers[memory_id] = place
        elif event.kind is given and event.source == "environment":
            environment[place] = None if event.id in revoked else event.value
            prompts[place] += event.memory_ids
        elif event.kind is given and event.source == "person":
            rewards = people.setdefault(place, {})
            if event.id in revoked:
                rewards.pop(event.rater, None)
            else:
                rewards[event.rater] = event.value or 0.0
    for memory in bank.memories():
        place = writers.get(memory.id)
        if place is not None and memory.parents != prompts[place]:
            prompts[place] += memory.parents
    for event in changes:
        replaced = event.payload.get("replaces")
        if replaced and replaced[0] in writers:
            writers[event.memory_ids[0]] = writers[replaced[0]]
    recalls = Counter(writers[i] for prompt in prompts for i in set(prompt) if i in writers)
    return [
        RatedStep(
            row.id, row.run, row.step, row.epoch, row.task, policies[row.run], row.created,
            environment[place], people.get(place, NOBODY), recalls[place],
        )
        for place, row in enumerate(rows)
    ]  # fmt: skip
