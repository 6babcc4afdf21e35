"""What was solved and failed, where memories came from, and how q lay: against loops over the traces."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent import Agent
from memrl_core.analysis.memory.exposure import attempts, uses
from memrl_core.analysis.run.over_time import ORIGINS, forgetting, losses, q_by_epoch, transfer
from memrl_core.bank import MemoryBank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.official.reader import read_official
from memrl_core.figures.run.reliability import q_by_epoch_picture
from memrl_core.records import Memory
from tests.builders import a_vector, an_agent_after
from tests.exchange.official_writer import CheckpointWriter, Written
from tests.small_banks import give_reward

Chosen = tuple[str, ...] | None
LETTER = {"s": "success", "f": "failure", "u": "unrated"}


def a_table(rows: list[tuple[int, str, str, Chosen]]) -> pd.DataFrame:
    """Steps in order, each as (epoch, task, outcome's letter, selected)."""
    table = pd.DataFrame(
        [(n, epoch, task, LETTER[letter]) for n, (epoch, task, letter, _) in enumerate(rows, start=1)],
        columns=["step", "epoch", "task", "outcome"],
    )
    table["selected"] = pd.Series([chosen for *_, chosen in rows], dtype=object)
    return table


def test_a_loss_names_what_was_swapped_since_the_last_success() -> None:
    steps = [(1, "t", "s", ("a", "b")), (1, "x", "f", ()), (2, "t", "f", ("b", "c")), (3, "t", "f", None)]
    assert [tuple(loss) for loss in losses(a_table(steps)).itertuples(index=False)] == [
        ("t", 2, 3, 1, ("a",), ("c",)), ("t", 3, 4, 1, None, None),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("sfu")), max_size=14))
