"""What was measured as a table for a terminal, and as a JSON file: `{"machine": …, "date": …, "rows": […]}`.

A row of the file names what was measured (`benchmark`, `what`, `memories`, `dimension`, `size`), how long it took
(`median_s`, `p95_s`, `min_s`, `max_s`, over `repetitions`), what that is beside its reference, which was measured in
turns with it (`reference`, `reference_median_s`, `ratio_median`, `over_s`), a figure that is no time (`value`,
`unit`), the highest resident memory meanwhile (`peak_mb`, 10⁶ bytes), and the aim in words with whether it is `met`.
Times are in seconds. What a row does not have is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from benchmarks.measuring import Row
from memrl_core.experiments.files import Machine, machine_line

WIDTH = 120
"""Columns that the table needs: narrower, and its figures are cut."""
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
NOTHING = "–"
MET = {True: "✓ yes", False: "✗ no", None: ""}
WORDS = ("benchmark", "what", "size", "reference")
FIGURES = ("median", "p95", "ratio", "peak MB", "aim", "met")


def as_json(rows: Sequence[Row], machine: Machine, date: datetime) -> str:
    """The file of `memrl bench --json`."""
    return json.dumps(
        {"machine": asdict(machine), "date": date.isoformat(), "rows": [_kept(row) for row in rows]},
        indent=1, ensure_ascii=False, allow_nan=False,
    )  # fmt: skip


def _kept(row: Row) -> dict[str, Any]:
    figures = {
        "ratio_median": row.ratio,
        "median_s": row.median,
        "p95_s": row.p95,
        "min_s": min(row.seconds, default=None),
        "max_s": max(row.seconds, default=None),
        "reference_median_s": row.reference_median,
        "over_s": row.over_s,
        "value": row.value,
        "peak_mb": row.peak_mb,
    }
    return {
        "benchmark": row.benchmark,
        "what": row.what,
        "memories": row.memories,
        "dimension": row.dimension,
        "size": row.size,
        "repetitions": len(row.seconds),
        "reference": row.reference or None,
        "unit": row.unit or None,
        **{name: found if found is not None and math.isfinite(found) else None for name, found in figures.items()},
        "aim": aim_of(row) or None,
        "met": row.is_met,
    }


def table_of(rows: Sequence[Row], machine: Machine, date: datetime) -> Table:
    """One row per thing measured; above it, where and when. Words are folded where they do not fit; figures never."""
    table = Table(
        title=machine_line(machine, date),
        caption="size: memories × numbers of an embedding, and more · ratio: the median beside the reference's, in "
        "turns in the same run · peak: highest resident memory of the process meanwhile, in 10⁶ bytes",
        title_justify="left", caption_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for heading in ("benchmark", "what", "size", "median", "p95", "reference", "ratio", "peak MB", "aim", "met"):
        if heading in WORDS:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, _cells(row)))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    value = NOTHING if row.value is None else f"{figure(row.value)} {row.unit}".rstrip()
    beside = row.reference_median
    return (
        row.benchmark,
        row.what,
        ", ".join(filter(None, (f"{row.memories:,} × {row.dimension:,}" if row.dimension else "", row.size))),
        value if row.median is None else duration(row.median),
        NOTHING if row.p95 is None else duration(row.p95),
        NOTHING if beside is None else f"{row.reference}, {duration(beside)}",
        NOTHING if row.ratio is None else f"{figure(row.ratio)} ×",
        NOTHING if row.peak_mb is None else f"{row.peak_mb:,.0f}",
        aim_of(row) or NOTHING,
        MET[row.is_met],
    )


def aims_line(rows: Sequence[Row]) -> str:
    """How many of the aims are met; which ones are not."""
    aimed = [row for row in rows if row.is_met is not None]
    missed = [f"{row.benchmark}: {row.what}" for row in aimed if not row.is_met]
    return f"{len(aimed) - len(missed)} of {len(aimed)} aims met." + (
        f" Missed: {'; '.join(missed)}." if missed else ""
    )


def aim_of(row: Row) -> str:
    """The aim of a row in words; empty without one."""
    if row.aim is None:
        return ""
    limit = row.aim.limit
    words = {
        "ratio": f"{limit:g} ×",
        "over_s": f"{duration(limit, 'g')} more",
        "median_s": duration(limit, "g"),
        "value": f"{limit:,g} {row.unit}".rstrip(),
    }[row.aim.of]
    return f"{'≥' if row.aim.at_least else '≤'} {words}"


def figure(value: float) -> str:
    """A number with three digits, or all those before the point."""
    size = abs(value)
    if size == 0 or size >= 99.95:
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.1e}"
    return f"{value:.{1 if size >= 9.995 else 2 if size >= 0.9995 else 3}f}"


def duration(seconds: float, form: str = "") -> str:
    """Seconds in s, ms or µs, with three digits or in the given format."""
    scale, unit = next((each for each in UNITS if abs(seconds) >= 0.9995 * each[0]), UNITS[-1])
    return f"{format(seconds / scale, form) if form else figure(seconds / scale)} {unit}"
