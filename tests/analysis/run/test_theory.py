"""The curves of theory against simulated chains, the paper's numbers and unrolled sums; what a ledger shows of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.run.theory import (
    effective_window,
    fluctuation,
    formulas,
    half_life,
    mean_q,
    measured,
    order_probability,
    settled_after,
    settled_within,
    variance_limit,
    variance_q,
    visits_to_order,
)
from memrl_core.bank import MemoryBank
from memrl_core.errors import UnknownRun
from memrl_core.records import StepTrace, Task, UtilityPoint
from tests.analysis.memory.test_provenance import a_history
from tests.builders import a_bank, a_step, an_agent_after

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
    reached = float(mean_q(settled_after(alpha, share), alpha, beta, q0))
    assert reached == pytest.approx(q0 + share * (beta - q0), abs=1e-9)


@given(REWARD, REWARD, st.floats(0, 5))
def test_a_step_of_one_keeps_only_the_last_reward(beta: float, q0: float, sigma: float) -> None:
    assert mean_q([0, 1, 2], 1.0, beta, q0) == pytest.approx([q0, beta, beta])
    assert variance_q([0, 1, 2], 1.0, sigma, 3.0) == pytest.approx([3.0, sigma**2, sigma**2])
    assert (float(half_life(1.0)), float(settled_after(1.0)), float(effective_window(1.0))) == (0, 0, 1)


@given(ALPHA.filter(lambda a: a < 1), st.floats(-5, 5), st.floats(0.001, 3))
def test_what_is_left_of_a_jump_has_the_size_asked_for(alpha: float, jump: float, near: float) -> None:
    updates = float(settled_within(alpha, jump, near))
    if abs(jump) <= near:
        assert updates == 0
    else:
        assert abs(jump - float(mean_q(updates, alpha, jump, 0.0))) == pytest.approx(near)


def test_a_jump_that_has_to_be_followed_exactly_never_is_except_by_a_step_of_one() -> None:
    assert settled_within([0.3, 1.0], 2.0, 0.0).tolist() == [math.inf, 0.0]


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
        assert float(right.replace("−", "-")) == pytest.approx(evaluated(left), abs=5.0001e-4), formula
        assert re.fullmatch(r"−?\d+\.\d{3}", right)
        assert formula.source.startswith("arXiv 2601.03192, ")


def test_the_formula_of_the_mean_reads_as_in_a_book() -> None:
    mean, *_ = formulas(0.3, 0.8, 0.4, 0.0, 5)
    assert mean.substituted == "0.800 + (1 − 0.300)^5 · (0.000 − 0.800) = 0.666"
    assert (mean.symbols, mean.source) == ("β + (1 − α)^t · (q0 − β)", "arXiv 2601.03192, eq. 12")
    mean, *_ = formulas(0.0125, 0.8, 0.4, -1 / 3, 2)
    left = mean.substituted.rsplit(" = ", 1)[0]
    assert "0.0125" in left and evaluated(left) == pytest.approx(float(mean_q(2, 0.0125, 0.8, -1 / 3)), rel=1e-9)


def test_the_chance_that_q_orders_two_memories_rightly_agrees_with_drawing_them() -> None:
    rng = np.random.default_rng(0)
    for better, worse, visits in ((0.9, 0.5, 3), (0.7, 0.5, 10), (0.6, 0.5, 60)):
        q = np.zeros((2, 40_000))
        for _ in range(visits):
            rewards = np.where(rng.random(q.shape) < np.array([[better], [worse]]), 1.0, -1.0)
            q += 0.3 * (rewards - q)
        drawn = (q[0] > q[1]).mean() + (q[0] == q[1]).mean() / 2
        assert order_probability(visits, 0.3, better, worse) == pytest.approx(drawn, abs=0.04)
    assert order_probability([0, 5], 0.3, 0.7, 0.7) == pytest.approx([0.5, 0.5])


def test_a_wide_gap_is_reported_after_few_visits_and_a_narrow_one_never_with_a_constant_step() -> None:
    wide, middle = visits_to_order(0.3, 0.9, 0.1), visits_to_order(0.3, 0.75, 0.45)
    assert wide < middle < 20
    assert visits_to_order(0.3, 0.55, 0.5) is None
    assert visits_to_order(0.01, 0.55, 0.5) is not None


# --- what a ledger shows ----------------------------------------------------------------------------------------------


def histories(bank: MemoryBank, outcome: str | None = None) -> list[list[UtilityPoint]]:
    return [bank.history("r", m.id) for m in bank.memories("r") if outcome in (None, m.outcome)]


def a_history_of(bank: MemoryBank, memories: int, reward_of: Callable[[int, int], float], rounds: int) -> None:
    """Memories r-0001 … and then rounds in which each is used alone; `reward_of` memory number and round."""
    with bank.write.batch(500):
        for step in range(1, memories + 1):
            bank.write.commit_step(*a_step(step, reward=None))
        for n in range(rounds):
            for number in range(1, memories + 1):
                step = memories + n * memories + number
                bank.write.commit_step(*used(step, number, reward_of(number, n), task=f"t{number % 10}"))


def used(step: int, number: int, reward: float, task: str) -> tuple[StepTrace, dict[str, np.ndarray]]:
    """A step on `task` that used one memory and wrote none."""
    trace, _ = a_step(step, credited=(f"r-{number:04d}",), reward=reward)
    return replace(trace, task=Task(task, task, "household"), write=None), {}


def test_each_group_is_what_its_memories_histories_say_one_by_one(tmp_path: Path) -> None:
    bank = an_agent_after(tmp_path / "bank", 10, epochs=3, k1=6, epsilon=0.3).bank
    practice = measured(bank, "r")
    assert {group.outcome for group in practice.groups} == {"success", "failure"}
    for group in practice.groups:
        lives = histories(bank, group.outcome)
        rewards = [p.reward for points in lives for p in points if p.reward is not None]
        rows = group.by_visit.set_index("t")
        assert list(rows.index) == list(range(max(map(len, lives))))
        for t, row in rows.iterrows():
            there = [points for points in lives if len(points) > t]
            q = [points[t].after for points in there]
            assert (row["n"], row["q"]) == (len(there), pytest.approx(fmean(q)))
            sd = stdev(q) if len(q) > 1 else math.nan
            assert (row["sd"], row["se"]) == pytest.approx((sd, sd / math.sqrt(len(q))), nan_ok=True)
            assert row["theory"] == pytest.approx(fmean(rewards) * (1 - 0.7**t))
            squares = sum((0.3 * 0.7**k) ** 2 for k in range(int(t)))
            assert row["theory_sd"] == pytest.approx(stdev(rewards) * math.sqrt(squares))


def test_the_half_life_of_chance_rewards_is_that_of_their_alpha(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    bank = a_bank(tmp_path / "bank", alpha=0.3, q0_success=0.0)
    rewards = rng.choice([-1.0, 1.0], p=[0.1, 0.9], size=(61, 20))
    a_history_of(bank, 60, lambda number, n: float(rewards[number, n]), rounds=20)
    found = measured(bank, "r")
    assert (found.half_life.memories, found.half_life.expected) == (60, pytest.approx(1.943, abs=5e-4))
    assert found.half_life.updates == pytest.approx(found.half_life.expected, abs=0.35)
    # Against the same definition worked out over lists: four visits are two half-lives, rounded up.
    lives = [(points, fmean(p.reward for p in points[1:])) for points in histories(bank)]
    away = [fmean((p[t].after - b) * (1 if p[0].after > b else -1) for p, b in lives) for t in range(5)]
    t = next(t for t in range(5) if away[t] <= away[0] / 2)
    slope = math.log(away[t - 1] / away[t])
    assert found.half_life.updates == pytest.approx(t - 1 + math.log(2 * away[t - 1] / away[0]) / slope)


def test_the_late_variance_is_the_median_over_memories_with_enough_visits(tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    bank = a_bank(tmp_path / "bank", alpha=0.5)
    a_history_of(bank, 20, lambda number, n: float(rng.normal(0.2, 0.5)) if number > 2 else 1.0, rounds=40)
    found = measured(bank, "r").late
    each = [fluctuation(points, 0.5) for points in histories(bank)]
    varied = [f for f in each if f is not None and f.limit > 0]
    assert len(varied) == 18
    assert (found.memories, found.agreeing) == (18, sum(f.agrees for f in varied))
    assert found.ratio == pytest.approx(median(f.variance / f.limit for f in varied))
    assert found.ratio == pytest.approx(1, abs=0.25)


def test_memories_that_moved_by_another_step_size_are_left_out_and_counted(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank", alpha=0.3)
    a_history_of(bank, 3, lambda number, n: 1.0, rounds=1)
    bank.write.change_settings("r", {**bank.settings("r"), "alpha": 0.6}, from_step=7)
    bank.write.commit_step(*a_step(7, credited=("r-0002",), reward=1.0))
    bank.write.commit_step(*a_step(8, credited=("r-0007",), reward=-1.0))
    found = measured(bank, "r")
    assert (found.alpha, found.left_out) == (0.6, 3)
    (group,) = found.groups
    assert group.by_visit["n"].tolist() == [2, 1]
    assert group.by_visit["q"].tolist() == pytest.approx([0.0, -0.6])


def test_a_run_without_rewards_shows_nothing(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for steps in ((), (1, 2)):
        for step in steps:
            bank.write.commit_step(*a_step(step, reward=None))
        found = measured(bank, "r")
        assert (found.groups, found.late, found.half_life) == ((), None, None)
    with pytest.raises(UnknownRun):
        measured(bank, "nobody")


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
