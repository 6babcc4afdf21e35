"""Expressions of MySQL as SQLite means the same: functions, casts, intervals, and text beside numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from memrl_core.environments.databases.mysql_comparisons import RULES as COMPARISONS
from memrl_core.environments.databases.mysql_functions import NAMES, PREFIX
from memrl_core.environments.databases.mysql_queries import call
from memrl_core.environments.databases.mysql_values import MOMENTS, Kinds, kind_of
from memrl_core.errors import InputError

_MOVING = frozenset(("DATE_ADD", "DATE_SUB", "ADDDATE", "SUBDATE"))


def rewritten(statement: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The same statement with every expression in it as SQLite means it; innermost first. Raises `InputError`."""
    for node in reversed(list(statement.walk(bfs=True))):
        rule = _RULES.get(type(node))
        if rule is not None:
            written = rule(node, kinds)
            if written is not node:
                node.replace(written)
    return statement


def _called(node: Any, kinds: Kinds) -> exp.Expr:
    name, given = node.name.upper(), node.expressions
    if name in _MOVING and len(given) == 2:
        return _moved(given[0], given[1], backwards=name in ("DATE_SUB", "SUBDATE"))
    if name in ("TIMESTAMPDIFF", "TIMESTAMPADD") and given:
        given = [_text(given[0].name.upper().removeprefix("SQL_TSI_")), *given[1:]]
    known = f"{PREFIX}{name.lower()}"
    return call(known, *given) if known in NAMES else node


def _moved(value: exp.Expr, by: exp.Expr, *, backwards: bool) -> exp.Expr:
    unit = by.args.get("unit") if isinstance(by, exp.Interval) else exp.var("DAY")
    count = by.this if isinstance(by, exp.Interval) else by
    if not isinstance(unit, exp.Var):
        raise InputError("An interval of this unit is not available here. Nothing was changed; write it in days.")
    return call(f"{PREFIX}date_{'sub' if backwards else 'add'}", value, count, _text(unit.name.upper()))


def _sum(node: Any, kinds: Kinds) -> exp.Expr:
    backwards = isinstance(node, exp.Sub)
    if isinstance(node.expression, exp.Interval):
        return _moved(node.this, node.expression, backwards=backwards)
    if isinstance(node.this, exp.Interval) and not backwards:
        return _moved(node.expression, node.this, backwards=False)
    for side in ("this", "expression"):
        if kind_of(node.args[side], kinds) in MOMENTS:
            node.set(side, call(f"{PREFIX}moment_number", node.args[side]))
    return node  # type: ignore[no-any-return]


def _cast(node: Any, kinds: Kinds) -> exp.Expr:
    kind, value = node.to.this, node.this
    digits = [one.name for one in node.to.expressions]
    if kind in (exp.DType.BIGINT, exp.DType.UBIGINT, exp.DType.INT, exp.DType.UINT):
        return call(f"{PREFIX}cast", value, _text("SIGNED"))
    if kind is exp.DType.DECIMAL:
        return call(f"{PREFIX}cast", value, _text("DECIMAL"), exp.Literal.number(digits[1] if len(digits) > 1 else 0))
    if kind in (exp.DType.FLOAT, exp.DType.DOUBLE):
        return call(f"{PREFIX}cast", value, _text("DOUBLE"))
    if kind in (exp.DType.CHAR, exp.DType.NCHAR, exp.DType.VARCHAR, exp.DType.TEXT):
        return call(f"{PREFIX}cast", value, _text("CHAR"), exp.Literal.number(digits[0] if digits else 0))
    if kind is exp.DType.BINARY:
        return exp.Collate(this=exp.paren(value), expression=exp.var("BINARY"))
    moments = {"DATE": "date", "DATETIME": "datetime", "TIMESTAMP": "datetime", "TIME": "time"}
    name = moments.get(kind.value)
    return call(f"{PREFIX}{name}", value) if name else node


def _collated(node: Any, kinds: Kinds) -> exp.Expr:
    """Of MySQL's collations it matters here whether case counts."""
    without_case = node.expression.name.lower().endswith("_ci")
    return exp.Collate(this=node.this, expression=exp.var("NOCASE" if without_case else "BINARY"))


def _group_concat(node: Any, kinds: Kinds) -> exp.Expr:
    inner, keys = node.this, []
    if isinstance(inner, exp.Order):
        inner, keys = inner.this, inner.expressions
    distinct = isinstance(inner, exp.Distinct)
    values = inner.expressions if distinct else [inner]
    value = values[0] if len(values) == 1 else call(f"{PREFIX}concat", *values)
    directions = "".join("d" if key.args.get("desc") else "a" for key in keys)
    separator = node.args.get("separator") or _text(",")
    given = [separator, exp.Literal.number(int(distinct)), _text(directions), value, *(key.this for key in keys)]
    return call(f"{PREFIX}group_concat", *given)


def _count(node: Any, kinds: Kinds) -> exp.Expr:
    several = isinstance(node.this, exp.Distinct) and len(node.this.expressions) > 1
    return call(f"{PREFIX}count_distinct", *node.this.expressions) if several else node


def _either(node: Any, kinds: Kinds) -> exp.Expr:
    one, other = (exp.not_(exp.paren(side)) for side in (node.this, node.expression))
    return exp.paren(exp.NEQ(this=exp.paren(one), expression=exp.paren(other)))


def _bits(node: Any, kinds: Kinds) -> exp.Expr:
    """`^`: the bits of either, without those of both."""
    of_either = exp.BitwiseOr(this=node.this, expression=node.expression)
    of_both = exp.BitwiseAnd(this=node.this.copy(), expression=node.expression.copy())
    return exp.paren(exp.Sub(this=exp.paren(of_either), expression=exp.paren(of_both)))


def _text(value: str) -> exp.Literal:
    return exp.Literal.string(value)


def _function(name: str, *keys: str) -> Callable[[Any, Kinds], exp.Expr]:
    """The rule that calls a function with what stands under `keys`, as far as it is there."""
    return lambda node, kinds: call(f"{PREFIX}{name}", *(node.args[key] for key in keys if node.args.get(key)))


_RULES: Mapping[type[exp.Expr], Callable[[Any, Kinds], exp.Expr]] = {
    exp.Anonymous: _called,
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Cast: _cast,
    exp.Collate: _collated,
    **COMPARISONS,
    exp.GroupConcat: _group_concat,
    exp.Count: _count,
    exp.Xor: _either,
    exp.BitwiseXor: _bits,
    exp.Mod: _function("mod", "this", "expression"),
    exp.Concat: lambda node, kinds: call(f"{PREFIX}concat", *node.expressions),
    exp.Substring: _function("substring", "this", "start", "length"),
    exp.StrPosition: _function("locate", "substr", "this"),
    exp.RegexpLike: _function("regexp", "this", "expression"),
    exp.CurrentDate: _function("curdate"),
    exp.CurrentTime: _function("curtime"),
    exp.CurrentTimestamp: _function("now"),
    exp.Localtime: _function("now"),
    exp.Localtimestamp: _function("now"),
    exp.Extract: lambda node, kinds: call(f"{PREFIX}extract", _text(node.this.name.upper()), node.expression),
    exp.Trim: lambda node, kinds: call(
        f"{PREFIX}trim", node.this, node.expression or _text(" "), _text(node.args.get("position") or "BOTH")
    ),
}
