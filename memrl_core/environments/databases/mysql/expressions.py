"""Expressions of MySQL as SQLite means the same: functions, casts, intervals, and comparisons of unlike values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from memrl_core.environments.databases.mysql.functions import NAMES, PREFIX
from memrl_core.environments.databases.mysql.kinds import MOMENTS, Kind, Kinds, call, kind_of
from memrl_core.errors import InputError

_VALUE, _OTHERS = "compared", "compared_rows"
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

_RULES: Mapping[type[exp.Expr], Callable[[Any, Kinds], exp.Expr]] = {
    exp.Anonymous: _called,
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Cast: _cast,
    exp.Collate: _collated,
    **dict.fromkeys(_COMPARED, _compared),
    exp.In: _listed,
    exp.Between: _between,
    exp.Like: _like,
    exp.Ordered: _ordered,
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
"""What each of these expressions is written as; what stands within it has been rewritten before."""
