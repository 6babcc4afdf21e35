"""What an experiment found, as tables for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from memrl_core.agent.workspace import SIMULATED
from memrl_core.analysis.run.metrics import paired_interval, seed_interval
from memrl_core.experiments.plan import Plan
from memrl_core.numerals import fixed, signed

Floats = npt.NDArray[np.float64]
INTERVAL = "mean over seeds with its 95 % interval (seeds drawn anew)"
PAIRED = "differences are paired by seed: the same tasks with the same luck"
NOTHING = "–"


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


def share(values: Floats) -> str:
    """Shares of seeds (n,) as their mean in per cent with its interval."""
    return _told(values, lambda v: f"{100 * v:.1f}", " %")


def number(values: Floats) -> str:
    """Values of seeds (n,) as their mean with its interval, two decimals."""
    return _told(values, lambda v: fixed(v, 2), "")


def points(one: pd.Series, other: pd.Series) -> str:
    """The paired difference of two series of shares by seed, in percentage points."""
    both = one.index.intersection(other.index)
    a, b = (side.loc[both].to_numpy(dtype=np.float64) for side in (one, other))
    known = ~(np.isnan(a) | np.isnan(b))
    if not known.any():
        return NOTHING
    low, high = paired_interval(a[known], b[known])
    mean = float((a - b)[known].mean())
    interval = "" if np.isnan(low) else f" ({signed(100 * float(low), 1)}…{signed(100 * float(high), 1)})"
    return f"{signed(100 * mean, 1)} pp{interval}"


def title(plan: Plan, epochs: pd.DataFrame, what: str) -> str:
    """What a table is about, of which model and how many seeds."""
    model = "simulated model" if plan.model == SIMULATED else plan.model
    return f"{plan.title}: {what} · {model} · {epochs['seed'].nunique()} seeds"


def groups(epochs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Stream, arm and their rows, in the order of the plan."""
    for (stream, arm), part in epochs.groupby(["stream", "arm"], sort=False):
        yield str(stream), str(arm), part


def named(stream: str, arm: str, many: bool) -> str:
    """How a row is called: the arm, and its stream where there are several."""
    return f"{stream} · {arm}" if many else arm


def _told(values: Floats, text: Callable[[float], str], unit: str) -> str:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    if not known.size:
        return NOTHING
    low, high = seed_interval(known)
    said = text(float(known.mean())) + unit
    return said if np.isnan(low) else f"{said} ({text(float(low))}…{text(float(high))})"
