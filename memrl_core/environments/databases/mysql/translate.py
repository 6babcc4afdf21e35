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
from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from memrl_core.environments.databases.mysql.expressions import rewritten
from memrl_core.environments.databases.mysql.kinds import (
    MOMENTS,
    Columns,
    Kinds,
    call,
    column_type,
    kind_of,
    kind_of_type,
    kinds_in,
)
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


# --- names of columns, order of groups, and changes without joins -----------------------------------------------------

ROW = "_rowid_"
"""SQLite's number of a row: rows that stand in a table from its beginning have the numbers 1, 2, 3 …"""
_NEW = "new_values"
_ROW_OF_TARGET = "row_of_target"


def arranged(statement: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The same statement, changed in place, with every query in it arranged."""
    common = {one.alias.lower() for one in statement.find_all(exp.CTE)}
    statement = _without_outer_brackets(statement)
    for select in list(statement.find_all(exp.Select)):
        if _is_shown(select):
            _name_and_round(select, kinds)
        _having_without_groups(select)
        _groups_as_they_appear(select, common)
    return statement


def _without_outer_brackets(statement: exp.Expr) -> exp.Expr:
    """SQLite takes no brackets around a whole query, nor around the parts of a UNION."""
    while isinstance(statement, exp.Subquery):
        statement = statement.this.pop()
    for union in list(statement.find_all(exp.SetOperation)):
        for part in (union.this, union.expression):
            if isinstance(part, exp.Subquery):
                alone = any(part.this.args.get(key) is not None for key in ("order", "limit", "offset"))
                part.replace(exp.select("*").from_(part.this.subquery("part")) if alone else part.this)
    return statement


def base_tables(select: exp.Select, common: set[str]) -> list[exp.Table]:
    """The tables that a query reads itself, in the order in which it names them; `common` are the names of WITH."""
    sources = [select.args.get("from_"), *select.args.get("joins", ())]
    found = [source.this for source in sources if source is not None]
    within = [join.this for table in found for join in table.args.get("joins", ())]
    return [one for one in (*found, *within) if isinstance(one, exp.Table) and one.name.lower() not in common]


def _is_shown(select: exp.Select) -> bool:
    """Whether a query's columns are seen by name: it is the statement itself, or something selects from it."""
    parent = select.parent
    if isinstance(parent, exp.Subquery):
        parent = parent.parent
    return parent is None or isinstance(parent, exp.From | exp.Join | exp.CTE | exp.SetOperation)


def _name_and_round(select: exp.Select, kinds: Kinds) -> None:
    """Columns get the names that MySQL gives them, and exact numbers that are computed the digits that it shows."""
    shown = []
    for one in select.expressions:
        value, name = one.unalias(), one.alias
        if not name and not one.is_star and not isinstance(one, exp.Column | exp.Literal):
            name = one.sql("mysql")
        elif isinstance(one, exp.Column) and one.table and not one.is_star:
            name = one.name
        digits = kind_of(value, kinds)
        if isinstance(digits, int) and digits and not isinstance(value, exp.Column | exp.Literal):
            value = call("mysql_round", value, exp.Literal.number(digits))
        shown.append(exp.alias_(value, name, quoted=True) if name else value)
    select.set("expressions", shown)


def _having_without_groups(select: exp.Select) -> None:
    """HAVING without GROUP BY and without an aggregate is a further condition, which may use names of columns."""
    having = select.args.get("having")
    if having is None or select.args.get("group") is not None:
        return
    if any(one.find(exp.AggFunc) is not None for one in (having, *select.expressions)):
        return
    select.set("having", None)
    select.where(having.this, copy=False)


def _groups_as_they_appear(select: exp.Select, common: set[str]) -> None:
    """MySQL gathers groups in a temporary table: they come in the order of their first rows, where nothing asks for
    another order, and so do groups that an ORDER BY leaves level. SQLite sorts by the group.
    """
    group = select.args.get("group")
    if group is None or not group.expressions or _is_part_of_a_union(select):
        return
    tables = base_tables(select, common)
    first = [exp.Min(this=exp.column(ROW, table=table.alias_or_name)) for table in tables]
    if first:
        select.order_by(*first, append=True, copy=False)


def _is_part_of_a_union(select: exp.Select) -> bool:
    parent = select.parent
    while isinstance(parent, exp.Subquery):
        parent = parent.parent
    return isinstance(parent, exp.SetOperation)


def changed(statement: exp.Expr, kinds: Kinds, columns: Columns) -> exp.Expr:
    """The same change as SQLite knows it; anything else as it is. Raises `InputError`."""
    if isinstance(statement, exp.Insert):
        return _inserted(statement, kinds, columns)
    if isinstance(statement, exp.Update):
        return _updated(statement, kinds, columns)
    return _deleted(statement) if isinstance(statement, exp.Delete) else statement


def _inserted(insert: exp.Insert, kinds: Kinds, columns: Columns) -> exp.Expr:
    insert.set("conflict", None)  # ON DUPLICATE KEY UPDATE: the tables have no keys.
    target = insert.this
    names = [one.name for one in target.expressions] if isinstance(target, exp.Schema) else [n for n, _ in columns]
    types = _types(columns)
    source = insert.expression
    if isinstance(source, exp.Values):
        rows: Iterable[exp.Expr] = source.expressions
    else:
        rows = [source] if isinstance(source, exp.Select) and not source.is_star else ()
    for row in rows:
        given = row.expressions
        if len(given) == len(names):
            stored = [_stored(_default(one.unalias()), types.get(n.lower()), kinds) for n, one in zip(names, given)]  # noqa: B905
            row.set("expressions", stored)
    return insert


def _updated(update: exp.Update, kinds: Kinds, columns: Columns) -> exp.Expr:
    assigned = [(one.this, one.expression) for one in update.expressions]
    sources = [update.this, *(join.this for join in update.this.args.get("joins", ()))]
    target = _target(sources, [name for name, _ in assigned])
    _refuse_reading(update, target)
    types = _types(columns)
    one_by_one = len(sources) == 1
    done: dict[str, exp.Expr] = {}
    for name, value in assigned:
        if one_by_one:  # MySQL assigns from left to right: what follows sees the new value.
            value = value.transform(lambda node: _seen(node, done))
        done[name.name.lower()] = _stored(_default(value), types.get(name.name.lower()), kinds)
    names = [name.name for name, _ in assigned]
    limited = update.args.get("limit") is not None
    if one_by_one and not limited and not any(value.find(exp.Query) is not None for value in done.values()):
        update.set("expressions", [_set(name, done[name.lower()]) for name in names])
        update.set("order", None)
        return update
    return _from_a_query(update, target, names, done)


def _from_a_query(update: exp.Update, target: exp.Table, names: list[str], values: dict[str, exp.Expr]) -> exp.Expr:
    """All new values are computed before the first one is stored: SQLite's FROM does that."""
    known = target.alias_or_name
    new = [exp.alias_(value, f"value_{number}") for number, value in enumerate(values.values())]
    read = _rows_of(update, known, new)
    taken = {name: f"value_{number}" for number, name in enumerate(values)}
    written = exp.Update(
        this=exp.to_table(target.name, quoted=True),
        expressions=[_set(name, exp.column(taken[name.lower()], table=_NEW)) for name in names],
        from_=exp.From(this=read.subquery(_NEW)),
        where=exp.Where(this=exp.column(ROW, table=target.name).eq(exp.column(_ROW_OF_TARGET, table=_NEW))),
    )
    written.set("with_", update.args.get("with_"))
    return written


def _deleted(delete: exp.Delete) -> exp.Expr:
    using = delete.args.get("using") or ()
    named = delete.args.get("tables") or ([delete.this] if using else ())
    first = using[0] if using else delete.this
    sources = [first, *(join.this for join in first.args.get("joins", ())), *using[1:]]
    if len(named) > 1:
        raise InputError(f"Rows of one table at a time can be deleted here. {_NOTHING_CHANGED} Write two statements.")
    called = named[0].name.lower() if named else ""
    target = next((one for one in sources if not called or called in (one.alias.lower(), one.name.lower())), first)
    if not isinstance(target, exp.Table):
        raise InputError(f"Rows can be deleted from a table alone. {_NOTHING_CHANGED} Name a table.")
    _refuse_reading(delete, target)
    if len(sources) == 1 and delete.args.get("limit") is None and not using:
        delete.set("tables", None)
        delete.set("order", None)
        return delete
    delete.set("this", first)
    for more in using[1:]:
        first.append("joins", exp.Join(this=more))
    rows = _rows_of(delete, target.alias_or_name, [])
    condition = exp.In(this=exp.column(ROW, table=target.name), query=exp.Subquery(this=rows))
    written = exp.Delete(this=exp.to_table(target.name, quoted=True), where=exp.Where(this=condition))
    written.set("with_", delete.args.get("with_"))
    return written


def _rows_of(change: exp.Update | exp.Delete, known: str, new: list[exp.Expr]) -> exp.Select:
    """A query for the rows of the table called `known` that a change is about, and for their new values."""
    query = exp.select(exp.column(ROW, table=known).as_(_ROW_OF_TARGET), *new).from_(change.this.copy())
    for key in ("where", "order", "limit"):
        query.set(key, change.args.get(key))
    return query


def _target(sources: list[exp.Expr], assigned: list[exp.Expr]) -> exp.Table:
    called = {name.table.lower() for name in assigned if isinstance(name, exp.Column) and name.table}
    tables = [one for one in sources if isinstance(one, exp.Table)]
    if len(called) > 1:
        raise InputError(f"One table at a time can be updated here. {_NOTHING_CHANGED} Write two statements.")
    found = next((one for one in tables if not called or one.alias_or_name.lower() in called), None)
    if found is None:
        raise InputError(f"The table that is to be updated is not among those named. {_NOTHING_CHANGED} Name it.")
    return found


def _refuse_reading(change: exp.Update | exp.Delete, target: exp.Table) -> None:
    """MySQL does not change a table that a sub-select of the same statement reads, unless through a derived table."""
    common = {one.alias.lower() for one in change.find_all(exp.CTE)}
    for select in change.find_all(exp.Select):
        reads = {table.name.lower() for table in base_tables(select, common)}
        if target.name.lower() in reads and not _is_derived(select):
            raise InputError(
                f"MySQL does not change {target.name[:80]} while a sub-select of the statement reads it (error 1093). "
                f"{_NOTHING_CHANGED} Read it through a derived table: (SELECT … FROM (SELECT …) AS derived)."
            )


def _is_derived(select: exp.Select) -> bool:
    """Whether it stands, at whatever depth, in a derived table or a WITH."""
    within: exp.Expr | None = select
    while within is not None:
        if isinstance(within, exp.CTE) or (
            isinstance(within, exp.Subquery) and isinstance(within.parent, exp.From | exp.Join)
        ):
            return True
        within = within.parent
    return False


def _seen(node: exp.Expr, done: dict[str, exp.Expr]) -> exp.Expr:
    if isinstance(node, exp.Column) and node.name.lower() in done and node.find_ancestor(exp.Select) is None:
        return exp.paren(done[node.name.lower()].copy())
    return node


def _stored(value: exp.Expr, written: str | None, kinds: Kinds) -> exp.Expr:
    """What a column of a type stores of a value: whole numbers and decimals are rounded, dates written in one way."""
    kept = kind_of_type(written) if written is not None else None
    given = kind_of(value, kinds)
    if kept in MOMENTS and kept != given and not isinstance(value, exp.Null):
        return call("mysql_stored_moment", value, exp.Literal.string(str(kept)))
    if not isinstance(kept, int) or isinstance(value, exp.Null) or (isinstance(given, int) and given <= kept):
        return value
    return call("mysql_round", value, exp.Literal.number(kept)) if kept else call("mysql_whole", value)


def _default(value: exp.Expr) -> exp.Expr:
    """DEFAULT is NULL: no column has another one."""
    word = value.this if isinstance(value, exp.Column) else value
    plain = isinstance(word, exp.Var) or (isinstance(word, exp.Identifier) and not word.quoted)
    return exp.Null() if plain and word.name.upper() == "DEFAULT" else value


def _set(name: str, value: exp.Expr) -> exp.Expr:
    return exp.EQ(this=exp.column(name, quoted=True), expression=value)


def _types(columns: Columns) -> dict[str, str]:
    return {name.lower(): written for name, written in columns}
