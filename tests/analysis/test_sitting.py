"""A person's way through a queue keeps its order, comes to its end, and asks for nothing twice; pairs of answers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from memrl_core.analysis.people.rated_steps import RatedStep
from memrl_core.analysis.people.rating_queue import TOO_SOON, QueueFilter, Sitting, pairs

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_sitting(count: int = 4) -> Sitting:
    return Sitting(tuple(range(count)))


def rate(sitting: Sitting) -> None:
    """Rate what is looked at."""
    if sitting.place is not None:
        sitting.has_rated(sitting.place, NOW)


def rest(sitting: Sitting) -> list[object]:
    """What is shown when everything is rated from here on."""
    shown = []
    while sitting.place is not None and sitting.place not in sitting.rated:
        shown.append(sitting.place)
        rate(sitting)
    return shown


# --- the way through --------------------------------------------------------------------------------------------------


def test_places_are_shown_once_each_in_their_order_and_then_the_end() -> None:
    sitting = a_sitting()
    assert rest(sitting) == [0, 1, 2, 3]
    assert sitting.place is None and sitting.at == 4


def test_an_empty_queue_is_at_its_end_and_stays_there() -> None:
    sitting = Sitting(())
    for act in (sitting.skip, lambda: rate(sitting), lambda: sitting.move(1), lambda: sitting.move(-1)):
        act()
    assert (sitting.place, sitting.at, sitting.rated) == (None, 0, {})
    assert (sitting.progress.done, sitting.progress.total) == (0, 0)


def test_a_skipped_place_comes_again_when_nothing_else_is_left() -> None:
    sitting = a_sitting()
    sitting.skip()
    assert rest(sitting) == [1, 2, 3, 0]
    assert sitting.skipped == set()


def test_where_all_are_skipped_they_come_again_from_the_first() -> None:
    sitting = a_sitting(3)
    shown = []
    for _ in range(5):
        shown.append(sitting.place)
        sitting.skip()
    assert shown == [0, 1, 2, 0, 1]


def test_looking_about_rates_nothing_and_stops_at_both_ends() -> None:
    sitting = a_sitting(3)
    sitting.move(-1)
    assert sitting.place == 0
    sitting.move(7)
    assert sitting.place == 2
    assert sitting.rated == {}


def test_from_the_end_one_looks_back_at_the_last_one() -> None:
    sitting = a_sitting(2)
    rest(sitting)
    sitting.move(-1)
    assert sitting.place == 1


def test_rating_out_of_order_comes_back_to_what_was_passed_by() -> None:
    sitting = a_sitting()
    sitting.move(2)
    assert rest(sitting) == [2, 3, 0, 1]


def test_a_rating_that_is_taken_back_is_looked_at_and_asked_for_again() -> None:
    sitting = a_sitting(3)
    rate(sitting)
    rate(sitting)
    sitting.take_back(0)
    assert sitting.place == 0 and sitting.progress.done == 1
    assert rest(sitting) == [0, 2]


def test_a_click_that_arrives_twice_goes_on_once() -> None:
    sitting = a_sitting(3)
    sitting.has_rated(0, NOW)
    sitting.has_rated(0, NOW + timedelta(seconds=5))
    assert (sitting.place, sitting.rated) == (1, {0: NOW})


def test_a_place_of_an_earlier_day_is_put_in_where_the_person_looks() -> None:
    sitting = a_sitting(3)
    rate(sitting)
    sitting.take_back(9)
    assert (sitting.place, sitting.places) == (9, (0, 9, 1, 2))
    assert rest(sitting) == [9, 1, 2]


# --- what others do ---------------------------------------------------------------------------------------------------


def test_what_others_have_rated_is_closed_and_passed_by() -> None:
    sitting = a_sitting()
    assert sitting.follow((0, 2, 3)) == 0
    assert sitting.progress.total == 3
    assert rest(sitting) == [0, 2, 3]


def test_what_comes_in_waits_at_the_end_in_its_order() -> None:
    sitting = a_sitting(2)
    assert sitting.follow((7, 0, 6, 1)) == 2
    assert rest(sitting) == [0, 1, 7, 6]


def test_what_is_opened_again_is_asked_for_again() -> None:
    sitting = a_sitting(3)
    sitting.follow((0, 2))
    sitting.follow((0, 1, 2))
    assert rest(sitting) == [0, 1, 2]


def test_what_the_person_has_rated_stays_theirs_when_it_waits_no_more() -> None:
    sitting = a_sitting(3)
    rate(sitting)
    sitting.follow((1, 2))
    assert (sitting.progress.done, sitting.progress.total, sitting.closed) == (1, 3, set())


def test_what_is_opened_again_after_the_end_is_looked_at() -> None:
    sitting = a_sitting(2)
    sitting.follow((0,))
    rate(sitting)
    assert sitting.place is None
    sitting.follow((1,))
    assert sitting.place == 1


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
    sitting = a_sitting(count)
    for name, *more in acts:
        if name == "rate":
            rate(sitting)
        else:
            getattr(sitting, name)(*more)
        assert 0 <= sitting.at <= len(sitting.places) == len(set(sitting.places))
        assert 0 <= sitting.progress.done <= sitting.progress.total
    rate(sitting)
    left = [place for place in sitting.places if place not in sitting.rated and place not in sitting.closed]
    shown = rest(sitting) if left else []
    assert sorted(shown) == sorted(left)
    assert sitting.progress.done == sitting.progress.total


# --- keys that come too soon ------------------------------------------------------------------------------------------


def test_a_key_is_too_soon_until_the_place_has_been_up_long_enough() -> None:
    sitting = a_sitting()
    sitting.shows(100.0)
    assert sitting.too_soon(sitting.place, 100.0 + TOO_SOON * 0.99)
    assert not sitting.too_soon(sitting.place, 100.0 + TOO_SOON * 1.01)


def test_drawing_the_same_place_again_does_not_start_its_time_anew() -> None:
    sitting = a_sitting()
    sitting.shows(100.0)
    sitting.shows(100.0 + TOO_SOON)
    assert not sitting.too_soon(sitting.place, 100.1 + TOO_SOON)


def test_each_place_has_its_own_time() -> None:
    sitting = a_sitting()
    sitting.shows(100.0)
    rate(sitting)
    sitting.shows(200.0)
    assert sitting.too_soon(1, 200.0) and not sitting.too_soon(0, 200.0)


def test_what_has_not_been_drawn_cannot_be_too_soon() -> None:
    assert not a_sitting().too_soon(0, 0.0)


def test_the_pace_is_that_of_this_sitting() -> None:
    sitting = a_sitting(4)
    for place, seconds in enumerate((0, 10, 20)):
        sitting.has_rated(place, NOW + timedelta(seconds=seconds))
    assert (sitting.progress.pace, sitting.progress.left) == (10.0, 10.0)


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


def test_a_pair_is_left_out_once_the_rater_has_rated_both() -> None:
    facts = [
        an_answer(1, "a", ("ann",)),
        an_answer(2, "a", ("ann", "bob")),
        an_answer(3, "a"),
        an_answer(4, "a", ("bob",)),
    ]
    assert compared(facts) == [("r3", "r4")]
    assert compared(facts, "bob") == [("r1", "r2"), ("r3", "r4")]


def test_tasks_that_were_answered_once_have_no_pair() -> None:
    assert compared([an_answer(1, "a"), an_answer(2, "b")]) == []


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
