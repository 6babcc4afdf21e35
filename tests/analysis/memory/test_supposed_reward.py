"""What q would be with another reward: held against a replay from the definition, and against really giving it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.analysis.memory.belief import supposed_reward
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.records import EventKind
from tests.builders import a_bank, a_run, a_step
from tests.oracles.fold import utilities_by_definition

CREDITED = [(), ("r-0001",), ("r-0001", "r-0002"), ("r-0002",), ("r-0003", "r-0001")]


def reward_of(bank: MemoryBank, step: int, run: str = "r") -> str:
    return next(e.id for e in bank.events(run) if e.kind is EventKind.REWARD_GIVEN and e.step == step)


def lived(path: Any, rewards: list[float]) -> MemoryBank:
    bank = a_bank(path, alpha=0.3)
    for step, (credited, reward) in enumerate(zip(CREDITED, rewards, strict=True), start=1):
        bank.commit_step(*a_step(step, credited, reward))
    return bank


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=5, max_size=5), st.integers(1, 4), st.floats(-1, 1))
def test_every_q_is_what_a_replay_with_the_other_reward_gives(
    tmp_path_factory: pytest.TempPathFactory, rewards: list[float], at: int, instead: float
) -> None:
    bank = lived(tmp_path_factory.mktemp("supposed") / "bank", rewards)
    found = supposed_reward(bank, "r", reward_of(bank, at + 1), instead)
    changed = [*rewards[:at], instead, *rewards[at + 1 :]]
    now = utilities_by_definition(list(zip(CREDITED, rewards, strict=True)), [], 0.3)
    then = utilities_by_definition(list(zip(CREDITED, changed, strict=True)), [], 0.3)
    for memory_id, (q, _) in now.items():
        before, after = found.get(memory_id, (q, q))
        assert before == pytest.approx(q, abs=1e-12)
        assert after == pytest.approx(then[memory_id][0], abs=1e-12)
    assert {i: u.q for i, u in bank.utilities("r").items()} == pytest.approx({i: q for i, (q, _) in now.items()})


def test_a_reward_that_no_longer_counts_moves_nothing(tmp_path: Path) -> None:
    bank = lived(tmp_path / "bank", [1.0] * 5)
    environment = reward_of(bank, 2)
    given = bank.give_reward("r", 2, bank.trace("r", 2).id, ("r-0001",), -1.0, "ada")
    assert supposed_reward(bank, "r", environment, 0.0) == {}
    assert set(supposed_reward(bank, "r", given.id, 0.0)) == {"r-0001"}
    bank.revoke_reward(given.id, "ada")
    assert supposed_reward(bank, "r", given.id, 0.0) == {}
    assert set(supposed_reward(bank, "r", environment, 0.0)) == {"r-0001"}


def test_a_reward_of_the_run_it_started_from_counts_as_far_as_it_was_known(tmp_path: Path) -> None:
    bank = lived(tmp_path / "bank", [1.0] * 5)
    bank.start_run(a_run("s", base="r", base_step=3, alpha=0.3))
    bank.commit_step(*a_step(1, ("r-0001",), 1.0, run="s"))
    found = supposed_reward(bank, "s", reward_of(bank, 2), 0.0)
    # Two more rewards, in step 3 of the base and in step 1 of the run, shrink the 0.3 that is gone.
    before, after = found["r-0001"]
    assert before - after == pytest.approx(0.3 * 0.7 * 0.7)
    with pytest.raises(InputError):
        supposed_reward(bank, "s", reward_of(bank, 4), 0.0)


def test_what_is_not_a_reward_is_refused(tmp_path: Path) -> None:
    bank = lived(tmp_path / "bank", [1.0] * 5)
    with pytest.raises(InputError):
        supposed_reward(bank, "r", bank.events("r")[0].id, 0.0)
