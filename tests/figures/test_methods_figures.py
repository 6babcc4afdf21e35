"""Figures of several methods: their data are the rows and curves, their titles say what these show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any

import numpy as np
import pytest

from memrl_core.analysis.compare.methods import MethodCurve, MethodRow
from memrl_core.analysis.run.metrics import UNKNOWN, Estimate
from memrl_core.figures.compare.methods import cost_picture, csr_picture, forgetting_picture, gain_picture
from memrl_core.figures.picture import Picture
from tests.builders import numbers
from tests.figures.conftest import HOSTILE


def around(value: float, by: float = 0.1) -> Estimate:
    return Estimate(value, value - by, value + by)


def a_row(arm: str, **changes: Any) -> MethodRow:
    known: dict[str, Any] = {
        "policy": "memrl", "badge": "paper", "success": around(0.5), "csr": around(0.6), "pass_at": around(0.2),
        "gain": around(0.3), "against": around(0.1), "lost_of_failures": around(0.2), "lost_of_solved": around(0.1),
        "memories": 30.0, "tokens": 1000.0, "calls": 5.0, "consulted": 1.0, "unparsed": 0.0,
    }  # fmt: skip
    return MethodRow(arm, **{**known, **changes})


def a_curve(arm: str, *values: float, by: float = 0.05) -> MethodCurve:
    value = np.array(values)
    return MethodCurve(arm, "adapted", value, value - by, value + by)


ROWS = (
    a_row("a", gain=around(0.05), lost_of_failures=around(0.4), lost_of_solved=around(0.1), tokens=2000.0),
    a_row("b", gain=around(0.4), lost_of_failures=around(0.1), lost_of_solved=around(0.3), badge="adapted"),
    a_row("c", gain=around(-0.2), success=around(0.1), tokens=500.0, calls=2.0, consulted=0.0),
    a_row("nothing", gain=UNKNOWN, against=UNKNOWN, success=around(0.2), lost_of_solved=UNKNOWN),
)
Draw = Callable[[Sequence[Any]], Picture]
DRAWN: tuple[Draw, ...] = (gain_picture, forgetting_picture, cost_picture)


def named(picture: Picture, name: str) -> Any:
    return next(trace for trace in picture.figure.data if trace.name == name)


# --- csr ----------------------------------------------------------------------------------------------------------


def test_every_arm_has_its_panel_with_its_csr_and_the_same_line_of_luck() -> None:
    curves = [a_curve(f"arm {number}", 0.1 * number, 0.1 * number + 0.2) for number in range(6)]
    luck = a_curve("no memory", 0.1, 0.15)
    picture = csr_picture(curves, luck)
    lines = [trace for trace in picture.figure.data if trace.name == "CSR"]
    assert [list(line.y) for line in lines] == [list(curve.value) for curve in curves]
    assert len({(line.xaxis, line.yaxis) for line in lines}) == 6
    passed = [trace for trace in picture.figure.data if trace.name == "Pass@e without memory"]
    assert [list(line.y) for line in passed] == [[0.1, 0.15]] * 6
    assert [line.showlegend for line in lines] == [True] + [False] * 5
    titles = [note.text for note in picture.figure.layout.annotations]
    assert titles[0] == "arm 0 · adapted" and len(titles) == 6


def test_the_bands_are_the_intervals() -> None:
    curve = a_curve("a", 0.4, 0.6)
    band = next(trace for trace in csr_picture([curve]).figure.data if trace.fill == "toself")
    assert list(band.x) == [1, 2, 2, 1] and list(band.y) == [*curve.high, *curve.low[::-1]]


def test_the_title_names_the_best_and_counts_what_lies_beyond_luck() -> None:
    curves = [a_curve("high", 0.5, 0.9), a_curve("near", 0.2, 0.28), a_curve("low", 0.0, 0.1)]
    title = csr_picture(curves, a_curve("no memory", 0.1, 0.2)).title
    assert numbers(title)[:2] == ["2", "90"]
    assert "20%" in title and "1 of 3 arms" in title
    assert "without memory" not in csr_picture(curves).title


def test_one_seed_has_a_line_and_no_band() -> None:
    curve = MethodCurve("a", "paper", np.array([0.5, 0.5]), np.array([nan, nan]), np.array([nan, nan]))
    picture = csr_picture([curve], curve)
    assert "0 of 1 arm" in picture.title
    assert list(named(picture, "CSR").y) == [0.5, 0.5]


def test_the_table_has_every_epoch_of_every_curve() -> None:
    table = csr_picture([a_curve("a", 0.1, 0.2)], a_curve("no memory", 0.0, 0.1)).table
    assert list(table["arm"]) == ["a", "a", "no memory", "no memory"]
    assert list(table["measure"]) == ["CSR", "CSR", "Pass@e", "Pass@e"]
    assert list(table["share"]) == [0.1, 0.2, 0.0, 0.1]


# --- gain ---------------------------------------------------------------------------------------------------------


def test_gains_are_sorted_and_those_that_may_be_chance_look_otherwise() -> None:
    picture = gain_picture(ROWS)
    clear, doubtful = named(picture, "beyond chance"), named(picture, "may be chance")
    assert list(clear.x) == [-0.2, 0.4] and list(clear.y) == [0, 2]
    assert list(doubtful.x) == [0.05] and list(doubtful.y) == [1]
    assert clear.marker.symbol != doubtful.marker.symbol
    assert list(clear.error_x.array) == pytest.approx([0.1, 0.1])
    assert list(picture.figure.layout.yaxis.ticktext) == ["c · paper", "a · paper", "b · adapted"]
    assert list(picture.table["arm"]) == ["b", "a", "c"]
    assert numbers(picture.title) == ["1", "3", "+40.0", "95", "+30.0", "+50.0"]


def test_a_gain_without_an_interval_is_not_called_clear() -> None:
    picture = gain_picture([a_row("a", gain=Estimate(0.5, nan, nan))])
    assert numbers(picture.title) == ["0", "1", "+50.0"]
    assert picture.figure.data[0].name == "may be chance"


# --- forgetting ---------------------------------------------------------------------------------------------------


def test_both_rates_stand_beside_each_other_and_their_order_is_reported() -> None:
    picture = forgetting_picture(ROWS)
    a, b = named(picture, "A: of all failures"), named(picture, "B: of what had been solved")
    order = list(picture.table["arm"])[::-1]
    rows = {row.arm: row for row in ROWS}
    assert list(a.x) == [rows[arm].lost_of_failures.value for arm in order] == sorted(a.x)
    assert np.array_equal(b.x, [rows[arm].lost_of_solved.value for arm in order], equal_nan=True)
    assert (a.marker.symbol, a.marker.color) != (b.marker.symbol, b.marker.color)
    assert numbers(picture.title) == ["40", "30"] and "not agree" in picture.title


def test_rates_that_agree_are_not_said_to_differ() -> None:
    assert "do not agree" not in forgetting_picture(ROWS[:1]).title


# --- cost ---------------------------------------------------------------------------------------------------------


def test_calls_are_turns_and_questions_and_the_most_successful_stands_on_top() -> None:
    picture = cost_picture(ROWS)
    order = ["c", "nothing", "a", "b"]
    rows = {row.arm: row for row in ROWS}
    tokens, turns = named(picture, "tokens"), named(picture, "turns of the answer")
    questions = named(picture, "the method's own questions")
    assert list(tokens.x) == [rows[arm].tokens for arm in order]
    assert [t + q for t, q in zip(turns.x, questions.x, strict=True)] == [rows[arm].calls for arm in order]
    assert list(questions.x) == [rows[arm].consulted for arm in order]
    assert picture.figure.layout.barmode == "stack"
    assert list(picture.table["arm"]) == order[::-1]
    assert numbers(picture.title) == ["2,000", "5.0", "500", "2.0"] and picture.title.startswith("a ")


def test_a_model_that_reports_no_tokens_is_said_so() -> None:
    assert cost_picture([a_row("a", tokens=nan)]).title.startswith("No model reported")


# --- all of them --------------------------------------------------------------------------------------------------


def test_no_name_of_an_arm_reaches_the_figure_as_markup() -> None:
    pictures = [draw([a_row(HOSTILE), a_row("b")]) for draw in DRAWN]
    assert all("&lt;" in picture.to_json() for picture in (*pictures, csr_picture([a_curve(HOSTILE, 0.5)])))


@pytest.mark.parametrize("draw", [*DRAWN, csr_picture])
def test_nothing_to_draw_is_an_empty_picture_with_a_sentence(draw: Draw) -> None:
    picture = draw([])
    assert picture.title and picture.alt.startswith("An empty figure") and picture.table.empty


@pytest.mark.parametrize("draw", DRAWN)
def test_two_arms_with_names_that_are_cut_alike_keep_their_own_rows(draw: Draw) -> None:
    long = "a name that is far too long for the margin of a chart"
    axis = draw([a_row(f"{long} 1"), a_row(f"{long} 2")]).figure.layout.yaxis
    assert list(axis.tickvals) == [0, 1] and len(axis.ticktext) == 2
