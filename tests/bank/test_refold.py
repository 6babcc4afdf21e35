"""What comes late or between steps is worked into the fold that is there, and is bit for bit what a new fold gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank, utilities
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.storage import codec
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.learning import Fold
from memrl_core.records import EventKind, LedgerEvent, Memory, StepTrace
from memrl_core.retrieval.view import MemoryView
from tests.builders import DIMENSION, a_bank, a_run, a_step
from tests.small_banks import withdraw

EMBEDDER = HashingEmbedder(DIMENSION)
ONE, TWO, THREE, FOUR = (f"r-{n:04d}" for n in range(1, 5))
STEPS = 4
Action = Callable[[MemoryBank], object]


def reported(fold: Fold) -> str:
    """Everything that a fold says, every digit of it, in its order."""
    return repr(
        (
            fold.utilities,
            sorted(fold.away.items()),
            dict(fold.histories),
            sorted(fold.pinned),
            sorted(fold.inherited.items()),
        )
    )


def live(bank: MemoryBank, run: str) -> Fold:
    """The fold as the tables have it."""
    fold = bank._q.known(run)
    fold.histories = bank._q.histories(run)
    return fold


def anew(bank: MemoryBank, run: str) -> Fold:
    """The same facts folded at once."""
    return bank._q.anew(run)


def stored(bank: MemoryBank, run: str) -> Fold:
    """The same for a handle that has kept nothing."""
    bank._facts.forget()
    return live(bank, run)


# --- any facts in any order -------------------------------------------------------------------------------------------


@dataclass
class Facts:
    """Facts as they reach one handle that looks at its fold now and then."""

    rng: np.random.Generator
    bank: MemoryBank = field(default_factory=lambda: MemoryBank.create("memory://", EMBEDDER.name, DIMENSION))
    replacing: list[LedgerEvent] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    @property
    def runs(self) -> list[str]:
        return [info.id for info in self.bank.runs()]

    def take(self, *facts: LedgerEvent | StepTrace) -> None:
        events = [fact for fact in facts if isinstance(fact, LedgerEvent)]
        traces = [fact for fact in facts if isinstance(fact, StepTrace)]
        with self.bank.write.alone():
            self.bank.write._updates.store(events, traces, "")

    def event(self, run: str, step: int, kind: EventKind, ids: Any = (), **values: Any) -> LedgerEvent:
        """Mostly the newest of all; now and then one that a writer with an older clock has appended."""
        seq = self.bank.clock + 1
        if step > 0 and kind is not EventKind.MEMORY_WRITTEN and self.rng.random() < 0.1:
            seq = max(1, seq - int(self.rng.integers(1, 6)))
        given = {"step_id": "", "known_at": self.newest(run), **values}
        return LedgerEvent(f"e{next(self.numbers)}", seq, run, step, kind=kind, memory_ids=tuple(ids), **given)

    def newest(self, run: str) -> int:
        return self.bank.next_step(run) - 1

    def some(self, choices: Any, most: int = 1) -> list[Any]:
        size = min(len(choices), int(self.rng.integers(1, most + 1)))
        return [choices[i] for i in self.rng.choice(len(choices), size=size, replace=False)] if size else []

    def start(self, run: str, **values: Any) -> None:
        info = replace(a_run(run, alpha=0.3), **values)
        started = {"step_id": "", "known_at": 0, "payload": codec.run_payload(info)}
        self.take(LedgerEvent(f"start-{run}", self.bank.clock + 1, run, 0, kind=EventKind.RUN_STARTED, **started))

    # --- what happens -------------------------------------------------------------------------------------------------

    def step(self, run: str) -> None:
        number = self.newest(run) + 1
        attempt = f"{run}-{number}"
        ids = self.some(list(live(self.bank, run).utilities), 3)
        reward = self.event(run, number, EventKind.REWARD_GIVEN, ids, value=float(self.rng.normal()),
                            source="environment", step_id=attempt, known_at=number)  # fmt: skip
        written = self.event(run, number, EventKind.MEMORY_WRITTEN, [f"{run}-{number:04d}"], value=0.5,
                             step_id=attempt, known_at=number)  # fmt: skip
        self.take(reward, replace(written, seq=written.seq + 1))
        if self.rng.random() < 0.15:
            self.change(run, number)
        self.take(replace(a_step(number, run=run)[0], id=attempt))

    def reward(self, run: str) -> None:
        about = [e for e in self.bank.events(run) if e.kind is EventKind.REWARD_GIVEN]
        for event in self.some(about):
            kind = self.some([EventKind.REWARD_GIVEN] * 3 + [EventKind.REWARD_REVOKED, EventKind.CREDIT_ASSIGNED])[0]
            rewards = {memory_id: float(self.rng.normal()) for memory_id in event.memory_ids}
            self.take(self.event(run, event.step, kind, event.memory_ids, value=float(self.rng.normal()),
                                 source="person", rater=self.some(["ann", "bob"])[0], step_id=event.step_id,
                                 revokes=event.id if kind is EventKind.REWARD_REVOKED else "",
                                 payload={"rewards": rewards}))  # fmt: skip

    def change(self, run: str, step: int | None = None) -> None:
        """Something becomes of memories: mostly now, now and then at a step that has passed."""
        fold, at = live(self.bank, run), self.newest(run) if step is None else step
        if step is None and self.rng.random() < 0.1:
            at = int(self.rng.integers(at + 1))
        seen, what = list(fold.utilities), int(self.rng.integers(7))
        if what < 3 and seen:
            kind = EventKind.MEMORY_MERGED if what else EventKind.MEMORY_EDITED
            olds = self.some(seen, 3 if what else 1)
            new = f"{olds[0]}.{next(self.numbers)}"
            self.replacing.append(self.event(run, at, kind, [new], payload={"replaces": olds}))
            self.take(self.replacing[-1])
        elif what == 3 and self.replacing:
            before = self.some(self.replacing)[0]
            if self.rng.random() < 0.5:
                again = replace(before, id=f"e{next(self.numbers)}", run=run, step=at, seq=self.bank.clock + 1)
                self.take(again)
            else:
                self.take(self.event(run, at, EventKind.MEMORY_RESTORED, before.payload["replaces"],
                                     payload={"takes_away": list(before.memory_ids)}))  # fmt: skip
        elif what == 4:
            self.take(self.event(run, at, EventKind.MEMORY_RESTORED, self.some(list(fold.away), 2)))
        elif what == 5:
            self.take(self.event(run, at, EventKind.MEMORY_FORGOTTEN, self.some(seen, 2)))
        else:
            self.take(self.event(run, at, EventKind.MEMORY_PINNED, self.some(seen, 2)))

    def other(self, run: str) -> None:
        """What happens seldom: an import, at times of a memory that is there; other settings; a step never ended."""
        what, newest = int(self.rng.integers(4)), self.newest(run)
        if what == 0:
            name = self.some([*live(self.bank, run).histories, f"i{next(self.numbers)}"])[0]
            self.take(self.event(run, newest, EventKind.MEMORY_IMPORTED, [name], value=0.25, payload={"visits": 3}))
        elif what == 1:
            own = {**a_run("r").settings, "alpha": float(self.rng.uniform(0.1, 0.9))}
            at = int(self.rng.integers(newest + 4))
            self.take(self.event(run, at, EventKind.SETTINGS_CHANGED, payload={"settings": own}))
        elif what == 2:
            ids = self.some(list(live(self.bank, run).utilities), 2)
            self.take(self.event(run, newest + 1, EventKind.REWARD_GIVEN, ids, value=9.0, source="person",
                                 rater="ann", step_id=f"never-{next(self.numbers)}"))  # fmt: skip
        elif "fork" not in self.runs:
            first_step = self.some([1, self.newest("r") + 1])[0]
            self.start("fork", base="r", base_step=self.newest("r"), first_step=first_step)


@pytest.mark.slow
@given(st.integers(0, 1_000_000))
@settings(max_examples=25, deadline=None)
def test_any_facts_in_any_order_are_believed_as_if_folded_at_once(seed: int) -> None:
    facts = Facts(np.random.default_rng(seed))
    facts.start("r")
    for _ in range(3):
        facts.step("r")
    for _ in range(40):
        run = facts.some(facts.runs)[0]
        happen = facts.some([facts.step, facts.reward, facts.reward, facts.change, facts.change, facts.other])[0]
        happen(run)
        if facts.rng.random() < 0.6:
            for one in facts.runs:
                assert reported(live(facts.bank, one)) == reported(anew(facts.bank, one))
        if facts.rng.random() < 0.1:
            for one in facts.runs:
                assert reported(stored(facts.bank, one)) == reported(anew(facts.bank, one))


@given(st.integers(0, 1_000_000))
@settings(max_examples=25, deadline=None)
def test_what_was_believed_as_of_a_step_is_the_fold_of_what_was_known_then(seed: int) -> None:
    facts = Facts(np.random.default_rng(seed))
    facts.start("r")
    happenings = [facts.step] * 5 + [facts.reward] * 3 + [facts.other] + [facts.change] * (seed % 2)
    for _ in range(24):
        for happening in facts.some(happenings):
            happening(facts.some(facts.runs)[0])
            run = facts.some(facts.runs)[0]
            facts.bank._q.past(run, int(facts.rng.integers(facts.newest(run) + 1)))
    for run in facts.runs:
        for step in range(facts.newest(run) + 1):
            kept = reported(facts.bank._q.past(run, step))
            facts.bank._q._pasts.clear()
            assert kept == reported(facts.bank._q.past(run, step))
            folded_then = facts.bank._q.past(run, step).utilities
            with patch.object(utilities, "FOLDED", 0):
                assert list(facts.bank.utilities(run, as_of=step).items()) == list(folded_then.items())


def test_rewards_and_new_memories_since_a_step_need_no_fold_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(np.random.default_rng(0))
    monkeypatch.setattr(Facts, "change", lambda *given: None)
    facts.start("r")
    for _ in range(8):
        facts.step("r")
        facts.reward("r")
    then = [dict(facts.bank._q.past("r", step).utilities) for step in range(5, 9)]
    monkeypatch.setattr(utilities, "FOLDED", 0)
    monkeypatch.setattr(facts.bank._q, "past", None)
    assert [facts.bank.utilities("r", as_of=step) for step in range(5, 9)] == then


def arrays(view: MemoryView) -> list[tuple[str, float, int, bytes, int]]:
    """What the arrays say of each memory that the run sees, oldest first."""
    return [
        (view.ids[n], view.q[n], view.visits[n], view.embeddings[n].tobytes(), view.intent_groups[n])
        for n in view.positions()
    ]


@given(st.integers(0, 1_000_000))
@settings(max_examples=25, deadline=None)
def test_the_arrays_that_follow_any_facts_are_those_made_anew(seed: int) -> None:
    facts = Facts(np.random.default_rng(seed))
    facts.start("r")
    for _ in range(40):
        run = facts.some(facts.runs)[0]
        facts.some([facts.step, facts.step, facts.reward, facts.change, facts.other])[0](run)
        for one in facts.some(facts.runs, most=3):
            matrix, fold = facts.bank._facts.memories, live(facts.bank, one)
            for name in facts.rng.permutation(sorted(set(fold.utilities) - set(matrix.rows))).tolist():
                made = Memory(name, name, "did it", "success", name, (), one, 1, "t", "")
                matrix.add(made, facts.rng.random(DIMENSION, dtype=np.float32), codec.Inserted(10**9))
            assert arrays(facts.bank.view(one)) == arrays(matrix.view(fold))
            now = facts.bank._q.now(one)
            assert list(now.utilities.items()) == list(fold.utilities.items()) and now.away == fold.away


@given(st.integers(0, 1_000_000))
@settings(max_examples=10, deadline=None)
def test_what_is_supposed_comes_true(seed: int) -> None:
    facts = Facts(np.random.default_rng(seed))
    facts.start("r")
    for _ in range(3):
        facts.step("r")
    for happen in facts.some([facts.step] * 8 + [facts.change] * 12 + [facts.reward] * 4 + [facts.other] * 2, 26):
        happen("r")
    about = facts.some([e for e in facts.bank.events("r") if e.kind is EventKind.REWARD_GIVEN])[0]
    event = replace(about, id="new", seq=facts.bank.clock + 1, value=0.7, source="person", rater="cy")
    before = dict(live(facts.bank, "r").histories)
    would = facts.bank._q.supposed(event)
    facts.take(event)
    if facts.bank._facts.committed([about]):
        assert repr({**before, **would}) == repr(dict(anew(facts.bank, "r").histories))


# --- in a bank --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of the steps used all memories before it, with rewards 1, -1, 1, -1."""
    path = tmp_path_factory.mktemp("b") / "bank"
    made = a_bank(path, alpha=0.3)
    with made.write.batch(STEPS):
        for step in range(1, STEPS + 1):
            made.write.commit_step(*a_step(step, (ONE, TWO, THREE)[: step - 1], 1.0 if step % 2 else -1.0))
    return path


