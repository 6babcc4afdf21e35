"""Layouts: in which form of prompt does a language model make use of its memories?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from memrl_core.agent import workspace
from memrl_core.analysis.summary import valid_answers
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.experiments.cross_model import NO_MEMORY
from memrl_core.experiments.measures import Arm, Difference, difference
from memrl_core.experiments.study import Progress, Stopped, Study, arm, checked_seeds
from memrl_core.experiments.task_sets import named_tasks
from memrl_core.models.base import Cancelled
from memrl_core.prompting import Layout
from memrl_core.settings import MemRLSettings

LEARNED = "learned"
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ONE_MEMORY = MemRLSettings.of({"k2": 1})


@dataclass(frozen=True, slots=True)
class Answers:
    """What the answers with one layout came to: `valid` of `asked` were among the lines offered, at `seconds` each."""

    on: str
    valid: int
    asked: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """What each model makes of the same memories in each layout, `on` naming both, and what it does without any.

    The memories are those that the simulated model has learned on `tasks_of` in `epochs` epochs. `differences` compare
    memory with none within a layout. `stopped` is True when a person ended it: only seeds that were over by then count.
    """

    tasks_of: str
    epochs: int
    arms: tuple[Arm, ...]
    differences: tuple[Difference, ...]
    answers: tuple[Answers, ...]
    stopped: bool


def run_layouts(
    bank: MemoryBank,
    models: Sequence[str],
    tasks_of: str,
    *,
    tasks: int = 0,
    seeds: Sequence[int] = range(3),
    epochs: int = 3,
    layouts: Sequence[Layout] = LAYOUTS,
    preferences: workspace.Preferences | None = None,
    on_progress: Progress | None = None,
    cancelled: Cancelled | None = None,
) -> Layouts:
    """Let the simulated model learn on the first `tasks` of a set, then each of `models` do them again, frozen, in each
    layout, with one memory in the prompt and with none.

    The best case for memory: one of the very task may be there. Every run is kept in `bank`. Raises `InputError` for
    models, sets and seeds that cannot be used, before anything is stored, and what a run raises.
    """
    chosen = checked_seeds(seeds, epochs)
    if not models or any(workspace.is_simulated(model) for model in models):
        raise InputError("Name one or more language models, such as gguf:smollm2. Nothing was started.")
    trial = named_tasks(tasks_of, tasks)
    study = Study(bank, "layouts", [workspace.SIMULATED, *models], ONE_MEMORY, preferences, on_progress, cancelled)
    cells = [(n, model, layout) for n, model in enumerate(models, start=1) for layout in layouts]
    study.total = len(chosen) * len(trial) * (epochs + 2 * len(cells))
    uses: dict[tuple[str, str], list[tuple[str, Sequence[bool]]]] = defaultdict(list)
    stopped = False
    try:
        for seed in chosen:
            base = study.learn(f"s{seed}", trial, epochs, seed, workspace.SIMULATED)
            found = {
                (memory, _on(model, layout)): study.use(
                    f"s{seed}-m{n}-{layout}-{memory.split()[0]}", trial, seed, model, start, {"layout": layout}
                )
                for n, model, layout in cells
                for memory, start in ((NO_MEMORY, None), (LEARNED, base))
            }
            for key, use in found.items():
                uses[key].append(use)
    except Stopped:
        stopped = True
    names = [_on(model, layout) for _, model, layout in cells]
    arms = {key: arm(*key, uses[key], len(trial)) for on in names for key in ((NO_MEMORY, on), (LEARNED, on))}
    return Layouts(
        tasks_of,
        epochs,
        tuple(arms.values()),
        tuple(difference(arms[LEARNED, on], arms[NO_MEMORY, on]) for on in names if arms[LEARNED, on].n),
        tuple(_answers(bank, on, [*arms[NO_MEMORY, on].runs, *arms[LEARNED, on].runs]) for on in names),
        stopped,
    )


def _on(model: str, layout: Layout) -> str:
    return f"{model}, {layout}"


def _answers(bank: MemoryBank, on: str, runs: Sequence[str]) -> Answers:
    traces = [trace for run in runs for trace in bank.traces(run)]
    counts = [valid_answers(trace) for trace in traces]
    replies = [turn.reply for trace in traces if trace.generate for turn in trace.generate.turns]
    seconds = sum(reply.seconds for reply in replies) / len(replies) if replies else 0.0
    return Answers(on, sum(valid for valid, _ in counts), sum(asked for _, asked in counts), seconds)
