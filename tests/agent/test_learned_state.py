"""What a policy has learned beyond q is the fold of its run's steps under the rewards that stand."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from memrl_core import policies
from memrl_core.agent import Agent
from memrl_core.agent.asking import view_before
from memrl_core.agent.learned_state import KEPT_EVERY, learned_before, learned_now, learned_steps
from memrl_core.agent.runs import fork
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import PolicyFailed
from memrl_core.policies.base import Lesson
from memrl_core.policies.methods.rag import Rag
from memrl_core.records import Memory, Phase, ValueChange
from tests.builders import a_run, an_agent
from tests.small_banks import give_reward


@dataclass
class Tally:
    """The rewards of each task, and what was written."""

    rewards: dict[str, list[float]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)


class Tallying(Rag):
    """RAG that keeps a tally."""

    fails_in: ClassVar[str] = ""
    spec = replace(Rag.spec, name="tallying", feedback=("episode reward", "human"), learns="counts")

    def start(self, memories: Sequence[Memory]) -> Tally:
        return Tally(written=[memory.id for memory in memories])

    def learn(self, state: Tally, lesson: Lesson) -> tuple[ValueChange, ...]:
        if lesson.reward is None:
            return ()
        reported = state.rewards.setdefault(lesson.trace.task.id, [])
        reported.append(lesson.reward)
        name = f"sum of {lesson.trace.task.id}"
        before, after = sum(reported[:-1]), sum(reported)
        if self.fails_in == "learn":
            raise ValueError("no")
        return (ValueChange("", before, after, len(reported), lesson.reward, 1.0, "parameters", name),)

    def remember(self, state: Tally, lesson: Lesson) -> None:
        state.written += [operation.memory_id for operation in lesson.trace.write.operations if operation.op == "ADD"]
        if self.fails_in == "remember":
            raise ValueError("no")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    policies.REGISTRY.loaded.cache_clear()
    monkeypatch.setattr(policies.REGISTRY, "foreign", lambda: {"tallying": SimpleNamespace(load=lambda: Tallying)})
    yield
    policies.REGISTRY.loaded.cache_clear()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    made = an_agent(tmp_path / "bank", run="base")
    made.bank.write.start_run(replace(a_run("r"), policy="tallying", settings=Rag.Settings().model_dump()))
    made.run_id = "r"
    return made


def steps(agent: Agent, count: int) -> None:
    tasks = sample_tasks("household-train")[:4]
    for _ in range(count):
        agent.begin(tasks[(agent.bank.next_step(agent.run_id) - 1) % len(tasks)]).finish()


def by_hand(agent: Agent, run: str, until: int | None = None) -> dict[str, list[float]]:
    """The tally from the ledger alone."""
    reported: dict[str, list[float]] = {}
    for row in agent.bank.steps.rows(run):
        reward = agent.bank.ratings.effective(run, row.step)
        if reward is not None and (until is None or row.step < until):
            reported.setdefault(row.task, []).append(reward)
    return reported


def test_a_run_learns_from_each_of_its_steps(agent: Agent) -> None:
    steps(agent, 7)
    state = learned_now(agent.bank, "r")
    assert state.rewards == by_hand(agent, "r")
    assert state.written == [memory.id for memory in agent.bank.memories("r")]


def test_every_earlier_state_can_be_had_again(agent: Agent) -> None:
    steps(agent, KEPT_EVERY + 6)
    for step in (1, 2, KEPT_EVERY, KEPT_EVERY + 1, KEPT_EVERY + 6):
        assert learned_before(agent.bank, "r", step).rewards == by_hand(agent, "r", step)
    walked = {
        trace.step: {t: list(r) for t, r in state.rewards.items()} for trace, state in learned_steps(agent.bank, "r")
    }
    assert walked == {step: by_hand(agent, "r", step) for step in walked}


def test_a_copy_of_a_state_is_the_askers_own(agent: Agent) -> None:
    steps(agent, 3)
    learned_before(agent.bank, "r", 4).rewards.clear()
    assert learned_now(agent.bank, "r").rewards == by_hand(agent, "r")


def test_a_late_reward_and_its_undo_make_the_fold_anew(agent: Agent) -> None:
    steps(agent, 5)
    before = learned_now(agent.bank, "r").rewards
    row = agent.bank.steps.rows("r")[1]
    given = give_reward(agent.bank, "r", 2, row.id, (), 0.25, "ann")
    assert 0.25 in learned_now(agent.bank, "r").rewards[row.task]
    agent.bank.write.ratings.revoke(given.id, "ann")
    assert learned_now(agent.bank, "r").rewards == by_hand(agent, "r")
    steps(agent, 1)
    assert learned_now(agent.bank, "r").rewards == by_hand(agent, "r") != before


def test_a_reward_counts_for_the_steps_that_began_after_it(agent: Agent) -> None:
    steps(agent, 6)
    as_it_was = {step: learned_before(agent.bank, "r", step).rewards for step in range(1, 7)}
    row = agent.bank.steps.rows("r")[1]
    give_reward(agent.bank, "r", 2, row.id, (), 0.25, "ann")
    steps(agent, 2)
    give_reward(agent.bank, "r", 3, agent.bank.steps.rows("r")[2].id, (), 0.75, "ann")
    steps(agent, 1)
    for step, rewards in as_it_was.items():
        assert learned_before(agent.bank, "r", step).rewards == rewards
    for step in (7, 8):
        reported = [reward for rewards in learned_before(agent.bank, "r", step).rewards.values() for reward in rewards]
        assert 0.25 in reported and 0.75 not in reported
    assert learned_before(agent.bank, "r", 9).rewards == by_hand(agent, "r", 9)
    walked = {trace.step: copy.deepcopy(state.rewards) for trace, state in learned_steps(agent.bank, "r")}
    assert walked == {step: learned_before(agent.bank, "r", step).rewards for step in walked}


def test_an_attempt_that_never_ended_teaches_nothing(agent: Agent) -> None:
    steps(agent, 2)
    episode = agent.begin(sample_tasks("household-train")[2])
    while episode.phase is not Phase.WRITE:
        episode.advance()
    assert episode.trace.update.changes
    assert learned_now(agent.bank, "r").rewards == by_hand(agent, "r")
    steps(agent, 1)
    assert learned_now(agent.bank, "r").rewards == by_hand(agent, "r")


@pytest.mark.parametrize("hook", ["learn", "remember"])
def test_a_policy_that_failed_halfway_learns_the_step_once(
    agent: Agent, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(agent, 2)
    with monkeypatch.context() as broken:
        broken.setattr(Tallying, "fails_in", hook)
        for _ in range(2):
            with pytest.raises(PolicyFailed):
                steps(agent, 2)
    state = learned_now(agent.bank, "r")
    assert (state.rewards, state.written) == (by_hand(agent, "r"), [m.id for m in agent.bank.memories("r")])


def test_what_is_learned_in_a_step_stands_in_its_trace(agent: Agent) -> None:
    steps(agent, 5)
    trace = agent.bank.trace("r", 5)
    (change,) = trace.update.changes
    assert (change.target, change.name) == ("parameters", f"sum of {trace.task.id}")
    assert (change.before, change.after) == (
        sum(by_hand(agent, "r", 5)[trace.task.id]),
        sum(by_hand(agent, "r")[trace.task.id]),
    )


def test_a_fork_knows_what_its_base_had_learned(agent: Agent) -> None:
    steps(agent, 6)
    forked = fork(agent.bank, "r", 4, agent.bank.settings("r"), "f")
    assert learned_now(agent.bank, forked.id).rewards == by_hand(agent, "r", 4)


def test_a_run_after_another_policy_begins_with_its_memories(agent: Agent) -> None:
    agent.run_id = "base"
    steps(agent, 3)
    info = replace(a_run("after", base="base", base_step=3), policy="tallying", settings=Rag.Settings().model_dump())
    agent.bank.write.start_run(info)
    state = learned_now(agent.bank, "after")
    assert state.rewards == {}
    assert state.written == [memory.id for memory in agent.bank.memories("base")]


def test_a_policy_can_watch_the_run_of_another(agent: Agent) -> None:
    agent.run_id = "base"
    steps(agent, 5)
    view = view_before(agent.bank, agent.bank.trace("base", 4), "tallying")
    assert view.learned.rewards == by_hand(agent, "base", 4)
    assert view.asked.task == agent.bank.trace("base", 4).task.id
