"""EMPO² memory (no GRPO): which tips are read, in which order, how new a state is, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrl_core.agent import Agent
from memrl_core.agent.asking import templates
from memrl_core.agent.learned_state import learned_now
from memrl_core.policies import make_policy
from memrl_core.policies.base import NewExperience
from memrl_core.policies.methods.empo2_memory import Kept, Tip, Tips
from memrl_core.records import Decision, Outcome, Reason, StepTrace
from memrl_core.retrieval.view import MemoryView
from tests.builders import alike_tasks
from tests.policies.policy_run import a_view, an_agent_of
from tests.small_banks import give_reward

HOUSEHOLD = alike_tasks()


def turned(
    cosines: Sequence[float], scores: Sequence[float], lists: Sequence[str] = (), asked: str = "t"
) -> MemoryView:
    """Memories m-00, … with these cosines to what is asked, kept with these scores in these lists."""
    view = a_view([f"task {n}" for n in range(len(cosines))], asked)
    vectors = [[c, (1 - c * c) ** 0.5] for c in cosines]
    tips = Tips(met={"t"})
    for memory_id, score, listed in zip(view.ids, scores, lists or ["t"] * len(scores), strict=True):
        tips.kept[memory_id] = Kept(listed, score, "text")
    query = replace(view.asked, embedding=np.array([1, 0], np.float32))
    return replace(view, embeddings=np.array(vectors, np.float32).reshape(-1, 2), asked=query, learned=tips)


def decided(view: MemoryView, seed: int = 1, **settings: Any) -> Decision:
    policy = make_policy("empo2_memory", settings)
    return policy.select(policy.recall(view.asked.embedding, view), view, seed)


def terms_of(decision: Decision) -> dict[str, tuple[float, float]]:
    return {term.name: (term.raw, term.weight) for term in decision.candidates[0].terms}


# --- which tips -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "order"), [("code", ("m-03", "m-02", "m-00", "m-01")), ("paper", ("m-00", "m-01", "m-02", "m-03"))]
)
def test_tips_beyond_the_gate_are_ordered_by_score_or_by_similarity(variant: str, order: tuple[str, ...]) -> None:
    view = turned([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [0.2, 0.0, 0.5, 1.0, 1.0, 1.0])
    decision = decided(view, variant=variant)
    assert decision.selected == order
    assert {c.memory_id for c in decision.candidates if c.reason is Reason.BELOW_DELTA} == {"m-04", "m-05"}


def test_the_best_score_is_found_however_many_are_more_similar() -> None:
    view = turned([0.95 - n / 1000 for n in range(60)], [0.0] * 59 + [1.0])
    decision = decided(view, k1=3, k2=1)
    assert decision.selected == ("m-59",)
    assert next(c.memory_id for c in decision.candidates if c.reason is Reason.BEYOND_K1) == "m-02"
    assert [c.rank_recall for c in decision.candidates][:3] == [60, 1, 2]


def test_tips_of_other_lists_are_not_read_but_by_a_task_that_was_never_met() -> None:
    scores, q, tasks = [0.9, 0.8, 0.7], [1, 1, 1], ["other", "t", "other"]
    assert decided(turned(scores, q, tasks)).selected == ("m-01",)
    assert len(decided(turned(scores, q, tasks, asked="new")).selected) == 3


@pytest.mark.parametrize(("outcome", "score"), [("success", 1.0), ("failure", 0.0), ("unrated", 0.5)])
def test_a_memory_whose_step_was_never_seen_counts_by_its_outcome(outcome: Outcome, score: float) -> None:
    view = turned([0.9], [1.0])
    memories = {"m-00": replace(view.memories["m-00"], outcome=outcome)}
    decision = decided(replace(view, memories=memories, learned=Tips(met={"t"})))
    assert terms_of(decision)["score"] == (score, 1.0)


# --- novelty ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tips", "novelty"), [(1, 1 / 2), (3, 1 / 4), (10, 1 / 11), (15, 1 / 11)])
def test_novelty_falls_with_the_tips_that_are_found(tips: int, novelty: float) -> None:
    decision = decided(turned([0.9] * tips, [0.5] * tips))
    assert terms_of(decision)["novelty"] == (pytest.approx(novelty), 0.0)
    assert (decision.mode, decision.epsilon, decision.draw) == ("greedy", 0.0, None), "nothing is explored unasked"


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agent, list[StepTrace]]:
    """Four household tasks, three times each."""
    agent = an_agent_of(tmp_path_factory.mktemp("empo2") / "bank", "empo2_memory", seed=2)
    return agent, list(agent.run(HOUSEHOLD[:4], epochs=3))


def written(trace: StepTrace, op: str = "ADD") -> list[Any]:
    return [one for one in trace.write.operations if one.op == op]


def said_in(trace: StepTrace) -> list[str]:
    return [turn.reply.text for turn in trace.generate.turns]


def test_each_turn_leaves_a_record_of_tip_action_and_score(ran: Any) -> None:
    _, traces = ran
    for trace in traces:
        adds, twins = written(trace), written(trace, "NOOP")
        assert len(adds) + len(twins) == len(said_in(trace))
        (tip,) = [one.filled["tip"] for one in trace.consulted]
        score = f"{float(trace.reward.outcome == 'success'):.2f}"
        for one in adds:
            action = next(message for message in said_in(trace) if one.data["text"] == f"{tip}; {message}; {score}")
            end = f"Action taken:\n> {action}\nFinal score: {score}"
            assert one.experience == f"Task: {trace.task.intent}\nTip: {tip}\n{end}"


def test_the_records_of_an_episode_have_the_key_of_its_last_prompt(ran: Any) -> None:
    agent, traces = ran
    for trace in traces[:3]:
        seen = trace.generate.turns[-2].observation
        (key,) = agent.embedder.embed([f"{trace.task.intent}\n{seen}"])
        for one in written(trace):
            assert np.array_equal(agent.bank.embedding(one.memory_id), key)


def test_the_same_text_is_kept_once(ran: Any) -> None:
    agent, traces = ran
    texts = [(one.data["list"], one.data["text"]) for trace in traces for one in written(trace)]
    assert len(texts) == len(set(texts)) == agent.bank.view("r").size
    twins = [one for trace in traces for one in written(trace, "NOOP")]
    assert twins
    kept = learned_now(agent.bank, "r").kept
    assert all(kept[one.duplicate_of].text == one.data["text"] for one in twins)


def test_a_late_reward_changes_the_score_of_the_tips(ran: Any) -> None:
    agent, traces = ran
    trace = next(trace for trace in traces if trace.reward.outcome == "failure" and written(trace))
    tip = written(trace)[0].memory_id
    assert learned_now(agent.bank, "r").kept[tip].score == 0.0
    event = give_reward(agent.bank, "r", trace.step, trace.id, (), 0.5, "ada")
    assert learned_now(agent.bank, "r").kept[tip].score == 0.75
    agent.bank.write.ratings.revoke(event.id, "ada")
    assert learned_now(agent.bank, "r").kept[tip].score == 0.0


def test_without_a_tip_nothing_is_kept(ran: Any) -> None:
    _, traces = ran
    policy = make_policy("empo2_memory", {})
    assert policy.write(a_new(traces[0]), a_view(()), lambda question: None) == ()
    assert policy.write(a_new(traces[0]), a_view(()), lambda question: Tip(tip=" ")) == ()
    assert policy.write(a_new(traces[0]), a_view(()), templates) != ()


def a_new(trace: StepTrace) -> Any:
    fresh = map("n-{}".format, count(2)).__next__
    one = np.eye(8, dtype=np.float32)[:1]
    return NewExperience("n", trace.task.intent, one[0], "Task: x\nTry.", "failure", (), trace, fresh, lambda _: one)


def test_the_oldest_of_a_full_list_go(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "empo2_memory", seed=2, capacity=12)
    traces = list(agent.run(HOUSEHOLD[:3], epochs=2))
    for listed in {trace.task.id for trace in traces}:
        wrote = [one.memory_id for trace in traces for one in written(trace) if one.data["list"] == listed]
        left = [memory_id for memory_id in wrote if agent.bank.view("r").sees(memory_id)]
        assert left == wrote[-12:]
    assert any(written(trace, "DELETE") for trace in traces)


# --- a whole run ------------------------------------------------------------------------------------------------------


def test_what_stood_in_any_turn_is_a_parent(ran: Any) -> None:
    _, traces = ran
    later = [
        trace for trace in traces if any(t.recalled and t.recalled.decision.selected for t in trace.generate.turns)
    ]
    for trace in later:
        reported = {i for t in trace.generate.turns if t.recalled for i in t.recalled.decision.selected}
        assert all(set(one.parents) == reported | set(trace.decision.selected) for one in written(trace))
