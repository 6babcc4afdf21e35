"""What was measured, and two such files side by side, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from benchmarks.changes import Change, Comparison
from benchmarks.results import KeptRow, Results
from benchmarks.words import duration, figure, ratio
from memrl_core.experiments.machine import machine_line

WIDTH = 120
"""Columns that the tables need: narrower, and their figures are cut."""
WORDS = ("benchmark", "what", "size", "reference", "mark")
NOTHING = "–"
MET = {True: "✓ yes", False: "✗ no", None: ""}


def benchmark_table(results: Results) -> Table:
    """A row for each thing measured; above it, where and when."""
    table = _table(
        machine_line(results.machine, results.date),
        "size: memories × numbers of an embedding, and more · median and p95 of the repetitions · ratio: the median "
        "beside the reference's, measured in turns in the same run · peak: highest resident memory of the process "
        "meanwhile, in 10⁶ bytes",
        ("benchmark", "what", "size", "median", "p95", "reference", "ratio", "peak MB", "aim", "met"),
    )
    for row in results.rows:
        table.add_row(*map(escape, _cells(row)))
    return table


def aims_line(rows: Sequence[KeptRow]) -> str:
    """How many of the aims are met; which ones are not."""
    aimed = [row for row in rows if row.met is not None]
    missed = [f"{row.benchmark}: {row.what}" for row in aimed if not row.met]
    told = f"{len(aimed) - len(missed)} of {len(aimed)} aims met."
    return f"{told} Missed: {'; '.join(missed)}." if missed else told


def size_of(row: KeptRow) -> str:
    """What was worked on: the memories × their dimension, and whatever else says how much it was."""
    if not row.memories:
        return row.size
    unit = f"× {row.dimension:,}" if row.dimension else "memory" if row.memories == 1 else "memories"
    memories = f"{row.memories:,} {unit}"
    return f"{memories}, {row.size}" if row.size else memories


def _cells(row: KeptRow) -> tuple[str, ...]:
    found = NOTHING if row.value is None else _value(row.value, row.unit)
    return (
        row.benchmark,
        row.what,
        size_of(row),
        found if row.median_s is None else duration(row.median_s),
        NOTHING if row.p95_s is None else duration(row.p95_s),
        NOTHING if row.reference_median_s is None else f"{row.reference}, {duration(row.reference_median_s)}",
        NOTHING if row.ratio_median is None else ratio(row.ratio_median),
        NOTHING if row.peak_mb is None else f"{row.peak_mb:,.0f}",
        row.aim or NOTHING,
        MET[row.met],
    )


def comparison_table(comparison: Comparison) -> Table:
    """A row for each thing that both files hold."""
    table = _table(
        f"old: {machine_line(comparison.old.machine, comparison.old.date)}\n"
        f"new: {machine_line(comparison.new.machine, comparison.new.date)}",
        "× after a figure: a ratio to the reference of the same run · worse: by more than the wider of the two "
        "spreads, from the quickest repetition to the p95",
        ("benchmark", "what", "size", "old", "new", "change", "mark"),
    )
    for change in comparison.changes:
        table.add_row(*map(escape, _changed(change)))
    return table


def comparison_lines(comparison: Comparison) -> list[str]:
    """What the table does not say: which rows only one file holds, whether the machines differ, how many got worse."""
    lines = []
    for which, rows in (("old", comparison.only_old), ("new", comparison.only_new)):
        lines += [f"Only in the {which} file: {row.benchmark}: {row.what} ({size_of(row)})" for row in rows]
    if comparison.machines_differ:
        lines.append("The machines differ: compare ratios only, and with care.")
    worse = sum(change.is_worse for change in comparison.changes)
    return [*lines, f"{worse} of {len(comparison.changes)} rows got worse by more than their spread."]


def _changed(change: Change) -> tuple[str, ...]:
    marks = [*(["✗ worse"] if change.is_worse else []), *(["✗ misses its aim now"] if change.misses_its_aim else [])]
    new = change.row
    return (
        new.benchmark,
        new.what,
        size_of(new),
        _told(change, change.before),
        _told(change, change.after),
        NOTHING if change.percent is None else f"{change.percent:+.1f} %",
        ", ".join(marks),
    )


def _told(change: Change, found: float | None) -> str:
    if found is None:
        return NOTHING
    if change.of == "value":
        return _value(found, change.row.unit)
    return (ratio if change.of == "ratio" else duration)(found)


def _value(value: float, unit: str | None) -> str:
    return f"{figure(value)} {unit or ''}".rstrip()


def _table(title: str, caption: str, headings: Sequence[str]) -> Table:
    """Words are folded where they do not fit; figures never are."""
    table = Table(
        title=title, caption=caption, title_justify="left", caption_justify="left", box=SIMPLE_HEAD, pad_edge=False,
        padding=(0, 1, 0, 0), show_lines=False,
    )  # fmt: skip
    for heading in headings:
        if heading in WORDS:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table
