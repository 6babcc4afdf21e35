"""The clock of the sandbox: it stands still, so that the same statement gives the same rows on every day."""

from __future__ import annotations

import os
import sqlite3
import time
from functools import partial
from typing import Any

NOW = "2025-01-01 00:00:00"
"""What the clock shows, always; it is the same for tasks that were made for MySQL."""

_PLACE_OF_TIME = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}
_FIXED = {"current_date": NOW[:10], "current_time": NOW[11:], "current_timestamp": NOW}
_CLOCK = ("now", "subsec", "subsecond")


def stand_still(connection: sqlite3.Connection) -> None:
    """Put functions that never look at the clock in the place of SQLite's own; local time is UTC.

    They do for every other argument what SQLite's do.
    """
    os.environ["TZ"] = "UTC"
    if hasattr(time, "tzset"):
        time.tzset()
    plain = sqlite3.connect(":memory:", isolation_level=None)
    for name, value in _FIXED.items():
        connection.create_function(name, 0, partial(str, value), deterministic=True)
    for (name,) in plain.execute("SELECT DISTINCT name FROM pragma_function_list").fetchall():
        if name in _PLACE_OF_TIME:
            function = partial(_called, plain, name, _PLACE_OF_TIME[name])
            connection.create_function(name, -1, function, deterministic=True)
        elif name == "timediff":
            connection.create_function(name, 2, partial(_called, plain, name, 0), deterministic=True)


def _called(plain: sqlite3.Connection, name: str, place: int, *values: Any) -> Any:
    given = [NOW if _asks_for_now(value) else value for value in values]
    if len(given) == place:
        given.append(NOW)
    return plain.execute(f"SELECT {name}({', '.join('?' * len(given))})", given).fetchone()[0]


def _asks_for_now(value: Any) -> bool:
    """Whether SQLite would take a value for the time that it is; it reads a text up to its first NUL."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return isinstance(value, str) and value.partition("\0")[0].lower() in _CLOCK
