"""Phases A and B against an oracle written from the equations, and by properties."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memrl_core.errors import InputError
from memrl_core.records import Decision, Memory, Reason, Recalled, RecallRecord
from memrl_core.retrieval import positions_in, recall, select
from memrl_core.retrieval.exploration import Exploration
from memrl_core.retrieval.view import MemoryView
from tests.builders import view_of
from tests.oracles import retrieval as oracle


def a_view(vectors: np.ndarray, groups: list[int] | None = None, visible: np.ndarray | None = None) -> MemoryView:
    n = len(vectors)
    intents = np.array(groups if groups is not None else range(n), dtype=np.int64)
    return view_of([f"m{i}" for i in range(n)], vectors, intent_groups=intents, visible=visible)


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def a_pool(similarities: list[float]) -> RecallRecord:
    """A recall whose pool has these similarities, which must be in falling order."""
    pool = tuple(Recalled(f"m{i}", s, i + 1, None) for i, s in enumerate(similarities))
    return RecallRecord(10, "record", -1.0, True, len(pool), pool, ())


def decide(similarities: list[float], q: list[float], **changes: Any) -> Decision:
    parameters: dict[str, Any] = {
        "k2": 3,
        "weight": 0.5,
        "normaliser": "pool",
        "fixed_mean": 0.5,
        "fixed_sd": 0.15,
        "epsilon": 0.0,
        "seed": 1,
    }
    visits = np.zeros(len(q), dtype=np.int64)
    return select(a_pool(similarities), np.array(q, dtype=float), visits, **{**parameters, **changes})


def scores(decision: Decision) -> dict[str, float]:
    return {c.memory_id: c.score for c in decision.candidates if c.score is not None}


finite = st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 3))
pools = st.lists(st.tuples(finite, finite), min_size=1, max_size=12).map(
    lambda pairs: sorted(pairs, key=lambda pair: -pair[0])
)


@given(st.integers(0, 2**32 - 1), st.integers(0, 60), st.integers(1, 12), st.floats(-1, 1).map(lambda x: round(x, 2)))
def test_phase_a_agrees_with_the_equation(seed: int, n: int, k1: int, delta: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(n, 6)))
    if n > 3:
        vectors[n // 2] = vectors[0]
    query = unit(rng.normal(size=6))
    got = recall(query, a_view(vectors), k1=k1, k1_counts="record", delta=delta, strict=True, seed=seed)
    assume(all(abs(float(v @ query) - delta) > 1e-5 for v in vectors))
    expected = oracle.phase_a(query.tolist(), vectors.tolist(), k1, delta, seed)
    assert [member.memory_id for member in got.pool] == [f"m{i}" for i in expected]


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 6))
def test_k1_can_count_intents(seed: int, n: int, k1: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 9, size=n)
    centres = unit(rng.normal(size=(9, 6)))
    vectors = centres[groups]
    query = unit(rng.normal(size=6))
    got = recall(query, a_view(vectors, groups.tolist()), k1=k1, k1_counts="intent", delta=-1.0, strict=True, seed=seed)
    expected = oracle.phase_a_by_intent(query.tolist(), vectors.tolist(), groups.tolist(), k1, -1.0, seed)
    assert [member.memory_id for member in got.pool] == [f"m{i}" for i in expected]


def test_the_gate_is_strict_for_the_paper_and_not_for_the_code() -> None:
    vectors = unit(np.array([[1.0, 0.0], [0.6, 0.8]]))
    query = np.array([1.0, 0.0], dtype=np.float32)
    exact = recall(query, a_view(vectors), k1=5, k1_counts="record", delta=-1, strict=True).pool[1].similarity
    strict = recall(query, a_view(vectors), k1=5, k1_counts="record", delta=exact, strict=True)
    loose = recall(query, a_view(vectors), k1=5, k1_counts="record", delta=exact, strict=False)
    assert [m.memory_id for m in strict.pool] == ["m0"]
    assert [m.memory_id for m in loose.pool] == ["m0", "m1"]


def test_those_that_missed_the_pool_are_listed_with_the_reason() -> None:
    angles = np.linspace(0, np.pi / 2, 9)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    got = recall(np.array([1, 0], dtype=np.float32), a_view(vectors), k1=2, k1_counts="record", delta=0.5, strict=True)
    assert [m.memory_id for m in got.pool] == ["m0", "m1"]
    reasons = {m.memory_id: m.reason for m in got.left_out}
    assert reasons["m2"] is Reason.BEYOND_K1 and reasons["m5"] is Reason.BEYOND_K1
    assert reasons["m6"] is Reason.BELOW_DELTA


def test_the_tasks_own_memories_stand_behind_all_others_with_ranks_that_follow() -> None:
    angles = np.linspace(0.1, 1.2, 9)
    vectors = np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    own = {"m-1", "m-4", "m-7"}
    ids = [f"m-{number}" for number in range(9)]
    tasks = {i: Memory(i, i, "x", "success", i, (), "r", 1, "mine" if i in own else "other", "") for i in ids}
    view = view_of(ids, vectors, memories=tasks)
    found = recall(
        np.array([1, 0], np.float32), view, k1=2, k1_counts="record", delta=-1.0, strict=True, exclude_task="mine"
    )
    listed = [(member.memory_id, member.rank_recall, member.reason) for member in (*found.pool, *found.left_out)]
    others = [i for i in ids if i not in own]
    beyond = [(i, rank, Reason.BEYOND_K1) for rank, i in enumerate(others, start=1)][2:]
    same = [(i, rank, Reason.SAME_TASK) for rank, i in enumerate(sorted(own), start=len(others) + 1)]
    assert listed == [("m-0", 1, None), ("m-2", 2, None), *beyond, *same]


def test_memories_of_other_runs_are_never_recalled() -> None:
    vectors = unit(np.ones((4, 3)))
    visible = np.array([False, True, False, True])
    got = recall(vectors[0], a_view(vectors, visible=visible), k1=9, k1_counts="record", delta=-1, strict=True)
    assert [m.memory_id for m in got.pool] == ["m1", "m3"]
    by_intent = recall(
        vectors[0], a_view(vectors, [0, 0, 0, 0], visible), k1=9, k1_counts="intent", delta=-1, strict=True
    )
    assert [m.memory_id for m in by_intent.pool] == ["m1", "m3"]


def test_equal_memories_are_ordered_by_age_whatever_the_size_of_the_bank() -> None:
    rng = np.random.default_rng(0)
    twin = unit(rng.normal(size=64))
    for n in (3, 7, 33, 1001):
        vectors = unit(rng.normal(size=(n, 64)))
        vectors[n // 2], vectors[n - 1] = twin, twin
        got = recall(twin, a_view(vectors), k1=2, k1_counts="record", delta=0.9, strict=True, ties="older")
        assert [m.memory_id for m in got.pool] == [f"m{n // 2}", f"m{n - 1}"]
        assert got.pool[0].similarity == got.pool[1].similarity


def test_of_equal_memories_at_the_cut_the_seed_draws_each_as_often_and_alike_beside_another_run() -> None:
    rng = np.random.default_rng(0)
    twin = unit(rng.normal(size=8))
    vectors = np.stack([twin, *unit(rng.normal(size=(2, 8))), *[twin] * 5])
    query = unit(twin + 0.01)
    often: Counter[str] = Counter()
    for seed in range(1200):
        pool = recall(query, a_view(vectors), k1=2, k1_counts="record", delta=0.9, strict=True, seed=seed).pool
        often.update(member.memory_id for member in pool)
    assert set(often) == {"m0", "m3", "m4", "m5", "m6", "m7"}
    assert all(abs(count - 400) < 5 * (1200 * 2 / 9) ** 0.5 for count in often.values())
    # Rows of another run in between: the same places by age, so the same draw.
    both = np.repeat(vectors, 2, axis=0)
    shared = a_view(both, visible=np.arange(len(both)) % 2 == 1)
    for seed in range(20):
        alone = recall(query, a_view(vectors), k1=2, k1_counts="record", delta=0.9, strict=True, seed=seed).pool
        beside = recall(query, shared, k1=2, k1_counts="record", delta=0.9, strict=True, seed=seed).pool
        assert [m.memory_id for m in beside] == [f"m{2 * int(m.memory_id[1:]) + 1}" for m in alone]


def test_an_empty_bank_gives_an_empty_pool_and_a_fallback() -> None:
    query = np.array([1, 0, 0], dtype=np.float32)
    got = recall(query, a_view(np.zeros((0, 3))), k1=5, k1_counts="record", delta=0, strict=True)
    assert got.pool == () and got.left_out == () and got.memories == 0
    decision = decide([], [])
    assert decision.mode == "fallback" and decision.selected == () and decision.propensity == 1


@pytest.mark.parametrize("query", [np.array([np.nan, 0, 0]), np.array([np.inf, 0, 0]), np.array([1.0, 0])])
def test_a_query_that_is_not_a_vector_of_the_bank_is_refused(query: np.ndarray) -> None:
    with pytest.raises(InputError, match="Nothing was recalled"):
        recall(query.astype(np.float32), a_view(np.eye(3)), k1=5, k1_counts="record", delta=0, strict=True)


def test_a_utility_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(InputError):
        decide([0.9, 0.8], [0.0, float("nan")])


@given(pools, st.floats(0, 1))
def test_phase_b_agrees_with_the_equation(pool: list[tuple[float, float]], weight: float) -> None:
    similarity, q = [s for s, _ in pool], [u for _, u in pool]
    expected = oracle.phase_b(similarity, q, weight)
    got = scores(decide(similarity, q, weight=weight))
    assert [got[f"m{i}"] for i in range(len(pool))] == pytest.approx(expected, abs=1e-7)


@given(pools, st.floats(0, 1))
def test_the_fixed_normaliser_agrees_with_the_official_code(pool: list[tuple[float, float]], weight: float) -> None:
    similarity, q = [s for s, _ in pool], [u for _, u in pool]
    expected = oracle.phase_b_fixed(similarity, q, weight, 0.31, 0.1)
    got = decide(similarity, q, weight=weight, normaliser="fixed", fixed_mean=0.31, fixed_sd=0.1)
    assert [scores(got)[f"m{i}"] for i in range(len(pool))] == pytest.approx(expected, abs=1e-7)
    for candidate in got.candidates:
        similarity_term, q_term = candidate.terms
        assert abs(q_term.normalised) <= 3 and not similarity_term.clipped


HLE: dict[str, float] = {"mean": 0.1856827586889267, "sd": 0.09407906234264374, "wq": 0.5, "topk": 3}
BCB: dict[str, float] = {"mean": 0.31, "sd": 0.1, "wq": 0.5, "topk": 5}


def assert_selects_as_recorded(
    conf: dict[str, float], candidates: list[tuple[str, float, float, float]], selected: list[str], within: float
) -> None:
    """Our `fixed` selection of the (id, similarity, q, score) that a run of the official code recorded, best first."""
    members = sorted(candidates, key=lambda member: -member[1])
    pool = tuple(Recalled(name, value, n, None) for n, (name, value, _, _) in enumerate(members, start=1))
    ours = select(
        RecallRecord(10, "intent", 0.5, False, len(pool), pool, ()),
        np.array([q for _, _, q, _ in members]),
        np.zeros(len(pool), dtype=np.int64),
        k2=int(conf["topk"]), weight=conf["wq"], normaliser="fixed", fixed_mean=conf["mean"], fixed_sd=conf["sd"],
        epsilon=0.0, seed=0, exploration=Exploration(ties="older"),
    )  # fmt: skip
    assert list(ours.selected) == selected
    assert scores(ours) == pytest.approx({name: score for name, _, _, score in candidates}, abs=within)


def test_two_recorded_retrievals_of_the_official_code_are_selected_alike() -> None:
    """Every similarity lies more than three sd above the configured mean: cut there, q alone would decide."""
    hle = [
        ("a", 1.0, 0.3, 4.892065987013308), ("b", 1.0, -0.51, 3.710658651690683),
        ("c", 0.6057281752539908, 0.3, 2.796637870871809), ("d", 0.6587243807047494, 0.0, 2.6407374091582567),
        ("e", 0.6587243807047494, -0.057, 2.557601337413331), ("f", 0.6057281752539908, -0.5541, 1.5509094695149521),
    ]  # fmt: skip
    assert_selects_as_recorded(HLE, hle, ["a", "b", "c"], 1e-9)
    bcb = [
        ("a", 1.0, 0.3, 4.14856136572358), ("b", 1.0, -0.08787, 2.988891794694006),
        ("c", 0.6057281752539908, 0.3, 2.177202241993534), ("d", 0.7541666972803823, 0.0, 2.022442596707768),
        ("e", 0.7541666972803823, -0.057, 1.8520216681784005), ("f", 0.6057281752539908, -0.057, 1.109829058046443),
    ]  # fmt: skip
    assert_selects_as_recorded(BCB, bcb, ["a", "b", "c", "d", "e"], 1e-9)


def test_mean_and_sd_of_q_are_taken_before_the_least_q_drops_a_memory() -> None:
    """As the official code does; with the paper's normaliser, which knows no least q, by those that are left."""
    recalled = a_pool([0.9, 0.8])
    left = Recalled("m2", 0.7, 3, Reason.Q_BELOW_MINIMUM)
    beyond = Recalled("m3", 0.6, 4, Reason.BEYOND_K1)
    recalled = replace(recalled, left_out=(left, beyond))
    q, visits = np.array([0.0, 0.6, -0.9, 5.0]), np.zeros(4, dtype=np.int64)
    options = {"k2": 2, "weight": 1.0, "fixed_mean": 0.3, "fixed_sd": 0.1, "epsilon": 0.0, "seed": 1}
    by_code = select(recalled, q, visits, normaliser="fixed", **options)
    mean, sd = statistics.fmean([0.0, 0.6, -0.9]), statistics.pstdev([0.0, 0.6, -0.9])
    assert scores(by_code) == pytest.approx({"m0": -mean / sd, "m1": (0.6 - mean) / sd})
    assert scores(select(recalled, q, visits, normaliser="pool", **options)) == pytest.approx({"m0": -1, "m1": 1})


