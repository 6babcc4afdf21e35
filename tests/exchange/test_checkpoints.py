from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.errors import InputError
from memrl_core.exchange.contents import Contents, compare_checkpoints
from memrl_core.exchange.official.reader import read_official
from memrl_core.records import EventKind, LedgerEvent
from tests.exchange.official_writer import CheckpointWriter, Written


def holding(**known: tuple[float, int]) -> Contents:
    """A checkpoint with these q and visits."""
    events = [
        LedgerEvent(
            i, n, "r", 0, "", 0, EventKind.MEMORY_IMPORTED, memory_ids=(i,), value=q, payload={"visits": visits}
        )
        for n, (i, (q, visits)) in enumerate(known.items(), start=1)
    ]
    return Contents("unknown", 4, {}, tuple(events))


def test_memories_that_came_and_went_are_named() -> None:
    diff = compare_checkpoints(holding(a=(0, 0), b=(0, 0)), holding(b=(0, 0), c=(1, 0)))
    assert (diff.added, diff.gone) == (("c",), ("a",))
    assert [change.memory_id for change in diff.changes] == ["b"]


def test_the_largest_moves_of_q_come_first() -> None:
    diff = compare_checkpoints(
        holding(a=(0, 0), b=(0.5, 1), c=(0, 0)), holding(a=(0.3, 1), b=(0.05, 2), c=(0, 0)), alpha=0.3
    )
    assert [(c.memory_id, c.visits) for c in diff.changes] == [("b", 1), ("a", 1), ("c", 0)]
    assert diff.changes[0].moved == pytest.approx(-0.45)


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.01, 1))
def test_one_visit_gives_its_reward_exactly(q: float, reward: float, alpha: float) -> None:
    diff = compare_checkpoints(holding(a=(q, 3)), holding(a=(q + alpha * (reward - q), 4)), alpha)
    assert diff.changes[0].recovery == "exact"
    assert diff.changes[0].reward == pytest.approx(reward, abs=1e-9)


@given(st.floats(-5, 5), st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.floats(0.05, 1))
def test_several_visits_give_the_mean_in_which_newer_rewards_weigh_more(
    q: float, rewards: list[float], alpha: float
) -> None:
    after, weights = q, [alpha * (1 - alpha) ** (len(rewards) - n) for n in range(1, len(rewards) + 1)]
    for reward in rewards:
        after += alpha * (reward - after)
    diff = compare_checkpoints(holding(a=(q, 0)), holding(a=(after, len(rewards))), alpha)
    mean = sum(w * r for w, r in zip(weights, rewards, strict=True)) / sum(weights)
    assert diff.changes[0].recovery == "mean"
    assert diff.changes[0].reward == pytest.approx(mean, abs=1e-7)


def test_q_and_visits_that_contradict_each_other_give_no_reward() -> None:
    diff = compare_checkpoints(holding(a=(0.1, 2), b=(0.1, 2), c=(0.1, 2)), holding(a=(0.5, 2), b=(0.1, 1), c=(0.1, 2)))
    assert {c.memory_id: (c.recovery, c.reward) for c in diff.changes} == {
        "a": ("contradiction", None),
        "b": ("contradiction", None),
        "c": ("unchanged", None),
    }


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, float("nan")])
def test_a_step_size_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="step size"):
        compare_checkpoints(holding(a=(0, 0)), holding(a=(0, 0)), alpha)


def test_checkpoints_of_different_banks_are_refused() -> None:
    with pytest.raises(InputError, match="common"):
        compare_checkpoints(holding(a=(0, 0)), holding(b=(0, 0)))


def test_two_checkpoints_on_disk_give_the_reward_between_them(tmp_path: Path) -> None:
    before = CheckpointWriter([Written("m1", "one", q=0.51, visits=2), Written("m2", "two")])
    after = CheckpointWriter([Written("m1", "one", q=0.657, visits=3), Written("m2", "two", q=-0.51, visits=2)])
    diff = compare_checkpoints(
        read_official(before.write(tmp_path / "1")), read_official(after.write(tmp_path / "2")), alpha=0.3
    )
    assert {c.memory_id: (c.recovery, round(c.reward or 0, 9)) for c in diff.changes} == {
        "m2": ("mean", -1.0),
        "m1": ("exact", 1.0),
    }
