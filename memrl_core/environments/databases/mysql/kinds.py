"""What kind of value an expression of MySQL has, as far as its text and the types of the columns tell.

An exact number has a fixed count of digits after the point, which MySQL keeps account of: AVG and `/` add four.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from sqlglot import exp

from memrl_core.environments.databases.mysql.functions import PREFIX

Columns = tuple[tuple[str, str], ...]
"""Name and MySQL type of every column, in the order of the table."""

Kind = int | Literal["text", "date", "datetime"] | None
"""The digits of an exact number after its point; "text"; "date", and "datetime" for one with a time; None for a
floating number and for what is not known."""

Kinds = Mapping[str, Kind]

MOMENTS: tuple[Kind, ...] = ("date", "datetime")

ADDED_BY_DIVISION = 4
MOST_DIGITS = 30

_WHOLE = {"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "BOOL", "BOOLEAN", "YEAR"}
_DECIMAL = {"DECIMAL", "NUMERIC", "DEC"}
_FLOATING = {"FLOAT", "DOUBLE", "REAL"}
_TEXT = {"CHAR", "VARCHAR", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT"}
_OF_TIME = {"DATE", "DATETIME", "TIMESTAMP", "TIME"}
_TYPE = re.compile(r"([A-Z]+)\s*(?:\(\s*\d+\s*(?:,\s*(\d+)\s*)?\))?(?:\s+UNSIGNED)?")
_CHOICE = re.compile(r"(ENUM|SET)\s*\(\s*'[^']*'(\s*,\s*'[^']*')*\s*\)")

_GIVING_TEXT = """
    concat concat_ws date_format dayname elt format group_concat lcase left lower lpad mid monthname repeat replace
    reverse right rpad substring_index trim ucase upper
"""
_TEXT_FUNCTIONS = frozenset(_GIVING_TEXT.split())


def column_type(written: str) -> str:
    """The type with which SQLite makes a column of this MySQL type; "" for one that is not known here.

    Text compares without regard to case, as in MySQL's usual collation.
    """
    given = written.strip().upper()
    found = _TYPE.fullmatch(given)
    if _CHOICE.fullmatch(given):
        return "TEXT COLLATE NOCASE"
    if found is None or found.group(1) not in _WHOLE | _DECIMAL | _FLOATING | _TEXT | _OF_TIME:
        return ""
    return f"{given} COLLATE NOCASE" if found.group(1) in _TEXT else given


def kind_of_type(written: str) -> Kind:
    """The kind of the values of a column of this MySQL type."""
    given = written.strip().upper()
    found = _TYPE.fullmatch(given)
    if found is None:
        return "text" if _CHOICE.fullmatch(given) else None
    if found.group(1) in _DECIMAL:
        return int(found.group(2) or 0)
    if found.group(1) in ("DATE", "DATETIME", "TIMESTAMP"):
        return "date" if found.group(1) == "DATE" else "datetime"
    return "text" if found.group(1) in _TEXT else 0 if found.group(1) in _WHOLE else None


def kinds_in(statement: exp.Expr, columns: Columns) -> Kinds:
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
    return _digits(node, kinds)


def _digits(node: exp.Expr | None, kinds: Kinds) -> Kind:
    if isinstance(node, exp.Avg):
        return _sum_of(kind_of(node.this, kinds), ADDED_BY_DIVISION)
    if isinstance(node, exp.Case | exp.If | exp.Coalesce):
        return _of_branches(node, kinds)
    if not isinstance(node, exp.Binary):
        return None
    left, right = kind_of(node.this, kinds), kind_of(node.expression, kinds)
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    if isinstance(node, exp.Add | exp.Sub | exp.Mod):
        return max(left, right)
    if isinstance(node, exp.Mul):
        return _sum_of(left, right)
    return _sum_of(left, ADDED_BY_DIVISION) if isinstance(node, exp.Div) else None


def _kind_of_call(node: exp.Anonymous, kinds: Kinds) -> Kind:
    name, given = node.name.lower().removeprefix(PREFIX), node.expressions
    if name in _TEXT_FUNCTIONS:
        return "text"
    if name in ("round", "truncate") and given:
        digits = given[1] if len(given) > 1 else exp.Literal.number(0)
        exact = isinstance(kind_of(given[0], kinds), int) and digits.is_int
        return max(0, int(digits.name)) if exact and isinstance(digits, exp.Literal) else None
    if name in ("date", "curdate", "last_day"):
        return "date"
    if name in ("floor", "ceil", "ceiling", "datediff", "timestampdiff", "year", "month", "day", "length"):
        return 0
    return kind_of(given[0], kinds) if name in ("abs", "ifnull", "nullif", "any_value") and given else None


def _of_branches(node: exp.Expr, kinds: Kinds) -> Kind:
    if isinstance(node, exp.Case):
        branches = [*(one.args.get("true") for one in node.args["ifs"]), node.args.get("default")]
    elif isinstance(node, exp.If):
        branches = [node.args.get("true"), node.args.get("false")]
    else:
        branches = [node.this, *node.expressions]
    found = [kind_of(one, kinds) for one in branches if one is not None and not isinstance(one, exp.Null)]
    numbers = [one for one in found if isinstance(one, int)]
    if found and len(numbers) == len(found):
        return max(numbers)
    return "text" if found and all(one == "text" for one in found) else None


def _sum_of(one: Kind, other: int) -> Kind:
    return min(MOST_DIGITS, one + other) if isinstance(one, int) else None


def call(name: str, *given: exp.Expr) -> exp.Anonymous:
    """A call of a function by its name; the arguments are taken as they are."""
    return exp.Anonymous(this=name, expressions=list(given))
