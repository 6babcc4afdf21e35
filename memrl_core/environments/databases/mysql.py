"""MySQL's statements as statements of SQLite that do the same, for tasks that were made for MySQL.

`sqlglot` reads and writes statements; what the two mean differently is written out here: joins, LIMIT and the order of
assignments in UPDATE and DELETE, division, what a column of numbers stores, comparisons of text, and the order in which
MySQL gives groups. Functions that SQLite lacks are those of `mysql_functions`.

Made for tables of whole numbers and texts, which is what the published tasks have. Known to differ: a date is a text; a
DECIMAL is a float within a longer computation; UNION, DISTINCT and GROUP BY tell computed texts apart by case; a column
that is neither grouped nor aggregated, and a derived table without a name, are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, Literal

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from memrl_core.environments.databases.mysql_functions import NAMES, PREFIX
from memrl_core.environments.databases.statements import on_one_line
from memrl_core.errors import InputError

CHILD = "memrl_core.environments.databases.mysql_functions"
"""The sandbox's process in which translated statements run."""

LONGEST = 20_000
"""Characters of a statement."""

DEEPEST = 20
"""Brackets that may be open at once: reading them takes much of Python's stack."""

_KINDS_OF_STATEMENT = ("select", "with", "table", "insert", "replace", "update", "delete")
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
    tree = parsed(statement)
    try:
        kinds = _kinds_in(tree, columns)
        changed = _changed(_arranged(tree, kinds), kinds, {name.lower(): written for name, written in columns})
        return _rewritten(changed, kinds).sql(
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
    text = on_one_line(statement, "mysql")
    if not text.strip("; "):
        raise InputError(f"There is no statement. {_NOTHING_CHANGED} Write one statement of MySQL.")
    depth = max(accumulate((character == "(") - (character == ")") for character in text))
    if len(text) > LONGEST or depth > DEEPEST:
        raise InputError(
            f"The statement is too long or too deeply nested: at most {LONGEST:,} characters and {DEEPEST} open "
            f"brackets are read. {_NOTHING_CHANGED} Write it more simply."
        )
    word, _, rest = text.lstrip("( ").partition(" ")
    if word.lower() not in _KINDS_OF_STATEMENT:
        raise InputError(_ONLY)
    if word.lower() == "replace":  # The tables have no keys, so that it is an INSERT; sqlglot does not read it.
        text = f"INSERT {rest}"
    try:
        trees = [tree for tree in sqlglot.parse(text, read=Reading) if not isinstance(tree, exp.Semicolon | None)]
    except Exception as error:  # Whatever a parser may do with a text that nobody has read before.
        why = f"{type(error).__name__}; look for a quotation mark, a comment or a bracket that does not end"
        if isinstance(error, ParseError) and error.errors:
            first = error.errors[0]
            why = f"{str(first['description'])[:100]}, character {first['col']}"
        raise InputError(f"This is not MySQL that can be read ({why}). {_NOTHING_CHANGED} Correct it.") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.DML):
        raise InputError(_ONLY)
    return trees[0]


def is_ordered(query: exp.Expr) -> bool:
    """Whether a query asks for an order of its rows itself: ORDER BY at its top."""
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    return query.args.get("order") is not None


# --- types, and the kind of a value -----------------------------------------------------------------------------------

Kind = int | Literal["text"] | None
"""The digits of an exact number after its point; "text"; None for a floating number and for what is not known. MySQL
keeps account of the digits: AVG and `/` add four."""

Kinds = Mapping[str, Kind]
ADDED_BY_DIVISION = 4
MOST_DIGITS = 30
_TEXTS = {*exp.DataType.TEXT_TYPES, *exp.DataType.TEMPORAL_TYPES, exp.DType.ENUM, exp.DType.SET, exp.DType.TIME}
_WHOLE = {*exp.DataType.INTEGER_TYPES, exp.DType.BOOLEAN, exp.DType.YEAR}
_GIVING_TEXT = "concat concat_ws date_format dayname left lower lpad monthname repeat replace reverse right rpad upper"
_KIND_OF_CALL: Mapping[str, Kind] = {
    **dict.fromkeys(_GIVING_TEXT.split(), "text"),
    **dict.fromkeys(("floor", "ceil", "ceiling", "datediff", "timestampdiff", "year", "month", "day", "length"), 0),
}


