"""Methods compared, each in a bank of its own: the arms of equal seed meet the same tasks with the same luck.

The second half is the table and the pictures of an experiment that compares methods.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.agent.run_parts import SIMULATED
from memrl_core.agent.setup import fits
from memrl_core.analysis.compare.methods import (
    NO_MEMORY,
    MethodCurve,
    MethodRow,
    arm_without_memory,
    luck_curve,
    method_curves,
    method_rows,
)
from memrl_core.analysis.run.metrics import Estimate
from memrl_core.environments.tasks import environment_of
from memrl_core.errors import InputError, MemRLError
from memrl_core.experiments.cells import Cell, drawn, run_cell
from memrl_core.experiments.epochs import durations
from memrl_core.experiments.executors import Experiment
from memrl_core.experiments.plan import ArmPlan, Stage, Stream
from memrl_core.experiments.report_table import NOTHING, ReportTable, difference, learned_steps, spread, title
from memrl_core.experiments.study import Stopped, checked_seeds
from memrl_core.figures.compare.methods import cost_picture, csr_picture, forgetting_picture, gain_picture
from memrl_core.figures.report.document import Document
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.numerals import percent
from memrl_core.policies import settings_of
from memrl_core.settings import PolicySettings


@dataclass(frozen=True, slots=True)
class Arm:
    """One method in a comparison; `settings` None are its defaults."""

    name: str
    policy: str
    settings: PolicySettings | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """Every setting by name. Raises `SettingsError` where the policy does not have them."""
        return settings_of(self.policy, {} if self.settings is None else self.settings.model_dump()).model_dump()


@dataclass(frozen=True, slots=True, eq=False)
class MethodsCompared:
    """What became of the arms.

    `rows` are the lines of a table, in the order given, each compared with the arm `without` memory and with the
    first one; `curves` are their CSR by epoch and `luck` is Pass@e. `steps` has a row per step and arm
    (`cells.SCHEMA`, with `model_seconds`). `refused` maps an arm that did not run to the sentence of why. `seeds` are
    those that every other arm has finished; `stopped` is True when a person ended it before.
    """

    model: str
    seeds: tuple[int, ...]
    without: str
    rows: tuple[MethodRow, ...]
    curves: tuple[MethodCurve, ...]
    luck: MethodCurve | None
    steps: pd.DataFrame
    refused: Mapping[str, str]
    stopped: bool


def compare_methods(
    arms: Sequence[Arm],
    *,
    tasks: str = "household-train",
    count: int = 30,
    seeds: Sequence[int] = range(3),
    epochs: int = 3,
    model: str = SIMULATED,
    on_progress: Progress = unheard,
    cancelled: Cancelled = never,
) -> MethodsCompared:
    """Run `arms` on `count` tasks of a set (0: all), drawn anew for each seed, `epochs` times, in temporary banks.

    An arm without memory is added where there is none. Arms that lack something in this world, and those that fail on
    the way, are refused, and the others go on. `on_progress` gets the steps done and their total. When `cancelled()`
    turns true, it ends within a step, and the seeds that were over count.

    Raises `InputError` or `SettingsError` for arms, tasks and seeds that cannot be used, before anything is run.
    """
    chosen = checked_seeds(seeds, epochs)
    environment, arms = environment_of(tasks), _with_one_without_memory(arms)
    refused = {arm.name: why for arm in arms if (why := fits(arm.policy, environment, arm.values))}
    started = [arm for arm in arms if arm.name not in refused]
    stream, steps_an_arm = Stream(stages=[Stage(tasks=tasks, count=count)]), epochs * len(drawn(tasks, count, 0))
    done, total = 0, len(chosen) * steps_an_arm * len(started)

    def count_step() -> None:
        nonlocal done
        done += 1
        on_progress(done, total)

    def run(arm: Arm, seed: int) -> pd.DataFrame:
        plan = ArmPlan(name=arm.name, policy=arm.policy, settings=dict(arm.values))
        cell = Cell(arm=plan, settings=plan.settings, stream=stream, seed=seed, epochs=epochs, model=model)
        with tempfile.TemporaryDirectory(prefix="memrl-methods-") as folder:
            table = run_cell(cell, f"{folder}/bank", cancelled, count_step)
        return table.to_pandas().assign(model_seconds=durations([table])["model_seconds"])

    frames: dict[int, list[pd.DataFrame]] = {}
    stopped = False
    for seed in chosen:
        parts: list[pd.DataFrame] = []
        try:
            for number, arm in enumerate(started, start=1):
                if arm.name not in refused:
                    try:
                        parts.append(run(arm, seed))
                    except MemRLError as error:
                        refused[arm.name] = str(error)
                done = steps_an_arm * (len(frames) * len(started) + number)
                on_progress(done, total)
        except Stopped:
            stopped = True
            break
        frames[seed] = parts
    running = [arm for arm in arms if arm.name not in refused]
    without = next((arm.name for arm in running if _is_without_memory(arm)), "")
    there = [part for parts in frames.values() for part in parts if part["arm"].iloc[0] not in refused]
    if not there:
        nothing = pd.DataFrame()
        return MethodsCompared(model, tuple(frames), without, (), (), None, nothing, refused, stopped)
    steps = pd.concat(there, ignore_index=True)
    rows, curves = tuple(method_rows(steps, without, running[0].name)), tuple(method_curves(steps))
    luck = luck_curve(steps, without)
    return MethodsCompared(model, tuple(frames), without, rows, curves, luck, steps, refused, stopped)


def _is_without_memory(arm: Arm) -> bool:
    return arm.policy == NO_MEMORY or arm.values["k2"] == 0


def _with_one_without_memory(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, checked, with one without memory among them. Raises `InputError` and `SettingsError`."""
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names) or not all(0 < len(name) <= 80 for name in names):
        raise InputError("A comparison needs arms, each with a name of its own of at most 80 letters.")
    if any(_is_without_memory(arm) for arm in arms):
        return list(arms)
    name = next(name for name in ("no memory", "without memory", "nothing") if name not in names)
    return [*arms, Arm(name, NO_MEMORY)]


