"""Memories in people's hands: pinned, reworded, merged, forgotten, restored, and every one of these undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank
from memrl_core.bank.people.editing import LONGEST_TEXT
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.errors import EmbedderMismatch, InputError, NotAllowed
from memrl_core.policies.base import intent_key
from memrl_core.records import EventKind, WriteRecord
from memrl_core.retrieval.view import MemoryView
from tests.builders import DIMENSION, a_bank, a_run, a_step
from tests.oracles.lifecycle import Lifecycle

EMBEDDER = HashingEmbedder(DIMENSION)
ALPHA = 0.3
ONE, TWO, THREE, FOUR = (f"r-{n:04d}" for n in range(1, 5))
Action = Callable[[MemoryBank], object]


def four_steps(path: Path) -> MemoryBank:
    """Each used all memories before it, with rewards 1, -1, 1, -1."""
    made = a_bank(path, alpha=ALPHA)
    for step in range(1, 5):
        made.write.commit_step(*a_step(step, (ONE, TWO, THREE)[: step - 1], 1.0 if step % 2 else -1.0))
    return made


@pytest.fixture
def bank(tmp_path: Path) -> MemoryBank:
    return four_steps(tmp_path / "bank")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    return four_steps(tmp_path_factory.mktemp("b") / "bank")


def reworded(bank: MemoryBank, memory_id: str = TWO, intent: str = "task 2", text: str = "did it better") -> str:
    return bank.write.editing.edit("r", memory_id, intent, text, EMBEDDER, "ann", "clearer").id


def merged(bank: MemoryBank, *memory_ids: str, intent: str = "task 2") -> str:
    return bank.write.editing.merge("r", memory_ids, intent, "did all of it", EMBEDDER, "ann", "alike").id


def state(bank: MemoryBank) -> Any:
    return list(bank.utilities("r").items()), sorted(bank.editing.pinned("r"))


# --- any sequence -----------------------------------------------------------------------------------------------------

ACTIONS = ["pin", "unpin", "forget", "restore", "edit", "edit", "merge", "undo", "undo", "redo", "rate", "step", "step"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=18))
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_actions_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, int]]
) -> None:
    bank = a_bank(tmp_path_factory.mktemp("b") / "bank", alpha=ALPHA)
    model = Lifecycle(ALPHA)
    begun: dict[int, Any] = {}
    for n, (what, one, two) in enumerate([("step", 0, 0), ("step", 0, 1), ("step", 0, 1), *actions]):
        _act(bank, model, what, one, two, f"wording {n}", begun)
        assert bank.utilities("r").keys() == model.believed().seen.keys()
    for handle in (bank, MemoryBank.open(bank.uri)):
        expected = model.believed()
        assert _near(handle.utilities("r")) == list(expected.seen.items())
        assert dict(_near(handle.editing.away("r"))) == expected.away
        assert handle.editing.pinned("r") == expected.pinned & expected.seen.keys()
        assert (len(handle.undo.done("ann")), len(handle.undo.undone("ann"))) == (len(model.done), len(model.undone))
        for step, before in begun.items():
            assert _near(handle.utilities("r", step)) == list(model.believed(step).seen.items())
            assert list(handle.utilities("r", step).items()) == before
        for step, view in handle.walk("r"):
            assert _shown(view) == _shown(handle.view("r", step - 1))


def _act(bank: MemoryBank, model: Lifecycle, what: str, one: int, two: int, text: str, begun: dict[int, Any]) -> None:
    """The same in the bank and in the model, with `one` and `two` choosing among the memories or steps there are."""
    now, newest = model.believed(), len(model.steps)
    seen, away = list(now.seen), list(now.away)
    if what == "step":
        credited = tuple(dict.fromkeys(seen[n % len(seen)] for n in (one, two))) if seen else ()
        begun[newest] = list(bank.utilities("r").items())
        bank.write.commit_step(*a_step(newest + 1, credited, 1.0 - one))
        model.step(credited, 1.0 - one, f"r-{newest + 1:04d}")
    elif what in ("undo", "redo"):
        getattr(bank.write.undo, what)("ann")
        getattr(model, what)()
    elif what == "rate":
        step = 1 + one % newest
        bank.write.ratings.rate(Rating("r", step, 1.0 - two % 3, "ann"))
        model.rate(step, 1.0 - two % 3)
    elif what == "restore" and away:
        bank.write.editing.restore("r", [away[one % len(away)]], "ann")
        model.restore(away[one % len(away)])
    elif what == "merge" and len(seen) > 1:
        olds = [seen[one % len(seen)], seen[(one + 1) % len(seen)]]
        model.replace(olds, bank.write.editing.merge("r", olds, text, text, EMBEDDER, "ann").id)
    elif what == "edit" and seen:
        old = seen[one % len(seen)]
        model.replace([old], bank.write.editing.edit("r", old, bank.memory(old).intent, text, EMBEDDER, "ann").id)
    elif what in ("pin", "unpin", "forget") and seen:
        memory = seen[one % len(seen)]
        if (memory in now.pinned) == (what == "unpin"):
            getattr(bank.write.editing, what)("r", [memory], by="ann")
            getattr(model, what)(memory)
        else:
            with pytest.raises(InputError):
                getattr(bank.write.editing, what)("r", [memory], by="ann")


def _shown(view: MemoryView) -> list[tuple[str, float]]:
    shown = range(len(view.ids)) if view.visible is None else np.flatnonzero(view.visible)
    return [(view.ids[n], float(view.q[n])) for n in shown]


def _near(utilities: Any) -> list[tuple[str, Any]]:
    return [(memory_id, (pytest.approx(u.q, abs=1e-12), u.visits)) for memory_id, u in utilities.items()]


# --- editing ----------------------------------------------------------------------------------------------------------


def test_an_edited_memory_has_the_new_text_and_what_else_the_old_one_was(bank: MemoryBank) -> None:
    old, new = bank.memory(TWO), bank.memory(reworded(bank))
    assert (new.intent, new.experience, new.parents) == ("task 2", "did it better", (TWO,))
    assert (new.outcome, new.intent_key, new.task, new.step) == (old.outcome, old.intent_key, old.task, old.step)


def test_the_same_intent_keeps_its_vector_and_asks_no_embedder(bank: MemoryBank) -> None:
    other = HashingEmbedder(16)
    new = bank.write.editing.edit("r", TWO, " task 2 ", "did it better", other, "ann")
    assert bank.embedding(new.id).tobytes() == bank.embedding(TWO).tobytes()
    assert new.intent == "task 2"


def test_another_intent_is_embedded_anew(bank: MemoryBank) -> None:
    new = reworded(bank, intent="boil an egg")
    assert np.array_equal(bank.embedding(new), EMBEDDER.embed(["boil an egg"])[0])
    assert bank.memory(new).intent_key == intent_key("boil an egg")


def test_the_old_wording_stays_as_it_was_for_replays(bank: MemoryBank) -> None:
    memory, vector, past = bank.memory(TWO), bank.embedding(TWO), bank.utilities("r", as_of=3)
    reworded(bank, intent="boil an egg")
    bank.write.commit_step(*a_step(5, (ONE,)))
    again = MemoryBank.open(bank.uri)
    assert (again.memory(TWO), again.utilities("r", as_of=3)) == (memory, past)
    assert again.embedding(TWO).tobytes() == vector.tobytes()
    assert [i for i in again.view("r", 3).ids if i == TWO] == [TWO]


def test_a_wording_of_a_wording_gets_the_next_number(bank: MemoryBank) -> None:
    assert reworded(bank, reworded(bank), text="and again") == "r-0002.3"


# --- merging ----------------------------------------------------------------------------------------------------------


def test_a_merged_memory_follows_the_oldest_and_names_all_as_parents(bank: MemoryBank) -> None:
    new = bank.memory(merged(bank, FOUR, TWO))
    assert (new.id, new.step, new.parents, new.outcome) == ("r-0002.2", 2, (TWO, FOUR), "success")


def test_memories_of_different_outcomes_merge_into_an_unrated_one(bank: MemoryBank) -> None:
    trace, vectors = a_step(5)
    failed = replace(trace.write.operations[0], outcome="failure")
    bank.write.commit_step(replace(trace, write=WriteRecord((failed,))), vectors)
    assert bank.memory(merged(bank, TWO, "r-0005")).outcome == "unrated"


def test_a_merge_keeps_the_vector_of_whichever_memory_has_the_intent(bank: MemoryBank) -> None:
    new = merged(bank, TWO, THREE, intent="task 3")
    assert bank.embedding(new).tobytes() == bank.embedding(THREE).tobytes()


# --- pinned -----------------------------------------------------------------------------------------------------------


def test_a_pinned_memory_is_forgotten_by_nobody_until_it_is_unpinned(bank: MemoryBank) -> None:
    bank.write.editing.pin("r", [TWO], "ann")
    for by in ("ann", ""):
        with pytest.raises(InputError, match="r-0002 is pinned"):
            bank.write.editing.forget("r", [ONE, TWO], by)
    bank.write.editing.unpin("r", [TWO], "bob")
    bank.write.editing.forget("r", [ONE, TWO], "ann")
    assert list(bank.utilities("r")) == [THREE, FOUR]


def test_a_pin_given_after_an_undone_edit_is_not_the_undone_wordings(bank: MemoryBank) -> None:
    trace, _ = a_step(5, reward=None)
    bank.write.commit_step(replace(trace, write=WriteRecord(())), {})
    new = reworded(bank)
    bank.write.undo.undo("ann")
    bank.write.editing.pin("r", [TWO], "ann")
    bank.utilities("r")
    bank.write.editing.restore("r", [new], "ann")
    bank.utilities("r")
    assert bank.editing.pinned("r") == MemoryBank.open(bank.uri).editing.pinned("r") == {TWO}


def test_what_is_pinned_already_stays_the_action_of_whoever_pinned_it(bank: MemoryBank) -> None:
    bank.write.editing.pin("r", [TWO], "ann")
    assert bank.write.editing.pin("r", [ONE, TWO], "bob").memory_ids == (ONE,)
    bank.write.undo.undo("bob")
    assert bank.editing.pinned("r") == {TWO}


# --- restoring --------------------------------------------------------------------------------------------------------


def test_a_fork_restores_what_its_base_had_reworded(bank: MemoryBank) -> None:
    new = reworded(bank)
    bank.write.start_run(a_run("fork", base="r", base_step=4))
    bank.write.editing.restore("fork", [TWO], "ann")
    assert list(bank.utilities("fork")) == [ONE, TWO, THREE, FOUR]
    assert new in bank.utilities("r")


# --- undone -----------------------------------------------------------------------------------------------------------

ACTIONS: list[Action] = [
    lambda bank: bank.write.editing.pin("r", [TWO], "ann"),
    lambda bank: (bank.write.editing.pin("r", [TWO], "bob"), bank.write.editing.unpin("r", [TWO], "ann")),
    lambda bank: bank.write.editing.forget("r", [TWO, THREE], "ann"),
    lambda bank: (bank.write.editing.forget("r", [TWO], "bob"), bank.write.editing.restore("r", [TWO], "ann")),
    lambda bank: reworded(bank, intent="boil an egg"),
    lambda bank: merged(bank, TWO, THREE),
    lambda bank: (reworded(bank), bank.write.editing.restore("r", [TWO], "ann")),
]


@pytest.mark.parametrize("action", ACTIONS, ids=["pin", "unpin", "forget", "restore", "edit", "merge", "reword_back"])
def test_every_action_is_undone_and_done_again_in_other_sessions_bit_for_bit(bank: MemoryBank, action: Action) -> None:
    states = [state(bank)]
    action(bank)
    count = len(bank.undo.done("ann"))
    states.append(state(bank))
    undone = MemoryBank.open(bank.uri)
    for _ in range(count):
        assert undone.write.undo.undo("ann") is not None
    assert undone.write.undo.undo("ann") is None
    redone = MemoryBank.open(bank.uri)
    theirs = state(redone)
    for _ in range(count):
        assert redone.write.undo.redo("ann") is not None
    assert redone.write.undo.redo("ann") is None
    assert state(redone) == states[1]
    for _ in range(count):
        redone.write.undo.undo("ann")
    assert state(redone) == theirs == state(MemoryBank.open(bank.uri))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (lambda bank: reworded(bank), lambda bank: bank.write.editing.edit("r", "r-0002.2", "x", "y", EMBEDDER, "bob")),
        (
            lambda bank: bank.write.editing.forget("r", [TWO], "ann"),
            lambda bank: bank.write.editing.restore("r", [TWO], "bob"),
        ),
        (lambda bank: merged(bank, ONE, TWO), lambda bank: bank.write.editing.forget("r", ["r-0001.2"], "bob")),
    ],
)
def test_what_another_person_has_changed_since_is_not_undone(bank: MemoryBank, mine: Action, theirs: Action) -> None:
    mine(bank)
    theirs(bank)
    before, events = state(bank), bank.events()
    with pytest.raises(InputError, match="was changed since"):
        bank.write.undo.undo("ann")
    assert (state(bank), bank.events()) == (before, events)


def test_forgetting_is_not_done_again_where_someone_has_pinned_the_memory_since(bank: MemoryBank) -> None:
    bank.write.editing.forget("r", [TWO], "ann")
    bank.write.undo.undo("ann")
    bank.write.editing.pin("r", [TWO], "bob")
    with pytest.raises(InputError, match="r-0002 is pinned"):
        bank.write.undo.redo("ann")
    bank.write.undo.undo("bob")
    bank.write.undo.redo("ann")
    assert TWO not in bank.utilities("r")


# --- what became of it ------------------------------------------------------------------------------------------------


def test_the_changes_of_a_memory_are_reported_in_order_from_any_of_its_wordings(bank: MemoryBank) -> None:
    new = reworded(bank)
    bank.write.editing.pin("r", [ONE], "bob")
    bank.write.editing.pin("r", [new], "bob", "keep")
    bank.write.editing.forget("r", [FOUR], "bob")
    last = merged(bank, new, THREE)
    kinds = [(e.kind, e.memory_ids, e.rater, e.reason) for e in bank.editing.changes("r", TWO)]
    assert kinds == [
        (EventKind.MEMORY_WRITTEN, (TWO,), "", ""),
        (EventKind.MEMORY_WRITTEN, (THREE,), "", ""),
        (EventKind.MEMORY_EDITED, (new,), "ann", "clearer"),
        (EventKind.MEMORY_PINNED, (new,), "bob", "keep"),
        (EventKind.MEMORY_MERGED, (last,), "ann", "alike"),
    ]
    assert bank.editing.changes("r", last) == bank.editing.changes("r", new) == bank.editing.changes("r", TWO)


# --- while the embedder works -----------------------------------------------------------------------------------------


class WhileEmbedding(HashingEmbedder):
    """Somebody does something to the bank while the embedder works."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(DIMENSION)
        self._act = act

    def embed(self, texts: Any) -> Any:
        self._act()
        return super().embed(texts)


