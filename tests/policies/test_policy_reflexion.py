"""Reflexion: a failed try leaves words, which the next try of the same task reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.environments.tasks import sample_tasks
from memrl_core.guards import decision_breaks
from memrl_core.policies import make_policy
from memrl_core.policies.methods.reflexion import UNREADABLE, Reflection, laid_out
from memrl_core.records import Decision, Phase, Reason, RecallRecord, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import a_vector
from tests.models.forms import FillsForms
from tests.policies.policy_run import a_view, an_agent_of, cosines, outcomes, prompt_of

FOUR = sample_tasks("household-train")[:4]
STREAMS = st.lists(st.sampled_from("abc"), max_size=25)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[StepTrace]]:
    """Four tasks in four epochs under Reflexion."""
    agent = an_agent_of(tmp_path_factory.mktemp("reflexion") / "bank", "reflexion", seed=3)
    return agent, list(agent.run(FOUR, epochs=4))


def decided(view: MemoryView, **settings: Any) -> tuple[RecallRecord, Decision]:
    policy = make_policy("reflexion", settings)
    record = policy.recall(view.asked.embedding, view)
    return record, policy.select(record, view, 0)


# --- what is read -----------------------------------------------------------------------------------------------------


@given(STREAMS, st.integers(1, 10))
def test_the_last_reflections_on_this_very_task_are_read_in_the_order_of_the_tries(tasks: list[str], last: int) -> None:
    view = a_view(tasks, asked="a")
    record, decision = decided(view, last=last)
    own = [i for i in view.ids if view.memories[i].task == "a"]
    assert list(decision.selected) == own[-last:]
    assert [seen.memory_id for seen in record.pool] == own[-last:][::-1]
    assert record.rule == "same task"
    assert decision_breaks(record, decision) == ""


@given(STREAMS)
def test_of_what_is_not_read_the_five_nearest_are_shown(tasks: list[str]) -> None:
    view = a_view(tasks, asked="a")
    record, _ = decided(view)
    similarity = cosines(view)
    others = [i for i in view.ids if i not in {seen.memory_id for seen in record.pool}]
    nearest = sorted(others, key=lambda i: (-round(similarity[i], 9), i))[:5]
    assert [seen.memory_id for seen in record.left_out] == nearest
    assert [seen.reason for seen in record.left_out] == [
        Reason.NOT_RECENT if view.memories[i].task == "a" else Reason.OTHER_TASK for i in nearest
    ]


def test_a_task_that_is_met_for_the_first_time_reads_nothing_and_says_why() -> None:
    record, decision = decided(a_view("bbc", asked="a"))
    assert (record.pool, decision.selected, decision.mode) == ((), (), "fallback")
    assert record.why != decided(a_view("abc", asked="a"))[0].why != ""
    unknown, policy = replace(a_view("abc"), asked=None), make_policy("reflexion", {})
    record = policy.recall(a_vector(999), unknown)
    assert (record.pool, policy.select(record, unknown, 0).selected) == ((), ())


def test_memory_is_asked_at_the_beginning_of_a_task_only() -> None:
    policy = make_policy("reflexion", {})
    beginning, later = (policy.when(Asked(a_vector(1), turn=turn)) for turn in (0, 1))
    assert (beginning.now, later.now) == (True, False)


# --- what is written --------------------------------------------------------------------------------------------------


def test_only_a_failed_try_leaves_a_reflection(run: tuple[Any, list[StepTrace]]) -> None:
    agent, traces = run
    failed = [trace.step for trace, outcome in zip(traces, outcomes(traces), strict=True) if outcome == "failure"]
    assert 0 < len(failed) < len(traces)
    assert [memory.step for memory in agent.bank.memories("r")] == failed
    for trace in traces:
        asked = [one.purpose for one in trace.consulted if one.phase is Phase.WRITE]
        assert asked == (["reflection"] if trace.step in failed else [])


def test_a_run_reads_each_tasks_own_reflections(run: tuple[Any, list[StepTrace]]) -> None:
    agent, traces = run
    for trace in traces:
        earlier = [m for m in agent.bank.memories("r") if m.step < trace.step and m.task == trace.task.id][-3:]
        assert list(trace.decision.selected) == [memory.id for memory in earlier]
        assert all(memory.experience in prompt_of(trace) for memory in earlier)


def test_the_template_keeps_what_the_environment_lays_out(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "reflexion")
    for trace in agent.run(FOUR):
        layout = agent.environment.distil(trace.task, trace.generate.turns, "failure").strip()
        assert trace.reward.outcome == "failure"
        assert [operation.experience for operation in trace.write.operations] == [layout]


def test_a_reflection_by_hand() -> None:
    reflection = Reflection(root_cause="the pan\nwas cold", avoid=["> fry egg", " "], next_time=["heat pan", "fry egg"])
    assert laid_out("fry an egg", reflection) == (
        "Task: fry an egg\nWhat went wrong: the pan was cold\nAvoid:\n> fry egg\nTry instead:\n> heat pan\n> fry egg"
    )
    assert laid_out("fry an egg", Reflection(root_cause=" ", avoid=[], next_time=[""])) == ""


def test_a_language_model_reflects_on_its_try_and_on_what_it_told_itself_before(tmp_path: Path) -> None:
    form = {"root_cause": "I went to the wrong place.", "avoid": ["search drawer"], "next_time": ["search cabinet"]}
    model = FillsForms(lambda _: form)
    agent = an_agent_of(tmp_path / "bank", "reflexion", model)
    traces = list(agent.run(FOUR[:1], epochs=2))
    assert outcomes(traces) == ["failure", "failure"]
    text = agent.bank.memories("r")[0].experience
    assert text == (
        f"Task: {FOUR[0].intent}\nWhat went wrong: I went to the wrong place.\nAvoid:\n> search drawer\n"
        "Try instead:\n> search cabinet"
    )
    first, second = model.reported
    assert text not in first and text in second
    for trace, reported in zip(traces, model.reported, strict=True):
        assert all(
            f"> {turn.reply.text}\n{turn.observation.splitlines()[0]}" in reported for turn in trace.generate.turns
        )
        assert trace.reward.verdict not in reported


@pytest.mark.parametrize("filled", ["I do not know.", '{"root_cause": "", "avoid": [], "next_time": []}'])
def test_a_reflection_that_cannot_be_used_is_reported_and_moves_no_reward(tmp_path: Path, filled: str) -> None:
    agent = an_agent_of(tmp_path / "bank", "reflexion", FillsForms(lambda _: filled))
    trace = next(agent.run(FOUR))
    (operation,) = trace.write.operations
    assert "What went wrong: " in operation.experience
    assert operation.why == UNREADABLE
    assert trace.reward.reward == -1.0
