"""Rewards by people: one a person and step, folded in step order, taken back and given again without limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role, actor_of
from memrl_core.bank.people.undo import MEMORIES, REWARDS
from memrl_core.errors import InputError, NotAllowed, SettingsError
from memrl_core.exchange.reward_files import read_rewards
from memrl_core.learning.scales import RatingScales
from memrl_core.records import EventKind
from tests.builders import a_bank, a_run, a_step
from tests.oracles.raters import Raters, beliefs
from tests.small_banks import withdraw

STEPS = 6
ALPHA = 0.3


def a_rated_bank(path: Path, **chosen: object) -> tuple[MemoryBank, list[tuple[tuple[str, ...], float]]]:
    """Six steps, each of which used the two memories before it."""
    bank = a_bank(path, alpha=ALPHA, **chosen)
    steps = []
    for step in range(1, STEPS + 1):
        credited = tuple(f"r-{n:04d}" for n in range(max(1, step - 2), step))
        reward = 1.0 if step % 2 else -1.0
        bank.write.commit_step(*a_step(step, credited, reward))
        steps.append((credited, reward))
    return bank, steps


def believed(bank: MemoryBank) -> dict[str, tuple[float, int]]:
    return {i: (u.q, u.visits) for i, u in bank.utilities("r").items()}


PEOPLE = ("ann", "<b>bo</b>")
MANAGERS = ("cy", "di")
actions = st.lists(
    st.tuples(
        st.sampled_from(["rate", "rate", "withdraw", "undo", "undo", "redo", "rate for all", "revoke"]),
        st.integers(2, 4),
        st.sampled_from(PEOPLE),
        st.sampled_from(MANAGERS),
        st.sampled_from([-1.0, 0.25, 1.0]),
    ),
    max_size=18,
)


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return a_rated_bank(tmp_path / "bank")[0]


@given(actions, st.sampled_from(["override", "mean", "both"]), st.sampled_from(["mean", "majority"]))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_actions_by_several_people_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    sequence: list[tuple[str, int, str, str, float]],
    human_rewards: str,
    several_raters: str,
) -> None:
    bank, steps = a_rated_bank(
        tmp_path_factory.mktemp("b") / "bank", human_rewards=human_rewards, several_raters=several_raters
    )
    bank.utilities("r")
    reference = Raters()
    for action, step, person, manager, value in sequence:
        if action == "rate":
            bank.write.ratings.rate(Rating("r", step, value, person))
            reference.rate(step, person, value)
        elif action == "withdraw":
            withdraw(bank, "r", step, person)
            reference.rate(step, person, None)
        elif action == "rate for all":
            bank.write.ratings.rate_all([Rating("r", step, value / 2, who, given={"by": manager}) for who in PEOPLE])
            reference.rate_for(manager, step, dict.fromkeys(PEOPLE, value / 2))
        elif action == "revoke":
            reference.revoke(manager, step, person)
            mine = bank.ratings.mine("r", step, person)
            if mine is not None:
                bank.write.ratings.revoke(mine.id, manager)
        else:
            for who in (person, manager) if value < 1 else (manager,):
                if getattr(reference, action)(who):
                    getattr(bank.write.undo, action)(who)
                else:
                    with pytest.raises(InputError, match="since by"):
                        getattr(bank.write.undo, action)(who)
        people = {(e.step, e.rater): e.value for n in range(1, STEPS + 1) for e in bank.ratings.of("r", n) if e.rater}
        assert people == reference.standing
    expected = beliefs(steps, reference.standing, ALPHA, human_rewards, several_raters)
    assert believed(bank) == {i: (pytest.approx(q), visits) for i, (q, visits) in expected.items()}
    again = MemoryBank.open(bank.uri)
    assert again.utilities("r") == bank.utilities("r")
    assert [again.history("r", i) for i in again.utilities("r")] == [bank.history("r", i) for i in bank.utilities("r")]
    for person in PEOPLE + MANAGERS:
        assert len(again.undo.done(person)) == len(reference.done.get(person, []))
        assert len(again.undo.undone(person)) == len(reference.undone.get(person, []))


def test_undoing_everything_in_another_session_restores_every_bit(bank: MemoryBank) -> None:
    before, histories = believed(bank), bank.histories("r")
    for step, value in ((2, 0.3), (5, -0.7), (2, -1.0), (3, 0.1)):
        bank.write.ratings.rate(Rating("r", step, value, "ann"))
    withdraw(bank, "r", 5, "ann")
    rated = believed(bank)
    bank.close()
    again = MemoryBank.open(bank.uri)
    while again.write.undo.undo("ann"):
        pass
    assert believed(again) == before
    assert again.histories("r") == histories
    while again.write.undo.redo("ann"):
        pass
    assert believed(again) == rated


def test_the_same_click_twice_counts_once(bank: MemoryBank) -> None:
    first = bank.write.ratings.rate(Rating("r", 3, 1.0, "ann", "good", {"scale": "thumbs"}))
    assert bank.write.ratings.rate(Rating("r", 3, 1.0, " ann ", "good", {"scale": "thumbs"})) == first
    assert len(bank.undo.done("ann")) == 1
    other = MemoryBank.open(bank.uri)
    assert other.write.ratings.rate(Rating("r", 3, 1.0, "ann", "good", {"scale": "thumbs"})).id == first.id
    changed = bank.write.ratings.rate(Rating("r", 3, -1.0, "ann", "good", {"scale": "thumbs"}))
    given = [e.id for e in bank.events("r") if e.kind is EventKind.REWARD_GIVEN and e.rater == "ann"]
    assert given == [first.id, changed.id]


def test_what_a_reward_would_do_is_what_it_does(bank: MemoryBank) -> None:
    before = bank.utilities("r")
    supposed = bank.ratings.supposed(Rating("r", 2, -0.4, "ann"))
    assert bank.utilities("r") == before
    event = bank.write.ratings.rate(Rating("r", 2, -0.4, "ann"))
    after = bank.utilities("r")
    assert supposed.moved == {i: (before[i].q, after[i].q) for i in event.memory_ids}
    assert supposed.histories == {i: bank.histories("r")[i] for i in event.memory_ids}
    back = bank.ratings.supposed(withdrawn=event)
    assert back.moved == {i: (after[i].q, before[i].q) for i in event.memory_ids}


def test_a_late_reward_folds_only_what_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, steps = a_rated_bank(tmp_path / "bank")
    bank.utilities("r")
    monkeypatch.setattr("memrl_core.bank.utilities.Utilities.start", None)
    bank.write.ratings.rate(Rating("r", 2, -0.4, "ann"))
    withdraw(bank, "r", 2, "ann")
    bank.write.ratings.rate(Rating("r", 3, 0.4, "ann"))
    assert believed(bank) == beliefs(steps, {(3, "ann"): 0.4}, ALPHA)


@pytest.mark.parametrize(
    ("step", "value", "says"),
    [(99, 1.0, "no finished step 99"), (2, 1.5, "outside the scale"), (2, float("nan"), "outside the scale")],
)
def test_a_reward_that_cannot_be_is_refused_and_nothing_is_kept(
    bank: MemoryBank, step: int, value: float, says: str
) -> None:
    events = bank.events()
    with pytest.raises(InputError, match=says):
        bank.write.ratings.rate(Rating("r", step, value, "ann"))
    with pytest.raises(InputError, match=says):
        bank.write.ratings.rate_all([Rating("r", 3, 1.0, "ann"), Rating("r", step, value, "ann")])
    assert bank.events() == events


def test_a_clock_that_runs_backwards_changes_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, steps = a_rated_bank(tmp_path / "bank")
    for hour, value in ((12, 1.0), (9, -1.0), (3, 0.5)):
        monkeypatch.setattr("memrl_core.bank.ledger.now", lambda hour=hour: f"2026-01-01T{hour:02}:00:00.000+00:00")
        bank.write.ratings.rate(Rating("r", 3, value, "ann"))
    bank.write.undo.undo("ann")
    assert believed(MemoryBank.open(bank.uri)) == beliefs(steps, {(3, "ann"): -1.0}, ALPHA)


def test_two_answers_to_one_task_are_compared_as_one_action(tmp_path: Path) -> None:
    bank = a_bank(tmp_path / "bank")
    for step in (1, 2, 3):
        trace, vectors = a_step(step, ("r-0001",) if step > 1 else ())
        task = trace.task if step == 1 else a_step(2)[0].task
        bank.write.commit_step(
            type(trace)(**{**{f: getattr(trace, f) for f in trace.__slots__}, "task": task}), vectors
        )
    bank.write.ratings.change_scales("r", RatingScales(better=0.5, worse=-0.25), "ann")
    before = believed(bank)
    better, worse = bank.write.ratings.rate_pair(("r", 2), ("r", 3), "first", "ann")
    assert (better.value, worse.value) == (0.5, -0.25)
    assert better.payload["choice"] == "better" and worse.payload["choice"] == "worse"
    with pytest.raises(InputError, match="two answers"):
        bank.write.ratings.rate_pair(("r", 1), ("r", 3), "first", "ann")
    bank.write.undo.undo("ann")
    assert believed(bank) == before


def test_several_rewards_at_once_are_one_write_and_one_action(tmp_path: Path) -> None:
    bank, steps = a_rated_bank(tmp_path / "bank")
    versions = len(bank.events())
    events = bank.write.ratings.rate_all(
        [Rating("r", 2, 1.0, "ann"), Rating("r", 3, -1.0, "bo"), Rating("r", 2, 0.5, "ann"), Rating("r", 3, -1.0, "bo")]
    )
    assert [event.value for event in events] == [0.5, -1.0, 0.5, -1.0]
    assert len(bank.events()) == versions + 3
    assert believed(MemoryBank.open(bank.uri)) == beliefs(steps, {(2, "ann"): 0.5, (3, "bo"): -1.0}, ALPHA)


def test_a_reward_for_what_a_fork_began_with_reaches_the_fork(bank: MemoryBank) -> None:
    bank.write.start_run(replace(a_run("fork", base="r", base_step=STEPS), first_step=STEPS + 1))
    bank.write.start_run(replace(a_run("fork-2", base="fork", base_step=STEPS), first_step=STEPS + 1))
    before = bank.utilities("fork-2")
    bank.write.ratings.rate(Rating("r", 3, -0.3, "ann"))
    assert bank.utilities("fork-2") != before
    again = MemoryBank.open(bank.uri)
    for run in ("fork", "fork-2"):
        assert bank.utilities(run) == again.utilities(run)


# --- what was done for others, and by others --------------------------------------------------------------------------


def test_two_rewards_for_one_step_in_one_action_are_undone_to_what_stood_before(bank: MemoryBank) -> None:
    before = believed(bank)
    bank.write.ratings.rate_all([Rating("r", 2, 1.0, "ann"), Rating("r", 2, 0.5, "ann")])
    bank.write.undo.undo("ann")
    assert bank.ratings.mine("r", 2, "ann") is None
    assert believed(bank) == before


def test_an_older_action_is_undone_past_one_that_others_have_changed(bank: MemoryBank) -> None:
    bank.write.ratings.rate(Rating("r", 4, 0.5, "ann"))
    bank.write.ratings.rate(Rating("r", 2, 0.25, "ann"))
    bank.write.ratings.revoke(bank.write.ratings.rate(Rating("r", 2, 0.5, "bo")).id, "ann")
    bank.write.ratings.rate(Rating("r", 2, -1.0, "bo"))
    action = bank.write.undo.undo("ann", past_blocked=True)
    assert action.first.step == 4
    events = bank.events()
    with pytest.raises(InputError, match="since by bo"):
        bank.write.undo.undo("ann", past_blocked=True)
    assert bank.events() == events


def test_a_reward_that_was_taken_back_is_not_taken_back_again(bank: MemoryBank) -> None:
    given = bank.write.ratings.rate(Rating("r", 3, 0.5, "bo"))
    revoked = bank.write.ratings.revoke(given.id, "ann")
    assert MemoryBank.open(bank.uri).write.ratings.revoke(given.id, "cy") == revoked
    assert (len(bank.undo.done("ann")), bank.undo.done("cy")) == (1, [])


@pytest.mark.parametrize("value", [1.01, -9.0, 10.5, -11, float("inf"), float("nan")])
def test_whoever_calls_a_reward_outside_the_runs_scale_is_refused_in_the_same_words(
    bank: MemoryBank, value: float
) -> None:
    facts, said = bank.facts, set()
    calls: list[Callable[[], object]] = [
        lambda: bank.write.ratings.rate(Rating("r", 3, value, "ann")),
        lambda: bank.write.ratings.rate(Rating("r", STEPS + 1, value, "ann", attempt="an attempt")),
        lambda: bank.ratings.supposed(Rating("r", 3, value, "ann")),
        lambda: bank.write.credits.assign("r", 3, bank.trace("r", 3).id, {"r-0001": value}, "ann", "shares"),
    ]
    for call in calls:
        with pytest.raises(InputError, match="-1 to 1") as error:
            call()
        said.add(str(error.value))
    if math.isfinite(value):
        (line,) = read_rewards(f"step,reward,rater\n3,{value},ann\n".encode(), "csv", bank).lines
        said.add(f"{line.problem} Nothing was saved.")
    assert len(said) == 1
    assert bank.facts == facts


def test_a_step_under_way_is_rated_by_the_same_rules_as_one_that_has_ended(bank: MemoryBank) -> None:
    under_way = Rating("r", STEPS + 1, 0.5, "  ann ", " good ", attempt="an attempt", credited=("r-0001",))
    first = bank.write.ratings.rate(under_way)
    assert bank.write.ratings.rate(under_way) == first
    assert (first.step_id, first.memory_ids, first.rater, first.reason) == ("an attempt", ("r-0001",), "ann", "good")
    changed = bank.write.ratings.rate(replace(under_way, value=-0.5))
    assert bank.ratings.active("r", STEPS + 1, "an attempt") == [changed]
    assert bank.write.undo.undo("ann") is not None
    assert [event.value for event in bank.ratings.active("r", STEPS + 1, "an attempt")] == [0.5]
    # What a finished step credits is what was in its prompt, whatever the caller says.
    ended = bank.write.ratings.rate(Rating("r", 3, 0.5, "ann", attempt=bank.trace("r", 3).id, credited=("r-0002",)))
    assert ended.memory_ids == bank.credits.of("r", 3)
    with pytest.raises(InputError, match="another attempt"):
        bank.write.ratings.rate(Rating("r", 3, 0.5, "ann", attempt="an attempt"))


@pytest.mark.parametrize(
    ("scales", "says"),
    [
        ({"thumbs_down": 1.5}, r"from bad to good: \+1.50, \+1.00"),
        ({"thumbs_up": -2}, "to good"),
        ({"worse": 2}, "to better"),
        ({"better": -3}, "to better"),
        ({"tie": 1.25}, "to better"),
        ({"tie": -1.25}, "to better"),
    ],
)
def test_scales_on_which_better_is_worth_less_are_refused(
    bank: MemoryBank, scales: dict[str, float], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        bank.write.ratings.change_scales("r", RatingScales.of(scales), "ann")
    assert bank.ratings.scales("r") == RatingScales()


def test_scales_are_judged_by_the_rewards_of_their_run(tmp_path: Path) -> None:
    bank, _ = a_rated_bank(tmp_path / "bank", reward_success=5.0)
    bank.write.ratings.change_scales("r", RatingScales(thumbs_down=1.5, tie=4.0), "ann")
    assert bank.ratings.scales("r").tie == 4.0


def test_the_raters_of_a_run_are_those_in_whose_name_a_reward_is(bank: MemoryBank) -> None:
    bank.write.ratings.rate(Rating("r", 2, 0.5, "ann"))
    bank.write.ratings.rate_all([Rating("r", 2, 0.5, "bo", given={"by": "cy"})])
    bank.write.ratings.revoke(bank.ratings.of("r", 3)[0].id, "di")
    assert bank.ratings.raters("r") == {"ann", "bo"}


def test_who_acted_lately_is_reported_once_each_with_their_newest_event(bank: MemoryBank) -> None:
    bank.write.ratings.rate(Rating("r", 2, 0.5, "cy"))
    bank.write.ratings.rate(Rating("r", 2, 0.5, "ann"))
    newest = bank.write.ratings.rate(Rating("r", 3, 0.5, "bo", given={"by": "cy"}))
    assert [(actor_of(e), e.step) for e in bank.people.lately()] == [("cy", 3), ("ann", 2)]
    assert bank.people.lately()[0] == newest


# --- rewards and memories, each by itself -----------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["rate", "pin", "rate", "pin", "undo", "undo", "redo"]), max_size=14), st.data())
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_kind_of_action_is_undone_as_if_the_other_were_not_there(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[str], data: st.DataObject
) -> None:
    bank, _ = a_rated_bank(tmp_path_factory.mktemp("b") / "bank")
    rewards, pins = Raters(), Raters()
    for number, action in enumerate(sequence):
        if action == "rate":
            bank.write.ratings.rate(Rating("r", 2, number / 14, "ann"))
            rewards.rate(2, "ann", number / 14)
        elif action == "pin":
            pinned = "r-0001" in bank.editing.pinned("r")
            (bank.write.editing.unpin if pinned else bank.write.editing.pin)("r", ["r-0001"], "ann")
            pins.rate(1, "ann", None if pinned else 1.0)
        else:
            kinds, reference = data.draw(st.sampled_from([(REWARDS, rewards), (MEMORIES, pins)]))
            getattr(bank.write.undo, action)("ann", kinds)
            getattr(reference, action)("ann")
    for handle in (bank, MemoryBank.open(bank.uri)):
        mine = handle.ratings.mine("r", 2, "ann")
        assert (mine.value if mine else None) == rewards.standing.get((2, "ann"))
        assert ("r-0001" in handle.editing.pinned("r")) == ((1, "ann") in pins.standing)
        for kinds, reference in ((REWARDS, rewards), (MEMORIES, pins)):
            counts = len(handle.undo.done("ann", kinds)), len(handle.undo.undone("ann", kinds))
            assert counts == (len(reference.done.get("ann", [])), len(reference.undone.get("ann", [])))


# --- several handles --------------------------------------------------------------------------------------------------

NEAR: list[Callable[[MemoryBank], object]] = [
    lambda bank: bank.write.ratings.rate(Rating("r", STEPS + 1, 1.0, "eve", attempt="an attempt")),
    lambda bank: bank.write.ratings.revoke(bank.ratings.of("r", 2)[0].id, "eve"),
    lambda bank: bank.write.change_settings("r", bank.settings("r"), STEPS + 1, by="eve"),
    lambda bank: bank.write.change_settings_throughout("r", {"alpha": 0.5}, by="eve"),
    lambda bank: bank.write.change_environment("r", {"shift_at": [9]}, by="eve"),
    lambda bank: bank.write.notes.pin("r", 2, "look", "eve"),
    lambda bank: bank.write.notes.remove(bank.notes.standing("r")[0].id, "eve"),
    lambda bank: bank.write.credits.assign("r", 3, bank.trace("r", 3).id, {"r-0001": 0.5}, "eve", "shares"),
    lambda bank: bank.write.credits.revoke(next(e.id for e in bank.events("r") if "rewards" in e.payload), "eve"),
]


@pytest.mark.parametrize("action", NEAR)
def test_every_action_begins_with_what_other_processes_have_appended(
    bank: MemoryBank, action: Callable[[MemoryBank], object]
) -> None:
    bank.write.notes.pin("r", 3, "look", "ann")
    bank.write.credits.assign("r", 2, bank.trace("r", 2).id, {"r-0001": 0.5}, "ann", "shares")
    other = MemoryBank.open(bank.uri)
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("eve", Role.LOOK, "ann")
    with pytest.raises(NotAllowed):
        action(other)
    assert other.events() == bank.events() == MemoryBank.open(bank.uri).events()
