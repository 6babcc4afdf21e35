"""A large bank is opened as columns: everything that can be asked of it is what a bank read row by row says."""

from __future__ import annotations

import gc
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrl_core.bank import MemoryBank, codec, knowledge, mirror
from memrl_core.bank.knowledge import Knowledge
from memrl_core.bank.store import Store
from memrl_core.errors import BankDamaged
from memrl_core.learning import in_ledger
from memrl_core.records import LedgerEvent
from tests.builders import DIMENSION, a_bank, a_run, a_step
from tests.core.test_refold import Facts, told

META = {"schema_version": codec.SCHEMA_VERSION, "embedder": "made up", "dimension": DIMENSION, "created": ""}
FEW = 10**9


def read(store: Store, many: int, monkeypatch: pytest.MonkeyPatch) -> Knowledge:
    """What a handle knows that takes in tables of `many` rows and more as columns."""
    monkeypatch.setattr(knowledge, "MANY", many)
    known = Knowledge(DIMENSION)
    for name in ("steps", "ledger"):
        known.follow(store, name, 0)
    return known


def by_person(known: Knowledge) -> dict[str, list[LedgerEvent]]:
    return {person: sorted(events, key=in_ledger) for person, events in known.by_person.items()}


def put(store: Store, facts: Facts) -> None:
    events = [fact for fact in facts.taken if isinstance(fact, LedgerEvent)]
    store.append("ledger", [codec.event_row(event) for event in events])
    rows = [fact for fact in facts.taken if not isinstance(fact, LedgerEvent)]
    filled = {"created": "", "embedding": None, "trace": "{}"}
    store.append("steps", [{name: getattr(row, name) for name in codec.STEP_COLUMNS} | filled for row in rows])


def some_facts(seed: int, turns: int = 30) -> Facts:
    facts = Facts(np.random.default_rng(seed))
    facts.start("r")
    for _ in range(3):
        facts.step("r")
    for _ in range(turns):
        run = facts.some(list(facts.known.runs))[0]
        facts.some([facts.step, facts.step, facts.reward, facts.change, facts.other])[0](run)
    return facts


