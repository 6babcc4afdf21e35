"""Two files of measurements side by side: what became of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.results import KeptRow, Results
from memrl_core.experiments.machine import Machine

Key = tuple[str, str, int, int | None, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that two files hold, by its ratio; by its seconds or its value where one of them has no ratio.

    `before` and `after` are None where the two rows have no kind of figure in common. `row` is the newer one. `spread`
    is the wider of the two, in the same unit, from the quickest repetition to the p95.
    """

    row: KeptRow
    of: Literal["ratio", "time", "value"]
    before: float | None
    after: float | None
    spread: float | None
    misses_its_aim: bool

    @property
    def percent(self) -> float | None:
        """By how much the figure grew."""
        if not self.before or self.after is None:
            return None
        return 100 * (self.after / self.before - 1)

    @property
    def is_worse(self) -> bool:
        """Whether it takes longer by more than the spread; of a value nobody knows which way is worse."""
        if self.before is None or self.after is None or self.spread is None:
            return False
        return self.after - self.before > self.spread


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two files, the rows of both, and those of one only."""

    old: Results
    new: Results
    changes: tuple[Change, ...]
    only_old: tuple[KeptRow, ...]
    only_new: tuple[KeptRow, ...]

    @property
    def machines_differ(self) -> bool:
        """Whether they were measured on machines that can be told apart; versions of programs do not count."""
        return _hardware(self.old.machine) != _hardware(self.new.machine)


def compared(old: Results, new: Results) -> Comparison:
    """Rows belong together when benchmark, `what`, `memories`, `dimension` and `size` are the same."""
    before, after = _by_key(old.rows), _by_key(new.rows)
    return Comparison(
        old,
        new,
        tuple(_change(before[key], row) for key, row in after.items() if key in before),
        tuple(row for key, row in before.items() if key not in after),
        tuple(row for key, row in after.items() if key not in before),
    )


def _by_key(rows: Sequence[KeptRow]) -> dict[Key, KeptRow]:
    return {(row.benchmark, row.what, row.memories, row.dimension, row.size): row for row in rows}


def _change(old: KeptRow, new: KeptRow) -> Change:
    misses = bool(old.met) and new.met is False
    if old.ratio_median is not None and new.ratio_median is not None:
        spreads = [_spread(row, row.reference_median_s) for row in (old, new)]
        return Change(new, "ratio", old.ratio_median, new.ratio_median, _widest(spreads), misses)
    if old.median_s is not None and new.median_s is not None:
        return Change(
            new, "time", old.median_s, new.median_s, _widest([_spread(row, 1.0) for row in (old, new)]), misses
        )
    if old.value is not None and new.value is not None:
        return Change(new, "value", old.value, new.value, None, misses)
    return Change(new, "value", None, None, None, misses)


def _spread(row: KeptRow, unit: float | None) -> float | None:
    if row.p95_s is None or row.min_s is None or not unit:
        return None
    return (row.p95_s - row.min_s) / unit


def _widest(spreads: Sequence[float | None]) -> float | None:
    return max((spread for spread in spreads if spread is not None), default=None)


def _hardware(machine: Machine) -> tuple[str, int, int | None]:
    return machine.system, machine.cores, None if machine.memory_gib is None else round(machine.memory_gib)
