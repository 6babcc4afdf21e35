"""Statements that nearly do what another one does: it is read as a tree, and one thing in it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from sqlglot import exp

from memrl_core.environments.databases.mysql.translate import Reading, parsed

Change = Callable[[], object]


def near_misses(statement: str, count: int, seed: int) -> Iterator[str]:
    """At most `count` statements of MySQL that differ from one in one thing each, of as many sorts as there are.

    They are made as they are asked for; the same seed gives the same ones. Some may give what the statement gives, or
    fail: they are to be tried. Raises `InputError` for a statement that cannot be read.
    """
    tree = parsed(statement)
    rng = np.random.default_rng(seed)
    places = [(sort, number) for sort, rule in _SORTS.items() for number in range(sum(1 for _ in rule(tree)))]
    by_sort: dict[str, list[int]] = {}
    for at in rng.permutation(len(places)):
        sort, number = places[at]
        by_sort.setdefault(sort, []).append(number)
    made = {tree.sql(dialect=Reading, comments=False)}
    for numbers in zip_longest(*by_sort.values()):
        for sort, number in zip(by_sort, numbers, strict=True):
            if number is None or (one := _changed(tree, sort, number)) in made:
                continue
            if len(made) > count:
                return
            made.add(one)
            yield one


def normal(statement: str) -> str:
    """A statement as it is written here: near misses look the same. Raises `InputError`."""
    return parsed(statement).sql(dialect=Reading, comments=False)


def _changed(tree: exp.Expr, sort: str, number: int) -> str:
    copy = tree.copy()
    for position, change in enumerate(_SORTS[sort](copy)):
        if position == number:
            change()
            break
    return copy.sql(dialect=Reading, comments=False)


def _conditions(tree: exp.Expr) -> Iterator[Change]:
    """One side of an AND or OR is dropped."""
    for node in tree.find_all(exp.And, exp.Or):
        for kept in (node.this, node.expression):
            yield partial(node.replace, kept)


def _connectives(tree: exp.Expr) -> Iterator[Change]:
    """AND and OR change places."""
    for node in tree.find_all(exp.And, exp.Or):
        other = exp.Or if isinstance(node, exp.And) else exp.And
        yield partial(_replaced, node, other)


def _comparisons(tree: exp.Expr) -> Iterator[Change]:
    for node in tree.find_all(*_OTHER_COMPARISONS):
        if node.find_ancestor(exp.Where, exp.Having, exp.Case, exp.If) is not None:
            yield partial(_replaced, node, _OTHER_COMPARISONS[type(node)])


def _aggregates(tree: exp.Expr) -> Iterator[Change]:
    for node in tree.find_all(*_OTHER_AGGREGATES):
        if not isinstance(node.this, exp.Distinct):
            yield partial(_replaced, node, _OTHER_AGGREGATES[type(node)])


def _directions(tree: exp.Expr) -> Iterator[Change]:
    for node in tree.find_all(exp.Ordered):
        yield partial(node.set, "desc", not node.args.get("desc"))


def _limits(tree: exp.Expr) -> Iterator[Change]:
    """LIMIT and OFFSET by one more and one less."""
    for node in tree.find_all(exp.Limit, exp.Offset):
        given = node.expression
        if given.is_int:
            for other in (int(given.name) + 1, int(given.name) - 1):
                if other > 0:
                    yield partial(given.replace, exp.Literal.number(other))


def _clauses(tree: exp.Expr) -> Iterator[Change]:
    """A whole clause is dropped."""
    for node in tree.find_all(exp.Select, exp.Update, exp.Delete):
        for key in ("where", "having", "distinct", "order", "limit", "offset"):
            if node.args.get(key) is not None:
                yield partial(node.set, key, None)


def _numbers(tree: exp.Expr) -> Iterator[Change]:
    """A number is one larger or smaller."""
    for node in tree.find_all(exp.Literal):
        if node.is_int and not isinstance(node.parent, exp.Limit | exp.Offset | exp.DataTypeParam | exp.Anonymous):
            for other in (int(node.name) + 1, int(node.name) - 1):
                yield partial(node.replace, exp.convert(other))


def _columns(tree: exp.Expr) -> Iterator[Change]:
    """A column of the result is left out, or two change places."""
    shown = tree.expressions if isinstance(tree, exp.Select) else []
    if len(shown) > 1:
        for number, node in enumerate(shown):
            yield node.pop
            if number:
                yield partial(_swapped, shown[number - 1], node)


def _values(tree: exp.Expr) -> Iterator[Change]:
    """A value that is inserted is left out, or two change places."""
    if not isinstance(tree, exp.Insert) or not isinstance(tree.this, exp.Schema):
        return
    names = tree.this.expressions
    rows = tree.expression.expressions if isinstance(tree.expression, exp.Values) else [tree.expression]
    if len(names) < 2 or not all(len(row.expressions) == len(names) for row in rows):
        return
    for number in range(len(names)):
        yield partial(_without, number, [tree.this, *rows])
        if number:
            for row in rows:
                one, other = row.expressions[number - 1], row.expressions[number]
                yield partial(_swapped, one, other)


def _assignments(tree: exp.Expr) -> Iterator[Change]:
    """One of several assignments is left out."""
    if isinstance(tree, exp.Update) and len(tree.expressions) > 1:
        for node in tree.expressions:
            yield node.pop


def _arithmetic(tree: exp.Expr) -> Iterator[Change]:
    for node in tree.find_all(*_OTHER_ARITHMETIC):
        yield partial(_replaced, node, _OTHER_ARITHMETIC[type(node)])


def _replaced(node: Any, other: type[exp.Expr]) -> None:
    kept = {key: node.args.get(key) for key in ("this", "expression") if key in node.args}
    node.replace(other(**kept))


def _swapped(one: exp.Expr, other: exp.Expr) -> None:
    first, second = one.copy(), other.copy()
    one.replace(second)
    other.replace(first)


def _without(number: int, lists: list[exp.Expr]) -> None:
    for one in lists:
        one.expressions[number].pop()


_OTHER_COMPARISONS: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.GTE,
    exp.GTE: exp.GT,
    exp.LT: exp.LTE,
    exp.LTE: exp.LT,
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}
_OTHER_AGGREGATES: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.Sum: exp.Avg,
    exp.Avg: exp.Sum,
    exp.Max: exp.Min,
    exp.Min: exp.Max,
}
_OTHER_ARITHMETIC: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.Add: exp.Sub,
    exp.Sub: exp.Add,
    exp.Mul: exp.Div,
    exp.Div: exp.Mul,
}
_SORTS: Mapping[str, Callable[[exp.Expr], Iterator[Change]]] = {
    "conditions": _conditions,
    "connectives": _connectives,
    "comparisons": _comparisons,
    "aggregates": _aggregates,
    "directions": _directions,
    "limits": _limits,
    "clauses": _clauses,
    "numbers": _numbers,
    "columns": _columns,
    "values": _values,
    "assignments": _assignments,
    "arithmetic": _arithmetic,
}
"""Sorts of changes; each rule gives the changes of its sort that a tree allows, in the order of the tree."""