def _data_type(written: str) -> exp.DataType | None:
    """A MySQL type of texts or numbers; None for anything else."""
    try:
        kind = exp.DataType.build(written, dialect="mysql")
    except (SqlglotError, ValueError):
        return None
    return kind if kind.this in _TEXTS | _WHOLE | exp.DataType.NUMERIC_TYPES else None


def kind_of_type(written: str) -> Kind:
    """The kind of the values of a column of this MySQL type."""
    kind = _data_type(written)
    if kind is None or kind.this in _TEXTS:
        return "text" if kind else None
    if kind.this is exp.DType.DECIMAL:
        return int(kind.expressions[1].name) if len(kind.expressions) > 1 else 0
    return 0 if kind.this in _WHOLE else None


def create_table(name: str, columns: Columns) -> str:
    """The statement of SQLite that makes a table with columns of MySQL's types. Raises `InputError` for other types.

    Text compares without regard to case, as in MySQL's usual collation.
    """
    made = []
    for column, written in columns:
        kind = _data_type(written)
        if kind is None:
            raise InputError(f"The column {column[:80]} is of a type that is not known here: {written[:80]}.")
        given = "TEXT" if kind.this in (exp.DType.ENUM, exp.DType.SET) else kind.sql("mysql")
        made.append(f"{_quoted(column)} {given}{' COLLATE NOCASE' if kind.this in _TEXTS else ''}")
    return f"CREATE TABLE {_quoted(name)} ({', '.join(made)})"


@lru_cache(maxsize=256)
def columns_of(create: str) -> Columns:
    """The columns of a table, as `create_table` was given them; none for a statement it cannot have made."""
    try:
        tree = sqlglot.parse_one(create, read=Writing)
    except (SqlglotError, RecursionError):
        return ()
    return tuple((one.name, one.args["kind"].sql("mysql")) for one in tree.find_all(exp.ColumnDef))


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
        return kind_of(node.selects[0].unalias(), kinds) if len(node.selects) == 1 else None
    if isinstance(node, exp.Count | exp.IntDiv | exp.Predicate | exp.Boolean):
        return 0
    if isinstance(node, exp.Substring | exp.Trim | exp.Concat | exp.GroupConcat):
        return "text"
    if isinstance(node, exp.Case):
        return _kind_of_all([*(one.args["true"] for one in node.args["ifs"]), node.args.get("default")], kinds)
    if isinstance(node, exp.If | exp.Coalesce):
        branches = [node.args["true"], node.args.get("false")] if isinstance(node, exp.If) else [node.this]
        return _kind_of_all([*branches, *node.expressions], kinds)
    if isinstance(node, exp.Anonymous):
        name, given = node.name.lower().removeprefix(PREFIX), node.expressions
        if name == "round" and given and isinstance(kind_of(given[0], kinds), int):
            return int(given[1].name) if len(given) > 1 and given[1].is_int else 0
        return kind_of(given[0], kinds) if name in ("abs", "ifnull") and given else _KIND_OF_CALL.get(name)
    return _digits(node, kinds)


def _digits(node: exp.Expr | None, kinds: Kinds) -> Kind:
    """The digits of an average and of arithmetic with exact numbers."""
    if not isinstance(node, exp.Avg | exp.Add | exp.Sub | exp.Mod | exp.Mul | exp.Div):
        return None
    left, right = kind_of(node.this, kinds), kind_of(node.expression, kinds)
    if isinstance(node, exp.Avg) or (isinstance(node, exp.Div) and isinstance(right, int)):
        right = ADDED_BY_DIVISION
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    return max(left, right) if isinstance(node, exp.Add | exp.Sub | exp.Mod) else min(MOST_DIGITS, left + right)


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


