"""Which finished steps wait for a person's reward, in which order, and how steps are shared out among raters.

A random sample is drawn among all steps of the chosen run, policy and days, whoever has rated them; only then are those
left out that the person has rated. So a reward takes its own step out and moves no other, and the sample comes to an
end. As nobody's reward decides what is in it, it stands for all those steps, and people with the same seed rate the
same ones. Where some of it was rated before, fewer than `sample` steps are shown.

Each step gets one random number, the oldest step the first; the lowest numbers are the sample. A run that goes on adds
its steps at the end, so all earlier numbers stay: a new step may enter the sample and push its last one out, but the
others keep their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import chain, pairwise
from operator import attrgetter
from statistics import median
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memrl_core.analysis.people.agreement import disagreements, judgement
from memrl_core.analysis.run.metrics import Rate, rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.roles import person_name
from memrl_core.errors import InputError
from memrl_core.learning import REPLACES
from memrl_core.records import EventKind

# --- one person's way through a queue ---------------------------------------------------------------------------------

TOO_SOON = 0.3
"""Seconds after an output has come up within which nobody can have read it: a key that was held, or hit twice."""
WORDS_SEEN, LONGEST_WAIT = 6, 6
"""`TOO_SOON` once more for so many words that are to be read, 20 a second and faster than anybody reads; at most so
often more, since a glance can be enough for a long answer."""
LONGEST_GAP = 600.0
"""Seconds between two ratings from which the person was away."""

Item = Any
"""What is rated at once: a step, as (run, number), or a pair of steps; hashable."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many of `total` items are `done`, and the seconds per rating; None while these are not known."""

    done: int
    total: int
    pace: float | None


@dataclass
class RatingSession:
    """A queue that one person goes through.

    `at` is the position looked at, `len(items)` when the end is reached. `rated` is what was rated in this session and
    when; `skipped` comes again when nothing else is left; `closed` needs no rating any more, since others gave theirs.
    """

    items: tuple[Item, ...]
    at: int = 0
    rated: dict[Item, datetime] = field(default_factory=dict)
    skipped: set[Item] = field(default_factory=set)
    closed: set[Item] = field(default_factory=set)
    _shown: tuple[Item, float, float] | None = None

    @property
    def item(self) -> Item | None:
        """What is looked at; None at the end."""
        return self.items[self.at] if self.at < len(self.items) else None

    @property
    def progress(self) -> Progress:
        """How far the person is; the pace is the median time between two ratings of this session.

        A gap of more than ten minutes was a break, and one below zero a clock that was set back: neither counts.
        """
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(self.rated.values())]
        counted = [gap for gap in gaps if 0 <= gap <= LONGEST_GAP]
        total = len(self.rated) + len(self.items) - len(self.closed.union(self.rated))
        return Progress(len(self.rated), total, median(counted) if counted else None)

    def shows(self, clock: float, words: int = 0) -> None:
        """Note that what is looked at, so many words long, has come up at `clock`, in seconds of a clock that only runs
        forward."""
        if self.item is not None and (self._shown is None or self._shown[0] != self.item):
            self._shown = self.item, clock, TOO_SOON * (1 + min(words / WORDS_SEEN, LONGEST_WAIT))

    def too_soon(self, item: Item, clock: float) -> bool:
        """Whether `item` came up so shortly ago that nobody can have read it."""
        return self._shown is not None and self._shown[0] == item and clock - self._shown[1] < self._shown[2]

    def has_rated(self, item: Item, when: datetime) -> None:
        """Note a rating, and go on if it is of what is looked at: a click that arrives twice goes on once."""
        self.rated.setdefault(item, when)
        self.skipped.discard(item)
        if item == self.item:
            self._go_on()

    def skip(self) -> None:
        """Leave what is looked at for later."""
        if self.item is not None:
            self.skipped.add(self.item)
            self._go_on()

    def move(self, steps: int) -> None:
        """Look at another one, rated or not."""
        self.at = min(max(self.at + steps, 0), max(len(self.items) - 1, 0))

    def go_to(self, item: Item) -> None:
        """Look at one; what is not in the queue is put in before the one looked at."""
        if item not in self.items:
            self.items = (*self.items[: self.at], item, *self.items[self.at :])
        self.at = self.items.index(item)

    def take_back(self, item: Item) -> None:
        """Note that the rating of one was undone, and look at it."""
        self.rated.pop(item, None)
        self.closed.discard(item)
        self.go_to(item)

    def follow(self, waiting: Sequence[Item]) -> int:
        """Take in what waits now that others have rated, new ones at the end; returns how many are new.

        A person who was at the end looks at the first that waits again.
        """
        known = set(self.items)
        self.closed = known - set(waiting) - self.rated.keys()
        new = tuple(item for item in waiting if item not in known)
        self.items += new
        if self.item is None:
            self._go_on()
        return len(new)

    def _go_on(self) -> None:
        order = chain(range(self.at + 1, len(self.items)), range(min(self.at + 1, len(self.items))))
        waiting = [i for i in order if self.items[i] not in self.rated and self.items[i] not in self.closed]
        fresh = (i for i in waiting if self.items[i] not in self.skipped)
        self.at = next(chain(fresh, waiting), len(self.items))


