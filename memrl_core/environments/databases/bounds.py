"""An empty database in memory that stays small."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from typing import Any

MEMORY = 128 * 2**20
"""Bytes that SQLite may hold."""


def bounded(limits: Mapping[str, Any]) -> sqlite3.Connection:
    """A new database; `limits` are those of `sandbox.Limits` by their names."""
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    pages = int(limits["pages"])
    for pragma in (
        "temp_store = MEMORY",
        f"max_page_count = {pages}",
        f"temp.max_page_count = {pages}",
        # A view or a DEFAULT may call the functions of `clock`. Those that nobody may call only fail, wherever.
        "trusted_schema = ON",
        f"hard_heap_limit = {MEMORY}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()
    for limit, most in (
        (sqlite3.SQLITE_LIMIT_LENGTH, int(limits["value"])),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, int(limits["statement"])),
        (sqlite3.SQLITE_LIMIT_COLUMN, 200),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100),
        (sqlite3.SQLITE_LIMIT_VDBE_OP, 100_000),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
        (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 200),
        (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    ):
        connection.setlimit(limit, most)
    with contextlib.suppress(AttributeError):  # Not every SQLite was built with them.
        connection.enable_load_extension(False)
    return connection
