"""Fields of records that are made when they are first asked for: nobody who reads such a record can tell."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic import vectors
from memrl_core.bank import codec
from memrl_core.deferred import deferred, source_of
from memrl_core.policies.methods.memrl import MemRL
from memrl_core.records import Decision, Memory, Reason, Recalled, RecallRecord, StepTrace, Task
from memrl_core.retrieval import positions_in, recall, select
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import MemRLSettings

POOL = (Recalled("a", 0.9, 1, None), Recalled("b", 0.8, 2, None))
MISSED = (Recalled("c", 0.1, 3, Reason.BELOW_DELTA),)
AT_ONCE = RecallRecord(2, "record", 0.2, True, 3, POOL, MISSED)
LATER = RecallRecord(2, "record", 0.2, True, 3, (), ())


def unmade(calls: list[int] | None = None) -> RecallRecord:
    """A record equal to `AT_ONCE` whose pool is unmade; each making is noted in `calls`."""

    def source() -> dict[str, tuple[Recalled, ...]]:
        if calls is not None:
            calls.append(1)
        return {"pool": POOL, "left_out": MISSED}

    return deferred(replace(LATER), source, "pool", "left_out")


def a_view(n: int, seed: int = 0, dimension: int = 8) -> MemoryView:
    """Memories m0, m1, … with random values, of the tasks t0 to t2 in turns."""
    rng = np.random.default_rng(seed)
    ids = [f"m{i}" for i in range(n)]
    return MemoryView(
        ids=ids,
        embeddings=vectors(n, rng, dimension),
        q=rng.uniform(-1, 1, n).round(1),
        visits=rng.integers(0, 5, n),
        intent_groups=rng.integers(0, 1 + n // 3, n),
        rows={memory_id: 5 + i for i, memory_id in enumerate(ids)},
        first_row=5,
        memories={m: Memory(m, m, "", "success", m, (), "r", 1, f"t{i % 3}", "") for i, m in enumerate(ids)},
        asked=Asked(vectors(1, rng, dimension)[0], task="t1"),
    )


def decided(view: MemoryView, **changes: Any) -> tuple[RecallRecord, Decision]:
    """What MemRL recalls and selects for what is asked of a view."""
    assert view.asked is not None
    policy = MemRL(MemRLSettings.of({"delta": -1.0, **changes}))
    recalled = policy.recall(view.asked.embedding, view)
    return recalled, policy.select(recalled, view, 7)


@pytest.mark.parametrize(
    "read",
    [
        lambda record: record == AT_ONCE,
        lambda record: AT_ONCE == record,  # noqa: SIM300
        lambda record: hash(record) == hash(AT_ONCE),
        lambda record: repr(record) == repr(AT_ONCE),
        lambda record: asdict(record) == asdict(AT_ONCE),
        lambda record: replace(record, why="x") == replace(AT_ONCE, why="x"),
        lambda record: pickle.loads(pickle.dumps(record)) == AT_ONCE,
        lambda record: copy.copy(record) == AT_ONCE,
        lambda record: copy.deepcopy(record) == AT_ONCE,
        lambda record: isinstance(record.pool, tuple) and record.pool + record.left_out == POOL + MISSED,
        lambda record: (*record.left_out, *record.pool) == MISSED + POOL,
    ],
)
def test_a_record_with_unmade_fields_is_the_same_to_everybody(read: Callable[[RecallRecord], bool]) -> None:
    assert read(unmade())


def test_a_field_is_made_once_when_it_is_first_read() -> None:
    calls: list[int] = []
    record = unmade(calls)
    assert (record.k1, record.memories, record.why) == (2, 3, "") and calls == []
    assert source_of(record) is not None
    assert record.left_out == MISSED and record.pool is record.pool and record.pool == POOL
    assert calls == [1] and source_of(record) is None


def test_a_record_stays_frozen_and_has_no_other_fields() -> None:
    calls: list[int] = []
    record = unmade(calls)
    with pytest.raises(AttributeError):
        record.pool = ()  # type: ignore[misc]
    with pytest.raises(AttributeError, match="'RecallRecord' object has no attribute 'pools'"):
        record.pools  # type: ignore[attr-defined]  # noqa: B018
    assert calls == [] and source_of(AT_ONCE) is None


def test_a_source_that_fails_is_asked_again() -> None:
    answers = iter([ValueError("not yet"), None])

    def source() -> dict[str, tuple[Recalled, ...]]:
        if failure := next(answers):
            raise failure
        return {"pool": POOL, "left_out": MISSED}

    record = deferred(replace(LATER), source, "pool", "left_out")
    with pytest.raises(ValueError, match="not yet"):
        assert record.pool
    assert record == AT_ONCE


def test_several_threads_may_read_at_once() -> None:
    readers = 8
    with ThreadPoolExecutor(readers) as pool:
        for _ in range(200):
            record, together = unmade(), Barrier(readers)

            def read(record: RecallRecord = record, together: Barrier = together) -> bool:
                together.wait()
                return record == AT_ONCE

            assert all(one.result() for one in [pool.submit(read) for _ in range(readers)])


def test_recalling_and_selecting_make_no_records() -> None:
    recalled, decision = decided(a_view(60))
    assert len(decision.selected) == 3 and decision.mode == "greedy"
    assert source_of(recalled) is not None and source_of(decision) is not None
    chosen = [candidate.memory_id for candidate in decision.candidates if candidate.selected]
    assert tuple(chosen) == decision.selected and source_of(decision) is None


def test_a_trace_with_unmade_fields_is_stored_whole() -> None:
    recalled, decision = decided(a_view(60))
    task = Task("t", "do it", "synthetic")
    trace = StepTrace("s", "r", 1, 1, task, "memrl", {}, "2026-01-01", recall=recalled, decision=decision)
    read = codec.trace_of(codec.step_row(trace, "2026-01-01"))
    assert read == trace
    assert read.recall is not None and len(read.recall.pool) == 10 and len(read.recall.left_out) == 5
    assert read.decision is not None and len(read.decision.candidates) == 15


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 60),
    st.fixed_dictionaries(
        {
            "k1": st.integers(6, 20),
            "k1_counts": st.sampled_from(["record", "intent"]),
            "delta": st.sampled_from([-1.0, 0.0, 0.3]),
            "exclude_same_task": st.booleans(),
            "normaliser": st.sampled_from(["pool", "fixed"]),
            "exploration": st.sampled_from(["epsilon", "ucb", "thompson"]),
            "epsilon": st.sampled_from([0.0, 0.5]),
            "ties": st.sampled_from(["older", "seeded"]),
        }
    ),
)
def test_a_selection_does_not_depend_on_whether_the_pool_was_made(seed: int, n: int, changes: dict[str, Any]) -> None:
    view = a_view(n, seed)
    recalled, decision = decided(view, **changes)
    in_hand = pickle.loads(pickle.dumps(recalled))
    assert MemRL(MemRLSettings.of({"delta": -1.0, **changes})).select(in_hand, view, 7) == decision


def test_candidates_keep_the_values_that_they_were_ranked_by() -> None:
    view = a_view(60)
    assert view.asked is not None
    recalled = recall(view.asked.embedding, view, k1=10, k1_counts="record", delta=-1.0, strict=True)
    rows = positions_in(view, recalled)

    def decide(q: np.ndarray, visits: np.ndarray) -> Decision:
        return select(
            recalled, q, visits, k2=3, weight=0.5, normaliser="pool", fixed_mean=0.5, fixed_sd=0.1, epsilon=0.0, seed=1
        )

    q, visits = view.q[rows], view.visits[rows]
    decision, untouched = decide(q, visits), decide(view.q[rows], view.visits[rows])
    q += 1.0
    visits += 1
    assert decision == untouched


def test_what_was_recalled_is_found_in_any_view_that_holds_it() -> None:
    view, again = a_view(60), a_view(60)
    later = replace(view, ids=view.ids[2:], embeddings=view.embeddings[2:], first_row=7)
    recalled, _ = decided(later)
    in_hand = pickle.loads(pickle.dumps(recalled))
    expected = [seen.memory_id for seen in (*in_hand.pool, *in_hand.left_out)]
    for where in (later, view, again):
        for one in (recalled, in_hand):
            assert [where.ids[position] for position in positions_in(where, one)] == expected
    with pytest.raises(KeyError):
        positions_in(replace(view, rows={}, ids=list(view.ids)), recalled)
