"""The report of an experiment that compares memory methods: one table, and the pictures of the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from memrl_core.agent.workspace import SIMULATED
from memrl_core.analysis.compare.methods import (
    Estimate,
    MethodRow,
    arm_without_memory,
    luck_curve,
    method_curves,
    method_rows,
)
from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.report_table import NOTHING, ReportTable, title
from memrl_core.figures.compare.methods import cost_picture, csr_picture, forgetting_picture, gain_picture
from memrl_core.numerals import percent, signed
from memrl_core.report.document import Document

if TYPE_CHECKING:
    from memrl_core.experiments.runner import Experiment

COLUMNS = (
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
NOTES = (
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
    """A row an arm: what it achieves, gains over no memory and the reference, forgets, keeps and costs."""
    steps = _learned(experiment)
    many = steps["stream"].nunique() > 1
    rows = [
        _cells(row, f"{stream} · {row.arm}" if many else row.arm, row.arm == experiment.plan.reference)
        for stream, part in _streams(steps)
        for row in method_rows(part, _without(experiment, part), experiment.plan.reference)
    ]
    columns = tuple(column.format(reference=experiment.plan.reference) for column in COLUMNS)
    return ReportTable(title(experiment.plan, experiment.epochs, "methods"), columns, tuple(rows), _notes(experiment))


def picture_page(experiment: Experiment) -> str:
    """The methods of each stream in pictures, as a page that needs nothing but itself; "" where the plan asks for none:
    CSR by epoch beside Pass@e without memory, gain, forgetting and cost.
    """
    if experiment.steps.empty or "methods" not in experiment.plan.report:
        return ""
    page = Document(title(experiment.plan, experiment.epochs, "methods"), experiment.plan.question)
    for stream, part in _streams(_learned(experiment)):
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
    return (*NOTES, SIMULATED_NOTE) if experiment.plan.model == SIMULATED else NOTES


def _learned(experiment: Experiment) -> pd.DataFrame:
    return experiment.steps[experiment.steps["phase"] == LEARN]


def _streams(steps: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for stream, part in steps.groupby("stream", sort=False):
        yield str(stream), part


def _without(experiment: Experiment, steps: pd.DataFrame) -> str:
    plan = experiment.plan
    return arm_without_memory(steps, {arm.name: plan.settings_of(arm).k2 for arm in plan.all_arms()})


def _cells(row: MethodRow, name: str, is_reference: bool) -> tuple[str, ...]:
    return (
        name,
        row.badge,
        _share(row.success),
        _points(row.gain),
        NOTHING if is_reference else _points(row.against),
        _share(row.csr),
        _share(row.pass_at),
        _share(row.lost_of_failures),
        _share(row.lost_of_solved),
        _number(row.memories, ".0f"),
        _number(row.tokens, ",.0f"),
        _number(row.calls, ".1f"),
        NOTHING if np.isnan(row.unparsed) else percent(row.unparsed),
    )


def _share(found: Estimate) -> str:
    if not found.known:
        return NOTHING
    mean = f"{100 * found.value:.1f} %"
    return mean if np.isnan(found.low) else f"{mean} ({100 * found.low:.1f}…{100 * found.high:.1f})"


def _points(found: Estimate) -> str:
    if not found.known:
        return NOTHING
    mean = f"{signed(100 * found.value, 1)} pp"
    return mean if np.isnan(found.low) else f"{mean} ({signed(100 * found.low, 1)}…{signed(100 * found.high, 1)})"


def _number(value: float, form: str) -> str:
    return NOTHING if np.isnan(value) else format(value, form)
