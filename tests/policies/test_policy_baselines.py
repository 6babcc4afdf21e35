"""The plain arms: no memory, pass@k, RAG, ExpRAG and ExpRecent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent import Agent
from memrl_core.agent.learned_state import learned_now
from memrl_core.environments.tasks import sample_tasks
from memrl_core.policies import make_policy
from memrl_core.policies.base import Lesson
from memrl_core.policies.methods.exprag import templated
from memrl_core.policies.methods.pass_at_k import PassAtK, Tries
from memrl_core.records import Outcome, Reason, RewardRecord, StepTrace, Task
from tests.builders import a_step, numbers
from tests.policies.policy_run import a_view, an_agent_of, cosines, outcomes, prompt_of
from tests.small_banks import give_reward

FOUR = sample_tasks("household-train")[:4]
CONTROLS = ("none", "pass_at_k")
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "unrated")
STREAMS = st.lists(st.sampled_from("abc"), max_size=25)


Runs = dict[str, tuple[Agent, list[StepTrace]]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Four tasks in three epochs, without memory and with experiences."""
    path = tmp_path_factory.mktemp("runs")
    agents = {name: an_agent_of(path / name, name) for name in ("none", "exprag", "exprecent")}
    return {name: (agent, list(agent.run(FOUR, epochs=3))) for name, agent in agents.items()}


def asked_vector(view: Any) -> np.ndarray:
    vector: np.ndarray = view.asked.embedding
    return vector


# --- without memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_arm_reads_and_writes_no_memory(tmp_path: Path, name: str) -> None:
    agent = an_agent_of(tmp_path / "bank", name)
    for trace in agent.run(FOUR, epochs=2):
        assert (trace.recall.rule, trace.recall.pool, trace.decision.selected) == ("nothing", (), ())
        assert trace.recall.why
        assert "[memory" not in prompt_of(trace)
        assert trace.write.operations == ()
    assert agent.bank.view("r").size == 0


# --- pass@k -----------------------------------------------------------------------------------------------------------


def a_try(number: int, task: str, outcome: Outcome) -> Lesson:
    """A judged try of a task, as pass@k learns from it."""
    trace, vectors = a_step(number)
    reward = {"success": 1.0, "failure": -1.0, "unrated": None}[outcome]
    record = RewardRecord(reward, "environment", outcome, "", "", "", ())
    trace = replace(trace, task=Task(task, "do it", "household"), reward=record)
    return Lesson(trace, reward, outcome, vectors.__getitem__, {}.__getitem__)


def tried(tries: Sequence[tuple[str, Outcome]]) -> Tries:
    policy, state = PassAtK(PassAtK.Settings()), Tries()
    for number, (task, outcome) in enumerate(tries, start=1):
        policy.learn(state, a_try(number, task, outcome))
    return state


def test_a_try_that_nobody_judged_is_not_counted() -> None:
    assert tried([("a", "unrated"), ("a", "success")]) == tried([("a", "success")])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.integers(1, 6))
def test_pass_at_k_is_the_share_of_tasks_with_a_success_among_their_first_k_tries(
    stream: list[tuple[str, bool]], k: int
) -> None:
    state = tried([(task, "success" if won else "failure") for task, won in stream])
    first_k = {task: [won for other, won in stream if other == task][:k] for task in dict(stream)}
    assert state.solved_within(k) == sum(any(tries) for tries in first_k.values())
    assert len(state.tries) == len(first_k)


def test_a_try_tells_which_one_it_is_and_the_pass_at_k_before_it() -> None:
    policy = make_policy("pass_at_k", {})
    state = tried([("a", "failure"), ("b", "success"), ("a", "failure"), ("c", "failure")])

    def note(task: str) -> str:
        view = a_view("", asked=task, learned=state)
        return policy.select(policy.recall(asked_vector(view), view), view, 0).note

    assert numbers(note("a")) == ["3", "2", "1", "3"]
    assert numbers(note("b"))[-1] == "1"


