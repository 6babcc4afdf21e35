"""SQLite without a way out, in a process of its own: one database in memory, one statement a question.

What a statement may do is listed in `allowed`; everything else is refused before it runs. Work, memory and the size of
an answer are bounded, and the process can open no file.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from memrl_core.environments.child import serve
from memrl_core.environments.databases.allowed import ACTIONS, FUNCTIONS, INNER_TABLES, REFUSED
from memrl_core.environments.databases.bounds import bounded
from memrl_core.environments.databases.clock import stand_still

Register = Callable[[sqlite3.Connection], None]

ADDRESS_SPACE = 2**30
"""Bytes that the process may have altogether, where the system can bound that."""

PULSE = 1_000
"""Instructions of SQLite's machine between two looks at the clock."""

_FAULTS = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError, RecursionError)


class Database:
    """One database in memory, and the answers to questions about it.

    `functions` are names that statements may use besides SQLite's own; `register` gives them to a new connection.
    """

    def __init__(self, register: Register | None = None, functions: Iterable[str] = ()) -> None:
        self._register = register
        self._functions = FUNCTIONS | set(functions)
        self._inner_tables = INNER_TABLES
        self._connection: sqlite3.Connection | None = None
        self._limits: Mapping[str, Any] = {}
        self._refused = self._stopped = ""
        self._left = 0
        self._deadline = math.inf
        self._confined = self._own = False

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what is asked: `begin`, `run` or `content`. What cannot be done is an `error`, in words.

        Before there is a database everything else is `lost`.
        """
        if not self._confined:
            confine()
            self._confined = True
        if question["do"] == "begin":
            return self._begun(question["tables"], question["limits"])
        if self._connection is None:
            return {"lost": True}
        return self._content(question["needed"]) if question["do"] == "content" else self._run(question["statement"])

    def _begun(self, tables: Iterable[Mapping[str, Any]], limits: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._connection is not None:
            self._connection.close()
        self._limits = limits
        self._connection = self._opened()
        for table in tables:
            if told := self._filled(table):
                return {"error": f"table {table['name']}: {told}"}
        return {}

    def _opened(self) -> sqlite3.Connection:
        connection = bounded(self._limits)
        self._inner_tables = INNER_TABLES | {f"pragma_{name}" for (name,) in connection.execute("PRAGMA pragma_list")}
        self._forbid(connection)
        stand_still(connection)
        if self._register is not None:
            self._register(connection)
        connection.set_authorizer(self._authorized)
        connection.set_progress_handler(self._exhausted, PULSE)
        return connection

    def _forbid(self, connection: sqlite3.Connection) -> None:
        """Put functions that only fail in the place of those that may not be called.

        The authorizer is not asked about what a DEFAULT calls.
        """

        def called(name: str, *_: Any) -> None:
            self._refused = f"the function {name}"
            raise ValueError(name)

        for name, values in connection.execute("SELECT DISTINCT name, narg FROM pragma_function_list").fetchall():
            if name not in self._functions:
                connection.create_function(name, values, partial(called, name))

    def _authorized(
        self, action: int, first: str | None, second: str | None, database: str | None, *_: str | None
    ) -> int:
        if action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            if name in self._functions:
                return sqlite3.SQLITE_OK
            self._refused = f"the function {name[:80]}"
        elif database == "temp" and action != sqlite3.SQLITE_READ:
            self._refused = "a temporary table or view: it would hide one of the same name"
        elif action in ACTIONS:
            name = (first or "").lower()
            if name not in self._inner_tables:
                return sqlite3.SQLITE_OK
            self._refused = f"the table {name[:80]}"
        elif self._own and action == sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK
        else:
            self._refused = REFUSED.get(action, "a statement of this kind")
        return sqlite3.SQLITE_DENY

    def _exhausted(self) -> bool:
        self._left -= PULSE
        if self._left < 0:
            self._stopped = f"it needs more than {int(self._limits['instructions']):,} instructions"
        elif time.monotonic() > self._deadline:
            self._stopped = f"it ran for more than {self._limits['seconds']:g} seconds"
        return bool(self._stopped)

    def _started(self) -> None:
        self._refused = self._stopped = ""
        self._left = int(self._limits["instructions"])
        self._deadline = time.monotonic() + float(self._limits["seconds"])

    def _filled(self, table: Mapping[str, Any]) -> str:
        """Make a table with its rows; "" or what was wrong with it."""
        assert self._connection is not None
        self._started()
        name = _quoted(table["name"])
        try:
            self._connection.execute(table["create"])
            self._connection.execute(f"SELECT 1 FROM main.{name}").close()
            rows = [[_stored(value) for value in row] for row in table["rows"]]
            if rows:
                self._connection.executemany(f"INSERT INTO main.{name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        except (*_FAULTS, KeyError, TypeError) as error:
            return self._told(error)
        return ""

    def _run(self, statement: str) -> Mapping[str, Any]:
        """Run a statement in a transaction of its own: one that fails changes nothing, whatever it had done by then."""
        self._transaction("BEGIN")
        try:
            ran = self._ran(statement)
            self._transaction("COMMIT")
            return ran
        except _FAULTS as error:
            told = self._told(error)
            self._transaction("ROLLBACK")
            return {"error": told}

    def _ran(self, statement: str) -> Mapping[str, Any]:
        assert self._connection is not None
        before = self._connection.total_changes
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            columns = [column[0] for column in cursor.description or ()]
            rows, cut = self._fetched(cursor)
        return {"columns": columns, "rows": rows, "cut": cut, "changed": self._connection.total_changes - before}

    def _transaction(self, word: str) -> None:
        """Begin or end a transaction; SQLite itself ends it after some faults."""
        assert self._connection is not None
        self._started()
        if self._connection.in_transaction == (word == "BEGIN"):
            return
        self._own = True
        try:
            self._connection.execute(word).close()
        finally:
            self._own = False

    def _content(self, needed: Iterable[str] | None) -> Mapping[str, Any]:
        """The rows of all tables, without those that are too large; a `needed` one that is, is an error."""
        listed = self._run(
            "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        strict = None if needed is None else {name.lower() for name in needed}
        content: dict[str, Any] = {}
        for (name,) in listed.get("rows", ()):
            found = self._run(f"SELECT * FROM main.{_quoted(name)}")
            if "error" not in found and not found["cut"]:
                content[name] = found["rows"]
            elif strict is None or name.lower() in strict:
                return {"error": found.get("error") or "they hold more than can be read"}
        return {"content": content} if "error" not in listed else listed

    def _fetched(self, cursor: sqlite3.Cursor) -> tuple[list[list[Any]], bool]:
        """The rows, as many as fit; and whether there were more."""
        rows: list[list[Any]] = []
        room = int(self._limits["characters"])
        for row in cursor:
            room -= sum(_size(value) for value in row)
            if len(rows) == self._limits["rows"] or room < 0:
                return rows, True
            rows.append([_sent(value) for value in row])
        return rows, False

    def _told(self, error: BaseException) -> str:
        if self._refused:
            return f"not allowed here: {self._refused}"
        if self._stopped:
            return f"it was stopped: {self._stopped}"
        if isinstance(error, MemoryError):
            return "it was stopped: it needs too much memory"
        return str(error)[:300] or type(error).__name__


def confine() -> None:
    """From here on the process opens nothing, writes no file, starts no process and stays small, if the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    free = os.dup(0)
    os.close(free)
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_AS, ADDRESS_SPACE),
        (resource.RLIMIT_NOFILE, free),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _stored(value: Any) -> Any:
    return bytes.fromhex(value["blob"]) if isinstance(value, dict) else value


def _sent(value: Any) -> Any:
    return {"blob": value.hex()} if isinstance(value, bytes) else value


def _size(value: Any) -> int:
    return len(value) * (2 if isinstance(value, bytes) else 1) if isinstance(value, str | bytes) else 20


if __name__ == "__main__":
    serve(Database().answer)
