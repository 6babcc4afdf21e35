"""Measures of what is solved, kept and lost, held against small grids worked by hand and against plain loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from memrl_core.analysis.run.metrics import (
    TaskState,
    adaptation_time,
    average_accuracy,
    backward_transfer,
    binned_correlation,
    cumulative_success,
    epoch_accuracy,
    forgetting_rate,
    forward_transfer,
    outcome_grid,
    paired_interval,
    pass_at_k,
    pearson,
    seed_interval,
    solved_before_failing_now,
    spearman,
    task_states,
)
from memrl_core.analysis.run.over_time import forgetting
from memrl_core.errors import InputError
from tests.oracles import metrics as oracle

NAN = float("nan")
MARKS = {"s": 1.0, "f": 0.0, "-": NAN}


def a_grid(*epochs: str) -> np.ndarray:
    """One text an epoch, one letter a task: s solved, f failed, - not attempted."""
    return np.array([[MARKS[letter] for letter in epoch] for epoch in epochs], dtype=np.float64)


def plain(success: np.ndarray) -> list[list[bool | None]]:
    return [[None if np.isnan(x) else bool(x) for x in row] for row in success]


def same(found: np.ndarray, expected: list) -> bool:
    return bool(np.allclose(found, np.array(expected, dtype=np.float64), equal_nan=True))


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))
GRIDS = hnp.arrays(np.float64, SHAPES, elements=st.sampled_from(list(MARKS.values())))


# Five tasks over four epochs. The third is lost and won back, the fourth is never solved, the fifth is not always run.
FIVE = a_grid("sffs-", "ssfff", "fssff", "sfsfs")


def test_both_forgetting_rates_worked_by_hand() -> None:
    assert same(forgetting_rate(FIVE), [0, 1 / 3, 1 / 3, 1 / 2])
    assert same(forgetting_rate(FIVE, of="solved"), [NAN, 1 / 2, 1 / 2, 1 / 2])


def test_shares_of_nothing_are_nan_and_no_epochs_give_no_values() -> None:
    nothing = a_grid("--")
    for measure in (epoch_accuracy, cumulative_success, solved_before_failing_now, forgetting_rate):
        assert same(measure(nothing), [NAN])
        assert measure(np.zeros((0, 0))).shape == (0,)


@given(GRIDS)
def test_measures_of_a_grid_follow_from_each_tasks_outcomes(success: np.ndarray) -> None:
    grid = plain(success)
    epochs = range(len(grid))
    assert same(epoch_accuracy(success), [oracle.accuracy(grid, e) for e in epochs])
    assert same(cumulative_success(success), [oracle.cumulative(grid, e) for e in epochs])
    assert same(solved_before_failing_now(success), [oracle.failing_after_success(grid, e) for e in epochs])
    named = [[TaskState(state).name.lower().replace("_", " ") for state in row] for row in task_states(success)]
    assert named == [[oracle.state(grid, e, t) for t in range(len(grid[0]))] for e in epochs]


@given(GRIDS)
def test_the_forgetting_rates_are_those_of_the_page_on_what_was_forgotten(success: np.ndarray) -> None:
    rows = [
        (epoch * 10 + task, epoch, f"t{task}", {1.0: "success", 0.0: "failure"}.get(value, "unrated"), None)
        for epoch, row in enumerate(success)
        for task, value in enumerate(row)
    ]
    found = forgetting(pd.DataFrame(rows, columns=["step", "epoch", "task", "outcome", "selected"])).set_index("epoch")
    for of in ("failures", "solved"):
        by_page = [found[f"of_{of}"].get(epoch, NAN) for epoch in range(len(success))]
        assert same(forgetting_rate(success, of), by_page)


def test_a_grid_keeps_the_last_rated_attempt_and_the_order_of_first_attempts() -> None:
    steps = [("b", 1, "success"), ("a", 1, "failure"), ("b", 1, "failure"), ("b", 1, "unrated")]
    grid = outcome_grid([*steps, ("a", 3, "success"), ("c", 3, "unrated")])
    assert (grid.tasks, grid.epochs) == (("b", "a", "c"), (1, 3))
    assert same(grid.success, [[0, 0, NAN], [NAN, 1, NAN]])
    assert outcome_grid([]).success.shape == (0, 0)


@given(GRIDS)
def test_a_grid_comes_back_from_its_steps(success: np.ndarray) -> None:
    words = {1.0: "success", 0.0: "failure"}
    steps = [(f"t{t}", e, words.get(x, "unrated")) for e, row in enumerate(success) for t, x in enumerate(row)]
    grid = outcome_grid(steps)
    assert grid.tasks == tuple(f"t{t}" for t in range(success.shape[1]))
    assert grid.epochs == tuple(range(len(success)))
    assert same(grid.success, success)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_share_of_choices_with_a_success(won: list[bool], k: int) -> None:
    assume(k <= len(won))
    assert pass_at_k([sum(won)], [len(won)], k) == pytest.approx(oracle.hit_by_k(won, k))


@pytest.mark.parametrize(("successes", "samples", "k"), [(1, 2, 3), (3, 2, 1), (1, 2, 0), (-1, 2, 1)])
def test_pass_at_k_refuses_what_has_no_answer(successes: int, samples: int, k: int) -> None:
    with pytest.raises(InputError, match=f"{successes} .*{samples}"):
        pass_at_k([successes], [samples], k)


# Rows: after learning set 1, 2, 3. Set 1 falls from .9 to .6; set 2 is learnt to .8 and ends at .7.
STREAM = np.array([[0.9, 0.3, 0.2], [0.7, 0.8, 0.5], [0.6, 0.7, 1.0]])


def test_transfer_between_task_sets_worked_by_hand() -> None:
    assert average_accuracy(STREAM) == pytest.approx((0.6 + 0.7 + 1.0) / 3)
    assert backward_transfer(STREAM) == pytest.approx(((0.6 - 0.9) + (0.7 - 0.8)) / 2)
    baseline = np.array([0.1, 0.2, 0.3])
    assert forward_transfer(STREAM, baseline) == pytest.approx(((0.3 - 0.2) + (0.5 - 0.3)) / 2)


def test_one_task_set_has_an_accuracy_and_no_transfer() -> None:
    one = np.array([[0.4]])
    assert average_accuracy(one) == pytest.approx(0.4)
    assert np.isnan([backward_transfer(one), forward_transfer(one, np.zeros(1))]).all()


def test_adaptation_time_worked_by_hand() -> None:
    # Step 7 is the first after the shift. Before it 3 of 4 went well; steps 9 to 12 are the first four with 3 again.
    outcomes = a_grid("ffssfs" + "ffsfssss")[0]
    assert adaptation_time(outcomes, shift_at=7, window=4, tolerance=0.0) == 6
    assert adaptation_time(outcomes, shift_at=7, window=4, tolerance=0.25) == 5
    assert adaptation_time(outcomes[:11], shift_at=7, window=4, tolerance=0.0) is None


@given(
    st.text("sf-", min_size=2, max_size=16),
    st.integers(2, 12),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 0.25, 1 / 3]),
)
def test_adaptation_time_is_what_going_step_by_step_says(text: str, shift: int, window: int, tolerance: float) -> None:
    before = text[max(0, shift - 1 - window) : shift - 1]
    assume(len(before) == window and set(before) != {"-"})
    outcomes = a_grid(text)[0]
    steps = [None if np.isnan(x) else float(x) for x in outcomes]
    assert adaptation_time(outcomes, shift, window, tolerance) == oracle.back_after(steps, shift, window, tolerance)


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 1)), max_size=20))
def test_a_correlation_is_what_its_sums_say_or_not_defined(pairs: list[tuple[int, int]]) -> None:
    q, won = (np.array([pair[side] for pair in pairs], dtype=np.float64) for side in (0, 1))
    if len(pairs) < 3 or len(set(q)) < 2 or len(set(won)) < 2:
        assert (pearson(q, won), spearman(q, won)) == (None, None)
        return
    assert pearson(q, won) == pytest.approx(oracle.pearson(q, won), abs=1e-9)
    assert spearman(q, won) == pytest.approx(oracle.pearson(oracle.ranks(q), oracle.ranks(won)), abs=1e-9)


def test_a_binned_correlation_is_the_correlation_of_the_bins_means() -> None:
    q = np.array([-0.5, 0.0, 0.2, 0.25, 0.49, 0.5, 0.9, 1.0, 1.1, 0.3, NAN])
    won = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, NAN, 1.0])
    # Four bins over [0, 1]: 0 and .2; .25 and .49; .5; .9 and 1. What lies outside or is not rated is left out.
    expected = oracle.pearson([0.1, 0.37, 0.5, 0.95], [0.5, 0.0, 1.0, 1.0])
    assert binned_correlation(q, won, 0.0, 1.0, 4) == pytest.approx(expected)
    assert binned_correlation(q, won, 5.0, 6.0, 4) is None


def test_the_published_bins_give_the_published_correlation() -> None:
    shown = np.array([21.5, 46.5, 73.4, 79.1, 82.4, 84.3, 86.2, 88.1])
    assert binned_correlation(np.arange(0.25, 1.0, 0.1), shown, 0.2, 1.0, 8) == pytest.approx(0.861, abs=0.001)


def test_an_interval_over_seeds_is_about_that_of_the_normal_law() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, (60, 2))
    low, high = seed_interval(values)
    half = 1.96 * values.std(axis=0) / np.sqrt(60)
    np.testing.assert_allclose(low, values.mean(axis=0) - half, atol=0.1)
    np.testing.assert_allclose(high, values.mean(axis=0) + half, atol=0.1)


def test_seeds_without_a_value_are_left_out_and_one_seed_has_no_interval() -> None:
    low, high = seed_interval(np.array([[1.0, 1.0, 5.0], [2.0, NAN, 5.0], [3.0, NAN, NAN]]))
    assert (low[0], high[0]) == (1.0, 3.0)
    assert np.isnan([low[1], high[1]]).all()
    assert (low[2], high[2]) == (5.0, 5.0)
    assert np.isnan(seed_interval(np.array([0.5]))).all()


def test_a_paired_interval_leaves_out_what_a_seed_does_to_both() -> None:
    rng = np.random.default_rng(2)
    luck = rng.normal(0, 5, 20)
    one, other = luck + 1 + rng.normal(0, 0.1, 20), luck + rng.normal(0, 0.1, 20)
    low, high = paired_interval(one, other)
    assert 0.8 < low < 1 < high < 1.2
    separate = seed_interval(one)
    assert high - low < 0.1 * (separate[1] - separate[0])


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        *((measure, (np.zeros((2, 3)),)) for measure in (average_accuracy, backward_transfer)),
        (forward_transfer, (STREAM, np.zeros(2))),
        *((binned_correlation, (np.ones(3), np.ones(3), *bins)) for bins in ((0.0, 1.0, 0), (1.0, 1.0, 4))),
        (paired_interval, (np.zeros(3), np.zeros(2))),
        # No rated window before the shift.
        *((adaptation_time, (a_grid("--ssss")[0], *at, 0.1)) for at in ((0, 2), (3, 3), (9, 2), (3, 0), (3, 2))),
    ],
)
def test_what_has_no_answer_is_refused(measure: Callable[..., object], values: tuple[object, ...]) -> None:
    with pytest.raises(InputError):
        measure(*values)