def test_nobody_waits_for_the_embedder_of_another(bank: MemoryBank) -> None:
    other = MemoryBank.open(bank.uri)
    # In a process that held the lock meanwhile, this would wait a minute and be refused.
    slow = WhileEmbedding(lambda: other.write.ratings.rate(Rating("r", 2, 0.5, "bob")))
    new = bank.write.editing.edit("r", TWO, "boil an egg", "boil it", slow, "ann")
    assert new.id in bank.utilities("r")
    assert bank.ratings.mine("r", 2, "bob") is not None


@pytest.mark.parametrize("merging", [True, False], ids=["merge", "edit"])
def test_a_memory_that_was_changed_while_its_wording_was_embedded_stays_as_it_became(
    bank: MemoryBank, merging: bool
) -> None:
    other = MemoryBank.open(bank.uri)
    slow = WhileEmbedding(lambda: reworded(other))
    with pytest.raises(InputError, match="sees no memory “r-0002”"):
        if merging:
            bank.write.editing.merge("r", [ONE, TWO], "boil an egg", "boil it", slow, "ann")
        else:
            bank.write.editing.edit("r", TWO, "boil an egg", "boil it", slow, "ann")
    assert state(bank) == state(other)
    assert bank.memory_ids() == other.memory_ids()


def test_who_may_not_edit_is_refused_before_the_embedder_is_asked(bank: MemoryBank) -> None:
    bank.write.people.assign("ann", Role.MANAGE, "ann")
    bank.write.people.assign("eve", Role.RATE, "ann")
    asked: list[bool] = []
    with pytest.raises(NotAllowed):
        bank.write.editing.edit("r", TWO, "boil an egg", "x", WhileEmbedding(lambda: asked.append(True)), "eve")
    assert not asked


