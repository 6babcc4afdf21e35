"""Experiments as tables for a terminal. Names of sets and models are printed as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from memrl_core.agent.workspace import SIMULATED
from memrl_core.experiments.cross_model import CrossModel
from memrl_core.experiments.measures import Arm, Difference
from memrl_core.experiments.modular_memory import ModularMemory
from memrl_core.experiments.report_table import ReportTable
from memrl_core.numerals import percent, signed

FROZEN = "success rate, mean ± sd over n seeds; the memory is frozen: nothing is credited, updated or written"
INTERVAL = "paired on the same tasks and luck; 95 % interval, tasks and seeds drawn anew"
FRAME = 3
"""What a column takes beside its text: a line, and a space on either side."""
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
    return f"{percent(arm.mean)} ± {'–' if arm.sd is None else percent(arm.sd)} (n {arm.n})"


def _differences(title: str, differences: Sequence[Difference], across: str) -> Table:
    table = Table(title=title, caption=INTERVAL, caption_justify="left")
    for heading in (across, "memory", "minus"):
        table.add_column(heading)
    for heading in ("difference", "from", "to"):
        table.add_column(heading, justify="right", no_wrap=True)
    for d in differences:
        table.add_row(
            Text(d.on), Text(d.memory), Text(d.other), *(f"{signed(100 * v, 1)} pp" for v in (d.mean, d.low, d.high))
        )
    return table
