"""What people did to memories, rewards and roles, in files and in other banks."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.bank.people.roles import NEWCOMERS, Role
from memrl_core.errors import NotAllowed
from memrl_core.exchange.archive import bank_bytes, read_bank, write_bank
from memrl_core.exchange.bring_in import ROLES_STAY, UNCHANGED, bring_in
from memrl_core.exchange.contents import contents_of
from memrl_core.exchange.new_banks import ROLES_OF_FIRST, merge
from memrl_core.records import EventKind, LedgerEvent, WriteRecord
from tests.bank.people.bank_of_people import FOUR, ONE, THREE, TWO, a_bank_of_people
from tests.builders import a_bank, a_run, a_step

BY_PEOPLE = {
    EventKind.MEMORY_FORGOTTEN, EventKind.MEMORY_RESTORED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED,
    EventKind.MEMORY_PINNED, EventKind.MEMORY_UNPINNED, EventKind.SCALES_CHANGED, EventKind.ROLE_ASSIGNED,
    EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED,
}  # fmt: skip


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    made = a_bank_of_people(tmp_path_factory.mktemp("b") / "bank")
    assert {event.kind for event in made.events()} >= BY_PEOPLE
    return made


def believed(bank: MemoryBank, run: str) -> Any:
    return [
        (bank.utilities(run, step), bank.editing.pinned(run), bank.editing.away(run)) for step in (None, *range(6))
    ]  # fmt: skip


# --- files ------------------------------------------------------------------------------------------------------------


def test_everything_people_did_comes_back_and_can_be_undone(bank: MemoryBank, tmp_path: Path) -> None:
    write_bank(bank, tmp_path / "x.zip")
    bring_in(read_bank(tmp_path / "x.zip"), str(tmp_path / "again"))
    again = MemoryBank.open(str(tmp_path / "again"))
    assert (again.events(), again.memory_ids()) == (bank.events(), bank.memory_ids())
    assert again.people.roles() == bank.people.roles() == {NEWCOMERS: Role.RATE, "ann": Role.MANAGE}
    assert again.ratings.scales("r") == bank.ratings.scales("r")
    for run in ("r", "s"):
        assert believed(again, run) == believed(bank, run)
    for person in ("ann", "bob"):
        assert again.undo.done(person) == bank.undo.done(person)
    assert again.write.undo.undo("ann") is not None


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_of_memories_list_what_the_runs_see_now(bank: MemoryBank, tmp_path: Path, kind: str) -> None:
    write_bank(bank, tmp_path / f"x.{kind}")
    if kind == "parquet":
        listed = pq.read_table(tmp_path / "x.parquet")["id"].to_pylist()
    else:
        table = csv.DictReader(io.StringIO(bank_bytes(bank, "csv").decode("utf-8-sig")))
        listed = [row["id"] for row in table]
    seen = {*bank.utilities("r"), *bank.utilities("s")}
    assert listed == [i for i in bank.memory_ids() if i in seen]
    assert {"r-0002.3", ONE, FOUR} <= set(listed) and not {TWO, THREE, "r-0002.2"} & set(listed)


# --- other banks ------------------------------------------------------------------------------------------------------


def test_a_bank_that_holds_something_keeps_its_own_roles_and_says_so(bank: MemoryBank, tmp_path: Path) -> None:
    here = a_bank(tmp_path / "here", "mine")
    here.write.people.assign("zoe", Role.MANAGE, "zoe")
    here.write.people.assign(NEWCOMERS, Role.LOOK, "zoe")
    arrival = bring_in(contents_of(bank), here.uri)
    here.refresh()
    assert here.people.roles() == {NEWCOMERS: Role.LOOK, "zoe": Role.MANAGE}
    assert [(s.where, s.why) for s in arrival.account.skipped] == [("2 roles of people", ROLES_STAY)]
    assert arrival.runs == ("r", "s")
    assert believed(here, "r") == believed(bank, "r")


@pytest.mark.parametrize("who", ["rae", "new"])
def test_only_a_manager_brings_anything_into_a_bank_that_holds_something(
    bank: MemoryBank, tmp_path: Path, who: str
) -> None:
    here = a_bank(tmp_path / "here", "mine")
    here.write.people.assign("zoe", Role.MANAGE, "zoe")
    here.write.people.assign("rae", Role.RATE, "zoe")
    here.write.people.assign(NEWCOMERS, Role.LOOK, "zoe")
    facts = here.facts
    with pytest.raises(NotAllowed, match=f"{who} may "):
        bring_in(contents_of(bank), here.uri, by=who)
    assert MemoryBank.open(here.uri).facts == facts
    assert bring_in(contents_of(bank), here.uri, by="zoe").runs == ("r", "s")


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_place_takes_the_roles_over_and_the_same_again_changes_nothing(
    bank: MemoryBank, tmp_path: Path, is_there: bool
) -> None:
    if is_there:
        MemoryBank.create(str(tmp_path / "b"), bank.embedder.name, bank.embedder.dimension).close()
    bring_in(contents_of(bank), str(tmp_path / "b"), by="new")
    assert MemoryBank.open(str(tmp_path / "b")).events() == bank.events()
    arrival = bring_in(contents_of(bank), str(tmp_path / "b"))
    assert (arrival.runs, arrival.memories, arrival.steps, arrival.events) == ((), 0, 0, 0)
    assert (arrival.account.skipped, arrival.account.read[-1]) == ((), UNCHANGED)


def a_bank_with_other_things_of_these_names(path: Path, *runs: str) -> MemoryBank:
    here = a_bank(path, runs[0])
    for run in runs[1:]:
        here.write.start_run(replace(a_run(run), seed=99))
    for run in runs:
        trace, vectors = a_step(1, run=run)
        other = replace(trace.write.operations[0], intent="other")
        here.write.commit_step(replace(trace, write=WriteRecord((other,))), vectors)
    return here


@pytest.mark.parametrize("taken", [("r", "s"), ("s",), ("r",)])
def test_every_name_in_what_people_did_follows_a_renaming(bank: MemoryBank, tmp_path: Path, taken: Any) -> None:
    here = a_bank_with_other_things_of_these_names(tmp_path / "here", *taken)
    contents = contents_of(bank)
    arrival = bring_in(contents, here.uri)
    assert arrival.renamed_runs == {run: f"{run}-2" for run in taken}
    there = MemoryBank.open(here.uri)
    for run in ("r", "s"):
        name = arrival.renamed_runs.get(run, run)
        seen = {arrival.renamed_memories.get(i, i): u for i, u in bank.utilities(run).items()}
        assert there.utilities(name) == seen
        assert there.editing.pinned(name) == {arrival.renamed_memories.get(i, i) for i in bank.editing.pinned(run)}
    new = [e for e in there.events() if e.run in {arrival.renamed_runs.get(run, run) for run in ("r", "s")}]
    steps = {row.id for event in new for row in there.steps.rows(event.run)}
    for event in new:
        assert not set(_linked(event)) - {*there.memory_ids(), *(e.id for e in new), *steps}
    assert len(there.undo.done("ann")) == len(bank.undo.done("ann"))
    assert len(there.undo.done("bob")) == len(bank.undo.done("bob"))
    again = bring_in(contents, here.uri)
    assert (again.events, again.memories, again.steps) == (0, 0, 0)


def _linked(event: LedgerEvent) -> list[str]:
    payload = event.payload
    singles = [payload[key] for key in ("undoes", "redoes", "other") if key in payload]
    return [*singles, *payload.get("replaces", ()), *payload.get("takes_away", ())]


def test_a_copy_under_another_name_is_undone_by_itself(bank: MemoryBank, tmp_path: Path) -> None:
    here = a_bank_with_other_things_of_these_names(tmp_path / "here", "r", "s")
    bring_in(contents_of(bank), here.uri)
    pair = [e for e in MemoryBank.open(here.uri).events() if "together" in e.payload]
    assert len(pair) == 2 and {e.payload["together"] for e in pair}.isdisjoint(
        e.payload["together"] for e in bank.events() if "together" in e.payload
    )


def test_a_merged_bank_has_all_that_people_did_and_the_roles_of_the_first(bank: MemoryBank, tmp_path: Path) -> None:
    other = a_bank(tmp_path / "other", "q")
    other.write.commit_step(*a_step(1, run="q"))
    other.write.people.assign("zoe", Role.MANAGE, "zoe")
    for first, second in ((bank, other), (other, bank)):
        done = merge(first, second, str(tmp_path / f"of-{first.runs()[0].id}"), second_run=second.runs()[0].id)
        made = MemoryBank.open(done.uri)
        assert made.people.roles() == first.people.roles()
        assert ROLES_OF_FIRST in done.notes
        assert believed(made, "r") == believed(bank, "r")
        assert all(finding.ok for finding in check(done.uri))