@pytest.fixture
def bank(four_steps: Path, tmp_path: Path) -> MemoryBank:
    """A bank of four steps, whose fold has been asked for."""
    shutil.copytree(four_steps, tmp_path / "bank")
    bank = MemoryBank.open(str(tmp_path / "bank"))
    bank.utilities("r")
    return bank


@pytest.fixture
def never_folded(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From now on nothing is folded from nothing, until this is undone."""

    def refuse(*_: object) -> Fold:
        raise AssertionError("folded from nothing")

    monkeypatch.setattr("memrl_core.bank.utilities.Utilities.start", refuse)
    return monkeypatch


def reworded(bank: MemoryBank, memory_id: str = TWO, text: str = "did it better", run: str = "r") -> str:
    return bank.write.editing.edit(run, memory_id, bank.memory(memory_id).intent, text, EMBEDDER, "ann").id


def merged(bank: MemoryBank, *memory_ids: str) -> str:
    return bank.write.editing.merge("r", memory_ids, "task 2", "did all of it", EMBEDDER, "ann").id


def undone(bank: MemoryBank, times: int = 1) -> None:
    for _ in range(times):
        bank.write.undo.undo("ann")


HANDED_ON: dict[str, Action] = {
    "reworded": reworded,
    "reworded twice": lambda bank: reworded(bank, reworded(bank), "and again"),
    "merged": lambda bank: merged(bank, ONE, TWO),
    "merged with one that no reward has reached": lambda bank: merged(bank, TWO, FOUR),
    "merged after a rewording": lambda bank: merged(bank, reworded(bank), THREE),
    "reworded after a merge": lambda bank: reworded(bank, merged(bank, ONE, TWO), "and again"),
    "reworded, undone": lambda bank: (reworded(bank), undone(bank)),
    "merged, undone, done again": lambda bank: (merged(bank, ONE, TWO), undone(bank), bank.write.undo.redo("ann")),
    "reworded and forgotten": lambda bank: bank.write.editing.forget("r", [reworded(bank)], "ann"),
    "reworded, restored, reworded": lambda bank: (
        reworded(bank), bank.write.editing.restore("r", [TWO], "ann"), reworded(bank, TWO, "otherwise")
    ),
}  # fmt: skip


@pytest.mark.parametrize("action", HANDED_ON.values(), ids=HANDED_ON)
def test_late_rewards_follow_a_memory_into_what_took_its_place(
    bank: MemoryBank, action: Action, never_folded: pytest.MonkeyPatch
) -> None:
    action(bank)
    rated_late(bank, 3, -0.4)
    bank.write.commit_step(*a_step(STEPS + 1, tuple(bank.utilities("r"))[:3], 0.5))
    rated_late(bank, 4, 0.9)
    rated_late(bank, 3, 0.2)
    withdraw(bank, "r", 4, "bob")
    mine = reported(live(bank, "r"))
    never_folded.undo()
    assert mine == reported(anew(bank, "r")) == reported(live(MemoryBank.open(bank.uri), "r"))


def rated_late(bank: MemoryBank, step: int, value: float) -> None:
    """Rate a step, which does what it was supposed to do."""
    supposed = bank.ratings.supposed(Rating("r", step, value, "bob"))
    bank.write.ratings.rate(Rating("r", step, value, "bob"))
    now = bank.histories("r")
    assert {i: now[i] for i in supposed.histories} == supposed.histories


def test_a_reward_for_a_step_after_the_rewording_leaves_the_new_wording_as_it_was(bank: MemoryBank) -> None:
    new = reworded(bank)
    bank.write.commit_step(*a_step(STEPS + 1, (TWO,), 1.0))
    before = bank.utilities("r")[new]
    supposed = bank.ratings.supposed(Rating("r", STEPS + 1, -1.0, "bob"))
    assert list(supposed.moved) == [TWO]
    bank.write.ratings.rate(Rating("r", STEPS + 1, -1.0, "bob"))
    assert bank.utilities("r")[new] == before


@pytest.mark.parametrize("deep", [False, True], ids=["fork", "fork of a fork"])
def test_a_fork_follows_what_its_base_learns_at_the_moment_from_which_it_was_begun(
    bank: MemoryBank, deep: bool
) -> None:
    forks = {STEPS: "now", STEPS - 1: "before"}
    for at, name in forks.items():
        bank.write.start_run(a_run(name, base="r", base_step=at))
    if deep:
        bank.write.start_run(a_run("deep", base="now", base_step=STEPS))
    before = {name: reported(live(bank, name)) for name in (*forks.values(), *(["deep"] if deep else []))}
    # Known at step 4, which is the newest that has begun: for the one fork in time, for the other too late.
    bank.write.ratings.rate(Rating("r", STEPS, -1.0, "bob"))
    for name, then in before.items():
        assert (
            reported(live(bank, name)) == reported(anew(bank, name)) == reported(live(MemoryBank.open(bank.uri), name))
        )
        assert (reported(live(bank, name)) == then) is (name == "before")


def test_what_took_a_place_before_a_fork_began_follows_no_reward_of_the_fork(
    bank: MemoryBank, request: pytest.FixtureRequest
) -> None:
    new = reworded(bank)
    bank.write.start_run(a_run("fork", base="r", base_step=STEPS, alpha=0.3))
    bank.write.editing.restore("fork", [TWO], "ann")
    bank.write.commit_step(*a_step(1, (ONE, TWO), 1.0, "fork"))
    third = reworded(bank, TWO, "otherwise", "fork")
    before = bank.editing.away("fork")[new], bank.utilities("fork")[third]
    patched = request.getfixturevalue("never_folded")
    bank.write.ratings.rate(Rating("fork", 1, -1.0, "bob"))
    assert bank.editing.away("fork")[new] == before[0]
    assert bank.utilities("fork")[third] == bank.editing.away("fork")[TWO] != before[1]
    patched.undo()
    assert (
        reported(live(bank, "fork"))
        == reported(anew(bank, "fork"))
        == reported(live(MemoryBank.open(bank.uri), "fork"))
    )


BETWEEN_STEPS: dict[str, Action] = {
    "pin": lambda bank: bank.write.editing.pin("r", [TWO], "ann"),
    "unpin": lambda bank: (bank.write.editing.pin("r", [TWO], "ann"), bank.write.editing.unpin("r", [TWO], "ann")),
    "forget": lambda bank: bank.write.editing.forget("r", [TWO, THREE], "ann"),
    "restore": lambda bank: (
        bank.write.editing.forget("r", [TWO], "ann"),
        bank.write.editing.restore("r", [TWO], "ann"),
    ),
    "undo and redo": lambda bank: (
        merged(bank, ONE, TWO), reworded(bank, THREE), undone(bank, 2), bank.write.undo.redo("ann")
    ),
    "after a late reward": lambda bank: (bank.write.ratings.rate(Rating("r", 3, -0.3, "bob")), reworded(bank)),
}  # fmt: skip


@pytest.mark.parametrize("action", BETWEEN_STEPS.values(), ids=BETWEEN_STEPS)
def test_what_people_do_between_steps_is_worked_into_the_fold(
    bank: MemoryBank, action: Action, never_folded: pytest.MonkeyPatch
) -> None:
    action(bank)
    mine = reported(live(bank, "r"))
    never_folded.undo()
    assert mine == reported(anew(bank, "r")) == reported(live(MemoryBank.open(bank.uri), "r"))


def test_what_another_handle_did_between_steps_is_worked_in_too(
    bank: MemoryBank, request: pytest.FixtureRequest
) -> None:
    other = MemoryBank.open(bank.uri)
    other.utilities("r")
    request.getfixturevalue("never_folded")
    merged(bank, TWO, reworded(bank, THREE))
    assert other.refresh()
    assert reported(live(other, "r")) == reported(live(bank, "r"))


def an_edit(memory_id: str, new: str, seq: int, step: int = STEPS) -> LedgerEvent:
    return LedgerEvent(
        f"edit-{new}", seq, "r", step, "", step, EventKind.MEMORY_EDITED, (new,), payload={"replaces": [memory_id]}
    )


def test_two_edits_that_arrive_the_wrong_way_round_count_in_the_order_of_their_clocks(bank: MemoryBank) -> None:
    later, earlier = an_edit("b", "c", 101), an_edit(TWO, "b", 100)
    for event in (later, earlier):
        bank.write._ledger.adopt(event)
        live(bank, "r")
    assert live(bank, "r").histories["c"][0].after == live(bank, "r").utilities["c"].q
    assert live(bank, "r").away["b"] == live(bank, "r").away[TWO]


def test_an_edit_about_a_step_that_is_still_under_way_counts_at_once_and_after_its_rewards(bank: MemoryBank) -> None:
    bank.write._ledger.adopt(an_edit(TWO, "new", 100, STEPS + 1))
    assert "new" in live(bank, "r").utilities
    bank.write.commit_step(*a_step(STEPS + 1, (TWO,), 1.0))
    fold = live(bank, "r")
    assert fold.utilities["new"] == fold.away[TWO]
    assert fold.away[TWO].visits == 3


def test_a_memory_imported_anew_after_it_was_reworded_is_folded_from_nothing(bank: MemoryBank) -> None:
    new = reworded(bank)
    event = LedgerEvent("anew", 100, "r", STEPS, "", STEPS, EventKind.MEMORY_IMPORTED, (TWO,), 0.8)
    bank.write.adopt({}, [event], [])
    before = bank.utilities("r")[new]
    bank.write.ratings.rate(Rating("r", 3, -1.0, "bob"))
    assert bank.utilities("r")[new] != before
    assert bank.utilities("r")[TWO].q == 0.8
    assert reported(live(bank, "r")) == reported(anew(bank, "r")) == reported(live(MemoryBank.open(bank.uri), "r"))
