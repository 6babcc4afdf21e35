"""SQLite without a way out, in a process of its own: one database in memory, one statement a question.

What a statement may do is listed below; everything else is refused before it runs. Work, memory and the size of
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

Register = Callable[[sqlite3.Connection], None]

ADDRESS_SPACE = 2**30
"""Bytes that the process may have altogether, where the system can bound that."""

PULSE = 1_000
"""Instructions of SQLite's machine between two looks at the clock."""

_FAULTS = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError, RecursionError)

ACTIONS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_REINDEX,  # Asked for by CREATE INDEX.
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_VIEW,
    }
)
"""What SQLite asks leave for, and gets."""

# Neither random nor randomblob, and dates with a clock that stands still: the same statement gives the same rows.
_HARMLESS = """
    -> ->> abs avg changes char coalesce concat concat_ws count format glob group_concat hex if ifnull iif instr
    last_insert_rowid length like likelihood likely lower ltrim max min nullif octet_length printf quote replace round
    rtrim sign soundex sqlite_version string_agg substr substring sum total total_changes trim typeof unhex unicode
    unlikely upper zeroblob
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power
    radians sin sinh sqrt tan tanh trunc
    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    json json_array json_array_length json_each json_extract json_group_array json_group_object json_insert json_object
    json_patch json_quote json_remove json_replace json_set json_tree json_type json_valid
"""
FUNCTIONS = frozenset(_HARMLESS.split())
"""The functions that may be called."""

REFUSED: Mapping[int, str] = {
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_PRAGMA: "PRAGMA",
    sqlite3.SQLITE_ALTER_TABLE: "ALTER TABLE",
    sqlite3.SQLITE_ANALYZE: "ANALYZE",
    sqlite3.SQLITE_CREATE_VTABLE: "a virtual table",
    sqlite3.SQLITE_CREATE_TRIGGER: "a trigger",
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER: "a trigger",
    sqlite3.SQLITE_TRANSACTION: "a transaction of its own",
    sqlite3.SQLITE_SAVEPOINT: "a savepoint",
}
"""Words for some of what is refused."""

INNER_TABLES = frozenset(("dbstat", "fts3tokenize", "sqlite_dbpage", "sqlite_stmt", "bytecode", "tables_used"))
"""Tables by which SQLite tells about itself."""


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
        # A view or a DEFAULT may call the functions of `stand_still`. Those that nobody may call only fail, wherever.
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
            if message := self._filled(table):
                return {"error": f"table {table['name']}: {message}"}
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
            rows = [[stored(value) for value in row] for row in table["rows"]]
            if rows:
                self._connection.executemany(f"INSERT INTO main.{name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        except (*_FAULTS, KeyError, TypeError) as error:
            return self._message(error)
        return ""

    def _run(self, statement: str) -> Mapping[str, Any]:
        """Run a statement in a transaction of its own: one that fails changes nothing, whatever it had done by then."""
        self._transaction("BEGIN")
        try:
            ran = self._ran(statement)
            self._transaction("COMMIT")
            return ran
        except _FAULTS as error:
            message = self._message(error)
            self._transaction("ROLLBACK")
            return {"error": message}

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
            rows.append([sent(value) for value in row])
        return rows, False

    def _message(self, error: BaseException) -> str:
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


def stored(value: Any) -> Any:
    """A value that came as JSON."""
    return bytes.fromhex(value["blob"]) if isinstance(value, dict) else value


def sent(value: Any) -> Any:
    """A value as JSON has it."""
    return {"blob": value.hex()} if isinstance(value, bytes) else value


def _size(value: Any) -> int:
    return len(value) * (2 if isinstance(value, bytes) else 1) if isinstance(value, str | bytes) else 20


if __name__ == "__main__":
    serve(Database().answer)
