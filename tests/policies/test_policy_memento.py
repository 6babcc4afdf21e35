"""Memento: cases by similarity, by the outcomes of their past uses, or by a network that learns when a case helps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent.learned_state import learned_before, learned_now
from memrl_core.analysis.run.learned.notes import case_calibration
from memrl_core.policies import make_policy
from memrl_core.policies.methods.memento import (
    INPUTS,
    SPEC,
    SPECS,
    Batch,
    Cases,
    Memento,
    MementoSettings,
    chances,
    cross_entropy,
    cross_entropy_gradient,
    episodic_values,
    features,
    new_network,
    trained,
)
from memrl_core.records import Reason, StepTrace
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import DIMENSION, a_vector, alike_tasks, numbers
from tests.policies.policy_run import a_lesson, a_view, an_agent_of, cosines, decided
from tests.small_banks import give_reward

FOUR = alike_tasks()[:4]
# Uses of the cases c0 … c3: which case, the seed of the state, the outcome.
USES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([0.0, 1.0])), max_size=20)


def memento(**settings: Any) -> Memento:
    return Memento(MementoSettings.of(settings))


def noted(cases: Cases, state: int, case: str, vector: np.ndarray, outcome: float) -> None:
    """Note a use of a case in the state whose vector has this seed."""
    cases.states.append(a_vector(state))
    cases.add_use(case, vector, "success", outcome, math.nan)


def used(uses: Sequence[tuple[int, int, float]]) -> Cases:
    cases = Cases()
    for case, state, outcome in uses:
        noted(cases, state, f"c{case}", a_vector(50 + case), outcome)
    return cases


def asked_with(view: MemoryView, seed: int, learned: Any) -> MemoryView:
    return replace(view, asked=Asked(a_vector(seed), task="t", intent="do t"), learned=learned)


def a_batch(rows: int = 7, dimension: int = 12) -> Batch:
    rng = np.random.default_rng(3)
    states, cases = (np.stack([a_vector(first + n, dimension) for n in range(rows)]) for first in (0, 100))
    return Batch(states, cases, rng.choice([0.0, 0.5, 1.0], rows), rng.choice([0.0, 1.0], rows))


# --- the network ------------------------------------------------------------------------------------------------------


def test_the_gradient_of_the_cross_entropy_is_that_of_finite_differences() -> None:
    network, batch = new_network(12, seed=1), a_batch()
    inputs = features(network, batch)
    gradient = cross_entropy_gradient(network.theta, inputs, batch.outcomes)
    places = np.random.default_rng(0).choice(len(gradient), 400, replace=False)
    places[:66] = np.arange(len(gradient) - 66, len(gradient))  # The last layer whole.
    small = 1e-6
    measured = []
    for place in places:
        up, down = network.theta.copy(), network.theta.copy()
        up[place] += small
        down[place] -= small
        pair = (cross_entropy(theta, inputs, batch.outcomes) for theta in (up, down))
        measured.append(np.subtract(*pair) / (2 * small))
    assert np.linalg.norm(measured - gradient[places]) < 1e-6 * np.linalg.norm(gradient[places])


def test_the_cross_entropy_is_the_mean_of_minus_the_logarithm_of_what_came_true() -> None:
    network, batch = new_network(12, seed=1), a_batch()
    reported = 0.0
    for state, case, of_case, outcome in zip(*(getattr(batch, name) for name in batch.__slots__), strict=True):
        p = float(chances(network, state, case[None, :], np.array([of_case]))[0])
        reported -= math.log(p if outcome else 1 - p)
    assert cross_entropy(network.theta, features(network, batch), batch.outcomes) == pytest.approx(
        reported / 7, rel=1e-12
    )


def test_the_chance_of_a_case_is_the_forward_pass_written_out() -> None:
    network, batch = new_network(12, seed=1), a_batch(rows=1)
    projected = [
        [sum(x * network.projection[i, j] for i, x in enumerate(vector)) for j in range(64)]
        for vector in (batch.states[0].tolist(), batch.cases[0].tolist())
    ]
    row = [*projected[0], *projected[1], *(a * b for a, b in zip(*projected, strict=True)), batch.case_outcomes[0]]
    theta = network.theta.tolist()
    assert len(row) == INPUTS
    hidden = [
        max(0.0, sum(x * theta[i * 64 + j] for i, x in enumerate(row)) + theta[INPUTS * 64 + j]) for j in range(64)
    ]
    last = theta[(INPUTS + 1) * 64 : -1]
    logit = sum(h * w for h, w in zip(hidden, last, strict=True)) + theta[-1]
    p = chances(network, batch.states[0], batch.cases, batch.case_outcomes)
    assert p[0] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)


def test_two_steps_of_adam_are_those_of_its_paper() -> None:
    network, batch = new_network(12, seed=1), a_batch()
    place, rate = len(network.theta) - 1, 0.01
    theta, mean, square = network.theta[place], 0.0, 0.0
    for step in (1, 2):
        gradient = cross_entropy_gradient(network.theta, features(network, batch), batch.outcomes)[place]
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        theta -= rate * (mean / (1 - 0.9**step)) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
        network, before, after = trained(network, batch, rate)
        assert network.theta[place] == pytest.approx(theta, rel=1e-12)
        assert after < before


def test_the_chance_of_a_case_does_not_depend_on_the_company_it_is_in() -> None:
    network, cases = new_network(DIMENSION, 0), np.stack([a_vector(n) for n in range(9)])
    together = chances(network, a_vector(99), cases, np.ones(9))
    apart = [chances(network, a_vector(99), cases[n : n + 1], np.ones(1))[0] for n in range(9)]
    assert together == pytest.approx(apart, rel=1e-12)


# --- the kernel -------------------------------------------------------------------------------------------------------


def oracle(uses: Sequence[tuple[int, int, float]], case: int, state: int, h: float) -> float | None:
    """Σ k Q′ / Σ k in plain Python."""
    top = bottom = 0.0
    for one, seen, outcome in uses:
        if one == case:
            a, b = a_vector(seen).tolist(), a_vector(state).tolist()
            squares = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
            k = math.exp(-squares / (2 * h * h))
            top, bottom = top + k * outcome, bottom + k
    return top / bottom if bottom > 0 else None


@given(USES, st.integers(0, 8), st.sampled_from([0.3, 0.5, 2.0]))
def test_the_value_of_a_case_is_the_kernel_weighted_mean_of_its_past_outcomes(
    uses: list[tuple[int, int, float]], state: int, h: float
) -> None:
    values, _ = episodic_values(used(uses), a_vector(state), ["c2", "c0", "c3", "c1", "new"], h)
    for case, value in zip((2, 0, 3, 1, 9), values, strict=True):
        reported = oracle(uses, case, state, h)
        assert value == pytest.approx(0.5 if reported is None else reported, abs=1e-5)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=8))
def test_a_use_moves_the_value_of_a_case_as_its_formula_says(steps: list[tuple[int, bool]]) -> None:
    policy, view = memento(read="kernel", k2=2), a_view(["a", "b"])
    state = policy.start(())
    for count, (seed, won) in enumerate(steps, start=1):
        here = asked_with(view, seed, state)
        outcome = "success" if won else "failure"
        for change in policy.learn(state, a_lesson(here, decided(policy, here), outcome)):
            assert change.after == pytest.approx(
                change.before + change.alpha * (change.reward - change.before), abs=1e-6
            )
            assert (change.visits, change.reward) == (count, float(won))
            assert policy.values(state)[change.memory_id] == change.after


def test_cases_without_past_uses_are_read_by_similarity() -> None:
    view = a_view(["a", "b", "c", "d", "e", "f"])
    decision = decided(memento(read="kernel", k2=2), view)
    nearest = sorted(cosines(view).items(), key=lambda pair: -pair[1])
    assert list(decision.selected) == [memory_id for memory_id, _ in nearest[:2]]
    assert decision.mode == "cold"


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_every_case_of_the_prompt_gets_the_whole_tasks_outcome_as_its_label() -> None:
    view, policy = a_view(["a", "b", "c"]), memento(read="network", k2=2)
    state, decision = policy.start(()), decided(memento(k2=2), view)
    changes = policy.learn(state, a_lesson(view, decision, "failure"))
    assert state.rows["outcome"].tolist() == [0.0, 0.0]
    assert set(state.numbers) == set(decision.selected)
    reported = {change.name: change for change in changes}
    assert (reported["rows"].before, reported["rows"].after) == (0, 2)
    assert all(change.target == "parameters" for change in changes)
    assert f"{reported['loss'].before:.4f} → {reported['loss'].after:.4f}" in reported["loss"].formula


@pytest.mark.parametrize("read", SPECS)
def test_a_step_that_nobody_judged_and_one_without_an_embedding_teach_nothing(read: str) -> None:
    view, policy = a_view(["a", "b"]), memento(read=read)
    state, decision = policy.start(()), decided(policy, view)
    assert policy.learn(state, a_lesson(view, decision, "unrated")) == ()
    assert policy.learn(state, a_lesson(view, decision, embed=None)) == ()
    assert len(state.uses) == 0


CHANCES = st.one_of(st.integers(0, 99).map(lambda n: (n + 0.5) / 100), st.just(1.0))


@given(st.lists(st.tuples(CHANCES, st.sampled_from([0.0, 1.0])), max_size=40))
def test_calibration_counts_each_prediction_once_in_its_bin(made: list[tuple[float, float]]) -> None:
    cases = used([(0, 0, 1.0)])  # A use that nothing was predicted of.
    for predicted, outcome in made:
        cases.add_use("c0", a_vector(50), "success", outcome, predicted)
    bins = case_calibration(cases)
    assert bins["n"].sum() == len(made)
    for one in bins.itertuples():
        members = [(p, y) for p, y in made if one.low <= p < one.high or p == one.high == 1.0]
        assert one.n == len(members) > 0
        assert one.p == pytest.approx(np.mean([p for p, _ in members]))
        assert one.success == pytest.approx(np.mean([y for _, y in members]))


# --- cold start and the edges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "cold"), [([1, 0], True), ([1, 1, 1, 1], True), ([1, 0, 1, 1], False)])
def test_the_network_decides_once_there_are_enough_rows_with_both_outcomes(labels: list[int], cold: bool) -> None:
    view, policy = a_view(["a", "b", "c", "d", "e"]), memento(read="network", cold_rows=4, k2=2)
    state = policy.start(())
    for label in labels:
        noted(state, 3, "m-00", view.embeddings[0], float(label))
    state.network = new_network(DIMENSION, 0)
    decision = decided(policy, replace(view, learned=state))
    assert decision.mode == ("cold" if cold else "greedy")
    name = "similarity" if cold else "p(r = 1 | s, c)"
    assert {term.name for candidate in decision.candidates for term in candidate.terms} == {name}
    reasons = {candidate.reason for candidate in decision.candidates if candidate.selected}
    assert reasons == {Reason.COLD_START if cold else Reason.TOP_K2}
    if cold:
        nearest = sorted(cosines(view).items(), key=lambda pair: -pair[1])
        assert list(decision.selected) == [memory_id for memory_id, _ in nearest[:2]]


def warm(view: MemoryView) -> Cases:
    """A network that has seen enough to decide."""
    state = Cases(network=new_network(DIMENSION, 0))
    for label in (0.0, 1.0, 0.0, 1.0):
        noted(state, 3, "m-00", view.embeddings[0], label)
    return state


def test_the_network_scores_the_whole_bank_and_hands_on_the_best() -> None:
    view, policy = a_view([f"t{n}" for n in range(40)], asked="x"), memento(read="network", k1=5, cold_rows=4)
    state = warm(view)
    found = policy.recall(a_vector(999), replace(view, learned=state))
    p = chances(state.network, a_vector(999), view.embeddings, np.zeros(40))
    best = [view.ids[place] for place in sorted(range(40), key=lambda place: -p[place])]
    assert (found.rule, found.memories) == ("everything", 40)
    assert {seen.memory_id for seen in found.pool} == set(best[:5])
    assert {seen.memory_id for seen in found.left_out} == set(best[5:10])
    assert {seen.reason for seen in found.left_out} == {Reason.BEYOND_K1}
    nearest = sorted(cosines(view).items(), key=lambda pair: -pair[1])
    cold = policy.recall(a_vector(999), view)
    assert [seen.memory_id for seen in cold.pool] == [memory_id for memory_id, _ in nearest[:5]]


def test_the_network_leaves_out_only_what_the_settings_do() -> None:
    view = a_view([f"t{n % 3}" for n in range(40)], asked="t1")
    others = memento(read="network", k1=40, exclude_same_task=True).recall(a_vector(999), view)
    assert {view.memories[seen.memory_id].task for seen in others.pool} == {"t0", "t2"}
    assert {seen.reason for seen in others.left_out} == {Reason.SAME_TASK}


@pytest.mark.parametrize("read", SPECS)
def test_where_it_is_not_known_what_is_asked_similarity_decides(read: str) -> None:
    view = a_view(["a", "b", "c", "d", "e", "f"])
    record = memento(read=read).recall(a_vector(999), view)
    decision = memento(read=read).select(record, replace(view, asked=None), 0)
    assert list(decision.selected) == [seen.memory_id for seen in record.pool][:4]


def test_the_card_says_whose_rules_these_are() -> None:
    learns = {read: (memento(read=read).spec.variant, memento(read=read).spec.learns) for read in SPECS}
    assert learns == {k: ("adapted", k) for k in ("kernel", "network")} | {"similar": ("paper", "nothing")}
    assert [memento(k2=k).spec.variant for k in (4, 8)] == ["paper", "code"]
    assert memento(k2=8).spec.deviations == SPEC.deviations
    other = memento(k2=3).spec
    assert (other.variant, numbers(other.deviations[-1])) == ("paper", ["3", "4", "8"])
    assert memento(delta=0.2).spec.variant == "adapted"


# --- whole runs -------------------------------------------------------------------------------------------------------


def ran(path: Path, **settings: Any) -> tuple[Any, list[StepTrace]]:
    agent = an_agent_of(path / "bank", "memento", **settings)
    return agent, list(agent.run(FOUR, epochs=3))


def scores_of(trace: StepTrace) -> dict[str, float]:
    return {one.memory_id: one.score for one in trace.decision.candidates if one.score is not None}


def test_the_kernel_predicts_by_past_uses_and_a_late_reward_changes_them(tmp_path: Path) -> None:
    agent, traces = ran(tmp_path, read="kernel")
    state = learned_now(agent.bank, "r")
    prompted = [trace for trace in traces if trace.decision is not None and trace.decision.selected]
    labels = [float(trace.reward.outcome == "success") for trace in prompted for _ in trace.decision.selected]
    assert state.rows["outcome"].tolist() == labels
    predicted = state.rows["predicted"]
    assert case_calibration(state)["n"].sum() == sum(~np.isnan(predicted)) > 0
    scores = [scores_of(trace)[memory_id] for trace in prompted for memory_id in trace.decision.selected]
    assert all(math.isnan(reported) or reported == score for reported, score in zip(predicted, scores, strict=True))
    first = prompted[0]
    won = first.reward.outcome == "success"
    give_reward(agent.bank, "r", first.step, first.id, (), 0.0 if won else 1.0, "ann", "")
    again = learned_now(agent.bank, "r").rows["outcome"].tolist()
    count = len(first.decision.selected)
    assert again == [1.0 - labels[0]] * count + labels[count:]


def test_the_network_learns_from_step_to_step_then_decides_and_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    agent, traces = ran(tmp_path, read="network", cold_rows=16)
    state = learned_now(agent.bank, "r")
    losses = state.losses
    assert np.mean([loss.after - loss.before for loss in losses]) < 0
    known = make_policy("memento", {"read": "network"}).values(state)
    assert known == {"loss": losses[-1].after, "rows": float(len(state.uses))}
    last = traces[-1]
    assert {change.name: change.after for change in last.update.changes} == known
    assert (len(last.recall.pool), last.recall.memories) == (10, len(traces) - 1)
    assert [trace.decision.mode for trace in traces if trace.decision][1] == "cold"
    assert last.decision.mode == "greedy"
    reported = [scores_of(last)[memory_id] for memory_id in last.decision.selected]
    assert state.rows["predicted"][-len(reported) :] == pytest.approx(reported, rel=1e-12)
    view = replace(
        agent.bank.view("r", last.step - 1),
        asked=Asked(np.asarray(last.embed.embedding, np.float32)),
        learned=learned_before(agent.bank, "r", last.step),
    )
    assert make_policy("memento", last.settings).select(last.recall, view, last.decision.seed) == last.decision
