"""How far recalls get, and whether a model follows what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrl_core.agent import Agent
from memrl_core.agent.setup import give
from memrl_core.analysis.run.following import ENOUGH, follow_counts, funnel, latest_follows, measured_follows
from memrl_core.bank.people.ratings import Rating
from memrl_core.environments import make_environment
from memrl_core.environments.helpdesk import Helpdesk
from memrl_core.figures.run.reliability import funnel_picture
from memrl_core.models.simulated import SimulatedModel
from memrl_core.prompting import offered
from memrl_core.records import Message, Reply
from tests.builders import an_agent, an_agent_after


class Deaf(SimulatedModel):
    """A model that reads no memory: its answers are those offered, in an order of its own."""

    asked = 0

    def chat(self, messages: Sequence[Message], *args: Any, **kwargs: Any) -> Reply:
        choices = offered(messages[-1].content)
        self.asked += 1
        return Reply(choices[self.asked**2 * 7 % 11 % len(choices)])


def desk(path: Path, model: SimulatedModel, messages: int) -> Agent:
    """An agent that has met so many messages of a help desk, with its handbook."""
    agent = an_agent(path, model, "helpdesk")
    agent.environment = make_environment("helpdesk", house=3)
    first = [(intent, experience, "") for intent, experience in agent.environment.first_memories()]
    give(agent.bank, "r", "given", first, agent.embedder)
    list(agent.run(Helpdesk.make_tasks("helpdesk-train")[:messages]))
    return agent


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ignores"), [(SimulatedModel, False), (Deaf, True)])
def test_a_model_that_does_not_follow_is_named_from_thirty_steps_on(
    tmp_path: Path, model: type[SimulatedModel], ignores: bool
) -> None:
    agent = desk(tmp_path / "bank", model(), 2 * ENOUGH)
    traces = agent.bank.traces("r")
    counts = follow_counts(traces)
    assert counts.steps >= ENOUGH and 0 < counts.by_chance < counts.steps / 2
    assert bool(counts.warning) is ignores is (counts.followed < counts.steps / 2)
    assert ("utilities learn noise" in counts.warning) is ignores
    assert not follow_counts(traces[: ENOUGH - 1]).warning, "too few to say so"
    assert latest_follows(agent.bank, "r", len(traces)) == counts
    assert counts.taken <= counts.at_hand <= counts.judged <= counts.steps


def test_what_was_measured_of_a_model_goes_by_the_digest_of_its_weights() -> None:
    shipped = measured_follows()
    assert shipped
    for one in shipped:
        assert len(one.digest) == 64 and measured_follows(one.digest) == [one]
        assert one.taken <= one.at_hand <= one.judged <= one.steps >= one.followed > 0
        assert f"(n = {one.steps:,})" in one.sentence
    assert measured_follows("0" * 64) == []


def test_in_tasks_of_several_turns_only_a_model_that_never_follows_is_named(tmp_path: Path) -> None:
    traces = an_agent_after(tmp_path / "bank", 45).bank.traces("r")
    counts = follow_counts(traces)
    assert counts.steps >= ENOUGH and 0 < counts.followed < counts.steps / 5 and not counts.warning
    never = [replace(t, follows=replace(t.follows, memories=())) if t.follows else t for t in traces]
    assert f"answer from a memory 0 of {counts.steps}" in follow_counts(never).warning


def test_a_funnel_counts_how_far_each_step_came_as_its_reward_counts_now(tmp_path: Path) -> None:
    bank = desk(tmp_path / "bank", SimulatedModel(), 30).bank
    found = funnel(bank, "r").set_index("stage")
    traces = bank.traces("r")
    followed = [t for t in traces if t.follows and t.follows.memories]
    right = [t for t in followed if t.reward and t.reward.outcome == "success"]
    assert found["steps"].to_dict() == {
        "recalled": sum(bool(t.recall and t.recall.pool) for t in traces),
        "selected": sum(bool(t.decision and t.decision.selected) for t in traces),
        "followed": len(followed),
        "right": len(right),
    }
    assert found.loc["recalled", "of"] == len(traces) and found.loc["right", "of"] == len(followed)
    bank.write.ratings.rate(Rating("r", right[0].step, -1.0, "ann", ""))
    assert funnel(bank, "r").set_index("stage").loc["right", "steps"] == len(right) - 1
    picture = funnel_picture(funnel(bank, "r"))
    assert [*picture.figure["data"][1]["x"]] == [*funnel(bank, "r")["steps"]]
    assert f"{len(right) - 1:,} got a right answer" in picture.title


def test_a_funnel_that_is_cancelled_ends(tmp_path: Path) -> None:
    bank = desk(tmp_path / "bank", SimulatedModel(), 6).bank
    seen: list[int] = []
    funnel(bank, "r", lambda done, _: seen.append(done), lambda: len(seen) >= 3)
    assert seen == [1, 2, 3]
