"""What is measured of a run of the playground's world: numbers that presets, lessons and claims state.

`pages/playground/core.js` measures the same in the browser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from statistics import fmean
from typing import Any

from memrl_core.lessons.world import (
    ALL,
    CHANCES,
    TASKS,
    Loss,
    Memories,
    Play,
    Settings,
    Step,
    Training,
    answer_to,
    decide,
    family_of,
    is_held,
    is_shifted,
)

LENGTH = 288
FLOOR, CEILING = fmean(CHANCES), max(CHANCES)
"""What guessing gets, and the best that there is: between them lies every mean chance of success."""
BEFORE, AFTER = slice(0, 144), slice(144, LENGTH)
"""All steps before the world shifts, and all from the shift on: a shorter part of a curve may say the opposite."""
LAST_BEFORE, FIRST_AFTER, LAST = slice(96, 144), slice(144, 192), slice(240, LENGTH)
"""Two epochs each: what is reached before the shift, what is left right after it, and what is reached at the end."""
TRUSTED = 0.5
RATE = 0.3
"""The learning rate of the model that is trained on: the best of the seven of the plane."""
REPLAY, ANCHOR = 1, 0.02
"""Of the two remedies: how many earlier steps are replayed after each, and by which part weights are pulled back."""


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run: its steps, what is remembered at its end, and of how many of the latest memories there were."""

    steps: Sequence[Step]
    memory: Memories
    keep: int
    seed: int


def run_of(settings: Settings) -> Run:
    """The run with these settings."""
    play = Play(settings)
    steps = list(islice(play, LENGTH))
    return Run(steps, play.memory, settings.keep, settings.seed)


def _chance(run: Run, part: slice, changed: bool | None = None) -> float:
    """Mean true chance of success of the ways taken."""
    steps = run.steps[part]
    return fmean(one.chance for one in steps if changed is None or is_shifted(family_of(one.task)) is changed)


def _pair(run: Run) -> float:
    """How far q of two memories with the same words lie apart, at most: same task, way and outcome, both used."""
    memory = run.memory
    alike: dict[tuple[int, int, bool], list[float]] = {}
    for number, key in enumerate(zip(memory.task, memory.way, memory.success, strict=True)):
        if memory.uses[number]:
            alike.setdefault(key, []).append(memory.q[number])
    return max((abs(a - b) for same in alike.values() for a, b in combinations(same, 2)), default=0.0)


def _fallen(run: Run) -> float:
    """Of the memories of what changed with q of 0.5 and more at the shift, the share whose q ends below 0."""
    q = [0.0] * LENGTH
    for step in run.steps[: BEFORE.stop]:
        for number, value in zip(step.choice.chosen, step.moved, strict=True):
            q[number] = value
    trusted = [i for i in range(BEFORE.stop) if q[i] >= TRUSTED and is_shifted(family_of(run.steps[i].task))]
    return fmean(run.memory.q[i] < 0 for i in trusted) if trusted else 0.0


def _precision(run: Run) -> float:
    """Of what is recalled for a task, the share that is of its own family; a mean over the steps that recall any."""
    return fmean([of_family / len(pool) for pool, of_family, _ in _recalled(run) if pool])


def _recall(run: Run) -> float:
    """Of the memories of a task's family, the share that is recalled; a mean over the steps where there is one."""
    return fmean([of_family / relevant for _, of_family, relevant in _recalled(run) if relevant])


def _false_recall(run: Run) -> float:
    """Of the steps for which no memory is of the task's family, the share that recalls something all the same."""
    return fmean([bool(pool) for pool, _, relevant in _recalled(run) if not relevant])


def _recalled(run: Run) -> Sequence[tuple[Sequence[int], int, int]]:
    """Of each step the pool, how many of it are of the task's family, and how many of those there are."""
    families = [family_of(task) for task in run.memory.task]
    found: list[tuple[Sequence[int], int, int]] = []
    for number, step in enumerate(run.steps):
        family, pool = family_of(step.task), step.choice.pool
        known = families[max(0, number - run.keep) : number]
        found.append((pool, sum(families[one] == family for one in pool), known.count(family)))
    return found


def _company(run: Run) -> float:
    """Of the memories that get a reward, the share without which the model, by the same draw, had done the same.

    This is leave-one-out: each of the chosen is taken from the prompt once.
    """
    same, all_of_them = 0, 0
    for step in run.steps:
        for number in step.choice.chosen:
            others = [other for other in step.choice.chosen if other != number]
            same += answer_to(run.memory, others, run.seed, step.step) == step.choice.way
            all_of_them += 1
    return same / all_of_them