def test_a_reward_that_is_given_later_sets_the_flag(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "pass_at_k")
    trace = next(agent.run(FOUR))
    assert outcomes([trace]) == ["failure"]
    assert learned_now(agent.bank, "r") == Tries({FOUR[0].id: 1}, set())
    give_reward(agent.bank, "r", 1, trace.id, (), 1.0, "ann", "")
    assert learned_now(agent.bank, "r") == Tries({FOUR[0].id: 1}, {FOUR[0].id})


# --- RAG and ExpRAG ---------------------------------------------------------------------------------------------------


@given(STREAMS, st.integers(0, 6))
@pytest.mark.parametrize("name", ["rag", "exprag"])
def test_the_k_most_similar_are_selected(name: str, tasks: list[str], k2: int) -> None:
    view = a_view(tasks, asked="a")
    policy = make_policy(name, {"delta": -1.0, "k2": k2})
    decision = policy.select(policy.recall(asked_vector(view), view), view, 0)
    similarity = cosines(view)
    assert list(decision.selected) == sorted(view.ids, key=lambda i: (-round(similarity[i], 9), i))[:k2]


def test_an_experience_ends_with_its_label_once() -> None:
    text = "Task: fry an egg\nSteps that worked:\n> heat the pan\n"
    labels = set()
    for outcome in OUTCOMES:
        labelled = templated(text, outcome)
        labels.add(labelled.removeprefix(text))
        assert templated(labelled, outcome) == labelled
    assert len(labels) == 3 and all(label.startswith("Feedback: ") for label in labels)


@pytest.mark.parametrize("name", ["exprag", "exprecent"])
def test_every_episode_becomes_an_experience_with_the_label_of_its_outcome(runs: Runs, name: str) -> None:
    agent, traces = runs[name]
    memories = agent.bank.memories("r")
    assert [memory.outcome for memory in memories] == outcomes(traces)
    assert set(outcomes(traces)) == {"success", "failure"}
    for memory in memories:
        assert templated(memory.experience, memory.outcome) == memory.experience


def test_a_memory_of_another_policy_gets_its_label_in_the_prompt() -> None:
    view = a_view("ab", asked="a")
    messages, spans = make_policy("exprag", {}).render(
        list(view.memories.values()), "Act.", "do a", "You see an egg.", view
    )
    for span in spans:
        shown = messages[span.message].content[span.start : span.end]
        memory = view.memories[span.memory_id]
        assert shown == f"[memory {memory.id}]\n{templated(f'Task: do {memory.task}', 'failure')}"


def test_exprag_gives_four_experiences_and_has_no_gate(runs: Runs) -> None:
    for trace in runs["exprag"][1]:
        assert len(trace.decision.selected) == min(4, trace.step - 1)


# --- ExpRecent --------------------------------------------------------------------------------------------------------


@given(STREAMS, st.integers(1, 12), st.booleans())
def test_the_newest_are_recalled_and_the_nearest_others_shown(tasks: list[str], k1: int, excludes: bool) -> None:
    view = a_view(tasks, asked="a")
    policy = make_policy("exprecent", {"k1": k1, "k2": 0, "exclude_same_task": excludes})
    record = policy.recall(asked_vector(view), view)
    similarity = cosines(view)
    eligible = [i for i in reversed(view.ids) if not (excludes and view.memories[i].task == "a")]
    others = [i for i in view.ids if i not in eligible[:k1]]
    nearest = sorted(others, key=lambda i: (-round(similarity[i], 9), i))[:5]
    assert record.rule == "recency"
    assert [seen.memory_id for seen in record.pool] == eligible[:k1]
    assert [seen.memory_id for seen in record.left_out] == nearest
    for seen in (*record.pool, *record.left_out):
        assert seen.similarity == pytest.approx(similarity[seen.memory_id], abs=1e-8)
    by_age = [*eligible, *(i for i in reversed(view.ids) if i not in eligible)]
    assert all(by_age[seen.rank_recall - 1] == seen.memory_id for seen in (*record.pool, *record.left_out))
    assert [seen.reason for seen in record.left_out] == [
        Reason.NOT_RECENT if i in eligible else Reason.SAME_TASK for i in nearest
    ]
