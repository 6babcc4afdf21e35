"""A person's way through a queue keeps its order, comes to its end, and asks for nothing twice; pairs of answers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.people.rating_queue import TOO_SOON, QueueFilter, RatedStep, RatingSession, pairs

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_session(count: int = 4) -> RatingSession:
    return RatingSession(tuple(range(count)))


def rate(session: RatingSession) -> None:
    """Rate what is looked at."""
    if session.place is not None:
        session.has_rated(session.place, NOW)


def act(session: RatingSession, name: str, *more: object) -> None:
    """What a person or, in `follow`, the others do."""
    if name == "rate":
        rate(session)
    else:
        getattr(session, name)(*more)


def rest(session: RatingSession) -> list[object]:
    """What is shown when everything is rated from here on."""
    shown = []
    while session.place is not None and session.place not in session.rated:
        shown.append(session.place)
        rate(session)
    return shown


# --- the way through --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "acts", "shown", "total"),
    [
        pytest.param(4, [], [0, 1, 2, 3], 4, id="in order"),
        pytest.param(4, [("skip",)], [1, 2, 3, 0], 4, id="skipped"),
        pytest.param(4, [("move", 2)], [2, 3, 0, 1], 4, id="out of order"),
        pytest.param(3, [("rate",), ("rate",), ("take_back", 0)], [0, 2], 3, id="taken back"),
        pytest.param(3, [("rate",), ("take_back", 9)], [9, 1, 2], 4, id="taken back from an earlier day"),
        pytest.param(4, [("follow", (0, 2, 3))], [0, 2, 3], 3, id="rated by others"),
        pytest.param(2, [("follow", (7, 0, 6, 1))], [0, 1, 7, 6], 4, id="come in"),
        pytest.param(3, [("follow", (0, 2)), ("follow", (0, 1, 2))], [0, 1, 2], 3, id="opened again"),
    ],
)
def test_what_is_open_is_shown_once_each_in_this_order(count: int, acts: list, shown: list[int], total: int) -> None:
    session = a_session(count)
    for name, *more in acts:
        act(session, name, *more)
    assert session.progress.total == total
    assert rest(session) == shown
    assert (session.place, session.at, session.skipped) == (None, len(session.places), set())


def test_those_who_follow_are_told_how_many_came_in() -> None:
    assert a_session(2).follow((7, 0, 6, 1)) == 2


def test_an_empty_queue_is_at_its_end_and_stays_there() -> None:
    session = RatingSession(())
    for act in (session.skip, lambda: rate(session), lambda: session.move(1), lambda: session.move(-1)):
        act()
    assert (session.place, session.at, session.rated) == (None, 0, {})
    assert (session.progress.done, session.progress.total) == (0, 0)


def test_from_the_end_one_looks_back_at_the_last_one() -> None:
    session = a_session(2)
    rest(session)
    session.move(-1)
    assert session.place == 1


def test_a_click_that_arrives_twice_goes_on_once() -> None:
    session = a_session(3)
    session.has_rated(0, NOW)
    session.has_rated(0, NOW + timedelta(seconds=5))
    assert (session.place, session.rated) == (1, {0: NOW})


# --- what others do ---------------------------------------------------------------------------------------------------


def test_what_the_person_has_rated_stays_theirs_when_it_waits_no_more() -> None:
    session = a_session(3)
    rate(session)
    session.follow((1, 2))
    assert (session.progress.done, session.progress.total, session.closed) == (1, 3, set())


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
        assert 0 <= session.at <= len(session.places) == len(set(session.places))
        assert 0 <= session.progress.done <= session.progress.total
    rate(session)
    left = [place for place in session.places if place not in session.rated and place not in session.closed]
    shown = rest(session) if left else []
    assert sorted(shown) == sorted(left)
    assert session.progress.done == session.progress.total


# --- keys that come too soon ------------------------------------------------------------------------------------------


def test_a_key_is_too_soon_until_its_place_has_been_up_long_enough_however_often_it_is_drawn() -> None:
    session = a_session()
    assert not session.too_soon(0, 0.0)
    session.shows(100.0)
    session.shows(100.0 + TOO_SOON / 2)
    assert session.too_soon(0, 100.0 + TOO_SOON * 0.99)
    assert not session.too_soon(0, 100.0 + TOO_SOON * 1.01)
    rate(session)
    session.shows(200.0)
    assert session.too_soon(1, 200.0) and not session.too_soon(0, 200.0)


def test_the_pace_is_that_of_this_sitting() -> None:
    session = a_session(4)
    for place, seconds in enumerate((0, 10, 20)):
        session.has_rated(place, NOW + timedelta(seconds=seconds))
    assert (session.progress.pace, session.progress.left) == (10.0, 10.0)


# --- pairs ------------------------------------------------------------------------------------------------------------


def an_answer(step: int, task: str, people: tuple[str, ...] = (), run: str = "r", day: int = 1) -> RatedStep:
    rated = dict.fromkeys(people, 1.0)
    created = f"2026-01-{day:02d}T00:00:00.000+00:00"
    return RatedStep(f"{run}{step}", run, step, 1, task, "memrl", created, None, rated, 0)


def compared(facts: list[RatedStep], rater: str = "ann", **chosen: object) -> list[tuple[str, str]]:
    return [(first.id, second.id) for first, second in pairs(facts, QueueFilter(**chosen), rater)]


def test_answers_to_a_task_are_compared_two_by_two() -> None:
    facts = [an_answer(step, task) for step, task in enumerate("abaabaa", 1)]
    assert compared(facts) == [("r1", "r3"), ("r4", "r6"), ("r2", "r5")]


def test_answers_of_different_runs_to_one_task_are_compared_the_older_first() -> None:
    facts = [an_answer(1, "a", run="s", day=2), an_answer(1, "a", run="r", day=3)]
    assert compared(facts) == [("s1", "r1")]
    assert compared(facts, run="r") == []
    assert compared(facts, since=date(2026, 1, 3)) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sets(st.sampled_from(["ann", "bob"]))), max_size=9))
def test_no_answer_is_in_two_pairs_and_a_pair_is_of_neighbours_that_are_not_both_rated(answers: list) -> None:
    facts = [an_answer(number, task, tuple(people)) for number, (task, people) in enumerate(answers)]
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