def _arranged(statement: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The same statement, changed in place, with every query in it arranged."""
    for table in statement.find_all(exp.Table):
        for key in ("hints", "db", "catalog"):
            table.set(key, None)
    common = {one.alias.lower() for one in statement.find_all(exp.CTE)}
    while isinstance(statement, exp.Subquery):
        statement = statement.this.pop()
    for union in list(statement.find_all(exp.SetOperation)):  # SQLite takes no brackets around the parts of a UNION.
        for part in (union.this, union.expression):
            if isinstance(part, exp.Subquery):
                alone = any(part.this.args.get(key) is not None for key in ("order", "limit", "offset"))
                part.replace(exp.select("*").from_(part.this.subquery("part")) if alone else part.this)
    for select in list(statement.find_all(exp.Select)):
        parent = _parent(select)
        if parent is None or isinstance(parent, exp.From | exp.Join | exp.CTE | exp.SetOperation):
            _name_and_round(select, kinds)
        _having_without_groups(select)
        if not isinstance(parent, exp.SetOperation):
            _groups_as_they_appear(select, common)
    return statement


def _base_tables(select: exp.Select, common: set[str]) -> list[exp.Table]:
    """The tables that a query reads itself, in the order in which it names them; `common` are the names of WITH."""
    sources = [select.args.get("from_"), *select.args.get("joins", ())]
    tables = [source.this for source in sources if source is not None]
    within = [join.this for table in tables for join in table.args.get("joins", ())]
    return [one for one in (*tables, *within) if isinstance(one, exp.Table) and one.name.lower() not in common]


def _parent(select: exp.Expr) -> exp.Expr | None:
    """What a query stands in, outside of its brackets."""
    parent = select.parent
    while isinstance(parent, exp.Subquery):
        parent = parent.parent
    return parent


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
    first = [exp.Min(this=exp.column(ROW, table=table.alias_or_name)) for table in _base_tables(select, common)]
    if group is not None and group.expressions and first:
        select.order_by(*first, append=True, copy=False)


# --- changes ----------------------------------------------------------------------------------------------------------

_NEW = "new_values"
_ROW_OF_TARGET = "row_of_target"


def _changed(statement: exp.Expr, kinds: Kinds, types: Mapping[str, str]) -> exp.Expr:
    """The same change as SQLite knows it; anything else as it is. Raises `InputError`."""
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
    """All new values are computed before the first one is stored: SQLite's FROM does that."""
    sources = [update.this, *(join.this for join in update.this.args.get("joins", ()))]
    assigned = [(one.this, one.expression) for one in update.expressions]
    called = {name.table.lower() for name, _ in assigned if isinstance(name, exp.Column) and name.table}
    if len(called) > 1:
        raise InputError(f"One table at a time can be updated here. {_NOTHING_CHANGED} Write two statements.")
    target = _target(update, sources, called)
    done: dict[str, exp.Expr] = {}
    for name, value in assigned:
        if len(sources) == 1:  # MySQL assigns from left to right: what follows sees the new value.
            value = value.transform(lambda node: _seen(node, done))
        done[name.name.lower()] = _stored(_default(value), types.get(name.name.lower()), kinds)
    new = [exp.alias_(value, f"value_{number}") for number, value in enumerate(done.values())]
    return exp.Update(
        this=exp.to_table(target.name, quoted=True),
        expressions=[
            exp.EQ(this=exp.column(name, quoted=True), expression=exp.column(f"value_{number}", table=_NEW))
            for number, name in enumerate(done)
        ],
        from_=exp.From(this=_rows_of(update, update.this, target, new).subquery(_NEW)),
        where=exp.Where(this=exp.column(ROW, table=target.name).eq(exp.column(_ROW_OF_TARGET, table=_NEW))),
        with_=update.args.get("with_"),
    )


def _deleted(delete: exp.Delete) -> exp.Expr:
    using = delete.args.get("using") or ()
    named = delete.args.get("tables") or ([delete.this] if using else ())
    if len(named) > 1:
        raise InputError(f"Rows of one table at a time can be deleted here. {_NOTHING_CHANGED} Write two statements.")
    first = using[0] if using else delete.this
    for more in using[1:]:
        first.append("joins", exp.Join(this=more))
    sources = [first, *(join.this for join in first.args.get("joins", ()))]
    target = _target(delete, sources, {one.name.lower() for one in named})
    rows = exp.Subquery(this=_rows_of(delete, first, target, []))
    condition = exp.In(this=exp.column(ROW, table=target.name), query=rows)
    return exp.Delete(
        this=exp.to_table(target.name, quoted=True), where=exp.Where(this=condition), with_=delete.args.get("with_")
    )


def _rows_of(change: exp.Expr, source: exp.Expr, target: exp.Table, new: list[exp.Expr]) -> exp.Select:
    """A query for the rows of `target` that a change is about, and for their new values."""
    query = exp.select(exp.column(ROW, table=target.alias_or_name).as_(_ROW_OF_TARGET), *new).from_(source.copy())
    for key in ("where", "order", "limit"):
        query.set(key, change.args.get(key))
    return query


def _target(change: exp.Expr, sources: Iterable[exp.Expr], called: set[str]) -> exp.Table:
    """The table that is changed. Raises `InputError` where there is none, or where a sub-select reads it.

    MySQL does not change a table that a sub-select of the same statement reads, unless through a derived table.
    """
    tables = [one for one in sources if isinstance(one, exp.Table)]
    found = [one for one in tables if not called or called & {one.alias.lower(), one.name.lower()}]
    if not found:
        raise InputError(f"The table that is to be changed is not among those named. {_NOTHING_CHANGED} Name it.")
    common = {one.alias.lower() for one in change.find_all(exp.CTE)}
    for select in change.find_all(exp.Select):
        reads = {table.name.lower() for table in _base_tables(select, common)}
        if found[0].name.lower() in reads and not _is_derived(select):
            raise InputError(
                f"MySQL does not change {found[0].name[:80]} while a sub-select of the statement reads it (error 1093)."
                f" {_NOTHING_CHANGED} Read it through a derived table: (SELECT … FROM (SELECT …) AS derived)."
            )
    return found[0]


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
    """What a column of a type stores of a value: whole numbers and decimals are rounded."""
    kept = kind_of_type(written) if written is not None else None
    given = kind_of(value, kinds)
    if isinstance(value, exp.Null) or not isinstance(kept, int) or (isinstance(given, int) and given <= kept):
        return value
    return _call("round", value, exp.Literal.number(kept)) if kept else _call("whole", value)


def _default(value: exp.Expr) -> exp.Expr:
    """DEFAULT is NULL: no column has another one."""
    word = value.this if isinstance(value, exp.Column) else value
    plain = isinstance(word, exp.Var) or (isinstance(word, exp.Identifier) and not word.quoted)
    return exp.Null() if plain and word.name.upper() == "DEFAULT" else value


# --- expressions: functions, casts, intervals, and comparisons of unlike values ---------------------------------------


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


def _collated(value: exp.Expr, collation: str) -> exp.Expr:
    return exp.Collate(this=exp.paren(value), expression=exp.var(collation))


def _called(node: Any, kinds: Kinds) -> exp.Expr:
    name, given = node.name.upper(), node.expressions
    if name in ("DATE_ADD", "DATE_SUB") and len(given) == 2 and isinstance(given[1], exp.Interval):
        return _moved(given[0], given[1], name.lower())
    if name == "TIMESTAMPDIFF" and given:
        given = [exp.Literal.string(given[0].name.upper()), *given[1:]]
    return _call(name.lower(), *given) if PREFIX + name.lower() in NAMES else node


def _moved(value: exp.Expr, by: exp.Interval, function: str) -> exp.Expr:
    unit = by.args.get("unit")
    if not isinstance(unit, exp.Var):
        raise InputError("An interval of this unit is not available here. Nothing was changed; write it in days.")
    return _call(function, value, by.this, exp.Literal.string(unit.name.upper()))


def _sum(node: Any, kinds: Kinds) -> exp.Expr:
    if isinstance(node.expression, exp.Interval):
        return _moved(node.this, node.expression, "date_sub" if isinstance(node, exp.Sub) else "date_add")
    return node  # type: ignore[no-any-return]


_CASTS = {
    **dict.fromkeys((exp.DType.BIGINT, exp.DType.UBIGINT, exp.DType.INT, exp.DType.UINT), "SIGNED"),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE), "DOUBLE"),
    **dict.fromkeys((exp.DType.CHAR, exp.DType.NCHAR, exp.DType.VARCHAR, exp.DType.TEXT), "CHAR"),
    exp.DType.DECIMAL: "DECIMAL",
}


