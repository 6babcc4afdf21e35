"""What a ledger shows of the theory, recomputed one memory at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.run.practice import Practice, fluctuation, measured
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import UnknownRun
from memrl_core.records import StepTrace, Task, UtilityPoint
from tests.builders import a_bank, a_step, an_agent

FIRST_TASKS = 10


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    agent = an_agent(tmp_path_factory.mktemp("practice") / "bank", k1=6, epsilon=0.3)
    list(agent.run(sample_tasks("household-train")[:FIRST_TASKS], epochs=3))
    return agent


@pytest.fixture(scope="module")
def practice(lived: Agent) -> Practice:
    return measured(lived.bank, "r")


def histories(bank: MemoryBank, outcome: str | None = None) -> list[list[UtilityPoint]]:
    return [bank.history("r", m.id) for m in bank.memories("r") if outcome in (None, m.outcome)]


def a_history_of(bank: MemoryBank, memories: int, reward_of: Callable[[int, int], float], rounds: int) -> None:
    """Memories r-0001 … and then rounds in which each is used alone; `reward_of` memory number and round."""
    with bank.batch(500):
        for step in range(1, memories + 1):
            bank.commit_step(*a_step(step, reward=None))
        for n in range(rounds):
            for number in range(1, memories + 1):
                step = memories + n * memories + number
                bank.commit_step(*used(step, number, reward_of(number, n), task=f"t{number % 10}"))


def used(step: int, number: int, reward: float, task: str) -> tuple[StepTrace, dict[str, np.ndarray]]:
    """A step on `task` that used one memory and wrote none."""
    trace, _ = a_step(step, credited=(f"r-{number:04d}",), reward=reward)
    return replace(trace, task=Task(task, task, "household"), write=None), {}


def test_each_group_is_what_its_memories_histories_say_one_by_one(lived: Agent, practice: Practice) -> None:
    assert {group.outcome for group in practice.groups} == {"success", "failure"}
    for group in practice.groups:
        lives = histories(lived.bank, group.outcome)
        rewards = [p.reward for points in lives for p in points if p.reward is not None]
        rows = group.by_visit.set_index("t")
        assert list(rows.index) == list(range(max(map(len, lives))))
        for t, row in rows.iterrows():
            there = [points for points in lives if len(points) > t]
            q = [points[t].after for points in there]
            assert (row["n"], row["q"]) == (len(there), pytest.approx(fmean(q)))
            if len(q) > 1:
                assert (row["sd"], row["se"]) == pytest.approx((stdev(q), stdev(q) / math.sqrt(len(q))))
            else:
                assert math.isnan(row["se"])
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
    bank.change_settings("r", {**bank.settings("r"), "alpha": 0.6}, from_step=7)
    bank.commit_step(*a_step(7, credited=("r-0002",), reward=1.0))
    bank.commit_step(*a_step(8, credited=("r-0007",), reward=-1.0))
    found = measured(bank, "r")
    assert (found.alpha, found.left_out) == (0.6, 3)
    (group,) = found.groups
    assert group.by_visit["n"].tolist() == [2, 1]
    assert group.by_visit["q"].tolist() == pytest.approx([0.0, -0.6])


def test_a_run_without_rewards_shows_nothing(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for steps in ((), (1, 2)):
        for step in steps:
            bank.commit_step(*a_step(step, reward=None))
        found = measured(bank, "r")
        assert (found.groups, found.late, found.half_life) == ((), None, None)
    with pytest.raises(UnknownRun):
        measured(bank, "nobody")
