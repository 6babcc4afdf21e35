"""The table of all candidates, and how well q foretold their use: against the traces and values worked out by hand."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from memrl_core.analysis.memory.exposure import COLUMNS, uses
from memrl_core.analysis.run.calibration import BINS, in_sample, prequential
from memrl_core.analysis.run.metrics import pearson
from memrl_core.bank import MemoryBank
from memrl_core.records import StepTrace, Utility
from tests.analysis.eventful import believed_by_definition
from tests.builders import a_bank, a_step, an_agent_after
from tests.oracles.metrics import wilson
from tests.small_banks import give_reward


def _run(path: Path) -> MemoryBank:
    return an_agent_after(path, 40, delta=0.1, epsilon=0.1).bank


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return _run(tmp_path_factory.mktemp("learned") / "bank")


def _selecting(bank: MemoryBank, number: int = 0) -> StepTrace:
    return [t for t in bank.traces("r") if t.decision and t.decision.selected][number]


def test_there_is_a_row_for_every_member_of_every_pool(learned: MemoryBank) -> None:
    frame = uses(learned, "r")
    assert tuple(frame.columns) == COLUMNS
    expected = [
        (t.step, t.epoch, t.task.id, t.reward.outcome, t.reward.reward, c.memory_id, c.similarity, c.q,
         c.rank_recall, c.rank_select, c.selected)
        for t in learned.traces("r")
        if t.decision and t.reward
        for c in t.decision.candidates
        if c.rank_select is not None
    ]  # fmt: skip
    assert [tuple(row) for row in frame.itertuples(index=False)] == expected


def test_q_is_the_one_before_the_steps_own_update(learned: MemoryBank) -> None:
    frame = uses(learned, "r")
    for step, rows in frame.groupby("step"):
        believed = believed_by_definition(learned, "r", step - 1)
        assert rows["q"].tolist() == pytest.approx([believed[i][0] for i in rows["memory_id"]])


def test_the_reward_is_the_one_that_counts_now(tmp_path: Path) -> None:
    bank = _run(tmp_path / "bank")
    early, other, last = _selecting(bank), _selecting(bank, 3), _selecting(bank, -1)
    assert last.step == bank.next_step("r") - 1
    for trace, value in ((early, 0.5), (early, -0.25), (other, 1.0), (last, -0.75)):
        give_reward(bank, "r", trace.step, trace.id, trace.decision.selected, value, "ann")
    give_reward(bank, "r", early.step, early.id, early.decision.selected, 0.75, "bob")
    gone = give_reward(bank, "r", other.step, other.id, other.decision.selected, 0.0, "bob")
    bank.write.ratings.revoke(gone.id, "bob")
    frame = uses(bank, "r").drop_duplicates("step").set_index("step")
    assert frame.loc[early.step, ["reward", "outcome"]].tolist() == [0.25, "success"]
    assert frame.loc[other.step, ["reward", "outcome"]].tolist() == [1.0, "success"]
    assert frame.loc[last.step, ["reward", "outcome"]].tolist() == [-0.75, "failure"]
    untouched = next(t for t in bank.traces("r") if t.decision and t.decision.selected and t.step in frame.index
                     and t.step not in (early.step, other.step, last.step))  # fmt: skip
    assert frame.loc[untouched.step, "reward"] == untouched.reward.reward


def test_a_step_whose_only_reward_was_revoked_is_unrated(tmp_path: Path) -> None:
    bank = _run(tmp_path / "bank")
    trace = _selecting(bank)
    given = next(e for e in bank.events("r") if e.kind == "reward_given" and e.step == trace.step)
    bank.write.ratings.revoke(given.id, "ann")
    row = uses(bank, "r").drop_duplicates("step").set_index("step").loc[trace.step]
    assert math.isnan(row["reward"]) and row["outcome"] == "unrated"


def test_runs_without_candidates_have_an_empty_table(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    assert uses(bank, "r").empty
    bank.write.commit_step(*a_step(1))
    frame = uses(bank, "r")
    assert frame.empty and tuple(frame.columns) == COLUMNS
    for found in (prequential(frame, -1, 1), in_sample(frame, bank.utilities("r"), -1, 1)):
        assert found.pairs.empty and found.bins.empty
        assert (found.per_use.n, found.per_use.r, found.per_bin.r) == (0, None, None)


# --- calibration ------------------------------------------------------------------------------------------------------


def _uses_by_hand(bank: MemoryBank, now: bool) -> list[tuple[str, float, float]]:
    """Memory, q then or now, and success of each use, in the order of the table: a step's by score."""
    end, found = believed_by_definition(bank, "r"), []
    for trace in bank.traces("r"):
        q = end if now else believed_by_definition(bank, "r", trace.step - 1)
        taken = [c.memory_id for c in trace.decision.candidates if c.selected]
        if trace.reward.outcome != "unrated":
            found += [(i, q[i][0], float(trace.reward.outcome == "success")) for i in taken]
    return found


def test_prequential_pairs_q_before_a_use_with_its_outcome(learned: MemoryBank) -> None:
    found = prequential(uses(learned, "r"), -1, 1)
    by_hand = _uses_by_hand(learned, now=False)
    assert found.kind == "prequential"
    assert found.pairs["q"].tolist() == pytest.approx([q for _, q, _ in by_hand])
    assert found.pairs["success"].tolist() == [won for *_, won in by_hand]
    assert found.per_use.n == len(by_hand) > 20
    _, q, won = zip(*by_hand, strict=True)
    assert found.per_use.r == pytest.approx(scipy.stats.pearsonr(q, won)[0])


