"""Memories that a run forgets, and a world that changes under it: facts of the ledger like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memrl_core.agent.preferences import Preferences
from memrl_core.agent.runs import live_run
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.environments import make_environment
from memrl_core.environments.household import Household
from memrl_core.environments.tasks import sample_tasks
from memrl_core.errors import InputError
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.records import Phase
from tests.builders import a_bank, a_run, a_step, an_agent


def test_a_fork_without_a_step_of_its_own_forgets_at_once(tmp_path: Path) -> None:
    with a_bank(tmp_path / "b") as bank:
        for step in (1, 2, 3):
            bank.write.commit_step(*a_step(step))
        bank.write.start_run(replace(a_run("f", base="r", base_step=3), first_step=4))
        assert len(bank.utilities("f")) == 3
        bank.write.editing.forget("f", ["r-0002"])
        assert list(bank.utilities("f")) == ["r-0001", "r-0003"]
        assert len(bank.utilities("r")) == 3


def test_how_many_memories_a_run_sees_is_counted_once_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_bank(tmp_path / "b") as bank, MemoryBank.open(str(tmp_path / "b")) as other:
        edit, people = bank.write.editing, bank.write.ratings
        bank.write.commit_step(*a_step(1))
        assert bank.memory_count("r") == 1
        asked, raw = [], bank._database.raw
        monkeypatch.setattr(bank._database, "raw", lambda query, *given: asked.append(query) or raw(query, *given))
        changes = (
            lambda: bank.write.commit_step(*a_step(2)),
            lambda: edit.forget("r", ["r-0001"]),
            lambda: edit.restore("r", ["r-0001"], "ann"),
            lambda: bank.write.commit_step(*a_step(3)),
            lambda: edit.edit("r", "r-0002", bank.memory("r-0002").intent, "reworded", HashingEmbedder(8), "ann"),
            lambda: edit.merge("r", ["r-0001", "r-0003"], "both", "both", HashingEmbedder(8), "ann"),
            lambda: bank.write.undo.undo("ann"),
            lambda: people.rate(Rating("r", 1, -1.0, "ann")),
            lambda: bank.write.start_run(replace(a_run("f", base="r", base_step=3), first_step=4)),
            lambda: other.write.editing.forget("r", ["r-0003"]),
            lambda: bank.write.commit_step(*a_step(4)),
        )
        for number, change in enumerate(changes):
            change()
            for run in [info.id for info in bank.runs()]:
                assert bank.memory_count(run) == len(bank.utilities(run)) == len(other.utilities(run)), number
        assert sum("NOT away" in query for query in asked) <= 3


def test_a_memory_forgotten_while_it_is_in_the_prompt_moves_no_more(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "b", delta=-1.0)
    tasks = sample_tasks("household-train")[:3]
    list(agent.run(tasks))
    episode = agent.begin(tasks[0])
    while episode.phase is not Phase.GENERATE:
        episode.advance()
    gone, *rest = episode.credited
    agent.bank.write.editing.forget("r", [gone])
    trace = episode.finish()
    assert [change.memory_id for change in trace.update.changes] == rest
    assert gone not in agent.bank.utilities("r")


def test_a_run_is_reported_with_the_options_its_world_has_now(tmp_path: Path) -> None:
    agent = an_agent(tmp_path / "b")
    bank = agent.bank
    list(agent.run(sample_tasks("household-train")[:2]))
    bank.write.change_environment("r", {"shift_at": [3]})
    bank.write.change_environment("r", {"shift_at": [3, 5]})
    assert bank.run("r").environment_options == {"shift_at": [3, 5]}
    bank.close()
    with MemoryBank.open(str(tmp_path / "b")) as again:
        assert again.run("r").environment_options == {"shift_at": [3, 5]}
        world = live_run(again, "r", Preferences()).agent.environment
        assert isinstance(world, Household)
        assert world.shifts == (3, 5)


def test_both_facts_survive_an_export_and_an_import(tmp_path: Path) -> None:
    with a_bank(tmp_path / "b") as bank:
        bank.write.commit_step(*a_step(1))
        bank.write.commit_step(*a_step(2))
        bank.write.editing.forget("r", ["r-0001"])
        bank.write.change_environment("r", {"shift_at": [2]})
        write_bank(bank, tmp_path / "out.zip")
    bring_in(read_bank(tmp_path / "out.zip"), str(tmp_path / "c"))
    with MemoryBank.open(str(tmp_path / "c")) as other:
        assert list(other.utilities("r")) == ["r-0002"]
        assert other.run("r").environment_options == {"shift_at": [2]}


def test_a_second_shift_takes_the_first_one_back() -> None:
    world = make_environment("household", shift_at=[10, 20])
    assert isinstance(world, Household)
    chances = [world.reliability("heat", "stove", step) for step in (9, 10, 19, 20)]
    assert np.allclose(chances, [0.95, 0.5, 0.5, 0.95])


@pytest.mark.parametrize("wrong", [-1, [3, -2], ["soon"], [1.5]])
def test_a_shift_at_no_step_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match=r"whole number|valid integer"):
        make_environment("household", shift_at=wrong)
