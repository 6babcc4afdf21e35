"""What an experiment found, as tables for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from memrl_core.agent.run_parts import SIMULATED
from memrl_core.analysis.run.metrics import paired_interval, seed_interval
from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.plan import Plan
from memrl_core.numerals import fixed, signed
from memrl_core.retrieval import Floats

if TYPE_CHECKING:
    from memrl_core.experiments.executors import Experiment

INTERVAL = "mean over seeds with its 95 % interval (seeds drawn anew)"
PAIRED = "differences are paired by seed: the same tasks with the same luck"
NOTHING = "–"
FRAME = 3
"""What a column of a terminal's table takes beside its text: a line, and a space on either side."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of texts with its finding or subject as title; the first column names the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def markdown(table: ReportTable) -> str:
    """The table in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = line(["---", *["---:"] * (len(table.columns) - 1)])
    body = "\n".join([line(table.columns), rule, *(line(row) for row in table.rows)])
    return f"**{table.title}**\n\n{body}\n\n{' · '.join(table.notes)}\n"


def rich_tables(report: ReportTable, width: int) -> list[Table]:
    """A report for a terminal of `width` columns; names in it are printed as plain text.

    Where it is too wide for whole words, it comes in parts, each with the first column.
    """
    words = [
        max((len(word) for cell in column for word in cell.split()), default=0)
        for column in zip(report.columns, *report.rows, strict=True)
    ]
    parts = [[0]]
    for position in range(1, len(words)):
        taken = sum(words[known] + FRAME for known in (*parts[-1], position))
        if len(parts[-1]) > 1 and taken >= width:
            parts.append([0])
        parts[-1].append(position)
    tables = []
    for number, columns in enumerate(parts, start=1):
        title = report.title if number == 1 else f"{report.title} (part {number} of {len(parts)})"
        notes = Text("\n".join(report.notes)) if number == len(parts) else None
        table = Table(title=Text(title), caption=notes, caption_justify="left")
        for position in columns:
            table.add_column(
                Text(report.columns[position]),
                justify="right" if position else "left",
                overflow="fold",
                min_width=min(words[position], width // 2),
            )
        for row in report.rows:
            table.add_row(*(Text(row[position]) for position in columns))
        tables.append(table)
    return tables


def share(values: Floats) -> str:
    """Shares of seeds (n,) as their mean in per cent with its interval."""
    return _with_interval(values, lambda v: f"{100 * v:.1f}", " %")


def number(values: Floats) -> str:
    """Values of seeds (n,) as their mean with its interval, two decimals."""
    return _with_interval(values, lambda v: fixed(v, 2), "")


def points(one: pd.Series, other: pd.Series) -> str:
    """The paired difference of two series of shares by seed, in percentage points."""
    both = one.index.intersection(other.index)
    a, b = (side.loc[both].to_numpy(dtype=np.float64) for side in (one, other))
    known = ~(np.isnan(a) | np.isnan(b))
    if not known.any():
        return NOTHING
    return difference(float((a - b)[known].mean()), *map(float, paired_interval(a[known], b[known])))


def solved(part: pd.DataFrame) -> pd.Series:
    """Share of steps solved, by seed."""
    return part["success"].astype(float).groupby(part["seed"]).mean()


def valid_share(valid: float, asked: float) -> str:
    """Share of the answers that had to be one of those offered, and were."""
    return f"{100 * valid / asked:.1f} %" if asked else NOTHING


def tokens(part: pd.DataFrame) -> str:
    """Mean tokens read and written per step."""
    read, wrote = part["prompt_tokens"].mean(), part["answer_tokens"].mean()
    return NOTHING if pd.isna(read) else f"{read:,.0f} + {wrote:,.0f}"


def difference(mean: float, low: float, high: float) -> str:
    """A difference of shares in percentage points, with its interval where there is one."""
    return spread(100 * mean, 100 * low, 100 * high, lambda v: signed(v, 1), " pp")


def spread(mean: float, low: float, high: float, text: Callable[[float], str], unit: str = "") -> str:
    """A mean with its interval where there is one; `NOTHING` where there is no mean."""
    if np.isnan(mean):
        return NOTHING
    shown = text(mean) + unit
    return shown if np.isnan(low) else f"{shown} ({text(low)}…{text(high)})"


def learned_steps(experiment: Experiment) -> pd.DataFrame:
    """The steps in which something was learned."""
    return experiment.steps[experiment.steps["phase"] == LEARN]


def title(plan: Plan, epochs: pd.DataFrame, what: str) -> str:
    """What a table is about, of which model and how many seeds."""
    model = "simulated model" if plan.model == SIMULATED else plan.model
    return f"{plan.title}: {what} · {model} · {epochs['seed'].nunique()} seeds"


def arms(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Label, stream, arm and rows of each arm, in the order of the plan.

    The label is `arm`, or `stream · arm` where there are several streams.
    """
    several = rows["stream"].nunique() > 1
    for (stream, arm), part in rows.groupby(["stream", "arm"], sort=False):
        yield f"{stream} · {arm}" if several else str(arm), str(stream), str(arm), part


def table(
    experiment: Experiment, what: str, columns: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str] = ()
) -> ReportTable:
    """Table with a row per arm; `INTERVAL` is the first of its notes."""
    return ReportTable(
        title(experiment.plan, experiment.epochs, what), ("arm", *columns), tuple(map(tuple, rows)), (INTERVAL, *notes)
    )


def _with_interval(values: Floats, text: Callable[[float], str], unit: str) -> str:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    if not known.size:
        return NOTHING
    low, high = seed_interval(known)
    return spread(float(known.mean()), float(low), float(high), text, unit)
