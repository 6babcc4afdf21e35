"""Results are compared as a person would: by their rows, with a tolerance for sums, in order only where it counts."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments.databases.judging import content_differs, differs

STEP = 4e-7
"""Less than half the tolerance: cells some steps apart are near or not, and nearness does not carry over."""

cells = st.one_of(
    st.none(),
    st.integers(-2, 2),
    st.integers(-6, 6).map(lambda n: n * STEP),
    st.sampled_from(["", "1", "a", b"1", math.inf, -math.inf, math.nan, 10**15, 10**15 + 1, 1e15, True]),
)


def some_rows(most: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.integers(1, 2).flatmap(lambda width: st.lists(st.tuples(*[cells] * width), max_size=most))


def is_same(one: Any, other: Any) -> bool:
    """Oracle for two cells."""
    numbers = [isinstance(value, int | float) for value in (one, other)]
    if not any(numbers):
        return type(one) is type(other) and bool(one == other)
    if not all(numbers):
        return False
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    if one == other or (isinstance(one, int) and isinstance(other, int)):
        return bool(one == other)
    if math.isinf(one) or math.isinf(other):
        return False
    return abs(one - other) <= max(1e-6, 1e-6 * max(abs(one), abs(other)))


def are_same(expected: list[tuple[Any, ...]], came: list[tuple[Any, ...]], ordered: bool) -> bool:
    """Oracle: try every order."""
    if len(expected) != len(came) or any(len(a) != len(b) for a in expected for b in came):
        return False
    return any(
        all(is_same(x, y) for a, b in zip(expected, order, strict=True) for x, y in zip(a, b, strict=True))
        for order in ([came] if ordered else permutations(came))
    )


@given(some_rows(4), some_rows(4), st.booleans())
def test_it_agrees_with_trying_every_order(expected: Any, came: Any, ordered: bool) -> None:
    assert (differs(expected, came, ordered) == "") == are_same(expected, came, ordered)


@given(some_rows(5), st.data())
def test_it_agrees_where_the_other_side_is_nearly_the_same(expected: Any, data: st.DataObject) -> None:
    def nudged(cell: Any) -> Any:
        return cell + data.draw(st.integers(-3, 3)) * STEP if isinstance(cell, int | float) else cell

    came = [tuple(map(nudged, row)) for row in data.draw(st.permutations(expected))]
    assert (differs(expected, came, False) == "") == are_same(expected, came, False)


SAME = [
    (3, 3.0),
    (True, 1),
    (0.1 + 0.2, 0.3),
    (1e9, 1e9 + 100),
    (math.inf, math.inf),
    (math.nan, math.nan),
    (None, None),
]
OTHER = [
    (None, 0), (None, ""), (None, math.nan), (3, "3"), ("a", "A"), ("a", b"a"), (1_000_000, 1_000_001), (0.0, 2e-6),
    (math.inf, -math.inf), (math.inf, 1e308),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "same"), [*((*p, True) for p in SAME), *((*p, False) for p in OTHER)])
def test_these_cells_are_the_same_or_not(one: Any, other: Any, same: bool) -> None:
    assert (differs([(one,)], [(other,)], ordered=False) == "") is same
    assert (differs([(other,)], [(one,)], ordered=True) == "") is same


def test_rows_pair_up_even_where_the_nearest_partner_is_taken() -> None:
    assert differs([(0.0,), (1e-6,)], [(0.0,), (-1e-6,)], ordered=False) == ""


def test_a_thousand_sums_in_another_order_pair_up() -> None:
    expected = [(n % 7, n / 10, "a") for n in range(1_000)]
    came = [(group, value + 1e-9, text) for group, value, text in reversed(expected)]
    assert differs(expected, came, ordered=False) == ""
    came[500] = (0, 12345.6, "a")
    assert differs(expected, came, ordered=False) == "came (0, 12345.6, 'a'), expected (2, 49.9, 'a')"


@pytest.mark.parametrize(
    ("expected", "came", "ordered", "named"),
    [
        ([(1,)] * 5, [(1,)] * 3, False, ["3 rows", "5"]),
        ([(1,)], [], True, ["0 rows", "1"]),
        ([(1, 2)], [(1,)], False, ["1 column", "2"]),
        ([(1,), ("Ann", 4)], [(1,), ("Ann", 3)], True, ["row 2", "('Ann', 3)", "('Ann', 4)"]),
        ([("Ann", 4)], [("Ann", 3)], False, ["('Ann', 3)", "('Ann', 4)"]),
        ([(1,), (2,)], [(2,), (1,)], True, ["order"]),
    ],
)
def test_the_reason_names_what_differs(expected: Any, came: Any, ordered: bool, named: list[str]) -> None:
    assert all(part in differs(expected, came, ordered) for part in named)


def test_tables_are_the_same_whatever_the_order_of_their_rows_and_the_case_of_their_names() -> None:
    assert content_differs({"a": [(1,), (2,)]}, {"A": [[2], [1]]}) == ""


def test_a_table_that_is_missing_is_a_difference_and_one_too_many_is_none() -> None:
    assert content_differs({"a": []}, {"b": []}).startswith("the table a ")
    assert content_differs({"a": []}, {"a": [], "b": [(1,)]}) == ""


def test_the_reason_names_the_table() -> None:
    assert content_differs({"a": [(1,)], "b": [(1,)]}, {"a": [(1,)], "b": [(2,)]}).startswith("table b: ")
