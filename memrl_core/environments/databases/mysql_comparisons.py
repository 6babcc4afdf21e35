"""Comparisons of MySQL as SQLite means the same: text beside numbers, dates beside text, and exact numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from memrl_core.environments.databases.mysql_functions import PREFIX
from memrl_core.environments.databases.mysql_queries import call
from memrl_core.environments.databases.mysql_values import MOMENTS, Kind, Kinds, kind_of
from memrl_core.errors import InputError

_VALUE, _OTHERS = "compared", "compared_rows"


def without_case(value: exp.Expr) -> exp.Expr:
    """A text whose case does not count."""
    return exp.Collate(this=exp.paren(value), expression=exp.var("NOCASE"))


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
        return call(f"{PREFIX}{'day_or_moment' if other == 'date' else 'datetime'}", one)
    if kind == "date" and isinstance(other, int):
        return call(f"{PREFIX}moment_number", one)
    if kind == "text" and isinstance(other, int):
        return call(f"{PREFIX}number", one)
    if kind == "text" and not plain and not isinstance(one, exp.Column):
        return without_case(one)
    return _exact(one, kind)


def _exact(value: exp.Expr, kind: Kind) -> exp.Expr:
    """Sums and products of decimals are exact in MySQL; what it keeps of a quotient is more than it shows."""
    known = isinstance(value, exp.Column | exp.Literal | exp.Neg | exp.Subquery)
    if not isinstance(kind, int) or not kind or known or value.find(exp.Div, exp.Avg, exp.Query) is not None:
        return value
    return call(f"{PREFIX}round", value, exp.Literal.number(kind))


def _listed(node: Any, kinds: Kinds) -> exp.Expr:
    kind, items = kind_of(node.this, kinds), node.expressions
    if kind == "text":
        numbers = [one for one in items if isinstance(kind_of(one, kinds), int)]
        texts = [one for one in items if one not in numbers]
        number = exp.In(this=call(f"{PREFIX}number", node.this.copy()), expressions=numbers)
        if numbers and not texts:
            return number
        if not isinstance(node.this, exp.Column):
            node.set("this", without_case(node.this))
        if numbers:
            node.set("expressions", texts)
            return exp.paren(exp.or_(node.copy(), number))
    elif kind is not None and items:
        node.set("expressions", [_beside(one, kind, kinds) for one in items])
        if kind == "date" and all(isinstance(kind_of(one, kinds), int) for one in items):
            node.set("this", call(f"{PREFIX}moment_number", node.this))
        node.set("this", _exact(node.this, kind))
    return node  # type: ignore[no-any-return]


def _between(node: Any, kinds: Kinds) -> exp.Expr:
    kind, low = kind_of(node.this, kinds), kind_of(node.args["low"], kinds)
    if kind is not None and kind != "text":
        for side in ("low", "high"):
            node.set(side, _beside(node.args[side], kind, kinds))
    if low is not None and low != "text":
        node.set("this", _beside(node.this, low, kinds))
    return node  # type: ignore[no-any-return]


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
        found = call(f"{PREFIX}like_binary", node.this, node.expression)
        return exp.not_(found) if node.args.get("negate") else found
    if "\\" not in node.expression.name:
        return node  # type: ignore[no-any-return]
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _ordered(node: Any, kinds: Kinds) -> exp.Expr:
    if kind_of(node.this, kinds) == "text" and not isinstance(node.this, exp.Column | exp.Literal):
        node.set("this", without_case(node.this))
    return node  # type: ignore[no-any-return]


_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)

RULES: Mapping[type[exp.Expr], Callable[[Any, Kinds], exp.Expr]] = {
    **dict.fromkeys(_COMPARED, _compared),
    exp.In: _listed,
    exp.Between: _between,
    exp.Like: _like,
    exp.Ordered: _ordered,
}
"""What each of these expressions is written as; what stands within it has been rewritten before."""
