"""Layouts: in which form of prompt does a language model make use of its memories?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from memrl_core.agent import workspace
from memrl_core.analysis.decision.outline import valid_answers
from memrl_core.analysis.run.consultations import step_cost
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import named_tasks
from memrl_core.errors import InputError
from memrl_core.experiments.executors import RESULTS, ResultFolder
from memrl_core.experiments.frozen_use import NO_MEMORY
from memrl_core.experiments.report_table import (
    INTERVAL,
    PAIRED,
    ReportTable,
    number,
    points,
    share,
    solved,
    tokens,
    valid_share,
)
from memrl_core.experiments.study import Stopped, Study, checked_seeds
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.prompting import Layout
from memrl_core.records import StepTrace
from memrl_core.settings import MemRLSettings, PolicySettings

LEARNED = "learned"
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
MEMORY: Mapping[str, PolicySettings] = {NO_MEMORY: MemRLSettings.of({"k2": 0}), LEARNED: MemRLSettings.of({"k2": 1})}
"""How many memories are in the prompt; all else is the same, as are house and luck."""
FROZEN = "the simulated model has learned the memories; they are used frozen, on the very tasks"
COLUMNS = ("model, layout", "one memory", "none", "memory gains", "valid answers", "seconds a step", "tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """`steps` has a row per step: set, seed, model, layout, memory, task, success, answers, seconds and tokens.

    `stopped` is True when a person ended it; what was finished by then is in `steps`.
    """

    steps: pd.DataFrame
    stopped: bool


def run_layouts(
    bank: MemoryBank,
    out: Path,
    models: Sequence[str],
    sets: Sequence[str],
    *,
    tasks: int = 0,
    seeds: Sequence[int] = range(3),
    epochs: int = 3,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> Layouts:
    """Let the simulated model learn on the first `tasks` of each set, then each of `models` do them again, frozen, in
    each layout, with one memory in the prompt and with none.

    The best case for memory: one of the very task may be there. Every run is kept in `bank`, and its steps in the
    folder `out`, so that the same call goes on where it ended. Raises `InputError` for models, sets, seeds and a folder
    that cannot be used, before anything is stored, and what a run raises.
    """
    chosen = checked_seeds(seeds, epochs)
    if not models or any(workspace.is_simulated(model) for model in models):
        raise InputError("Name one or more language models, such as gguf:smollm2. Nothing was started.")
    trials = {name: named_tasks(name, tasks) for name in sets}
    with ResultFolder(out) as folder:
        rows = _finished(out, bank, tasks, epochs)
        done = {(row["set"], row["seed"], row["model"], row["layout"], row["memory"]): row["base"] for row in rows}
        study = Study(bank, "layouts", [workspace.SIMULATED, *models], on_progress, cancelled)
        uses = len(models) * len(LAYOUTS) * len(MEMORY)
        study.total = len(chosen) * sum(map(len, trials.values())) * (epochs + uses)
        stopped = False
        try:
            # A seed after the other, so that a part of them is already a fair comparison.
            for seed, (set_number, (name, trial)) in product(chosen, enumerate(trials.items())):
                base = next((base for key, base in done.items() if key[:2] == (name, seed)), "")
                if base:
                    study.done += epochs * len(trial)
                for (number, model), layout, memory in product(enumerate(models), LAYOUTS, MEMORY):
                    if (name, seed, model, layout, memory) in done:
                        study.done += len(trial)
                        continue
                    part = f"e{set_number}-s{seed}"
                    learned = MEMORY[LEARNED]
                    base = base or study.learn(part, trial, epochs, seed, workspace.SIMULATED, learned)
                    part = f"{part}-m{number}-{layout}-{memory.split()[0]}"
                    run, _ = study.use(part, trial, seed, model, base, {"layout": layout}, MEMORY[memory])
                    about = {"set": name, "seed": seed, "model": model, "layout": layout, "memory": memory}
                    given = {"tasks": tasks, "epochs": epochs, "base": base, "run": run}
                    rows += [{**about, **given, **_row(trace)} for trace in bank.each_trace(run)]
                    folder.write_rows(pd.DataFrame(rows))
        except Stopped:
            stopped = True
    asked = {(name, seed, model, layout) for name in sets for seed in chosen for model in models for layout in LAYOUTS}
    keys = ("set", "seed", "model", "layout")
    return Layouts(pd.DataFrame([row for row in rows if tuple(row[key] for key in keys) in asked]), stopped)


def layout_reports(found: Layouts) -> list[ReportTable]:
    """A table for each set of tasks, with a row for each model and layout."""
    if found.steps.empty:
        return []
    tables = []
    for name, of_set in found.steps.groupby("set", sort=False):
        rows = []
        for (model, layout), part in of_set.groupby(["model", "layout"], sort=False):
            by_memory = {memory: solved(part[part["memory"] == memory]) for memory in MEMORY}
            with_memory, without = by_memory[LEARNED], by_memory[NO_MEMORY]
            rows.append(
                (
                    f"{model}, {layout}",
                    share(with_memory.to_numpy()),
                    share(without.to_numpy()),
                    points(with_memory, without),
                    valid_share(part["valid"].sum(), part["asked"].sum()),
                    number(part.groupby("seed")["seconds"].mean().to_numpy()),
                    tokens(part),
                )
            )
        seeds, tasks = of_set["seed"].nunique(), of_set["task"].nunique()
        title = f"Layouts: {name} · {tasks} tasks, {'1 seed' if seeds == 1 else f'{seeds} seeds'} · tasks solved"
        tables.append(ReportTable(title, COLUMNS, tuple(rows), (FROZEN, INTERVAL, PAIRED)))
    return tables


def _finished(out: Path, bank: MemoryBank, tasks: int, epochs: int) -> list[dict[str, Any]]:
    """The rows that the folder holds. Raises `InputError` where they are of other tasks, epochs or another bank."""
    try:
        rows: list[dict[str, Any]] = pd.read_parquet(out / RESULTS).to_dict("records")
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        rows = [{}]
    here = {info.id for info in bank.runs()}
    if any((row.get("tasks"), row.get("epochs")) != (tasks, epochs) or row["base"] not in here for row in rows):
        raise InputError(
            f"The results in {out} are of other tasks or epochs, or of another bank. Nothing was started; choose "
            "another folder, or say the same --bank, --tasks and --epochs as then."
        )
    return rows


def _row(trace: StepTrace) -> dict[str, Any]:
    assert trace.reward is not None
    cost = step_cost(trace)
    valid, asked = valid_answers(trace)
    return {
        "task": trace.task.id,
        "success": trace.reward.outcome == "success",
        "valid": valid,
        "asked": asked,
        "seconds": cost.seconds,
        "prompt_tokens": cost.prompt_tokens,
        "answer_tokens": cost.answer_tokens,
    }
