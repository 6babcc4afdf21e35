"""Tables whose numbers are written as everywhere else and are still sorted as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pandas as pd
from pandas.io.formats.style import Styler

from memrl_core.numerals import NOTHING, fixed, percent, signed, weight

MOST_STYLED = 500
"""Rows up to which cells are written here: with 2,000 it takes half a second."""

Rows: TypeAlias = pd.DataFrame | Sequence[Mapping[str, Any]]


def written(rows: Rows, **by_name: Callable[[float], str]) -> pd.DataFrame | Styler:
    """The rows with the columns named written by a function each, and whole numbers with a separator of thousands.

    Very long tables are left as they are.
    """
    table = pd.DataFrame(rows)
    known: dict[Any, Callable[[float], str]] = {name: write for name, write in by_name.items() if name in table}
    table = table.astype(dict.fromkeys(known, float)) if len(table) <= MOST_STYLED else table
    large = {name: partial(fixed, places=0) for name, column in table.items() if _has_thousands(column)}
    if (not known and not large) or len(table) > MOST_STYLED:
        return table
    return table.style.format({**large, **known}, na_rep=NOTHING)


def _has_thousands(column: pd.Series) -> bool:
    return pd.api.types.is_integer_dtype(column) and bool((column.abs() >= 1000).any())


def in_signs(rows: Rows, *columns: str, shares: Sequence[str] = ()) -> pd.DataFrame | Styler:
    """The rows with some columns as signed numbers of three decimals, and `shares` as per cent with one."""
    return written(rows, **dict.fromkeys(columns, signed), **dict.fromkeys(shares, percent))


def in_percent(rows: Rows, *columns: str) -> pd.DataFrame | Styler:
    """The rows with some columns as per cent with one decimal."""
    return written(rows, **dict.fromkeys(columns, percent))


def with_weights(rows: Rows) -> pd.DataFrame | Styler:
    """The rows with their λ as four decimals."""
    return written(rows, λ=weight)


def with_one_precision(table: pd.DataFrame) -> pd.DataFrame | Styler:
    """The table with four decimals in every column of numbers that has any decimals, and else with none."""
    numbers = {str(name): column.dropna() for name, column in table.items() if pd.api.types.is_float_dtype(column)}
    return written(
        table, **{name: partial(fixed, places=0 if (some % 1 == 0).all() else 4) for name, some in numbers.items()}
    )
