"""The world of the playground and the lessons: families of tasks, ways with hidden chances, a memory, a frozen model.

A task belongs to a family, and which of four ways works is a matter of chance that the family decides: 0.9, 0.4, 0.2 or
0.1. Similarity tells the families apart, mostly, and never a good way from a bad one. The model is frozen: of the
memories that it is given it does what worked and leaves what failed. The memory learns: phases A and B are those of
`memrl_core.retrieval`, q moves by `memrl_core.learning`, and every step writes a memory. When the world shifts, the
ways of every second family are turned round: the chances stay, other ways have them.

`pages/playground/core.js` is the same in JavaScript, number for number. For that, every draw is a hash of what it is
for, embeddings lie on a grid on which their products are exact, and only operations are used that IEEE 754 defines to
the last bit. Only the draws of ε and of the model are this module's own; those among equals are the program's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

from memrl_core.learning import updated_q
from memrl_core.retrieval import positions_in, recall, select
from memrl_core.retrieval.view import MemoryView

FAMILIES = 8
TASKS_OF_A_FAMILY = 3
TASKS = FAMILIES * TASKS_OF_A_FAMILY
WAYS = 4
CHANCES = (0.9, 0.4, 0.2, 0.1)
DIMENSION = 12
GRID = 2**20
ALL = tuple(range(TASKS))
DRAWS = {
    "way": 1,
    "roll": 2,
    "order": 3,
    "change": 4,
    "changed": 5,
    "rolled": 6,
    "explore": 7,
    "model": 8,
    "luck": 9,
    "sample": 10,
    "jitter": 11,
    "replay": 20,
    "slate": 32,
}
"""What is drawn, and the number that it is drawn by."""

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides a run. `keep` is how many of the latest memories there are; older ones are forgotten.

    `shifts` are the steps before which the world shifts. With `rest`, only the tasks of the families that the first
    shift changes come from then on. With `held` the last task of each family never comes: what an exam asks of it
    has come over from the others.
    """

    seed: int = 1
    alpha: float = 0.3
    weight: float = 0.5
    epsilon: float = 0.0
    change: float = 0.0
    delta: float = -1.0
    k1: int = 24
    k2: int = 3
    keep: int = 1_000_000
    shifts: tuple[int, ...] = (145,)
    rest: bool = False
    held: bool = False


@dataclass(slots=True)
class Memories:
    """What the agent remembers, oldest first: the task, the way, whether it worked, q and how often it was used."""

    task: list[int] = field(default_factory=list)
    way: list[int] = field(default_factory=list)
    success: list[bool] = field(default_factory=list)
    q: list[float] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the agent does with a task: the pool, its scores, the memories for the model, and the way it takes."""

    pool: tuple[int, ...]
    score: tuple[float, ...]
    chosen: tuple[int, ...]
    explored: bool
    way: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `moved` is q of the chosen after it; `now` and `ever` are shares of all tasks: solved at their latest
    attempt, and at any."""

    step: int
    task: int
    choice: Choice
    chance: float
    success: bool
    moved: tuple[float, ...]
    now: float
    ever: float


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def draw(seed: int, step: int, what: int) -> float:
    """A number in [0, 1), by what it is drawn for alone: whatever else is drawn, or not, changes nothing."""
    return _mixed((_mixed((_mixed(seed ^ 0x9E3779B9) + step) & _MASK) + what) & _MASK) / 2**32


def family_of(task: int) -> int:
    """The family of a task."""
    return task // TASKS_OF_A_FAMILY


def is_held(task: int) -> bool:
    """Whether a task is the last of its family, which never comes where `held` is set."""
    return task % TASKS_OF_A_FAMILY == TASKS_OF_A_FAMILY - 1


def is_shifted(family: int, shift: int = 0) -> bool:
    """Whether a shift, counted from 0, changes a family: every second one, and the others the next time."""
    return (family + shift) % 2 == 0


@cache
def embeddings() -> npt.NDArray[np.float32]:
    """The unit vectors of all tasks (n, d): what all have in common, the family's place on its ring, and the rest."""
    rows = []
    for task in ALL:
        family, raw = family_of(task), [0.6] + [0.0] * (DIMENSION - 1)
        raw[1 + family] = 1.0
        raw[1 + (family + 1) % FAMILIES] = raw[1 + (family - 1) % FAMILIES] = 0.45
        for i in range(3):
            raw[9 + i] = 1.1 * draw(0, task, DRAWS["jitter"] + i) - 0.55
        square = 0.0
        for one in raw:
            square += one * one
        norm = math.sqrt(square)
        rows.append([math.floor(one / norm * GRID + 0.5) / GRID for one in raw])
    return np.array(rows, dtype=np.float32)


