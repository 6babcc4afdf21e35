"""A world that pays for half a solution: the points move q, and only what the world calls solved counts as solved."""

from __future__ import annotations

from pathlib import Path

import pytest

from memrl_core.agent.learned_state import lesson_of
from memrl_core.bank import MemoryBank
from memrl_core.environments.base import Environment, EnvironmentSpec
from memrl_core.records import Judgement, StepTrace, Task
from tests.builders import an_agent
from tests.small_banks import give_reward


class Points(Environment):
    """Gives so many points of 100 for any answer; 100 solve it."""

    name = "points"
    spec = EnvironmentSpec("Points", "", "", "")
    instructions = "Answer."
    max_turns = 1

    def __init__(self, points: int) -> None:
        self.points = points

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        return "Go."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        judgement = Judgement("100", str(self.points), "counted")
        end = {"verdict": "Counted.", "success": self.points == 100, "judgement": judgement}
        return "", self.points / 100, True, False, end


def a_finished_step(path: Path, points: int) -> tuple[MemoryBank, StepTrace]:
    agent = an_agent(path)
    agent.environment = Points(points)
    return agent.bank, next(iter(agent.run([Task("t", "do it", "points")])))


@pytest.mark.parametrize(("points", "outcome"), [(0, "failure"), (50, "failure"), (80, "failure"), (100, "success")])
def test_half_a_solution_earns_its_points_and_is_none(tmp_path: Path, points: int, outcome: str) -> None:
    _, trace = a_finished_step(tmp_path / "bank", points)
    assert trace.reward.reward == pytest.approx(2 * points / 100 - 1)
    assert trace.reward.outcome == outcome
    assert trace.write.operations[0].outcome == outcome


def test_how_the_verdict_came_about_is_kept_and_reaches_no_memory(tmp_path: Path) -> None:
    bank, trace = a_finished_step(tmp_path / "bank", 37)
    assert trace.reward.judgement == Judgement("100", "37", "counted")
    kept = bank.trace(trace.run, trace.step)
    assert kept.reward.judgement == trace.reward.judgement
    assert "counted" not in trace.write.operations[0].experience


def test_a_person_who_rewards_it_decides_what_it_came_to(tmp_path: Path) -> None:
    bank, trace = a_finished_step(tmp_path / "bank", 80)
    assert lesson_of(bank, trace).outcome == "failure"
    give_reward(bank, trace.run, trace.step, trace.id, (), 1.0, "ann")
    assert lesson_of(bank, trace).outcome == "success"
