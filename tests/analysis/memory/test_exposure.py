"""What is never used, alike or alone, which memories help or mislead, and a δ that fits: against definitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.decision import gate
from memrl_core.analysis.decision.gate import suggest_delta
from memrl_core.analysis.memory import exposure
from memrl_core.analysis.memory.exposure import (
    AT_LEAST,
    ROLES,
    gini,
    harm,
    left_out,
    profile,
    starvation,
    uses,
    with_role,
)
from memrl_core.analysis.memory.relations import Neighbourhood, neighbourhoods, opposed
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.retrieval.view import MemoryView
from tests.builders import a_bank, a_run, a_step, an_agent_after, grown, view_of

K2 = 3


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return an_agent_after(tmp_path_factory.mktemp("learned") / "bank", 30, epochs=2, delta=0.1, k2=K2).bank


def test_a_profile_counts_what_the_traces_say(learned: MemoryBank) -> None:
    memories = {m.id: m for m in learned.memories("r")}
    profiles = profile(uses(learned, "r"), learned.utilities("r"), memories, K2)
    traces = learned.traces("r")
    members = [(t, c) for t in traces if t.decision for c in t.decision.candidates if c.rank_select is not None]
    assert set(profiles["memory_id"]) == {c.memory_id for _, c in members}
    assert profiles["pools"].is_monotonic_decreasing
    for row in profiles.itertuples():
        seen = [(t, c) for t, c in members if c.memory_id == row.memory_id]
        outcomes = [t.reward.outcome for t, c in seen if c.selected and t.reward]
        rated = [o for o in outcomes if o != "unrated"]
        assert (row.pools, row.near) == (len(seen), sum(c.rank_recall <= K2 for _, c in seen))
        assert (row.selected, row.rated) == (len(outcomes), len(rated))
        assert row.rank == pytest.approx(np.mean([c.rank_recall for _, c in seen]))
        assert row.similarity == pytest.approx(np.mean([c.similarity for _, c in seen]))
        assert row.success == pytest.approx(np.mean([o == "success" for o in rated]) if rated else np.nan, nan_ok=True)
        assert row.q == learned.utilities("r")[row.memory_id].q
        memory = learned.memory(row.memory_id)
        assert (row.intent, row.outcome) == (memory.intent, memory.outcome)


def _row(memory_id: str, **values: object) -> dict[str, object]:
    counts = {"pools": 9, "near": 0, "selected": 2, "rated": 2}
    return {"memory_id": memory_id, "outcome": "success", "q": 0.0, "rank": 2.0, "success": 0.5, **counts, **values}


def test_each_role_is_reported_by_its_own_signs_the_clearest_first() -> None:
    table = pd.DataFrame(
        [
            _row("near and poor", near=6, q=-0.2),
            _row("nearer and poorer", near=8, q=-0.9),
            _row("seldom seen", pools=AT_LEAST - 1, near=2, q=-0.9),
            _row("far and good", rank=5.5, q=0.6),
            _row("far and good, never given", rank=6.0, q=0.9, selected=0),
            _row("warned well", outcome="failure", q=0.3, success=1.0),
            _row("warned, never rated", outcome="failure", q=0.3, rated=0, success=np.nan),
            _row("worked once", q=-0.4, success=0.0),
        ]
    )
    assert {role: with_role(table, role, 0.0, K2)["memory_id"].tolist() for role in ROLES} == {
        "distractors": ["nearer and poorer", "near and poor"],
        "far but useful": ["far and good"],
        "corrective failures": ["warned well"],
        "lucky successes": ["worked once", "near and poor", "nearer and poorer"],
    }


def test_failed_steps_that_left_a_better_memory_out_are_those_of_the_traces(learned: MemoryBank) -> None:
    table = uses(learned, "r")
    expected = {}
    for trace in learned.traces("r"):
        if trace.reward is None or trace.reward.outcome != "failure" or not trace.decision.selected:
            continue
        q = {one.memory_id: one.q for one in trace.decision.candidates}
        pool = {one.memory_id for one in trace.recall.pool}
        best = max(q[i] for i in trace.decision.selected)
        better = {i: q[i] for i in pool - {*trace.decision.selected} if q[i] > best}
        if better:
            expected[trace.step] = (best, max(better.values()), len(better))
    found = left_out(table).set_index("step")
    assert expected and {s: (r.q_selected, r.q_left_out, r.better) for s, r in found.iterrows()} == expected
    assert (found["q_left_out"] - found["q_selected"]).is_monotonic_decreasing
    assert left_out(table[table["outcome"] == "success"]).empty


def test_a_run_without_pools_has_no_profiles_and_no_roles(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    empty = profile(uses(bank, "r"), {}, {}, K2)
    assert empty.empty
    for role in ROLES:
        assert with_role(empty, role, 0.0, K2).empty


def test_a_memory_that_left_the_run_has_no_q(learned: MemoryBank) -> None:
    frame = uses(learned, "r")
    first = frame["memory_id"].iloc[0]
    others = {i: u for i, u in learned.utilities("r").items() if i != first}
    row = profile(frame, others, {}, K2).set_index("memory_id").loc[first]
    assert np.isnan(row["q"]) and row["intent"] == ""


def _used_at(path: Path, angles: dict[int, float], rewards: dict[int, float | None]) -> tuple[MemoryBank, pd.DataFrame]:
    """A bank whose steps have intents at these angles (degrees), each given memory "m", and the table of these uses."""
    bank = a_bank(path)
    rows = []
    for step in sorted(angles):
        trace, vectors = a_step(step)
        direction = np.zeros(8)
        direction[:2] = np.cos(np.radians(angles[step])), np.sin(np.radians(angles[step]))
        trace = replace(trace, embed=replace(trace.embed, embedding=tuple(direction)))
        bank.write.commit_step(trace, vectors)
        reward = rewards[step]
        outcome = "unrated" if reward is None else "success" if reward > 0 else "failure"
        similarity = float(direction[0])
        rows.append({"step": step, "memory_id": "m", "selected": True, "similarity": similarity, "reward": reward,
                     "outcome": outcome})  # fmt: skip
    return bank, pd.DataFrame(rows).astype({"reward": float})


def test_intents_that_point_the_same_way_are_one_neighbourhood(tmp_path: Path) -> None:
    angles = {1: 90.0, 2: 0.0, 3: 10.0, 4: 95.0, 5: 20.0, 6: 180.0}
    rewards = {1: -1.0, 2: 1.0, 3: 0.5, 4: -0.5, 5: None, 6: None}
    bank, frame = _used_at(tmp_path / "bank", angles, rewards)
    found = neighbourhoods(bank, "r", "m", frame)
    assert [n.steps for n in found] == [(2, 3, 5), (1, 4), (6,)]
    assert [n.uses for n in found] == [3, 2, 1]
    assert [n.mean_reward for n in found] == [pytest.approx(0.75), pytest.approx(-0.75), None]
    assert [(n.successes, n.rated) for n in found] == [(2, 2), (0, 2), (0, 0)]
    assert [n.similarity for n in found] == pytest.approx(
        [np.mean(np.cos(np.radians(a))) for a in ([0, 10, 20], [90, 95], [180])]
    )
    assert found[0].intent == "task 3"
    assert opposed(found, 0.0)
    assert not opposed(found, -0.8)
    assert not opposed(found[2:], 0.0)


def test_one_use_is_one_neighbourhood_and_none_is_none(tmp_path: Path) -> None:
    bank, frame = _used_at(tmp_path / "bank", {1: 30.0}, {1: 1.0})
    (found,) = neighbourhoods(bank, "r", "m", frame)
    assert found == Neighbourhood("task 1", 1, pytest.approx(np.cos(np.radians(30))), 1.0, 1, 1, (1,))
    assert neighbourhoods(bank, "r", "stranger", frame) == []
    assert neighbourhoods(bank, "r", "m", frame.assign(selected=False)) == []


def test_what_hurt_most_is_the_sum_of_the_rewards_of_the_steps_that_used_it(learned: MemoryBank) -> None:
    earned: dict[str, float] = {}
    failures: dict[str, int] = {}
    for trace in learned.traces("r"):
        for memory_id in trace.decision.selected if trace.decision and trace.reward else ():
            earned[memory_id] = earned.get(memory_id, 0.0) + trace.reward.reward
            failures[memory_id] = failures.get(memory_id, 0) + (trace.reward.outcome == "failure")
    memories = {memory.id: memory for memory in learned.memories()}
    found = harm(uses(learned, "r"), learned.histories("r"), memories)
    by_memory = found.set_index("memory_id")
    assert by_memory["earned"].to_dict() == pytest.approx(earned)
    assert by_memory["failures"].to_dict() == failures
    assert found["earned"].is_monotonic_increasing
    # MemRL credits every memory in the prompt with the whole reward.
    assert found["credited"].tolist() == pytest.approx(found["earned"].tolist())
    assert by_memory["q"].to_dict() == pytest.approx({i: learned.utilities("r")[i].q for i in earned})


# --- what is never used -----------------------------------------------------------------------------------------------


NO_USES = pd.DataFrame({"memory_id": [], "selected": []}).astype({"selected": bool})


def a_view(vectors: np.ndarray, groups: list[int] | None = None, visible: list[bool] | None = None) -> MemoryView:
    """Memories m0, m1, … with these embeddings (n, d), which are made unit vectors."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    grouped = {"intent_groups": np.array(groups)} if groups else {}
    seen = None if visible is None else np.array(visible)
    return view_of([f"m{i}" for i in range(len(vectors))], unit, visible=seen, **grouped)


