"""One connection to the tables of a bank: SQLite in a folder or in memory, PostgreSQL at an address."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, Executable, Table, create_engine, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from memrl_core.bank.storage import connecting, schema
from memrl_core.bank.storage.connecting import connected_to, identity, size
from memrl_core.bank.storage.digests import chained, digest
from memrl_core.bank.storage.failures import SHARED_LOG, damaged, misplaced, missing, sentences
from memrl_core.errors import BankMissing, NotABank

FILE = "bank.db"
TURN = 2.0
"""Seconds that a writer gives way to one that waits already."""
TURNS = "-turn"
"""What follows the name of the database in that of the file that is there while a writer waits."""
LAST = "-last"
"""What follows the name of the database in that of the file that names what was stored last."""
ONE_WRITER = 0x6D656D726C
"""The advisory lock that every writing transaction of PostgreSQL takes, so that positions are committed in order."""
PARTS_READ = 1000
"""Parts of a schema that are compared; a bank has some thirty."""
HEADER = {"application_id": (0,), "user_version": (0, 1)}
"""What the numbers in the header of SQLite's file may be: none of another program's, and whether the bank is in use."""


class Database:
    """One connection to the tables of a bank. Threads take `lock` to share it; `shown` names the place in sentences.

    `file` is that of SQLite on this machine; `had_log` whether a write-ahead log with something in it lay beside it.
    `is_writing` says whether a transaction that writes is open.
    """

    def __init__(self, engine: Engine, shown: str, file: Path | None = None) -> None:
        self.shown = shown
        self.lock = threading.RLock()
        self._engine = engine
        self.file = file
        self.had_log = file is not None and size(Path(f"{file}-wal")) > 0
        self._folder = None if file is None else file.parent
        self._turn = FileLock(f"{file}{TURNS}", thread_local=False)
        self.is_writing = False
        self._in_transaction = False
        self._marks = 0
        self._is_complete = False
        self._version: Any = None
        self._open: Connection | None = None
        self._opened_as: tuple[int, int] | None = None
        self._inserts: dict[tuple[str, tuple[str, ...], bool], tuple[str, Sequence[str] | None]] = {}

    @classmethod
    def at(cls, address: str, shown: str) -> Database:
        """The database at a path of this machine, ":memory:", or an address that SQLAlchemy understands.

        Raises `BankUnreachable`, `BankReadOnly`, `BankDamaged`.
        """
        if "://" in address:
            with sentences(shown, "the database"):
                # Statements outside of `transaction` commit themselves: nobody waits for a reader.
                engine = create_engine(address, isolation_level="AUTOCOMMIT", poolclass=StaticPool)
            return cls(engine, shown)

        def connected() -> sqlite3.Connection:
            return connected_to(address)

        engine = create_engine("sqlite://", creator=connected, isolation_level="AUTOCOMMIT", poolclass=StaticPool)
        return cls(engine, shown, None if address == ":memory:" else Path(address))

    @property
    def _connection(self) -> Connection:
        if self._open is None:
            with self._sentences("the database"):
                self._open = self._engine.connect()
            self._opened_as = identity(self.file)
        assert self._open is not None
        return self._open

    @property
    def driver(self) -> Any:
        """The connection of Python's own `sqlite3`, or of the driver of PostgreSQL."""
        return self._connection.connection.driver_connection

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite, on this machine."""
        return self._engine.dialect.name == "sqlite"

    def create(self, values: Mapping[str, str]) -> None:
        """Make all tables and describe the bank, whole or not at all; without `values` a copy fills them.

        Raises `NotABank` when tables are there.
        """
        with self._sentences("the database"):
            if self.is_sqlite and self._folder is not None:
                (mode,) = self._connection.exec_driver_sql("PRAGMA journal_mode = WAL").one()
                if mode != "wal":
                    raise misplaced(self.shown, SHARED_LOG)
        with self.transaction():
            if self.is_made():
                raise NotABank(
                    f"Something is already stored at {self.shown}. Nothing was changed; choose another place."
                )
            with self._sentences("the database"):
                schema.metadata.create_all(self._connection)
            if values:
                self.insert(schema.meta, [{"key": key, "value": value} for key, value in values.items()])
                self.seal()

    def seal(self) -> None:
        """Bring the checksums in `meta` up to date, within the transaction of the caller. A bank of an earlier version
        gets them so: until then, its description and its maps have none.
        """
        found = self.described()
        for table in schema.SEALED:
            last, before = schema.sealed(found, table)
            rows = list(self.numbered(table, last))
            found[table.name] = f"{rows[-1][0] if rows else last} {chained(before, (row for _, row in rows))}"
        self.describe(found)

    def describe(self, values: dict[str, str]) -> None:
        """Store what there is to say of the bank, with the checksum of all of it."""
        values["digest"] = digest(values)
        self.put(schema.meta, [{"key": key, "value": value} for key, value in values.items()])

    def numbered(self, table: Table, after: int = 0, count: int = 2**62) -> Iterator[tuple[int, dict[str, Any]]]:
        """The first rows of a table after this position, in order: the position, and the cells as they are stored."""
        names = [column.name for column in table.c if column.name != "position"]
        query = f"SELECT position, {', '.join(names)} FROM {table.name} WHERE position > ? ORDER BY position LIMIT ?"
        for position, *cells in self.raw(query, (after, count)):
            yield position, dict(zip(names, (int(c) if isinstance(c, bool) else c for c in cells), strict=True))

    def described(self) -> dict[str, str]:
        """What is said of the bank, by key, as it is stored."""
        return {str(key): str(value) for key, value in self.rows(select(schema.meta.c.key, schema.meta.c.value))}

    def is_made(self) -> bool:
        """Whether the tables of a bank are there."""
        with self.lock, self._sentences("the database"):
            return inspect(self._connection).has_table("meta")

    def foreign_parts(self, only: str = "") -> list[str]:
        """What in the schema of a SQLite bank is not as this program makes it, in words; of one table with `only`.

        Tables with their columns and checks, indexes, triggers and views are compared as the text in which SQLite keeps
        them, and no row is read. A server keeps its schema in its own words: nothing is said of that.
        """
        if not self.is_sqlite:
            return []
        query = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master LIMIT ?"
        found = {(kind, name): (table, sql) for kind, name, table, sql in self.raw(query, (PARTS_READ,))}
        parts = schema.foreign_parts(found, only)
        for name, own in () if only else HEADER.items():
            ((number,),) = self.raw(f"PRAGMA {name}")
            if number not in own:
                parts.append(f"{name} {number} in the header")
        return parts

    def description(self) -> dict[str, str]:
        """What `create` was given. Raises `BankMissing` where there is no table at all, `NotABank`, `BankTooNew`,
        `BankDamaged`.
        """
        if not self.is_made():
            with self.lock, self._sentences("the database"):
                is_empty = not inspect(self._connection).get_table_names()
            if is_empty:
                raise missing(self.shown)
            raise NotABank(f"{self.shown} holds no bank. Nothing was changed; choose the folder of a bank.")
        if self.foreign_parts(only=schema.meta.name):  # A view of this name may never come to an end.
            raise damaged(self.shown, "its description")
        values = self.described()
        schema.must_be_readable(values, self.shown)
        return values

    def rows(self, statement: Executable, **values: Any) -> Sequence[Any]:
        """All rows that a query finds, given the values of its parameters."""
        with self.lock, self._sentences("a table"):
            return self._connection.execute(statement, values).fetchall()

    def scalar(self, statement: Executable, **values: Any) -> Any:
        """The first value of the first row; None without one."""
        with self.lock, self._sentences("a table"):
            return self._connection.execute(statement, values).scalar()

    def execute(self, statement: Executable, values: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Run a statement, for each of `values` if they are given."""
        if values is None or values:
            with self.lock, self._sentences("a table"):
                self._connection.execute(statement, values)

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows, which have the same columns."""
        self._write(table, rows, replace=False)

    def put(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """The same, in the place of the rows that have their primary keys."""
        self._write(table, rows, replace=True)

    def _write(self, table: Table, rows: Sequence[Mapping[str, Any]], replace: bool) -> None:
        if not rows:
            return
        statement, names = self._inserting(table, tuple(rows[0]), replace)
        values = [tuple(row[name] for name in names) for row in rows] if names else list(rows)
        with self.lock, self._sentences("a table"):
            self._run(statement, values)

    def _run(self, statement: str, values: Any = ()) -> Any:
        """The cursor of a statement in the database's own words; of several, given a list of values."""
        if not self.is_sqlite:
            return self._connection.exec_driver_sql(statement, values).cursor
        # For the few rows of a step, SQLAlchemy's way to the cursor takes longer than SQLite.
        driver = self.driver
        return driver.executemany(statement, values) if isinstance(values, list) else driver.execute(statement, values)

    def _inserting(self, table: Table, columns: tuple[str, ...], replace: bool) -> tuple[str, Sequence[str] | None]:
        """An INSERT in the database's own words, and the order of its parameters where these have no names."""
        key = table.name, columns, replace
        if key not in self._inserts:
            inserting: Any = (sqlite if self.is_sqlite else postgresql).insert(table)
            if replace:
                changed = {name: inserting.excluded[name] for name in columns if name not in table.primary_key}
                inserting = inserting.on_conflict_do_update(index_elements=table.primary_key, set_=changed)
            compiled = inserting.compile(dialect=self._engine.dialect, column_keys=columns)
            self._inserts[key] = str(compiled), compiled.positiontup
        return self._inserts[key]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Within it, this is the only writer; all of it is kept, or nothing. Within another one it is a part of that.

        Raises `BankError` when another process writes on and on, `BankFull`, `BankReadOnly`, `BankUnreachable`.
        """
        with self.lock:
            if self._in_transaction and not self.is_writing:
                yield
                return
            if self.is_writing:
                self.mark()
            else:
                self.begin()
            marks = self._marks
            try:
                yield
                if marks == 0:
                    self.commit()
                else:
                    self.release()
            except BaseException:
                self.take_back()
                raise

    def begin(self) -> None:
        """Begin to write, as the only writer, until `commit` or `take_back`.

        Raises as `transaction`, and `BankMissing` where the file was deleted, moved or replaced since it was opened:
        SQLite would go on writing to what no name leads to any more.
        """
        with self._sentences("the database"):
            self._begin()
        if identity(self.file) != self._opened_as:
            self.take_back()
            raise BankMissing(
                f"The bank at {self.shown} was deleted, moved or replaced while it was open. Nothing was written; put "
                "it back, or open it anew."
            )
        self._in_transaction = self.is_writing = True
        self._marks = 0
        try:
            if not self.is_sqlite:
                with self._sentences("the database"):
                    self._connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{connecting.PATIENCE:.0f}s'")
                    self._connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ONE_WRITER})")
            self._complete()
        except BaseException:
            self.take_back()
            raise

    def commit(self) -> None:
        """Keep all that was written since `begin`; on failure nothing of it."""
        try:
            with self._sentences("the database"):
                self._run("COMMIT")
        except BaseException:
            self._marks = 0
            self.take_back()
            raise
        self._in_transaction = self.is_writing = False

    def mark(self) -> None:
        """Remember this point of what is being written: `take_back` goes back to it, `release` forgets it."""
        with self._sentences("the database"):
            self._run("SAVEPOINT part")
        self._marks += 1

    def release(self) -> None:
        """Forget the last mark."""
        with self._sentences("the database"):
            self._run("RELEASE SAVEPOINT part")
        self._marks -= 1

    def take_back(self) -> bool:
        """Undo what was written since the last mark, or since `begin`; True if nothing is left of it."""
        # SQLite may have rolled back by itself, or the connection is gone.
        if self.is_writing and self._marks:
            with suppress(SQLAlchemyError, sqlite3.Error):
                self._run("ROLLBACK TO SAVEPOINT part")
                self._run("RELEASE SAVEPOINT part")
                self._marks -= 1
                return False
        with suppress(SQLAlchemyError, sqlite3.Error):
            self._run("ROLLBACK")
        self._in_transaction, self.is_writing, self._marks = False, False, 0
        return True

    def _complete(self) -> None:
        """Give a bank of an earlier version the column and the view that it lacks; one look per handle at any other."""
        if self._is_complete:
            return
        with self._sentences("the database"):
            if self.is_sqlite:
                columns = [name for _, name, *_ in self._run("PRAGMA table_xinfo(steps)").fetchall()]
                has_view = bool(self._run("SELECT 1 FROM sqlite_master WHERE name = ?", (schema.VIEW,)).fetchall())
            else:
                there = inspect(self._connection)
                columns = [one["name"] for one in there.get_columns("steps")] if there.has_table("steps") else []
                has_view = schema.VIEW in there.get_view_names()
            for statement in schema.completing(self._engine.dialect.name, columns, has_view) if columns else ():
                self._run(statement)
        self._is_complete = bool(columns)

    def _begin(self) -> None:
        """Begin to write, in turn: whoever waits shows it by a file, before which the others stand back.

        SQLite alone lets a process that writes without a pause take its lock again before one that waits looks.
        """
        if self._folder is None:
            self._run("BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN")
            return
        waiting = Path(self._turn.lock_file)
        if not waiting.exists() and self._began_at_once():
            return
        # Where there can be no such file, or it is held too long, only the fairness is lost: SQLite's lock decides.
        with suppress(OSError, NotImplementedError, Timeout):
            self._turn.acquire(timeout=TURN, poll_interval=0.005)
        try:
            self._run("BEGIN IMMEDIATE")
        finally:
            with suppress(OSError):
                waiting.unlink(missing_ok=True)
            self._turn.release()

    def is_busy(self, seconds: float) -> bool:
        """Whether another process is still writing after so many seconds; False where only writing can show that."""
        if self.is_writing or not self.is_sqlite:
            return False
        with self.lock, suppress(SQLAlchemyError, sqlite3.Error):
            if not self._began_at_once(seconds):
                return True
            self._run("ROLLBACK")
        return False

    def _began_at_once(self, seconds: float = 0) -> bool:
        self._run(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
        try:
            self._run("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            self._run(f"PRAGMA busy_timeout = {connecting.PATIENCE * 1000:.0f}")
        return True

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within it, all that is read is of one moment."""
        with self.lock:
            if self._in_transaction:
                yield
                return
            with self._sentences("the database"):
                begin = "BEGIN" if self.is_sqlite else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                self._run(begin)
            self._in_transaction = True
            try:
                yield
            finally:
                self._in_transaction = False
                with suppress(SQLAlchemyError, sqlite3.Error):
                    self._run("ROLLBACK")

    def may_have_changed(self) -> bool:
        """Whether another connection may have written since the last call: one look at a number of SQLite."""
        if not self.is_sqlite:
            return True
        with self.lock, self._sentences("the database"):
            (version,) = self._run("PRAGMA data_version").fetchone()
        changed = bool(version != self._version)
        self._version = version
        return changed

    def raw(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """All rows of a statement with ? for each value, as plain tuples: quicker where it is asked each step."""
        with self.lock, self._sentences("a table"):
            return self._run(statement if self.is_sqlite else statement.replace("?", "%s"), values).fetchall()

    def lazily(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[Any]:
        """The same rows one by one: of a hundred thousand kept at once, Python's garbage collector looks at each."""
        with self.lock, self._sentences("a table"):
            yield from self._run(statement if self.is_sqlite else statement.replace("?", "%s"), values)

    def drop(self) -> None:
        """Delete all tables."""
        with self.transaction(), self._sentences("its tables"):
            schema.metadata.drop_all(self._connection)

    def close(self) -> None:
        """Let go of the connection; who asks again makes another. What is in memory only stays."""
        with self.lock:
            if self._open is not None and (self._folder is not None or not self.is_sqlite):
                self._open.close()
                self._engine.dispose()
                self._open = None

    @contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """Let go of the connection when anything fails within it."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _sentences(self, part: str) -> AbstractContextManager[None]:
        return sentences(self.shown, part, self._folder)
