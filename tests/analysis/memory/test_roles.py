"""Roles of memories, and the neighbourhoods of intents they served: against loops over the traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memrl_core.analysis.memory.exposure import AT_LEAST, ROLES, harm, profile, with_role
from memrl_core.analysis.memory.relations import Neighbourhood, neighbourhoods, opposed
from memrl_core.analysis.memory.uses import uses
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from tests.builders import a_bank, a_step, an_agent

K2 = 3


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    agent = an_agent(tmp_path_factory.mktemp("learned") / "bank", delta=0.1, k2=K2)
    list(agent.run(sample_tasks("household-train")[:30], epochs=2))
    return agent.bank


@pytest.fixture(scope="module")
def profiles(learned: MemoryBank) -> pd.DataFrame:
    memories = {m.id: m for m in learned.memories("r")}
    return profile(uses(learned, "r"), learned.utilities("r"), memories, K2)


def test_a_profile_counts_what_the_traces_say(learned: MemoryBank, profiles: pd.DataFrame) -> None:
    traces = learned.traces("r")
    pooled = {c.memory_id for t in traces if t.decision for c in t.decision.candidates if c.rank_select is not None}
    assert set(profiles["memory_id"]) == pooled
    assert profiles["pools"].is_monotonic_decreasing
    for row in profiles.itertuples():
        seen = [
            (t, c)
            for t in traces
            if t.decision
            for c in t.decision.candidates
            if c.memory_id == row.memory_id and c.rank_select is not None
        ]
        outcomes = [t.reward.outcome for t, c in seen if c.selected and t.reward]
        rated = [o for o in outcomes if o != "unrated"]
        assert (row.pools, row.near) == (len(seen), sum(c.rank_recall <= K2 for _, c in seen))
        assert (row.selected, row.rated) == (len(outcomes), len(rated))
        assert row.rank == pytest.approx(np.mean([c.rank_recall for _, c in seen]))
        assert row.similarity == pytest.approx(np.mean([c.similarity for _, c in seen]))
        assert row.success == pytest.approx(np.mean([o == "success" for o in rated]) if rated else np.nan, nan_ok=True)
        assert row.q == learned.utilities("r")[row.memory_id].q
        assert (row.intent, row.outcome) == (
            learned.memory(row.memory_id).intent,
            learned.memory(row.memory_id).outcome,
        )


def _row(memory_id: str, **values: object) -> dict[str, object]:
    plain = {
        "outcome": "success",
        "q": 0.0,
        "pools": 9,
        "near": 0,
        "selected": 2,
        "rank": 2.0,
        "rated": 2,
        "success": 0.5,
    }
    return {"memory_id": memory_id, **plain, **values}


def test_each_role_is_told_by_its_own_signs_the_clearest_first() -> None:
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


def test_a_run_without_pools_has_no_profiles_and_no_roles(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    empty = profile(uses(bank, "r"), {}, {}, K2)
    assert empty.empty
    for role in ROLES:
        assert with_role(empty, role, 0.0, K2).empty


def test_a_memory_that_left_the_run_has_no_q(learned: MemoryBank) -> None:
    frame = uses(learned, "r")
    first = frame["memory_id"].iloc[0]
    table = profile(frame, {i: u for i, u in learned.utilities("r").items() if i != first}, {}, K2).set_index(
        "memory_id"
    )
    assert np.isnan(table.loc[first, "q"])
    assert table.loc[first, "intent"] == ""


# --- neighbourhoods ---------------------------------------------------------------------------------------------------


def _used_at(path: Path, angles: dict[int, float], rewards: dict[int, float | None]) -> tuple[MemoryBank, pd.DataFrame]:
    """A bank whose steps have intents at these angles (degrees), each given memory "m", and the table of these uses."""
    bank = a_bank(path)
    rows = []
    for step in sorted(angles):
        trace, vectors = a_step(step)
        direction = np.zeros(8)
        direction[:2] = np.cos(np.radians(angles[step])), np.sin(np.radians(angles[step]))
        trace = replace(trace, embed=replace(trace.embed, embedding=tuple(direction)))
        bank.commit_step(trace, vectors)
        reward = rewards[step]
        outcome = "unrated" if reward is None else "success" if reward > 0 else "failure"
        similarity = float(direction[0])
        rows.append({"step": step, "memory_id": "m", "selected": True, "similarity": similarity, "reward": reward,
                     "outcome": outcome})  # fmt: skip
    return bank, pd.DataFrame(rows).astype({"reward": float})


def test_intents_that_point_the_same_way_are_one_neighbourhood(tmp_path: Path) -> None:
    angles = {1: 0.0, 2: 90.0, 3: 10.0, 4: 95.0, 5: 20.0, 6: 180.0}
    rewards = {1: 1.0, 2: -1.0, 3: 0.5, 4: -0.5, 5: None, 6: None}
    bank, frame = _used_at(tmp_path / "bank", angles, rewards)
    found = neighbourhoods(bank, "r", "m", frame)
    assert [n.steps for n in found] == [(1, 3, 5), (2, 4), (6,)]
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


def test_the_neighbourhoods_of_a_real_memory_hold_each_of_its_uses_once(learned: MemoryBank) -> None:
    frame = uses(learned, "r")
    chosen = frame[frame["selected"]]
    memory_id = chosen["memory_id"].value_counts().index[0]
    steps = set(chosen[chosen["memory_id"] == memory_id]["step"])
    found = neighbourhoods(learned, "r", memory_id, frame)
    listed = [step for n in found for step in n.steps]
    assert sorted(listed) == sorted(steps)
    assert [n.uses for n in found] == sorted((len(n.steps) for n in found), reverse=True)
    for n in found:
        assert n.intent in {learned.trace("r", step).task.intent for step in n.steps}
        moved = [learned.trace("r", step).reward for step in n.steps]
        assert n.mean_reward == pytest.approx(np.mean([r.reward for r in moved if r and r.reward is not None]))


def test_what_hurt_most_is_the_sum_of_the_rewards_of_the_steps_that_used_it(learned: MemoryBank) -> None:
    earned: dict[str, float] = {}
    failures: dict[str, int] = {}
    for trace in learned.traces("r"):
        for memory_id in trace.decision.selected if trace.decision and trace.reward else ():
            earned[memory_id] = earned.get(memory_id, 0.0) + trace.reward.reward
            failures[memory_id] = failures.get(memory_id, 0) + (trace.reward.outcome == "failure")
    memories = {memory.id: memory for memory in learned.memories()}
    found = harm(uses(learned, "r"), learned.histories("r"), memories)
    assert dict(zip(found["memory_id"], found["earned"], strict=True)) == pytest.approx(earned)
    assert dict(zip(found["memory_id"], found["failures"], strict=True)) == failures
    assert found["earned"].is_monotonic_increasing
    # MemRL credits every memory in the prompt with the whole reward.
    assert found["credited"].tolist() == pytest.approx(found["earned"].tolist())
    assert dict(zip(found["memory_id"], found["q"], strict=True)) == pytest.approx(
        {i: learned.utilities("r")[i].q for i in earned}
    )