# --- the report of an experiment --------------------------------------------------------------------------------------

METHOD_COLUMNS = (
    "arm",
    "rules of",
    "last epoch",
    "over no memory",
    "against {reference}",
    "CSR",
    "no memory, as many tries",
    "forgetting rate A",
    "forgetting rate B",
    "memories",
    "tokens a task",
    "calls a task",
    "unparsed",
)
METHOD_NOTES = (
    "mean over seeds with its 95 % interval (seeds drawn anew); differences are paired by task and seed, tasks and "
    "seeds drawn anew",
    "rules of: paper, code (the authors' release) or adapted; an adapted arm is not the published method",
    "every epoch brings the same tasks, so a gain may be recall of a task's own memory; exclude_same_task leaves those "
    "out, and what is left is transfer",
    "CSR counts a task for ever once it was solved, also by luck: hold it against Pass@e of no memory, beside it",
    "forgetting rate A: lost since the last epoch / all failures (arXiv 2601.03192 v2); B: the same / what the last "
    "epoch had solved (v1)",
    "calls: turns and the method's own questions; unparsed: share of these questions whose answer could not be read. "
    "Putting an experience into words is not counted",
)
SIMULATED_NOTE = (
    "the simulated model counts words as tokens, follows the first memory that can be applied, and has the methods' "
    "questions answered by their templates: this is a test of the rules in one small world, no ranking of the papers"
)


def methods_report(experiment: Experiment) -> ReportTable:
    """A row per arm: what it achieves, gains over no memory and the reference, forgets, keeps and costs."""
    steps = learned_steps(experiment)
    many = steps["stream"].nunique() > 1
    rows = [
        _cells(row, f"{stream} · {row.arm}" if many else row.arm, row.arm == experiment.plan.reference)
        for stream, part in steps.groupby("stream", sort=False)
        for row in method_rows(part, _without(experiment, part), experiment.plan.reference)
    ]
    columns = tuple(column.format(reference=experiment.plan.reference) for column in METHOD_COLUMNS)
    return ReportTable(title(experiment.plan, experiment.epochs, "methods"), columns, tuple(rows), _notes(experiment))


def picture_page(experiment: Experiment) -> str:
    """The methods of each stream in pictures, as a page that needs nothing but itself; "" where the plan asks for none:
    CSR by epoch beside Pass@e without memory, gain, forgetting and cost.
    """
    if experiment.steps.empty or "methods" not in experiment.plan.report:
        return ""
    page = Document(title(experiment.plan, experiment.epochs, "methods"), experiment.plan.question)
    for stream, part in learned_steps(experiment).groupby("stream", sort=False):
        without = _without(experiment, part)
        page.section(stream)
        curves = [curve for curve in method_curves(part) if curve.arm != without]
        page.picture(csr_picture(curves, luck_curve(part, without)))
        rows = method_rows(part, without, experiment.plan.reference)
        for draw in (gain_picture, forgetting_picture, cost_picture):
            page.picture(draw(rows))
    for note in _notes(experiment):
        page.note(f"{note[:1].upper()}{note[1:]}.")
    return page.html()


def _notes(experiment: Experiment) -> tuple[str, ...]:
    return (*METHOD_NOTES, SIMULATED_NOTE) if experiment.plan.model == SIMULATED else METHOD_NOTES


def _without(experiment: Experiment, steps: pd.DataFrame) -> str:
    plan = experiment.plan
    return arm_without_memory(steps, {arm.name: plan.settings_of(arm).k2 for arm in plan.all_arms()})


def _cells(row: MethodRow, name: str, is_reference: bool) -> tuple[str, ...]:
    def share(found: Estimate) -> str:
        return spread(100 * found.value, 100 * found.low, 100 * found.high, lambda v: f"{v:.1f}", " %")

    def points(found: Estimate) -> str:
        return difference(found.value, found.low, found.high)

    def number(value: float, form: str) -> str:
        return NOTHING if np.isnan(value) else format(value, form)

    return (
        name,
        row.badge,
        share(row.success),
        points(row.gain),
        NOTHING if is_reference else points(row.against),
        *map(share, (row.csr, row.pass_at, row.lost_of_failures, row.lost_of_solved)),
        number(row.memories, ".0f"),
        number(row.tokens, ",.0f"),
        number(row.calls, ".1f"),
        NOTHING if np.isnan(row.unparsed) else percent(row.unparsed),
    )
