"""Tables for people: CSV in which no text can become a formula."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

# Spreadsheets pass over blanks before they look for a formula, and some take a sign of full width (＝ ＋ － ＠) for its
# plain one.
_FORMULA = re.compile(r"[\t\r]|\s*[=+\-@＝＋－＠]")
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")

DIGITS = 6
LONGEST_PART, LONGEST_NAME = 60, 180


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], exact: bool = False) -> str:
    """A table with a heading, comma-separated with CRLF (RFC 4180), all text in quotes.

    A text that a spreadsheet would take for a formula (=, +, - or @, also of full width, after any blanks, or a tab or
    CR at its start) gets an apostrophe before it, as OWASP advises ("CSV injection"). Numbers stay numbers,
    with `DIGITS` significant digits unless `exact`; None, nan and what a row lacks is empty.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([_cell(name, exact) for name in columns])
    writer.writerows([_cell(row.get(name), exact) for name in columns] for row in rows)
    return text.getvalue()


def csv_bytes(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], exact: bool = False) -> bytes:
    """`csv_of` as a file: UTF-8 with the mark by which spreadsheets know it."""
    return csv_of(rows, columns, exact).encode("utf-8-sig")


def file_name(*parts: object, kind: str) -> str:
    """A name for a download made of what it holds, such as bank, run and step; None and "" are left out."""
    plain = (_NOT_IN_NAMES.sub("-", unicodedata.normalize("NFC", str(p))).strip("-.") for p in parts if p is not None)
    return f"{'-'.join(p[:LONGEST_PART] for p in plain if p)[:LONGEST_NAME].strip('-.') or 'memrl'}.{kind}"


def _cell(value: Any, exact: bool) -> Any:
    if isinstance(value, Number):
        return value if exact or not isinstance(value, float) else _rounded(float(value))
    text = "" if value is None else str(value)
    return f"'{text}" if _FORMULA.match(text) else text


def _rounded(value: float) -> float | str:
    if math.isnan(value):
        return ""
    return float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS else float(f"{value:.0f}")
