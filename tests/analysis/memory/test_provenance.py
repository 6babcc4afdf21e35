"""Where a q comes from and how far it can be trusted: against folding the ledger again and simulated chains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.compare.counterfactual import changes
from memrl_core.analysis.memory.provenance import provenance, trust, under_another_alpha
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.records import UtilityPoint
from tests.analysis.eventful import an_eventful_bank, believed_by_definition
from tests.builders import a_bank, a_step, an_agent_after
from tests.small_banks import give_reward


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
        bank.write.commit_step(*a_step(1))
        for step, reward in ((2, 1.0), (3, -0.5), (4, 0.25)):
            bank.write.commit_step(*a_step(step, ("r-0001",), reward))
        give_reward(bank, "r", 3, bank.trace("r", 3).id, ("r-0001",), value, "ann")
        give_reward(bank, "r", 3, bank.trace("r", 3).id, ("r-0001",), -1.0, "bob")
        found.append(provenance(bank, "r", "r-0001"))
    ann = next(c for c in found[0].contributions if c.rater == "ann")
    assert ann.share == pytest.approx((found[1].q - found[0].q) / 1e-6, rel=1e-4)
    assert ann.share == pytest.approx(0.3 * 0.7 / 2)


def test_a_memory_that_never_moved_is_its_q0_and_an_unknown_one_is_none(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    bank.write.commit_step(*a_step(1, q0=0.4))
    found = provenance(bank, "r", "r-0001")
    assert (found.q, found.q0, found.q0_share, found.contributions) == (0.4, 0.4, 1.0, ())
    assert provenance(bank, "r", "stranger") is None


def test_added_and_moved_are_the_differences_of_two_folds(eventful: MemoryBank) -> None:
    last = eventful.next_step("r") - 1
    for earlier, later in ((0, last), (last // 3, last), (last - 1, last)):
        added, moved = changes(eventful, "r", earlier, later)
        then, now = (believed_by_definition(eventful, "r", step) for step in (earlier, later))
        assert set(added) == now.keys() - then.keys()
        differ = {i for i in then if abs(then[i][0] - now[i][0]) > 1e-12}
        assert set(moved["memory_id"]) == differ
        for move in moved.itertuples():
            assert (move.before, move.after) == pytest.approx((then[move.memory_id][0], now[move.memory_id][0]))
            assert move.updates == now[move.memory_id][1] - then[move.memory_id][1]
        assert (moved["after"] - moved["before"]).abs().is_monotonic_decreasing


def test_q_under_another_step_size_is_that_of_a_run_with_it_where_q_decides_nothing(tmp_path: Path) -> None:
    slow, fast = (an_agent_after(tmp_path / f"{a}", 24, weight=0.0, alpha=a, delta=0.0).bank for a in (0.2, 0.7))
    table = under_another_alpha(slow.histories("r"), 0.7)
    then = dict(zip(table["memory_id"], table["q_then"], strict=True))
    assert then == {memory_id: one.q for memory_id, one in fast.utilities("r").items()}
    assert (table["q"] - table["q_then"]).abs().is_monotonic_decreasing
    assert (table["q"] != table["q_then"]).sum() == (table["rewards"] > 0).sum() > 3


@pytest.mark.parametrize(("earlier", "later"), [(3, 3), (5, 2), (-1, 4)])
def test_moments_in_the_wrong_order_are_refused(tmp_path: Path, earlier: int, later: int) -> None:
    with pytest.raises(InputError):
        changes(a_bank(tmp_path / "bank"), "r", earlier, later)


# --- how far a q can be trusted ---------------------------------------------------------------------------------------


def a_history(rewards: list[float], alphas: list[float], q0: float = 0.0) -> list[UtilityPoint]:
    points = [UtilityPoint("m", 1, None, q0, 0, None, None, ())]
    for number, (reward, alpha) in enumerate(zip(rewards, alphas, strict=True), start=1):
        before = points[-1].after
        after = before + alpha * (reward - before)
        points.append(UtilityPoint("m", number + 1, before, after, number, reward, "environment", ()))
    return points


def test_the_ladder_of_successes_is_the_one_of_the_paper() -> None:
    found = trust(a_history([1.0] * 6, [0.3] * 6), 0.3)
    assert [round(rung.expected, 4) for rung in found.ladder] == [0.3, 0.51, 0.657, 0.7599, 0.8319, 0.8824]
    assert [rung.recorded for rung in found.ladder] == pytest.approx([rung.expected for rung in found.ladder])
    assert found.window == pytest.approx(5.667, abs=1e-3)
    assert found.q0_share == pytest.approx(0.7**6)


@given(st.lists(st.sampled_from([-1.0, 1.0, 0.5]), min_size=2, max_size=12), st.floats(0.05, 0.95), st.floats(-1, 1))
def test_the_variance_of_q_is_the_closed_form_of_equation_17(rewards: list[float], alpha: float, q0: float) -> None:
    found = trust(a_history(rewards, [alpha] * len(rewards), q0), alpha)
    n = len(rewards)
    sample = float(np.var(rewards, ddof=1))
    closed = alpha / (2 - alpha) * sample * (1 - (1 - alpha) ** (2 * n))
    last = found.ladder[-1]
    assert found.limit is not None
    assert ((last.high - last.low) / 2 / 1.959964) ** 2 == pytest.approx(closed, rel=1e-5, abs=1e-9)
    beta = float(np.mean(rewards))
    assert last.expected == pytest.approx(beta + (1 - alpha) ** n * (q0 - beta), abs=1e-9)
    assert found.limit == pytest.approx(alpha / (2 - alpha) * sample)


def test_each_move_counts_with_the_step_size_that_it_shows() -> None:
    alphas = [0.5, 0.1, 0.3, 0.2]
    found = trust(a_history([1.0, -1.0, 1.0, 0.0], alphas, 0.4), 0.9)
    weights = [a * np.prod([1 - b for b in alphas[i + 1 :]]) for i, a in enumerate(alphas)]
    assert found.q0_share == pytest.approx(float(np.prod([1 - a for a in alphas])))
    variance = np.var([1.0, -1.0, 1.0, 0.0], ddof=1)
    reach = 3.182446 * float(np.sqrt(variance * sum(w**2 for w in weights)))
    assert found.high == pytest.approx(found.q + reach, rel=1e-5)
    assert found.low == pytest.approx(found.q - reach, rel=1e-5)


def test_no_band_reaches_beyond_what_q_can_be() -> None:
    history = a_history([-1.0, 1.0, 1.0], [0.3] * 3)
    assert trust(history, 0.3).high > 1
    found = trust(history, 0.3, (-1.0, 1.0))
    assert (found.low, found.high) == (-1.0, 1.0)
    assert all(-1 <= rung.low <= rung.high <= 1 for rung in found.ladder)
    further = trust(a_history([-1.0, 1.0, 1.0], [0.3] * 3, q0=2.0), 0.3, (-1.0, 1.0))
    assert further.low > -1 and further.high == 2.0


def test_without_rewards_or_with_one_there_is_no_band() -> None:
    none = trust(a_history([], [], 0.5), 0.3)
    assert (none.q, none.n, none.mean, none.low, none.q0_share, none.ladder) == (0.5, 0, None, None, 1.0, ())
    one = trust(a_history([1.0], [0.3]), 0.3)
    assert (one.n, one.mean, one.low, one.limit) == (1, 1.0, None, None)
    assert one.ladder[0].low is None


def test_a_reward_that_moves_nothing_counts_with_the_step_size_in_force() -> None:
    assert trust(a_history([1.0, 1.0], [0.3, 0.3], q0=1.0), 0.3).q0_share == pytest.approx(0.49)


@pytest.mark.parametrize("n", [15, 60])
def test_the_band_of_q_holds_the_true_mean_about_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(300):
        found = trust(a_history(list(rng.normal(0.2, 0.5, n)), [0.3] * n, q0=0.2), 0.3)
        assert found.high is not None
        inside.append(found.low <= 0.2 <= found.high)
    assert 0.91 < np.mean(inside) < 0.99