def test_in_sample_pairs_q_now_with_each_memorys_success(learned: MemoryBank) -> None:
    found = in_sample(uses(learned, "r"), learned.utilities("r"), -1, 1)
    by_hand = _uses_by_hand(learned, now=True)
    memories = list(dict.fromkeys(i for i, *_ in by_hand))
    assert found.kind == "in-sample"
    end = believed_by_definition(learned, "r")
    assert found.pairs["q"].tolist() == pytest.approx([end[i][0] for i in memories])
    rates = [np.mean([won for j, _, won in by_hand if j == i]) for i in memories]
    assert found.pairs["success"].tolist() == pytest.approx(rates)
    assert found.bins["n"].sum() == len(by_hand)


def test_bins_are_equal_cover_the_rewards_and_add_up(learned: MemoryBank) -> None:
    frame = uses(learned, "r")
    found = prequential(frame, -1, 1)
    steps = frame.loc[frame["selected"] & (frame["outcome"] != "unrated"), "step"]
    width = 2 / BINS
    assert found.bins["n"].sum() == len(found.pairs)
    for row in found.bins.itertuples():
        assert row.high - row.low == pytest.approx(width)
        inside = [
            (q, won, step)
            for q, won, step in zip(found.pairs["q"], found.pairs["success"], steps, strict=True)
            if row.low <= q < row.high or (q >= 1 and row.high == 1) or (q < -1 and row.low == -1)
        ]
        assert row.n == len(inside)
        assert row.q == pytest.approx(np.mean([q for q, *_ in inside]))
        assert row.success == pytest.approx(np.mean([won for _, won, _ in inside]))
        sizes = np.array(list(Counter(step for *_, step in inside).values()))
        independent = sizes.sum() ** 2 / (sizes**2).sum()
        assert (row.success_low, row.success_high) == pytest.approx(wilson(row.success, independent))
        assert row.steps == len(sizes)
    assert found.per_bin.n == len(found.bins)


def test_q_beyond_the_rewards_falls_into_the_outer_bins() -> None:
    outcomes = ["failure", "failure", "success", "success", "success"]
    frame = pd.DataFrame({"step": range(5), "q": [-5.0, -1.0, 0.0, 1.0, 7.0], "selected": True, "outcome": outcomes})
    bins = prequential(frame, -1, 1).bins
    assert bins["n"].tolist() == [2, 1, 2]
    assert bins["low"].tolist() == pytest.approx([-1.0, 0.0, 0.8])


def a_frame(steps: int, seed: int = 0) -> pd.DataFrame:
    """One use a step, which succeeds the more often the higher its q is."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-1, 1, steps)
    won = rng.random(steps) < (q + 1) / 2
    outcome = np.where(won, "success", "failure")
    return pd.DataFrame({"step": range(steps), "q": q, "selected": True, "outcome": outcome})


def test_further_memories_of_a_step_make_no_interval_narrower() -> None:
    frame = a_frame(40)
    one, three = prequential(frame, -1, 1), prequential(pd.concat([frame] * 3, ignore_index=True), -1, 1)
    assert (three.per_use.n, three.per_use.steps) == (120, 40)
    for narrow, wide in ((three.per_use, one.per_use), (three.per_bin, one.per_bin)):
        assert (narrow.r, narrow.low, narrow.high) == pytest.approx((wide.r, wide.low, wide.high))
        assert narrow.low < narrow.r < narrow.high
    ends = ["success", "success_low", "success_high"]
    np.testing.assert_allclose(three.bins[ends], one.bins[ends])


def test_the_interval_of_r_over_independent_uses_is_about_fishers() -> None:
    found = prequential(a_frame(600), -1, 1).per_use
    assert found.r is not None
    half = scipy.stats.norm.ppf(0.975) / math.sqrt(600 - 3)
    ends = [math.tanh(math.atanh(found.r) + side * half) for side in (-1, 1)]
    assert [found.low, found.high] == pytest.approx(ends, abs=0.02)


def test_in_sample_has_no_interval_of_r() -> None:
    frame = a_frame(60).assign(memory_id=[f"m{n % 7}" for n in range(60)])
    found = in_sample(frame, {f"m{n}": Utility(n / 10, 1) for n in range(7)}, -1, 1)
    assert found.per_use.r is not None and (found.per_use.low, found.per_use.high) == (None, None)


@pytest.mark.parametrize(
    ("x", "y", "r"),
    [
        ([0.1, 0.2], [0, 1], None),
        ([0.3] * 5, [0, 1, 0, 1, 1], None),
        ([0.1, 0.2, 0.3], [1, 1, 1], None),
        ([0.3, 0.1 + 0.2, 0.3], [0, 1, 0], None),
        ([0.0, 1.0, 2.0], [0, 1, 1], pytest.approx(math.sqrt(3) / 2)),
    ],
)
def test_r_is_none_where_it_is_not_defined(x: list[float], y: list[float], r: float | None) -> None:
    assert pearson(np.array(x, float), np.array(y, float)) == r
