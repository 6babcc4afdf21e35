"""Curves of theory and what was measured beside them: tested on their data and on what their titles claim."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from memrl_core.analysis.run.theory import Group, LateVariance, Practice, measured
from memrl_core.errors import InputError
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.theory import mean_picture, shift_picture, trade_off_picture, variance_picture
from tests.builders import an_agent_after, numbers


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Practice:
    return measured(an_agent_after(tmp_path_factory.mktemp("theory") / "bank", 10, epochs=3, k1=6).bank, "r")


def a_practice(q: list[float], se: list[float], theory: list[float], late: LateVariance | None = None) -> Practice:
    """One group of memories written after successes, with these means by number of visits."""
    rows = {"t": range(len(q)), "n": 9, "q": q, "sd": [3 * e for e in se], "se": se, "theory": theory}
    group = Group("success", pd.DataFrame({**rows, "theory_sd": 0.2}))
    return Practice(0.3, (group,), late=late)


def trace(picture: Picture, name: str) -> object:
    (found,) = [t for t in picture.figure.data if t.name == name]
    return found


def notes(picture: Picture) -> list[str]:
    return [note.text for note in picture.figure.layout.annotations]


# --- the mean ---------------------------------------------------------------------------------------------------------


def test_the_mean_goes_to_beta_in_a_band_of_one_standard_deviation() -> None:
    picture = mean_picture(0.3, 0.8, 0.4, -0.2, 12)
    q, squares = [-0.2], [0.0]
    for _ in range(12):
        q.append(q[-1] + 0.3 * (0.8 - q[-1]))
        squares.append(0.7**2 * squares[-1] + 0.3**2 * 0.4**2)
    line = trace(picture, "E[q]")
    assert list(line.x) == list(range(13)) and list(line.y) == pytest.approx(q)
    (band,) = [t for t in picture.figure.data if t.fill == "toself"]
    high, low = np.array(band.y[:13]), np.array(band.y[13:])[::-1]
    assert (high - low) / 2 == pytest.approx(np.sqrt(squares))
    assert picture.table["sd"].tolist() == pytest.approx(np.sqrt(squares))
    assert "half-life 1.943" in notes(picture) and "β" in notes(picture)
    uprights = [s.x0 for s in picture.figure.layout.shapes if s.x0 == s.x1]
    assert uprights == pytest.approx([math.log(2) / -math.log(0.7)])
    assert {"−0.200", "+0.786", "12"} <= set(numbers(picture.title)) and "β = +0.800 in 1.943 updates" in picture.title


def test_a_half_life_beyond_the_figure_is_not_marked_but_reported() -> None:
    picture = mean_picture(0.01, 0.8, 0.4, 0.0, 20)
    assert notes(picture) == ["β"]
    assert "in 68.968 updates" in picture.title


def test_measured_means_lie_over_the_curve_with_their_errors(practice: Practice) -> None:
    picture = mean_picture(0.3, -0.5, 0.8, 0.0, 4, practice)
    assert len(practice.groups) == 2
    for group, name in zip(practice.groups, ("after failures", "after successes"), strict=True):
        rows = group.by_visit[group.by_visit["t"] <= 4]
        marks = trace(picture, f"measured, written {name}")
        assert list(marks.x) == rows["t"].tolist() and list(marks.y) == pytest.approx(rows["q"].tolist())
        assert list(marks.error_y.array) == pytest.approx(rows["se"].tolist(), nan_ok=True)
        assert [n for (n,) in marks.customdata] == rows["n"].tolist()
        thin = [t for t in picture.figure.data if t.line.width == 1 and t.line.color == marks.marker.color]
        assert [list(t.y) for t in thin] == [pytest.approx(rows["theory"].tolist())]
        beside = picture.table.set_index("updates").loc[rows["t"], [f"measured, {name}", f"theory, {name}"]]
        assert beside.to_numpy() == pytest.approx(rows[["q", "theory"]].to_numpy())
    assert len({t.marker.symbol for t in picture.figure.data if t.mode == "markers"}) == 2


def test_the_title_counts_the_means_that_agree_with_theory() -> None:
    given = a_practice([0.0, 0.2, 0.5, 0.9, 1.0], [0.0, 0.1, 0.1, 0.1, math.nan], [0.0, 0.15, 0.29, 0.9, 5.0])
    assert "2 of 3 measured" in mean_picture(0.3, 0.5, 1, 0, 9, given).title
    assert "1 of 2 measured means" in mean_picture(0.3, 0.5, 1, 0, 2, given).title
    assert "nothing measured yet" in mean_picture(0.3, 0.5, 1, 0, 9, Practice(0.3, ())).title


# --- the variance -----------------------------------------------------------------------------------------------------


def test_the_variance_levels_off_at_its_limit() -> None:
    picture = variance_picture(0.3, 0.8)
    limit = 0.3 / 1.7 * 0.64
    y = np.array(trace(picture, "Var[q]").y)
    assert y[0] == 0 and (np.diff(y) > 0).all() and 0.99 * limit < y[-1] < limit
    assert [s.y0 for s in picture.figure.layout.shapes] == [pytest.approx(limit)]
    assert {"0.113", "17.6"} <= set(numbers(picture.title))


def test_the_measured_variance_and_the_late_moves_stand_beside_it(practice: Practice) -> None:
    picture = variance_picture(0.3, 0.8, practice)
    for group, name in zip(practice.groups, ("after failures", "after successes"), strict=True):
        marks = trace(picture, f"measured, written {name}")
        assert list(marks.y) == pytest.approx((group.by_visit["sd"] ** 2).tolist(), nan_ok=True)
    given = a_practice([0.0, 0.2], [0.0, 0.1], [0.0, 0.1], LateVariance(4, 1.25, 3))
    assert {"4", "1.25"} <= set(numbers(variance_picture(0.3, 0.8, given).title))


def test_rewards_that_never_vary_are_reported_so() -> None:
    picture = variance_picture(0.3, 0.0)
    assert set(trace(picture, "Var[q]").y) == {0.0}
    assert "no variance" in picture.title


# --- calm against speed -----------------------------------------------------------------------------------------------


def test_the_trade_off_marks_this_alpha_on_the_curve_of_all() -> None:
    picture = trade_off_picture(0.9, -1.4, 0.3)
    curve, this = trace(picture, "every α"), trace(picture, "this α")
    alphas = np.array([a for a, _ in curve.customdata])
    assert (alphas[0], alphas[-1]) == (0.01, 1.0)
    with np.errstate(divide="ignore"):
        assert np.array(curve.x) == pytest.approx(np.log(2) / -np.log1p(-alphas))
    assert np.array(curve.y) == pytest.approx(np.sqrt(alphas / (2 - alphas)) * 0.9)
    assert (np.diff(curve.x) < 0).all() and (np.diff(curve.y) > 0).all()
    assert (list(this.text), list(this.x)) == (["α = 0.3"], pytest.approx([1.943358]))
    until = dict(curve.customdata)[0.3]
    assert 1.4 * 0.7**until == pytest.approx(next(iter(this.y)))
    assert {"1.943", "0.378", "4.265", "0.256"} <= set(numbers(picture.title))


def test_labels_near_this_alpha_give_way_to_it() -> None:
    assert "α = 0.2" in trace(trade_off_picture(1, 1, 0.3), "others").text
    picture = trade_off_picture(1, 1, 0.21)
    assert "α = 0.2" not in trace(picture, "others").text and list(trace(picture, "this α").text) == ["α = 0.21"]


def test_a_slow_alpha_widens_the_axis_to_hold_its_mark() -> None:
    wide = trade_off_picture(1, 1, 0.01).figure.layout.xaxis.range
    assert wide[1] > 69 and trade_off_picture(1, 1, 0.3).figure.layout.xaxis.range[1] == 15


# --- a change of the world --------------------------------------------------------------------------------------------


def test_each_alpha_follows_the_change_at_its_own_pace() -> None:
    picture = shift_picture([0.3, 0.1], 0.9, -0.5, 0.5, 10, 30)
    for alpha in (0.3, 0.1):
        line = trace(picture, f"α = {alpha:g}")
        walked = [0.9] * 10
        q = 0.9
        for _ in range(21):
            walked.append(q)
            q += alpha * (-0.5 - q)
        assert list(line.y) == pytest.approx(walked)
        assert picture.table[f"sd, α = {alpha:g}"].to_numpy() == pytest.approx(0.5 * math.sqrt(alpha / (2 - alpha)))
    assert len({line.line.dash for line in picture.figure.data if line.name}) == 2
    levels = [(s.x0, s.x1, s.y0) for s in picture.figure.layout.shapes if s.y0 == s.y1]
    assert levels == [(0, 10, 0.9), (10, 30, -0.5)]
    assert {"1.943", "0.3", "0.210", "6.579", "0.1", "0.115"} <= set(numbers(picture.title))


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drawn",
    [
        lambda p: mean_picture(0.3, -0.5, 0.8, 0.0, 10, p),
        lambda p: mean_picture(1.0, 0.5, 0.0, 0.0, 1),
        lambda p: variance_picture(1.0, 0.8, p),
        lambda p: trade_off_picture(0.0, 0.0, 1.0),
        lambda p: shift_picture([0.3, 0.1, 1.0, 0.02], 0.9, -0.5, 0.5, 0, 10),
    ],
)
def test_the_ends_of_the_ranges_are_drawn_with_a_table(
    drawn: Callable[[Practice], Picture], practice: Practice
) -> None:
    picture = drawn(practice)
    assert len(picture.table) > 1 and not picture.table.columns.duplicated().any()


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: mean_picture(0.3, 0.5, 1.0, 0.0, 0),
        lambda: mean_picture(0.3, 0.5, 1.0, 0.0, 10**9),
        lambda: shift_picture([], 0.0, 1.0, 1.0, 5, 10),
        lambda: shift_picture([0.1] * 5, 0.0, 1.0, 1.0, 5, 10),
        lambda: shift_picture([0.3], 0.0, 1.0, 1.0, 11, 10),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_a_sentence(drawn: Callable[[], Picture]) -> None:
    with pytest.raises(InputError, match=r"[.]$"):
        drawn()
