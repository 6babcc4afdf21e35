"""Every method's steps are decided again as they were: one by one, all in one pass, and after a late reward."""

from __future__ import annotations

import pytest

from memrl_core.agent import workspace
from memrl_core.analysis.compare.counterfactual import counterfactual
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.analysis.people.reward_effect import reward_effect
from memrl_core.bank import MemoryBank
from memrl_core.policies import POLICIES, policy_class

STEPS = 8


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """A run of each policy on four tasks, twice; then the second step of each gets a person's reward."""
    preferences = workspace.Preferences()
    embedder = workspace.make_embedder("hashing", preferences)
    made = MemoryBank.create(str(tmp_path_factory.mktemp("replays") / "bank"), embedder.name, embedder.dimension)
    with made.batch(STEPS):
        for name in POLICIES:
            workspace.start_run(
                made, environment="household", tasks="household-train", task_count=4, policy=name, run=name, seed=5
            )
            live = workspace.live_run(made, name, preferences)
            assert len(list(live.agent.run(live.tasks, 2))) == STEPS
    for name in POLICIES:
        row = made.step_rows(name)[1]
        made.give_reward(name, row.step, row.id, made.credited(name, row.step), 1.0, "ann")
    return made


@pytest.mark.parametrize("name", POLICIES)
def test_each_step_selects_again_what_it_selected(bank: MemoryBank, name: str) -> None:
    for trace in bank.traces(name):
        recall, decision = decided(situation_of(bank, trace))
        assert [m.memory_id for m in recall.pool] == [m.memory_id for m in trace.recall.pool]
        assert decision.selected == trace.decision.selected


@pytest.mark.parametrize("name", POLICIES)
def test_its_own_settings_make_no_difference_in_one_pass(bank: MemoryBank, name: str) -> None:
    found = counterfactual(bank, name, {})
    assert len(found) == STEPS
    assert [one.step for one in found if one.differs] == []


@pytest.mark.parametrize("name", ["memp", "memento", "memrl", "rag"])
def test_what_people_taught_follows_the_methods_own_rule(bank: MemoryBank, name: str) -> None:
    given = next(event for event in bank.events(name) if event.rater == "ann")
    keeps_q = policy_class(name).spec.keeps_q
    found = reward_effect(bank, name, [given.id])
    now, without = bank.histories(name), {**bank.histories(name), **found.without}
    for memory_id in given.memory_ids:
        assert (now[memory_id] != without[memory_id]) is keeps_q
