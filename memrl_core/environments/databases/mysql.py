"""MySQL's statements as statements of SQLite that do the same, for tasks that were made for MySQL.

`sqlglot` reads a statement; what the two mean differently is then written out: joins in UPDATE and DELETE, division,
what a column stores, functions, comparisons of text, and the order in which MySQL gives groups. Functions that SQLite
lacks are those of `mysql_functions`. MySQL accepts some statements that are refused here, with a sentence, and refuses
some that run here (a column that is neither grouped nor aggregated, a derived table without a name).

Known to differ: numbers are floats, so that a DECIMAL is exact where it is stored, shown or compared, but not within a
longer computation; a text keeps no zeros of a decimal (SET text = 7.50 stores 7.5); UNION, DISTINCT and GROUP BY tell
computed texts apart by case ('a' UNION 'A' has two rows); LIKE BINARY takes no ESCAPE; a TIME is compared as text; a
date is a text in sums other than + and -; and what MySQL refuses to store or to compare (a word in a number's or a
date's column) is stored as it is, or compares as NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from memrl_core.environments.databases.mysql_functions import NAMES, PREFIX
from memrl_core.errors import InputError

CHILD = "memrl_core.environments.databases.mysql_functions"
"""The sandbox's process in which translated statements run."""

LONGEST = 20_000
"""Characters of a statement."""

DEEPEST = 20
"""Brackets that may be open at once: reading them takes much of Python's stack."""

_BEFORE_IT = re.compile(r"(?:\s+|/\*.*?\*/|--\s[^\n]*(?:\n|$)|#[^\n]*(?:\n|$))+", re.DOTALL)
_FIRST_WORD = re.compile(r"[\s(]*(SELECT|WITH|TABLE|INSERT|REPLACE|UPDATE|DELETE)\b", re.IGNORECASE)
_NOTHING_CHANGED = "Nothing was changed."
_ONLY = f"Only SELECT, INSERT, UPDATE and DELETE can be run here, one statement at a time. {_NOTHING_CHANGED}"


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


Columns = tuple[tuple[str, str], ...]
"""Name and MySQL type of every column, in the order of the table."""


@lru_cache(maxsize=1024)
def to_sqlite(statement: str, columns: Columns = ()) -> str:
    """A statement of SQLite that does what one of MySQL does.

    `columns` are the columns of the task's tables with their MySQL types; without them, what a column of whole numbers
    stores, how many digits an average shows, and text compared with a number are as in SQLite. Raises `InputError` for
    what cannot be read, is not one statement, or is of a kind that cannot be run here.
    """
    read = parsed(statement)
    try:
        kinds = _kinds_in(read, columns)
        written = _changed(_arranged(_plain(read), kinds), kinds, columns)
        return _rewritten(written, kinds).sql(
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
    if not _FIRST_WORD.match(text):
        raise InputError(_ONLY)
    # The tables have no keys, so that REPLACE is an INSERT; sqlglot does not read it.
    text = re.sub(r"(?i)^\s*replace\b", "INSERT", text)
    try:
        found = [tree for tree in sqlglot.parse(text, read=Reading) if not isinstance(tree, exp.Semicolon | None)]
    except Exception as error:  # Whatever a parser may do with a text that nobody has read before.
        why = f"{type(error).__name__}; look for a quotation mark, a comment or a bracket that does not end"
        if isinstance(error, ParseError) and error.errors:
            first = error.errors[0]
            why = f"{str(first['description'])[:100]}, line {first['line']}, column {first['col']}"
        raise InputError(f"This is not MySQL that can be read ({why}). {_NOTHING_CHANGED} Mend it.") from None
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.DML):
        raise InputError(_ONLY)
    return found[0]


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def is_ordered(query: exp.Expr) -> bool:
    """Whether a query asks for an order of its rows itself: ORDER BY at its top."""
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    return query.args.get("order") is not None


# --- types, and the kind of a value -----------------------------------------------------------------------------------

