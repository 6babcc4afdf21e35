"""Memories have one order of age, however their rows lie in the tables: for every handle, and for every replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from memrl_core.analysis.decision.whatif import decided, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.environments.tasks import sample_tasks
from memrl_core.exchange.contents import contents_of
from memrl_core.exchange.new_banks import merge
from memrl_core.records import StepTrace
from memrl_core.retrieval.view import MemoryView
from tests.builders import a_bank, a_run, a_step
from tests.policies.policy_run import an_agent_of


def bank_after_steps(path: Path, run: str = "r", steps: int = 8) -> MemoryBank:
    bank = a_bank(path, run)
    for step in range(1, steps + 1):
        bank.write.commit_step(*a_step(step, run=run))
    return bank


def move_rows(bank: MemoryBank, behind: int) -> None:
    """Put the first memories behind all others, as a compaction may."""
    rows = bank._vectors.read()
    bank._vectors.delete(rows["id"].to_pylist())
    bank._vectors.append(pa.concat_tables([rows.slice(behind), rows.slice(0, behind)]))


def opened(bank: MemoryBank) -> MemoryBank:
    return MemoryBank.open(bank.uri)


def seen(view: MemoryView) -> list[str]:
    """What a view sees, oldest first."""
    return [view.ids[position] for position in view.positions()]


def again(bank: MemoryBank, trace: StepTrace) -> tuple[list[str], tuple[str, ...]]:
    recall, decision = decided(situation_of(bank, trace))
    return [member.memory_id for member in recall.pool], decision.selected


def as_it_was(trace: StepTrace) -> tuple[list[str], tuple[str, ...]]:
    return [member.memory_id for member in trace.recall.pool], trace.decision.selected


@pytest.mark.parametrize("appends", [3, 8])
def test_what_is_written_while_the_bank_compacts_keeps_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    monkeypatch.setattr("memrl_core.bank.storage.vectors.APPENDS_PER_COMPACTION", appends)
    live = a_bank(tmp_path / "bank")
    tailing = opened(live)
    for step in range(1, 17):
        live.write.commit_step(*a_step(step))
        tailing.refresh()
    expected = [f"r-{step:04d}" for step in range(1, 17)]
    assert [list(bank.view("r").ids) for bank in (live, tailing, opened(live))] == [expected] * 3


def test_steps_without_a_pause_leave_few_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrl_core.bank.storage.vectors.APPENDS_PER_COMPACTION", 10)
    bank = a_bank(tmp_path / "bank")
    for step in range(1, 36):
        bank.write.commit_step(*a_step(step))
    assert bank._vectors._table.stats()["fragment_stats"]["num_fragments"] <= 10


def test_every_step_of_a_moved_bank_decides_again_as_it_did(tmp_path: Path) -> None:
    agent = an_agent_of(tmp_path / "bank", "exprecent")
    traces = list(agent.run(sample_tasks("household-train")[:8]))
    move_rows(agent.bank, 5)
    bank = opened(agent.bank)
    assert [again(bank, trace) for trace in bank.traces("r")] == [as_it_was(trace) for trace in traces]


@pytest.mark.parametrize("behind", [1, 4, 8, 9])
def test_a_tailing_handle_misses_no_row_that_was_moved_before_those_it_knows(tmp_path: Path, behind: int) -> None:
    live = bank_after_steps(tmp_path / "bank")
    tailing = opened(live)
    for step in (9, 10):
        live.write.commit_step(*a_step(step, (f"r-{step - 1:04d}",)))
    move_rows(live, behind)
    live.write.commit_step(*a_step(11))
    assert tailing.refresh()
    assert list(tailing.view("r").ids) == list(live.view("r").ids)
    assert tailing.utilities("r") == live.utilities("r")
    assert not tailing.refresh()


def test_steps_that_are_held_back_are_as_old_for_their_writer_as_for_all_others(tmp_path: Path) -> None:
    live = bank_after_steps(tmp_path / "bank", steps=2)
    live.write.start_run(a_run("other"))
    other = opened(live)
    with other.write.batch(3):
        for step in (1, 2):
            other.write.commit_step(*a_step(step, run="other"))
        other.write.flush()
        live.write.commit_step(*a_step(3))
        other.write.commit_step(*a_step(3, run="other"))
    live.write.commit_step(*a_step(4))
    other.refresh()
    assert live.memory_ids() == other.memory_ids() == opened(live).memory_ids()
    for run in ("r", "other"):
        assert list(live.view(run).ids) == list(other.view(run).ids) == list(opened(live).view(run).ids)


def test_a_view_in_use_stays_as_it_is_when_older_memories_arrive(tmp_path: Path) -> None:
    live = bank_after_steps(tmp_path / "bank")
    view = live.view("r")
    ids, vectors, positions = list(view.ids), np.array(view.embeddings), [view.position(i) for i in view.ids]
    walked = live.walk("r")
    next(walked)
    come = contents_of(bank_after_steps(tmp_path / "older", "older", 3))
    live.write.adopt(come.memories, come.events, come.traces)
    assert live.memory_ids() != [*ids, *come.memories]
    assert (list(view.ids), [view.position(i) for i in ids]) == (ids, positions)
    assert np.array_equal(np.asarray(view.embeddings), vectors)
    assert [seen(moving) for _, moving in walked] == [ids[:n] for n in range(1, 8)]
    fresh = live.view("r")
    assert seen(fresh) == ids
    assert all(np.array_equal(fresh.embeddings[fresh.position(i)], live.embedding(i)) for i in ids)


def test_a_merge_keeps_the_order_of_both_and_is_the_same_when_opened_again(tmp_path: Path) -> None:
    one, two = bank_after_steps(tmp_path / "one", "a", 5), bank_after_steps(tmp_path / "two", "b", 7)
    done = merge(one, two, str(tmp_path / "out"))
    bank = MemoryBank.open(str(tmp_path / "out"))
    before = seen(bank.view(done.run))
    for run, source in (("a", one), ("b", two)):
        assert [i for i in before if i.startswith(run)] == seen(source.view(run)) == seen(bank.view(run))
    move_rows(bank, 4)
    assert seen(opened(bank).view(done.run)) == before


def test_a_memory_is_as_old_as_in_its_own_run_whenever_others_came_to_know_it(tmp_path: Path) -> None:
    bank = bank_after_steps(tmp_path / "bank")
    before = seen(bank.view("r"))
    bank.write.start_run(a_run("there"))
    known_elsewhere = [
        replace(event, id=f"there-{event.id}", run="there", seq=0, step_id="", memory_ids=(before[-1],))
        for event in bank.events("r")
        if before[0] in event.memory_ids
    ]
    bank.write.adopt({}, known_elsewhere, [])
    assert seen(bank.view("r")) == before == seen(opened(bank).view("r"))
