"""What a frozen memory is worth to another model, and two that were learned apart when they are merged.

Source: arXiv 2601.03192 v2, tables 5 (the memory of one model given to others) and 6 (the merged memories of two
benchmarks used on each).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.exchange.new_banks import merge_runs
from memrl_core.experiments.plan import named_tasks
from memrl_core.experiments.studies.study import (
    FrozenUse,
    Memories,
    Progress,
    Study,
    Use,
    checked_seeds,
    difference,
    used_by_seed,
)
from memrl_core.models.base import Cancelled
from memrl_core.records import Task
from memrl_core.settings import MemRLSettings

NO_MEMORY = "no memory"


def run_cross_model(
    bank: MemoryBank,
    models: Sequence[str],
    learn_on: str,
    use_on: str = "",
    *,
    tasks: int = 0,
    seeds: Sequence[int] = range(5),
    epochs: int = 3,
    settings: MemRLSettings | None = None,
    preferences: workspace.Preferences | None = None,
    on_progress: Progress | None = None,
    cancelled: Cancelled | None = None,
) -> FrozenUse:
    """Learn with each model on the set `learn_on`, then let each use each memory, and none, on `use_on` ("": the same).

    Models are named as in `make_model`, sets as in `named_tasks`, of which the first `tasks` count (0: all). In the
    result, memories are named by the model that learned them, each compared with no memory and with the user's own.
    Every run is kept in `bank`. Raises `InputError` for models, sets and seeds that cannot be used, before anything is
    stored, and what a run raises.
    """
    chosen = checked_seeds(seeds, epochs)
    if len(models) < 2 or len(set(models)) < len(models):
        raise InputError("Name at least two different models. Nothing was started.")
    use_on = use_on or learn_on
    lessons, trial = named_tasks(learn_on, tasks), named_tasks(use_on, tasks)
    study = Study(bank, "cross", models, settings, preferences, on_progress, cancelled)
    study.total = len(chosen) * len(models) * (epochs * len(lessons) + (len(models) + 1) * len(trial))

    def learned(seed: int) -> Memories:
        runs = {m: study.learn(f"s{seed}-{_part(models, m)}", lessons, epochs, seed, m) for m in models}
        return {NO_MEMORY: None, **runs}

    def used(seed: int, memory: str, model: str, base: str | None) -> Use:
        return study.use(f"s{seed}-{_part(models, memory)}-to-{_part(models, model)}", trial, seed, model, base)

    memories = (NO_MEMORY, *models)
    arms, learning, stopped = used_by_seed(chosen, learned, used, memories, dict.fromkeys(models, len(trial)))
    pairs = [(m, NO_MEMORY, by) for by in models for m in models] + [
        (m, by, by) for by in models for m in models if m != by
    ]
    return FrozenUse(
        f"Cross-model memory · {epochs} epochs · learned on {learn_on}, used on {use_on}",
        "used by",
        use_on == learn_on,
        tuple(arms.values()),
        tuple(difference(arms[m, by], arms[other, by]) for m, other, by in pairs if arms[m, by].n),
        learning,
        stopped,
    )


def _part(models: Sequence[str], model: str) -> str:
    """A model's part of the name of a run, which may hold letters, digits and few signs only."""
    if model == NO_MEMORY:
        return "none"
    return f"m{models.index(model) + 1}-{re.sub('[^A-Za-z0-9.]+', '-', model)}"


FIRST, SECOND, MERGED, TOGETHER = "A alone", "B alone", "A and B merged", "A and B learned together"
MEMORIES = (NO_MEMORY, FIRST, SECOND, MERGED, TOGETHER)
_PARTS = {NO_MEMORY: "none", FIRST: "a", SECOND: "b", MERGED: "merged", TOGETHER: "together"}


def run_modular_memory(
    bank: MemoryBank,
    first: str,
    second: str,
    *,
    first_use: str = "",
    second_use: str = "",
    tasks: int = 0,
    seeds: Sequence[int] = range(5),
    epochs: int = 3,
    model: str = workspace.SIMULATED,
    settings: MemRLSettings | None = None,
    preferences: workspace.Preferences | None = None,
    on_progress: Progress | None = None,
    cancelled: Cancelled | None = None,
) -> FrozenUse:
    """Learn on the sets `first` and `second` apart and together, merge, and use each memory frozen on both.

    Sets are named as in `named_tasks`, of which the first `tasks` count (0: all). The memories are used on `first_use`
    and `second_use`; left empty, on the tasks that they were learned on. The merged memory is compared with every
    other. Every run is kept in `bank`. Raises `InputError` for sets and seeds that cannot be used, before anything is
    stored, and what a run raises.
    """
    chosen = checked_seeds(seeds, epochs)
    learned, used = {"A": first, "B": second}, {"A": first_use or first, "B": second_use or second}
    lessons = {side: named_tasks(name, tasks) for side, name in learned.items()}
    trials = {side: named_tasks(name, tasks) for side, name in used.items()}
    study = Study(bank, "modular", [model], settings, preferences, on_progress, cancelled)
    a_seed = 2 * epochs * sum(map(len, lessons.values())) + len(MEMORIES) * sum(map(len, trials.values()))
    study.total = len(chosen) * a_seed

    def use(seed: int, memory: str, side: str, base: str | None) -> Use:
        return study.use(f"s{seed}-{_PARTS[memory]}-on-{side.lower()}", trials[side], seed, model, base)

    def learn(seed: int) -> Memories:
        return _learned(study, lessons, epochs, seed, model)

    on = {side: len(trial) for side, trial in trials.items()}
    arms, learning, stopped = used_by_seed(chosen, learn, use, MEMORIES, on)
    sets = " · ".join(f"{side}: {learned[side]}, used on {used[side]}" for side in learned)
    return FrozenUse(
        f"Modular memory · {model} · {epochs} epochs · {sets}",
        "on",
        used == learned,
        tuple(arms.values()),
        tuple(
            difference(arms[MERGED, side], arms[other, side])
            for side in trials
            for other in MEMORIES
            if other != MERGED and arms[MERGED, side].n
        ),
        learning,
        stopped,
    )


def _learned(study: Study, lessons: Mapping[str, Sequence[Task]], epochs: int, seed: int, model: str) -> Memories:
    """The run that knows each memory, None for no memory. All met the same tasks equally often."""
    both = [*lessons["A"], *lessons["B"]]
    mixed = [both[position] for position in np.random.default_rng(seed).permutation(len(both))]
    first = study.learn(f"s{seed}-a", lessons["A"], epochs, seed, model)
    second = study.learn(f"s{seed}-b", lessons["B"], epochs, seed, model)
    merged = merge_runs(study.bank, first, second, f"{study.name}-s{seed}-merged").run
    together = study.learn(f"s{seed}-together", mixed, epochs, seed, model)
    return {NO_MEMORY: None, FIRST: first, SECOND: second, MERGED: merged, TOGETHER: together}