def first_world(seed: int) -> list[list[int]]:
    """For each family, the place in `CHANCES` of each way."""
    world = []
    for family in range(FAMILIES):
        ranks = list(range(WAYS))
        for i in range(WAYS - 1, 0, -1):
            j = int(draw(seed, family * WAYS + i, DRAWS["way"]) * (i + 1))
            ranks[i], ranks[j] = ranks[j], ranks[i]
        world.append(ranks)
    return world


def change_world(world: list[list[int]], settings: Settings, step: int) -> None:
    """Change `world` in place as it changes before a step: by a shift, or one family by chance."""
    seed = settings.seed
    for shift, at in enumerate(settings.shifts):
        if at == step:
            for family in range(FAMILIES):
                if is_shifted(family, shift):
                    _turn(world, family, draw(seed, shift * FAMILIES + family, DRAWS["roll"]))
    if draw(seed, step, DRAWS["change"]) < settings.change:
        _turn(world, int(draw(seed, step, DRAWS["changed"]) * FAMILIES), draw(seed, step, DRAWS["rolled"]))


def _turn(world: list[list[int]], family: int, by: float) -> None:
    ranks, places = world[family], 1 + int(by * (WAYS - 1))
    world[family] = [ranks[(way + places) % WAYS] for way in range(WAYS)]


def tasks_in_order(settings: Settings) -> Iterator[int]:
    """The tasks as they come: epoch for epoch, each once in an order of the epoch's own."""
    step = 1
    for epoch in count():
        resting = settings.rest and step >= settings.shifts[0]
        order = [
            task
            for task in ALL
            if (not resting or is_shifted(family_of(task))) and not (settings.held and is_held(task))
        ]
        for i in range(len(order) - 1, 0, -1):
            j = int(draw(settings.seed, epoch * TASKS + i, DRAWS["order"]) * (i + 1))
            order[i], order[j] = order[j], order[i]
        yield from order
        step += len(order)


def decide(memory: Memories, task: int, settings: Settings, step: int, epsilon: float) -> Choice:
    """What the agent does with a task, given what it remembers: phase A, phase B, the model's answer."""
    seed, n = settings.seed, len(memory.task)
    first = max(0, n - settings.keep)
    ids = [str(number) for number in range(first, n)]
    view = MemoryView(
        ids=ids,
        embeddings=embeddings()[memory.task[first:]],
        q=np.array(memory.q[first:], dtype=np.float64),
        visits=np.array(memory.uses[first:], dtype=np.int64),
        intent_groups=np.array(memory.task[first:], dtype=np.int64),
        rows={name: row for row, name in enumerate(ids)},
    )
    step_seed = seed * 100_000 + step
    recalled = recall(
        embeddings()[task], view, k1=settings.k1, k1_counts="record", delta=settings.delta, strict=True, seed=step_seed
    )
    rows = positions_in(view, recalled)
    decision = select(
        recalled,
        view.q[rows],
        view.visits[rows],
        k2=settings.k2,
        weight=settings.weight,
        normaliser="pool",
        fixed_mean=0.0,
        fixed_sd=1.0,
        epsilon=0.0,
        seed=step_seed,
    )
    pool = [int(member.memory_id) for member in recalled.pool]
    scores = {one.memory_id: one.score for one in decision.candidates}
    chosen = [int(name) for name in decision.selected]
    explored = draw(seed, step, DRAWS["explore"]) < epsilon
    if explored:
        chosen = _some(pool, len(chosen), seed, step)
    return Choice(
        tuple(pool),
        tuple([scores[str(number)] or 0.0 for number in pool]),
        tuple(chosen),
        explored,
        answer_to(memory, chosen, seed, step),
    )


def _some(pool: Sequence[int], size: int, seed: int, step: int) -> list[int]:
    """Any `size` of the pool: ε draws the whole slate, as the official code does."""
    places = list(pool)
    for i in range(size):
        j = i + int(draw(seed, step, DRAWS["slate"] + i) * (len(places) - i))
        places[i], places[j] = places[j], places[i]
    return places[:size]


def answer_to(memory: Memories, chosen: Sequence[int], seed: int, step: int) -> int:
    """The way that the frozen model takes: a memory of success is a vote for its way, one of failure a vote against."""
    votes = [0] * WAYS
    for number in chosen:
        votes[memory.way[number]] += 1 if memory.success[number] else -1
    best = [way for way in range(WAYS) if votes[way] == max(votes)]
    return best[int(draw(seed, step, DRAWS["model"]) * len(best))]