def _cosines(view: MemoryView) -> np.ndarray:
    exact = view.embeddings.astype(np.float64)
    return exact @ exact.T


@pytest.mark.parametrize("rows", [3, 1024])
def test_duplicates_are_the_groups_joined_by_the_threshold(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(exposure, "ROWS_AT_ONCE", rows)
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(6, 12))
    vectors = centres[rng.integers(0, 6, 40)] + 0.12 * rng.normal(size=(40, 12))
    view = a_view(np.vstack([vectors, rng.normal(size=(5, 12))]))
    found = starvation(view, NO_USES, threshold=0.95, delta=0.6)
    cosines = _cosines(view)
    np.fill_diagonal(cosines, -1)
    left, groups = set(range(45)), []
    while left:
        group, edge = set(), {min(left)}
        while edge:
            group |= edge
            edge = {j for i in edge for j in np.flatnonzero(cosines[i] >= 0.95)} - group
        left -= group
        groups += [tuple(f"m{i}" for i in sorted(group))] if len(group) > 1 else []
    assert set(found.duplicates) == set(groups)
    assert [len(g) for g in found.duplicates] == sorted(map(len, groups), reverse=True)
    assert len(groups) > 2
    assert found.loners == tuple(f"m{i}" for i in range(45) if cosines[i].max() <= 0.6)
    assert found.loners