Kind = int | Literal["text", "date", "datetime"] | None
"""The digits of an exact number after its point; "text"; "date", and "datetime" for one with a time; None for a
floating number and for what is not known. MySQL keeps account of the digits: AVG and `/` add four."""

Kinds = Mapping[str, Kind]
MOMENTS: tuple[Kind, ...] = ("date", "datetime")
ADDED_BY_DIVISION = 4
MOST_DIGITS = 30

_KIND_OF_TYPE: Mapping[str, Kind] = {
    **dict.fromkeys(["TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "BOOL", "BOOLEAN", "YEAR"], 0),
    **dict.fromkeys(["DECIMAL", "NUMERIC", "DEC"], 0),
    **dict.fromkeys(["CHAR", "VARCHAR", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET"], "text"),
    **dict.fromkeys(["FLOAT", "DOUBLE", "REAL", "TIME"]),
    **{"DATE": "date", "DATETIME": "datetime", "TIMESTAMP": "datetime"},
}
_TYPE = re.compile(
    r"(?!ENUM|SET)([A-Z]+)\s*(?:\(\s*\d+\s*(?:,\s*(\d+)\s*)?\))?(?:\s+UNSIGNED)?"
    r"|(ENUM|SET)\s*\(\s*'[^']*'(?:\s*,\s*'[^']*')*\s*\)"
)
_GIVING_TEXT = """
    concat concat_ws date_format dayname format group_concat lcase left lower lpad mid monthname repeat replace reverse
    right rpad substring_index trim ucase upper
"""
_KIND_OF_CALL: Mapping[str, Kind] = {
    **dict.fromkeys(_GIVING_TEXT.split(), "text"),
    **dict.fromkeys(("date", "curdate", "last_day"), "date"),
    **dict.fromkeys(["floor", "ceil", "ceiling", "datediff", "timestampdiff", "year", "month", "day", "length"], 0),
}


def column_type(written: str) -> str:
    """The type with which SQLite makes a column of this MySQL type; "" for one that is not known here.

    Text compares without regard to case, as in MySQL's usual collation.
    """
    given = written.strip().upper()
    found = _TYPE.fullmatch(given)
    word = str(found.group(1) or found.group(3)) if found else ""
    if word not in _KIND_OF_TYPE:
        return ""
    if word in ("ENUM", "SET"):
        return "TEXT COLLATE NOCASE"
    return f"{given} COLLATE NOCASE" if _KIND_OF_TYPE[word] == "text" else given


def kind_of_type(written: str) -> Kind:
    """The kind of the values of a column of this MySQL type."""
    found = _TYPE.fullmatch(written.strip().upper())
    if found is None:
        return None
    return (
        int(found.group(2) or 0)
        if found.group(1) in ("DECIMAL", "NUMERIC", "DEC")
        else _KIND_OF_TYPE.get(found.group(1) or found.group(3))
    )


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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _kinds_in(statement: exp.Expr, columns: Columns) -> Kinds:
    """The kinds of all columns by name in lower case, and of what the statement itself names with AS."""
    kinds = {name.lower(): kind_of_type(written) for name, written in columns}
    for alias in reversed(list(statement.find_all(exp.Alias))):
        kinds.setdefault(alias.alias.lower(), kind_of(alias.this, kinds))
    return kinds


def kind_of(node: exp.Expr | None, kinds: Kinds) -> Kind:
    """The kind of the value of an expression."""
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower())
    if isinstance(node, exp.Literal):
        if node.is_string:
            return "text"
        return None if "e" in node.name.lower() else len(node.name.partition(".")[2])
    if isinstance(node, exp.Paren | exp.Neg | exp.Sum | exp.Min | exp.Max | exp.Window):
        return kind_of(node.this, kinds)
    if isinstance(node, exp.Subquery | exp.Select):
        shown = node.selects
        return kind_of(shown[0].unalias(), kinds) if len(shown) == 1 else None
    if isinstance(node, exp.Count | exp.IntDiv | exp.Predicate | exp.Boolean):
        return 0
    if isinstance(node, exp.Substring | exp.Trim | exp.Concat | exp.GroupConcat):
        return "text"
    if isinstance(node, exp.Anonymous):
        return _kind_of_call(node, kinds)
    if isinstance(node, exp.Case):
        return _kind_of_all([*(one.args["true"] for one in node.args["ifs"]), node.args.get("default")], kinds)
    if isinstance(node, exp.If):
        return _kind_of_all([node.args["true"], node.args.get("false")], kinds)
    if isinstance(node, exp.Coalesce):
        return _kind_of_all([node.this, *node.expressions], kinds)
    return _digits(node, kinds)


def _digits(node: exp.Expr | None, kinds: Kinds) -> Kind:
    """The digits of an average and of arithmetic with exact numbers."""
    if not isinstance(node, exp.Avg | exp.Binary):
        return None
    left, right = kind_of(node.this, kinds), kind_of(node.expression, kinds)
    if isinstance(node, exp.Avg) or (isinstance(node, exp.Div) and isinstance(right, int)):
        right = ADDED_BY_DIVISION
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    if isinstance(node, exp.Add | exp.Sub | exp.Mod):
        return max(left, right)
    return min(MOST_DIGITS, left + right) if isinstance(node, exp.Avg | exp.Div | exp.Mul) else None


def _kind_of_call(node: exp.Anonymous, kinds: Kinds) -> Kind:
    name, given = node.name.lower().removeprefix(PREFIX), node.expressions
    if name in ("round", "truncate") and given:
        digits = given[1] if len(given) > 1 else exp.Literal.number(0)
        exact = isinstance(kind_of(given[0], kinds), int) and isinstance(digits, exp.Literal) and digits.is_int
        return max(0, int(digits.name)) if exact else None
    if name in ("abs", "ifnull", "nullif", "any_value") and given:
        return kind_of(given[0], kinds)
    return _KIND_OF_CALL.get(name)


def _kind_of_all(branches: Iterable[exp.Expr | None], kinds: Kinds) -> Kind:
    """The kind that covers all of several expressions."""
    found = [kind_of(one, kinds) for one in branches if one is not None and not isinstance(one, exp.Null)]
    numbers = [one for one in found if isinstance(one, int)]
    if found and len(numbers) == len(found):
        return max(numbers)
    return "text" if found and all(one == "text" for one in found) else None


# --- names of columns, brackets, and the order of groups --------------------------------------------------------------

ROW = "_rowid_"
"""SQLite's number of a row: rows that stand in a table from its beginning have the numbers 1, 2, 3 …"""


def _plain(read: exp.Expr) -> exp.Expr:
    """Without names of databases, and without what says how MySQL should work rather than what it should give."""
    for table in read.find_all(exp.Table):
        for key in ("hints", "db", "catalog"):
            table.set(key, None)
    for column in read.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    for select in read.find_all(exp.Select):
        select.set("locks", None)
        source = select.args.get("from_")
        if source is not None and source.name.upper() == "DUAL":
            select.set("from_", None)
    if any(group.args.get("rollup") for group in read.find_all(exp.Group)):
        raise InputError(f"WITH ROLLUP is not available here. {_NOTHING_CHANGED} Write a UNION.")
    return read


def _arranged(statement: exp.Expr, kinds: Kinds) -> exp.Expr:
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


def _base_tables(select: exp.Select, common: set[str]) -> list[exp.Table]:
    """The tables that a query reads itself, in the order in which it names them; `common` are the names of WITH."""
    sources = [select.args.get("from_"), *select.args.get("joins", ())]
    found = [source.this for source in sources if source is not None]
    within = [join.this for table in found for join in table.args.get("joins", ())]
    return [one for one in (*found, *within) if isinstance(one, exp.Table) and one.name.lower() not in common]


def _parent(select: exp.Expr) -> exp.Expr | None:
    """What a query stands in, outside of its brackets."""
    parent = select.parent
    while isinstance(parent, exp.Subquery):
        parent = parent.parent
    return parent


def _is_shown(select: exp.Select) -> bool:
    """Whether a query's columns are seen by name: it is the statement itself, or something selects from it."""
    parent = _parent(select)
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
            value = _call("round", value, exp.Literal.number(digits))
        shown.append(exp.alias_(value, name, quoted=True) if name else value)
    select.set("expressions", shown)


def _having_without_groups(select: exp.Select) -> None:
    """HAVING without GROUP BY and without an aggregate is a further condition, which may use names of columns."""
    having = select.args.get("having")
    if having is None or select.args.get("group") is not None:
        return
    if not any(one.find(exp.AggFunc) is not None for one in (having, *select.expressions)):
        select.set("having", None)
        select.where(having.this, copy=False)


def _groups_as_they_appear(select: exp.Select, common: set[str]) -> None:
    """MySQL gathers groups in a temporary table: they come in the order of their first rows, where nothing asks for
    another order, and so do groups that an ORDER BY leaves level. SQLite sorts by the group.
    """
    group = select.args.get("group")
    if group is None or not group.expressions or isinstance(_parent(select), exp.SetOperation):
        return
    first = [exp.Min(this=exp.column(ROW, table=table.alias_or_name)) for table in _base_tables(select, common)]
    if first:
        select.order_by(*first, append=True, copy=False)


# --- changes ----------------------------------------------------------------------------------------------------------

_NEW = "new_values"
_ROW_OF_TARGET = "row_of_target"


def _changed(statement: exp.Expr, kinds: Kinds, columns: Columns) -> exp.Expr:
    """The same change as SQLite knows it; anything else as it is. Raises `InputError`."""
    types = {name.lower(): written for name, written in columns}
    if isinstance(statement, exp.Insert):
        return _inserted(statement, kinds, types)
    if isinstance(statement, exp.Update):
        return _updated(statement, kinds, types)
    return _deleted(statement) if isinstance(statement, exp.Delete) else statement


def _inserted(insert: exp.Insert, kinds: Kinds, types: Mapping[str, str]) -> exp.Expr:
    insert.set("conflict", None)  # ON DUPLICATE KEY UPDATE: the tables have no keys.
    target, source = insert.this, insert.expression
    names = [one.name.lower() for one in target.expressions] if isinstance(target, exp.Schema) else list(types)
    rows: Iterable[exp.Expr] = source.expressions if isinstance(source, exp.Values) else ()
    if isinstance(source, exp.Select) and not source.is_star:
        rows = [source]
    for row in rows:
        given = [_default(one.unalias()) for one in row.expressions]
        if len(given) == len(names):
            stored = zip(names, given, strict=True)
            row.set("expressions", [_stored(one, types.get(name), kinds) for name, one in stored])
    return insert


def _updated(update: exp.Update, kinds: Kinds, types: Mapping[str, str]) -> exp.Expr:
    assigned = [(one.this, one.expression) for one in update.expressions]
    sources = [update.this, *(join.this for join in update.this.args.get("joins", ()))]
    target = _target(sources, [name for name, _ in assigned])
    _refuse_reading(update, target)
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
    new = [exp.alias_(value, f"value_{number}") for number, value in enumerate(values.values())]
    taken = {name: f"value_{number}" for number, name in enumerate(values)}
    written = exp.Update(
        this=exp.to_table(target.name, quoted=True),
        expressions=[_set(name, exp.column(taken[name.lower()], table=_NEW)) for name in names],
        from_=exp.From(this=_rows_of(update, target.alias_or_name, new).subquery(_NEW)),
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
        reads = {table.name.lower() for table in _base_tables(select, common)}
        if target.name.lower() in reads and not _is_derived(select):
            raise InputError(
                f"MySQL does not change {target.name[:80]} while a sub-select of the statement reads it (error 1093). "
                f"{_NOTHING_CHANGED} Read it through a derived table: (SELECT … FROM (SELECT …) AS derived)."
            )


def _is_derived(select: exp.Select) -> bool:
    """Whether it stands, at whatever depth, in a derived table or a WITH."""
    within: exp.Expr | None = select
    while within is not None:
        derived = isinstance(within, exp.Subquery) and isinstance(within.parent, exp.From | exp.Join)
        if derived or isinstance(within, exp.CTE):
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
    if isinstance(value, exp.Null):
        return value
    if kept in MOMENTS and kept != given:
        return _call("stored_moment", value, _text(str(kept)))
    if not isinstance(kept, int) or (isinstance(given, int) and given <= kept):
        return value
    return _call("round", value, exp.Literal.number(kept)) if kept else _call("whole", value)


def _default(value: exp.Expr) -> exp.Expr:
    """DEFAULT is NULL: no column has another one."""
    word = value.this if isinstance(value, exp.Column) else value
    plain = isinstance(word, exp.Var) or (isinstance(word, exp.Identifier) and not word.quoted)
    return exp.Null() if plain and word.name.upper() == "DEFAULT" else value


def _set(name: str, value: exp.Expr) -> exp.Expr:
    return exp.EQ(this=exp.column(name, quoted=True), expression=value)


# --- expressions: functions, casts, intervals, and comparisons of unlike values ---------------------------------------

_VALUE, _OTHERS = "compared", "compared_rows"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)


def _rewritten(statement: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The same statement with every expression in it as SQLite means it; innermost first. Raises `InputError`."""
    for node in reversed(list(statement.walk(bfs=True))):
        if rule := _RULES.get(type(node)):
            written = rule(node, kinds)
            if written is not node:
                node.replace(written)
    return statement


def _call(name: str, *given: exp.Expr) -> exp.Anonymous:
    """A call of a function of `mysql_functions`; the arguments are taken as they are."""
    return exp.Anonymous(this=PREFIX + name, expressions=list(given))


def _text(value: str) -> exp.Literal:
    return exp.Literal.string(value)


def _collated(value: exp.Expr, collation: str) -> exp.Expr:
    return exp.Collate(this=exp.paren(value), expression=exp.var(collation))


def _called(node: Any, kinds: Kinds) -> exp.Expr:
    name, given = node.name.upper(), node.expressions
    if name in ("DATE_ADD", "DATE_SUB", "ADDDATE", "SUBDATE") and len(given) == 2:
        return _moved(given[0], given[1], backwards=name in ("DATE_SUB", "SUBDATE"))
    if name in ("TIMESTAMPDIFF", "TIMESTAMPADD") and given:
        given = [_text(given[0].name.upper().removeprefix("SQL_TSI_")), *given[1:]]
    return _call(name.lower(), *given) if PREFIX + name.lower() in NAMES else node


def _moved(value: exp.Expr, by: exp.Expr, *, backwards: bool) -> exp.Expr:
    unit = by.args.get("unit") if isinstance(by, exp.Interval) else exp.var("DAY")
    count = by.this if isinstance(by, exp.Interval) else by
    if not isinstance(unit, exp.Var):
        raise InputError("An interval of this unit is not available here. Nothing was changed; write it in days.")
    return _call("date_sub" if backwards else "date_add", value, count, _text(unit.name.upper()))


def _sum(node: Any, kinds: Kinds) -> exp.Expr:
    backwards = isinstance(node, exp.Sub)
    if isinstance(node.expression, exp.Interval):
        return _moved(node.this, node.expression, backwards=backwards)
    if isinstance(node.this, exp.Interval) and not backwards:
        return _moved(node.expression, node.this, backwards=False)
    for side in ("this", "expression"):
        if kind_of(node.args[side], kinds) in MOMENTS:
            node.set(side, _call("moment_number", node.args[side]))
    return node  # type: ignore[no-any-return]


_CASTS = {
    **dict.fromkeys((exp.DType.BIGINT, exp.DType.UBIGINT, exp.DType.INT, exp.DType.UINT), "SIGNED"),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE), "DOUBLE"),
    **dict.fromkeys((exp.DType.CHAR, exp.DType.NCHAR, exp.DType.VARCHAR, exp.DType.TEXT), "CHAR"),
    exp.DType.DECIMAL: "DECIMAL",
}
_CASTS_OF_TIME = {"DATE": "date", "DATETIME": "datetime", "TIMESTAMP": "datetime", "TIME": "time"}


def _cast(node: Any, kinds: Kinds) -> exp.Expr:
    kind, value = node.to.this, node.this
    if kind is exp.DType.BINARY:
        return _collated(value, "BINARY")
    if kind in _CASTS:
        sizes = [one.name for one in node.to.expressions]
        size = sizes[-1] if len(sizes) > (kind is exp.DType.DECIMAL) else 0
        return _call("cast", value, _text(_CASTS[kind]), exp.Literal.number(size))
    return _call(_CASTS_OF_TIME[kind.value], value) if kind.value in _CASTS_OF_TIME else node


def _group_concat(node: Any, kinds: Kinds) -> exp.Expr:
    inner, keys = node.this, []
    if isinstance(inner, exp.Order):
        inner, keys = inner.this, inner.expressions
    distinct = isinstance(inner, exp.Distinct)
    values = inner.expressions if distinct else [inner]
    value = values[0] if len(values) == 1 else _call("concat", *values)
    directions = "".join("d" if key.args.get("desc") else "a" for key in keys)
    separator = node.args.get("separator") or _text(",")
    given = [separator, exp.Literal.number(int(distinct)), _text(directions), value, *(key.this for key in keys)]
    return _call("group_concat", *given)


def _count(node: Any, kinds: Kinds) -> exp.Expr:
    several = isinstance(node.this, exp.Distinct) and len(node.this.expressions) > 1
    return _call("count_distinct", *node.this.expressions) if several else node


def _either(node: Any, kinds: Kinds) -> exp.Expr:
    one, other = (exp.paren(exp.not_(exp.paren(side))) for side in (node.this, node.expression))
    return exp.paren(exp.NEQ(this=one, expression=other))


def _function(name: str, *keys: str) -> Callable[[Any, Kinds], exp.Expr]:
    """The rule that calls a function with what stands under `keys`, as far as it is there."""
    return lambda node, kinds: _call(name, *(node.args[key] for key in keys if node.args.get(key)))


def _compared(node: Any, kinds: Kinds) -> exp.Expr:
    if isinstance(node.parent, exp.Update) and node.arg_key == "expressions":
        return node  # type: ignore[no-any-return]  # An assignment.
    if isinstance(node.expression, exp.Any | exp.All):
        return _with_any_or_all(node)
    for side, other in (("this", "expression"), ("expression", "this")):
        one, against = node.args[side], node.args[other]
        plain = isinstance(against, exp.Column | exp.Collate)
        node.set(side, _beside(one, kind_of(against, kinds), kinds, plain=plain))
    return node  # type: ignore[no-any-return]


def _beside(one: exp.Expr, other: Kind, kinds: Kinds, *, plain: bool = False) -> exp.Expr:
    """A value as it is compared with one of the kind `other`; `plain` when that says itself whether case counts."""
    kind = kind_of(one, kinds)
    if other in MOMENTS and kind != other and not (other == "date" and isinstance(kind, int)):
        return _call("day_or_moment" if other == "date" else "datetime", one)
    if kind == "date" and isinstance(other, int):
        return _call("moment_number", one)
    if kind == "text" and isinstance(other, int):
        return _call("number", one)
    if kind == "text" and not plain and not isinstance(one, exp.Column):
        return _collated(one, "NOCASE")
    return _exact(one, kind)


def _exact(value: exp.Expr, kind: Kind) -> exp.Expr:
    """Sums and products of decimals are exact in MySQL; what it keeps of a quotient is more than it shows."""
    known = isinstance(value, exp.Column | exp.Literal | exp.Neg | exp.Subquery)
    if not isinstance(kind, int) or not kind or known or value.find(exp.Div, exp.Avg, exp.Query) is not None:
        return value
    return _call("round", value, exp.Literal.number(kind))


def _listed(node: Any, kinds: Kinds) -> exp.Expr:
    """IN; where the values are of another sort than what is looked for, as several comparisons."""
    kind, items = kind_of(node.this, kinds), node.expressions
    sorts = {type(kind_of(one, kinds)) for one in items}
    if items and kind is not None and (kind in MOMENTS or sorts != {type(kind)}):
        each = [exp.EQ(this=node.this.copy(), expression=one) for one in items]
        return exp.paren(exp.or_(*(_compared(one, kinds) for one in each)))
    if kind == "text" and not isinstance(node.this, exp.Column):
        node.set("this", _collated(node.this, "NOCASE"))
    else:
        node.set("this", _exact(node.this, kind))
    return node  # type: ignore[no-any-return]


def _between(node: Any, kinds: Kinds) -> exp.Expr:
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"])
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"])
    return exp.paren(exp.and_(_compared(low, kinds), _compared(high, kinds)))


def _with_any_or_all(node: Any) -> exp.Expr:
    """`x > ANY (query)`: there is a row with which it holds; with ALL: there is none with which it does not."""
    is_any, query = isinstance(node.expression, exp.Any), node.expression.this
    query = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        raise InputError("ANY and ALL take a plain sub-select of one column here. Nothing was changed; mend it.")
    query.set("expressions", [exp.alias_(query.expressions[0].unalias(), _VALUE)])
    holds = type(node)(this=node.this, expression=exp.column(_VALUE, table=_OTHERS))
    rows = exp.select("1").from_(query.subquery(_OTHERS))
    found = exp.Exists(this=rows.where(holds if is_any else exp.not_(exp.paren(holds))))
    return found if is_any else exp.not_(found)


def _like(node: Any, kinds: Kinds) -> exp.Expr:
    """A backslash takes a sign of the pattern literally; case counts for BINARY alone."""
    if isinstance(node.parent, exp.Escape):
        return node  # type: ignore[no-any-return]
    if any(isinstance(one, exp.Collate) and one.expression.name == "BINARY" for one in (node.this, node.expression)):
        found = _call("like_binary", node.this, node.expression)
        return exp.not_(found) if node.args.get("negate") else found
    if "\\" not in node.expression.name:
        return node  # type: ignore[no-any-return]
    return exp.Escape(this=node.copy(), expression=_text("\\"))


def _ordered(node: Any, kinds: Kinds) -> exp.Expr:
    if kind_of(node.this, kinds) == "text" and not isinstance(node.this, exp.Column | exp.Literal):
        node.set("this", _collated(node.this, "NOCASE"))
    return node  # type: ignore[no-any-return]


_RULES: Mapping[type[exp.Expr], Callable[[Any, Kinds], exp.Expr]] = {
    exp.Anonymous: _called,
    **dict.fromkeys((exp.Add, exp.Sub), _sum),
    exp.Cast: _cast,
    # Of MySQL's collations it matters here whether case counts.
    exp.Collate: lambda node, kinds: exp.Collate(
        this=node.this, expression=exp.var("NOCASE" if node.expression.name.lower().endswith("_ci") else "BINARY")
    ),
    **dict.fromkeys(_COMPARISONS, _compared),
    exp.In: _listed,
    exp.Between: _between,
    exp.Like: _like,
    exp.Ordered: _ordered,
    exp.GroupConcat: _group_concat,
    exp.Count: _count,
    exp.Xor: _either,
    exp.Mod: _function("mod", "this", "expression"),
    exp.Concat: lambda node, kinds: _call("concat", *node.expressions),
    exp.Substring: _function("substring", "this", "start", "length"),
    exp.StrPosition: _function("locate", "substr", "this"),
    exp.RegexpLike: _function("regexp", "this", "expression"),
    exp.CurrentDate: _function("curdate"),
    exp.CurrentTime: _function("curtime"),
    **dict.fromkeys((exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp), _function("now")),
    exp.Extract: lambda node, kinds: _call("extract", _text(node.this.name.upper()), node.expression),
    exp.Trim: lambda node, kinds: _call(
        "trim", node.this, node.expression or _text(" "), _text(node.args.get("position") or "BOTH")
    ),
}
"""What each of these expressions is written as; what stands within it has been rewritten before."""
