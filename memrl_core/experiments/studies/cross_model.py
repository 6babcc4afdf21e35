"""Cross-model use: what is a memory that one model learned worth to another?

Source: arXiv 2601.03192 v2, table 5, where the frozen memory of one model was given to others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memrl_core.agent import workspace
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.experiments.measures import Arm, Difference, difference
from memrl_core.experiments.studies.study import Memories, Progress, Study, Use, arm, checked_seeds, used_by_seed
from memrl_core.experiments.task_sets import named_tasks
from memrl_core.models.base import Cancelled
from memrl_core.settings import MemRLSettings

NO_MEMORY = "no memory"


@dataclass(frozen=True, slots=True, eq=False)
class CrossModel:
    """The memory of each model, and none, used frozen by each model on the set `used`.

    In `arms`, `memory` is the model that learned it and `on` the model that used it. `differences` compare each with no
    memory and each foreign memory with the model's own. `stopped` is True when a person ended it: only seeds that were
    over by then count.
    """

    models: tuple[str, ...]
    learned: str
    used: str
    epochs: int
    arms: tuple[Arm, ...]
    differences: tuple[Difference, ...]
    learning: tuple[str, ...]
    stopped: bool


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
) -> CrossModel:
    """Learn with each model on the set `learn_on`, then let each use each memory frozen on `use_on` ("": the same).

    Models are named as in `model_named`, sets as in `named_tasks`, of which the first `tasks` count (0: all). Every run
    is kept in `bank`. Raises `InputError` for models, sets and seeds that cannot be used, before anything is stored,
    and what a run raises.
    """
    chosen = checked_seeds(seeds, epochs)
    if len(models) < 2 or len(set(models)) < len(models):
        raise InputError("Name at least two different models. Nothing was started.")
    lessons, trial = named_tasks(learn_on, tasks), named_tasks(use_on or learn_on, tasks)
    study = Study(bank, "cross", models, settings, preferences, on_progress, cancelled)
    study.total = len(chosen) * len(models) * (epochs * len(lessons) + (len(models) + 1) * len(trial))

    def learned(seed: int) -> Memories:
        runs = {m: study.learn(f"s{seed}-{_part(models, m)}", lessons, epochs, seed, m) for m in models}
        return {NO_MEMORY: None, **runs}

    def used(seed: int, memory: str, model: str, base: str | None) -> Use:
        return study.use(f"s{seed}-{_part(models, memory)}-to-{_part(models, model)}", trial, seed, model, base)

    uses, learning, stopped = used_by_seed(chosen, learned, used, models)
    arms = {(m, by): arm(m, by, uses[m, by], len(trial)) for m in (NO_MEMORY, *models) for by in models}
    pairs = [(m, NO_MEMORY, by) for by in models for m in models] + [
        (m, by, by) for by in models for m in models if m != by
    ]
    differences = [difference(arms[m, by], arms[other, by]) for m, other, by in pairs if arms[m, by].n]
    return CrossModel(
        tuple(models),
        learn_on,
        use_on or learn_on,
        epochs,
        tuple(arms.values()),
        tuple(differences),
        learning,
        stopped,
    )


def _part(models: Sequence[str], model: str) -> str:
    """A model's part of the name of a run, which may hold letters, digits and few signs only."""
    if model == NO_MEMORY:
        return "none"
    return f"m{models.index(model) + 1}-{re.sub('[^A-Za-z0-9.]+', '-', model)}"
