"""One step's question put to every method."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memrl_core.agent import Agent
from memrl_core.analysis.decision.whatif import on_this_pool
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.policies import POLICIES
from tests.builders import an_agent


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    made = an_agent(tmp_path_factory.mktemp("pool") / "bank", delta=-1.0)
    for task in sample_tasks("household-train")[:6] * 3:
        made.begin(task).finish()
    return made


def test_every_method_answers_from_the_very_pool_of_the_step(agent: Agent) -> None:
    trace = agent.bank.trace("r", 18)
    found = on_this_pool(agent.bank, trace, POLICIES)
    assert [one.spec.name for one in found] == list(POLICIES)
    pool = {member.memory_id for member in trace.recall.pool}
    for one in found:
        assert one.problem == ""
        assert set(one.decision.selected) <= pool


def test_the_runs_own_method_says_what_it_did(agent: Agent) -> None:
    trace = agent.bank.trace("r", 18)
    for own_recall in (False, True):
        (one,) = on_this_pool(agent.bank, trace, ["memrl"], own_recall) or ()
        assert one.decision.selected == trace.decision.selected
        assert one.given and trace.generate.messages[-1].content.startswith(one.given)


def test_with_its_own_recall_a_method_goes_by_recency(agent: Agent) -> None:
    trace = agent.bank.trace("r", 18)
    (recent,) = on_this_pool(agent.bank, trace, ["exprecent"], own_recall=True) or ()
    newest = [memory.id for memory in agent.bank.memories("r") if memory.step < 18][-3:]
    assert set(recent.decision.selected) == set(newest)


def test_nothing_is_appended(agent: Agent) -> None:
    before = agent.bank.facts
    on_this_pool(agent.bank, agent.bank.trace("r", 9), POLICIES, own_recall=True)
    assert agent.bank.facts == before


def test_it_can_be_stopped_and_tells_how_far_it_is(agent: Agent) -> None:
    reported: list[tuple[int, int]] = []
    trace = agent.bank.trace("r", 9)
    on_this_pool(agent.bank, trace, ["rag", "none"], on_progress=lambda done, total: reported.append((done, total)))
    assert reported == [(1, 2), (2, 2)]
    assert on_this_pool(agent.bank, trace, POLICIES, cancelled=lambda: len(reported) > 1) is None


def test_a_step_without_its_pool_gets_a_sentence(agent: Agent) -> None:
    trace = replace(agent.bank.trace("r", 9), recall=None)
    with pytest.raises(InputError):
        on_this_pool(agent.bank, trace, ["rag"])