# --- the steps of a bank with their rewards ---------------------------------------------------------------------------

NOBODY: Mapping[str, float] = {}


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
    task: str
    policy: str
    created: str
    environment: float | None
    people: Mapping[str, float]
    recalls: int


def facts_of(bank: MemoryBank) -> list[RatedStep]:
    """Every finished step of every run, oldest run first, with the rewards that `bank.ratings.active` finds for it.

    No trace is read. A step wrote a memory when an event of its attempt says so, which tells it from an imported one;
    other words that people put in its place count as that memory, and a merged one as the oldest of those merged. A
    step's prompt held the parents of what it wrote, and what its environment's reward went to; a step without either is
    not known to have used any memory.
    """
    policies = {info.id: info.policy for info in bank.runs()}
    rows = {row.id: row for run in policies for row in bank.steps.rows(run)}
    environment: dict[str, float | None] = {}
    people: dict[str, dict[str, float]] = {}
    prompts: dict[str, tuple[str, ...]] = defaultdict(tuple)
    writers: dict[str, str] = {}
    events = bank.events()
    revoked = {event.revokes for event in events if event.kind is EventKind.REWARD_REVOKED}
    for event in events:
        row = rows.get(event.step_id)
        if row is None or event.step != row.step or event.run != row.run:
            continue
        if event.kind is EventKind.MEMORY_WRITTEN:
            writers |= dict.fromkeys(event.memory_ids, row.id)
        elif event.kind is EventKind.REWARD_GIVEN and event.source == "environment":
            environment[row.id] = None if event.id in revoked else event.value
            prompts[row.id] += event.memory_ids
        elif event.kind is EventKind.REWARD_GIVEN and event.id in revoked:
            people.get(row.id, {}).pop(event.rater, None)
        elif event.kind is EventKind.REWARD_GIVEN:
            people.setdefault(row.id, {})[event.rater] = event.value or 0.0
    for memory in bank.memories():
        if memory.id in writers:
            prompts[writers[memory.id]] += memory.parents
    for event in events:
        oldest = next(iter(event.payload.get("replaces", ())), "") if event.kind in REPLACES else ""
        if oldest in writers:
            writers[event.memory_ids[0]] = writers[oldest]
    recalls = Counter(writers[i] for prompt in prompts.values() for i in set(prompt) if i in writers)
    return [
        RatedStep(
            row.id, row.run, row.step, row.task, policies[row.run], row.created,
            environment.get(row.id), people.get(row.id, NOBODY), recalls[row.id],
        )
        for row in rows.values()
    ]  # fmt: skip


# --- the queue --------------------------------------------------------------------------------------------------------

Show = Literal["awaiting", "batch", "wanting", "unrated", "disputed", "influential", "random", "all"]
Day = Annotated[date | None, BeforeValidator(lambda day: date.fromisoformat(day) if isinstance(day, str) else day)]
"""A day, in text as 2026-01-31 only: pydantic would also read digits as seconds since 1970."""
Bounds = Mapping[str, tuple[float, float]]

LARGEST_WHOLE = 2**53 - 1
"""The largest whole number that a field in a browser holds exactly."""

_age = attrgetter("created", "run", "step", "id")
_influence = attrgetter("recalls", "created", "run", "step", "id")