@dataclass(slots=True)
class Play:
    """An agent in the world: iterate to make its steps, without end. `memory` and `world` are as after the last."""

    settings: Settings
    memory: Memories = field(default_factory=Memories)
    world: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.world = first_world(self.settings.seed)

    def __iter__(self) -> Iterator[Step]:
        settings, memory = self.settings, self.memory
        latest, ever = [False] * TASKS, [False] * TASKS
        for step, task in enumerate(tasks_in_order(settings), start=1):
            change_world(self.world, settings, step)
            choice = decide(memory, task, settings, step, settings.epsilon)
            chance = self.chance(task, choice.way)
            success = draw(settings.seed, step, DRAWS["luck"]) < chance
            for number in choice.chosen:
                memory.q[number] = updated_q(memory.q[number], 1.0 if success else -1.0, settings.alpha)
                memory.uses[number] += 1
            moved = tuple([memory.q[number] for number in choice.chosen])
            memory.task.append(task)
            memory.way.append(choice.way)
            memory.success.append(success)
            memory.q.append(0.0)
            memory.uses.append(0)
            latest[task] = success
            ever[task] = ever[task] or success
            yield Step(step, task, choice, chance, success, moved, sum(latest) / TASKS, sum(ever) / TASKS)

    def chance(self, task: int, way: int) -> float:
        """The true chance that a way solves a task in the world as it is now."""
        return CHANCES[self.world[family_of(task)][way]]


Loss = Literal["value", "policy"]


@dataclass(slots=True)
class Training:
    """A model that is trained on instead: linear in the embedding of the task, one row of weights for each way.

    It takes the way that it rates highest and makes one step of stochastic gradient descent on every reward: on the
    squared error of the reward that it predicted (`value`), or, as a softmax classifier, on −reward × log p (`policy`).
    With `replay` it learns again, after each step, from so many of the steps before it, drawn by chance. With `anchor`
    each step from the first shift on pulls the weights by that part back to what they were there: a regularisation.
    """

    settings: Settings
    loss: Loss
    rate: float
    replay: int = 0
    anchor: float = 0.0
    weights: list[list[float]] = field(default_factory=lambda: [[0.0] * DIMENSION for _ in range(WAYS)])
    world: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.world = first_world(self.settings.seed)

    def __iter__(self) -> Iterator[tuple[int, int, bool]]:
        """The task, the way and whether it worked, of every step."""
        seed, done = self.settings.seed, []
        kept: list[list[float]] | None = None
        for step, task in enumerate(tasks_in_order(self.settings), start=1):
            change_world(self.world, self.settings, step)
            if self.settings.shifts and step == self.settings.shifts[0]:
                kept = [list(row) for row in self.weights]
            rated = self.rated(task)
            best = [way for way in range(WAYS) if rated[way] == max(rated)]
            way = best[int(draw(seed, step, DRAWS["sample"]) * len(best))]
            success = draw(seed, step, DRAWS["luck"]) < CHANCES[self.world[family_of(task)][way]]
            done.append((task, way, 1.0 if success else -1.0))
            self._learn(*done[-1])
            for i in range(self.replay):
                self._learn(*done[int(draw(seed, step, DRAWS["replay"] + i) * len(done))])
            if kept is not None:
                for row, old in zip(self.weights, kept, strict=True):
                    for i in range(DIMENSION):
                        row[i] += self.anchor * (old[i] - row[i])
            yield task, way, success

    def _learn(self, task: int, way: int, reward: float) -> None:
        x = embeddings()[task].tolist()
        for other, error in enumerate(self._errors(self.rated(task), way, reward)):
            row = self.weights[other]
            for i in range(DIMENSION):
                row[i] += self.rate * error * x[i]

    def rated(self, task: int) -> list[float]:
        """What the model thinks of each way."""
        rated = []
        for row in self.weights:
            total = 0.0
            for weight, one in zip(row, embeddings()[task].tolist(), strict=True):
                total += weight * one
            rated.append(total)
        return rated

    def _errors(self, rated: Sequence[float], way: int, reward: float) -> list[float]:
        if self.loss == "value":
            return [reward - rated[way] if other == way else 0.0 for other in range(WAYS)]
        e = [exponential(one) for one in rated]
        whole = e[0] + e[1] + e[2] + e[3]
        return [reward * ((1.0 if other == way else 0.0) - e[other] / whole) for other in range(WAYS)]


def exponential(x: float) -> float:
    """e^x by its series, the argument halved five times: the same in every language."""
    y = x / 32
    total = term = 1.0
    for k in range(1, 15):
        term = term * y / k
        total += term
    for _ in range(5):
        total *= total
    return total
