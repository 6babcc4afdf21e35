"""Agreement of raters, held against the textbook formulas in plain Python."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.people import agreement as module
from memrl_core.analysis.people.agreement import agreement, disagreements, judgement
from tests.builders import numbers

Ratings = dict[str, dict[str, float]]
REWARDS = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])
TWO = st.lists(st.fixed_dictionaries({"ada": REWARDS, "bob": REWARDS}), min_size=1, max_size=12)
ONE_STEP = st.dictionaries(st.sampled_from(["ada", "bob", "cy", "dee"]), REWARDS, max_size=4)
MANY = st.lists(ONE_STEP, max_size=10)


@pytest.fixture(autouse=True)
def _no_warning_escapes() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def steps(given: list[dict[str, float]]) -> Ratings:
    return {f"s{number}": one for number, one in enumerate(given)}


def both(given: list[tuple[float, float]]) -> Ratings:
    return steps([{"ada": one, "bob": other} for one, other in given])


def side(reward: float) -> int:
    return (reward > 0) - (reward < 0)


def kappa_by_definition(given: list[tuple[float, float]]) -> float | None:
    """(p_o − p_e) / (1 − p_e), with p_e from how often each rater uses each category."""
    n = len(given)
    ones, others = (Counter(side(pair[which]) for pair in given) for which in (0, 1))
    observed = sum(side(one) == side(other) for one, other in given) / n
    expected = sum(ones[category] * others[category] for category in (-1, 0, 1)) / n**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def alpha_by_definition(given: list[dict[str, float]]) -> float | None:
    """1 − D_o / D_e: squared distances within steps, weighted by 1 / (m − 1), and over all pairable values."""
    units = [list(one.values()) for one in given if len(one) > 1]
    values = [reward for unit in units for reward in unit]
    if len(set(values)) < 2:
        return None
    within = sum(sum((a - b) ** 2 for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units)
    overall = sum((a - b) ** 2 for a, b in permutations(values, 2))
    return 1 - (within / len(values)) / (overall / (len(values) * (len(values) - 1)))


def nearly(value: float | None) -> object:
    return None if value is None else pytest.approx(value, abs=1e-9)


@given(MANY)
def test_alpha_is_that_of_the_textbook_for_any_number_of_raters(given: list[dict[str, float]]) -> None:
    assert agreement(steps(given), 0.0).alpha == nearly(alpha_by_definition(given))


@given(MANY | TWO)
def test_agreement_counts_every_pair_of_ratings_of_one_step(given: list[dict[str, float]]) -> None:
    pairs = [side(a) == side(b) for one in given for a, b in combinations(one.values(), 2)]
    found = agreement(steps(given), 0.0)
    assert found.share == nearly(sum(pairs) / len(pairs) if pairs else None)
    assert found.steps_rated_by_two_or_more == sum(len(one) > 1 for one in given)
    assert found.raters == tuple(sorted({rater for one in given for rater in one}))
    table = {(row.first, row.second): row for row in found.pairs}
    assert list(table) == sorted({pair for one in given for pair in combinations(sorted(one), 2)})
    for (first, second), row in table.items():
        met = [(one[first], one[second]) for one in given if {first, second} <= set(one)]
        assert (row.shared_steps, row.same) == (len(met), sum(side(a) == side(b) for a, b in met))
        assert row.kappa == nearly(kappa_by_definition(met))
    assert found.kappa == (next(iter(table.values())).kappa if len(table) == 1 else None)


def test_without_a_second_rating_nothing_is_computed() -> None:
    found = agreement({"s1": {"ada": 1.0}, "s2": {"bob": -1.0}, "s3": {}}, 0.0)
    assert (found.raters, found.steps_rated_by_two_or_more) == (("ada", "bob"), 0)
    assert (found.share, found.kappa, found.alpha) == (None, None, None)
    assert found.note


@pytest.mark.parametrize(
    ("ratings", "missing", "note"),
    [
        pytest.param(both([(0.5, 1.0), (1.0, 1.0)]), ["kappa"], ["κ", "ada and bob"], id="one judgement throughout"),
        pytest.param({**both([(1.0, 1.0)]), "s1": {"ada": -1.0}}, ["kappa", "alpha"], ["α"], id="one reward"),
        pytest.param({"s1": {"ada": 1.0, "bob": -1.0, "cy": 1.0}}, ["kappa"], [], id="three raters"),
    ],
)
def test_what_cannot_be_computed_is_none_with_a_note(ratings: Ratings, missing: list[str], note: list[str]) -> None:
    found = agreement(ratings, 0.0)
    assert [name for name in ("kappa", "alpha") if getattr(found, name) is None] == missing
    assert all(part in found.note for part in note)


def test_a_rounding_error_is_no_variation() -> None:
    assert agreement(both([(0.1 + 0.2, 0.3)]), 0.0).alpha is None
    assert judgement(0.1 + 0.2, 0.3) == 0


def test_a_rater_who_shares_no_step_does_not_stand_in_the_way_of_kappa() -> None:
    given = [(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)]
    found = agreement({**both(given), "alone": {"cy": 1.0}}, 0.0)
    assert found.raters == ("ada", "bob", "cy")
    assert found.kappa == nearly(kappa_by_definition(given))


def test_very_large_rewards_have_an_alpha() -> None:
    given = [(1e300, 1e300), (-1e300, -1e300), (1e300, -1e300)]
    small = [(one / 1e300, other / 1e300) for one, other in given]
    assert agreement(both(given), 0.0).alpha == nearly(agreement(both(small), 0.0).alpha)


def test_alpha_is_left_out_when_its_tables_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 8)
    assert agreement(both([(1.0, 0.0), (0.0, 1.0)]), 0.5).alpha is not None
    found = agreement(both([(1.0, 0.0), (0.5, 1.0)]), 0.5)
    assert found.alpha is None
    assert numbers(found.note) == ["3", "2"]


def test_judgements_are_read_against_the_midpoint() -> None:
    assert [judgement(reward, 0.5) for reward in (0.4, 0.5, 0.6)] == [-1, 0, 1]
    assert agreement(both([(0.4, 0.6), (0.6, 1.0)]), 0.5).pairs[0].same == 1


def test_good_against_bad_comes_before_a_wide_range() -> None:
    ratings: Ratings = {
        "alike": {"ada": 0.5, "bob": 0.6},
        "wide": {"ada": 0.1, "bob": 1.0},
        "narrow": {"ada": 0.1, "bob": -0.1},
        "alone": {"ada": -1.0},
        "far": {"ada": 1.0, "bob": -1.0, "cy": 0.0},
        "neutral": {"ada": 0.0, "bob": -1.0},
        "least": {"ada": 0.2, "bob": 0.7},
        "too little": {"ada": 0.2, "bob": 0.69},
    }
    found = disagreements(ratings, 0.0, 0.5)
    assert [one.step_id for one in found] == ["far", "narrow", "neutral", "wide", "least"]
    assert [one.opposite for one in found] == [True, True, False, False, False]
    assert [one.range for one in found] == pytest.approx([2.0, 0.2, 1.0, 0.9, 0.5])
    assert found[0].ratings == ratings["far"]
