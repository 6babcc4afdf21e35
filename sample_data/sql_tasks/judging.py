"""Whether a statement solves a task, by a database in memory."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import Any

Outcome = Any


def outcome(data: Mapping[str, Any], statement: str) -> Outcome:
    """What a statement leads to: the rows of a query, all tables after a modification, None when it does not run."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table in data["tables"]:
            database.execute(table["create"])
            marks = ", ".join("?" * len(table["rows"][0]))
            database.executemany(f"INSERT INTO {table['name']} VALUES ({marks})", table["rows"])
        try:
            rows = database.execute(statement).fetchall()
        except sqlite3.Error:
            return None
        if data["kind"] == "query":
            return rows if data["ordered"] else Counter(rows)
        names = [table["name"] for table in data["tables"]]
        return {name: Counter(database.execute(f"SELECT * FROM {name}").fetchall()) for name in names}


def solves(data: Mapping[str, Any], statement: str) -> bool:
    """Whether it leads where the reference leads."""
    return bool(outcome(data, statement) == outcome(data, data["reference"]))


def says_something(data: Mapping[str, Any]) -> bool:
    """Whether the reference of a query gives a row, and that of a modification changes one."""
    came = outcome(data, data["reference"])
    return bool(came) if data["kind"] == "query" else bool(came != outcome(data, "SELECT 1"))