# --- refused ----------------------------------------------------------------------------------------------------------

LONG = "x" * (LONGEST_TEXT + 1)
REFUSED: list[Action] = [
    lambda bank: bank.write.editing.pin("r", ["gone"], "ann"),
    lambda bank: bank.write.editing.pin("r", [], "ann"),
    lambda bank: bank.write.editing.unpin("r", [TWO], "ann"),
    lambda bank: bank.write.editing.forget("r", ["gone"], "ann"),
    lambda bank: bank.write.editing.restore("r", [TWO], "ann"),
    lambda bank: bank.write.editing.restore("r", [], "ann"),
    lambda bank: reworded(bank, "gone"),
    lambda bank: reworded(bank, text=" did it\n"),
    lambda bank: reworded(bank, text="  "),
    lambda bank: reworded(bank, intent=""),
    lambda bank: reworded(bank, text=LONG),
    lambda bank: reworded(bank, intent=LONG),
    lambda bank: reworded(bank, intent="?!"),
    lambda bank: merged(bank, TWO, TWO),
    lambda bank: merged(bank),
    lambda bank: merged(bank, TWO, "gone"),
]


@pytest.mark.parametrize("action", REFUSED)
def test_what_cannot_be_done_is_refused_and_nothing_is_appended(unchanged: MemoryBank, action: Action) -> None:
    facts = unchanged.facts
    with pytest.raises(InputError):
        action(unchanged)
    assert unchanged.facts == facts == MemoryBank.open(unchanged.uri).facts


def test_another_embedder_is_refused_with_both_names(unchanged: MemoryBank) -> None:
    facts = unchanged.facts
    with pytest.raises(EmbedderMismatch, match="hashing-8; hashing-16"):
        unchanged.write.editing.edit("r", TWO, "boil an egg", "y", HashingEmbedder(16), "ann")
    assert unchanged.facts == facts


def test_a_replaced_and_a_forgotten_memory_are_not_restored_in_one_go(bank: MemoryBank) -> None:
    reworded(bank)
    bank.write.editing.forget("r", [ONE], "ann")
    with pytest.raises(InputError, match="“r-0002”"):
        bank.write.editing.restore("r", [ONE, TWO], "ann")
    assert set(bank.editing.away("r")) == {ONE, TWO}
