"""Where a q comes from, and what changed between two moments: against folding the ledger again."""

from __future__ import annotations

from pathlib import Path

import pytest

from memrl_core.analysis.compare.counterfactual import changes
from memrl_core.analysis.memory.provenance import provenance
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from tests.analysis.eventful import an_eventful_bank, believed_by_definition
from tests.builders import a_bank, a_step


@pytest.fixture(scope="module", params=range(4))
def eventful(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    floor = {} if request.param < 2 else {"q_floor": -0.2}
    return an_eventful_bank(tmp_path_factory.mktemp("eventful") / "bank", 100 + request.param, **floor)


def _moments(bank: MemoryBank, run: str) -> list[int | None]:
    return [None, (bank.next_step(run) - 1) * 3 // 4]


def test_weights_add_up_to_one_and_weighted_rewards_to_q(eventful: MemoryBank) -> None:
    for run in ("r", "fork"):
        for as_of in _moments(eventful, run):
            believed = believed_by_definition(eventful, run, as_of)
            assert any(visits > 2 for _, visits in believed.values())
            for memory_id, (q, _) in believed.items():
                found = provenance(eventful, run, memory_id, as_of)
                assert found.q == pytest.approx(q)
                assert found.q0_share + sum(c.share for c in found.contributions) == pytest.approx(1)
                parts = [found.q0 * found.q0_share, *(c.share * c.value for c in found.contributions)]
                assert sum(parts) == pytest.approx(q)


def test_without_a_reward_q_is_the_fold_of_the_ledger_without_it(eventful: MemoryBank) -> None:
    compared = 0
    for run in ("r", "fork"):
        for as_of in _moments(eventful, run):
            for memory_id in eventful.utilities(run, as_of):
                found = provenance(eventful, run, memory_id, as_of)
                for c in found.contributions:
                    expected = believed_by_definition(eventful, run, as_of, without=[c.event_id])[memory_id][0]
                    assert c.without == pytest.approx(expected), c
                    compared += 1
    assert compared > 50


def test_the_weight_of_a_reward_is_how_far_q_follows_it(tmp_path: Path) -> None:
    """dq / dreward, measured by giving a slightly larger one."""
    found = []
    for value in (0.5, 0.5 + 1e-6):
        bank = a_bank(tmp_path / f"{value}")
        bank.commit_step(*a_step(1))
        for step, reward in ((2, 1.0), (3, -0.5), (4, 0.25)):
            bank.commit_step(*a_step(step, ("r-0001",), reward))
        bank.give_reward("r", 3, bank.trace("r", 3).id, ("r-0001",), value, "ann")
        bank.give_reward("r", 3, bank.trace("r", 3).id, ("r-0001",), -1.0, "bob")
        found.append(provenance(bank, "r", "r-0001"))
    ann = next(c for c in found[0].contributions if c.rater == "ann")
    assert ann.share == pytest.approx((found[1].q - found[0].q) / 1e-6, rel=1e-4)
    assert ann.share == pytest.approx(0.3 * 0.7 / 2)


def test_a_memory_that_never_moved_is_its_q0_and_an_unknown_one_is_none(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.commit_step(*a_step(1, q0=0.4))
    found = provenance(bank, "r", "r-0001")
    assert (found.q, found.q0, found.q0_share, found.contributions) == (0.4, 0.4, 1.0, ())
    assert provenance(bank, "r", "stranger") is None


# --- changes ----------------------------------------------------------------------------------------------------------


def test_added_and_moved_are_the_differences_of_two_folds(eventful: MemoryBank) -> None:
    last = eventful.next_step("r") - 1
    for earlier, later in ((0, last), (last // 3, last), (last - 1, last)):
        found = changes(eventful, "r", earlier, later)
        then, now = (believed_by_definition(eventful, "r", step) for step in (earlier, later))
        assert set(found.added) == now.keys() - then.keys()
        differ = {i for i in then if abs(then[i][0] - now[i][0]) > 1e-12}
        assert {m.memory_id for m in found.moved} == differ
        for move in found.moved:
            assert (move.before, move.after) == pytest.approx((then[move.memory_id][0], now[move.memory_id][0]))
            assert move.updates == now[move.memory_id][1] - then[move.memory_id][1]
        sizes = [abs(m.after - m.before) for m in found.moved]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("earlier", "later"), [(3, 3), (5, 2), (-1, 4)])
def test_moments_in_the_wrong_order_are_refused(tmp_path: Path, earlier: int, later: int) -> None:
    with pytest.raises(InputError):
        changes(a_bank(tmp_path / "bank"), "r", earlier, later)
