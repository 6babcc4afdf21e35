"""What was solved and then failed, held against going through each task's attempts in plain Python."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.agent import Agent
from memrl_core.analysis.memory.uses import attempts
from memrl_core.analysis.run.over_time import forgetting, losses
from memrl_core.environments.tasks import sample_tasks
from tests.builders import an_agent

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
    (loss,) = losses(a_table([(1, "t", "s", ("a", "b")), (1, "x", "f", ()), (2, "t", "f", ("b", "c"))]))
    assert (loss.task, loss.epoch, loss.solved_step, loss.failed_step) == ("t", 2, 1, 3)
    assert (loss.left, loss.entered) == (("a",), ("c",))


def test_a_step_without_a_decision_has_no_swap() -> None:
    (loss,) = losses(a_table([(1, "t", "s", None), (2, "t", "f", ("a",))]))
    assert (loss.left, loss.entered) == (None, None)


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
    assert [(x.task, x.epoch, x.solved_step, x.failed_step) for x in found] == expected
    for epoch in forgetting(table):
        letters = [letter for number, _, letter, _ in rows if number == epoch.epoch and letter != "u"]
        assert (epoch.attempts, epoch.failures) == (len(letters), letters.count("f"))
        assert (epoch.solved_last, epoch.lost_last) == (solved_before[epoch.epoch], lost_directly[epoch.epoch])


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    agent = an_agent(tmp_path_factory.mktemp("forgotten") / "bank", k1=8, delta=0.2)
    list(agent.run(sample_tasks("household-train")[:12], epochs=3))
    return agent


def test_attempts_say_what_the_traces_say(lived: Agent) -> None:
    table = attempts(lived.bank, "r")
    traces = lived.bank.traces("r")
    assert list(table["step"]) == [t.step for t in traces]
    assert list(table["outcome"]) == [t.reward.outcome for t in traces]
    assert list(table["selected"]) == [t.decision.selected for t in traces]
    assert list(table["pool"]) == [len(t.recall.pool) for t in traces]
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
    before = {x.failed_step for x in losses(table)}
    given = bank.give_reward("r", later.step, bank.trace("r", later.step).id, later.selected, -1.0, "ada")
    changed = attempts(bank, "r")
    assert tuple(changed.loc[changed["step"] == later.step, ["reward", "outcome"]].iloc[0]) == (-1.0, "failure")
    assert {x.failed_step for x in losses(changed)} == before | {later.step}
    bank.revoke_reward(given.id, "ada")
    pd.testing.assert_frame_equal(attempts(bank, "r"), table)
