"""`memrl bench`: measures, prints the rows and keeps them; or compares two such files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks.changes import compared
from benchmarks.measuring import Row, Sizes
from benchmarks.results import must_be_writable, read_rows, results_of, write_results
from benchmarks.suite import run_benchmarks
from benchmarks.table import WIDTH, aims_line, benchmark_table, comparison_lines, comparison_table
from memrl_core.commands.console import console
from memrl_core.errors import InputError
from memrl_core.experiments.machine import this_machine, this_moment


def measure(names: Sequence[str], sizes: Sizes, json: Path | None) -> None:
    """Run the benchmarks of these names, print a table of their rows and write them to `json`."""
    if json is not None:
        must_be_writable(json)
    rows: list[Row] = []
    date = this_moment()
    with console.status("Preparing …") as status:
        measured = run_benchmarks(names, sizes, lambda name: status.update(f"Measuring {escape(name)} …"))
        try:
            for row in measured:
                rows.append(row)
        finally:  # What was measured before a failure or Ctrl-C took minutes.
            status.stop()
            if rows:
                _print(rows, date, json)


def _print(rows: list[Row], date: datetime, json: Path | None) -> None:
    results = results_of(rows, this_machine(), date)
    wide = _wide_console()
    wide.print(benchmark_table(results))
    if json is not None:
        write_results(json, results)
        wide.print(f"Written to {escape(str(json))}.")
    wide.print(escape(aims_line(results.rows)))


def compare_files(old: Path, new: Path) -> None:
    """Print what became of each row. The exit code is 1 where a file cannot be read: 0 says that they were compared."""
    try:
        comparison = compared(read_rows(old), read_rows(new))
    except InputError as error:
        Console(stderr=True).print(escape(str(error)), style="red")
        raise typer.Exit(1) from None
    wide = _wide_console()
    wide.print(comparison_table(comparison))
    for line in comparison_lines(comparison):
        wide.print(escape(line))


def _wide_console() -> Console:
    """A console in which no figure of the tables is cut, even where the screen or the pipe is narrower."""
    return Console(width=max(console.width, WIDTH))
