"""People and their roles: who may look, rate and manage, held by the bank itself whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import LONGEST_NAME, NEWCOMERS, Role, person_name
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import InputError, NotAllowed
from memrl_core.learning.scales import RatingScales
from tests.builders import DIMENSION, a_bank, a_run, a_step
from tests.small_banks import withdraw

EMBEDDER = HashingEmbedder(DIMENSION)
ONE, TWO = "r-0001", "r-0002"
Action = Callable[[MemoryBank, str], object]


def _step(bank: MemoryBank, run: str = "r") -> str:
    return bank.steps.rows(run)[-1].id


def _rewarded(bank: MemoryBank, by: str = "") -> str:
    return next(e.id for e in bank.ratings.of("r", 2) if e.rater == by)


RATING: Mapping[str, Action] = {
    "rate": lambda bank, who: bank.write.ratings.rate(Rating("r", 2, 1.0, who)),
    "rate_under_way": lambda bank, who: bank.write.ratings.rate(Rating("r", 8, 1.0, who, attempt="an attempt")),
    "pin_note": lambda bank, who: bank.write.notes.pin("r", 2, "look", who),
    "assign_credit": lambda bank, who: bank.write.credits.assign("r", 2, _step(bank), {ONE: 0.5}, who, "shares"),
}
MANAGING: Mapping[str, Action] = {
    "pin": lambda bank, who: bank.write.editing.pin("r", ["r-0005"], who),
    "unpin": lambda bank, who: bank.write.editing.unpin("r", ["r-0004"], who),
    "forget": lambda bank, who: bank.write.editing.forget("r", ["r-0006"], who),
    "restore": lambda bank, who: bank.write.editing.restore("r", ["r-0003"], who),
    "edit": lambda bank, who: bank.write.editing.edit("r", "r-0007", "boil an egg", "better", EMBEDDER, who),
    "merge": lambda bank, who: bank.write.editing.merge("r", [ONE, TWO], "boil an egg", "all", EMBEDDER, who),
    "settings": lambda bank, who: bank.write.change_settings("r", {**bank.settings("r"), "alpha": 0.9}, 8, by=who),
    "start_run": lambda bank, who: bank.write.start_run(a_run("next"), by=who),
    "scales": lambda bank, who: bank.write.ratings.change_scales("r", RatingScales(scale="stars"), who),
    "roles": lambda bank, who: bank.write.people.assign("dan", Role.LOOK, who),
    "revoke_of_environment": lambda bank, who: bank.write.ratings.revoke(_rewarded(bank), who),
    "revoke_of_another": lambda bank, who: bank.write.ratings.revoke(_rewarded(bank, "bob"), who),
}


def seven_steps(path: Path) -> MemoryBank:
    """Bob has rated step 2, memory 3 is forgotten and 4 is pinned."""
    made = a_bank(path)
    for step in range(1, 8):
        made.write.commit_step(*a_step(step, (ONE,) if step > 1 else ()))
    made.write.ratings.rate(Rating("r", 2, -1.0, "bob"))
    made.write.editing.forget("r", ["r-0003"], "ann")
    made.write.editing.pin("r", ["r-0004"], "ann")
    return made


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return seven_steps(tmp_path / "bank")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    """Ann manages, Cid rates, others may look; nothing in these tests changes it."""
    made = seven_steps(tmp_path_factory.mktemp("b") / "bank")
    made.write.people.assign("ann", Role.MANAGE, "ann")
    made.write.people.assign("cid", Role.RATE, "ann")
    made.write.people.assign(NEWCOMERS, Role.LOOK, "ann")
    return made


def refused(bank: MemoryBank, action: Action, who: str) -> str:
    """The sentence by which the action is refused; nothing was appended."""
    events, memories = bank.events(), bank.memory_ids()
    with pytest.raises(NotAllowed) as caught:
        action(bank, who)
    for handle in (bank, MemoryBank.open(bank.uri)):
        assert (handle.events(), handle.memory_ids()) == (events, memories)
    return str(caught.value)


# --- what a role covers -----------------------------------------------------------------------------------------------


def test_a_bank_without_roles_lets_everybody_manage(bank: MemoryBank) -> None:
    assert (bank.people.roles(), bank.people.role_of("whoever")) == ({}, Role.MANAGE)
    for action in [*RATING.values(), *MANAGING.values()]:
        action(bank, "whoever")


def test_an_assigned_role_holds_in_every_session_and_the_newest_counts(bank: MemoryBank) -> None:
    for role in (Role.LOOK, Role.MANAGE, Role.RATE):
        bank.write.people.assign("eve", role, "ann", "for now")
        assert MemoryBank.open(bank.uri).people.role_of("eve") is role
    assert bank.people.roles() == {"eve": Role.RATE}
    assert [(e.rater, e.reason) for e in bank.events("")] == [("ann", "for now")] * 3


def test_newcomers_have_the_role_that_was_assigned_to_all_others(guarded: MemoryBank) -> None:
    assert [guarded.people.role_of(who) for who in ("ann", "cid", "new", "")] == ["manage", "rate", "look", "look"]


@pytest.mark.parametrize("action", RATING.values(), ids=RATING.keys())
def test_who_may_only_look_gives_no_reward_and_no_note(guarded: MemoryBank, action: Action) -> None:
    message = refused(guarded, action, "new")
    assert message.startswith("new may look")


@pytest.mark.parametrize("action", MANAGING.values(), ids=MANAGING.keys())
def test_who_may_rate_does_not_manage(guarded: MemoryBank, action: Action) -> None:
    assert "cid may rate" in refused(guarded, action, "cid")


def test_who_may_rate_gives_changes_and_takes_back_their_own(bank: MemoryBank) -> None:
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("cid", Role.RATE, "ann")
    for action in RATING.values():
        action(bank, "cid")
    assert withdraw(bank, "r", 2, "cid") is not None
    assert bank.write.undo.undo("cid") is not None
    bank.write.notes.remove(bank.notes.standing("r")[0].id, "cid")
    standing = bank.credits.standing("r", 2)
    bank.write.credits.revoke(standing.id, "cid")


@pytest.mark.parametrize("what", ["withdraw", "remove_note", "revoke_credit", "undo", "redo"])
def test_who_lost_the_right_to_rate_takes_nothing_back_either(bank: MemoryBank, what: str) -> None:
    for action in RATING.values():
        action(bank, "cid")
    note, credit = bank.notes.standing("r")[0].id, bank.credits.standing("r", 2)
    assert credit is not None
    if what == "redo":
        bank.write.undo.undo("cid")
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("cid", Role.LOOK, "ann")
    actions: Mapping[str, Action] = {
        "withdraw": lambda bank, who: withdraw(bank, "r", 2, who),
        "remove_note": lambda bank, who: bank.write.notes.remove(note, who),
        "revoke_credit": lambda bank, who: bank.write.credits.revoke(credit.id, who),
        "undo": lambda bank, who: bank.write.undo.undo(who),
        "redo": lambda bank, who: bank.write.undo.redo(who),
    }
    assert "not give rewards" in refused(bank, actions[what], "cid")


def test_the_program_itself_is_never_refused(bank: MemoryBank) -> None:
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign(NEWCOMERS, Role.LOOK, "ann")
    bank.write.commit_step(*a_step(8, (ONE,)))
    bank.write.start_run(a_run("next"))
    bank.write.change_settings("r", bank.settings("r"), 9)
    bank.write.editing.forget("r", [ONE])
    assert ONE not in bank.utilities("r")


# --- rewards of others ------------------------------------------------------------------------------------------------


def test_undoing_the_revocation_of_a_reward_gives_it_back_in_the_name_of_its_rater(bank: MemoryBank) -> None:
    before = bank.utilities("r")
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("bob", Role.RATE, "ann")
    bank.write.ratings.revoke(_rewarded(bank, "bob"), "ann")
    assert bank.ratings.mine("r", 2, "bob") is None
    bank.write.undo.undo("ann")
    mine = bank.ratings.mine("r", 2, "bob")
    assert (mine.rater, mine.value, mine.payload["by"]) == ("bob", -1.0, "ann")
    assert bank.utilities("r") == before
    bank.write.undo.redo("ann")
    assert bank.ratings.mine("r", 2, "bob") is None


# --- the last manager -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("person", "role"), [("ann", Role.RATE), ("ann", Role.LOOK)])
def test_the_last_manager_stays(guarded: MemoryBank, person: str, role: Role) -> None:
    events = guarded.events()
    with pytest.raises(InputError, match="nobody"):
        guarded.write.people.assign(person, role, "ann")
    assert guarded.events() == events


def test_a_bank_is_not_closed_to_newcomers_before_somebody_manages_it_by_name(bank: MemoryBank) -> None:
    with pytest.raises(InputError, match="by name"):
        bank.write.people.assign(NEWCOMERS, Role.RATE, "ann")
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign(NEWCOMERS, Role.RATE, "ann")
    assert bank.people.role_of("new") is Role.RATE


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("  Ann   Lee ", "Ann Lee"),
        ("Ann\nLee\t", "Ann Lee"),
        ("Ann\x00\u202eLee", "Ann Lee"),
        ("<b>Ann</b> **x**", "<b>Ann</b> **x**"),
        ("Zoë 陳", "Zoë 陳"),
        ("", "someone"),
        (" \u200b\n", "someone"),
        ("x" * LONGEST_NAME, "x" * LONGEST_NAME),
    ],
)
def test_a_name_is_one_printable_line(typed: str, stored: str) -> None:
    assert person_name(typed) == person_name(stored) == stored


@pytest.mark.parametrize("name", ["x" * (LONGEST_NAME + 1), "*", " *\n"])
@pytest.mark.parametrize("action", [*RATING.values(), MANAGING["forget"], MANAGING["start_run"], MANAGING["roles"]])
def test_an_impossible_name_is_refused_by_whatever_takes_one(guarded: MemoryBank, action: Action, name: str) -> None:
    events = guarded.events()
    with pytest.raises(InputError, match=r"person's name"):
        action(guarded, name)
    assert guarded.events() == events


def test_the_same_person_is_known_however_the_name_was_typed(guarded: MemoryBank) -> None:
    assert guarded.people.role_of(" cid\n") is Role.RATE
    guarded.people.must_be("\tann ", Role.MANAGE)
    for action in (*RATING.values(), MANAGING["forget"]):
        assert "new may look" in refused(guarded, action, " new\x07")


# --- several sessions -------------------------------------------------------------------------------------------------


def test_what_looks_at_the_bank_first_knows_of_a_role_at_once(bank: MemoryBank) -> None:
    other = MemoryBank.open(bank.uri)
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("eve", Role.LOOK, "ann")
    for action in (RATING["rate"], MANAGING["forget"], MANAGING["edit"], MANAGING["roles"]):
        with pytest.raises(NotAllowed):
            action(other, "eve")
    assert other.events() == bank.events()


# --- notes and credits of others --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["note", "credit"])
def test_a_note_and_a_credit_of_another_are_the_managers_to_take_away(bank: MemoryBank, what: str) -> None:
    RATING["pin_note"](bank, "bob")
    RATING["assign_credit"](bank, "bob")
    note, credit = bank.notes.standing("r")[0], bank.credits.standing("r", 2)
    assert credit is not None
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign(NEWCOMERS, Role.RATE, "ann")
    away: Mapping[str, Action] = {
        "note": lambda bank, who: bank.write.notes.remove(note.id, who),
        "credit": lambda bank, who: bank.write.credits.revoke(credit.id, who),
    }
    assert "cid may rate" in refused(bank, away[what], "cid")
    away[what](bank, "ann")
    assert (bank.notes.standing("r") == [], bank.credits.standing("r", 2) is None) == (what == "note", what == "credit")


def test_what_a_person_may_do_no_longer_is_not_undone_and_can_be_passed_over(bank: MemoryBank) -> None:
    bank.write.ratings.rate(Rating("r", 3, 0.5, "cid"))
    bank.write.ratings.revoke(_rewarded(bank, "bob"), "cid")
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("cid", Role.RATE, "ann")
    assert "not change runs" in refused(bank, lambda bank, who: bank.write.undo.undo(who), "cid")
    action = bank.write.undo.undo("cid", past_blocked=True)
    assert action.first.step == 3
    assert "not change runs" in refused(bank, lambda bank, who: bank.write.undo.undo(who, past_blocked=True), "cid")
