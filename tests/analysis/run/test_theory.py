"""The curves of theory, held against simulated chains, the paper's numbers, unrolled sums, and their own texts."""

from __future__ import annotations

import math
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.run.theory import (
    effective_window,
    formulas,
    half_life,
    mean_q,
    order_probability,
    settled_after,
    trade_off,
    variance_limit,
    variance_q,
    visits_to_order,
)

CHAINS = 20_000
ERRORS = 4.5
"""Standard errors within which a simulated mean or variance has to lie: beyond them once in 150,000."""
ALPHA = st.floats(0.001, 1.0)
REWARD = st.floats(-10, 10)


def chains(alpha: float, low: float, high: float, p: float, q0: float, t: int, seed: int = 7) -> np.ndarray:
    """q of many memories after t rewards that are `high` with chance p and `low` otherwise."""
    rng = np.random.default_rng(seed)
    q = np.full(CHAINS, q0)
    for _ in range(t):
        q = (1 - alpha) * q + alpha * np.where(rng.random(CHAINS) < p, high, low)
    return q


def within_sampling_error(q: np.ndarray, mean: float, variance: float) -> bool:
    """Whether mean and variance of the chains are within their standard errors of what is claimed."""
    squares = (q - q.mean()) ** 2
    mean_error = math.sqrt(variance / len(q))
    variance_error = float(squares.std()) / math.sqrt(len(q))
    return abs(q.mean() - mean) <= ERRORS * mean_error and abs(q.var(ddof=1) - variance) <= ERRORS * variance_error


@pytest.mark.parametrize("t", [1, 4, 15])
@pytest.mark.parametrize(("alpha", "p", "q0"), [(0.3, 0.8, 0.0), (0.1, 0.2, 1.5), (0.9, 0.5, -1.0)])
def test_simulated_chains_have_the_mean_and_variance_of_theory(alpha: float, p: float, q0: float, t: int) -> None:
    q = chains(alpha, -1.0, 1.0, p, q0, t)
    beta, sigma = 2 * p - 1, 2 * math.sqrt(p * (1 - p))
    assert within_sampling_error(q, float(mean_q(t, alpha, beta, q0)), float(variance_q(t, alpha, sigma)))
    assert not within_sampling_error(q, float(mean_q(t, alpha, beta, q0)) + 0.1, float(variance_q(t, alpha, sigma)))


def test_the_numbers_that_the_paper_settings_give() -> None:
    assert float(half_life(0.3)) == pytest.approx(1.943, abs=5e-4)
    assert float(settled_after(0.3)) == pytest.approx(8.40, abs=5e-3)
    assert float(effective_window(0.3)) == pytest.approx(5.667, abs=5e-4)
    assert float(variance_limit(0.3, 1.0)) == pytest.approx(0.17647, abs=5e-6)
    assert mean_q([1, 2, 3, 4, 5, 6], 0.3, 1.0, 0.0) == pytest.approx([0.3, 0.51, 0.657, 0.7599, 0.83193, 0.882351])


@given(st.integers(0, 60), ALPHA, st.floats(0, 5), st.floats(0, 5))
def test_the_variance_is_the_sum_of_equation_17(t: int, alpha: float, sigma: float, v0: float) -> None:
    kept = 1 - alpha
    unrolled = kept ** (2 * t) * v0 + alpha**2 * sigma**2 * sum(kept ** (2 * k) for k in range(t))
    assert float(variance_q(t, alpha, sigma, v0)) == pytest.approx(unrolled, rel=1e-6, abs=1e-12)


@given(ALPHA.filter(lambda a: a < 1), REWARD, REWARD, st.floats(0.01, 0.99))
def test_after_the_half_life_half_of_the_way_is_left(alpha: float, beta: float, q0: float, share: float) -> None:
    assert float(mean_q(half_life(alpha), alpha, beta, q0)) == pytest.approx((q0 + beta) / 2, abs=1e-9)
    assert float(mean_q(settled_after(alpha, share), alpha, beta, q0)) == pytest.approx(
        q0 + share * (beta - q0), abs=1e-9
    )


@given(REWARD, REWARD, st.floats(0, 5))
def test_a_step_of_one_keeps_only_the_last_reward(beta: float, q0: float, sigma: float) -> None:
    assert mean_q([0, 1, 2], 1.0, beta, q0) == pytest.approx([q0, beta, beta])
    assert variance_q([0, 1, 2], 1.0, sigma, 3.0) == pytest.approx([3.0, sigma**2, sigma**2])
    assert (float(half_life(1.0)), float(settled_after(1.0)), float(effective_window(1.0))) == (0, 0, 1)


