"""A world made of numbers, for studies: families of tasks, ways to do them, and how reliable each way is.

Every task belongs to a family. A family's tasks share words, so that the memories of a family are about equally similar
to a new task of it, and which of several ways works is a matter of chance: each way has its own hidden reliability.
Similarity cannot tell a reliable memory from an unreliable one of the same family; utility can. How far reliabilities
are spread, how far families lie apart, how often a reward is false and when the world changes are options, and how
often a task returns is a setting of the stream. Nothing knows which memory, if any, was used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from pydantic import Field

from memrl_core.environments.base import (
    Environment,
    EnvironmentOptions,
    EnvironmentSpec,
    StepResult,
    action_lines,
    choices_listed,
    last_step,
    steps_of_change,
)
from memrl_core.errors import InputError
from memrl_core.records import Judgement, RewardSource, Task

FAMILIES = 4
TASKS_OF_A_FAMILY = 500
WORDS = 10
"""Words of an intent that its family decides, of its own and of those that all share; one more is the task's own."""
SETS = {"parametric-far": 10, "parametric-middle": 5, "parametric-near": 2}
"""Set of tasks to how many of its words a family has for itself: what its distance to the others is."""
WAYS = ("Amber", "Birch", "Coral", "Denim", "Ember", "Fjord", "Grape", "Hazel")

INSTRUCTIONS = (
    "You choose how a task is done. Some ways work more often than others, and which they are depends on the kind of "
    "task. Answer with exactly one of the ways offered, without the dash. If earlier tasks are given, go by them."
)


@cache
def _order(world: int, family: int, ways: int, changes: int) -> tuple[int, ...]:
    """By way, the rank of its chance in `world` after so many `changes`."""
    rng = np.random.default_rng([world, family])
    order = rng.permutation(ways)
    for _ in range(changes):
        order = np.roll(order, rng.integers(1, ways))
    return tuple(int(rank) for rank in order)


class ParametricOptions(EnvironmentOptions):
    """The parameters of the world."""

    own_words: bool = Field(
        False,
        title="The model adds its own words",
        description="To each memory, at the cost of one more answer. A task and its way say all.",
    )
    world: int = Field(
        0,
        ge=0,
        title="World",
        description="Which way is how reliable is drawn from this number; where nobody chose, it is the run's seed.",
    )
    ways: int = Field(4, ge=2, le=len(WAYS), title="Ways", description="How many ways there are to do a task.")
    mean: float = Field(0.5, ge=0, le=1, title="Mean reliability", description="The mean chance of success of a way.")
    spread: float = Field(
        0.4,
        ge=0,
        le=0.5,
        title="Spread of reliability",
        description="The ways of a family work with chances from mean − spread to mean + spread, equally spaced and "
        "never outside 0 to 1. 0: all alike.",
    )
    noise: float = Field(
        0.0, ge=0, le=0.5, title="Noise of rewards", description="The chance that a result is reversed."
    )
    shift_at: int | list[int] = Field(
        0,
        title="The world changes at step",
        description="From this step on other ways are the reliable ones; the chances themselves stay. 0: never.",
    )


