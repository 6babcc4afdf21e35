"""MySQL's functions of many rows that SQLite lacks, as aggregates for a connection of SQLite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cmp_to_key
from typing import Any

from memrl_core.environments.databases.mysql_numbers import number, text

LONGEST_LIST = 1024
"""Characters of a GROUP_CONCAT, as MySQL has it unless told otherwise."""


class Spread:
    """STDDEV and VARIANCE, of the population or of a sample."""

    sample = False
    root = True

    def __init__(self) -> None:
        self._values: list[float] = []

    def step(self, value: Any) -> None:
        """One more value; NULL does not count."""
        if value is not None:
            self._values.append(float(number(value)))

    def finalize(self) -> float | None:
        """The spread; NULL without values, and for a sample of one."""
        count = len(self._values)
        if count <= self.sample:
            return None
        mean = math.fsum(self._values) / count
        variance = math.fsum((value - mean) ** 2 for value in self._values) / (count - self.sample)
        return math.sqrt(variance) if self.root else variance


class _SampleSpread(Spread):
    sample = True


class _Variance(Spread):
    root = False


class _SampleVariance(_SampleSpread):
    root = False


class CountDistinct:
    """COUNT(DISTINCT a, b): the different rows without a NULL; case does not count."""

    def __init__(self) -> None:
        self._seen: set[tuple[Any, ...]] = set()

    def step(self, *values: Any) -> None:
        """One more row."""
        if None not in values:
            self._seen.add(tuple(v.lower() if isinstance(v, str) else v for v in values))

    def finalize(self) -> int:
        """How many different ones there were."""
        return len(self._seen)


class GroupConcat:
    """GROUP_CONCAT: values joined by a separator, each once or every time, in the order of keys ("a" up, "d" down)."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Sequence[Any]]] = []
        self._separator, self._distinct, self._directions = ",", 0, ""

    def step(self, separator: Any, distinct: Any, directions: str, value: Any, *keys: Any) -> None:
        """One more value; NULL does not count."""
        self._separator, self._distinct, self._directions = text(separator), int(distinct), directions
        if value is not None:
            self._rows.append((text(value), keys))

    def finalize(self) -> str | None:
        """The list, cut at MySQL's length; NULL without values."""
        kept = [value for value, _ in sorted(self._rows, key=cmp_to_key(self._order))]
        if self._distinct:
            kept = list({value.lower(): value for value in reversed(kept)}.values())[::-1]
        return self._separator.join(kept)[:LONGEST_LIST] if kept else None

    def _order(self, one: tuple[str, Sequence[Any]], other: tuple[str, Sequence[Any]]) -> int:
        keys, others = map(_sortable, one[1]), map(_sortable, other[1])
        for direction, x, y in zip(self._directions, keys, others, strict=True):
            if x != y:
                return (1 if x > y else -1) * (1 if direction == "a" else -1)
        return 0


class AnyValue:
    """ANY_VALUE: the first one."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def step(self, value: Any) -> None:
        """One more value; only the first is kept."""
        self._values = self._values or [value]

    def finalize(self) -> Any:
        """The first value; NULL without one."""
        return self._values[0] if self._values else None


def _sortable(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, text(value).lower())


AGGREGATES: Mapping[str, type[Any]] = {
    "std": Spread,
    "stddev": Spread,
    "stddev_pop": Spread,
    "stddev_samp": _SampleSpread,
    "variance": _Variance,
    "var_pop": _Variance,
    "var_samp": _SampleVariance,
    "count_distinct": CountDistinct,
    "group_concat": GroupConcat,
    "any_value": AnyValue,
}
"""Functions of many rows, by name in lower case."""
