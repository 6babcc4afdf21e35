"""A rating becomes the reward that its scale says, or a sentence."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.errors import InputError, SettingsError
from memrl_core.learning.scales import (
    Criterion,
    RatingScales,
    graded_reward,
    mapping_words,
    options,
    pairwise_rewards,
    rubric_reward,
    stars_reward,
    thumbs_reward,
)

PLAIN = RatingScales()
NAN = float("nan")
ENDS = st.tuples(st.floats(-10, 10), st.floats(-10, 10)).filter(lambda ends: ends[0] < ends[1])
MARK = st.integers(1, 5)
WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=8)


def a_rubric(weights: list[float]) -> RatingScales:
    return RatingScales(criteria=tuple(Criterion(name=f"c{n}", weight=w) for n, w in enumerate(weights)))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"scale": "smiles"}, "scale"),
        ({"thumbs_up": 10.5}, "thumbs_up"),
        ({"worse": NAN}, "worse"),
        ({"thumbs_up": -0.5, "thumbs_down": 0.5}, "must not fall from thumbs_down to thumbs_up"),
        ({"worse": 1, "better": 0}, "must not fall from worse to tie to better"),
        ({"worse": 0.5, "tie": 0}, "must not fall from worse to tie to better"),
        ({"stars": [0, 1, 2, 3]}, "stars"),
        ({"stars": [0, 1, 2, 3, 11]}, "stars.4"),
        ({"stars": [0, 1, 0.5, 3, 4]}, "must not fall from 1 to 5 stars"),
        ({"criteria": []}, "criteria"),
        ({"criteria": [{"name": f"c{n}"} for n in range(9)]}, "criteria"),
        ({"criteria": [{"name": "clear"}, {"name": " clear "}]}, "two criteria have the same name"),
        ({"criteria": [{"name": "  "}]}, "criteria.0.name"),
        ({"criteria": [{"name": "a\nb"}]}, "one line"),
        ({"criteria": [{"name": "x" * 61}]}, "criteria.0.name"),
        ({"criteria": [{"name": "clear", "weight": 0}]}, "criteria.0.weight"),
        ({"criteria": [{"name": "clear", "weight": float("inf")}]}, "criteria.0.weight"),
        ({"ratings_wanted": 0}, "ratings_wanted"),
        ({"ratings_wanted": 21}, "ratings_wanted"),
        ({"thumb": 1}, "thumb"),
    ],
)
def test_a_wrong_value_is_named_in_one_sentence(values: dict[str, Any], names: str) -> None:
    with pytest.raises(SettingsError, match="not changed") as refused:
        RatingScales.of(values)
    assert names in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_field_has_a_title_and_says_what_it_does() -> None:
    for model in (RatingScales, Criterion):
        for name, field in model.model_fields.items():
            assert field.title, name
            assert field.description, name


def test_scales_stay_the_same_through_json() -> None:
    scales = RatingScales.of({"scale": "stars", "stars": [-1, 0, 0, 0.5, 2], "criteria": [{"name": "kind"}]})
    assert RatingScales.of(json.loads(scales.model_dump_json())) == scales


@given(ENDS)
def test_every_scale_without_rewards_of_its_own_runs_from_r_minus_to_r_plus(ends: tuple[float, float]) -> None:
    low, high = ends
    worst, best = ({c.name: mark for c in PLAIN.criteria} for mark in (1, 5))
    assert (thumbs_reward(PLAIN, False, *ends), thumbs_reward(PLAIN, True, *ends)) == ends
    assert (graded_reward(-1, *ends), graded_reward(1, *ends)) == ends
    assert (stars_reward(PLAIN, 1, *ends), stars_reward(PLAIN, 5, *ends)) == ends
    assert (rubric_reward(PLAIN, worst, *ends), rubric_reward(PLAIN, best, *ends)) == ends
    assert pairwise_rewards(PLAIN, "first", *ends) == (high, low)
    assert pairwise_rewards(PLAIN, "second", *ends) == (low, high)
    assert pairwise_rewards(PLAIN, "tie", *ends) == (pytest.approx((low + high) / 2),) * 2


def test_rewards_of_its_own_replace_those_of_the_run() -> None:
    up, down = RatingScales(thumbs_up=0.5), RatingScales(thumbs_down=0)
    assert [thumbs_reward(scales, thumb, -1, 1) for scales in (up, down) for thumb in (True, False)] == [0.5, -1, 1, 0]
    own = RatingScales(stars=(-3, -1, 0, 0, 2), better=2, worse=0.5, tie=1)
    assert [stars_reward(own, stars, -1, 1) for stars in range(1, 6)] == [-3, -1, 0, 0, 2]
    assert pairwise_rewards(own, "second", -1, 1) == (0.5, 2) and pairwise_rewards(own, "tie", -1, 1) == (1, 1)
    assert pairwise_rewards(RatingScales(worse=0), "tie", -1, 1) == (0.5, 0.5)


def test_the_better_of_two_failures_and_the_worse_of_two_successes_count_as_equal_unless_the_scale_says_more() -> None:
    assert pairwise_rewards(PLAIN, "first", -1, 1, "failure") == (0, -1)
    assert pairwise_rewards(PLAIN, "second", 0, 1, "success") == (0.5, 1)
    assert pairwise_rewards(RatingScales(better=1), "first", -1, 1, "failure") == (1, -1)
    assert pairwise_rewards(RatingScales(worse=-1), "first", -1, 1, "success") == (1, -1)


@given(st.floats(-1, 1), ENDS)
def test_a_grade_is_laid_in_a_straight_line(value: float, ends: tuple[float, float]) -> None:
    low, high = ends
    assert graded_reward(value, *ends) == pytest.approx(low + (value + 1) / 2 * (high - low), abs=1e-12)


@given(ENDS)
def test_a_key_gives_the_same_reward_on_every_scale(ends: tuple[float, float]) -> None:
    low, high = ends
    for scale, keys in (("thumbs", (1, 5)), ("graded", range(1, 6)), ("stars", range(1, 6))):
        given = {option.key: option.reward for option in options(PLAIN, scale, *ends)}
        assert given == pytest.approx({key: low + (key - 1) / 4 * (high - low) for key in keys}, abs=1e-12)


@given(WEIGHTS, st.lists(MARK, min_size=8, max_size=8), ENDS)
def test_a_rubric_gives_the_weighted_mean_of_its_marks(
    weights: list[float], marks: list[int], ends: tuple[float, float]
) -> None:
    low, high = ends
    given_marks = marks[: len(weights)]
    mean = math.fsum(w * m for w, m in zip(weights, given_marks, strict=True)) / math.fsum(weights)
    found = rubric_reward(a_rubric(weights), {f"c{n}": mark for n, mark in enumerate(given_marks)}, *ends)
    assert found == pytest.approx(low + (mean - 1) / 4 * (high - low), abs=1e-9)


@pytest.mark.parametrize("value", [-1.01, 1.01, NAN, float("inf"), -float("inf")])
def test_a_grade_off_the_scale_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="−1"):
        graded_reward(value, -1, 1)


@pytest.mark.parametrize("stars", [0, 6, 2.5, NAN, None])
def test_another_number_of_stars_is_refused(stars: Any) -> None:
    for scales in (PLAIN, RatingScales(stars=(0, 0, 0, 0, 0))):
        with pytest.raises(InputError, match="1, 2, 3, 4 or 5"):
            stars_reward(scales, stars, -1, 1)


def test_no_thumb_and_an_unknown_choice_are_refused() -> None:
    with pytest.raises(InputError, match="Nothing was saved"):
        thumbs_reward(PLAIN, None, -1, 1)
    with pytest.raises(InputError, match="“third”"):
        pairwise_rewards(PLAIN, "third", -1, 1)


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ({"correct": 5, "clear": 5}, "for complete"),
        ({}, "complete, clear"),
        ({"correct": 5, "complete": 5, "clear": 5, "kind": 5}, "“kind”"),
        ({"correct": 0, "complete": 5, "clear": 5}, "correct"),
        ({"correct": 5, "complete": 5.5, "clear": 5}, "5.5"),
        ({"correct": 5, "complete": None, "clear": 5}, "None"),
    ],
)
def test_an_unfinished_or_wrong_rubric_is_refused(marks: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match="Nothing was saved") as refused:
        rubric_reward(PLAIN, marks, -1, 1)
    assert says in str(refused.value)


def test_the_line_beside_the_buttons_says_what_each_rating_is_worth() -> None:
    assert mapping_words(PLAIN, "thumbs", -1, 1) == "bad → −1.00 · good → +1.00"
    assert mapping_words(PLAIN, "graded", -1, 1) == "−1 … 1 → −1.00 … +1.00"
    assert mapping_words(PLAIN, "stars", -1, 1) == "1 → −1.00 · 2 → −0.50 · 3 → 0.00 · 4 → +0.50 · 5 → +1.00"
    assert mapping_words(PLAIN, "pairwise", -1, 1) == "worse → −1.00 · equal → 0.00 · better → +1.00"
    assert mapping_words(PLAIN, "rubric", -1, 1) == "R = (2·correct + complete + clear) / 4, 1 … 5 → −1.00 … +1.00"


def test_the_line_shows_the_rewards_that_were_set() -> None:
    scales = RatingScales(thumbs_up=0.25, tie=0.5, stars=(-2, 0, 0, 0, 3), criteria=(Criterion(name="kind", weight=3),))
    assert mapping_words(scales, "thumbs", 0, 1) == "bad → 0.00 · good → +0.25"
    assert mapping_words(scales, "stars", 0, 1) == "1 → −2.00 · 2 → 0.00 · 3 → 0.00 · 4 → 0.00 · 5 → +3.00"
    assert mapping_words(scales, "pairwise", 0, 1) == "worse → 0.00 · equal → +0.50 · better → +1.00"
    assert mapping_words(scales, "rubric", -0.001, 1) == "R = kind, 1 … 5 → 0.00 … +1.00"