@pytest.mark.slow
@given(st.integers(0, 1_000_000))
@settings(max_examples=20, deadline=None)
def test_columns_say_what_the_rows_say(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store = Store.create(f"{folder}/bank", META, DIMENSION)
        facts = some_facts(seed)
        put(store, facts)
        rows, columns = read(store, FEW, patch), read(store, 1, patch)
        assert list(columns.runs.values()) == list(rows.runs.values())
        assert columns.seq == rows.seq and columns.facts == rows.facts
        for run in rows.runs:
            newest = rows.newest_step(run) or 0
            for step in range(newest + 2):
                assert columns.states[run].at(step) == rows.states[run].at(step)
                assert told(columns.past(run, step)) == told(rows.past(run, step))
            assert sorted(columns.states[run].attempts()) == sorted(rows.states[run].attempts())
            assert told(columns.live(run)) == told(rows.live(run))
            assert dict(columns.steps_of(run)) == dict(rows.steps_of(run))
            assert columns.settings_at(run)(newest) == rows.settings_at(run)(newest)
            assert sorted(columns.states[run].told_late) == sorted(rows.states[run].told_late)
            assert columns.states[run].told_from_outside == rows.states[run].told_from_outside
            assert columns.states[run].events == rows.states[run].events
        assert by_person(columns) == by_person(rows)
        assert list(columns.events.values()) == list(rows.events.values())


@given(st.integers(0, 1_000_000))
@settings(max_examples=10, deadline=None)
def test_what_comes_after_the_columns_is_believed_as_if_all_were_rows(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store = Store.create(f"{folder}/bank", META, DIMENSION)
        facts = some_facts(seed, turns=12)
        put(store, facts)
        columns = read(store, 1, patch)
        asked = facts.rng.random() < 0.5
        for run in columns.runs if asked else ():
            columns.live(run)
        facts.known, facts.taken = columns, []
        for _ in range(12):
            run = facts.some(list(columns.runs))[0]
            facts.some([facts.step, facts.reward, facts.change, facts.other])[0](run)
        put(store, facts)
        rows = read(store, FEW, patch)
        for run in rows.runs:
            for step in range((rows.newest_step(run) or 0) + 1):
                assert told(columns.past(run, step)) == told(rows.past(run, step))
            assert told(columns.live(run)) == told(rows.live(run))
        assert sorted(columns.events.values(), key=in_ledger) == sorted(rows.events.values(), key=in_ledger)


def opened(path: str, many: int, monkeypatch: pytest.MonkeyPatch) -> MemoryBank:
    monkeypatch.setattr(knowledge, "MANY", many)
    return MemoryBank.open(path)


def test_a_bank_opened_as_columns_shows_the_same_memories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bank(tmp_path) as bank:
        bank.start_run(a_run("s"))
        for step in range(1, 6):
            bank.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
            bank.commit_step(*a_step(step, run="s"))
        path = bank.uri
    rows, columns = opened(path, FEW, monkeypatch), opened(path, 1, monkeypatch)
    assert columns.memory_ids() == rows.memory_ids()
    assert columns.memories() == rows.memories()
    for run in ("r", "s"):
        one, other = columns.view(run), rows.view(run)
        assert one.ids == other.ids
        assert np.array_equal(one.embeddings, other.embeddings)
        assert np.array_equal(one.q, other.q) and np.array_equal(one.visits, other.visits)
        assert np.array_equal(one.intent_groups, other.intent_groups)
        assert columns.histories(run) == rows.histories(run)
        assert columns.traces(run) == rows.traces(run)
        assert columns.unfinished_steps(run) == []


def test_a_bank_opened_as_columns_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bank(tmp_path) as bank:
        for step in range(1, 4):
            bank.commit_step(*a_step(step, (f"r-{step - 1:04d}",) if step > 1 else ()))
        path = bank.uri
    with opened(path, 1, monkeypatch) as columns:
        for step in range(4, 90):
            columns.commit_step(*a_step(step, (f"r-{step - 1:04d}",)))
        ids, known = columns.view("r").ids, columns.utilities("r")
    rows = opened(path, FEW, monkeypatch)
    assert rows.view("r").ids == ids
    assert rows.utilities("r") == known


@pytest.mark.parametrize(("column", "value"), [("kind", "invented"), ("payload", "{"), ("seq", None)])
def test_a_row_that_cannot_be_read_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, value: object
) -> None:
    store = Store.create(str(tmp_path / "bank"), META, DIMENSION)
    facts = some_facts(1)
    put(store, facts)
    event = next(fact for fact in facts.taken if isinstance(fact, LedgerEvent))
    store.append("ledger", [codec.event_row(event) | {"id": "odd", column: value}])
    with pytest.raises(BankDamaged, match="a row of the table ledger cannot be read"):
        read(store, 1, monkeypatch)


def test_rows_stored_twice_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(str(tmp_path / "bank"), META, DIMENSION)
    facts = some_facts(2)
    put(store, facts)
    put(store, facts)
    rows, columns = read(store, FEW, monkeypatch), read(store, 1, monkeypatch)
    assert columns.facts == rows.facts == len(facts.taken)
    assert told(columns.live("r")) == told(rows.live("r"))


@pytest.mark.slow
def test_a_closed_bank_is_freed_before_the_next_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "LEFT_TO_PYTHON", 0)
    with a_bank(tmp_path) as bank:
        bank.commit_step(*a_step(1))
    closed, path = weakref.ref(bank), bank.uri
    gc.collect()
    gc.disable()  # So that nothing but opening the next one frees it.
    try:
        with MemoryBank.open(path) as opened_again:
            opened_again.itself = opened_again  # type: ignore[attr-defined]
            freed = weakref.ref(opened_again)
        del opened_again, bank
        assert freed() is not None
        MemoryBank.open(path).close()
        assert freed() is None and closed() is None
    finally:
        gc.enable()


def test_memories_whose_version_is_cleared_away_meanwhile_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_bank(tmp_path) as bank:
        bank.commit_step(*a_step(1))
        path, ids = bank.uri, bank.memory_ids()
    in_portions, refused = Store.in_portions, []

    def gone_at_first(store: Store, name: str) -> Any:
        if not refused:
            refused.append(name)
            raise BankDamaged("A file is gone.")
        return in_portions(store, name)

    monkeypatch.setattr(Store, "in_portions", gone_at_first)
    assert opened(path, 1, monkeypatch).memory_ids() == ids
    assert refused == ["memories"]
