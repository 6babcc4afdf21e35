"""No policy sees how the task under way ends before its feedback, nor ever what only the environment may know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.environments.base import EnvironmentSpec
from memrl_core.policies import POLICIES
from memrl_core.policies.base import NewExperience, one_memory
from memrl_core.policies.methods.rag import Rag
from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICE_MARK, CHOICES, STEPS_THAT_WORKED, TASK_LINE
from memrl_core.records import Outcome, Phase, RewardSource, StepTrace, Task, Turn
from memrl_core.retrieval.view import MemoryView
from tests.policies.foreign import installed
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


# --- labels -----------------------------------------------------------------------------------------------------------

LABELLED = (
    [replace(task, family="heat", data={"treatment": "heat", "answer": "stove"}) for task in TASKS],
    [replace(task, family=f"f-{n}", data={"treatment": f"t-{n}", "level": n}) for n, task in enumerate(TASKS)],
)


def lived(path: Path, policy: str, tasks: Sequence[Task]) -> list[Any]:
    """All that a policy has decided, learned and written over some tasks, with the embeddings of its memories."""
    agent = an_agent_of(path, policy)
    reported = []
    for number, task in enumerate(tasks):
        world = TwoTurns(float(number % 2 == 0))
        trace = Agent(agent.bank, "r", agent.model, agent.embedder, world).begin(task).finish()
        reported.append((before_feedback(trace), repr((trace.reward, trace.update, trace.write)), trace.consulted))
    vectors = {i: agent.bank.embedding(i).tolist() for i in agent.bank.view("r").ids}
    return [*reported, {i: (u.q, u.visits) for i, u in agent.bank.utilities("r").items()}, vectors]


def same_under_other_labels(path: Path, policy: str) -> bool:
    one, other = (lived(path / str(number), policy, tasks) for number, tasks in enumerate(LABELLED))
    return one == other


@pytest.mark.parametrize("policy", POLICIES)
def test_other_labels_of_the_tasks_change_nothing(tmp_path: Path, policy: str) -> None:
    assert same_under_other_labels(tmp_path, policy)


@pytest.mark.parametrize("label", ["family", "data"])
def test_a_policy_that_reads_a_label_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str) -> None:
    class Reads(Rag):
        spec = replace(Rag.spec, name="reads")

        def write(self, new: NewExperience, view: MemoryView, ask: Any) -> Any:
            reported = replace(new, experience=f"{new.experience}{getattr(new.trace.task, label)}")
            return (one_memory(reported, view, self.settings),)

    with installed(monkeypatch, reads=Reads):
        assert not same_under_other_labels(tmp_path, "reads")
