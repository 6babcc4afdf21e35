"""MySQL's statements as statements of SQLite that do the same, for tasks that were made for MySQL.

`sqlglot` reads a statement; what the two mean differently is then written out: joins in UPDATE and DELETE, division,
what a column stores, functions, comparisons of text, and the order in which MySQL gives groups. Functions that SQLite
lacks are those of `functions`. MySQL accepts some statements that are refused here, with a sentence, and refuses
some that run here (a column that is neither grouped nor aggregated, a derived table without a name).

Known to differ: numbers are floats, so that a DECIMAL is exact where it is stored, shown or compared, but not within a
longer computation; a text keeps no zeros of a decimal (SET text = 7.50 stores 7.5); UNION, DISTINCT and GROUP BY tell
computed texts apart by case ('a' UNION 'A' has two rows); LIKE BINARY takes no ESCAPE; a TIME is compared as text; a
date is a text in sums other than + and -; and what MySQL refuses to store or to compare (a word in a number's or a
date's column) is stored as it is, or compares as NULL.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from memrl_core.environments.databases.mysql.clauses import arranged, changed
from memrl_core.environments.databases.mysql.expressions import rewritten
from memrl_core.environments.databases.mysql.kinds import Columns, column_type, kinds_in
from memrl_core.errors import InputError

CHILD = "memrl_core.environments.databases.mysql.functions"
"""The sandbox's process in which translated statements run."""

LONGEST = 20_000
"""Characters of a statement."""

DEEPEST = 20
"""Brackets that may be open at once: reading them takes much of Python's stack."""

_BEFORE_IT = re.compile(r"(?:\s+|/\*.*?\*/|--\s[^\n]*(?:\n|$)|#[^\n]*(?:\n|$))+", re.DOTALL)
_FIRST_WORD = re.compile(r"[\s(]*([A-Za-z]+)")
_READ = {"SELECT", "WITH", "TABLE", "INSERT", "REPLACE", "UPDATE", "DELETE", "SHOW", "DESC", "DESCRIBE"}
_NOTHING_CHANGED = "Nothing was changed."
_ONLY = (
    "Only SELECT, INSERT, UPDATE and DELETE, SHOW TABLES and DESCRIBE can be run here, one statement at a time. "
    + _NOTHING_CHANGED
)


class Reading(MySQL):
    """MySQL's grammar with functions left as they are written, but for those that the rules here look at."""

    class Parser(MySQLParser):
        FUNCTIONS: ClassVar = {
            name: MySQLParser.FUNCTIONS[name] for name in ("AVG", "COALESCE", "COUNT", "MAX", "MIN", "SUM")
        }


class Writing(SQLite):
    """SQLite's grammar with names between backticks, which SQLite never takes for a text as it does with "…"."""

    class Tokenizer(SQLite.Tokenizer):
        IDENTIFIERS: ClassVar = ["`"]


@lru_cache(maxsize=1024)
def to_sqlite(statement: str, columns: Columns = ()) -> str:
    """A statement of SQLite that does what one of MySQL does.

    `columns` are the columns of the task's tables with their MySQL types; without them, what a column of whole numbers
    stores, how many digits an average shows, and text compared with a number are as in SQLite. Raises `InputError` for
    what cannot be read, is not one statement, or is of a kind that cannot be run here.
    """
    read = parsed(statement)
    if isinstance(read, exp.Show | exp.Describe):
        return _listing(read, columns)
    try:
        kinds = kinds_in(read, columns)
        written = changed(arranged(_plain(read), kinds), kinds, columns)
        return rewritten(written, kinds).sql(
            dialect=Writing, identify=True, comments=False, unsupported_level=ErrorLevel.IGNORE
        )
    except InputError:
        raise
    except Exception as error:  # The grammar lets trees through that are no statement, such as DELETE without a table.
        raise InputError(
            f"The statement cannot be understood ({type(error).__name__}). {_NOTHING_CHANGED} Write it more simply."
        ) from None


