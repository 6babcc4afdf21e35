"""What is measured of a run of the playground's world: numbers that presets, lessons and claims state.

`pages/playground/core.js` measures the same in the browser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from statistics import fmean

from memrl_core.lessons.plane import kept_and_gained, trained
from memrl_core.lessons.world import Memories, Play, Settings, Step, family_of, is_shifted

LENGTH = 288
BEFORE, AFTER = slice(96, 144), slice(240, 288)
"""The steps that are measured: the last 48 before the world shifts, and the last 48 of all."""
TRUSTED = 0.5
RATE = 0.3
"""The learning rate of the model that is trained on: the best of the seven of the plane."""


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run: its steps and what is remembered at its end."""

    steps: Sequence[Step]
    memory: Memories


def run_of(settings: Settings) -> Run:
    """The run with these settings."""
    play = Play(settings)
    steps = list(islice(play, LENGTH))
    return Run(steps, play.memory)


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


OF_RUN: Mapping[str, Callable[[Run], float]] = {
    "before": lambda run: _chance(run, BEFORE),
    "changed": lambda run: _chance(run, AFTER, True),
    "stayed": lambda run: _chance(run, AFTER, False),
    "gap": lambda run: run.steps[-1].ever - run.steps[-1].now,
    "never": lambda run: run.memory.uses.count(0) / LENGTH,
    "pair": _pair,
    "fallen": _fallen,
}
ON_THE_PLANE: Mapping[str, Callable[[Settings], float]] = {
    "kept": lambda settings: kept_and_gained(settings, settings.seed)[1],
    "gained": lambda settings: kept_and_gained(settings, settings.seed)[2],
    "trained_before": lambda settings: trained("value", RATE, settings.seed)[0],
    "trained_kept": lambda settings: trained("value", RATE, settings.seed)[1],
    "trained_gained": lambda settings: trained("value", RATE, settings.seed)[2],
}
MEASURES = (*OF_RUN, *ON_THE_PLANE)


def measured(name: str, settings: Settings) -> float:
    """One measure of one seed."""
    return OF_RUN[name](run_of(settings)) if name in OF_RUN else ON_THE_PLANE[name](settings)