def test_every_retrieval_recorded_from_the_official_code_is_selected_alike() -> None:
    """120 retrievals of `MemoryService` at commit 7c3beba, with the numbers of two of its configurations."""
    places = [folder / "shared/data/official_selections.json" for folder in Path(__file__).resolve().parents]
    recorded = next((place for place in places if place.is_file()), None)
    if recorded is None:
        pytest.skip("The recorded retrievals (shared/data/official_selections.json) are not beside the project.")
    retrievals = json.loads(recorded.read_text())
    assert sum(len(conf["probes"]) for conf in retrievals.values()) == 120
    for conf in retrievals.values():
        # Memories below the least q, from which mean and sd of q are taken too, were not recorded.
        within = 1e-6 if conf["conf"]["qmin"] == -10 else 0.3
        for probe in conf["probes"]:
            assert_selects_as_recorded(conf["conf"], probe["candidates"], probe["selected"], within)


@given(pools, st.floats(0, 1))
def test_the_parts_of_a_score_sum_to_it(pool: list[tuple[float, float]], weight: float) -> None:
    for candidate in decide([s for s, _ in pool], [u for _, u in pool], weight=weight).candidates:
        assert sum(term.contribution for term in candidate.terms) == candidate.score
        for term in candidate.terms:
            assert term.contribution == term.weight * term.normalised


