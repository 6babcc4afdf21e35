"""Checkers of answers: what passes, what fails, and that nothing a model says can hold them up."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from string import ascii_uppercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments import child
from memrl_core.environments.own_tasks import answers
from memrl_core.environments.own_tasks.answers import MOST_CHARACTERS, chosen, judge, number_alone, number_of
from memrl_core.errors import EnvironmentFailed, InputError
from tests.builders import numbers

CITIES = ["Paris", "New York", "B"]


def right(answer: str, checker: str, reference: Any, **data: Any) -> bool:
    return judge(answer, {"checker": checker, "reference": reference, **data}).success


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Paris", True),
        ("  pARIS\n", True),
        ("\uff30\uff41\uff52\uff49\uff53", True),
        ("Paris.", False),
        ("Par is", False),
        ("", False),
        (" \n\t", False),
    ],
)
def test_exact_forgives_case_white_space_and_width_alone(answer: str, expected: bool) -> None:
    assert right(answer, "exact", "Paris") is expected


def test_exact_takes_runs_of_white_space_as_one_and_accents_in_either_spelling() -> None:
    assert right("new\n\t york", "exact", "New York")
    assert right("cafe\u0301", "exact", "CAF\u00c9")
    assert right("STRASSE", "exact", "Straße")


@pytest.mark.parametrize("sign", ["\u200b", "\ufeff", "\u00ad", "\u2060", "\u200e"])
def test_signs_that_cannot_be_seen_make_no_difference(sign: str) -> None:
    assert right(f"{sign}Pa{sign}ris{sign}", "exact", "Paris") and right("Paris", "exact", f"Par{sign}is")
    assert right(sign * 1000 + "Paris", "exact", "Paris")
    assert right(f"{sign}A", "choice", "Paris", choices=CITIES)
    assert not right(sign, "exact", "Paris")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", "42"),
        ("-3.50", "-3.5"),
        ("\u22123", "-3"),
        ("1,234,567.5 people", "1234567.5"),
        ("$12", "12"),
        ("about 25%.", "25"),
        ("6.02e23", "602000000000000000000000"),
        (".5", "0.5"),
        ("3/4", "0.75"),
        ("first 3, then 5", "5"),
        ("Answer: 7, since 3 + 4 = 7 and not 8", "7"),
        ("answer: 1 ... no, ANSWER : 2 (of 9)", "2"),
        ("x5 H2O GPT4", None),
        ("1,23", None),
        ("1.2.3", None),
        ("5-3", "3"),
        ("1 000", None),
        ("answer: 12\u202f345\u00a0678.5", None),
        ("in 2020 100 people", "100"),
        ("1_000", None),
        ("x_5", None),
        ("_5_", "5"),
        ("0x10", None),
        ("-0xff", None),
        ("2x4", None),
        ("5km", "5"),
        ("answer: 1,234 5678", "1234"),
        ("1\u200b000", "1000"),
        ("answer: none of the 5", "5"),
        ("5/0", None),
        ("1e99999999999999999999999", None),
        ("no number", None),
    ],
)
def test_the_number_of_an_answer(text: str, number: str | None) -> None:
    assert number_of(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("1e3", True),
        ("-1,000 %", True),
        ("€ 5.", True),
        ("3/4", True),
        ("5 m", False),
        ("1 2", False),
        ("%", False),
        ("1 000", False),
    ],
)
def test_a_reference_is_a_number_alone(text: str, alone: bool) -> None:
    assert (number_alone(text) is not None) is alone


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9))
def test_a_number_is_found_however_it_is_written(number: Decimal) -> None:
    for written in (f"{number}", f"{number:,}", f"It is {number:,}.", f"2 and 3, answer: {number} (not 4)"):
        assert number_of(written) == number


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(0, 1000), st.booleans())
def test_a_tolerance_is_absolute_or_a_share_of_the_reference(
    came: int, reference: int, tolerance: int, share: bool
) -> None:
    allowed = Fraction(tolerance, 100) * abs(reference) if share else Fraction(tolerance)
    given_as = f"{tolerance}%" if share else tolerance
    assert right(str(came), "numeric", reference, tolerance=given_as) is (abs(came - reference) <= allowed)


def test_without_a_tolerance_numbers_are_equal_to_the_last_digit() -> None:
    assert right("0.10", "numeric", 0.1)
    assert not right("9007199254740993", "numeric", "9007199254740992")
    assert not right("0.1000000000000000000000000001", "numeric", "0.1")


@pytest.mark.parametrize("tolerance", ["-1", -0.5, "one", "nan", "%", "inf%", True, [1]])
def test_a_tolerance_that_is_none_is_reported(tolerance: Any) -> None:
    with pytest.raises(InputError, match="tolerance"):
        right("1", "numeric", 1, tolerance=tolerance)


def test_a_pattern_is_searched_for_anywhere_and_minds_case() -> None:
    assert right("it is 2030-01-01, sure", "regex", r"\d{4}-\d\d-\d\d")
    assert not right("PARIS", "regex", "Paris")
    assert right("PARIS", "regex", "(?i)paris")


def test_a_catastrophic_pattern_is_stopped_and_the_answer_fails_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "SECONDS", 0.1)
    verdict = judge("a" * 5000 + "b", {"checker": "regex", "reference": "(a|aa)+$"})
    assert not verdict.success
    assert "0.1 s" in verdict.why


@pytest.mark.parametrize("pattern", ["(", "a{1000000000}", "(" * 5000 + ")" * 5000])
def test_what_is_no_pattern_or_too_large_a_one_is_a_fault(pattern: str) -> None:
    assert answers.search(pattern, "").fault
    assert answers.search("a+", "caat").found


def test_a_process_that_ends_is_a_failed_answer_and_one_that_cannot_start_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "_idle", {})
    monkeypatch.setattr(answers, "SECONDS", 60.0)
    monkeypatch.setattr(answers, "SLACK", -59.8)
    assert answers.search("(a|aa)+$", "a" * 5000 + "b").stopped
    monkeypatch.setattr(answers, "CHILD", "memrl_core.no_such_module")
    with pytest.raises(EnvironmentFailed):
        answers.search("a", "a")


@pytest.mark.parametrize(
    ("answer", "position"),
    [
        ("paris", 0),
        ("a", 0),
        ("(A)", 0),
        ("A.", 0),
        ("a) Paris", 0),
        ("B", 2),
        ("b)", 1),
        ("B: new  york", 1),
        ("A - Paris", 0),
        ("A: New York", None),
        ("A Paris", None),
        ("D", None),
        ("Paris is it", None),
        ("", None),
    ],
)
def test_a_choice_is_named_by_its_text_before_its_letter(answer: str, position: int | None) -> None:
    assert chosen(answer, CITIES) == position


@given(st.integers(2, 26), st.data())
def test_every_choice_can_be_named_by_its_letter_and_its_text(count: int, data: st.DataObject) -> None:
    choices = [f"choice number {n}" for n in range(count)]
    picked, expected = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    for answer in (ascii_uppercase[picked], choices[picked], f"{ascii_uppercase[picked].lower()}) {choices[picked]}"):
        for reference in (ascii_uppercase[expected], choices[expected]):
            assert right(answer, "choice", reference, choices=choices) is (picked == expected)


@pytest.mark.parametrize("filling", ["x", "e\u0301\u0316", "1,111,", "answer: "])
@pytest.mark.parametrize(
    ("checker", "reference"), [("exact", "e\u0301"), ("numeric", 7), ("regex", "(?:x+x+)+y"), ("choice", "A")]
)
def test_ten_megabytes_are_judged_by_their_beginning(
    monkeypatch: pytest.MonkeyPatch, checker: str, reference: Any, filling: str
) -> None:
    monkeypatch.setattr(answers, "SECONDS", 0.1)
    answer = filling * (10_000_000 // len(filling))
    verdict = judge(answer, {"checker": checker, "reference": reference, "choices": CITIES})
    assert not verdict.success
    assert {f"{MOST_CHARACTERS:,}", f"{len(answer):,}"} <= set(numbers(verdict.sentence))