def parsed(statement: str) -> exp.Expr:
    """The one statement in a text of MySQL, as a tree. Raises `InputError`."""
    text = _BEFORE_IT.sub("", statement, count=1) if _BEFORE_IT.match(statement) else statement
    if not text.strip(" \t\r\n;"):
        raise InputError(f"There is no statement. {_NOTHING_CHANGED} Write one statement of MySQL.")
    if len(text) > LONGEST or _depth(text) > DEEPEST:
        raise InputError(
            f"The statement is too long or too deeply nested: at most {LONGEST:,} characters and {DEEPEST} open "
            f"brackets are read. {_NOTHING_CHANGED} Write it more simply."
        )
    first = _FIRST_WORD.match(text)
    if first is None or first.group(1).upper() not in _READ:
        raise InputError(_ONLY)
    # The tables have no keys, so that REPLACE is an INSERT; sqlglot does not read it.
    text = re.sub(r"(?i)^\s*replace\b", "INSERT", text)
    try:
        found = [tree for tree in sqlglot.parse(text, read=Reading) if not isinstance(tree, exp.Semicolon | None)]
    except ParseError as error:
        first_fault = error.errors[0] if error.errors else {}
        raise InputError(
            f"This is not MySQL that can be read ({str(first_fault.get('description', 'syntax error'))[:100]}, line "
            f"{first_fault.get('line', 1)}, column {first_fault.get('col', 1)}). {_NOTHING_CHANGED} Mend it."
        ) from None
    except Exception as error:  # Whatever a parser may do with a text that nobody has read before.
        raise InputError(
            f"This is not MySQL that can be read ({type(error).__name__}). {_NOTHING_CHANGED} Look for a quotation "
            "mark, a comment or a bracket that does not end."
        ) from None
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.DML | exp.Show | exp.Describe):
        raise InputError(_ONLY)
    return found[0]


def is_ordered(query: exp.Expr) -> bool:
    """Whether a query asks for an order of its rows itself: ORDER BY at its top."""
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    return query.args.get("order") is not None


def create_table(name: str, columns: Columns) -> str:
    """The statement of SQLite that makes a table with columns of MySQL's types. Raises `InputError` for other types."""
    made = []
    for column, written in columns:
        if not column_type(written):
            raise InputError(f"The column {column[:80]} is of a type that is not known here: {written[:80]}.")
        made.append(f"{_quoted(column)} {column_type(written)}")
    return f"CREATE TABLE {_quoted(name)} ({', '.join(made)})"


@lru_cache(maxsize=256)
def columns_of(create: str) -> Columns:
    """The columns of a table, as `create_table` was given them; none for a statement it cannot have made."""
    try:
        found = sqlglot.parse_one(create, read=Writing)
    except (SqlglotError, RecursionError):
        return ()
    return tuple((one.name, one.args["kind"].sql("mysql")) for one in found.find_all(exp.ColumnDef))


def _plain(read: exp.Expr) -> exp.Expr:
    """Without what says how MySQL should work rather than what it should give."""
    for table in read.find_all(exp.Table):
        for key in ("hints", "partition", "db", "catalog"):
            table.set(key, None)
    for column in read.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    for select in read.find_all(exp.Select):
        for key in ("hint", "operation_modifiers", "locks"):
            select.set(key, None)
        source = select.args.get("from_")
        if source is not None and source.name.upper() == "DUAL":
            select.set("from_", None)
    for join in read.find_all(exp.Join):
        if join.kind == "STRAIGHT_JOIN":
            join.set("kind", None)
    for group in read.find_all(exp.Group):
        if group.args.get("rollup"):
            raise InputError(f"WITH ROLLUP is not available here. {_NOTHING_CHANGED} Write a UNION.")
    return read


def _listing(read: exp.Show | exp.Describe, columns: Columns) -> str:
    """A query for what SHOW TABLES, SHOW COLUMNS and DESCRIBE tell."""
    if isinstance(read, exp.Show) and read.name.upper() == "TABLES":
        return "SELECT name AS `Tables` FROM sqlite_master WHERE type = 'table'"
    named = read.args.get("target") if isinstance(read, exp.Show) else read.this
    other = isinstance(read, exp.Show) and read.name.upper() != "COLUMNS"
    if other or not columns or not isinstance(named, exp.Identifier | exp.Table):
        raise InputError(_ONLY)
    listed = exp.values([(name, written) for name, written in columns]).sql(dialect=Writing)
    # The condition always holds; it is an error when there is no such table.
    there = f"(SELECT COUNT(*) FROM {_quoted(named.name)}) >= 0"
    return f"SELECT column1 AS `Field`, column2 AS `Type` FROM ({listed}) WHERE {there}"


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
