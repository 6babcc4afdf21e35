"""Which steps a person is asked to rate, in which order: against the definitions, and as the ledger says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import get_args
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.people.agreement import disagreements
from memrl_core.analysis.people.rating_queue import (
    QueueFilter,
    RatedStep,
    Show,
    duration_words,
    facts_of,
    progress,
    queue,
    ratings_wanted,
)
from memrl_core.bank import MemoryBank
from memrl_core.records import EventKind, LedgerEvent, Memory
from tests.analysis.eventful import an_eventful_bank
from tests.builders import a_bank, a_step, a_vector

BOUNDS = {"a": (-1.0, 1.0), "b": (0.0, 1.0), "c": (-2.0, 0.5)}
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
REWARDS = (-2.0, -1.0, -0.75, 0.0, 0.25, 0.5, 1.0)


def some_facts(seed: int, count: int) -> list[RatedStep]:
    """Steps of three runs with few different values, so that much is equal."""
    rng = np.random.default_rng(seed)
    return [
        RatedStep(
            id=f"{rng.integers(1000):03d}-{number}",
            run=str(rng.choice(list(BOUNDS))),
            step=int(rng.integers(1, 5)),
            epoch=1,
            task="t1",
            policy=str(rng.choice(["memrl", "rag"])),
            created=f"{rng.choice(DAYS)}T{rng.choice(['00:00:00', '23:59:59'])}.000+00:00",
            environment=None if rng.random() < 0.3 else float(rng.choice(REWARDS)),
            people={who: float(rng.choice(REWARDS)) for who in ("ann", "bob", "cem") if rng.random() < 0.4},
            recalls=int(rng.integers(3)),
        )
        for number in range(count)
    ]


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
WANTED = st.integers(1, 3)


def shown(facts: list[RatedStep], chosen: QueueFilter, show: str, rater: str = "ann", wanted: int = 1) -> list[str]:
    every = dict.fromkeys(BOUNDS, wanted)
    found = queue(facts, chosen.model_copy(update={"show": show}), rater, every, BOUNDS)
    return [step.id for step in found]


def asked_for(facts: list[RatedStep], chosen: QueueFilter) -> list[RatedStep]:
    return [
        fact
        for fact in facts
        if chosen.run in ("", fact.run)
        and chosen.policy in ("", fact.policy)
        and (chosen.since is None or datetime.fromisoformat(fact.created).date() >= chosen.since)
        and (chosen.until is None or datetime.fromisoformat(fact.created).date() <= chosen.until)
    ]


def waits(fact: RatedStep, rater: str, wanted: int = 99) -> bool:
    return len({*fact.people, rater}) == len(fact.people) + 1 <= wanted


def newest_first(facts: list[RatedStep]) -> list[RatedStep]:
    return sorted(facts, key=lambda f: (datetime.fromisoformat(f.created), f.run, f.step, f.id), reverse=True)


def by_run(facts: list[RatedStep], chosen: list[RatedStep]) -> list[str]:
    runs = [fact.run for fact in facts]
    return [f.id for f in sorted(chosen, key=lambda f: (runs.index(f.run), f.step, f.id))]


@given(FACTS, FILTERS)
def test_awaiting_are_those_that_the_rater_has_not_rated_whoever_else_has(facts, chosen) -> None:
    waiting = [fact for fact in asked_for(facts, chosen) if waits(fact, "ann")]
    assert shown(facts, chosen, "awaiting", "ann") == by_run(facts, waiting)


@given(FACTS, FILTERS, WANTED)
def test_wanting_are_those_that_the_rater_and_enough_others_have_not_rated(facts, chosen, wanted) -> None:
    waiting = [fact for fact in asked_for(facts, chosen) if waits(fact, "ann", wanted)]
    assert shown(facts, chosen, "wanting", "ann", wanted) == by_run(facts, waiting)


def test_two_ratings_are_wanted_once_two_people_have_rated_unless_somebody_says_otherwise() -> None:
    one = rated(unrated(3), "a1", "ann")
    two, three = rated(one, "a2", "bob"), rated(rated(one, "a1", "bob"), "a3", "cem")
    assert [ratings_wanted(facts, None) for facts in (unrated(3), one, two, three)] == [1, 1, 2, 2]
    assert [ratings_wanted(facts, 3) for facts in (one, two)] == [3, 3]


@given(FACTS)
def test_disputed_are_the_steps_that_people_count_as_in_dispute(facts) -> None:
    for run, (low, high) in BOUNDS.items():
        given = {fact.id: fact.people for fact in facts if fact.run == run}
        counted = disagreements(given, (low + high) / 2, (high - low) / 2)
        assert shown(facts, QueueFilter(run=run), "disputed") == [one.step_id for one in counted]


@given(FACTS, FILTERS)
def test_unrated_are_those_that_nobody_has_rated(facts, chosen) -> None:
    assert shown(facts, chosen, "unrated") == by_run(facts, [f for f in asked_for(facts, chosen) if f.people == {}])


@given(FACTS, FILTERS)
def test_all_are_the_newest_first(facts, chosen) -> None:
    assert shown(facts, chosen, "all") == [fact.id for fact in newest_first(asked_for(facts, chosen))]


@given(FACTS, FILTERS)
def test_influential_are_the_awaiting_by_recalls_then_newest_first(facts, chosen) -> None:
    waiting = newest_first([fact for fact in asked_for(facts, chosen) if waits(fact, "bob")])
    expected = [fact.id for count in (2, 1, 0) for fact in waiting if fact.recalls == count]
    assert shown(facts, chosen, "influential", "bob") == expected


def test_a_step_that_is_given_twice_stands_once_as_given_last() -> None:
    step = RatedStep("x", "a", 1, 1, "t1", "memrl", DAYS[0], None, {}, 0)
    facts = [step, replace(step, people={"bob": 1.0})]
    assert [shown(facts, QueueFilter(), show) for show in ("all", "unrated", "wanting")] == [["x"], [], []]


# --- the random sample ------------------------------------------------------------------------------------------------


def unrated(count: int, run: str = "a") -> list[RatedStep]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        RatedStep(f"{run}{n}", run, n, 1, "t1", "memrl", (start + timedelta(minutes=n)).isoformat(), None, {}, 0)
        for n in range(1, count + 1)
    ]


def rated(facts: list[RatedStep], step_id: str, rater: str) -> list[RatedStep]:
    return [replace(f, people={**f.people, rater: 1.0}) if f.id == step_id else f for f in facts]


@given(FACTS, FILTERS)
def test_a_rating_takes_its_own_step_out_of_the_sample_and_moves_no_other(facts, chosen) -> None:
    waiting = shown(facts, chosen, "random", "ann")
    while waiting:
        rating = waiting[len(waiting) // 2]
        facts = rated(facts, rating, "ann")
        left = shown(facts, chosen, "random", "ann")
        assert left == [step for step in waiting if step != rating]
        waiting = left


@given(FACTS, FILTERS)
def test_the_sample_holds_as_many_of_the_asked_steps_as_it_should(facts, chosen) -> None:
    untouched = [replace(fact, people={}) for fact in facts]
    everyone = asked_for(facts, chosen)
    sample = shown(untouched, chosen, "random")
    assert len(set(sample)) == len(sample) == min(chosen.sample, len(everyone))
    still = {fact.id for fact in everyone if waits(fact, "ann")}
    assert shown(facts, chosen, "random", "ann") == [step for step in sample if step in still]


def test_steps_that_end_meanwhile_leave_the_others_in_their_order() -> None:
    chosen = QueueFilter(sample=10, seed=1)
    before, after = shown(unrated(40), chosen, "random"), shown(unrated(50), chosen, "random")
    kept = [step for step in after if step in before]
    assert kept == before[: len(kept)]
    assert {int(step[1:]) > 40 for step in after if step not in before} <= {True}


def test_every_step_is_as_likely_to_be_drawn() -> None:
    facts = unrated(5)
    draws = [step for seed in range(400) for step in shown(facts, QueueFilter(sample=2, seed=seed), "random")]
    assert [draws.count(fact.id) for fact in facts] == pytest.approx([160] * 5, abs=40)


# --- the link ---------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        QueueFilter,
        show=st.sampled_from(get_args(Show)),
        run=st.text(max_size=9),
        policy=st.text(max_size=9),
        since=st.none() | st.dates(),
        until=st.none() | st.dates(),
        seed=st.integers(0, 2**70),
        sample=st.integers(1, 100_000),
    )
)
def test_a_filter_survives_its_link(chosen) -> None:
    query = dict(parse_qsl(urlencode(chosen.to_query()), keep_blank_values=True))
    assert QueueFilter.from_query(query) == (chosen, [])


def test_a_link_holds_only_what_differs_from_the_default() -> None:
    assert QueueFilter().to_query() == {}
    assert QueueFilter(show="random", since=date(2026, 1, 2)).to_query() == {"show": "random", "since": "2026-01-02"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("show", "everything"),
        ("since", "0"),
        ("since", "2026-02-30"),
        ("until", ""),
        ("seed", "-1"),
        ("seed", "1.5"),
        ("sample", "0"),
        ("sample", "100001"),
        ("sample", "x" * 500),
    ],
)
def test_a_value_that_cannot_be_gets_a_sentence_and_the_default(name, value) -> None:
    chosen, wrong = QueueFilter.from_query({"run": "r", name: value, "step": "7"})
    assert chosen == QueueFilter(run="r")
    (sentence,) = wrong
    assert f"{name} “{value[:80]}”" in sentence and len(sentence) < 300


# --- progress ---------------------------------------------------------------------------------------------------------

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(*seconds: float) -> list[datetime]:
    return [NOON + timedelta(seconds=s) for s in seconds]


@given(st.lists(st.integers(-900, 900), max_size=12), st.integers(0, 50))
def test_the_pace_is_the_median_of_what_counts(gaps, remaining) -> None:
    found = progress(at(*np.cumsum([0, *gaps]).tolist()), remaining, len(gaps) + 1)
    counted = [gap for gap in gaps if 0 <= gap <= 600]
    assert found.pace == (float(np.median(counted)) if counted else None)
    assert found.left == (None if found.pace is None else found.pace * remaining)
    assert (found.done, found.total) == (len(gaps) + 1, len(gaps) + 1 + remaining)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "about 0 s"),
        (40.2, "about 40 s"),
        (59.4, "about 59 s"),
        (59.6, "about 1 min"),
        (240, "about 4 min"),
        (3580, "about 1 h"),
        (4800, "about 1 h 20 min"),
        (7200, "about 2 h"),
        (90_000, "about 25 h"),
    ],
)
def test_a_duration_is_told_in_round_words(seconds, words) -> None:
    assert duration_words(seconds) == words


# --- the facts of a bank ----------------------------------------------------------------------------------------------


def facts_by_step(bank: MemoryBank) -> dict[tuple[str, int], RatedStep]:
    return {(fact.run, fact.step): fact for fact in facts_of(bank)}


def finished(bank: MemoryBank, *used: tuple[str, ...], reward: float | None = 1.0) -> MemoryBank:
    for step, credited in enumerate(used, start=1):
        bank.commit_step(*a_step(step, credited, reward))
    return bank


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return an_eventful_bank(tmp_path_factory.mktemp("eventful") / "bank", seed=1, happenings=36)


def test_every_finished_step_stands_once_in_the_order_of_runs(eventful) -> None:
    rows = [row for info in eventful.runs() for row in eventful.step_rows(info.id)]
    reported = [(f.id, f.run, f.step, f.epoch, f.task, f.created, f.policy) for f in facts_of(eventful)]
    assert reported == [(r.id, r.run, r.step, r.epoch, r.task, r.created, eventful.run(r.run).policy) for r in rows]


def test_the_rewards_are_those_that_stand(eventful) -> None:
    facts = facts_of(eventful)
    for fact in facts:
        active = eventful.active_rewards(fact.run, fact.step, fact.id)
        assert dict(fact.people) == {event.rater: event.value for event in active if event.source == "person"}
        own = [event.value for event in active if event.source == "environment"]
        assert fact.environment == (own[0] if own else None)
    assert any(len(fact.people) == 2 for fact in facts) and any(fact.environment is None for fact in facts)


def test_recalls_are_the_later_prompts_that_hold_what_the_step_wrote(eventful) -> None:
    prompts = [set(t.reward.credited) for info in eventful.runs() for t in eventful.traces(info.id)]
    facts = facts_of(eventful)
    for fact in facts:
        (written,) = eventful.trace(fact.run, fact.step).write.operations
        assert fact.recalls == sum(written.memory_id in prompt for prompt in prompts)
    assert max(fact.recalls for fact in facts) > 2


@pytest.mark.parametrize("without", ["reward", "memory"])
def test_a_prompt_is_known_from_the_reward_or_from_the_memory_alone(tmp_path: Path, without) -> None:
    bank = finished(a_bank(tmp_path / "bank"), ())
    trace, vectors = a_step(2, ("r-0001",), None if without == "reward" else 1.0)
    bank.commit_step(*((trace, vectors) if without == "reward" else (replace(trace, write=None), {})))
    assert facts_by_step(bank)["r", 1].recalls == 1


def test_a_prompt_holds_what_either_of_them_names(tmp_path: Path) -> None:
    bank = finished(a_bank(tmp_path / "bank"), (), ())
    trace, vectors = a_step(3, ("r-0001",))
    operation = replace(trace.write.operations[0], parents=("r-0001", "r-0002"))
    bank.commit_step(replace(trace, write=replace(trace.write, operations=(operation,))), vectors)
    assert [fact.recalls for fact in facts_of(bank)] == [1, 1, 0]


def adopted(bank: MemoryBank, memory_id: str, kind: EventKind, parents: tuple[str, ...] = ()) -> None:
    """A memory that bears the run and number of step 1, which did not write it."""
    memory = Memory(memory_id, "i", "e", "success", "i", parents, "r", 1, "t1", "2026-01-01T00:00:00+00:00")
    payload = {"replaces": list(parents)} if parents else {}
    seq = bank.clock + 1
    event = LedgerEvent(f"{memory_id}:e", seq, "r", 1, "", 1, kind, (memory_id,), 0.0, payload=payload)
    bank.adopt({memory_id: (memory, a_vector(9))}, [event], [])


def test_an_imported_memory_is_nobodys(tmp_path: Path) -> None:
    bank = finished(a_bank(tmp_path / "bank"), ())
    adopted(bank, "poison", EventKind.MEMORY_IMPORTED)
    bank.commit_step(*a_step(2, ("poison",)))
    assert [fact.recalls for fact in facts_of(bank)] == [0, 0]


def test_other_words_for_a_memory_count_as_that_memory_and_tell_of_no_prompt(tmp_path: Path) -> None:
    bank = finished(a_bank(tmp_path / "bank"), ())
    adopted(bank, "r-0001.2", EventKind.MEMORY_EDITED, ("r-0001",))
    adopted(bank, "r-0001.3", EventKind.MEMORY_EDITED, ("r-0001.2",))
    assert facts_by_step(bank)["r", 1].recalls == 0
    bank.commit_step(*a_step(2, ("r-0001.3",)))
    assert facts_by_step(bank)["r", 1].recalls == 1


@pytest.mark.parametrize(("run", "step", "step_id"), [("", 1, "first"), ("r", 2, "first"), ("r", 1, "never ended")])
def test_a_reward_for_anything_else_is_not_the_steps(tmp_path: Path, run, step, step_id) -> None:
    bank = a_bank(tmp_path / "bank")
    trace, vectors = a_step(1)
    bank.commit_step(replace(trace, id="first"), vectors)
    kind, seq = EventKind.REWARD_GIVEN, bank.clock + 1
    bank.adopt({}, [LedgerEvent("e", seq, run, step, step_id, 1, kind, (), 0.5, "person", "ann")], [])
    assert [fact.people for fact in facts_of(bank)] == [{}]
