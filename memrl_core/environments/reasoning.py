"""Short questions with one right answer, from reasoning-gym: made from seeds, offline, and judged without a model.

Of its more than hundred families those stand here whose questions and answers are short, and whose answers are compared
as texts: others are judged by evaluating what was answered, and what a model says is never evaluated here.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from memrl_core.environments.base import Environment, EnvironmentSpec, StepResult, action_lines, last_step
from memrl_core.errors import InputError
from memrl_core.records import Judgement, RewardSource, Task

FAMILIES = (
    "aiw", "base_conversion", "basic_arithmetic", "bf", "binary_alternation", "count_bits", "count_primes",
    "course_schedule", "gcd", "isomorphic_strings", "largest_island", "lcm", "leg_counting", "letter_counting",
    "list_functions", "maze", "number_sequence", "ransom_note", "simple_equations", "simple_geometry",
    "syllogism", "word_sequence_reversal",
)  # fmt: skip
SETS = {"reasoning-train": (1, 8), "reasoning-heldout": (1001, 4)}
"""Set of tasks to the seed that it is made from, and its tasks of each family.

A question is drawn from seed + place, so the seeds of two sets lie further apart than their places.
"""
PLACES = 32
"""Questions of a family and seed; some families draw something for each of them at once."""
INSTRUCTIONS = (
    "You answer a question. Answer with the result alone, on one line, without words around it. If earlier tasks are "
    "given, go by how they were answered."
)


class Reasoning(Environment):
    """Questions of reasoning-gym; a task holds its family, seed and place, never its answer."""

    name = "reasoning"
    spec = EnvironmentSpec(
        title="Reasoning",
        idea="Answer a short question in one turn: arithmetic, strings, small puzzles, logic.",
        judged="By reasoning-gym: 1 for the right answer, compared as a text, else 0.",
        source="reasoning-gym (Stojanovski et al. 2025, arXiv 2505.24760), made from fixed seeds.",
        needs="pip install 'memrl-inspector[reasoning]'",
        answer_tokens=64,
    )
    sets = tuple(SETS)
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS
    max_turns = 1

    def __init__(self) -> None:
        self._dataset: Any = None
        self._entry: Any = None

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`. Raises `InputError` when the task is not one of these, or the package is missing."""
        if faults := self.faults(task):
            raise InputError(f"Task {task.id[:80]} is not a question of reasoning-gym: {faults[0]}")
        family, made_from, place = (task.data[name] for name in ("family", "seed", "place"))
        self._dataset = _dataset(family, made_from)
        self._entry = self._dataset[place]
        return "Answer in one line."

    def step(self, action: str) -> StepResult:
        """Answer: the end of the episode."""
        if self._entry is None:
            raise InputError("This episode has ended. Begin the next task.")
        entry, self._entry = self._entry, None
        answer = next(iter(action_lines(action)), "").strip().removesuffix(".")
        success = self._dataset.score_answer(answer, entry) >= 1.0
        message = f"“{answer[:80]}” is {'right' if success else 'wrong'}."
        judgement = Judgement(str(entry["answer"])[:200], answer[:200], "Compared as texts.")
        return last_step(message, message, success, judgement)

    @classmethod
    def missing(cls) -> str:
        """What this machine lacks to run it, as a sentence with its remedy; "" when nothing."""
        if importlib.util.find_spec("reasoning_gym") is None:
            return "The package reasoning-gym is not installed. Install it: pip install 'memrl-inspector[reasoning]'."
        return ""

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        """The tasks of one of `sets`, one of each family in turn; the same ones every time."""
        if name not in SETS:
            return super().make_tasks(name)
        seed, count = SETS[name]
        return [
            Task(
                f"{name}-{family}-{index:02d}",
                " ".join(_dataset(family, seed)[index]["question"].split()),
                cls.name,
                family,
                {"family": family, "seed": seed, "place": index},
            )
            for index in range(count)
            for family in FAMILIES
        ]

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each."""
        found = []
        if task.data.get("family") not in FAMILIES:
            found.append(f"family is one of {', '.join(FAMILIES)}.")
        for name, end in (("seed", 2**31), ("place", PLACES)):
            value = task.data.get(name)
            if type(value) is not int or not 0 <= value < end:
                found.append(f"{name} is a whole number from 0 to {end - 1:,}.")
        return found


@cache
def _dataset(family: str, seed: int) -> Any:
    if why := Reasoning.missing():
        raise InputError(why)
    from reasoning_gym.factory import create_dataset

    return create_dataset(family, seed=seed, size=PLACES)
