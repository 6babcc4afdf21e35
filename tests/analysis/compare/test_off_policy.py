"""Off-policy estimates: textbook examples, a simulation with a known truth, refusals; and how much of q is company."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memrl_core.agent.rerun import Rerunner
from memrl_core.analysis.compare.off_policy import estimates, would_have_earned
from memrl_core.analysis.memory.provenance import contamination
from memrl_core.bank import MemoryBank
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.models.simulated import SimulatedModel
from memrl_core.records import StepTrace
from tests.builders import an_agent


def test_the_estimators_worked_by_hand() -> None:
    reward, logged, wanted = (
        np.array([1.0, 0.0, 1.0, 0.0]),
        np.array([0.5, 0.5, 0.25, 0.25]),
        np.array([1, 0, 0.5, 0.5]),
    )
    found = estimates(reward, logged, wanted, np.full(4, 0.5), np.full(4, 0.6))
    # Weights 2, 0, 2, 2.
    assert found.actual.value == 0.5 and found.heaviest == 2
    assert found.ips.value == pytest.approx((2 + 2) / 4)
    assert found.self_normalised.value == pytest.approx(4 / 6)
    assert found.doubly_robust.value == pytest.approx(0.6 + (2 * 0.5 + 2 * 0.5 - 2 * 0.5) / 4)
    assert found.effective == pytest.approx(6**2 / 12)


def test_the_estimators_find_a_truth_that_is_known_and_their_intervals_hold_it() -> None:
    chances = np.array([[0.1, 0.5, 0.9], [0.8, 0.4, 0.2]])  # Reward by context and action.
    logging, target = np.array([0.6, 0.3, 0.1]), np.array([[0.0, 0.1, 0.9], [0.9, 0.1, 0.0]])
    truth = (target * chances).sum(axis=1).mean()
    held, values = np.zeros(3), []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        context, action = rng.integers(0, 2, 400), rng.choice(3, 400, p=logging)
        reward = (rng.random(400) < chances[context, action]).astype(float)
        # A model of the reward that is wrong, so that only the correction makes it right.
        model = chances + 0.2
        found = estimates(
            reward,
            logging[action],
            target[context, action],
            model[context, action],
            (target * model).sum(axis=1)[context],
        )
        each = (found.ips, found.self_normalised, found.doubly_robust)
        held += [one.low <= truth <= one.high for one in each]
        values.append([one.value for one in each])
    assert np.mean(values, axis=0) == pytest.approx([truth] * 3, abs=0.02)
    assert (held >= 88).all()


def test_a_run_that_explored_tells_what_other_settings_earn_and_a_greedy_one_says_why_it_cannot(tmp_path: Path) -> None:
    tasks = sample_tasks("household-train")[:6]
    agent = an_agent(tmp_path / "explored", k1=4, k2=1, delta=-1.0, epsilon=0.5, weight=0.5)
    rewards = [
        trace.reward.reward
        for trace in agent.run(tasks, 4)
        if trace.reward and trace.decision and trace.decision.candidates
    ]
    same = would_have_earned(agent.bank, "r", {})
    assert same.effective == pytest.approx(same.steps) == len(rewards)
    assert same.ips.value == same.self_normalised.value == pytest.approx(np.mean(rewards))
    other = would_have_earned(agent.bank, "r", {"weight": 0.0, "epsilon": 0.0})
    assert 0 < other.effective < other.steps and other.heaviest > 1
    with pytest.raises(InputError):
        would_have_earned(agent.bank, "r", {"k2": 3})
    greedy = an_agent(tmp_path / "greedy", k1=4, k2=1, delta=-1.0)
    list(greedy.run(tasks, 4))
    with pytest.raises(InputError, match=r"ε of 0\.1"):
        would_have_earned(greedy.bank, "r", {"weight": 0.0})


def again_in(bank: MemoryBank) -> Callable[[StepTrace], Rerunner]:
    return lambda trace: Rerunner(bank, trace, SimulatedModel(), make_environment("household"))


def test_what_a_memory_earns_alone_is_told_from_what_its_company_earned(tmp_path: Path) -> None:
    alone = an_agent(tmp_path / "alone", k2=1)
    together = an_agent(tmp_path / "together", k2=3)
    shares = []
    for agent in (alone, together):
        list(agent.run(sample_tasks("household-train")[:4], 5))
        found = contamination(agent.bank, "r", again_in(agent.bank))
        assert found.share is not None
        table = found.memories.set_index("memory_id")
        assert {i: u.q for i, u in agent.bank.utilities("r").items() if u.visits} == pytest.approx(table["q"].to_dict())
        assert (table["q"] - table["earned"] - table["company"]).abs().max() < 1e-12
        shares.append(found.share)
    assert 0 <= shares[0] <= 1 and shares[1] > shares[0]
