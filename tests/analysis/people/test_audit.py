"""The audit of a bank: every action in words, and every q taken back to the people and events that made it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memrl_core.analysis.people.audit import COLUMNS, QMove, audit, reconstruct, who_did
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.learning.scales import RatingScales
from memrl_core.records import EventKind, LedgerEvent
from tests.analysis.eventful import an_eventful_bank
from tests.builders import DIMENSION, a_chain, a_run, a_step, a_vector, numbers
from tests.small_banks import withdraw

ALPHA = 0.5


class AnEmbedder:
    """Gives every text the same vector."""

    name, dimension, digest, version = "hashing-8", DIMENSION, "", ""

    def embed(self, texts: Any) -> Any:
        return [a_vector(1) for _ in texts]


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return a_chain(tmp_path / "bank", 5, alpha=ALPHA)


def of(bank: MemoryBank, column: str = "words", **chosen: Any) -> list[Any]:
    """A column, oldest first."""
    return [row[column] for row in audit(bank, **chosen)][::-1]


def rate(bank: MemoryBank, step: int, value: float, rater: str = "ann", **given: Any) -> LedgerEvent:
    return bank.write.ratings.rate(Rating("r", step, value, rater, "", given))


def edited(bank: MemoryBank, memory_id: str, by: str = "ann") -> str:
    text = f"{bank.memory(memory_id).experience}, better"
    return bank.write.editing.edit("r", memory_id, bank.memory(memory_id).intent, text, AnEmbedder(), by).id


# --- in words ---------------------------------------------------------------------------------------------------------


def test_rewards_are_named_with_what_they_changed_and_what_was_chosen(bank: MemoryBank) -> None:
    rate(bank, 3, 1.0, scale="stars", stars=5)
    rate(bank, 3, -1.0, scale="thumbs", thumb="down")
    bank.write.ratings.rate(Rating("r", 3, -1.0, "ann", "on reflection"))
    withdraw(bank, "r", 3, "ann")
    rate(bank, 3, 0.5, "bo", scale="rubric", marks={"correct": 4, "clear": 2})
    bank.write.ratings.revoke(bank.ratings.of("r", 3)[-1].id, "ann")
    bank.write.ratings.revoke(bank.ratings.of("r", 3)[0].id, "ann")
    words = of(bank)
    assert [" ".join(numbers(one)) for one in words] == [
        "+1.000 3 5", "+1.000 −1.000 3", "−1.000 3", "−1.000 3", "+0.500 3 4 2", "+0.500 3", "+1.000 3",
    ]  # fmt: skip
    assert "stars 5" in words[0] and "thumb down" in words[1] and "bo's" in words[5] and "environment's" in words[6]


def test_memories_have_their_short_names(bank: MemoryBank) -> None:
    bank.write.editing.pin("r", ["r-0001"], "ann")
    bank.write.editing.unpin("r", ["r-0001"], "ann")
    new = edited(bank, "r-0004")
    bank.write.editing.merge("r", [new, "r-0005"], "both", "of them", AnEmbedder(), "ann")
    bank.write.editing.forget("r", ["r-0001", "r-0002", "r-0003"], "ann")
    bank.write.editing.restore("r", ["r-0001"], "ann")
    bank.write.editing.restore("r", [new, "r-0005"], "ann")
    bank.write.credits.assign("r", 4, bank.trace("r", 4).id, {"r-0003": 0.25}, "ann", "by hand")
    named = [" ".join(re.findall(r"#\d[\d.]*\d|#\d", one)) for one in of(bank)]
    assert named == ["#1", "#1", "#4 #4.2", "#5 #4.2 #5.2", "#1 #2 #3", "#1", "#4.2 #5 #5.2", "#3"]
    assert of(bank, "memories", kind="memories")[-1] == ("r-0004.2", "r-0005", "r-0005.2")


def test_rules_people_and_notes_are_named(bank: MemoryBank) -> None:
    bank.write.start_run(a_run("s", base="r", base_step=2), by="ann")
    older = {name: value for name, value in bank.settings("r").items() if name != "credit"}
    bank.write.start_run(replace(a_run("t"), settings=older), by="ann")
    bank.write.change_settings("t", {**bank.settings("r"), "weight": 0.9}, 1, by="ann")
    bank.write.change_settings("r", {**bank.settings("r"), "weight": 0.7, "k1": 4}, 6, by="ann")
    bank.write.change_settings("r", {**bank.settings("r"), "weight": 0.25}, 6, by="ann")
    bank.write.ratings.change_scales("r", RatingScales(scale="stars", better=0.5), "ann")
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("*", Role.LOOK, "ann")
    bank.write.people.assign("bo", Role.RATE, "ann")
    note = bank.write.notes.pin("r", 2, f"{'long ' * 30}\nnote", "ann")
    bank.write.notes.remove(note.id, "ann")
    long = f"{('long ' * 30)[:79]}…"
    named = [
        ("run s", "step 2"), ("run t",), ("changed settings: λ 0.5 → 0.9",), ("k1 10 → 4", "λ 0.5 → 0.7"),
        ("λ 0.7 → 0.25",), ("thumbs → stars", "none → 0.5"),
        ("ann", "manage"), ("look",), ("bo", "rate"), (long,), (long,),
    ]  # fmt: skip
    for words, parts in zip(of(bank), named, strict=True):
        assert all(part in words for part in parts)


def test_what_no_person_did_is_there_only_when_it_is_asked_for(tmp_path: Path) -> None:
    bank = a_chain(tmp_path / "bank", 2)
    bank.write.change_environment("r", {"shift_at": [3, 5]})
    bank.write.editing.forget("r", ["r-0002"])
    assert audit(bank) == []
    program, environment = "the program", "the environment"
    assert of(bank, "who", people_only=False) == [program, *[environment, program] * 2, program, program]
    assert [numbers(one) for one in of(bank, people_only=False)][-2:] == [["3", "5"], ["2"]]


# --- taken back and done again ----------------------------------------------------------------------------------------


def test_undo_and_redo_name_what_they_undid_and_mark_it(bank: MemoryBank) -> None:
    rate(bank, 3, 1.0, scale="stars", stars=5)
    rate(bank, 3, -1.0)
    edited(bank, "r-0001")
    for _ in range(3):
        bank.write.undo.undo("ann")
    bank.write.undo.redo("ann")
    bank.write.undo.redo("ann")
    bank.write.undo.undo("ann")
    bank = MemoryBank.open(bank.uri)
    given, changed, edit, *later = of(bank)
    for words, done in zip(later, (edit, changed, given, given, changed, changed), strict=True):
        assert words.endswith(f": {done}")
    assert of(bank, "undone") == [True, True, True, False, False, False, False, True, False]


def test_of_several_rewards_given_together_each_undo_names_its_own(bank: MemoryBank) -> None:
    bank.write.ratings.rate_all([Rating("r", step, value, "ann") for step, value in ((2, 0.25), (3, 0.5), (4, 0.75))])
    rate(bank, 2, 1.0, "bo")
    bank.write.undo.undo("ann")
    words = of(bank, who="ann")
    assert words[3:] == [f"undid: {one}" for one in words[2::-1]]
    assert (of(bank, "undone", who="ann"), of(bank, "step", who="ann")[3:]) == ([True] * 3 + [False] * 3, [4, 3, 2])
    assert of(bank, "undone", who="bo") == [False]


def test_what_refers_to_others_events_or_to_none_is_named_without_them(bank: MemoryBank) -> None:
    given = rate(bank, 3, 0.5, "bo")
    claimed = replace(given, id="claimed", seq=given.seq + 1, rater="ann", payload={"undoes": given.id})
    lost: list[dict[str, Any]] = [
        {"kind": EventKind.REWARD_REVOKED, "revokes": "gone"},
        {"kind": EventKind.NOTE_REMOVED, "revokes": "gone"},
        {"kind": EventKind.REWARD_GIVEN, "value": 0.5, "payload": {"undoes": "gone"}},
        {"kind": EventKind.REWARD_GIVEN, "value": 0.5, "payload": {"stars": {"<b>": 1}, "marks": 3}},
    ]
    event = LedgerEvent("0", 100, "r", 3, "", 5, EventKind.NOTE_PINNED, source="person", rater="ann")
    broken = [replace(event, id=f"{n}", seq=100 + n, **values) for n, values in enumerate(lost)]
    bank.write.adopt({}, [claimed, *broken], [])
    assert [numbers(one) for one in of(bank)] == [["+0.500", "3"], [], ["3"], [], [], ["+0.500", "3", "1", "3"]]
    assert not any(of(bank, "undone"))


# --- filters and rows -------------------------------------------------------------------------------------------------


def test_each_filter_leaves_what_it_says(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    bank.write.start_run(a_run("s"))
    for day in (1, 2, 3):
        monkeypatch.setattr("memrl_core.bank.ledger.now", lambda day=day: f"2026-01-0{day}T23:59:59.999+00:00")
        rate(bank, day + 1, 1.0, f"rater {day}")
    bank.write.notes.pin("s", 1, "seen", "ann")
    bank.write.editing.pin("r", ["r-0001"], "ann")
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    reward, note, pinned, role = ("reward_given", 3), ("note_pinned", 1), ("memory_pinned", 5), ("role_assigned", 0)
    day = date(2026, 1, 2)
    for chosen, expected in (
        ({"who": "rater 2"}, [reward]),
        ({"since": day, "until": day}, [reward]),
        ({"kind": "rewards"}, [("reward_given", step) for step in (2, 3, 4)]),
        ({"run": "s"}, [note]),
        ({"kind": "notes"}, [note]),
        ({"memory": "r-0001"}, [("reward_given", 2), pinned]),
        ({"kind": "people"}, [role]),
        ({"kind": "settings"}, []),
        ({"kind": "settings", "people_only": False}, [("run_started", 0)] * 2),
        ({"who": "the environment", "people_only": False}, [("reward_given", step) for step in range(1, 6)]),
    ):
        assert list(zip(of(bank, "kind", **chosen), of(bank, "step", **chosen), strict=True)) == expected


def test_every_event_of_every_kind_has_a_row_in_the_order_of_the_ledger(tmp_path: Path) -> None:
    bank = an_eventful_bank(tmp_path / "bank", 1, 20)
    rows = audit(bank, people_only=False)
    assert [row["event_id"] for row in rows] == [event.id for event in bank.events()][::-1]
    assert all(row["words"] and tuple(row) == COLUMNS for row in rows)
    groups = [audit(bank, kind=kind, people_only=False) for kind in ("rewards", "memories", "settings")]
    assert sum(map(len, groups)) == len(rows)


# --- one q ------------------------------------------------------------------------------------------------------------


def givers(move: QMove) -> set[str]:
    return {who_did(event) for event in move.events}


def must_follow(moves: list[QMove]) -> None:
    """Each move follows from the one before it by its own numbers."""
    for earlier, later in pairwise(moves):
        if later.before is not None:
            assert later.before == earlier.after
            assert later.after == later.before + later.alpha * (later.reward - later.before)


def counting(events: list[LedgerEvent], memory_id: str) -> tuple[float, set[str]]:
    """The reward of one step for a memory and the events behind it, people before the environment."""
    gone = {e.revokes for e in events}
    latest = {(e.source, e.rater): e for e in events if e.kind == "reward_given"}
    standing = [e for e in latest.values() if e.id not in gone]
    behind = [e for e in standing if e.source == "person"] or standing
    value = sum(e.value or 0.0 for e in behind) / len(behind)
    ids = {e.id for e in behind}
    credits = [e for e in events if e.kind == "credit_assigned" and e.id not in gone]
    if credits and memory_id in credits[-1].payload["rewards"]:
        return credits[-1].payload["rewards"][memory_id], {*ids, credits[-1].id}
    return value, ids


@pytest.fixture(scope="module", params=[3, 7])
def eventful(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return an_eventful_bank(tmp_path_factory.mktemp("eventful") / "bank", request.param, 36)


def test_every_q_is_reached_by_its_moves(eventful: MemoryBank) -> None:
    for run in ("r", "other", "fork"):
        for memory_id, utility in eventful.utilities(run).items():
            moves = reconstruct(eventful, run, memory_id)
            must_follow(moves)
            assert (moves[0].reward, moves[-1].after) == (None, utility.q)
            assert [move.after for move in moves] == [point.after for point in eventful.history(run, memory_id)]


def test_the_events_behind_a_move_are_those_that_make_its_reward(eventful: MemoryBank) -> None:
    finished = {row.id for row in eventful.steps.rows("r")}
    several = 0
    for memory_id in eventful.utilities("r"):
        for move in reconstruct(eventful, "r", memory_id):
            if move.reward is not None:
                here = [e for e in eventful.events("r") if e.step == move.step and e.step_id in finished]
                value, behind = counting(here, memory_id)
                assert (move.reward, {event.id for event in move.events}) == (pytest.approx(value), behind)
                several += len(behind) > 1
    assert several


def test_a_fork_has_what_its_base_knew_with_the_events_of_the_base(eventful: MemoryBank) -> None:
    own = {event.id for event in eventful.events("fork")}
    known_then = eventful.utilities("r", eventful.run("fork").base_step)
    shared = [i for i in eventful.utilities("fork") if i in known_then]
    assert shared
    for memory_id in shared:
        moves = reconstruct(eventful, "fork", memory_id)
        before = [move for move in moves if not own.intersection(event.id for event in move.events)]
        assert before == moves[: len(before)]
        assert before[-1].after == known_then[memory_id].q


@pytest.mark.parametrize(
    ("rule", "moves"),
    [
        ("override", [(0.2, {"ann", "bo"})]),
        ("mean", [(0.6, {"ann", "bo", "the environment"})]),
        ("both", [(1.0, {"the environment"}), (0.2, {"ann", "bo"})]),
    ],
)
def test_who_is_behind_a_move_follows_the_rules_of_the_run(
    tmp_path: Path, rule: str, moves: list[tuple[float, set[str]]]
) -> None:
    bank = a_chain(tmp_path / "bank", 5, alpha=ALPHA, human_rewards=rule)
    rate(bank, 3, -0.6, "ann")
    rate(bank, 3, 1.0, "bo")
    (_, *found) = reconstruct(bank, "r", "r-0002")
    assert [(pytest.approx(move.reward), givers(move)) for move in found] == moves
    must_follow(found)


def test_what_took_the_place_of_others_begins_with_the_event_that_put_it_there(bank: MemoryBank) -> None:
    rate(bank, 2, -1.0)
    second = edited(bank, "r-0001")
    bank.write.commit_step(*a_step(6, (second,), -1.0))
    rate(bank, 2, 0.25)
    assert [(m.step, m.after) for m in reconstruct(bank, "r", "r-0001")] == [(1, 0.0), (2, 0.125)]
    moves = reconstruct(bank, "r", second)
    assert [(m.step, m.after, givers(m)) for m in moves] == [
        (5, 0.125, {"ann"}), (6, -0.4375, {"the environment"}),
    ]  # fmt: skip
    bank.write.start_run(replace(a_run("fork", base="r", base_step=6, alpha=ALPHA), first_step=7))
    bank.write.commit_step(*a_step(7, (second,), 1.0, run="fork"))
    assert [m.step for m in reconstruct(bank, "fork", second)] == [5, 6, 7]
    merged = bank.write.editing.merge("r", ["r-0002", second], "both", "of them", AnEmbedder(), "bo").id
    assert [givers(m) for m in reconstruct(bank, "r", merged)] == [{"bo"}]
    assert reconstruct(bank, "r", "gone") == []
