"""Which rows an ORDER BY leaves level: any of them may stand at their places in an answer.

The ranks are those that the database itself gives by the same keys (DENSE_RANK), so that what it takes for equal, such
as texts of another case in MySQL, is a tie here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

import sqlglot
from sqlglot import exp

from memrl_core.environments.databases.results import Tied, differs_beyond_ties
from memrl_core.environments.databases.sandbox import Ran
from memrl_core.environments.databases.statements import Dialect
from memrl_core.environments.mysql.translate import Reading, parsed

RANK = "rank_in_order"


def tied_rows(statement: str, dialect: Dialect, answer: Ran, run: Callable[[str], Ran]) -> tuple[Tied, ...]:
    """The ties of a query in their order, with those that its LIMIT cuts off; () where they cannot be told.

    `answer` is what the query gave, and `run` runs another statement on the same tables. A query whose ranks cannot be
    had (it is no plain SELECT or UNION, or has too many rows without its LIMIT) is judged row by row.
    """
    for within in (False, True):
        try:
            ranked, first = _with_ranks(statement, dialect, within)
        except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
            return ()
        came = run(ranked)
        if came.error or came.cut:
            continue
        ties = _ties(came.rows, first, len(answer.rows))
        if not differs_beyond_ties(answer.rows, ties, answer.rows):
            return ties
    return ()


def _ties(rows: Sequence[Sequence[object]], first: int, count: int) -> tuple[Tied, ...]:
    """The ties of rows whose last value is their rank, as far as they reach into the places from `first` on."""
    found, start = [], 0
    for _, level in groupby(sorted(rows, key=itemgetter(-1)), key=itemgetter(-1)):
        members = tuple(tuple(row[:-1]) for row in level)
        places = min(start + len(members), first + count) - max(start, first)
        start += len(members)
        if places > 0:
            found.append(Tied(members, places))
    return tuple(found)


def _with_ranks(statement: str, dialect: Dialect, within: bool) -> tuple[str, int]:
    """The query without LIMIT, with the rank of each row as its last column; and its OFFSET.

    A key that is the name or the number of a column shown stands for what that column holds; with `within` also inside
    of a longer key. Raises `ValueError`, and what sqlglot raises.
    """
    grammar = Reading if dialect == "mysql" else "sqlite"
    query = parsed(statement) if dialect == "mysql" else sqlglot.parse_one(statement, read=grammar)
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    order, offset = query.args.get("order"), query.args.get("offset")
    if not isinstance(query, exp.Select | exp.SetOperation) or order is None:
        raise ValueError("it is no query with an order of its own")
    first = int(offset.expression.name) if offset is not None else 0
    for key in ("order", "limit", "offset"):
        query.set(key, None)
    if isinstance(query, exp.SetOperation):
        query = exp.select("*").from_(query.subquery("united"))
    keys = [_key(one, query, within) for one in order.expressions]
    rank = exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=exp.Order(expressions=keys))
    query.append("expressions", exp.alias_(rank, RANK))
    return query.sql(dialect=grammar, comments=False), first


def _key(given: exp.Ordered, query: exp.Select, within: bool) -> exp.Ordered:
    key = given.copy()
    shown = {one.alias: one.unalias() for one in query.expressions if one.alias}
    if key.this.is_int:
        at = int(key.this.name) - 1
        if any(one.is_star for one in query.expressions[: at + 1]) or not 0 <= at < len(query.expressions):
            raise ValueError("its order names a column by a number that cannot be told")
        key.set("this", query.expressions[at].unalias().copy())
        return key
    columns = key.find_all(exp.Column) if within else [key.this]
    for column in list(columns):
        if isinstance(column, exp.Column) and not column.table and column.name in shown:
            column.replace(exp.paren(shown[column.name].copy()))
    return key
