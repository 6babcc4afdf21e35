"""Values of SQLite as the number or the text that MySQL sees in them."""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def number(value: Any) -> int | float:
    """A value that is not NULL as a number: a text as the number it begins with, 0 when it begins with none."""
    if isinstance(value, int | float):
        return value
    found = _NUMBER.match(text(value))
    if found is None:
        return 0
    return float(found.group()) if found.group(2) or found.group(1)[0] == "." or found.group(3) else int(found.group())


def is_number(value: str) -> bool:
    """Whether a text is a number from its beginning to its end."""
    return _NUMBER.fullmatch(value.rstrip()) is not None


def text(value: Any) -> str:
    """A value that is not NULL, as MySQL would write it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
