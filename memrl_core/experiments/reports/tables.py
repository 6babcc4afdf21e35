"""Experiments as tables for a terminal, and the report that compares memory methods in one table and its pictures.

Names of sets and models are printed as plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from memrl_core.agent.workspace import SIMULATED
from memrl_core.analysis.compare.methods import (
    Estimate,
    MethodRow,
    arm_without_memory,
    luck_curve,
    method_curves,
    method_rows,
)
from memrl_core.experiments.reports.report_table import NOTHING, ReportTable, difference, learned_steps, spread, title
from memrl_core.experiments.studies.frozen_use import Arm, FrozenUse
from memrl_core.figures.compare.methods import cost_picture, csr_picture, forgetting_picture, gain_picture
from memrl_core.numerals import percent
from memrl_core.report.document import Document

if TYPE_CHECKING:
    from memrl_core.experiments.executors import Experiment


FROZEN = "success rate, mean ± sd over n seeds; the memory is frozen: nothing is credited, updated or written"
INTERVAL = "paired on the same tasks and luck; 95 % interval, tasks and seeds drawn anew"
FRAME = 3
"""What a column takes beside its text: a line, and a space on either side."""
SAME = "used on the very tasks that it was learned on: how well they are remembered, not how far it carries"


def frozen_use_tables(found: FrozenUse) -> list[ReportTable]:
    """The success of each memory with each model or on each set, and what it gains over others."""
    columns = list(dict.fromkeys(arm.on for arm in found.arms))
    cells = {(arm.memory, arm.on): _success(arm) for arm in found.arms}
    memories = dict.fromkeys(arm.memory for arm in found.arms)
    return [
        ReportTable(
            found.title,
            ("memory", *(f"{found.across} {column}" for column in columns)),
            tuple((memory, *(cells[memory, column] for column in columns)) for memory in memories),
            (FROZEN, SAME) if found.same else (FROZEN,),
        ),
        ReportTable(
            "Differences between memories",
            (found.across, "memory", "minus", "difference"),
            tuple((d.on, d.memory, d.other, difference(d.mean, d.low, d.high)) for d in found.differences),
            (INTERVAL,),
        ),
    ]


def _success(arm: Arm) -> str:
    if arm.mean is None:
        return "– (n 0)"
    return f"{percent(arm.mean)} ± {'–' if arm.sd is None else percent(arm.sd)} (n {arm.n})"


def rich_tables(report: ReportTable, width: int) -> list[Table]:
    """A report of an experiment for a terminal of `width` columns.

    Where it is too wide for whole words, it comes in parts, each with the first column.
    """
    words = [_longest_word(column) for column in zip(report.columns, *report.rows, strict=True)]
    parts = _parts(words, width)
    tables = []
    for number, columns in enumerate(parts, start=1):
        title = report.title if number == 1 else f"{report.title} (part {number} of {len(parts)})"
        notes = Text("\n".join(report.notes)) if number == len(parts) else None
        table = Table(title=Text(title), caption=notes, caption_justify="left")
        for position in columns:
            fitting = min(words[position], width // 2)
            table.add_column(
                Text(report.columns[position]),
                justify="right" if position else "left",
                overflow="fold",
                min_width=fitting,
            )
        for row in report.rows:
            table.add_row(*(Text(row[position]) for position in columns))
        tables.append(table)
    return tables


def _longest_word(column: Sequence[str]) -> int:
    return max((len(word) for cell in column for word in cell.split()), default=0)


def _parts(words: Sequence[int], width: int) -> list[list[int]]:
    """The positions of the columns of each part, where column n needs room for `words[n]` letters."""
    parts = [[0]]
    for position in range(1, len(words)):
        taken = sum(words[known] + FRAME for known in (*parts[-1], position))
        if len(parts[-1]) > 1 and taken >= width:
            parts.append([0])
        parts[-1].append(position)
    return parts


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
    """A row per arm: what it achieves, gains over no memory and the reference, forgets, keeps and costs."""
    steps = learned_steps(experiment)
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
    for stream, part in _streams(learned_steps(experiment)):
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
    return spread(100 * found.value, 100 * found.low, 100 * found.high, lambda v: f"{v:.1f}", " %")


def _points(found: Estimate) -> str:
    return difference(found.value, found.low, found.high)


def _number(value: float, form: str) -> str:
    return NOTHING if np.isnan(value) else format(value, form)