@given(pools, st.floats(0, 1), st.floats(0.01, 50), st.floats(-5, 5), st.booleans())
def test_selection_does_not_change_when_one_side_is_rescaled(
    pool: list[tuple[float, float]], weight: float, factor: float, offset: float, rescale_q: bool
) -> None:
    similarity, q = [s for s, _ in pool], [u for _, u in pool]
    assume(len(set(q)) == 1 or np.std(q) * min(factor, 1) > 1e-6)
    assume(len(set(similarity)) == 1 or np.std(similarity) * min(factor, 1) > 1e-6)
    before = decide(similarity, q, weight=weight)
    ordered = sorted(scores(before).values())
    assume(all(b - a > 1e-6 or b == a for a, b in itertools.pairwise(ordered)))
    if rescale_q:
        after = decide(similarity, [factor * u + offset for u in q], weight=weight)
    else:
        after = decide([factor * s + offset for s in similarity], q, weight=weight)
    assert after.selected == before.selected


def test_exploration_records_its_draw_and_what_greedy_would_have_done() -> None:
    explored = [decide([0.9, 0.8, 0.7, 0.6], [0, 0, 0, 0], k2=2, epsilon=0.5, seed=seed) for seed in range(400)]
    by_chance = [d for d in explored if d.mode == "explore"]
    assert 140 < len(by_chance) < 260
    for decision in explored:
        assert (decision.draw < 0.5) == (decision.mode == "explore")
        assert decision.greedy == ("m0", "m1")
    reasons = {c.reason for c in by_chance[0].candidates}
    assert reasons == {Reason.RANDOM_EXPLORE, Reason.NOT_DRAWN}
    share = np.mean([set(d.selected) == {"m0", "m1"} for d in explored])
    assert explored[0].propensity in (pytest.approx(0.5 / 6), pytest.approx(0.5 + 0.5 / 6))
    assert share == pytest.approx(0.5 + 0.5 / 6, abs=0.08)


def test_what_was_recalled_is_found_in_any_view_that_holds_it() -> None:
    view = a_view(unit(np.random.default_rng(3).normal(size=(20, 4))))
    later = replace(view, ids=view.ids[2:], embeddings=view.embeddings[2:], first_row=view.first_row + 2)
    recalled = recall(view.embeddings[9], later, k1=4, k1_counts="record", delta=-1.0, strict=True)
    expected = [seen.memory_id for seen in (*recalled.pool, *recalled.left_out)]
    assert len(expected) == 9
    for where in (view, later):
        assert [where.ids[position] for position in positions_in(where, recalled)] == expected
    with pytest.raises(KeyError):
        positions_in(replace(view, rows={}), recalled)
