"""Bands and ladders of q, held against the unrolled sum, the closed form of the paper, and simulated chains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.memory.belief import trust
from memrl_core.analysis.run.practice import fluctuation
from memrl_core.records import UtilityPoint


def a_history(rewards: list[float], alphas: list[float], q0: float = 0.0) -> list[UtilityPoint]:
    points = [UtilityPoint("m", 1, None, q0, 0, None, None, ())]
    for number, (reward, alpha) in enumerate(zip(rewards, alphas, strict=True), start=1):
        before = points[-1].after
        after = before + alpha * (reward - before)
        points.append(UtilityPoint("m", number + 1, before, after, number, reward, "environment", ()))
    return points


def test_the_ladder_of_successes_is_the_one_of_the_paper() -> None:
    found = trust(a_history([1.0] * 6, [0.3] * 6), 0.3)
    assert [round(rung.expected, 4) for rung in found.ladder] == [0.3, 0.51, 0.657, 0.7599, 0.8319, 0.8824]
    assert [rung.recorded for rung in found.ladder] == pytest.approx([rung.expected for rung in found.ladder])
    assert found.window == pytest.approx(5.667, abs=1e-3)
    assert found.q0_share == pytest.approx(0.7**6)


@given(st.lists(st.sampled_from([-1.0, 1.0, 0.5]), min_size=2, max_size=12), st.floats(0.05, 0.95), st.floats(-1, 1))
def test_the_variance_of_q_is_the_closed_form_of_equation_17(rewards: list[float], alpha: float, q0: float) -> None:
    found = trust(a_history(rewards, [alpha] * len(rewards), q0), alpha)
    n = len(rewards)
    sample = float(np.var(rewards, ddof=1))
    closed = alpha / (2 - alpha) * sample * (1 - (1 - alpha) ** (2 * n))
    last = found.ladder[-1]
    assert found.limit is not None
    assert ((last.high - last.low) / 2 / 1.959964) ** 2 == pytest.approx(closed, rel=1e-5, abs=1e-9)
    beta = float(np.mean(rewards))
    assert last.expected == pytest.approx(beta + (1 - alpha) ** n * (q0 - beta), abs=1e-9)
    assert found.limit == pytest.approx(alpha / (2 - alpha) * sample)


def test_each_move_counts_with_the_step_size_that_it_shows() -> None:
    alphas = [0.5, 0.1, 0.3, 0.2]
    found = trust(a_history([1.0, -1.0, 1.0, 0.0], alphas, 0.4), 0.9)
    weights = [a * np.prod([1 - b for b in alphas[i + 1 :]]) for i, a in enumerate(alphas)]
    assert found.q0_share == pytest.approx(float(np.prod([1 - a for a in alphas])))
    variance = np.var([1.0, -1.0, 1.0, 0.0], ddof=1)
    reach = 3.182446 * float(np.sqrt(variance * sum(w**2 for w in weights)))
    assert found.high == pytest.approx(found.q + reach, rel=1e-5)
    assert found.low == pytest.approx(found.q - reach, rel=1e-5)


def test_no_band_reaches_beyond_what_q_can_be() -> None:
    history = a_history([-1.0, 1.0, 1.0], [0.3] * 3)
    assert trust(history, 0.3).high > 1
    found = trust(history, 0.3, (-1.0, 1.0))
    assert (found.low, found.high) == (-1.0, 1.0)
    assert all(-1 <= rung.low <= rung.high <= 1 for rung in found.ladder)
    further = trust(a_history([-1.0, 1.0, 1.0], [0.3] * 3, q0=2.0), 0.3, (-1.0, 1.0))
    assert further.low > -1 and further.high == 2.0


def test_without_rewards_or_with_one_there_is_no_band() -> None:
    none = trust(a_history([], [], 0.5), 0.3)
    assert (none.q, none.n, none.mean, none.low, none.q0_share, none.ladder) == (0.5, 0, None, None, 1.0, ())
    one = trust(a_history([1.0], [0.3]), 0.3)
    assert (one.n, one.mean, one.variance, one.low, one.limit) == (1, 1.0, None, None, None)
    assert one.ladder[0].low is None


def test_a_reward_that_moves_nothing_counts_with_the_step_size_in_force() -> None:
    assert trust(a_history([1.0, 1.0], [0.3, 0.3], q0=1.0), 0.3).q0_share == pytest.approx(0.49)


@pytest.mark.parametrize("n", [15, 60])
def test_the_band_of_q_holds_the_true_mean_about_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(300):
        found = trust(a_history(list(rng.normal(0.2, 0.5, n)), [0.3] * n, q0=0.2), 0.3)
        assert found.high is not None
        inside.append(found.low <= 0.2 <= found.high)
    assert 0.91 < np.mean(inside) < 0.99


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.7])
def test_a_stationary_q_fluctuates_as_theory_says_about_as_often_as_it_claims(alpha: float) -> None:
    rng = np.random.default_rng(5)
    found = [fluctuation(a_history(list(rng.normal(0.0, 1.0, 150)), [alpha] * 150, q0=-3.0), alpha) for _ in range(200)]
    limits = alpha / (2 - alpha)
    assert np.mean([f.low <= limits <= f.high for f in found if f]) > 0.9
    assert np.mean([f.variance for f in found if f]) == pytest.approx(limits, rel=0.08)
    assert np.mean([f.agrees for f in found if f]) > 0.9


def test_a_task_that_changes_is_seen_as_more_fluctuation_than_theory_allows() -> None:
    rewards = [-1.0, 1.0] * 20 + [5.0, 7.0] * 20
    found = fluctuation(a_history(rewards, [0.3] * 80), 0.3)
    assert not found.agrees and found.low > found.limit


def test_a_few_rewards_say_nothing_of_the_fluctuation() -> None:
    assert fluctuation(a_history([1.0, -1.0] * 4, [0.3] * 8), 0.3) is None
