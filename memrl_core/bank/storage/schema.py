"""The tables of `bank.db`, and what a bank of this or an earlier version looks like.

Facts (`runs`, `steps`, `candidates`, `ledger`) are appended and never change; a trigger refuses UPDATE and DELETE on
the ledger. What follows from them (`q_moves`, `q_values`) is written in the same transaction. Format: docs/format.md.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from functools import cache

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.pool import StaticPool

from memrl_core.bank.storage.digests import digest
from memrl_core.bank.storage.failures import damaged
from memrl_core.errors import BankDamaged, BankTooNew

FORMAT = 2
OLDEST_FORMAT = 2
LARGEST_DIMENSION = 65536

metadata = MetaData()
_Whole = BigInteger().with_variant(Integer, "sqlite")
_Real = Float(53)


def _position() -> Column[int]:
    return Column("position", _Whole, primary_key=True, autoincrement=True)


meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
runs = Table(
    "runs",
    metadata,
    _position(),
    Column("id", Text, nullable=False, unique=True),
    Column("policy", Text),
    Column("environment", Text),
    Column("model", Text),
    Column("embedder", Text),
    Column("seed", _Whole),
    Column("base", Text),
    Column("base_step", _Whole),
    Column("first_step", _Whole),
    Column("settings", Text),
    Column("created", Text),
    Column("info", Text, nullable=False),
)
steps = Table(
    "steps",
    metadata,
    _position(),
    Column("id", Text, nullable=False, unique=True),
    Column("run", Text, nullable=False),
    Column("step", _Whole, nullable=False),
    Column("epoch", _Whole),
    Column("task", Text),
    Column("outcome", Text),
    Column("reward", _Real),
    Column("seconds", _Real),
    Column("created", Text),
    Column("embedding", LargeBinary),
    Column("trace", Text, nullable=False),
    Column("digest", Text, nullable=False),
    UniqueConstraint("run", "step"),
)
NUL, BLANK = r"\u0000", r"\u0020"
"""PostgreSQL keeps JSON with the character NUL in a text, such as a model's answer, but reads no part of it. A blank of
the same length leaves all else as it is, even where the backslash is itself escaped."""
FOLLOWS = {
    "sqlite": "follows TEXT GENERATED ALWAYS AS "
    "(CASE WHEN json_valid(trace) THEN json_extract(trace, '$.follows.memories') END) VIRTUAL",
    "postgresql": "follows TEXT GENERATED ALWAYS AS "
    f"(replace(trace, '{NUL}', '{BLANK}')::json -> 'follows' ->> 'memories') STORED",
}
"""The memories that an answer follows, as a JSON list, null where that is not known: what the trace says, as a column
for whoever asks the tables. Banks of before get it with the first that is written; no row is stored otherwise."""
ADD_FOLLOWS = "ALTER TABLE steps ADD COLUMN "
COMPUTES = sqlite3.sqlite_version_info >= (3, 31)
"""Whether this SQLite knows columns that it computes; without them a bank is the same, but for that column."""
for _dialect, _column in FOLLOWS.items():
    if COMPUTES or _dialect != "sqlite":
        event.listen(steps, "after_create", DDL(ADD_FOLLOWS + _column).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]
candidates = Table(
    "candidates",
    metadata,
    _position(),
    Column("run", Text, nullable=False),
    Column("step", _Whole, nullable=False),
    Column("memory_id", Text, nullable=False),
    Column("rank_recall", _Whole),
    Column("rank_select", _Whole),
    Column("similarity", _Real),
    Column("similarity_z", _Real),
    Column("q", _Real),
    Column("q_z", _Real),
    Column("score", _Real),
    Column("selected", Boolean, nullable=False),
    Column("reason", Text),
    Column("propensity", _Real),
    Index("candidates_by_step", "run", "step"),
    Index("candidates_by_memory", "memory_id", "run"),
)
ledger = Table(
    "ledger",
    metadata,
    _position(),
    Column("id", Text, nullable=False, unique=True),
    Column("seq", _Whole, nullable=False),
    Column("run", Text, nullable=False),
    Column("step", _Whole, nullable=False),
    Column("step_id", Text, nullable=False),
    Column("known_at", _Whole, nullable=False),
    Column("kind", Text, nullable=False),
    Column("memory_ids", Text, nullable=False),
    Column("value", _Real),
    Column("source", Text),
    Column("rater", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("revokes", Text, nullable=False),
    Column("undoes", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Index("ledger_by_step", "run", "step"),
    Index("ledger_by_known_at", "run", "known_at"),
    Index("ledger_by_kind", "kind"),
    Index("ledger_by_actor", "actor"),
    Index("ledger_by_seq", "seq"),
)
q_moves = Table(
    "q_moves",
    metadata,
    Column("run", Text, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("number", _Whole, primary_key=True),
    Column("step", _Whole, nullable=False),
    Column("event", Text, nullable=False),
    Column("before", _Real),
    Column("after", _Real, nullable=False),
    Column("visits", _Whole, nullable=False),
    Column("reward", _Real),
    Column("source", Text),
    Column("raters", Text, nullable=False),
    Index("q_moves_by_step", "run", "step"),
    sqlite_with_rowid=False,
)
q_values = Table(
    "q_values",
    metadata,
    Column("run", Text, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("q", _Real, nullable=False),
    Column("visits", _Whole, nullable=False),
    Column("place", _Whole, nullable=False),
    Column("away", Boolean, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("inherited", _Whole, nullable=False),
    Column("origin_step", _Whole),
    Column("replaced", Text, nullable=False),
    Column("begun_anew", Boolean, nullable=False),
    sqlite_with_rowid=False,
)
layouts = Table(
    "layouts",
    metadata,
    _position(),
    Column("id", Text, nullable=False, unique=True),
    Column("method", Text, nullable=False),
    Column("created", Text, nullable=False),
)
points = Table(
    "points",
    metadata,
    _position(),
    Column("layout", Text, nullable=False),
    Column("memory_id", Text, nullable=False),
    Column("x", _Real, nullable=False),
    Column("y", _Real, nullable=False),
    Column("fitted", Boolean, nullable=False),
    Index("points_by_layout", "layout"),
)

SEALED = (layouts, points)
"""The tables whose rows carry no checksum: `meta` has one of each, under its name, and one of itself, `digest`."""

for _action in ("UPDATE", "DELETE"):
    event.listen(
        ledger,
        "after_create",
        DDL(  # type: ignore[no-untyped-call]
            f"CREATE TRIGGER ledger_refuses_{_action.lower()} BEFORE {_action} ON ledger "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is only appended to'); END"
        ).execute_if(dialect="sqlite"),
    )
event.listen(
    ledger,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE OR REPLACE FUNCTION ledger_is_only_appended_to() RETURNS trigger AS $$ "
        "BEGIN RAISE EXCEPTION 'the ledger is only appended to'; END $$ LANGUAGE plpgsql; "
        "CREATE TRIGGER ledger_refuses_changes BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_only_appended_to()"
    ).execute_if(dialect="postgresql"),
)

VIEW = "judgements"
_JUDGED = {
    "sqlite": ("json_extract(memory_ids, '$[0]')", "json_extract(payload, '$.from')"),
    "postgresql": ("(memory_ids::json ->> 0)", f"(replace(payload, '{NUL}', '{BLANK}')::json ->> 'from')"),
}
JUDGEMENTS = {
    dialect: f"CREATE VIEW {VIEW} AS SELECT run, step, memory_id, grade, rater, source FROM "
    f"(SELECT run, step, {memory_id} AS memory_id, CAST(value AS INTEGER) AS grade, rater, "
    f"COALESCE({source}, source) AS source, ROW_NUMBER() OVER "
    f"(PARTITION BY kind, run, step, memory_ids, rater, {source} ORDER BY seq DESC, id DESC) AS newest "
    "FROM ledger WHERE kind IN ('memory_judged', 'query_judged')) AS labels "
    "WHERE newest = 1 AND grade IS NOT NULL"
    for dialect, (memory_id, source) in _JUDGED.items()
}
"""The labels of recall that stand: of each memory in a step by each rater and source the newest, if it was not
withdrawn. A label of the query itself has no `memory_id`. Banks of before get the view with what is written next."""
for _dialect, _view in JUDGEMENTS.items():
    event.listen(ledger, "after_create", DDL(_view).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]
event.listen(ledger, "before_drop", DDL(f"DROP VIEW IF EXISTS {VIEW}"))  # type: ignore[no-untyped-call]


# --- this version and earlier ones ------------------------------------------------------------------------------------

_STEPS_PART, _VIEW_PART = ("table", "steps"), ("view", VIEW)


def foreign_parts(found: Mapping[tuple[str, str], tuple[str, str]], only: str = "") -> list[str]:
    """What of these parts of a SQLite schema is not as this program makes it, in words; of one table with `only`.

    `found` maps the type and name of a part to its table and the text in which SQLite keeps it.
    """
    ours, theirs = _own_schema(), {key: (table, _plain_sql(sql)) for key, (table, sql) in found.items()}
    if theirs.get(_STEPS_PART) == _steps_before():
        theirs[_STEPS_PART] = ours[_STEPS_PART]
    theirs.setdefault(_VIEW_PART, ours[_VIEW_PART])  # A bank of before, to which nothing was written since.
    if only:
        theirs, ours = ({key: parts[key] for key in parts if key[1] == only} for parts in (theirs, ours))
    odd = [("not a bank's own", key) for key in sorted(theirs.keys() - ours.keys())]
    odd += [("missing", key) for key in sorted(ours.keys() - theirs.keys())]
    odd += [("not as made here", key) for key in sorted(theirs.keys() & ours.keys()) if theirs[key] != ours[key]]
    return [f"{kind} {name[:80]} is {what}" for what, (kind, name) in odd]

    def __init__(self, engine: Engine, shown: str, file: Path | None = None) -> None:
        self.shown = shown
        self.lock = threading.RLock()
        self._engine = engine
        self.file = file
        self.had_log = file is not None and _size(Path(f"{file}-wal")) > 0
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

def completing(dialect: str, step_columns: Collection[str], has_view: bool) -> Iterator[str]:
    """The statements that give a bank of an earlier version what it lacks: the column `follows`, the view."""
    if "follows" not in step_columns and (COMPUTES or dialect != "sqlite"):
        yield ADD_FOLLOWS + FOLLOWS[dialect]
    if not has_view:
        yield JUDGEMENTS[dialect]


        def connected() -> sqlite3.Connection:
            return _sqlite(address)

        engine = create_engine("sqlite://", creator=connected, isolation_level="AUTOCOMMIT", poolclass=StaticPool)
        return cls(engine, shown, None if address == ":memory:" else Path(address))

    @property
    def _connection(self) -> Connection:
        if self._open is None:
            with self._sentences("the database"):
                self._open = self._engine.connect()
            self._opened_as = _identity(self.file)
        assert self._open is not None
        return self._open

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
                metadata.create_all(self._connection)
            if values:
                self.insert(meta, [{"key": key, "value": value} for key, value in values.items()])
                self.seal()

    def seal(self) -> None:
        """Bring the checksums in `meta` up to date, within the transaction of the caller. A bank of an earlier version
        gets them so: until then, its description and its maps have none.
        """
        found = self._described()
        for table in SEALED:
            last, before = sealed(found, table)
            rows = list(self.numbered(table, last))
            found[table.name] = f"{rows[-1][0] if rows else last} {chained(before, (row for _, row in rows))}"
        self._describe(found)

    def _describe(self, values: dict[str, str]) -> None:
        values["digest"] = digest(values)
        self.put(meta, [{"key": key, "value": value} for key, value in values.items()])

    def numbered(self, table: Table, after: int = 0, count: int = 2**62) -> Iterator[tuple[int, dict[str, Any]]]:
        """The first rows of a table after this position, in order: the position, and the cells as they are stored."""
        names = [column.name for column in table.c if column.name != "position"]
        query = f"SELECT position, {', '.join(names)} FROM {table.name} WHERE position > ? ORDER BY position LIMIT ?"
        for position, *cells in self.raw(query, (after, count)):
            yield position, dict(zip(names, (int(c) if isinstance(c, bool) else c for c in cells), strict=True))

    def _described(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.rows(select(meta.c.key, meta.c.value))}

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
        ours = _own_schema()
        query = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master LIMIT ?"
        found = {(kind, name): (table, _plain_sql(sql)) for kind, name, table, sql in self.raw(query, (PARTS_READ,))}
        if found.get(_STEPS) == _steps_before():
            found[_STEPS] = ours[_STEPS]
        found.setdefault(_VIEW, ours[_VIEW])  # A bank of before, to which nothing was written since.
        if only:
            found, ours = ({key: parts[key] for key in parts if key[1] == only} for parts in (found, ours))
        odd = [("not a bank's own", key) for key in sorted(found.keys() - ours.keys())]
        odd += [("missing", key) for key in sorted(ours.keys() - found.keys())]
        odd += [("not as made here", key) for key in sorted(found.keys() & ours.keys()) if found[key] != ours[key]]
        return [f"{kind} {name[:80]} is {what}" for what, (kind, name) in odd]

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
        if self.foreign_parts(only=meta.name):  # A view of this name may never come to an end.
            raise _damaged(self.shown, "its description")
        values = self._described()
        try:
            version = int(values["format"])
            if not 1 <= int(values["dimension"]) <= LARGEST_DIMENSION or not values["embedder"]:
                raise ValueError("The description is not that of a bank.")
            if not all(isinstance(one, str) for one in json.loads(values.get("embedders_before", "[]"))):
                raise ValueError("The embedders before are no names.")
        except (KeyError, ValueError, TypeError) as error:
            raise _damaged(self.shown, "its description") from error
        if version > FORMAT:
            raise BankTooNew(
                f"The bank at {self.shown} was written by a newer version of this program (format {version}, this one "
                f"reads {FORMAT}). Nothing was changed; update MemRL Inspector to open it."
            )
        # A bank of an earlier version has no checksums yet.
        has_checksums = not {"digest", *(table.name for table in SEALED)}.isdisjoint(values)
        if version < OLDEST_FORMAT or (has_checksums and digest(values) != values.get("digest")):
            raise BankDamaged(
                f"The description of the bank at {self.shown} is not as it was written: format {version}, vectors of "
                f"{values['dimension']} dimensions by {values['embedder'][:80]}, or another value of its table meta "
                "was changed. Nothing was opened; restore a copy of bank.db."
            )
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
        driver: Any = self._connection.connection.driver_connection
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
        if _identity(self.file) != self._opened_as:
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
                    self._connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE:.0f}s'")
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
                has_view = bool(self._run("SELECT 1 FROM sqlite_master WHERE name = ?", (VIEW,)).fetchall())
            else:
                there = inspect(self._connection)
                columns = [one["name"] for one in there.get_columns("steps")] if there.has_table("steps") else []
                has_view = VIEW in there.get_view_names()
            if columns and "follows" not in columns and (COMPUTES or not self.is_sqlite):
                self._run(_ADD_FOLLOWS + FOLLOWS[self._engine.dialect.name])
            if columns and not has_view:
                self._run(JUDGEMENTS[self._engine.dialect.name])
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

    def _began_at_once(self) -> bool:
        self._run("PRAGMA busy_timeout = 0")
        try:
            self._run("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            self._run(f"PRAGMA busy_timeout = {PATIENCE * 1000:.0f}")
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

    def copy_to(self, path: Path) -> None:
        """Write a SQLite copy of all tables as they are at this moment, whoever writes meanwhile."""
        with self.lock, self._sentences("the database"):
            target = sqlite3.connect(path, isolation_level=None)
            try:
                if self.is_sqlite:
                    source: Any = self._connection.connection.driver_connection
                    source.backup(target)
                    target.execute("PRAGMA journal_mode = DELETE")
                    target.execute("PRAGMA user_version = 0")
                    return
            finally:
                target.close()
        copy = Database.at(str(path), str(path))
        copy.create({})
        with self.snapshot():
            found = self._described()
            for table in SEALED:
                last, checksum = sealed(found, table)
                found[table.name] = f"{sum(position <= last for position, _ in self.numbered(table))} {checksum}"
            copy._describe(found)
            # Numbered anew: a transaction that a server did not commit leaves a gap.
            for table in filter(lambda one: one is not meta, metadata.sorted_tables):
                columns = [column for column in table.c if column.name != "position"]
                rows = self.rows(select(*columns).order_by(*table.primary_key))
                copy.insert(table, [dict(row._mapping) for row in rows])
        copy.execute(text("PRAGMA journal_mode = DELETE"))
        copy.close()

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
            metadata.drop_all(self._connection)

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
        return _sentences(self.shown, part, self._folder)


def sealed(description: Mapping[str, str], table: Table) -> tuple[int, str]:
    """Up to which position a description has a checksum of the rows of a `SEALED` table, and this; 0 and "" without.

    Raises `ValueError` for one that cannot be read.
    """
    position, _, checksum = description.get(table.name, "0 ").partition(" ")
    return int(position), checksum


@cache
def _own_schema() -> dict[tuple[str, str], tuple[str, str]]:
    """The parts of a new bank: of each, by its type and name, its table and the text in which SQLite keeps it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
        with engine.connect() as opened:
            metadata.create_all(opened)
        parts = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master")
        return {(kind, name): (table, _plain_sql(sql)) for kind, name, table, sql in parts}


