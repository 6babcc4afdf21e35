"""All benchmarks by name, and the command that runs them: `python -m benchmarks`.

A module is imported only when it is run: some need a browser, or take long.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from rich.markup import escape

from benchmarks.measuring import Row, Sizes
from benchmarks.results import contents, table_of
from memrl_core.cli.console import console
from memrl_core.errors import InputError
from memrl_core.experiments.executors import machine_line
from memrl_core.experiments.report_table import rich_tables

BENCHMARKS: Mapping[str, str] = {
    "retrieval": "benchmarks.retrieval",
    "step": "benchmarks.step",
    "first-token": "benchmarks.first_token",
    "open": "benchmarks.opening",
    "policies": "benchmarks.policies",
    "questions": "benchmarks.questions",
    "recall": "benchmarks.recall",
    "page": "benchmarks.page",
}
"""Name to module; a module has `NAME` and `measure`."""

DEFAULT = ("retrieval", "open", "policies", "questions", "recall")
"""Those that are run when none is named: minutes, and nothing but this process."""


class Benchmark(Protocol):
    """What the module of a benchmark holds."""

    NAME: str

    @staticmethod
    def measure(sizes: Sizes) -> list[Row]:
        """Measure, at most as much as `sizes` says."""


def main(names: Sequence[str], sizes: Sizes, file: Path | None) -> None:
    """Run the benchmarks of these names, print a table of their rows and write them to `file`."""
    if file is not None:
        _must_be_writable(file)
    rows: list[Row] = []
    machine = machine_line()
    with console.status("Preparing …") as status:
        measured = run_benchmarks(names, sizes, lambda name: status.update(f"Measuring {escape(name)} …"))
        try:
            for row in measured:
                rows.append(row)
        finally:  # What was measured before a failure or Ctrl-C took minutes.
            status.stop()
            if rows:
                found = contents(rows, machine)
                for table in rich_tables(table_of(found), console.width):
                    console.print(table)
                if file is not None:
                    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
                    file.write_text(f"{text}\n", encoding="utf-8")
                    console.print(f"Written to {escape(str(file))}.")


def _must_be_writable(target: Path) -> None:
    folder = target.parent
    if target.is_dir() or not folder.is_dir() or not os.access(target if target.exists() else folder, os.W_OK):
        raise InputError(
            f"{str(target)[-80:]} cannot be written. Nothing was measured; name a file in a folder that is there and "
            "can be written to."
        )


def run_benchmarks(
    names: Sequence[str] = (), sizes: Sizes | None = None, on_begin: Callable[[str], None] | None = None
) -> Iterator[Row]:
    """Rows of the benchmarks of these names, or `DEFAULT`, one after the other, each as soon as it is measured.

    `on_begin` gets each name as it begins. Raises `InputError` before anything is measured: for a name that is none of
    `BENCHMARKS`, for sizes below 1, and where what a benchmark needs is not installed.
    """
    sizes = sizes or Sizes()
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise InputError(f"There is no benchmark “{unknown[0][:80]}”. Known: {', '.join(BENCHMARKS)}.")
    if min(sizes.memories, sizes.steps, sizes.repeat, sizes.dimension) < 1:
        raise InputError(
            "A benchmark needs at least one memory of one number, one step and one repetition. Nothing was measured."
        )
    chosen = {name: benchmark(name) for name in names or DEFAULT}
    return _measured(chosen, sizes, on_begin or (lambda name: None))


def benchmark(name: str) -> Benchmark:
    """Module of a benchmark. Raises `InputError` where what it imports is not installed, `KeyError`."""
    try:
        return cast(Benchmark, import_module(BENCHMARKS[name]))
    except ModuleNotFoundError as error:
        raise InputError(
            f"The benchmark {name} needs {error.name}, which is not installed. Nothing was measured; install "
            "memrl-inspector[test], or choose other benchmarks."
        ) from error


def _measured(chosen: Mapping[str, Benchmark], sizes: Sizes, on_begin: Callable[[str], None]) -> Iterator[Row]:
    for name, module in chosen.items():
        on_begin(name)
        yield from module.measure(sizes)
