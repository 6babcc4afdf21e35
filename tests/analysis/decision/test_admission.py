"""Why a memory is in the pool or not, against phase A itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.decision.gate import admission, newcomers
from memrl_core.analysis.decision.whatif import Situation, decided, situation_of
from memrl_core.errors import InputError
from memrl_core.settings import MemRLSettings
from tests.builders import an_agent_after


@pytest.fixture(scope="module")
def situation(tmp_path_factory: pytest.TempPathFactory) -> Situation:
    """The last step of a short household run."""
    bank = an_agent_after(tmp_path_factory.mktemp("banks") / "bank", 14, delta=0.0, k1=4).bank
    return situation_of(bank, bank.trace("r", 14))


@given(
    delta=st.floats(-1, 1),
    k1=st.integers(3, 20),
    counts=st.sampled_from(["record", "intent"]),
    normaliser=st.sampled_from(["pool", "fixed"]),
)
def test_a_memory_is_admitted_exactly_when_phase_a_recalls_it(situation, delta, k1, counts, normaliser) -> None:
    chosen = MemRLSettings.of({"delta": delta, "k1": k1, "k1_counts": counts, "normaliser": normaliser})
    pool = {m.memory_id for m in decided(situation, chosen.model_dump())[0].pool}
    for memory_id in situation.view.ids:
        assert admission(situation, memory_id, chosen).in_pool == (memory_id in pool)


@pytest.mark.parametrize("normaliser", ["pool", "fixed"])
def test_a_memory_just_at_the_gate_is_admitted_as_phase_a_says(situation: Situation, normaliser: str) -> None:
    recalled = []
    for memory_id in situation.view.ids:
        at = admission(situation, memory_id, MemRLSettings()).similarity
        chosen = MemRLSettings.of({"delta": at, "k1": 20, "normaliser": normaliser})
        pool = {member.memory_id for member in decided(situation, chosen.model_dump())[0].pool}
        assert admission(situation, memory_id, chosen).in_pool == (memory_id in pool)
        recalled.append(memory_id in pool)
    # The paper's gate is strict, the official code's is not.
    assert all(recalled) == any(recalled) == (normaliser == "fixed")


def test_the_delta_and_k1_that_are_named_let_the_memory_in(situation: Situation) -> None:
    shut = MemRLSettings.of({"delta": 0.99, "k1": 3})
    for memory_id in situation.view.ids:
        found = admission(situation, memory_id, shut)
        opened = MemRLSettings.of({"delta": found.similarity - 1e-6, "k1": max(3, found.rank)})
        assert admission(situation, memory_id, opened).in_pool
        assert memory_id in {m.memory_id for m in newcomers(situation, shut, opened)}


def test_a_memory_that_the_run_did_not_know_gets_a_sentence(situation: Situation) -> None:
    with pytest.raises(InputError):
        admission(situation, "nobody", MemRLSettings())