def test_losses_and_rates_follow_from_each_tasks_attempts(tries: list[tuple[str, str]]) -> None:
    rows = [(n // 4 + 1, task, letter, (f"m{n}",)) for n, (task, letter) in enumerate(tries)]
    table = a_table(rows)
    expected, solved_before, lost_directly = [], Counter[int](), Counter[int]()
    for n, (epoch, task, letter, _) in enumerate(rows):
        earlier = [(i, other) for i, (_, name, other, _) in enumerate(rows[:n]) if name == task and other != "u"]
        wins = [i for i, other in earlier if other == "s"]
        if letter != "u" and wins:
            solved_before[epoch] += earlier[-1][1] == "s"
        if letter == "f" and wins:
            expected.append((task, epoch, wins[-1] + 1, n + 1))
            lost_directly[epoch] += earlier[-1][1] == "s"
    found = losses(table)
    assert [(x.task, x.epoch, x.solved_step, x.failed_step) for x in found.itertuples()] == expected
    for epoch in forgetting(table).itertuples():
        letters = [letter for number, _, letter, _ in rows if number == epoch.epoch and letter != "u"]
        assert (epoch.attempts, epoch.failures) == (len(letters), letters.count("f"))
        assert (epoch.solved_last, epoch.lost_last) == (solved_before[epoch.epoch], lost_directly[epoch.epoch])


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return an_agent_after(tmp_path_factory.mktemp("transfer") / "bank", 12, epochs=3, k1=8, delta=0.2)


def test_attempts_say_what_the_traces_say(lived: Agent) -> None:
    table = attempts(lived.bank, "r")
    traces = lived.bank.traces("r")
    assert list(table["step"]) == [t.step for t in traces]
    assert list(table["outcome"]) == [t.reward.outcome for t in traces]
    assert list(table["selected"]) == [t.decision.selected for t in traces]
    assert {"success", "failure"} <= set(table["outcome"])


def test_a_reward_given_later_makes_a_loss_or_takes_it_back(lived: Agent) -> None:
    bank = lived.bank
    table = attempts(bank, "r")
    later = next(
        row
        for row in table[table["epoch"] == 3].itertuples()
        if row.outcome == "success"
        and "success" in set(table.loc[(table["task"] == row.task) & (table["epoch"] < 3), "outcome"])
    )
    before = set(losses(table)["failed_step"])
    given = give_reward(bank, "r", later.step, bank.trace("r", later.step).id, later.selected, -1.0, "ada")
    changed = attempts(bank, "r")
    assert tuple(changed.loc[changed["step"] == later.step, ["reward", "outcome"]].iloc[0]) == (-1.0, "failure")
    assert set(losses(changed)["failed_step"]) == before | {later.step}
    bank.write.ratings.revoke(given.id, "ada")
    pd.testing.assert_frame_equal(attempts(bank, "r"), table)


def test_uses_and_steps_are_counted_as_the_traces_say(lived: Agent) -> None:
    bank = lived.bank
    found = transfer(bank, "r", uses(bank, "r")).set_index(["epoch", "origin"])
    assert set(found.index.get_level_values("origin")) == set(ORIGINS[:2])
    counted = 0
    for epoch in (1, 2, 3):
        traces = [t for t in bank.traces("r") if t.epoch == epoch and t.decision and t.decision.selected]
        origins = [[bank.memory(i).task == t.task.id for i in t.decision.selected] for t in traces]
        total = sum(map(len, origins))
        for origin, same in (("same task", True), ("another task", False)):
            number = sum(flag == same for flags in origins for flag in flags)
            if number == 0:
                assert (epoch, origin) not in found.index
                continue
            row = found.loc[(epoch, origin)]
            steps = [t for t, flags in zip(traces, origins, strict=True) if any(flags) == same]
            cosines = [
                float(np.dot(bank.embedding(i).astype(np.float64), np.asarray(t.embed.embedding)))
                for t, flags in zip(traces, origins, strict=True)
                for i, flag in zip(t.decision.selected, flags, strict=True)
                if flag == same
            ]
            assert (row["uses"], row["steps"]) == (number, len(steps))
            assert row["share"] == pytest.approx(number / total)
            assert row["similarity"] == pytest.approx(fmean(cosines), abs=1e-6)
            assert (row["rated"], row["successes"]) == (len(steps), sum(t.reward.outcome == "success" for t in steps))
            counted += number
    assert counted == sum(len(t.decision.selected) for t in bank.traces("r"))


def test_a_memory_without_a_task_is_of_unknown_origin(lived: Agent) -> None:
    memory = Memory("alien", "", "", "success", "", (), "elsewhere", 1, "", "")
    dimension = lived.bank.embedder.dimension
    lived.bank.write.adopt({"alien": (memory, a_vector(1, dimension))}, [], [])
    table = uses(lived.bank, "r")
    step = int(table.loc[table["selected"], "step"].iloc[0])
    table.loc[(table["step"] == step) & table["selected"], "memory_id"] = "alien"
    found = transfer(lived.bank, "r", table)
    row = found[found["origin"] == "unknown"].iloc[0]
    trace = lived.bank.trace("r", step)
    assert row["uses"] == len(trace.decision.selected)
    assert row["steps"] == 1


def test_the_spread_of_q_by_epoch_is_that_of_the_bank_at_its_end(lived: Agent) -> None:
    bank = lived.bank
    found = q_by_epoch(bank, "r", uses(bank, "r")).set_index("epoch")
    assert list(found["step"]) == [12, 24, 36]
    for epoch, step in ((1, 12), (2, 24), (3, 36)):
        then = bank.utilities("r", step)
        q = np.array([known.q for known in then.values()])
        pooled = {
            c.memory_id for t in bank.traces("r", (1, step)) for c in t.decision.candidates if c.score is not None
        }
        row = found.loc[epoch]
        assert (row["memories"], row["mean"], row["q50"]) == pytest.approx((len(q), q.mean(), np.median(q)))
        assert (row["positive"], row["negative"]) == pytest.approx(((q > 0).mean(), (q < 0).mean()))
        assert row["never recalled"] == pytest.approx(np.mean([memory not in pooled for memory in then]))
        assert row["never updated"] == pytest.approx(np.mean([known.visits == 0 for known in then.values()]))
    assert found["positive"].iloc[-1] + found["negative"].iloc[-1] == pytest.approx(found["not zero"].iloc[-1]) != 0


def test_of_imported_checkpoints_the_q_at_the_end_of_each_is_known_and_no_pool(tmp_path: Path) -> None:
    said = [
        [Written("m1", "one", q=0.3, visits=1)],
        [Written("m1", "one", q=0.76, visits=4), Written("m2", "two", q=-0.3)],
    ]
    alone = [Written("m9", "other", q=0.5, visits=9)]
    runs = []
    for number, memories in enumerate((said[1], said[0], alone)):
        folder = CheckpointWriter(memories).write(tmp_path / str(number) / "snapshot" / "1")
        runs.append(bring_in(read_official(folder), str(tmp_path / "bank")).runs[0])
    with MemoryBank.open(str(tmp_path / "bank")) as bank:
        newer, older, other = (q_by_epoch(bank, run, uses(bank, run)) for run in runs)
    assert newer.equals(older) and list(newer["run"]) == [runs[1], runs[0]] and list(newer["epoch"]) == [1, 2]
    assert list(newer["memories"]) == [1, 2] and list(newer["mean"]) == pytest.approx([0.3, 0.23])
    assert list(newer["positive"]) == [1, 0.5] and list(newer["never updated"]) == [0, 0.5]
    assert newer["never recalled"].isna().all()
    assert (list(other["run"]), list(other["epoch"]), list(other["q50"])) == ([runs[2]], [0], [0.5])
    picture = q_by_epoch_picture(newer)
    assert "never recalled" not in {trace.name for trace in picture.figure.data}
