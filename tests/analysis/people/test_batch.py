"""Steps shared out among raters: who gets what, what is gold, and how far and how right everybody is."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.people.batch import assigned_to, batch_progress, drawn_batch
from memrl_core.analysis.people.rating_queue import QueueFilter, RatedStep, facts_of, queue
from memrl_core.analysis.run.rates import rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.errors import InputError, NotAllowed
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.reward_files import export_rewards, read_rewards
from memrl_core.records import EventKind
from tests.builders import a_bank, a_step

RATERS = ("ann", "bob", "cem")


def steps(count: int, unjudged: int = 0) -> list[RatedStep]:
    return [
        RatedStep(str(n), "r", n, 1, f"t{n}", "memrl", "", None if n <= unjudged else (-1.0) ** n, {}, 0)
        for n in range(1, count + 1)
    ]


def filled(path: Path, count: int = 12) -> MemoryBank:
    bank = a_bank(path)
    for n in range(1, count + 1):
        bank.commit_step(*a_step(n, reward=(-1.0) ** n))
    return bank


@given(st.integers(1, 60), st.integers(1, 3), st.floats(0, 1), st.integers(0, 9))
def test_every_drawn_step_goes_to_as_many_raters_as_asked_and_all_have_equally_much(count, overlap, share, seed):
    batch = drawn_batch("b", steps(50), RATERS, count=count, overlap=overlap, gold_share=share, seed=seed)
    times = Counter(step for part in batch.parts.values() for step in part)
    assert len(times) == min(count, 50)
    assert set(times.values()) == {overlap}
    assert len(batch.gold) == round(share * len(times))
    assert batch.gold.keys() <= times.keys()
    for of in (set(times), set(batch.gold)):
        load = [len(of & set(part)) for part in batch.parts.values()]
        assert max(load) - min(load) <= 1
    assert batch == drawn_batch("b", steps(50), RATERS, count=count, overlap=overlap, gold_share=share, seed=seed)


def test_nobody_is_given_what_they_have_rated() -> None:
    known = [replace(step, people={"ann": 1.0} if step.step <= 4 else {}) for step in steps(6)]
    batch = drawn_batch("b", known, ["ann", "bob"], count=6, overlap=2)
    assert sorted(batch.parts["ann"]) == [5, 6]
    assert sorted(batch.parts["bob"]) == [1, 2, 3, 4, 5, 6]


def test_gold_is_what_the_environment_or_a_named_person_gave() -> None:
    known = [replace(step, people={"dan": 0.5}) for step in steps(4, unjudged=3)]
    assert drawn_batch("b", known, RATERS, count=4, gold_share=0.25).gold == {4: 1.0}
    assert drawn_batch("b", known, RATERS, count=4, gold_share=1.0, known="dan").gold == dict.fromkeys(range(1, 5), 0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"raters": ["", " "]},
        {"overlap": 4},
        {"overlap": 0},
        {"gold_share": 1.0},
        {"known": "ann"},
        {"steps": []},
        {"raters": ["x" * 81]},
    ],
)
def test_what_cannot_be_shared_out_is_refused(wrong) -> None:
    given = {"steps": steps(4, unjudged=1), "raters": RATERS, "count": 4, **wrong}
    with pytest.raises(InputError):
        drawn_batch("b", **given)


def test_a_queue_is_the_part_that_is_left_in_its_order_and_gold_looks_like_the_rest(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b")
    made = bank.batches.make(drawn_batch("b", facts_of(bank), RATERS, count=12, overlap=2, gold_share=0.5), "dan")
    part = made.parts["ann"]

    def waiting() -> list[int]:
        assigned = assigned_to(bank.batches.of(), "ann")
        return [one.step for one in queue(facts_of(bank), QueueFilter(show="batch"), "ann", {}, {}, assigned)]

    assert waiting() == list(part) and len(part) == 8
    bank.ratings.rate(Rating("r", part[0], 1.0, "bob"))
    bank.ratings.rate(Rating("r", part[2], 1.0, "ann"))
    assert waiting() == [part[0], part[1], *part[3:]]
    bank.batches.close(made.id, "dan")
    assert waiting() == [] and bank.batches.of()[0].closed


def test_progress_and_accuracy_on_gold_are_counted_by_judgement(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b")
    batch = Batch(run="r", name="b", parts={"ann": (1, 2, 3, 4), "bob": (1, 2)}, gold={1: -1.0, 2: 1.0, 3: -1.0})
    made = bank.batches.make(batch, "dan")
    for step, reward in ((1, -0.2), (2, -1.0), (4, 1.0)):
        bank.ratings.rate(Rating("r", step, reward, "ann"))
    ann, bob = batch_progress(made, facts_of(bank), 0.0)
    assert (ann.rater, ann.steps, ann.done, ann.gold) == ("ann", 4, 3, rate(["success", "failure"]))
    assert (bob.done, bob.gold.n, bob.gold.share) == (0, 0, None)


def test_another_process_sees_a_batch_and_it_goes_where_the_bank_and_its_rewards_go(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b")
    q = bank.utilities("r")
    made = bank.batches.make(Batch(run="r", name="=first", parts={"ann": (3, 1)}, gold={3: -1.0}), "dan")
    code = (
        "import sys; from memrl_core.bank import MemoryBank; from memrl_core.bank.people.ratings import Rating\n"
        "bank = MemoryBank.open(sys.argv[1]); (batch,) = bank.batches.of('r')\n"
        "bank.ratings.rate(Rating('r', batch.parts['ann'][0], 1.0, 'ann'))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "b")], check=True)
    bank.refresh()
    assert [part.done for part in batch_progress(made, facts_of(bank), 0.0)] == [1]
    assert bank.utilities("r") == q

    (row,) = read_rewards(export_rewards(bank, "jsonl"), "jsonl", bank).lines
    assert row.rating is not None
    exported = export_rewards(bank, "csv").decode()
    assert '"batch","gold"' in exported and '"\'=first",-1.0' in exported
    write_bank(bank, tmp_path / "b.zip")
    bring_in(read_bank(tmp_path / "b.zip"), str(tmp_path / "again"))
    assert MemoryBank.open(str(tmp_path / "again")).batches.of() == [made]


def test_only_who_may_manage_makes_one_and_a_foreign_event_that_is_none_is_passed_over(tmp_path: Path) -> None:
    bank = filled(tmp_path / "b")
    batch = Batch(run="r", name="b", parts={"ann": (1,)})
    for wrong in ({"name": " "}, {"name": "x" * 81}, {"parts": {"ann": (99,)}}):
        with pytest.raises(InputError):
            bank.batches.make(batch.model_copy(update=wrong), "dan")
    with pytest.raises(InputError):
        bank.batches.close("none", "dan")
    bank.people.assign("dan", Role.MANAGE, "dan")
    bank.people.assign("ann", Role.RATE, "dan")
    with pytest.raises(NotAllowed):
        bank.batches.make(batch, "ann")
    made = bank.batches.make(batch, "dan")
    (event,) = [event for event in bank.events() if event.kind is EventKind.BATCH_MADE]
    for payload in ({}, {"parts": 3}, {"parts": {"ann": ["<b>"]}}):
        bank.adopt({}, [replace(event, id=repr(payload), payload=payload)], [])
    assert bank.batches.of() == [made]
