"""How measurements are taken: in turns, beside a reference, with aims and the memory that they took."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measuring import Aim, Row

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20).map(tuple)


@given(TIMES, TIMES)
def test_a_ratio_is_that_of_the_medians(taken: tuple[float, ...], beside: tuple[float, ...]) -> None:
    row = Row("b", "w", 1, None, taken, "r", beside)
    assert row.ratio == pytest.approx(median(taken) / median(beside))
    assert row.over_s == pytest.approx(median(taken) - median(beside))
    ordered = sorted(taken)
    place = 0.95 * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    assert row.p95 == pytest.approx(low + (place - int(place)) * (high - low))


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (Aim("ratio", 2.0), True),
        (Aim("ratio", 1.9), False),
        (Aim("over_s", 1.0), True),
        (Aim("over_s", 0.9), False),
        (Aim("median_s", 2.0), True),
        (Aim("median_s", 1.9), False),
        (Aim("median_s", 2.1, at_least=True), False),
        (Aim("value", 1.0), False),
        (None, None),
    ],
)
def test_an_aim_is_met_up_to_its_limit_and_never_by_what_is_missing(aim: Aim | None, met: bool | None) -> None:
    assert Row("b", "w", 1, None, (2.0, 1.0, 3.0), "r", (1.0,), aim=aim).is_met is met