def _cast(node: Any, kinds: Kinds) -> exp.Expr:
    kind, value = node.to.this, node.this
    if kind is exp.DType.BINARY:
        return _collated(value, "BINARY")
    if kind in _CASTS:
        sizes = [one.name for one in node.to.expressions]
        size = sizes[-1] if len(sizes) > (kind is exp.DType.DECIMAL) else 0
        return _call("cast", value, exp.Literal.string(_CASTS[kind]), exp.Literal.number(size))
    return _call("date", value) if kind is exp.DType.DATE else node


def _function(name: str, *keys: str) -> Callable[[Any, Kinds], exp.Expr]:
    """The rule that calls a function with what stands under `keys`, as far as it is there."""
    return lambda node, kinds: _call(name, *(node.args[key] for key in keys if node.args.get(key)))


def _compared(node: Any, kinds: Kinds) -> exp.Expr:
    if isinstance(node.parent, exp.Update) and node.arg_key == "expressions":
        return node  # type: ignore[no-any-return]  # An assignment.
    for side, other in (("this", "expression"), ("expression", "this")):
        node.set(side, _beside(node.args[side], node.args[other], kinds))
    return node  # type: ignore[no-any-return]


def _beside(one: exp.Expr, other: exp.Expr, kinds: Kinds) -> exp.Expr:
    """A value as it is compared with another: text with a number as a number, computed text without regard to case."""
    if kind_of(one, kinds) != "text":
        return one
    if isinstance(kind_of(other, kinds), int):
        return _call("number", one)
    # A column, and a value with a collation, say themselves whether case counts.
    plain = isinstance(one, exp.Column) or isinstance(other, exp.Column | exp.Collate)
    return one if plain else _collated(one, "NOCASE")


