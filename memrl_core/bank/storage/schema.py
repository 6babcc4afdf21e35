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
for whoever asks the tables. Older banks get it with the first that is written; no row is stored otherwise."""
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
withdrawn. A label of the query itself has no `memory_id`. Older banks get the view with what is written next."""
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
    theirs.setdefault(_VIEW_PART, ours[_VIEW_PART])  # An older bank, to which nothing was written since.
    if only:
        theirs, ours = ({key: parts[key] for key in parts if key[1] == only} for parts in (theirs, ours))
    odd = [("not a bank's own", key) for key in sorted(theirs.keys() - ours.keys())]
    odd += [("missing", key) for key in sorted(ours.keys() - theirs.keys())]
    odd += [("not as made here", key) for key in sorted(theirs.keys() & ours.keys()) if theirs[key] != ours[key]]
    return [f"{kind} {name[:80]} is {what}" for what, (kind, name) in odd]


def completing(dialect: str, step_columns: Collection[str], has_view: bool) -> Iterator[str]:
    """The statements that give a bank of an earlier version what it lacks: the column `follows`, the view."""
    if "follows" not in step_columns and (COMPUTES or dialect != "sqlite"):
        yield ADD_FOLLOWS + FOLLOWS[dialect]
    if not has_view:
        yield JUDGEMENTS[dialect]


def must_be_readable(values: Mapping[str, str], shown: str) -> None:
    """Raise `BankTooNew` or `BankDamaged` for a description of a bank that this program cannot read."""
    try:
        version = int(values["format"])
        if not 1 <= int(values["dimension"]) <= LARGEST_DIMENSION or not values["embedder"]:
            raise ValueError("The description is not that of a bank.")
        if not all(isinstance(one, str) for one in json.loads(values.get("embedders_before", "[]"))):
            raise ValueError("The embedders before are no names.")
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(shown, "its description") from error
    if version > FORMAT:
        raise BankTooNew(
            f"The bank at {shown} was written by a newer version of this program (format {version}, this one "
            f"reads {FORMAT}). Nothing was changed; update MemRL Inspector to open it."
        )
    # A bank of an earlier version has no checksums yet.
    has_checksums = not {"digest", *(table.name for table in SEALED)}.isdisjoint(values)
    if version < OLDEST_FORMAT or (has_checksums and digest(values) != values.get("digest")):
        raise BankDamaged(
            f"The description of the bank at {shown} is not as it was written: format {version}, vectors of "
            f"{values['dimension']} dimensions by {values['embedder'][:80]}, or another value of its table meta "
            "was changed. Nothing was opened; restore a copy of bank.db."
        )


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