class QueueFilter(BaseModel):
    """Which steps a queue shows; the same on a page, in its address and in the core."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: str = Field("", title="Run", description="Of this run only; of every run when empty.")
    since: Day = Field(None, title="From", description="From this day (UTC) on.")
    until: Day = Field(None, title="To", description="Up to and with this day (UTC).")
    show: Show = Field(
        "awaiting",
        title="Show",
        description="awaiting: not rated by you. batch: of these, those assigned to you. wanting: of these, those that "
        "fewer people than are wanted have rated. unrated: rated by nobody. disputed: people differ among themselves. "
        "influential: awaiting, the most recalled first. random: a sample of "
        "those awaiting. all: every step.",
    )
    policy: str = Field("", title="Policy", description="Steps under this policy only; under any when empty.")
    seed: int = Field(0, ge=0, le=LARGEST_WHOLE, title="Seed", description="The same seed draws the same sample.")
    sample: int = Field(30, ge=1, le=100_000, title="Sample size", description="How many steps are drawn at random.")

    def to_query(self) -> dict[str, str]:
        """What differs from the default, as parameters of a URL."""
        return {name: str(value) for name, value in self.model_dump(mode="json", exclude_defaults=True).items()}

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> tuple[Self, list[str]]:
        """The filter in the parameters of a URL, and a sentence for each value that cannot be; other names are ignored.

        Such a value is left at its default.
        """
        named = {name: query[name] for name in cls.model_fields if name in query}
        try:
            return cls.model_validate_strings(named), []
        except ValidationError as error:
            wrong = {str(problem["loc"][0]): None for problem in error.errors()}
        sentences = [
            f"The link's {name} “{named.pop(name)[:80]}” cannot be used, so the default was taken; choose another."
            for name in wrong
        ]
        return cls.model_validate_strings(named), sentences

    def lets_in(self, step: RatedStep) -> bool:
        """Whether a step is of the chosen run, policy and days."""
        within = str(self.since or "") <= step.created[:10] <= str(self.until or "9999")
        return within and self.run in ("", step.run) and self.policy in ("", step.policy)


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
    """The steps that `rater` is shown, first one first; without an order of their own, in that of `facts`.

    `wanted` maps every run to how many people should rate its steps, `bounds` to its (r−, r+); `assigned` are the steps
    of the rater's parts of batches, in their order. The newest steps are those created last.
    """
    inside = [step for step in facts if chosen.lets_in(step)]
    waiting = [step for step in inside if rater not in step.people]
    match chosen.show:
        case "awaiting":
            return waiting
        case "batch":
            at = {(step.run, step.step): step for step in waiting}
            return [at[step] for step in assigned if step in at]
        case "wanting":
            return [step for step in waiting if len(step.people) < wanted[step.run]]
        case "unrated":
            return [step for step in inside if not step.people]
        case "disputed":
            return _disputed(inside, bounds)
        case "influential":
            return sorted(waiting, key=_influence, reverse=True)
        case "random":
            by_age = sorted(inside, key=_age)
            numbers = np.random.default_rng(chosen.seed).random(len(by_age))
            drawn = [by_age[index] for index in np.argsort(numbers, kind="stable")[: chosen.sample].tolist()]
            return [step for step in drawn if rater not in step.people]
        case "all":
            return sorted(inside, key=_age, reverse=True)


def pairs(facts: Sequence[RatedStep], chosen: QueueFilter, rater: str) -> list[tuple[RatedStep, RatedStep]]:
    """Two answers to one task each, of which `rater` has not rated both: the two oldest, the two after them, and so on.

    No answer is in two pairs, so no comparison takes the place of another. Of the filter, run, policy and days count. A
    task that was answered once has no pair.
    """
    tasks: dict[str, list[RatedStep]] = defaultdict(list)
    for step in sorted(filter(chosen.lets_in, facts), key=_age):
        tasks[step.task].append(step)
    return [
        (first, second)
        for steps in tasks.values()
        for first, second in zip(steps[::2], steps[1::2], strict=False)
        if rater not in first.people or rater not in second.people
    ]


def _disputed(steps: Sequence[RatedStep], bounds: Bounds) -> list[RatedStep]:
    """Those that count as in dispute among people, run by run, each run's most disputed first."""
    rows: list[RatedStep] = []
    for run in dict.fromkeys(step.run for step in steps):
        (low, high), members = bounds[run], {step.id: step for step in steps if step.run == run}
        given = {step.id: step.people for step in members.values()}
        rows += [members[one.step_id] for one in disagreements(given, (low + high) / 2, (high - low) / 2)]
    return rows


# --- batches: steps shared out among raters ---------------------------------------------------------------------------

ENVIRONMENT = ""
"""Whose rewards are known: the environment's, or else those of the person of that name."""
UNCHANGED = "Nothing was saved"


@dataclass(frozen=True, slots=True)
class PartProgress:
    """How far a rater is with their part, and on how many gold items their judgement is that of the known reward."""

    rater: str
    steps: int
    done: int
    gold: Rate


