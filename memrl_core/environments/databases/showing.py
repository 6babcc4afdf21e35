"""Results, tables and contents as plain text, for models and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memrl_core.environments.databases.sandbox import Ran
from memrl_core.environments.databases.statements import on_one_line

MOST_ROWS = 20
LONGEST_CELL = 60
LONGEST_LINE = 400
LONGEST_BLOCK = 3_000
"""Characters of one result in an observation."""

_CHANGES = ("insert", "update", "delete", "replace", "with")


def result(ran: Ran, statement: str) -> str:
    """What became of a statement: a line, and below it the rows that came, each line set in by two blanks."""
    if ran.error:
        return f"failed: {on_a_line(ran.error)[:LONGEST_LINE]}"
    if ran.columns:
        return f"{_count(ran)}\n{rows_below(ran.columns, ran.rows)}"
    if ran.changed or on_one_line(statement).lower().startswith(_CHANGES):
        return f"{counted(ran.changed)} changed"
    return "done"


def table(create: str, ran: Ran, rows: int) -> str:
    """A table as a task begins: its CREATE statement, how many rows it has, and those in `ran`."""
    shown = f"{counted(rows)}{f', the first {len(ran.rows)}' if rows > len(ran.rows) else ''}"
    return f"{create.strip().rstrip(';')};\n{shown}{':' if rows else ''}\n{rows_below(ran.columns, ran.rows)}"


def rows_below(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The names of the columns and the first rows, a line each, set in by two blanks."""
    lines = [columns, *rows[:MOST_ROWS]] if columns else rows[:MOST_ROWS]
    told = "\n".join("  " + " | ".join(map(cell, line))[:LONGEST_LINE] for line in lines)
    return told if len(told) <= LONGEST_BLOCK else told[:LONGEST_BLOCK].rpartition("\n")[0] + "\n  …"


def content(tables: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """The rows of tables, each under its name."""
    return "\n".join(f"{name}: {counted(len(rows))}\n{rows_below((), rows)}".rstrip() for name, rows in tables.items())


def cell(value: Any) -> str:
    """A value on one line, cut."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{_cut(value[:LONGEST_CELL].hex())}'"
    return _cut(on_a_line(value)) if isinstance(value, str) else repr(value)


def counted(rows: int) -> str:
    """A number of rows in words."""
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _count(ran: Ran) -> str:
    number = f"more than {counted(len(ran.rows))}" if ran.cut else counted(len(ran.rows))
    return f"{number}, the first {MOST_ROWS}" if len(ran.rows) > MOST_ROWS else number


def on_a_line(text: str) -> str:
    """The beginning of a text, with codes in the place of what cannot be printed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:LONGEST_LINE])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