@cache
def _steps_before() -> tuple[str, str]:
    """The table `steps` of a bank that was made without the column `follows`."""
    table, made = _own_schema()[_STEPS_PART]
    return table, made.replace(f", {_plain_sql(FOLLOWS['sqlite'])}", "")


def _plain_sql(sql: str) -> str:
    """The same statement however its words are spaced, and whether or not names of one word stand in quotes."""
    return re.sub(r'"(\w+)"', r"\1", " ".join(sql.split()))


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The values, so many at a time as stand in one IN (...)."""
    listed = list(values)
    for start in range(0, len(listed), AT_ONCE):
        yield listed[start : start + AT_ONCE]


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


def _sqlite(path: str) -> sqlite3.Connection:
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
    if _size(Path(f"{path}-wal")):
        connection: sqlite3.Connection = sqlite3.connect(_as_uri(path, "mode=ro"), uri=True, **options)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError:
            connection.close()
    connection = sqlite3.connect(_as_uri(path, "mode=ro&immutable=1"), uri=True, **options)
    return connection


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _as_uri(path: str, options: str) -> str:
    return f"{Path(path).absolute().as_uri()}?{options}"


# --- failures as sentences --------------------------------------------------------------------------------------------


@contextmanager
def _sentences(shown: str, part: str, folder: Path | None = None) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, sqlite3.Error):
            raise _of_sqlite(cause, shown, part, folder) from error
        raise _of_server(cause, shown, part) from None


def _of_sqlite(error: sqlite3.Error, shown: str, part: str, folder: Path | None) -> BankError:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    no_room = folder is not None and folder.is_dir() and shutil.disk_usage(folder).free < 2**16
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and no_room):
        return BankFull(
            f"The disk is full: {part} of {shown} could not be written. What was saved before is safe; free some "
            "space and try again."
        )
    if extended in NOT_SHARED or code in (sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS):
        return misplaced(shown, SHARED_LOG)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return BankReadOnly(
            f"The bank at {shown} cannot be written. Nothing was changed; make the place writable, or copy the bank."
        )
    if code == sqlite3.SQLITE_INTERRUPT:
        return BankDamaged(f"Reading {part} of {shown} was ended: it takes more work than a bank of its size needs.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        if folder is not None and (lacking := lacks(folder)) == LOCKS:
            return misplaced(shown, lacking)
        return BankError(
            f"Another process has been writing to {shown} for more than {PATIENCE:.0f} seconds. Nothing was written; "
            "wait for it, or end it, and try again."
        )
    return _damaged(shown, part)


def _of_server(error: BaseException | None, shown: str, part: str) -> BankError:
    if "NUL (0x00)" in str(error):
        return BankError(
            f"A text holds the character NUL, which the server of {shown} does not store. Nothing was written; take it "
            "out and try again."
        )
    state = str(getattr(error, "sqlstate", None) or "")
    if state.startswith("53"):
        return BankFull(
            f"The server has no room: {part} of {shown} could not be written. What was saved before is safe; free some "
            "space there and try again."
        )
    if state in ("25006", "42501"):
        return BankReadOnly(f"The server does not let this be written at {shown}. Nothing was changed; ask its owner.")
    if state == "55P03":
        return BankError(
            f"Another process has been writing to {shown} for more than {PATIENCE:.0f} seconds. Nothing was written; "
            "wait for it, or end it, and try again."
        )
    if not state or state[:2] in ("08", "28", "3D", "57"):
        return BankUnreachable(
            f"The database of {shown} does not answer or does not let this program in. What was saved before is safe; "
            "check its address, user and password, and try again."
        )
    return _damaged(shown, part)


def lacks(folder: Path) -> str:
    """What the file system of `folder` has not got of what a bank needs; "" when nothing, or nothing can be written."""
    with suppress(OSError), TemporaryDirectory(prefix=".memrl-", dir=folder) as made:
        file = Path(made, "file")
        file.touch()
        try:
            os.link(file, file.with_name("link"))
        except OSError:
            return HARD_LINKS
        with suppress(ImportError), file.open("w") as opened:
            import fcntl  # Windows has locks of its own.

            try:
                fcntl.lockf(opened, fcntl.LOCK_EX)
            except OSError:
                return LOCKS
    return ""


def misplaced(shown: str, lacking: str) -> BankMisplaced:
    """What to raise where the file system of a place is `lacking` something."""
    elsewhere = "set MEMRL_HOME to a folder" if Path(shown).is_relative_to(home()) else "use a folder"
    return BankMisplaced(
        f"No bank can be written at {shown}: the file system there has no {lacking}. Nothing was changed; {elsewhere} "
        "on a local disk, or copy the bank to one."
    )


def _damaged(shown: str, part: str) -> BankDamaged:
    return BankDamaged(
        f"In the bank at {shown}, {part} cannot be read or written. Nothing was changed; run `memrl doctor --bank` on "
        "it, or restore a copy."
    )


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Which file of the disk a path leads to; None where it leads to none."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def missing(shown: str) -> BankMissing:
    """What to raise where there is no bank."""
    return BankMissing(f"There is no bank at {shown}. Check the place, or start a run to make one there.")
