"""How a SQLite file is opened: to write it, or only to read where it cannot be written, within a limit of work."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that a writer waits for another one."""
AT_ONCE = 500
"""So many values stand in one IN (...)."""
WORK, WORK_PER_BYTE, WORK_AT_ONCE = 10_000_000, 200, 10_000
"""Instructions of SQLite that reading a whole bank may take: so many, more for each byte of it (one of our own takes a
quarter), and after so many it is asked whether to go on."""

_LIMIT: ContextVar[Callable[[], bool] | None] = ContextVar("_LIMIT", default=None)


@contextmanager
def limited(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within it, a SQLite bank that is opened may not take more work than one of its size needs.

    Its tables may be made so that reading them never ends. A query beyond the limit, or after `cancelled` says so,
    raises `BankDamaged`.
    """
    before = _LIMIT.set(cancelled)
    try:
        yield
    finally:
        _LIMIT.reset(before)


def connected_to(path: str) -> sqlite3.Connection:
    """A connection to a file, within what `limited` says."""
    connection = _connected(path)
    if (cancelled := _LIMIT.get()) is not None and path != ":memory:":
        left = (WORK + WORK_PER_BYTE * os.path.getsize(path)) // WORK_AT_ONCE

        def is_over() -> bool:
            nonlocal left
            left -= 1
            return left < 0 or cancelled()

        connection.set_progress_handler(is_over, WORK_AT_ONCE)
    return connection


def _connected(path: str) -> sqlite3.Connection:
    """A connection to a file, or to a place that cannot be written, which is then read as it lies."""
    options: dict[str, Any] = {"timeout": PATIENCE, "check_same_thread": False, "isolation_level": None}
    if path != ":memory:" and not (os.access(path, os.W_OK) if os.path.exists(path) else True):
        return _closed(path, options)
    connection: sqlite3.Connection = sqlite3.connect(path, **options)
    connection.execute("PRAGMA synchronous = FULL")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        # A folder that is closed has no room for the files that a WAL needs beside it.
        if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            connection.close()
            raise
        connection.close()
        connection = _closed(path, options)
    return connection


def _closed(path: str, options: Mapping[str, Any]) -> sqlite3.Connection:
    """A connection that only reads: with the log that lies there, if one does and can be used, else without."""
    if size(Path(f"{path}-wal")):
        connection: sqlite3.Connection = sqlite3.connect(_as_uri(path, "mode=ro"), uri=True, **options)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError:
            connection.close()
    connection = sqlite3.connect(_as_uri(path, "mode=ro&immutable=1"), uri=True, **options)
    return connection


def size(path: Path) -> int:
    """The bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _as_uri(path: str, options: str) -> str:
    return f"{Path(path).absolute().as_uri()}?{options}"


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The values in lists of `AT_ONCE`, so many as stand in one IN (...)."""
    listed = list(values)
    for start in range(0, len(listed), AT_ONCE):
        yield listed[start : start + AT_ONCE]


def identity(file: Path | None) -> tuple[int, int] | None:
    """Which file of the disk a path leads to; None where it leads to none."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
