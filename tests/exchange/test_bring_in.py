"""Contents into a bank: all or nothing, the same twice is the same, and nothing that is there is touched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.storage import codec
from memrl_core.bank.writing import Writer
from memrl_core.errors import BankFull, InputError, NotABank
from memrl_core.exchange.archive import write_bank
from memrl_core.exchange.bring_in import UNCHANGED, bring_in, read_any
from memrl_core.exchange.contents import Contents, contents_of
from memrl_core.records import Candidate, Decision, EventKind, LedgerEvent, MemoryOperation, Reason, WriteRecord
from tests.builders import DIMENSION, a_bank, a_run, a_step, an_agent_after
from tests.exchange.official_writer import CheckpointWriter, Written
from tests.small_banks import give_reward


def grown(path: Path, steps: Sequence[int], text: str = "did it", run: str = "r") -> MemoryBank:
    """A bank with one run in which every step credits the memory of the one before and writes one that says `text`."""
    bank = a_bank(path, run)
    more_steps(bank, steps, text, run)
    return bank


def more_steps(bank: MemoryBank, steps: Sequence[int], text: str = "did it", run: str = "r") -> None:
    for step in steps:
        trace, vectors = a_step(step, credited=(f"{run}-{step - 1:04d}",) if step > 1 else (), run=run)
        operation = replace(trace.write.operations[0], experience=f"{text} in step {step}")
        bank.write.commit_step(replace(trace, write=replace(trace.write, operations=(operation,))), vectors)


def everything(bank: MemoryBank) -> Any:
    return (
        bank.memories(),
        [bank.embedding(i).tobytes() for i in bank.memory_ids()],
        bank.events(),
        [(bank.traces(info.id), bank.utilities(info.id)) for info in bank.runs()],
        bank.layouts.newest(),
    )


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- a new bank -------------------------------------------------------------------------------------------------------


def test_a_new_bank_says_what_came(tmp_path: Path) -> None:
    contents = contents_of(grown(tmp_path / "a", [1, 2, 3]))
    arrival = bring_in(contents, str(tmp_path / "b"))
    assert (arrival.runs, arrival.memories, arrival.steps, arrival.events) == (("r",), 3, 3, 7)
    assert (arrival.renamed_memories, arrival.renamed_runs) == ({}, {})
    assert arrival.account == contents.account
    assert all(finding.ok for finding in check(str(tmp_path / "b")))


def test_an_empty_folder_becomes_the_bank(tmp_path: Path) -> None:
    contents = contents_of(grown(tmp_path / "a", [1]))
    (tmp_path / "b").mkdir()
    bring_in(contents, str(tmp_path / "b"))
    assert MemoryBank.open(str(tmp_path / "b")).memory_ids() == ["r-0001"]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    contents = contents_of(grown(tmp_path / "a", [1]))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "letter.txt").write_text("dear")
    with pytest.raises(NotABank):
        bring_in(contents, str(tmp_path / "b"))
    assert names_in(tmp_path / "b") == ["letter.txt"]


@pytest.mark.parametrize("part", ["adopt", "compact"])
def test_an_import_that_dies_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    contents = contents_of(grown(tmp_path / "a", [1, 2]))
    before = names_in(tmp_path)

    def dies(*_: object) -> None:
        raise BankFull("The disk is full.")

    monkeypatch.setattr(Writer, part, dies)
    with pytest.raises(BankFull):
        bring_in(contents, str(tmp_path / "b"))
    assert names_in(tmp_path) == before


def test_after_an_import_that_died_at_an_address_the_next_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = contents_of(grown(tmp_path / "a", [1, 2]))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "letter.txt").write_text("dear")
    (tmp_path / "team.toml").write_text('database = "team.db"\nvectors = "elsewhere"\n')
    uri = str(tmp_path / "team.toml")
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(Writer, "adopt", lambda *_: 1 / 0)
        bring_in(contents, uri)
    assert names_in(tmp_path / "elsewhere") == ["letter.txt"]
    assert bring_in(contents, uri).memories == 2


def test_no_embedder_has_to_be_installed(tmp_path: Path) -> None:
    contents = replace(contents_of(grown(tmp_path / "a", [1, 2])), embedder="of-another-house")
    bring_in(contents, str(tmp_path / "b"))
    bank = MemoryBank.open(str(tmp_path / "b"))
    assert (bank.embedder.name, bank.embedder.dimension) == ("of-another-house", DIMENSION)
    assert bank.trace("r", 2).id == contents.traces[1].id


# --- into a bank that is there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("embedder", "dimension"), [("other", DIMENSION), ("hashing-8", 4)])
def test_another_embedder_is_refused_with_both_names(tmp_path: Path, embedder: str, dimension: int) -> None:
    bank = grown(tmp_path / "a", [1])
    before = everything(bank)
    foreign = Contents(embedder, dimension, {}, ())
    with pytest.raises(InputError, match=f"{dimension}-dimensional.*{embedder}.*8-dimensional.*hashing-8"):
        bring_in(foreign, str(tmp_path / "a"))
    assert everything(MemoryBank.open(str(tmp_path / "a"))) == before


def test_vectors_of_other_weights_are_not_mixed_in(tmp_path: Path) -> None:
    bring_in(Contents("e", DIMENSION, {}, (), digest="one"), str(tmp_path / "a"))
    assert contents_of(MemoryBank.open(str(tmp_path / "a"))).digest == "one"
    with pytest.raises(InputError, match="other weights"):
        bring_in(Contents("e", DIMENSION, {}, (), digest="two"), str(tmp_path / "a"))
    bring_in(Contents("e", DIMENSION, {}, ()), str(tmp_path / "a"))


def test_a_run_that_went_on_elsewhere_goes_on_here(tmp_path: Path) -> None:
    elsewhere = grown(tmp_path / "a", [1, 2])
    bring_in(contents_of(elsewhere), str(tmp_path / "b"))
    more_steps(elsewhere, [3, 4])
    arrival = bring_in(contents_of(elsewhere), str(tmp_path / "b"))
    assert (arrival.runs, arrival.memories, arrival.steps, arrival.renamed_runs) == (("r",), 2, 2, {})
    assert everything(MemoryBank.open(str(tmp_path / "b"))) == everything(elsewhere)


def test_another_run_of_the_same_name_is_renamed_wherever_it_is_mentioned(tmp_path: Path) -> None:
    here = grown(tmp_path / "a", [1, 2, 3])
    there = grown(tmp_path / "b", [1, 2, 3], text="did another thing")
    before = everything(here)
    arrival = bring_in(contents_of(there), str(tmp_path / "a"))
    assert arrival.renamed_runs == {"r": "r-2"}
    assert arrival.renamed_memories == {f"r-000{n}": f"r-000{n}-2" for n in (1, 2, 3)}
    bank = MemoryBank.open(str(tmp_path / "a"))
    assert bank.utilities("r") == before[3][0][1]
    assert bank.utilities("r-2") == {f"{i}-2": utility for i, utility in there.utilities("r").items()}
    memory = bank.memory("r-0003-2")
    assert (memory.run, memory.parents, memory.experience) == ("r-2", ("r-0002-2",), "did another thing in step 3")
    assert bank.trace("r-2", 3).reward.credited == ("r-0002-2",)
    assert all(finding.ok for finding in check(str(tmp_path / "a")))


def test_runs_that_parted_share_what_they_had_in_common(tmp_path: Path) -> None:
    here = grown(tmp_path / "a", [1, 2])
    bring_in(contents_of(here), str(tmp_path / "b"))
    there = MemoryBank.open(str(tmp_path / "b"))
    more_steps(here, [3], text="here")
    more_steps(there, [3], text="there")
    arrival = bring_in(contents_of(there), str(tmp_path / "a"))
    assert (arrival.renamed_runs, arrival.renamed_memories) == ({"r": "r-2"}, {"r-0003": "r-0003-2"})
    bank = MemoryBank.open(str(tmp_path / "a"))
    assert list(bank.utilities("r-2")) == ["r-0001", "r-0002", "r-0003-2"]
    assert bank.utilities("r-2").keys() != bank.utilities("r").keys()
    assert [trace.step for trace in bank.traces("r-2")] == [1, 2, 3]


def test_a_fork_follows_its_base_to_its_new_name(tmp_path: Path) -> None:
    grown(tmp_path / "a", [1, 2, 3]).close()
    there = grown(tmp_path / "b", [1, 2, 3], text="other")
    there.write.start_run(a_run("fork", base="r", base_step=2))
    late, vectors = a_step(7, credited=("r-0001",), run="fork")
    there.write.commit_step(late, vectors)
    contents = contents_of(there)
    backwards = replace(contents, events=tuple(reversed(contents.events)))
    for given_order in (contents, backwards):
        arrival = bring_in(given_order, str(tmp_path / "a"))
        assert arrival.renamed_runs == {"r": "r-2"}
    assert arrival.account.read[-1] == UNCHANGED
    bank = MemoryBank.open(str(tmp_path / "a"))
    assert bank.run("fork").base == "r-2"
    assert {i.removesuffix("-2"): u for i, u in bank.utilities("fork").items()} == there.utilities("fork")


def test_a_name_of_the_file_itself_is_never_given_to_something_else(tmp_path: Path) -> None:
    grown(tmp_path / "a", [1]).close()
    there = grown(tmp_path / "b", [1], text="other")
    there.write.start_run(a_run("r-2"))
    there.write.commit_step(*a_step(1, run="r-2"))
    arrival = bring_in(contents_of(there), str(tmp_path / "a"))
    assert arrival.renamed_runs == {"r": "r-3"}
    assert {info.id for info in MemoryBank.open(str(tmp_path / "a")).runs()} == {"r", "r-2", "r-3"}


def row_of(event: LedgerEvent) -> dict[str, Any]:
    return {**codec.event_row(event), "digest": ""}


def test_every_mention_of_a_renamed_memory_follows_it(tmp_path: Path) -> None:
    agent = an_agent_after(tmp_path / "b", 6, delta=0.0)
    there = agent.bank
    last = there.trace("r", 6)
    assert last.reward.credited
    credited = last.reward.credited
    revoked = give_reward(there, "r", 6, last.id, credited, 0.5, "Ada")
    there.write.ratings.revoke(revoked.id, "Ada")
    give_reward(there, "r", 6, last.id, credited, -1.0, "Bob")
    there.write.credits.assign("r", 6, last.id, {credited[0]: 0.75}, "Ada", "tried")
    there.write.notes.pin("r", 6, "look", "Ada", credited, a=credited[0])
    there.write.start_run(replace(a_run("s"), embedder=there.embedder.name))

    memories = {i: replace(there.memory(i), experience="quite another") for i in there.memory_ids()}
    here = MemoryBank.create(str(tmp_path / "a"), there.embedder.name, there.embedder.dimension)
    here.write.start_run(replace(a_run(), embedder=there.embedder.name, seed=99))
    known = [replace(event, run="r", step_id="") for event in there.events() if event.kind is EventKind.MEMORY_WRITTEN]
    known = [replace(event, id=f"known {event.id}") for event in known]
    here.write.adopt({i: (memory, there.embedding(i)) for i, memory in memories.items()}, known, [])

    bring_in(contents_of(there), str(tmp_path / "a"))
    bank = MemoryBank.open(str(tmp_path / "a"))
    # The same facts as text, with the names put back, are those that went in: nothing was missed, nothing else changed.
    new = [event for event in bank.events() if event.run != "r"]
    assert {event.run for event in new} == {"r-2", "s"}
    plain = [row_of(event) for event in there.events()]
    assert [event.payload["a"] for event in new if event.kind is EventKind.NOTE_PINNED] == [f"{credited[0]}-2"]
    put_back = json.loads(json.dumps([row_of(event) for event in new]).replace("-2", ""))
    assert sorted(put_back, key=str) == sorted(json.loads(json.dumps(plain).replace("-2", "")), key=str)
    for trace in there.traces("r"):
        moved = codec.step_row(bank.trace("r-2", trace.step), "")
        original = codec.step_row(trace, "")
        for memory_id in there.memory_ids():
            assert f'"{memory_id}"' not in moved["trace"]
        assert moved["trace"].replace("-2", "") == original["trace"].replace("-2", "")
    assert bank.utilities("r-2") == {f"{i}-2": u for i, u in there.utilities("r").items()}


def test_candidates_and_duplicates_are_renamed(tmp_path: Path) -> None:
    grown(tmp_path / "a", [1]).close()
    there = grown(tmp_path / "b", [1], text="other")
    trace, _ = a_step(2)
    candidate = Candidate("r-0001", 1.0, 0.0, 0, (), None, 1, None, False, Reason.BELOW_DELTA)
    decision = Decision(1, 0.5, "pool", (), (candidate,), ("r-0001",), ("r-0001",), "greedy", 0.0, None, 1, 1.0)
    double = MemoryOperation("NOOP", "r-0001", "task", "did it", "success", "task", 0.0, ("r-0001",), "r-0001")
    there.write.commit_step(replace(trace, decision=decision, write=WriteRecord((double,))), {})
    bring_in(contents_of(there), str(tmp_path / "a"))
    moved = MemoryBank.open(str(tmp_path / "a")).trace("r-2", 2)
    assert [c.memory_id for c in moved.decision.candidates] == ["r-0001-2"]
    assert (moved.decision.selected, moved.decision.greedy) == (("r-0001-2",), ("r-0001-2",))
    [operation] = moved.write.operations
    assert (operation.memory_id, operation.parents, operation.duplicate_of) == ("r-0001-2", ("r-0001-2",), "r-0001-2")


def other_parents(contents: Contents) -> Contents:
    memory, vector = contents.memories["r-0002"]
    return replace(contents, memories={**contents.memories, "r-0002": (replace(memory, parents=()), vector)})


def one_other_bit(contents: Contents) -> Contents:
    memory, vector = contents.memories["r-0002"]
    other = vector.copy()
    other[0] = np.nextafter(other[0], np.float32(1))
    return replace(contents, memories={**contents.memories, "r-0002": (memory, other)})


@pytest.mark.parametrize("changed", [other_parents, one_other_bit])
def test_a_memory_that_differs_in_anything_is_another_memory(tmp_path: Path, changed: Any) -> None:
    contents = contents_of(grown(tmp_path / "a", [1, 2]))
    assert bring_in(changed(contents), str(tmp_path / "a")).renamed_memories == {"r-0002": "r-0002-2"}


def test_a_step_that_differs_only_in_its_record_makes_another_run(tmp_path: Path) -> None:
    contents = contents_of(grown(tmp_path / "a", [1, 2]))
    touched = replace(contents.traces[1], policy="rag")
    arrival = bring_in(replace(contents, traces=(contents.traces[0], touched)), str(tmp_path / "a"))
    assert arrival.renamed_runs == {"r": "r-2"}
    bank = MemoryBank.open(str(tmp_path / "a"))
    assert (bank.trace("r", 2).policy, bank.trace("r-2", 2).policy) == ("memrl", "rag")


def test_a_run_that_never_begins_is_refused(tmp_path: Path) -> None:
    contents = contents_of(grown(tmp_path / "a", [1]))
    with pytest.raises(InputError, match="never begins"):
        bring_in(replace(contents, events=contents.events[1:]), str(tmp_path / "b"))
    assert not (tmp_path / "b").exists()


# --- the map ----------------------------------------------------------------------------------------------------------


def test_the_map_comes_along_into_a_new_bank_and_never_into_another_map(tmp_path: Path) -> None:
    there = grown(tmp_path / "a", range(1, 8))
    MapLayout(there).places()
    contents = contents_of(there)
    bring_in(contents, str(tmp_path / "b"))
    copied = MemoryBank.open(str(tmp_path / "b")).layouts.newest()
    assert copied.coordinates == contents.layout.coordinates
    assert MapLayout(MemoryBank.open(str(tmp_path / "b"))).places() == contents.layout.coordinates

    here = grown(tmp_path / "c", [1, 2], text="mine")
    own = MapLayout(here).places()
    bring_in(contents, str(tmp_path / "c"))
    kept = MemoryBank.open(str(tmp_path / "c")).layouts.newest()
    assert kept.coordinates == own


# --- any two banks ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    here=st.lists(st.sampled_from(["same", "mine"]), max_size=4),
    there=st.lists(st.sampled_from(["same", "theirs"]), max_size=4),
)
def test_whatever_meets_nothing_is_lost_and_again_nothing_changes(
    tmp_path_factory: pytest.TempPathFactory, here: list[str], there: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("same-names")
    one, two = a_bank(folder / "one"), a_bank(folder / "two")
    for bank, reported in ((one, here), (two, there)):
        for step, text in enumerate(reported, start=1):
            more_steps(bank, [step], text)
    before = everything(one)
    contents = contents_of(two)
    arrival = bring_in(contents, str(folder / "one"))
    bank = MemoryBank.open(str(folder / "one"))
    run = arrival.renamed_runs.get("r", "r")
    names = arrival.renamed_memories
    assert bank.utilities(run) == {names.get(i, i): u for i, u in two.utilities("r").items()}
    assert bank.utilities("r") == before[3][0][1]
    assert set(one.memory_ids()) <= set(bank.memory_ids())
    for memory_id in two.memory_ids():
        arrived = bank.memory(names.get(memory_id, memory_id))
        assert arrived.experience == two.memory(memory_id).experience
    after = everything(bank)
    assert bring_in(contents, str(folder / "one")).account.read[-1] == UNCHANGED
    assert everything(MemoryBank.open(str(folder / "one"))) == after


# --- recognising ------------------------------------------------------------------------------------------------------


def test_a_file_of_ours_is_known_by_its_content(tmp_path: Path) -> None:
    write_bank(grown(tmp_path / "a", [1]), tmp_path / "x.zip")
    renamed = (tmp_path / "x.zip").rename(tmp_path / "upload.bin")
    assert list(read_any(renamed).memories) == ["r-0001"]


def test_an_official_checkpoint_is_known_and_can_be_exported_again(tmp_path: Path) -> None:
    written = [Written("m1", "count the rows", q=0.76, visits=4), Written("m2", "drop a table", q=-0.5, visits=1)]
    contents = read_any(CheckpointWriter(written).write(tmp_path / "official"))
    assert bring_in(contents, str(tmp_path / "a")).memories == 2
    assert bring_in(contents, str(tmp_path / "a")).account.read[-1] == UNCHANGED
    bank = MemoryBank.open(str(tmp_path / "a"))
    bring_in(contents_of(bank), str(tmp_path / "b"))
    assert everything(MemoryBank.open(str(tmp_path / "b"))) == everything(bank)
    assert sorted(utility.q for utility in bank.utilities(bank.runs()[0].id).values()) == [-0.5, 0.76]


def test_what_is_not_known_is_answered_with_what_can_be_imported(tmp_path: Path) -> None:
    grown(tmp_path / "a", [1]).close()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "empty", "nothing"):
        with pytest.raises(InputError, match="checkpoint"):
            read_any(tmp_path / name)
    with pytest.raises(InputError, match="Open it instead"):
        read_any(tmp_path / "a")