def test_memories_of_other_runs_between_are_not_counted() -> None:
    view = a_view(np.array([[1.0, 0], [1, 0], [1, 0.01], [0, 1]]), visible=[True, False, True, True])
    frame = pd.DataFrame({"memory_id": ["m1", "m2"], "selected": [True, False]})
    found = starvation(view, frame, threshold=0.9, delta=0.2)
    assert found.duplicates == (("m0", "m2"),)
    assert (found.never_recalled, found.never_selected, found.loners) == (("m0", "m3"), ("m2",), ("m3",))
    assert found.gini is None


def test_an_empty_memory_and_a_single_one(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    found = starvation(bank.view("r"), uses(bank, "r"), threshold=0.9, delta=0.2)
    assert (found.never_recalled, found.duplicates, found.loners, found.gini) == ((), (), (), None)
    assert found.lorenz.shape == (0, 2)
    found = starvation(grown(bank, 1).view("r"), uses(bank, "r"), threshold=0.9, delta=0.2)
    assert (found.never_recalled, found.loners, found.gini) == (("r-0001",), ("r-0001",), None)


def _gini_by_definition(counts: list[int]) -> float:
    """Half the mean absolute difference of all pairs, relative to the mean."""
    x = np.array(counts, dtype=float)
    return float(np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean()))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_gini_is_half_the_relative_mean_difference(counts: list[int]) -> None:
    found = gini(np.array(counts))
    if sum(counts) == 0:
        assert found is None
    else:
        assert found == pytest.approx(_gini_by_definition(counts))


def test_the_gate_is_the_quantile_of_all_pairs_of_different_intents() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(90, 16)) + 0.5
    groups = [*range(60), *rng.integers(0, 60, 30).tolist()]
    view = a_view(vectors, groups)
    found = suggest_delta(view)
    first = np.array([groups.index(g) for g in range(60)])
    pairs = _cosines(view)[np.ix_(first, first)][np.triu_indices(60, 1)]
    assert found.delta == pytest.approx(np.quantile(pairs, 0.8), abs=1e-6)
    assert np.mean(pairs > found.delta) == pytest.approx(0.2, abs=1e-3)
    assert (found.mean, found.sd) == pytest.approx((pairs.mean(), pairs.std()), abs=1e-6)
    assert (found.intents, found.pairs, found.sampled) == (60, 60 * 59 // 2, False)
    assert found.passing(found.delta) == pytest.approx(0.2, abs=0.02)
    assert (found.passing(-1.0), found.passing(1.0)) == (1, 0)
    assert found.counts.sum() == found.pairs
    assert (len(found.counts), len(found.edges)) == (50, 51)


def test_only_the_intents_of_the_run_are_compared(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.start_run(a_run("other"))
    for step in (1, 2, 3):
        bank.write.commit_step(*a_step(step, run="other"))
    grown(bank, 4)
    found = suggest_delta(bank.view("other"))
    vectors = np.array([bank.embedding(f"other-{step:04d}") for step in (1, 2, 3)], dtype=np.float64)
    pairs = (vectors @ vectors.T)[np.triu_indices(3, 1)]
    assert (found.intents, found.pairs) == (3, 3)
    assert found.delta == pytest.approx(np.quantile(pairs, 0.8), abs=1e-6)


def test_a_large_memory_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_INTENTS", 50)
    view = a_view(np.random.default_rng(3).normal(size=(300, 8)))
    found, again, other = suggest_delta(view), suggest_delta(view), suggest_delta(view, seed=1)
    assert (found.intents, found.pairs, found.sampled) == (50, 50 * 49 // 2, True)
    assert found.delta == again.delta != other.delta
    whole = _cosines(view)[np.triu_indices(300, 1)]
    assert found.delta == pytest.approx(np.quantile(whole, 0.8), abs=0.1)


def test_one_intent_is_too_few() -> None:
    for view in (a_view(np.eye(3), groups=[5, 5, 5]), a_view(np.eye(2), visible=[True, False])):
        with pytest.raises(InputError):
            suggest_delta(view)