def drawn_batch(
    name: str,
    steps: Sequence[RatedStep],
    raters: Iterable[str],
    *,
    count: int,
    overlap: int = 1,
    gold_share: float = 0.0,
    known: str = ENVIRONMENT,
    seed: int = 0,
) -> Batch:
    """A batch of `count` of these steps of one run, or of all if there are fewer, drawn with a seed; not stored yet.

    Each step goes to `overlap` raters who have not rated it, or to as many as there are, so that all have equally much
    to do. `gold_share` of the steps are gold items: the reward that `known` gave is remembered. They lie anywhere in
    the queues and look like the others. Raises `InputError` where that cannot be.
    """
    names = list(dict.fromkeys(person_name(rater) for rater in raters if rater.strip()))
    if not names:
        raise InputError(f"Nobody would rate this batch. {UNCHANGED}; name one rater or more.")
    if not 1 <= overlap <= len(names):
        raise InputError(
            f"A step cannot get {overlap} ratings of {len(names)} raters. {UNCHANGED}; name more, or want fewer."
        )
    if known in names:
        raise InputError(f"{known[:80]} cannot rate what {known[:80]}'s own rewards are to judge. {UNCHANGED}.")
    open_to = {step.step: [rater for rater in names if rater not in step.people] for step in steps}
    candidates = [step for step in steps if open_to[step.step]]
    if not candidates:
        raise InputError(f"These raters have rated all of these steps. {UNCHANGED}; choose other steps.")
    rng = np.random.default_rng(seed)
    mixed = [candidates[index] for index in rng.permutation(len(candidates))]
    count = min(count, len(mixed))
    wanted_gold = round(gold_share * count)
    rewards = {step.step: step.people.get(known) if known else step.environment for step in mixed}
    truth = {step: reward for step, reward in rewards.items() if reward is not None}
    if wanted_gold > len(truth):
        raise InputError(
            f"{wanted_gold} gold items are wanted, and {len(truth)} of these steps have a reward of "
            f"{known[:80] or 'the environment'}. {UNCHANGED}; want fewer, or let another's rewards be known."
        )
    gold = list(truth)[:wanted_gold]
    others = [step for step in rewards if step not in set(gold)][: count - len(gold)]
    return Batch(
        run=candidates[0].run,
        name=name,
        parts=shared_out(dict.fromkeys([*gold, *others], overlap), open_to, names, rng),
        gold={step: truth[step] for step in gold},
        overlap=overlap,
        seed=seed,
    )


def shared_out(
    wanted: Mapping[int, int], open_to: Mapping[int, Sequence[str]], raters: Sequence[str], rng: np.random.Generator
) -> dict[str, tuple[int, ...]]:
    """Each rater's steps in a drawn order, equally many for all as far as can be.

    `wanted` says how many raters each step gets, gold items first, so that each rater gets equally much of these too;
    `open_to` says who may have it.
    """
    parts: dict[str, list[int]] = {rater: [] for rater in raters}
    for step, overlap in wanted.items():
        by_chance = [open_to[step][index] for index in rng.permutation(len(open_to[step]))]
        for rater in sorted(by_chance, key=lambda one: len(parts[one]))[:overlap]:
            parts[rater].append(step)
    return {rater: tuple(int(step) for step in rng.permutation(part)) for rater, part in parts.items()}


def assigned_to(batches: Iterable[Batch], rater: str) -> list[tuple[str, int]]:
    """The steps, (run, number), of a rater's parts of all batches of rewards that are open, the oldest batch first."""
    opened = (batch for batch in batches if not batch.closed and batch.kind == "reward")
    return list(dict.fromkeys((batch.run, step) for batch in opened for step in batch.parts.get(rater, ())))


def batch_progress(batch: Batch, facts: Iterable[RatedStep], midpoint: float) -> list[PartProgress]:
    """Each rater's progress in a batch, by the rewards that stand in `facts`."""
    people = {step.step: step.people for step in facts if step.run == batch.run}
    rows = []
    for rater, steps in batch.parts.items():
        given = {step: people[step][rater] for step in steps if rater in people.get(step, {})}
        gold = [(given[step], batch.gold[step]) for step in given if step in batch.gold]
        right = [judgement(one, midpoint) == judgement(truth, midpoint) for one, truth in gold]
        rows.append(PartProgress(rater, len(steps), len(given), rate("success" if one else "failure" for one in right)))
    return rows
