"""Experiments as tables for a terminal. Names of sets and models are printed as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from memrl_core.experiments.cross_model import CrossModel
from memrl_core.experiments.measures import Arm, Difference
from memrl_core.experiments.modular_memory import ModularMemory
from memrl_core.experiments.report_table import ReportTable
from memrl_core.workspace import SIMULATED

FROZEN = "success rate, mean ± sd over n seeds; the memory is frozen: nothing is credited, updated or written"
INTERVAL = "paired on the same tasks and luck; 95 % interval, tasks and seeds drawn anew"
SAME = "used on the very tasks that it was learned on: how well they are remembered, not how far it carries"


def modular_memory_tables(result: ModularMemory) -> list[Table]:
    """The success of each memory on each set, and what the merged one gains or loses."""
    sets = " · ".join(f"{side}: {result.learned[side]}, used on {result.used[side]}" for side in result.learned)
    title = f"Modular memory · {_model(result.model)} · {result.epochs} epochs · {sets}"
    return [
        _arms(title, "memory", "on", result.arms, result.used == result.learned),
        _differences("A and B merged, against the others", result.differences, "on"),
    ]


def cross_model_tables(result: CrossModel) -> list[Table]:
    """The success of each model with each memory, and what a memory gains its reader or loses against its own."""
    title = f"Cross-model memory · {result.epochs} epochs · learned on {result.learned}, used on {result.used}"
    return [
        _arms(title, "memory of", "used by", result.arms, result.used == result.learned),
        _differences("What a memory is worth", result.differences, "used by"),
    ]


def rich_table(report: ReportTable) -> Table:
    """A report of an experiment for a terminal."""
    table = Table(title=Text(report.title), caption=Text("\n".join(report.notes)), caption_justify="left")
    for position, column in enumerate(report.columns):
        table.add_column(Text(column), justify="right" if position else "left", overflow="fold")
    for row in report.rows:
        table.add_row(*map(Text, row))
    return table


def _model(name: str) -> str:
    return "simulated model" if name == SIMULATED else name


def _arms(title: str, corner: str, across: str, arms: Sequence[Arm], same: bool) -> Table:
    table = Table(title=Text(title), caption=f"{FROZEN}\n{SAME}" if same else FROZEN, caption_justify="left")
    columns = list(dict.fromkeys(arm.on for arm in arms))
    table.add_column(corner)
    for column in columns:
        table.add_column(Text(f"{across} {column}"), justify="right", no_wrap=True)
    for memory in dict.fromkeys(arm.memory for arm in arms):
        cells = [next(arm for arm in arms if (arm.memory, arm.on) == (memory, column)) for column in columns]
        table.add_row(Text(memory), *(_cell(arm) for arm in cells))
    return table


def _cell(arm: Arm) -> str:
    if arm.mean is None:
        return "– (n 0)"
    return f"{arm.mean:.1%} ± {'–' if arm.sd is None else f'{arm.sd:.1%}'} (n {arm.n})"


def _differences(title: str, differences: Sequence[Difference], across: str) -> Table:
    table = Table(title=title, caption=INTERVAL, caption_justify="left")
    for heading in (across, "memory", "minus"):
        table.add_column(heading)
    for heading in ("difference", "from", "to"):
        table.add_column(heading, justify="right", no_wrap=True)
    for d in differences:
        table.add_row(
            Text(d.on), Text(d.memory), Text(d.other), *(f"{100 * v:+.1f} pp" for v in (d.mean, d.low, d.high))
        )
    return table
