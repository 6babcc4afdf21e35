"""CSV for people: whatever the text, no cell is a formula, and nothing else about it changes."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memrl_core.exchange.safe_files import csv_bytes, csv_of, file_name, for_excel

FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
nasty = st.text(alphabet=st.sampled_from("=+-@＝＋－＠\t\r\n ,;\"'a1|\u00a0\u2003"), max_size=12) | st.text(max_size=12)


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@given(st.lists(st.tuples(nasty, nasty), max_size=6))
@example([("=1+1", "  =1+1"), ("\t=1", "\r=1"), ('"=1', "a\r\n=1"), ("@SUM(A1)", "-2+3")])
def test_no_text_read_back_begins_as_a_formula(rows: list[tuple[str, str]]) -> None:
    found = cells(csv_of([{"a": one, "b": two} for one, two in rows], ["a", "b"]))
    assert len(found) == len(rows) + 1
    for given_row, read in zip(rows, found[1:], strict=True):
        for text, cell in zip(given_row, read, strict=True):
            assert not cell.startswith(FORMULA)
            assert not cell.lstrip().startswith(tuple("=+-@＝＋－＠"))
            assert cell in (text, f"'{text}")


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_numbers_stay_numbers(real: float, whole: int) -> None:
    text = csv_of([{"real": real, "whole": whole}], ["real", "whole"], exact=True)
    assert '"' not in text.splitlines()[1]
    assert [float(cells(text)[1][0]), int(cells(text)[1][1])] == [real, whole]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (0.4316489999999999, "0.431649"),
        (0.1 + 0.2, "0.3"),
        (np.float64(-0.1234567), "-0.123457"),
        (np.float32(0.7), "0.7"),
        (1234567.891, "1234568.0"),
        (float("nan"), '""'),
        (None, '""'),
        (7, "7"),
        ("＝1+1", '"\'＝1+1"'),
    ],
)
def test_numbers_are_numbers_of_six_digits(value: Any, cell: str) -> None:
    assert csv_of([{"a": value}], ["a"]).splitlines()[1] == cell


def test_a_file_is_named_after_what_it_holds() -> None:
    assert file_name("my bank", "run/1", "step-3", "q: before & after", kind="csv") == (
        "my-bank-run-1-step-3-q-before-after.csv"
    )
    assert file_name("../..", None, "", kind="csv") == "memrl.csv"
    assert len(file_name(*["x" * 500] * 9, kind="csv")) < 200


@pytest.mark.parametrize("text", ["plain", "1-2", "a=b", "", "'quoted", 'say "hi"', "two\nlines", "ä, 中; 🙂", "5"])
def test_harmless_text_is_left_as_it_is(text: str) -> None:
    assert cells(csv_of([{"a": text}], ["a"]))[1:] == [[text]]


def test_what_a_row_lacks_is_empty_and_what_nobody_asked_for_is_left_out() -> None:
    data = csv_bytes([{"=a": None, "c": "x"}], ["=a", "b"])
    assert cells(data.decode()) == [["'=a", "b"], ["", ""]]


def test_a_csv_file_has_no_mark_before_its_first_column_unless_it_is_for_excel() -> None:
    data = csv_bytes([{"über": "ä"}], ["über"])
    assert data == '"über"\r\n"ä"\r\n'.encode()
    assert for_excel(data) == b"\xef\xbb\xbf" + data
