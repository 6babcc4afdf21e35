"""What was measured as a table for a terminal or a page, and as a JSON file: `{"machine": …, "rows": […]}`.

A row of the file names what was measured (`benchmark`, `what`, `memories`, `dimension`, `size`), how long it took
(`median_s`, `p95_s`, `min_s`, `max_s`, over `repetitions`), what that is beside its reference, which was measured in
turns with it (`reference`, `reference_median_s`, `ratio_median`, `over_s`), a figure that is no time (`value`,
`unit`), the highest resident memory meanwhile (`peak_mb`, 10⁶ bytes), and the aim in words with whether it is `met`.
Times are in seconds. What a row does not have is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measuring import Row
from memrl_core.experiments.report_table import NOTHING, ReportTable

COLUMNS = ("what", "size", "median", "p95", "reference", "ratio", "peak MB", "aim", "met")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
MET = {True: "✓ yes", False: "✗ no", None: ""}


def contents(rows: Sequence[Row], machine: str) -> dict[str, Any]:
    """What the file of `python -m benchmarks --json` holds."""
    return {"machine": machine, "rows": [_contents(row) for row in rows]}


def _contents(row: Row) -> dict[str, Any]:
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


def table_of(file: Mapping[str, Any]) -> ReportTable:
    """The `contents` of a file as a table with a row per thing measured."""
    rows = file["rows"]
    aimed = [row for row in rows if row["met"] is not None]
    missed = "; ".join(f"{row['benchmark']}: {row['what']}" for row in aimed if not row["met"])
    return ReportTable(
        file["machine"],
        COLUMNS,
        tuple(_cells(row) for row in rows),
        (
            "ratio: the median beside the reference's, measured in turns in the same run",
            "peak: highest resident memory of the process meanwhile, in 10⁶ bytes",
            f"{sum(row['met'] for row in aimed)} of {len(aimed)} aims met{f'; missed: {missed}' if missed else ''}",
        ),
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    value, beside, dimension = row["value"], row["reference_median_s"], row["dimension"]
    median = f"{figure(value)} {row['unit'] or ''}".rstrip() if value is not None else duration(row["median_s"])
    return (
        f"{row['benchmark']}: {row['what']}",
        ", ".join(filter(None, (f"{row['memories']:,} × {dimension:,}" if dimension else "", row["size"]))),
        median,
        duration(row["p95_s"]),
        NOTHING if beside is None else f"{row['reference']}, {duration(beside)}",
        NOTHING if row["ratio_median"] is None else f"{figure(row['ratio_median'])} ×",
        NOTHING if row["peak_mb"] is None else f"{row['peak_mb']:,.0f}",
        row["aim"] or NOTHING,
        MET[row["met"]],
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


def duration(seconds: float | None, form: str = "") -> str:
    """Seconds in s, ms or µs, with three digits or in the given format."""
    if seconds is None:
        return NOTHING
    scale, unit = next((each for each in UNITS if abs(seconds) >= 0.9995 * each[0]), UNITS[-1])
    return f"{format(seconds / scale, form) if form else figure(seconds / scale)} {unit}"
