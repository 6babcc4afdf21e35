"""Which steps a person is asked to rate, their way through them, pairs of answers, and steps shared out in batches."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.people.agreement import disagreements
from memrl_core.analysis.people.rating_queue import (
    TOO_SOON,
    QueueFilter,
    RatedStep,
    RatingSession,
    Show,
    assigned_to,
    batch_progress,
    drawn_batch,
    facts_of,
    pairs,
    queue,
    ratings_wanted,
)
from memrl_core.analysis.run.metrics import rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.errors import InputError, NotAllowed
from memrl_core.exchange.archive import read_bank, write_bank
from memrl_core.exchange.bring_in import bring_in
from memrl_core.exchange.reward_files import export_rewards, read_rewards
from memrl_core.records import EventKind, LedgerEvent, Memory
from tests.analysis.eventful import an_eventful_bank
from tests.builders import a_bank, a_step, a_vector

BOUNDS = {"a": (-1.0, 1.0), "b": (0.0, 1.0), "c": (-2.0, 0.5)}
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
REWARDS = (-2.0, -1.0, -0.75, 0.0, 0.25, 0.5, 1.0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_rated(step: int, run: str = "a", **more: Any) -> RatedStep:
    """A finished step that nobody has rated, one a minute."""
    usual = {"task": "t1", "policy": "memrl", "environment": None, "people": {}, "recalls": 0}
    created = (NOW + timedelta(minutes=step)).isoformat()
    return RatedStep(**{"id": f"{run}{step}", "run": run, "step": step, "created": created, **usual, **more})


def some_facts(seed: int, count: int) -> list[RatedStep]:
    """Steps of three runs with few different values, so that much is equal; in the order of runs and steps."""
    rng = np.random.default_rng(seed)
    facts = [
        a_rated(
            int(rng.integers(1, 5)), str(rng.choice(list(BOUNDS))), id=f"{rng.integers(1000):03d}-{number}",
            policy=str(rng.choice(["memrl", "rag"])), recalls=int(rng.integers(3)),
            created=f"{rng.choice(DAYS)}T{rng.choice(['00:00:00', '23:59:59'])}.000+00:00",
            people={who: float(rng.choice(REWARDS)) for who in ("ann", "bob", "cem") if rng.random() < 0.4},
        )
        for number in range(count)
    ]  # fmt: skip
    return sorted(facts, key=lambda fact: (fact.run, fact.step, fact.id))


FACTS = st.builds(some_facts, st.integers(0, 2**32 - 1), st.integers(0, 16))
FILTERS = st.builds(
    QueueFilter,
    run=st.sampled_from(["", "a", "b"]),
    policy=st.sampled_from(["", "rag"]),
    since=st.none() | st.sampled_from([date.fromisoformat(day) for day in DAYS]),
    until=st.none() | st.sampled_from([date.fromisoformat(day) for day in DAYS]),
    seed=st.integers(0, 3),
    sample=st.integers(1, 6),
)


def shown(facts: list[RatedStep], chosen: QueueFilter, show: str, wanted: int = 1) -> list[str]:
    every = dict.fromkeys(BOUNDS, wanted)
    return [step.id for step in queue(facts, chosen.model_copy(update={"show": show}), "ann", every, BOUNDS)]


def inside(facts: list[RatedStep], chosen: QueueFilter) -> list[RatedStep]:
    return [
        fact
        for fact in facts
        if chosen.run in ("", fact.run)
        and chosen.policy in ("", fact.policy)
        and (chosen.since is None or datetime.fromisoformat(fact.created).date() >= chosen.since)
        and (chosen.until is None or datetime.fromisoformat(fact.created).date() <= chosen.until)
    ]


def rated(facts: list[RatedStep], step_id: str, rater: str) -> list[RatedStep]:
    return [replace(f, people={**f.people, rater: 1.0}) if f.id == step_id else f for f in facts]


# --- the queue --------------------------------------------------------------------------------------------------------


@given(FACTS, FILTERS, st.integers(1, 3))
def test_each_queue_holds_what_its_definition_says_in_its_order(facts, chosen, wanted) -> None:
    steps = inside(facts, chosen)
    waiting = [fact for fact in steps if "ann" not in fact.people]
    newest = sorted(steps, key=lambda f: (datetime.fromisoformat(f.created), f.run, f.step, f.id), reverse=True)
    expected = {
        "awaiting": waiting,
        "wanting": [fact for fact in waiting if len(fact.people) < wanted],
        "unrated": [fact for fact in steps if not fact.people],
        "all": newest,
        "influential": [f for count in (2, 1, 0) for f in newest if f.recalls == count and "ann" not in f.people],
    }
    for show, members in expected.items():
        assert shown(facts, chosen, show, wanted) == [fact.id for fact in members], show


def test_two_ratings_are_wanted_once_two_people_have_rated_unless_somebody_says_otherwise() -> None:
    none = [a_rated(step) for step in (1, 2, 3)]
    one = rated(none, "a1", "ann")
    two, three = rated(one, "a2", "bob"), rated(rated(one, "a1", "bob"), "a3", "cem")
    assert [ratings_wanted(facts, None) for facts in (none, one, two, three)] == [1, 1, 2, 2]
    assert [ratings_wanted(facts, 3) for facts in (one, two)] == [3, 3]


@given(FACTS)
def test_disputed_are_the_steps_that_people_count_as_in_dispute(facts) -> None:
    for run, (low, high) in BOUNDS.items():
        given = {fact.id: fact.people for fact in facts if fact.run == run}
        counted = disagreements(given, (low + high) / 2, (high - low) / 2)
        assert shown(facts, QueueFilter(run=run), "disputed") == [one.step_id for one in counted]


@given(FACTS, FILTERS)
def test_a_sample_is_drawn_among_all_and_a_rating_takes_its_own_step_out_and_moves_no_other(facts, chosen) -> None:
    everyone = inside(facts, chosen)
    sample = shown([replace(fact, people={}) for fact in facts], chosen, "random")
    assert len(set(sample)) == len(sample) == min(chosen.sample, len(everyone))
    still = {fact.id for fact in everyone if "ann" not in fact.people}
    waiting = shown(facts, chosen, "random")
    assert waiting == [step for step in sample if step in still]
    while waiting:
        rating = waiting.pop(len(waiting) // 2)
        facts = rated(facts, rating, "ann")
        assert shown(facts, chosen, "random") == waiting


def test_steps_that_end_meanwhile_leave_the_others_in_their_order() -> None:
    chosen, steps = QueueFilter(sample=10, seed=1), [a_rated(step) for step in range(1, 51)]
    before, after = shown(steps[:40], chosen, "random"), shown(steps, chosen, "random")
    kept = [step for step in after if step in before]
    assert kept == before[: len(kept)]
    assert all(int(step[1:]) > 40 for step in after if step not in before)


def test_every_step_is_as_likely_to_be_drawn() -> None:
    facts = [a_rated(step) for step in range(1, 6)]
    draws = [step for seed in range(400) for step in shown(facts, QueueFilter(sample=2, seed=seed), "random")]
    assert [draws.count(fact.id) for fact in facts] == pytest.approx([160] * 5, abs=40)


# --- the link ---------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        QueueFilter, show=st.sampled_from(get_args(Show)), run=st.text(max_size=9), policy=st.text(max_size=9),
        since=st.none() | st.dates(), until=st.none() | st.dates(), seed=st.integers(0, 2**53 - 1),
        sample=st.integers(1, 100_000),
    )
)  # fmt: skip
def test_a_filter_survives_its_link(chosen) -> None:
    query = dict(parse_qsl(urlencode(chosen.to_query()), keep_blank_values=True))
    assert QueueFilter.from_query(query) == (chosen, [])


def test_a_link_holds_only_what_differs_from_the_default() -> None:
    assert QueueFilter().to_query() == {}
    assert QueueFilter(show="random", since=date(2026, 1, 2)).to_query() == {"show": "random", "since": "2026-01-02"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("show", "everything"), ("since", "0"), ("since", "2026-02-30"), ("until", ""), ("seed", "-1")],
        *[("seed", "1.5"), ("sample", "0"), ("sample", "100001"), ("sample", "x" * 500)],
    ],
)
def test_a_value_that_cannot_be_gets_a_sentence_and_the_default(name, value) -> None:
    chosen, wrong = QueueFilter.from_query({"run": "r", name: value, "step": "7"})
    assert chosen == QueueFilter(run="r")
    (sentence,) = wrong
    assert f"{name} “{value[:80]}”" in sentence and len(sentence) < 300


# --- the facts of a bank ----------------------------------------------------------------------------------------------


def finished(bank: MemoryBank, *used: tuple[str, ...]) -> MemoryBank:
    for step, credited in enumerate(used, start=1):
        bank.write.commit_step(*a_step(step, credited))
    return bank


def test_every_finished_step_is_there_once_with_the_rewards_that_stand_and_its_later_uses(tmp_path: Path) -> None:
    eventful = an_eventful_bank(tmp_path / "bank", seed=1, happenings=36)
    rows = [row for info in eventful.runs() for row in eventful.steps.rows(info.id)]
    prompts = [set(t.reward.credited) for info in eventful.runs() for t in eventful.traces(info.id)]
    facts = facts_of(eventful)
    for fact, row in zip(facts, rows, strict=True):
        assert (fact.id, fact.run, fact.step) == (row.id, row.run, row.step)
        assert (fact.task, fact.created, fact.policy) == (row.task, row.created, eventful.run(row.run).policy)
        active = eventful.ratings.active(fact.run, fact.step, fact.id)
        assert dict(fact.people) == {event.rater: event.value for event in active if event.source == "person"}
        assert fact.environment == next((e.value for e in active if e.source == "environment"), None)
        (written,) = eventful.trace(fact.run, fact.step).write.operations
        assert fact.recalls == sum(written.memory_id in prompt for prompt in prompts)
    assert any(len(fact.people) == 2 for fact in facts) and any(fact.environment is None for fact in facts)
    assert max(fact.recalls for fact in facts) > 2


@pytest.mark.parametrize("without", ["reward", "memory"])
def test_a_prompt_is_known_from_the_reward_or_from_the_memory_alone(tmp_path: Path, without) -> None:
    bank = finished(a_bank(tmp_path / "bank"), ())
    trace, vectors = a_step(2, ("r-0001",), None if without == "reward" else 1.0)
    bank.write.commit_step(*((trace, vectors) if without == "reward" else (replace(trace, write=None), {})))
    assert [fact.recalls for fact in facts_of(bank)] == [1, 0]


def test_a_prompt_holds_what_either_of_them_names(tmp_path: Path) -> None:
    bank = finished(a_bank(tmp_path / "bank"), (), ())
    trace, vectors = a_step(3, ("r-0001",))
    operation = replace(trace.write.operations[0], parents=("r-0001", "r-0002"))
    bank.write.commit_step(replace(trace, write=replace(trace.write, operations=(operation,))), vectors)
    assert [fact.recalls for fact in facts_of(bank)] == [1, 1, 0]


def adopted(bank: MemoryBank, memory_id: str, kind: EventKind, parents: tuple[str, ...] = ()) -> None:
    """A memory that bears the run and number of step 1, which did not write it."""
    memory = Memory(memory_id, "i", "e", "success", "i", parents, "r", 1, "t1", "2026-01-01T00:00:00+00:00")
    payload = {"replaces": list(parents)} if parents else {}
    seq = bank.clock + 1
    event = LedgerEvent(f"{memory_id}:e", seq, "r", 1, "", 1, kind, (memory_id,), 0.0, payload=payload)
    bank.write.adopt({memory_id: (memory, a_vector(9))}, [event], [])


def test_what_others_brought_in_or_reworded_is_no_prompt_and_words_count_as_their_memory(tmp_path: Path) -> None:
    bank = finished(a_bank(tmp_path / "bank"), ())
    adopted(bank, "poison", EventKind.MEMORY_IMPORTED)
    adopted(bank, "r-0001.2", EventKind.MEMORY_EDITED, ("r-0001",))
    adopted(bank, "r-0001.3", EventKind.MEMORY_EDITED, ("r-0001.2",))
    bank.write.commit_step(*a_step(2, ("poison",)))
    assert [fact.recalls for fact in facts_of(bank)] == [0, 0]
    bank.write.commit_step(*a_step(3, ("r-0001.3",)))
    assert [fact.recalls for fact in facts_of(bank)] == [1, 0, 0]


@pytest.mark.parametrize(("run", "step", "step_id"), [("", 1, "first"), ("r", 2, "first"), ("r", 1, "never ended")])
def test_a_reward_for_anything_else_is_not_the_steps(tmp_path: Path, run, step, step_id) -> None:
    bank = a_bank(tmp_path / "bank")
    trace, vectors = a_step(1)
    bank.write.commit_step(replace(trace, id="first"), vectors)
    kind, seq = EventKind.REWARD_GIVEN, bank.clock + 1
    bank.write.adopt({}, [LedgerEvent("e", seq, run, step, step_id, 1, kind, (), 0.5, "person", "ann")], [])
    assert [fact.people for fact in facts_of(bank)] == [{}]


# --- the way through --------------------------------------------------------------------------------------------------


def a_session(count: int = 4) -> RatingSession:
    return RatingSession(tuple(range(count)))


def act(session: RatingSession, name: str, *more: object) -> None:
    """What a person or, in `follow`, the others do; "rate" is a rating of what is looked at."""
    if name == "rate" and session.item is not None:
        session.has_rated(session.item, NOW)
    elif name != "rate":
        getattr(session, name)(*more)


def rest(session: RatingSession) -> list[object]:
    """What is shown when everything is rated from here on."""
    steps = []
    while session.item is not None and session.item not in session.rated:
        steps.append(session.item)
        act(session, "rate")
    return steps


@pytest.mark.parametrize(
    ("count", "acts", "steps", "total"),
    [
        pytest.param(4, [], [0, 1, 2, 3], 4, id="in order"),
        pytest.param(4, [("skip",)], [1, 2, 3, 0], 4, id="skipped"),
        pytest.param(4, [("move", 2)], [2, 3, 0, 1], 4, id="out of order"),
        pytest.param(3, [("rate",), ("rate",), ("take_back", 0)], [0, 2], 3, id="taken back"),
        pytest.param(3, [("rate",), ("take_back", 9)], [9, 1, 2], 4, id="taken back from an earlier day"),
        pytest.param(4, [("follow", (0, 2, 3))], [0, 2, 3], 3, id="rated by others"),
        pytest.param(2, [("follow", (7, 0, 6, 1))], [0, 1, 7, 6], 4, id="come in"),
        pytest.param(3, [("follow", (0, 2)), ("follow", (0, 1, 2))], [0, 1, 2], 3, id="opened again"),
        pytest.param(0, [("skip",), ("rate",), ("move", 1), ("move", -1)], [], 0, id="empty"),
    ],
)
def test_what_is_open_is_shown_once_each_in_this_order(count: int, acts: list, steps: list[int], total: int) -> None:
    session = a_session(count)
    for name, *more in acts:
        act(session, name, *more)
    assert session.progress.total == total
    assert rest(session) == steps
    assert (session.item, session.at, session.skipped) == (None, len(session.items), set())
    if count:
        session.move(-1)
        assert session.item == session.items[-1]


def test_a_click_that_arrives_twice_goes_on_once_and_what_was_rated_stays_when_it_waits_no_more() -> None:
    session = a_session(3)
    session.has_rated(0, NOW)
    session.has_rated(0, NOW + timedelta(seconds=5))
    assert (session.item, session.rated) == (1, {0: NOW})
    assert session.follow((1, 2, 7)) == 1
    assert (session.progress.done, session.progress.total, session.closed) == (1, 4, set())


ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["rate", "skip"])),
        st.tuples(st.just("move"), st.integers(-3, 3)),
        st.tuples(st.just("take_back"), st.integers(0, 7)),
        st.tuples(st.just("follow"), st.lists(st.integers(0, 7), unique=True)),
    ),
    max_size=25,
)


@given(st.integers(0, 6), ACTS)
def test_whatever_a_person_and_others_do_all_that_is_open_is_asked_for_once(count: int, acts: list) -> None:
    session = a_session(count)
    for name, *more in acts:
        act(session, name, *more)
        assert 0 <= session.at <= len(session.items) == len(set(session.items))
        assert 0 <= session.progress.done <= session.progress.total
    act(session, "rate")
    left = [item for item in session.items if item not in session.rated and item not in session.closed]
    assert sorted(rest(session) if left else []) == sorted(left)
    assert session.progress.done == session.progress.total


def test_a_key_is_too_soon_until_its_place_has_been_up_long_enough_however_often_it_is_drawn() -> None:
    session = a_session()
    assert not session.too_soon(0, 0.0)
    session.shows(100.0)
    session.shows(100.0 + TOO_SOON / 2)
    assert session.too_soon(0, 100.0 + TOO_SOON * 0.99)
    assert not session.too_soon(0, 100.0 + TOO_SOON * 1.01)
    act(session, "rate")
    session.shows(200.0)
    assert session.too_soon(1, 200.0) and not session.too_soon(0, 200.0)


@pytest.mark.parametrize(("words", "seconds"), [(0, 0.3), (12, 0.9), (30, 1.8), (5000, 2.1)])
def test_a_longer_answer_takes_longer_before_a_key_counts_up_to_two_seconds(words: int, seconds: float) -> None:
    session = a_session()
    session.shows(100.0, words)
    assert session.too_soon(0, 100.0 + seconds * 0.99) and not session.too_soon(0, 100.0 + seconds * 1.01)


@given(st.lists(st.integers(-900, 900), max_size=12), st.integers(0, 50))
def test_the_pace_is_the_median_of_the_gaps_that_count(gaps, remaining) -> None:
    session = a_session(len(gaps) + 1 + remaining)
    for item, seconds in enumerate(np.cumsum([0, *gaps]).tolist()):
        session.has_rated(item, NOW + timedelta(seconds=seconds))
    counted = [gap for gap in gaps if 0 <= gap <= 600]
    assert session.progress.pace == (float(np.median(counted)) if counted else None)
    assert (session.progress.done, session.progress.total) == (len(gaps) + 1, len(gaps) + 1 + remaining)


# --- pairs ------------------------------------------------------------------------------------------------------------


def compared(facts: list[RatedStep], **chosen: object) -> list[tuple[str, str]]:
    return [(first.id, second.id) for first, second in pairs(facts, QueueFilter(**chosen), "ann")]


def test_answers_of_different_runs_to_one_task_are_compared_the_older_first() -> None:
    facts = [a_rated(1, run, created=f"2026-01-0{day}T00:00:00.000+00:00") for day, run in ((2, "s"), (3, "r"))]
    assert compared(facts) == [("s1", "r1")]
    assert compared(facts, run="r") == compared(facts, since=date(2026, 1, 3)) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sets(st.sampled_from(["ann", "bob"]))), max_size=9))
def test_no_answer_is_in_two_pairs_and_a_pair_is_of_neighbours_that_are_not_both_rated(answers: list) -> None:
    facts = [a_rated(n, task=task, people=dict.fromkeys(people, 1.0)) for n, (task, people) in enumerate(answers)]
    expected = {
        (first.id, second.id)
        for first, second in combinations(facts, 2)
        if first.task == second.task
        and not any(first.step < other.step < second.step for other in facts if other.task == first.task)
        and sum(other.task == first.task and other.step < first.step for other in facts) % 2 == 0
        and not ("ann" in first.people and "ann" in second.people)
    }
    found = compared(facts)
    assert set(found) == expected and len(found) == len(expected)
    assert compared(facts, show="unrated", sample=1) == found


# --- batches ----------------------------------------------------------------------------------------------------------

RATERS = ("ann", "bob", "cem")


def steps(count: int, unjudged: int = 0) -> list[RatedStep]:
    return [a_rated(n, "r", environment=None if n <= unjudged else (-1.0) ** n) for n in range(1, count + 1)]


@pytest.fixture
def filled(tmp_path: Path) -> MemoryBank:
    bank = a_bank(tmp_path / "b")
    for n in range(1, 13):
        bank.write.commit_step(*a_step(n, reward=(-1.0) ** n))
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


def test_nobody_is_given_what_they_have_rated_and_gold_is_what_the_environment_or_a_named_person_gave() -> None:
    known = [replace(step, people={"ann": 1.0} if step.step <= 4 else {}) for step in steps(6)]
    batch = drawn_batch("b", known, ["ann", "bob"], count=6, overlap=2)
    assert [sorted(batch.parts[rater]) for rater in ("ann", "bob")] == [[5, 6], [1, 2, 3, 4, 5, 6]]
    known = [replace(step, people={"dan": 0.5}) for step in steps(4, unjudged=3)]
    assert drawn_batch("b", known, RATERS, count=4, gold_share=0.25).gold == {4: 1.0}
    assert drawn_batch("b", known, RATERS, count=4, gold_share=1.0, known="dan").gold == dict.fromkeys(range(1, 5), 0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        *[{"raters": ["", " "]}, {"raters": ["x" * 81]}, {"overlap": 4}, {"overlap": 0}],
        *[{"gold_share": 1.0}, {"known": "ann"}, {"steps": []}],
    ],
)
def test_what_cannot_be_shared_out_is_refused(wrong) -> None:
    with pytest.raises(InputError):
        drawn_batch("b", **{"steps": steps(4, unjudged=1), "raters": RATERS, "count": 4, **wrong})


def test_a_queue_is_the_part_that_is_left_in_its_order_and_gold_looks_like_the_rest(filled: MemoryBank) -> None:
    made = filled.write.batches.make(
        drawn_batch("b", facts_of(filled), RATERS, count=12, overlap=2, gold_share=0.5), "dan"
    )
    part = made.parts["ann"]

    def waiting() -> list[int]:
        assigned = assigned_to(filled.batches.of(), "ann")
        return [one.step for one in queue(facts_of(filled), QueueFilter(show="batch"), "ann", {}, {}, assigned)]

    assert waiting() == list(part) and len(part) == 8
    filled.write.ratings.rate(Rating("r", part[0], 1.0, "bob"))
    filled.write.ratings.rate(Rating("r", part[2], 1.0, "ann"))
    assert waiting() == [part[0], part[1], *part[3:]]
    filled.write.batches.close(made.id, "dan")
    assert waiting() == [] and filled.batches.of()[0].closed


def test_progress_and_accuracy_on_gold_are_counted_by_judgement(filled: MemoryBank) -> None:
    batch = Batch(run="r", name="b", parts={"ann": (1, 2, 3, 4), "bob": (1, 2)}, gold={1: -1.0, 2: 1.0, 3: -1.0})
    made = filled.write.batches.make(batch, "dan")
    for step, reward in ((1, -0.2), (2, -1.0), (4, 1.0)):
        filled.write.ratings.rate(Rating("r", step, reward, "ann"))
    ann, bob = batch_progress(made, facts_of(filled), 0.0)
    assert (ann.rater, ann.steps, ann.done, ann.gold) == ("ann", 4, 3, rate(["success", "failure"]))
    assert (bob.done, bob.gold.n, bob.gold.share) == (0, 0, None)


def test_another_process_sees_a_batch_and_it_goes_where_the_bank_and_its_rewards_go(
    filled: MemoryBank, tmp_path: Path
) -> None:
    q = filled.utilities("r")
    made = filled.write.batches.make(Batch(run="r", name="=first", parts={"ann": (3, 1)}, gold={3: -1.0}), "dan")
    code = (
        "import sys; from memrl_core.bank import MemoryBank; from memrl_core.bank.people.ratings import Rating\n"
        "bank = MemoryBank.open(sys.argv[1]); (batch,) = bank.batches.of('r')\n"
        "bank.write.ratings.rate(Rating('r', batch.parts['ann'][0], 1.0, 'ann'))"
    )
    subprocess.run([sys.executable, "-c", code, filled.uri], check=True)
    filled.refresh()
    assert [part.done for part in batch_progress(made, facts_of(filled), 0.0)] == [1]
    assert filled.utilities("r") == q

    (row,) = read_rewards(export_rewards(filled, "jsonl"), "jsonl", filled).lines
    assert row.rating is not None
    exported = export_rewards(filled, "csv").decode()
    assert '"batch","gold"' in exported and '"\'=first",-1.0' in exported
    write_bank(filled, tmp_path / "b.zip")
    bring_in(read_bank(tmp_path / "b.zip"), str(tmp_path / "again"))
    assert MemoryBank.open(str(tmp_path / "again")).batches.of() == [made]


def test_only_who_may_manage_makes_one_and_a_foreign_event_that_is_none_is_passed_over(filled: MemoryBank) -> None:
    batch = Batch(run="r", name="b", parts={"ann": (1,)})
    for wrong in ({"name": " "}, {"name": "x" * 81}, {"parts": {"ann": (99,)}}):
        with pytest.raises(InputError):
            filled.write.batches.make(batch.model_copy(update=wrong), "dan")
    with pytest.raises(InputError):
        filled.write.batches.close("none", "dan")
    filled.write.people.assign("dan", Role.MANAGE, "dan")
    filled.write.people.assign("ann", Role.RATE, "dan")
    with pytest.raises(NotAllowed):
        filled.write.batches.make(batch, "ann")
    made = filled.write.batches.make(batch, "dan")
    (event,) = [event for event in filled.events() if event.kind is EventKind.BATCH_MADE]
    for payload in ({}, {"parts": 3}, {"parts": {"ann": ["<b>"]}}):
        filled.write.adopt({}, [replace(event, id=repr(payload), payload=payload)], [])
    assert filled.batches.of() == [made]
