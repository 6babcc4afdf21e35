"""Tables for people: CSV in which no text can become a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

# Spreadsheets pass over blanks before they look for a formula.
_FORMULA = re.compile(r"[\t\r]|\s*[=+\-@]")


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A table with a heading, comma-separated with CRLF (RFC 4180), all text in quotes.

    A text that a spreadsheet would take for a formula (=, +, - or @ after any blanks, or a tab or CR at its start) gets
    an apostrophe before it, as OWASP advises ("CSV injection"). Numbers stay numbers; None and what a row lacks is
    empty.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue()


def csv_bytes(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """`csv_of` as a file: UTF-8 with the mark by which spreadsheets know it."""
    return csv_of(rows, columns).encode("utf-8-sig")


def _cell(value: Any) -> Any:
    if isinstance(value, Number):
        return value
    text = "" if value is None else str(value)
    return f"'{text}" if _FORMULA.match(text) else text