class Parametric(Environment):
    """The parametric world; `ParametricOptions` says what its arguments mean."""

    name = "parametric"
    spec = EnvironmentSpec(
        title="Parametric world",
        idea="Choose one of several ways to do a task, in one turn. Tasks come in families, and within a family the "
        "ways differ in how often they work: by how much is a parameter, as are noise, distance and change.",
        judged="By chance: 1 with the hidden reliability of the way chosen, else 0; with the chance of the option "
        "noise it is reversed.",
        source="Written for this program, for studies of when utility helps; the true chances are known.",
        answer_tokens=16,
    )
    Options = ParametricOptions
    sets = tuple(SETS)
    seed_option = "world"
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS
    max_turns = 1

    def __init__(self, **chosen: Any) -> None:
        options = self._options = ParametricOptions(**chosen)
        self._shifts, self._ways = steps_of_change(options.shift_at), WAYS[: options.ways]
        spread = np.linspace(options.mean - options.spread, options.mean + options.spread, options.ways)
        self._chances = np.clip(spread, 0, 1)
        self._task: Task | None = None
        self._chance_of: Mapping[str, float] = {}
        self._luck, self._flipped = 0.0, False

    def reliabilities(self, family: int, at_step: int) -> Mapping[str, float]:
        """Way to the true chance that it works for tasks of `family` at `at_step`: for studies, never for an agent.

        A change gives every way the chance of another; the chances of a family are the same before and after.
        """
        order = _order(self._options.world, family, len(self._ways), sum(at_step >= step for step in self._shifts))
        return {way: float(self._chances[rank]) for way, rank in zip(self._ways, order, strict=True)}

    def chance(self, task: Task, answer: str, at_step: int) -> float:
        """The true chance that `answer` solves `task` at `at_step`, without noise; 0 for what is no way."""
        return self.reliabilities(int(task.data["family"]), at_step).get(_way(answer), 0.0)

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`. Raises `InputError` when the task is not one of this world."""
        if self.faults(task):
            raise InputError(
                f"Task {task.id[:80]} is not one of the parametric world. Choose tasks of a parametric set."
            )
        self._chance_of = self.reliabilities(int(task.data["family"]), at_step)
        # One number decides for every way, so runs that choose differently meet the same luck.
        self._luck, false = np.random.default_rng(seed).random(2)
        self._flipped = bool(false < self._options.noise)
        self._task = task
        return choices_listed(self._ways)

    def step(self, action: str) -> StepResult:
        """Do the task in one way: the end of the episode. What is no way never works, whatever the noise."""
        if self._task is None:
            raise InputError("This episode has ended. Begin the next task.")
        self._task = None
        way = _way(action)
        if way in self._chance_of:
            success = bool(self._luck < self._chance_of[way]) != self._flipped
            message = f"{way} worked." if success else f"{way} did not work."
        else:
            success, message = False, f"There is no way “{way[:80]}”."
        best = max(self._chance_of, key=lambda known: self._chance_of[known])
        chances = ", ".join(f"{known} {chance:.0%}" for known, chance in self._chance_of.items())
        why = f"Chances: {chances}." + (" The noise turned the result round." if self._flipped else "")
        verdict = f"{'Solved' if success else 'Failed'}: {message}"
        return last_step(message, verdict, success, Judgement(best, way[:80], why))

    @classmethod
    def kind_of(cls, intent: str, task: Task | None) -> str:
        """The family of a task."""
        return "" if task is None else task.family

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        """The tasks of one of `sets`, one of each family in turn; the same ones every time."""
        if name not in SETS:
            return super().make_tasks(name)
        return list(_tasks(name))

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each."""
        family = task.data.get("family")
        known = isinstance(family, int) and 0 <= family < FAMILIES
        return [] if known else [f"family is a whole number from 0 to {FAMILIES - 1}, not “{str(family)[:80]}”."]


def _way(answer: str) -> str:
    return next(iter(action_lines(answer)), "").rstrip(".")


def _lexicon(count: int) -> list[str]:
    """`count` different made-up words of three syllables, in an order without a pattern; the same ones every time."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    numbers = np.random.default_rng(1).choice(len(syllables) ** 3, count, replace=False)
    n = len(syllables)
    return [syllables[x // n // n] + syllables[x // n % n] + syllables[x % n] for x in map(int, numbers)]


# A plan with many conditions asks for the same set again and again.
@cache
def _tasks(name: str) -> tuple[Task, ...]:
    rng = np.random.default_rng(0)
    lexicon = _lexicon(WORDS * (FAMILIES + 1) + FAMILIES * TASKS_OF_A_FAMILY)
    shared, own = lexicon[:WORDS], lexicon[WORDS * (FAMILIES + 1) :]
    tasks = []
    for number in range(TASKS_OF_A_FAMILY):
        for family in range(FAMILIES):
            of_family = lexicon[WORDS * (family + 1) :][:WORDS]
            words = [*of_family[: SETS[name]], *shared[SETS[name] :], own[number * FAMILIES + family]]
            # The order says nothing about the family.
            intent = " ".join(words[index] for index in rng.permutation(len(words)))
            tasks.append(
                Task(f"{name}-{family}-{number:03d}", intent, Parametric.name, f"family {family}", {"family": family})
            )
    return tuple(tasks)