def _listed(node: Any, kinds: Kinds) -> exp.Expr:
    """IN; where the values are of another sort than what is looked for, as several comparisons."""
    kind, items = kind_of(node.this, kinds), node.expressions
    if items and kind is not None and {type(kind_of(one, kinds)) for one in items} != {type(kind)}:
        each = [exp.EQ(this=node.this.copy(), expression=one) for one in items]
        return exp.paren(exp.or_(*(_compared(one, kinds) for one in each)))
    if kind == "text" and not isinstance(node.this, exp.Column):
        node.set("this", _collated(node.this, "NOCASE"))
    return node  # type: ignore[no-any-return]


def _between(node: Any, kinds: Kinds) -> exp.Expr:
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"])
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"])
    return exp.paren(exp.and_(_compared(low, kinds), _compared(high, kinds)))


def _like(node: Any, kinds: Kinds) -> exp.Expr:
    """A backslash takes a sign of the pattern literally."""
    if isinstance(node.parent, exp.Escape) or "\\" not in node.expression.name:
        return node  # type: ignore[no-any-return]
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


_RULES: Mapping[type[exp.Expr], Callable[[Any, Kinds], exp.Expr]] = {
    exp.Anonymous: _called,
    **dict.fromkeys((exp.Add, exp.Sub), _sum),
    exp.Cast: _cast,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ), _compared),
    exp.In: _listed,
    exp.Between: _between,
    exp.Like: _like,
    exp.Mod: _function("mod", "this", "expression"),
    exp.Concat: lambda node, kinds: _call("concat", *node.expressions),
    exp.Substring: _function("substring", "this", "start", "length"),
    exp.StrPosition: _function("locate", "substr", "this"),
    exp.RegexpLike: _function("regexp", "this", "expression"),
    **dict.fromkeys((exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp), _function("now")),
    exp.Extract: lambda node, kinds: _call(node.this.name.lower(), node.expression),
}
"""What each of these expressions is written as; what stands within it has been rewritten before."""