def test_a_change_is_followed_from_the_old_mean_to_the_new() -> None:
    path = mean_q(np.arange(50), 0.3, -0.6, 0.8)
    q, walked = 0.8, []
    for _ in range(50):
        walked.append(q)
        q += 0.3 * (-0.6 - q)
    assert path == pytest.approx(walked)


@given(ALPHA.filter(lambda a: a < 1), st.floats(-5, 5), st.floats(0.001, 3))
def test_what_is_left_of_a_jump_has_the_size_asked_for(alpha: float, jump: float, near: float) -> None:
    updates = float(trade_off([alpha], 1.0, jump, within=near).until_within[0])
    if abs(jump) <= near:
        assert updates == 0
    else:
        assert abs(jump - float(mean_q(updates, alpha, jump, 0.0))) == pytest.approx(near)


def test_a_jump_that_has_to_be_followed_exactly_never_is_except_by_a_step_of_one() -> None:
    assert trade_off([0.3, 1.0], 1.0, 2.0, within=0.0).until_within.tolist() == [math.inf, 0.0]


# --- formulas ---------------------------------------------------------------------------------------------------------


def evaluated(text: str) -> float:
    """What a formula with its numbers comes to: read as arithmetic, sharing nothing with the module."""
    for written, python in (("−", "-"), ("·", "*"), ("^", "**"), ("√", "sqrt"), ("ln", "log"), ("∞", "inf")):
        text = text.replace(written, python)
    assert re.fullmatch(r"(?:[\d\s.()*/+-]|sqrt|log|inf)+", text), text
    return float(eval(text, {"__builtins__": {}}, {"sqrt": math.sqrt, "log": math.log, "inf": math.inf}))


ROUND = st.integers(-4000, 4000).map(lambda n: n / 1000)


@given(st.integers(1, 1000).map(lambda n: n / 1000), ROUND, ROUND.map(abs), ROUND, st.integers(0, 60))
def test_every_formula_comes_to_its_value_when_its_text_is_worked_out(
    alpha: float, beta: float, sigma: float, q0: float, t: int
) -> None:
    for formula in formulas(alpha, beta, sigma, q0, t):
        left, right = formula.substituted.rsplit(" = ", 1)
        assert evaluated(left) == pytest.approx(formula.value, rel=1e-9, abs=1e-12), formula
        assert float(right.replace("−", "-")) == pytest.approx(formula.value, abs=5.0001e-4)
        assert re.fullmatch(r"−?\d+\.\d{3}", right)
        assert formula.source.startswith("arXiv 2601.03192, ")


def test_a_number_with_more_than_three_decimals_stands_in_full() -> None:
    mean, *_ = formulas(0.0125, 0.8, 0.4, -1 / 3, 2)
    assert evaluated(mean.substituted.rsplit(" = ", 1)[0]) == pytest.approx(mean.value, rel=1e-9)
    assert "0.0125" in mean.substituted


def test_the_formula_of_the_mean_reads_as_in_a_book() -> None:
    mean, *_ = formulas(0.3, 0.8, 0.4, 0.0, 5)
    assert mean.substituted == "0.800 + (1 − 0.300)^5 · (0.000 − 0.800) = 0.666"
    assert (mean.symbols, mean.source) == ("β + (1 − α)^t · (q0 − β)", "arXiv 2601.03192, eq. 12")
    with pytest.raises(FrozenInstanceError):
        mean.value = 1.0


def test_the_chance_that_q_orders_two_memories_rightly_agrees_with_drawing_them() -> None:
    rng = np.random.default_rng(0)
    for better, worse, noise, visits in ((0.9, 0.5, 0.0, 3), (0.7, 0.5, 0.1, 10), (0.6, 0.5, 0.0, 60)):
        seen = [chance * (1 - 2 * noise) + noise for chance in (better, worse)]
        q = np.zeros((2, 40_000))
        for _ in range(visits):
            rewards = np.where(rng.random(q.shape) < np.array(seen)[:, None], 1.0, -1.0)
            q += 0.3 * (rewards - q)
        drawn = (q[0] > q[1]).mean() + (q[0] == q[1]).mean() / 2
        assert order_probability(visits, 0.3, better, worse, noise) == pytest.approx(drawn, abs=0.04)
    assert order_probability([0, 5], 0.3, 0.7, 0.7) == pytest.approx([0.5, 0.5])


def test_a_wide_gap_is_told_after_few_visits_and_a_narrow_one_never_with_a_constant_step() -> None:
    wide, middle = visits_to_order(0.3, 0.9, 0.1), visits_to_order(0.3, 0.75, 0.45)
    assert wide < middle < 20
    assert visits_to_order(0.3, 0.55, 0.5) is None
    assert visits_to_order(0.01, 0.55, 0.5) is not None
