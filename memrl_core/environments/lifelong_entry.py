"""One entry of the DB-bench file of LifelongAgentBench: what it must hold, and whether its parts fit together.

`table_info`, `answer_info` and `skill_list` are texts of Python literals; the same as JSON is read as well.
"""

from __future__ import annotations

import ast
import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memrl_core.errors import InputError
from memrl_core.settings import sentence_of

LONGEST_LITERAL = 200_000
LARGEST_INTEGER = 2**63 - 1

_HOLDS = "holds something else than texts, finite numbers of 64 bits and None."

Rows = list[list[Any]]


def _read(value: Any) -> Any:
    """What a text of Python spells, tuples as lists; anything else as it is. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    if len(value) > LONGEST_LITERAL:
        raise ValueError(f"it has {len(value):,} characters; at most {LONGEST_LITERAL:,} are read")
    try:
        return _with_lists(ast.literal_eval(value.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("it is no Python literal") from None


def _with_lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_lists(one) for one in value]
    return {key: _with_lists(one) for key, one in value.items()} if isinstance(value, dict) else value


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class ColumnInfo(_Part):
    """A column and its MySQL type."""

    name: str = Field(min_length=1, max_length=64)
    type: str = Field(min_length=1, max_length=200)


class TableInfo(_Part):
    """The table that the question is about."""

    name: str = Field(min_length=1, max_length=64)
    column_info_list: list[ColumnInfo] = Field(min_length=1, max_length=100)
    row_list: Rows = Field(max_length=1_000)


class AnswerInfo(_Part):
    """The statement that solves the task, and for a question the rows that answer it. The hash is not read."""

    sql: str = Field(min_length=1)
    direct: Annotated[Rows | None, BeforeValidator(_read)] = None


class Entry(_Part):
    """An entry; what else stands in it is not read."""

    instruction: str = Field(min_length=1)
    table_info: Annotated[TableInfo, BeforeValidator(_read)]
    answer_info: Annotated[AnswerInfo, BeforeValidator(_read)]
    skill_list: Annotated[list[str], BeforeValidator(_read)] = Field(default_factory=list, max_length=100)


def read_entry(value: object) -> Entry:
    """The entry in a JSON value. Raises `InputError` with the first thing that is missing, wrong or does not fit."""
    try:
        entry = Entry.model_validate(value)
    except ValidationError as error:
        told = sentence_of(error).removeprefix("Settings were not changed. ")
        raise InputError(f"{told[:300]}{'' if len(told) <= 300 else ' …'}") from None
    table = entry.table_info
    names = [column.name.lower() for column in table.column_info_list]
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise InputError(f"The column “{twice}” stands twice in its table.")
    for number, row in enumerate(table.row_list, start=1):
        if len(row) != len(names):
            raise InputError(f"Row {number} has {len(row)} values, its table {len(names)} columns.")
        if not all(map(_can_be_stored, row)):
            raise InputError(f"Row {number} {_HOLDS}")
    for number, row in enumerate(entry.answer_info.direct or (), start=1):
        if not all(map(_can_be_stored, row)):
            raise InputError(f"Row {number} of its answer (direct) {_HOLDS}")
    return entry


def _can_be_stored(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST_INTEGER
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or (isinstance(value, float) and math.isfinite(value))
