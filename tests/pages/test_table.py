"""Tables on the screen: numbers are written in one way in a column, and stay numbers."""

from __future__ import annotations

import pandas as pd
import pytest
from pandas.io.formats.style import Styler

from memrl_core.numerals import percent, signed
from pages.shared.picture import MOST_STYLED, with_one_precision, written


def shown(table: object) -> list[list[str]]:
    assert isinstance(table, Styler)
    return [line.split("|") for line in table.hide(axis="index").to_string(delimiter="|").strip().split("\n")[1:]]


def test_a_column_has_one_precision_one_minus_sign_and_is_sorted_as_numbers() -> None:
    table = written(
        [{"q": -0.3, "share": 5 / 6, "n": 2000}, {"q": None, "share": 0.6, "n": 3}], q=signed, share=percent
    )
    assert shown(table) == [["−0.300", "83.3 %", "2,000"], ["–", "60.0 %", "3"]]
    assert table.data["q"].iloc[0] == -0.3


def test_whole_numbers_stay_whole_where_some_are_missing() -> None:
    assert shown(written([{"rank": 1, "q": 0.5}, {"rank": None, "q": 1.0}], q=signed)) == [
        ["1", "+0.500"],
        ["–", "+1.000"],
    ]


def test_the_table_of_a_chart_has_four_decimals_where_there_are_any() -> None:
    table = with_one_precision(pd.DataFrame({"whole": [1.0, None], "part": [-0.5, 2000.25], "text": ["a", "b"]}))
    assert shown(table) == [["1", "−0.5000", "a"], ["–", "2,000.2500", "b"]]


@pytest.mark.parametrize("rows", [0, MOST_STYLED + 1])
def test_what_has_nothing_to_write_or_is_very_long_is_left_as_it_is(rows: int) -> None:
    assert isinstance(
        written(pd.DataFrame({"q": [0.5] * rows}).head(rows), **({"q": signed} if rows else {})), pd.DataFrame
    )


def test_no_text_of_a_table_turns_its_letters_round() -> None:
    table = written([{"memory": "\u202egnp.exe", "q": 1.0}, {"memory": "\u2066a\u2069\u200fb", "q": 2.0}])
    assert list(getattr(table, "data", table)["memory"]) == ["gnp.exe", "ab"]
