"""Two banks, or two runs, as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.errors import InputError, UnknownRun
from memrl_core.exchange import new_banks
from memrl_core.exchange.contents import contents_of
from memrl_core.exchange.new_banks import merge, merge_runs
from tests.analysis.eventful import an_eventful_bank
from tests.builders import a_bank, a_run, a_step


def learned(path: Path, run: str, rewards: list[float], **settings: object) -> MemoryBank:
    """A bank whose one run wrote a memory a step and rewarded the one before with these rewards."""
    bank = a_bank(path, run, **settings)
    for number, reward in enumerate(rewards, start=1):
        credited = (f"{run}-{number - 1:04d}",) if number > 1 else ()
        bank.write.commit_step(*a_step(number, credited, reward, run))
    return bank


def test_the_new_run_knows_the_memories_of_both_with_their_q_and_visits(tmp_path: Path) -> None:
    one, two = learned(tmp_path / "one", "a", [1, 1, -1]), learned(tmp_path / "two", "b", [-1, 0.5])
    done = merge(one, two, str(tmp_path / "out"))
    with MemoryBank.open(str(tmp_path / "out")) as bank:
        assert bank.utilities(done.run) == {**one.utilities("a"), **two.utilities("b")}
        assert done.run == "merged"
        assert (done.memories, done.sources, done.shared) == (5, (("a", 3), ("b", 2)), 0)
        assert [m.id for m in bank.memories("merged")] == [m.id for m in bank.memories()]
        assert all(bank.memory(m.id) == m for source in (one, two) for m in source.memories())


@pytest.mark.parametrize("seed", [1, 12])
def test_everything_of_both_banks_is_there_when_their_names_collide(tmp_path: Path, seed: int) -> None:
    one, two = (an_eventful_bank(tmp_path / name, seed + n, 30) for n, name in enumerate(("one", "two")))
    done = merge(one, two, str(tmp_path / "out"))
    with MemoryBank.open(str(tmp_path / "out")) as bank:
        assert set(done.renamed_runs) == {"r", "other", "fork"}
        for info in one.runs():
            assert bank.utilities(info.id) == one.utilities(info.id)
            assert bank.traces(info.id) == one.traces(info.id)
            assert bank.events(info.id) == one.events(info.id)
        for info in two.runs():
            name = done.renamed_runs[info.id]
            there = {done.renamed_memories.get(i, i): u for i, u in two.utilities(info.id).items()}
            assert bank.utilities(name) == there
            assert len(bank.steps.rows(name)) == len(two.steps.rows(info.id))
            assert len(bank.events(name)) == len(two.events(info.id))
        for memory_id in two.memory_ids():
            name = done.renamed_memories.get(memory_id, memory_id)
            assert bank.memory(name).experience == two.memory(memory_id).experience
            assert np.array_equal(bank.embedding(name), two.embedding(memory_id))
    assert all(finding.ok for finding in check(str(tmp_path / "out")))


def test_the_merged_run_keeps_what_was_known_when_its_sources_go_on(tmp_path: Path) -> None:
    bank = learned(tmp_path / "one", "a", [1, 1])
    bank.write.start_run(a_run("b"))
    bank.write.commit_step(*a_step(1, (), 1.0, "b"))
    done = merge_runs(bank, "a", "b")
    before = bank.utilities(done.run)
    bank.write.commit_step(*a_step(3, ("a-0001",), -1.0, "a"))
    assert bank.utilities("a")["a-0001"] != before["a-0001"]
    assert bank.utilities(done.run) == before
    assert bank.view(done.run, 0).size == 3


def test_of_two_beliefs_about_one_memory_the_more_visited_counts(tmp_path: Path) -> None:
    bank = learned(tmp_path / "one", "a", [1, 1])
    bank.write.start_run(a_run("b", base="a", base_step=2))
    bank.write.commit_step(*a_step(1, ("a-0001",), -1.0, "b"))
    done = merge_runs(bank, "a", "b")
    assert (done.shared, done.disputed) == (2, 1)
    assert bank.utilities(done.run)["a-0001"] == bank.utilities("b")["a-0001"]
    assert bank.utilities(merge_runs(bank, "b", "a").run) == bank.utilities(done.run)


def test_two_runs_of_one_bank_are_merged_and_nothing_is_doubled(tmp_path: Path) -> None:
    bank = learned(tmp_path / "one", "a", [1, 1])
    bank.write.start_run(a_run("b"))
    bank.write.commit_step(*a_step(1, (), 1.0, "b"))
    done = merge(bank, bank, str(tmp_path / "out"))
    assert done.sources == (("a", 2), ("b", 1))
    with MemoryBank.open(str(tmp_path / "out")) as out:
        assert [info.id for info in out.runs()] == ["a", "b", "merged"]
        assert len(out.memories()) == 3


def test_named_runs_are_merged_instead_of_the_newest(tmp_path: Path) -> None:
    one, two = learned(tmp_path / "one", "a", [1, 1]), learned(tmp_path / "two", "b", [1])
    one.write.start_run(a_run("empty"))
    done = merge(one, two, str(tmp_path / "out"), first_run="a")
    assert done.sources == (("a", 2), ("b", 1))


def test_banks_of_different_embedders_are_refused_by_name(tmp_path: Path) -> None:
    one = learned(tmp_path / "one", "a", [1])
    two = MemoryBank.create(str(tmp_path / "two"), "another-16", 16)
    with pytest.raises(InputError, match=r"8-.*hashing-8.*16-.*another-16"):
        merge(one, two, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    one, two = learned(tmp_path / "one", "a", [1]), learned(tmp_path / "two", "b", [1])
    with pytest.raises(InputError, match="already stored"):
        merge(one, two, str(tmp_path / "two"))
    assert [info.id for info in MemoryBank.open(str(tmp_path / "two")).runs()] == ["b"]


def test_a_merge_that_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = learned(tmp_path / "one", "a", [1]), learned(tmp_path / "two", "b", [1])

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_banks, "merge_runs", broken)
    with pytest.raises(InputError, match="No space left"):
        merge(one, two, str(tmp_path / "out"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(("runs", "error"), [(("a", "a"), InputError), (("a", "nobody"), UnknownRun)])
def test_a_run_is_not_merged_with_itself_or_with_none(
    tmp_path: Path, runs: tuple[str, str], error: type[Exception]
) -> None:
    bank = learned(tmp_path / "one", "a", [1])
    facts = bank.facts
    with pytest.raises(error):
        merge_runs(bank, *runs)
    assert bank.facts == facts


def test_a_copy_of_a_run_is_the_same_run_and_one_run_has_no_second(tmp_path: Path) -> None:
    one = learned(tmp_path / "one", "a", [1, 1])
    with pytest.raises(InputError, match="no other run"):
        merge(one, one, str(tmp_path / "out"))
    new_banks.bring_in(contents_of(one), str(tmp_path / "copy"))
    with MemoryBank.open(str(tmp_path / "copy")) as copy, pytest.raises(InputError, match="the run"):
        merge(one, copy, str(tmp_path / "out"))


def test_different_reward_scales_are_reported(tmp_path: Path) -> None:
    one, two = learned(tmp_path / "one", "a", [1]), learned(tmp_path / "two", "b", [1], reward_failure=0.0)
    done = merge(one, two, str(tmp_path / "out"))
    assert any("reward_failure" in note for note in done.notes)
    assert any("different scales" in note for note in done.notes)
