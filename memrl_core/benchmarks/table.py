"""Measurements as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from memrl_core.benchmarks.measuring import Measurement
from memrl_core.benchmarks.suite import Machine


def benchmark_table(measurements: Sequence[Measurement], machine: Machine) -> Table:
    """A row a measurement: median, smallest and largest value, and the budget; above it, where and when."""
    table = Table(
        title=machine_line(machine),
        caption="median and spread (smallest – largest) of the repetitions, after one that warms up",
        caption_justify="left",
    )
    for heading in ("benchmark", "what", "size"):
        table.add_column(heading)
    for heading in ("median", "spread", "budget"):
        table.add_column(heading, justify="right", no_wrap=True)
    for m in measurements:
        low, high = m.spread
        table.add_row(
            m.benchmark,
            m.what,
            m.size,
            f"{_number(m.median)} {m.unit}",
            f"{_number(low)} – {_number(high)}",
            m.budget or "–",
        )
    return table


def machine_line(machine: Machine) -> str:
    """Where and when something was measured, in one line."""
    memory = "memory not told" if machine.memory is None else f"{machine.memory:.1f} GiB"
    return (
        f"{machine.date} · {machine.system}, {machine.cores} cores, {memory} · memrl {machine.version} · "
        f"Python {machine.python}"
    )


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
