"""RMM's reranker: an ordered sample from adapted similarities, and REINFORCE by what the answer used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent.asking import view_before
from memrl_core.agent.learned_state import learned_now
from memrl_core.environments.tasks import sample_tasks
from memrl_core.guards import decision_breaks
from memrl_core.policies import make_policy
from memrl_core.policies.methods.rmm_reranker import (
    ADAPTED,
    NOISE,
    Adapters,
    Learned,
    RMMReranker,
    RMMSettings,
    first_adapters,
    question,
    reinforced,
    to_follow,
)
from memrl_core.policies.ranking import gumbel_top, ordered_log_gradient, ordered_log_probability
from memrl_core.records import Consulted, Decision, Memory, Phase, Reason
from memrl_core.retrieval.view import MemoryView
from tests.builders import a_vector
from tests.models.forms import FillsForms
from tests.policies.policy_run import a_lesson, a_view, an_agent_of, cosines, decided

SCORES = st.lists(st.floats(-3, 3), min_size=1, max_size=5)
SIX = ["a", "b", "c", "d", "e", "f"]


def rmm(**settings: Any) -> RMMReranker:
    return RMMReranker(RMMSettings.of(settings))


def oracle(scores: Sequence[float], order: Sequence[int]) -> float:
    """The chance of drawing these, one after the other, each by softmax among what is left."""
    left, chance = list(range(len(scores))), 1.0
    for position in order:
        chance *= math.exp(scores[position]) / sum(math.exp(scores[other]) for other in left)
        left.remove(position)
    return chance


# --- ordered samples --------------------------------------------------------------------------------------------------


@given(SCORES, st.integers(0, 5))
def test_the_chances_of_all_ordered_samples_are_the_oracles_and_add_up_to_one(scores: list[float], m: int) -> None:
    every = list(permutations(range(len(scores)), min(m, len(scores))))
    chances = [math.exp(ordered_log_probability(np.array(scores), order)) for order in every]
    assert sum(chances) == pytest.approx(1, rel=1e-12)
    assert chances == pytest.approx([oracle(scores, order) for order in every], rel=1e-9)


def test_a_chance_too_small_for_a_float_has_its_logarithm() -> None:
    assert ordered_log_probability(np.array([0.0, 2000.0]), [0]) == pytest.approx(-2000)


def test_noisy_scores_are_drawn_as_often_as_their_chance_says() -> None:
    scores, rng, draws = np.array([0.5, -0.3, 1.1, 0.0]), np.random.default_rng(5), 20_000
    drawn = [gumbel_top(scores, 2, rng)[0] for _ in range(draws)]
    for order in permutations(range(4), 2):
        assert drawn.count(order) / draws == pytest.approx(oracle(scores.tolist(), order), abs=0.012)


@given(SCORES, st.randoms(use_true_random=False))
def test_the_gradient_in_the_scores_is_that_of_finite_differences(scores: list[float], chance: Any) -> None:
    order = chance.sample(range(len(scores)), chance.randint(1, len(scores)))
    weights = [chance.choice([0.5, -1.5]) for _ in order]

    def weighted(at: np.ndarray) -> float:
        parts = [
            ordered_log_probability(at, order[: n + 1]) - ordered_log_probability(at, order[:n])
            for n in range(len(order))
        ]
        return float(np.dot(weights, parts))

    at = np.array(scores)
    measured = [(weighted(at + step) - weighted(at - step)) / 2e-5 for step in 1e-5 * np.eye(len(scores))]
    assert ordered_log_gradient(at, order, weights) == pytest.approx(measured, abs=1e-8)


# --- the adapters -----------------------------------------------------------------------------------------------------


def a_scene(dimension: int = 9, pool: int = 6) -> tuple[Adapters, np.ndarray, np.ndarray]:
    adapters = first_adapters(dimension, 3, seed=4)
    query, *memories = (a_vector(n, dimension).astype(np.float64) for n in range(pool + 1))
    return adapters, query, np.stack(memories)


def test_the_scores_are_the_products_of_both_adapted_embeddings() -> None:
    adapters, query, memories = a_scene()
    by_query, by_memory = adapters.up_q @ adapters.down_q, adapters.up_m @ adapters.down_m
    adapted = query + by_query @ query
    expected = [adapted @ (memory + by_memory @ memory) for memory in memories]
    assert adapters.scores(query, memories) == pytest.approx(expected, rel=1e-12)
    assert adapters.norms() == pytest.approx((np.linalg.norm(by_query), np.linalg.norm(by_memory)), rel=1e-12)


def test_the_step_of_reinforce_is_up_the_gradient_of_finite_differences() -> None:
    adapters, query, memories = a_scene()
    order, advantages, temperature, small = [4, 0, 2], [0.5, -1.5, 0.5], 0.7, 1e-5

    def gained(at: Adapters) -> float:
        scores = at.scores(query, memories) / temperature
        parts = [
            ordered_log_probability(scores, order[: n + 1]) - ordered_log_probability(scores, order[:n])
            for n in range(3)
        ]
        return float(np.dot(advantages, parts))

    moved = reinforced(adapters, query, memories, order, advantages, temperature=temperature, rate=1.0)
    for name, before in adapters._asdict().items():
        measured = np.zeros_like(before)
        for place in np.ndindex(before.shape):
            step = np.zeros_like(before)
            step[place] = small
            up, down = (adapters._replace(**{name: before + sign * step}) for sign in (1, -1))
            measured[place] = (gained(up) - gained(down)) / (2 * small)
        gradient = getattr(moved, name) - before
        assert np.linalg.norm(gradient - measured) < 1e-6 * np.linalg.norm(measured)


def test_untaught_adapters_are_small_whatever_their_rank_and_their_seed_decides_them() -> None:
    for rank in (1, 16, 64):
        one = first_adapters(256, rank, seed=1)
        assert (one.up_q @ one.down_q).std() == pytest.approx(0.01, rel=0.2)
    assert not np.array_equal(first_adapters(8, 2, 1).up_q, first_adapters(8, 2, 2).up_q)


# --- a decision -------------------------------------------------------------------------------------------------------


def by_term(decision: Decision, name: str) -> dict[str, float]:
    return {c.memory_id: next(t.contribution for t in c.terms if t.name == name) for c in decision.candidates}


@pytest.mark.parametrize("temperature", [0.05, 0.5, 5.0])
def test_a_decision_is_an_ordered_sample_whose_numbers_can_be_worked_out_again(temperature: float) -> None:
    view = a_view(SIX)
    decision = decided(rmm(k2=3, temperature=temperature), view, seed=11)
    without, noise = by_term(decision, ADAPTED), by_term(decision, NOISE)
    total = {memory_id: without[memory_id] + noise[memory_id] for memory_id in without}
    ids = list(without)
    assert list(decision.selected) == sorted(ids, key=lambda one: -total[one])[:3]
    assert list(decision.greedy) == sorted(ids, key=lambda one: -without[one])[:3]
    expected = oracle([without[one] for one in ids], [ids.index(one) for one in decision.selected])
    assert decision.log_propensity == pytest.approx(math.log(expected), rel=1e-9)
    assert decision.mode == "sampled"
    by_noise = {c.memory_id for c in decision.candidates if c.reason is Reason.NOISE}
    assert by_noise == set(decision.selected) ^ set(decision.greedy)
    assert decision_breaks(rmm(k2=3).recall(a_vector(999), view), decision) == ""
    raw = {c.memory_id: c.terms[0].raw for c in decision.candidates}
    assert raw == pytest.approx({one: value * temperature for one, value in without.items()})
    assert raw == pytest.approx(cosines(view), abs=0.2)


# --- a lesson ---------------------------------------------------------------------------------------------------------


def cited(*memory_ids: str) -> tuple[Consulted, ...]:
    return (Consulted("citations", Phase.UPDATE, (), "", {"cited": list(memory_ids)}, True),)


def learned_from(view: MemoryView, policy: RMMReranker, decision: Decision, **lesson: Any) -> tuple[Learned, Any]:
    state = policy.start(())
    return state, policy.learn(state, a_lesson(view, decision, policy="rmm_reranker", **lesson))


def test_what_was_cited_gains_on_what_was_not() -> None:
    view, policy = a_view(SIX), rmm(k2=2, learning_rate=0.01)
    decision = decided(policy, view, seed=1)
    used, unused = decision.selected
    state, changes = learned_from(view, policy, decision, consulted=cited(used))
    before, after = (by_term(one, ADAPTED) for one in (decision, decided(policy, replace(view, learned=state), seed=1)))
    assert after[used] - after[unused] > before[used] - before[unused]
    assert {change.name: change.after for change in changes} == dict(policy.values(state))
    assert f"{used}: +1, {unused}: -1" in changes[0].formula


def test_the_baseline_weighs_a_memory_that_was_not_cited_three_times_as_much() -> None:
    view, policy = a_view(SIX), rmm(k2=1)
    decision = decided(policy, view)
    moved = []
    for consulted in (cited(*decision.selected), cited()):
        state, _ = learned_from(view, policy, decision, consulted=consulted)
        first = first_adapters(8, 16, 0)
        moved.append(state.adapters.up_m - first.up_m)
    assert moved[1] == pytest.approx(-3 * moved[0], rel=1e-9)


@pytest.mark.parametrize(
    "lesson",
    [
        {},
        {"consulted": (Consulted("citations", Phase.UPDATE, (), "no JSON", None, False),)},
        {"consulted": cited("stranger")},
        {"consulted": cited(), "embed": None},
    ],
    ids=["nothing was asked", "a reply that cannot be read", "a memory that was not there", "no embedding"],
)
def test_without_usable_feedback_nothing_moves(lesson: dict[str, Any]) -> None:
    view, policy = a_view(SIX), rmm()
    state, changes = learned_from(view, policy, decided(policy, view), **lesson)
    assert (changes, state) == ((), Learned())


def test_the_steps_of_another_policy_teach_it_nothing() -> None:
    view, policy = a_view(SIX), rmm()
    state = policy.start(())
    theirs = decided(make_policy("rag", {}), view)
    own = decided(policy, view)
    assert policy.learn(state, a_lesson(view, theirs, policy="rag", reward=1.0, consulted=cited())) == ()
    assert (
        policy.learn(
            state, a_lesson(view, replace(own, mode="greedy"), policy="rmm_reranker", consulted=cited(*own.selected))
        )
        == ()
    )
    assert state == Learned()


# --- citations --------------------------------------------------------------------------------------------------------


def a_memory(memory_id: str, experience: str) -> Memory:
    return Memory(memory_id, "do it", experience, "success", "", (), "r", 1, "t", "")


def test_without_a_model_a_memory_is_cited_when_it_said_to_do_what_was_done() -> None:
    memories = [
        a_memory("did", "Task: x\nSteps that worked:\n> take egg from table\n> heat egg with stove"),
        a_memory("warned", "Task: x\nAvoid:\n> take egg from table\nTry instead:\n> search drawer"),
        a_memory("other", "Task: x\nSteps that worked:\n> take cup from desk"),
    ]
    asked = question("heat an egg", memories, ["search shelf", "> take egg from table"])
    assert asked.template.cited == ["did"]
    assert to_follow(memories[1]) == {"search drawer"}
    assert all(memory.experience in asked.message for memory in memories)


def test_only_memories_of_the_prompt_can_be_cited() -> None:
    form = question("x", [a_memory("m-1", "y"), a_memory("m-2", "z")], ["done"]).form
    assert form.model_json_schema()["properties"]["cited"]["items"]["enum"] == ["m-1", "m-2"]
    assert form.model_validate_json('{"cited": ["m-2"]}').cited == ["m-2"]
    with pytest.raises(ValueError, match="m-1"):
        form.model_validate_json('{"cited": ["m-3"]}')


def test_a_model_is_asked_once_a_step_and_a_reply_it_botched_is_no_feedback(tmp_path: Path) -> None:
    replies = iter(["{", '{"cited": []}', '{"cited": ["m"]}'])
    agent = an_agent_of(tmp_path / "bank", "rmm_reranker", model=FillsForms(lambda reported: next(replies)))
    traces = list(agent.run(sample_tasks("household-train")[:4]))
    filled = [[one.filled for one in trace.consulted] for trace in traces]
    assert filled == [[], [None], [{"cited": []}], [None]]
    assert [bool(trace.update and trace.update.changes) for trace in traces] == [False, False, True, False]


# --- whole runs -------------------------------------------------------------------------------------------------------


def test_a_run_learns_from_citations_and_every_decision_can_be_drawn_again(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "rmm_reranker", learning_rate=0.05)
    traces = list(agent.run(sample_tasks("household-train")[:4], epochs=3))
    state = learned_now(agent.bank, "r")
    learned_by = [trace for trace in traces if trace.update and trace.update.changes]
    assert [len(trace.consulted) for trace in traces] == [0] + [1] * 11
    assert state.lessons == len(learned_by) == 11
    first, last = learned_by[0].update, learned_by[-1].update
    assert [change.after for change in last.changes] == list(make_policy("rmm_reranker", {}).values(state).values())
    assert all(late.after > early.before for early, late in zip(first.changes, last.changes, strict=True))
    for trace in traces:
        policy = make_policy("rmm_reranker", trace.settings)
        assert trace.recall is not None
        again = policy.select(trace.recall, view_before(agent.bank, trace), trace.decision.seed)
        assert again == trace.decision
        for memory_id in trace.consulted[0].filled["cited"] if trace.consulted else ():
            assert to_follow(agent.bank.memory(memory_id))