# Learning is `before`; what it leads to is `level`. What the shift takes is `drop`, what comes back of it `recovery`,
# both of the tasks that it changes. What is kept and what is gained have their exam, on the plane below.
OF_RUN: Mapping[str, Callable[[Run], float]] = {
    "before": lambda run: _chance(run, BEFORE),
    "level": lambda run: _chance(run, LAST_BEFORE),
    "changed": lambda run: _chance(run, AFTER, True),
    "stayed": lambda run: _chance(run, AFTER, False),
    "drop": lambda run: _chance(run, LAST_BEFORE, True) - _chance(run, FIRST_AFTER, True),
    "recovery": lambda run: _chance(run, LAST, True) - _chance(run, FIRST_AFTER, True),
    "gap": lambda run: run.steps[-1].ever - run.steps[-1].now,
    "never": lambda run: run.memory.uses.count(0) / LENGTH,
    "pair": _pair,
    "fallen": _fallen,
    "precision": _precision,
    "recall": _recall,
    "false_recall": _false_recall,
    "company": _company,
}
ON_THE_PLANE: Mapping[str, Callable[[Settings], float]] = {
    "seen": lambda settings: transferred(settings)[0],
    "held_out": lambda settings: transferred(settings)[1],
    "kept": lambda settings: kept_and_gained(settings, settings.seed)[1],
    "gained": lambda settings: kept_and_gained(settings, settings.seed)[2],
    "trained_before": lambda settings: trained("value", RATE, settings.seed)[0],
    "trained_kept": lambda settings: trained("value", RATE, settings.seed)[1],
    "trained_gained": lambda settings: trained("value", RATE, settings.seed)[2],
    "replayed_kept": lambda settings: trained("value", RATE, settings.seed, replay=REPLAY)[1],
    "replayed_gained": lambda settings: trained("value", RATE, settings.seed, replay=REPLAY)[2],
    "anchored_kept": lambda settings: trained("value", RATE, settings.seed, anchor=ANCHOR)[1],
    "anchored_gained": lambda settings: trained("value", RATE, settings.seed, anchor=ANCHOR)[2],
}
MEASURES = (*OF_RUN, *ON_THE_PLANE)


def measured(name: str, settings: Settings) -> float:
    """One measure of one seed."""
    return OF_RUN[name](run_of(settings)) if name in OF_RUN else ON_THE_PLANE[name](settings)


# --- the plane --------------------------------------------------------------------------------------------------------
# What a memory keeps of the old world, against what it gains in the new; for α and λ, and for training. For 144 steps
# all tasks come. Then the world shifts: every second family has other reliable ways, and for 96 steps only its tasks
# come. At the end there is an exam without learning, of every task once. Kept is the mean true chance of success of the
# ways taken for the tasks of the families that stayed, gained the same for the families that changed. 0.9 is the best
# there is, 0.4 what guessing gets.

LEARNING = 144
RESTING = 96


def transferred(settings: Settings) -> tuple[float, float]:
    """After `LEARNING` steps of a world that stays, in which one task of each family never comes: the mean true chance
    in an exam without learning, of the tasks that came and of those that did not."""
    settings = replace(settings, change=0.0, shifts=(), held=True)
    play = Play(settings)
    for _ in islice(play, LEARNING):
        pass
    chances: dict[bool, list[float]] = {False: [], True: []}
    for task in ALL:
        way = decide(play.memory, task, settings, 1000 + task, 0.0).way
        chances[is_held(task)].append(play.chance(task, way))
    return fmean(chances[False]), fmean(chances[True])


Result = tuple[float, float, float]
"""The old before the shift, the old at the end (kept), the new at the end (gained)."""


def kept_and_gained(settings: Settings, seed: int) -> Result:
    """One seed of a memory with these settings."""
    settings = _on_the_plane(settings, seed)
    play = Play(settings)
    steps = iter(play)
    return _measured(steps, play.chance, lambda task: decide(play.memory, task, settings, 1000 + task, 0.0).way)


def trained(loss: Loss, rate: float, seed: int, replay: int = 0, anchor: float = 0.0) -> Result:
    """One seed of a model that is trained on instead, perhaps with a remedy against forgetting."""
    training = Training(_on_the_plane(Settings(), seed), loss, rate, replay, anchor)

    def way_of(task: int) -> int:
        rated = training.rated(task)
        return rated.index(max(rated))

    return _measured(iter(training), lambda task, way: CHANCES[training.world[family_of(task)][way]], way_of)


def _on_the_plane(settings: Settings, seed: int) -> Settings:
    return replace(settings, seed=seed, change=0.0, shifts=(LEARNING + 1,), rest=True)


def _measured(steps: Any, chance: Callable[[int, int], float], way_of: Callable[[int], int]) -> Result:
    def exam() -> tuple[float, float]:
        sums = [0.0, 0.0]
        for task in ALL:
            sums[is_shifted(family_of(task))] += chance(task, way_of(task))
        return sums[0] / (TASKS / 2), sums[1] / (TASKS / 2)

    for _ in islice(steps, LEARNING):
        pass
    before, _ = exam()
    for _ in islice(steps, RESTING):
        pass
    return (before, *exam())
