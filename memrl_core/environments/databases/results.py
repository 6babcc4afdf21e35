"""Whether two results, or the contents of two databases, are the same; and if not, why, in words.

Two integers are equal when they are the same. An integer and a float, or two floats, are equal within 1e-6, absolutely
or relative to the larger: the same sum in another order may differ in its last digits. NULL equals NULL and nothing
else, and text is never a number. Names of columns do not count.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import sqlglot
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from sqlglot import exp

from memrl_core.environments.databases.mysql import Reading, parsed
from memrl_core.environments.databases.sandbox import Ran
from memrl_core.environments.databases.statements import Dialect

TOLERANCE = 1e-6

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Tied:
    """Rows that an ORDER BY leaves level: an answer holds `places` of them next to one another, in any order."""

    rows: Rows
    places: int


def differs(expected_rows: Rows, came_rows: Rows, ordered: bool) -> str:
    """Why the rows that came are not those expected; "" when they are.

    Unless `ordered`, each row that came must find a partner of its own among those expected, in any order.
    """
    if message := _other_shape(expected_rows, came_rows):
        return message
    if not ordered:
        missing, surplus = _without_partner(expected_rows, came_rows)
        return f"came {_shown(surplus)}, expected {_shown(missing)}" if missing is not None else ""
    for number, (expected, came) in enumerate(zip(expected_rows, came_rows, strict=True), start=1):
        if not _same_row(expected, came):
            if _without_partner(expected_rows, came_rows) == (None, None):
                return "the rows are right, their order is not"
            return f"row {number}: came {_shown(came)}, expected {_shown(expected)}"
    return ""


def differs_beyond_ties(expected_rows: Rows, ties: Sequence[Tied], came_rows: Rows) -> str:
    """Why the rows that came are not in the order of `ties`; "" when they are. `expected_rows` are one such answer."""
    if message := _other_shape(expected_rows, came_rows):
        return message
    at = 0
    for tied in ties:
        places = slice(at, at + tied.places)
        at += tied.places
        if _without_partner(tied.rows, came_rows[places])[1] is None:
            continue
        if _without_partner(expected_rows, came_rows) == (None, None):
            return "the rows are right, their order is not"
        found = differs(expected_rows[places], came_rows[places], ordered=True)
        return f"rows {places.start + 1} to {at}: {found}" if tied.places > 1 else f"row {at}: {found}"
    return "" if at == len(came_rows) else f"{len(came_rows):,} rows came, {at:,} were expected"


def content_differs(expected: Mapping[str, Rows], came: Mapping[str, Rows]) -> str:
    """Why the tables that came are not as expected; "" when they are.

    Both map a table's name to its rows, whose order does not count; nor do further tables that came, nor the case of
    names.
    """
    found = {name.lower(): rows for name, rows in came.items()}
    for name, rows in expected.items():
        if name.lower() not in found:
            return f"the table {name[:80]} is missing"
        if message := differs(rows, found[name.lower()], ordered=False):
            return f"table {name[:80]}: {message}"
    return ""


def other_count(expected: int, came: int, what: str) -> str:
    """That another number of rows or columns (`what`) came than expected; "" when it is the same."""
    if expected == came:
        return ""
    were = "was" if expected == 1 else "were"
    return f"{came:,} {what}{'' if came == 1 else 's'} came, {expected:,} {were} expected"


def _other_shape(expected: Rows, came: Rows) -> str:
    message = other_count(len(expected), len(came), "row")
    pairs = zip(expected, came, strict=False)
    return message or next(filter(None, (other_count(len(one), len(other), "column") for one, other in pairs)), "")


def _same_row(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if not _is_number(one) or not _is_number(other):
        return type(one) is type(other) and bool(one == other)
    if one == other:
        return True
    if isinstance(one, int) and isinstance(other, int):
        return False
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _without_partner(expected: Rows, came: Rows) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
    """An expected row and one that came, when the rows of both cannot all be paired; all have as many columns.

    "Equal within a tolerance" does not carry over from one pair to the next, so that pairing off greedily, or sorting
    by rounded numbers, can miss a pairing that exists: this looks for a largest one.
    """
    if Counter(map(_key, expected)) == Counter(map(_key, came)):
        return None, None
    groups: dict[Hashable, tuple[list[Sequence[Any]], list[Sequence[Any]]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((expected, came)):
        for row in rows:
            groups[_what_must_be_equal(row)][side].append(row)
    missing: Sequence[Any] | None = None
    surplus: Sequence[Any] | None = None
    for wanted, rows in groups.values():
        partner = _pairing(_possible_partners(wanted, rows), len(rows))
        missing = next((one for one, n in zip(wanted, partner, strict=True) if n < 0), missing)
        surplus = next((row for n, row in enumerate(rows) if n not in partner), surplus)
    return missing, surplus


def _key(row: Sequence[Any]) -> Hashable:
    """Equal for rows that are exactly equal."""
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else (_is_number(v), v) for v in row)


def _what_must_be_equal(row: Sequence[Any]) -> Hashable:
    """Equal for rows that can differ in numbers alone."""
    return tuple("a number" if _is_number(value) else (value,) for value in row)


def _possible_partners(wanted: Rows, rows: Rows) -> list[list[int]]:
    """For each wanted row the positions of the equal ones among `rows`, all of which are of one group.

    Looked for only where the numbers of one column, the one with the most different numbers, are near.
    """
    numeric = [n for n, value in enumerate(wanted[0] if wanted else ()) if _is_number(value)]
    column = max(numeric, key=lambda n: len({row[n] for row in rows}), default=None)
    if column is None:
        return [list(range(len(rows))) for _ in wanted]
    order = sorted(range(len(rows)), key=lambda n: _place(rows[n][column]))
    places = [_place(rows[n][column]) for n in order]
    found: dict[Hashable, list[int]] = {}
    for key, one in {_key(one): one for one in wanted}.items():
        place = _place(one[column])
        reach = 0.0 if math.isinf(place) else 2 * TOLERANCE * max(1.0, abs(place))
        near = order[bisect_left(places, place - reach) : bisect_right(places, place + reach)]
        found[key] = [n for n in near if _same_row(one, rows[n])]
    return [found[_key(one)] for one in wanted]


def _place(number: float) -> float:
    return -math.inf if math.isnan(number) else float(number)


def _pairing(possible: Sequence[Sequence[int]], count: int) -> list[int]:
    """A largest pairing: the partner (0 … count - 1) of each, -1 for those who get none."""
    if not possible or not count:
        return [-1] * len(possible)
    others = np.fromiter(chain.from_iterable(possible), np.int32)
    starts = np.cumsum([0, *map(len, possible)])
    graph = csr_array((np.ones(len(others), np.int8), others, starts), shape=(len(possible), count))
    partners: list[int] = maximum_bipartite_matching(graph, perm_type="column").tolist()
    return partners


def _shown(row: Sequence[Any] | None) -> str:
    return repr(tuple(row or ()))[:300]


RANK = "rank_in_order"


def tied_rows(statement: str, dialect: Dialect, answer: Ran, run: Callable[[str], Ran]) -> tuple[Tied, ...]:
    """The ties of a query in their order, with those that its LIMIT cuts off; () where they are unknown.

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
    keys = [_rank_key(one, query, within) for one in order.expressions]
    rank = exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=exp.Order(expressions=keys))
    query.append("expressions", exp.alias_(rank, RANK))
    return query.sql(dialect=grammar, comments=False), first


def _rank_key(given: exp.Ordered, query: exp.Select, within: bool) -> exp.Ordered:
    key = given.copy()
    shown = {one.alias: one.unalias() for one in query.expressions if one.alias}
    if key.this.is_int:
        at = int(key.this.name) - 1
        if any(one.is_star for one in query.expressions[: at + 1]) or not 0 <= at < len(query.expressions):
            raise ValueError("its order names a column by a number that cannot be read")
        key.set("this", query.expressions[at].unalias().copy())
        return key
    columns = key.find_all(exp.Column) if within else [key.this]
    for column in list(columns):
        if isinstance(column, exp.Column) and not column.table and column.name in shown:
            column.replace(exp.paren(shown[column.name].copy()))
    return key
