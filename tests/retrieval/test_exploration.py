"""Exploration beyond ε, seeded ties and bounds on q: by hand, against closed forms, and by counting over seeds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.analysis.decision.explain import score_formula, setting_notes, warnings
from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.environments import make_environment
from memrl_core.environments.tasks import sample_tasks
from memrl_core.models.simulated import SimulatedModel
from memrl_core.policies import make_policy
from memrl_core.records import Decision, Reason, RecallRecord
from memrl_core.retrieval.exploration import chance_by_ties, chance_of_best, drawn_keys, ucb_bonus
from memrl_core.retrieval.view import Asked, MemoryView
from tests.builders import alike_tasks, an_agent, view_of
from tests.oracles import retrieval as oracle
from tests.oracles.ties import turn
from tests.policies.policy_run import an_agent_of


def a_view(similarity: list[float], q: list[float], visits: list[int]) -> MemoryView:
    """Memories in a plane whose cosines with (1, 0) are these."""
    ids = [f"r-{number:04d}" for number in range(1, len(similarity) + 1)]
    vectors = np.reshape([[s, math.sqrt(1 - s * s)] for s in similarity], (-1, 2))
    return view_of(ids, vectors, q=np.array(q, dtype=float), visits=np.array(visits))


def decide(
    similarity: list[float], q: list[float], visits: list[int] | None = None, seed: int = 1, **chosen: Any
) -> tuple[RecallRecord, Decision]:
    policy = make_policy("memrl", {"delta": -1.0, **chosen})
    view = a_view(similarity, q, visits or [0] * len(q))
    recalled = policy.recall(np.array([1, 0], dtype=np.float32), view)
    return recalled, policy.select(recalled, view, seed)


def scores(decision: Decision) -> list[float]:
    """By age."""
    return [c.score or 0.0 for c in sorted(decision.candidates, key=lambda c: c.memory_id)]


def term(decision: Decision, memory_id: str, name: str) -> Any:
    candidate = next(c for c in decision.candidates if c.memory_id == memory_id)
    return next(t for t in candidate.terms if t.name == name)


# --- UCB --------------------------------------------------------------------------------------------------------------


def test_the_bonus_by_hand() -> None:
    # N = 11, ln 12 = 2.48491; its parts by 1, 4 and 9 have the roots below.
    assert ucb_bonus(np.array([0, 3, 8])) == pytest.approx([1.57636, 0.78818, 0.52545], abs=1e-5)
    assert ucb_bonus(np.array([0, 0])) == pytest.approx([0, 0])


def test_ucb_adds_c_times_the_bonus_to_the_score_as_it_is() -> None:
    similarity, q, visits = [0.9, 0.8, 0.6], [0.3, -0.2, 0.0], [8, 3, 0]
    _, plain = decide(similarity, q, visits)
    _, decision = decide(similarity, q, visits, exploration="ucb", ucb_c=2.0)
    gained = np.array(scores(decision)) - scores(plain)
    assert gained == pytest.approx([1.05090, 1.57636, 3.15272], abs=1e-5)
    assert term(decision, "r-0003", "exploration").weight == 2.0
    assert (decision.mode, decision.propensity, decision.draw) == ("greedy", 1.0, None)


def test_ucb_tries_the_memory_that_was_never_used_and_says_what_greedy_would_take() -> None:
    _, decision = decide([0.9, 0.85], [0.5, 0.0], [9, 0], k2=1, exploration="ucb", ucb_c=2.0)
    assert (decision.selected, decision.greedy) == (("r-0002",), ("r-0001",))


# --- Thompson ---------------------------------------------------------------------------------------------------------


def test_noise_has_the_scale_of_what_is_not_known() -> None:
    drawn = [
        [term(d, f"r-000{i}", "noise").raw for i in (1, 2)]
        for _, d in (
            decide([0.9, 0.8], [0.4, 0.1], [0, 24], seed, exploration="thompson", thompson_scale=0.5)
            for seed in range(500)
        )
    ]
    assert np.std(drawn, axis=0) == pytest.approx([0.5, 0.1], rel=0.1)
    assert np.mean(drawn, axis=0) == pytest.approx([0, 0], abs=0.05)


def test_noise_counts_in_sd_of_q_and_as_it_is_when_all_q_are_equal() -> None:
    _, decision = decide([0.9, 0.8], [0.4, 0.0], weight=0.25, exploration="thompson")
    noise = term(decision, "r-0001", "noise")
    assert (noise.normalised, noise.contribution) == pytest.approx((noise.raw / 0.2, 0.25 * noise.raw / 0.2))
    _, flat = decide([0.9, 0.8], [0.4, 0.4], weight=0.25, exploration="thompson")
    noise = term(flat, "r-0001", "noise")
    assert noise.normalised == noise.raw != 0


def test_a_memory_that_noise_let_in_or_pushed_out_is_marked() -> None:
    found = [d for _, d in (decide([0.9, 0.8], [0.1, 0.0], seed=s, k2=1, exploration="thompson") for s in range(40))]
    swapped = next(d for d in found if d.selected != d.greedy)
    kept = next(d for d in found if d.selected == d.greedy)
    assert {c.reason for c in swapped.candidates} == {Reason.NOISE}
    assert {c.reason for c in kept.candidates} == {Reason.TOP_K2, Reason.BEYOND_K2}
    assert {d.mode for d in found} == {"sampled"}


def test_without_weight_on_q_its_noise_decides_nothing() -> None:
    _, decision = decide([0.9, 0.8], [0.1, 0.0], weight=0.0, k2=1, exploration="thompson", thompson_scale=10)
    assert (decision.selected, decision.mode, decision.propensity) == (("r-0001",), "greedy", 1.0)


def test_the_chance_of_one_of_two_has_a_closed_form() -> None:
    mean, sd = np.array([0.3, 0.1]), np.array([0.2, 0.5])
    expected = (1 + math.erf(0.2 / math.sqrt(0.29) / math.sqrt(2))) / 2
    assert chance_of_best(mean, sd, [0]) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 3)), min_size=1, max_size=6), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_the_chances_of_all_sets_add_up_to_one(pool: list[tuple[float, float]], k2: int) -> None:
    mean, sd = np.array([m for m, _ in pool]), np.array([s for _, s in pool])
    sets = combinations(range(len(pool)), min(k2, len(pool)))
    assert sum(chance_of_best(mean, sd, chosen) for chosen in sets) == pytest.approx(1, abs=1e-8)


def test_the_probability_of_a_sampled_set_is_how_often_it_is_drawn() -> None:
    found = [
        decide([0.9, 0.8, 0.5, 0.4], [0.1, 0.4, 0.5, -0.3], [4, 1, 0, 9], seed, k2=2, exploration="thompson")[1]
        for seed in range(500)
    ]
    reported = {frozenset(d.selected): d.propensity for d in found}
    often = Counter(frozenset(d.selected) for d in found)
    assert len(reported) == 3
    for chosen, propensity in reported.items():
        assert often[chosen] / len(found) == pytest.approx(propensity, abs=0.04)


# --- ties -------------------------------------------------------------------------------------------------------------


def test_seeded_ties_give_every_copy_its_turn_and_the_first_place_to_the_better() -> None:
    similarity, q = [0.9, 0.5, 0.5, 0.5], [0.5, 0.1, 0.1, 0.1]
    found = [decide(similarity, q, seed=seed, k2=2, ties="seeded")[1] for seed in range(300)]
    assert {d.selected[0] for d in found} == {"r-0001"}
    often = Counter(d.selected[1] for d in found)
    assert sorted(often) == ["r-0002", "r-0003", "r-0004"] and min(often.values()) > 60
    assert {d.propensity for d in found} == {1 / 3}
    assert {decide(similarity, q, seed=seed, k2=2, ties="older")[1].selected for seed in range(9)} == {
        ("r-0001", "r-0002")
    }


def test_ties_inside_the_selection_only_change_its_order() -> None:
    found = [decide([0.5, 0.5, 0.1], [0.1, 0.1, 0.0], seed=seed, k2=2, ties="seeded")[1] for seed in range(20)]
    assert {d.selected for d in found} == {("r-0001", "r-0002"), ("r-0002", "r-0001")}
    assert {d.propensity for d in found} == {1.0}


def test_the_more_similar_of_equal_scores_is_no_tie() -> None:
    # z of similarity and of q cancel out: both scores are 0.
    _, decision = decide([0.9, 0.8], [0.0, 1.0], k2=1, ties="seeded")
    assert scores(decision) == pytest.approx([0, 0])
    assert (decision.selected, decision.propensity) == (("r-0001",), 1.0)


def test_chance_and_ties_together_are_still_a_probability() -> None:
    similarity, q = [0.9, 0.5, 0.5, 0.5], [0.5, 0.1, 0.1, 0.1]
    found = [decide(similarity, q, seed=s, k2=2, ties="seeded", epsilon=0.4)[1] for s in range(200)]
    reported = {frozenset(d.selected): d.propensity for d in found}
    assert len(reported) == 6 and sum(reported.values()) == pytest.approx(1)
    assert reported[frozenset({"r-0001", "r-0003"})] == pytest.approx(0.4 / 6 + 0.6 / 3)
    assert reported[frozenset({"r-0002", "r-0003"})] == pytest.approx(0.4 / 6)


@pytest.mark.parametrize("policy", ["memrl", "rag", "exprag", "memento", "self_rag", "remem"])
def test_attempts_at_one_task_do_not_freeze_on_the_first_ones(tmp_path: Path, policy: str) -> None:
    """Every attempt has the same intent, so similarity cannot tell them apart: by age the first ones stay for ever."""
    task = next(task for task in sample_tasks("household-train") if task.family == "heat")
    settings = {"k1": 6, "k2": 2, **({"weight": 0.0} if policy == "memrl" else {})}

    def used(name: str, **ties: str) -> list[tuple[str, ...]]:
        agent = an_agent_of(
            tmp_path / name, policy, SimulatedModel(), make_environment("household"), **settings, **ties
        )
        with agent.bank.write.batch(40):
            decisions = [trace.decision for trace in agent.run([task], epochs=24)]
        return [decision.selected for decision in decisions if decision is not None]

    older, seeded = used("older", ties="older"), used("seeded")
    assert len({memory_id for selected in older[6:] for memory_id in selected}) <= 2
    assert len({memory_id for selected in seeded[6:] for memory_id in selected}) > 6
    assert used("again") == seeded


def test_the_order_of_equals_is_the_oracles_and_stays_when_another_equal_comes() -> None:
    for seed in (0, 1, 2**40, 2**70):
        for phase in ("recall", "select"):
            numbers = np.arange(1, 40)
            keys = drawn_keys(numbers, seed, phase)
            assert keys.tolist() == [turn(number, seed, phase) for number in range(1, 40)]
            assert drawn_keys(numbers[:9], seed, phase).tolist() == keys[:9].tolist()


def test_ranking_by_similarity_tells_how_likely_its_set_was() -> None:
    view = a_view([0.9, 0.5, 0.5, 0.5], [0.0] * 4, [0] * 4)
    often: Counter[frozenset[str]] = Counter()
    for seed in range(300):
        policy = make_policy("rag", {"delta": -1.0, "k2": 2})
        asked = replace(view, asked=Asked(np.array([1, 0], dtype=np.float32), seed=seed))
        decision = policy.select(policy.recall(np.array([1, 0], dtype=np.float32), asked), asked, seed)
        assert decision.propensity == pytest.approx(1 / 3)
        often[frozenset(decision.selected)] += 1
    assert len(often) == 3 and min(often.values()) > 70


# --- bounds on q ------------------------------------------------------------------------------------------------------


def test_a_q_below_the_floor_is_scored_as_the_floor_and_reported_as_it_is() -> None:
    _, decision = decide([0.9, 0.8, 0.6], [-0.8, 0.2, 0.9], q_floor=0.0)
    assert scores(decision) == pytest.approx(oracle.phase_b([0.9, 0.8, 0.6], [0.0, 0.2, 0.9], 0.5), abs=1e-6)
    assert {c.memory_id: c.q for c in decision.candidates}["r-0001"] == -0.8
    assert term(decision, "r-0001", "q").raw == 0.0


def test_memories_below_the_least_q_never_reach_the_pool_and_nothing_takes_their_place() -> None:
    recalled, decision = decide([0.9, 0.8, 0.6, 0.5], [-0.9, 0.2, 0.9, 0.9], k1=3, k2=3, q_min=-0.5)
    assert [m.memory_id for m in recalled.pool] == ["r-0002", "r-0003"]
    missed = {m.memory_id: m.reason for m in recalled.left_out}
    assert missed == {"r-0001": Reason.Q_BELOW_MINIMUM, "r-0004": Reason.BEYOND_K1}
    assert [m.rank_recall for m in (*recalled.left_out, *recalled.pool)] == [1, 4, 2, 3]
    assert sorted(c.score for c in decision.candidates if c.score is not None) == pytest.approx([0, 0])


def test_a_floor_above_the_least_q_keeps_everything() -> None:
    recalled, _ = decide([0.9, 0.8], [-0.9, 0.2], q_min=-0.5, q_floor=-0.5)
    assert len(recalled.pool) == 2


def test_the_bounds_are_off_by_default_even_for_a_q_from_elsewhere() -> None:
    recalled, decision = decide([0.9, 0.8], [-25.0, 0.2])
    assert len(recalled.pool) == 2
    assert term(decision, "r-0001", "q").raw == -25.0


# --- all together -----------------------------------------------------------------------------------------------------

pools = st.lists(
    st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.sampled_from([-1.0, 0.0, 0.4]), st.integers(0, 30)), max_size=8
)


@given(
    pools,
    st.sampled_from(["epsilon", "ucb", "thompson"]),
    st.sampled_from(["older", "seeded"]),
    st.sampled_from(["pool", "fixed"]),
    st.floats(0, 1),
    st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_whatever_explores_the_terms_add_up_and_the_probability_is_one(
    pool: list[tuple[float, float, int]], exploration: str, ties: str, normaliser: str, weight: float, seed: int
) -> None:
    similarity, q, visits = ([row[i] for row in pool] for i in range(3))
    chosen = {"exploration": exploration, "ties": ties, "normaliser": normaliser, "weight": weight, "epsilon": 0.3}
    _, decision = decide(similarity, q, visits, seed, k2=2, **chosen)
    for candidate in decision.candidates:
        assert sum(t.contribution for t in candidate.terms) == candidate.score
    assert 0 < decision.propensity <= 1
    assert len(decision.selected) == min(2, len(pool))
    assert decision == decide(similarity, q, visits, seed, k2=2, **chosen)[1]


def test_a_bonus_or_noise_leaves_epsilon_aside() -> None:
    for exploration in ("ucb", "thompson"):
        _, decision = decide([0.9, 0.8], [0.1, 0.2], k2=1, epsilon=1.0, exploration=exploration)
        assert (decision.epsilon, decision.draw) == (0.0, None)


def test_exploration_is_reported_where_it_changed_the_choice() -> None:
    recalled, decision = decide([0.9, 0.85], [0.5, 0.0], [9, 0], k2=1, exploration="ucb", ucb_c=2.0)
    assert "the choice" in " ".join(warnings(recalled, decision, "r"))
    assert score_formula(decision.candidates[0], "r").count("×") == 3
    assert "N = 9 visits" in decision.note
    assert "bonus" in setting_notes({"weight": 0, "exploration": "ucb"})[0]


def test_the_rule_of_ties_that_is_reported_is_the_one_in_force() -> None:
    pool: tuple[list[float], list[float]] = ([0.5, 0.5, 0.1], [0.1, 0.1, 0.9])
    assert "the step's seed" in " ".join(warnings(*decide(*pool, k2=1, weight=0.1, ties="seeded"), "r"))
    assert "goes first" in " ".join(warnings(*decide(*pool, k2=1, weight=0.1, ties="older"), "r"))


@pytest.mark.parametrize("exploration", ["ucb", "thompson"])
def test_a_run_that_explores_is_decided_again_to_the_bit(tmp_path: Path, exploration: str) -> None:
    agent = an_agent(tmp_path / "bank", exploration=exploration, ties="seeded", q_min=-0.95, q_floor=-0.9, k2=2)
    tasks = [task for task in alike_tasks() if task.family == "heat"][:3]
    traces = list(agent.run(tasks, epochs=4))
    last = traces[-1]
    assert last.decision is not None
    assert decided(situation_of(agent.bank, last)) == (last.recall, last.decision)
    assert any(t.decision and set(t.decision.selected) != set(t.decision.greedy) for t in traces)


@pytest.mark.parametrize(
    ("chosen", "tied", "chance"),
    [
        ({0, 1, 2}, {1, 2, 3, 4}, 1 / 6),  # One is certain, two of four equals are drawn.
        ({0, 3, 4}, {1, 2, 3, 4}, 1 / 6),
        ({1, 2, 3}, {1, 2, 3, 4}, 0.0),  # Without the one that is certain.
        ({0, 1, 5}, {1, 2, 3, 4}, 0.0),
        ({0, 1, 2}, {0, 1, 2, 3, 4}, 1 / 10),
        ({0, 1, 2}, set(), 1.0),
    ],
)
def test_each_choice_among_equals_is_as_likely(chosen: set[int], tied: set[int], chance: float) -> None:
    assert chance_by_ties(chosen, (0, 1, 2), tied) == pytest.approx(chance)
