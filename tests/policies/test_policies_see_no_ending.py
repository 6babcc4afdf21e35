"""No policy sees how the task under way ends before its feedback; labels of tasks are the contract's own check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.environments.base import EnvironmentSpec
from memrl_core.policies import POLICIES
from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICE_MARK, CHOICES, STEPS_THAT_WORKED, TASK_LINE
from memrl_core.records import Outcome, Phase, RewardSource, StepTrace, Task, Turn
from tests.policies.policy_run import an_agent_of

THINGS = ("egg", "cup", "egg", "cup", "egg", "egg")
TASKS = [Task(f"t-{thing}", f"put the {thing} on the desk", "two-turns") for thing in THINGS]
UNDER_WAY = (Phase.EMBED, Phase.RECALL, Phase.SELECT, Phase.GENERATE)


class TwoTurns:
    """A world of two turns that says the same whatever its verdict; one that `tells` gives it away at the beginning."""

    name = "two-turns"
    spec = EnvironmentSpec("Two turns", "Put a thing on the desk.", "By the world.", "A test.")
    reward_source: RewardSource = "environment"
    instructions = "Answer with one of the lines offered."
    max_turns = 2
    repeats = 0

    def __init__(self, verdict: float, tells: bool = False) -> None:
        self.verdict, self.tells = verdict, tells

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        self.turn = 0
        return _offer(f"The kitchen. {self.verdict if self.tells else ''}", "take it", "leave it", "look")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        if self.turn < self.max_turns:
            return _offer(f"You {action}.", "put it on the desk", "put it on the shelf"), 0.0, False, False, {}
        return "It is over.", self.verdict, True, False, {"verdict": f"{self.verdict}", "success": bool(self.verdict)}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        lines = "".join(f"{ANSWER_MARK}{turn.reply.text}\n" for turn in turns)
        return f"{TASK_LINE}{task.intent}\n{AVOID if outcome == 'failure' else STEPS_THAT_WORKED}\n{lines}"


def _offer(reported: str, *choices: str) -> str:
    return "\n".join([reported, CHOICES, *(CHOICE_MARK + choice for choice in choices)])


def before_feedback(trace: StepTrace) -> Any:
    """Everything of a step that came about before its reward."""
    sent = (trace.generate.options, trace.generate.messages, trace.generate.spans)
    turns = [(turn.reply.text, turn.observation, turn.recalled) for turn in trace.generate.turns]
    asked = [one for one in trace.consulted if one.phase in UNDER_WAY]
    return repr((trace.embed, trace.recall, trace.decision, sent, turns, asked))


def both_endings(path: Path, policy: str, tells: bool = False) -> list[tuple[StepTrace, StepTrace]]:
    """Each step twice from the same memory: abandoned after UPDATE with one verdict, then ended with the other."""
    agent = an_agent_of(path, policy)
    worlds = [
        Agent(agent.bank, "r", agent.model, agent.embedder, TwoTurns(verdict, tells=tells)) for verdict in (0.0, 1.0)
    ]
    steps = []
    for number, task in enumerate(TASKS):
        ends, other = worlds[number % 2], worlds[1 - number % 2]
        abandoned = other.begin(task)
        while abandoned.phase is not Phase.WRITE:
            abandoned.advance()
        steps.append((abandoned.trace, ends.begin(task).finish()))
    return steps


@pytest.mark.parametrize("policy", POLICIES)
def test_until_its_feedback_a_step_is_the_same_however_it_ends(tmp_path: Path, policy: str) -> None:
    for abandoned, ended in both_endings(tmp_path / "bank", policy):
        assert abandoned.reward.outcome != ended.reward.outcome
        assert before_feedback(abandoned) == before_feedback(ended), f"Step {ended.step} knew how it would end."


def test_a_step_that_knows_how_it_will_end_is_noticed(tmp_path: Path) -> None:
    for abandoned, ended in both_endings(tmp_path / "bank", "rag", tells=True):
        assert before_feedback(abandoned) != before_feedback(ended)
