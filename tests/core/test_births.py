"""How old memories are: what the columns of a ledger say of their births is what its events say one by one."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from memrl_core.bank import codec
from memrl_core.bank.ages import Age
from memrl_core.bank.births import Births
from memrl_core.bank.unread import UnreadLedger
from memrl_core.records import EventKind, LedgerEvent

KNOWN = ("a", "b", "c", "d")
RUNS = ("r", "s", "t")
BROUGHT_IN = st.tuples(
    st.sampled_from([EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, EventKind.MEMORY_EDITED]),
    st.sampled_from(RUNS),
    st.integers(1, 6),
    st.lists(st.sampled_from([*KNOWN, "nowhere"]), max_size=3),
)
WHEN = st.sampled_from(["never", "at once", "after others"])
SEVERAL = st.lists(BROUGHT_IN, min_size=1, max_size=8)


def events_of(drawn: list[tuple[EventKind, str, int, list[str]]], numbers: count[int]) -> list[LedgerEvent]:
    """The events drawn; those of one time are told to be by a person."""
    said = {6: {"by": "somebody"}}
    return [
        LedgerEvent(f"e{next(numbers)}", seq, run, 1, "", 1, kind, tuple(memory_ids), payload=said.get(seq, {}))
        for kind, run, seq, memory_ids in drawn
    ]


def expected(events: list[LedgerEvent], memory_id: str, its_run: str) -> Age | None:
    births = [
        (event.run, (event.seq, event.id, place))
        for event in events
        for place, named in enumerate(event.memory_ids)
        if named == memory_id
    ]
    own = [age for run, age in births if run == its_run]
    return min(own or [age for _, age in births], default=None)


@given(SEVERAL, SEVERAL, st.lists(st.sampled_from(RUNS), min_size=4, max_size=4), WHEN)
def test_columns_and_events_give_the_same_ages(
    first: list[tuple[EventKind, str, int, list[str]]],
    later: list[tuple[EventKind, str, int, list[str]]],
    runs: list[str],
    together: str,
) -> None:
    numbers = count()
    events, added = events_of(first, numbers), events_of(later, numbers)
    schema = codec.schemas(4)["ledger"]
    chunks = [codec.arrow([codec.event_row(event)], schema) for event in events]
    ledger = UnreadLedger(pa.concat_tables(chunks))
    births = Births()
    for event in ledger.events(ledger.others):
        for place, memory_id in enumerate(event.memory_ids):
            births.add(memory_id, event.run, (event.seq, event.id, place))
    births.begin_with(ledger)
    for more in ([], added):
        for event in more:
            for place, memory_id in enumerate(event.memory_ids):
                births.add(memory_id, event.run, (event.seq, event.id, place))
        if together == ("after others" if more else "at once"):
            ages = births.ages(dict(zip(KNOWN, range(4), strict=True)), pa.array(KNOWN), runs)
            ages_expected = [expected([*events, *more], *one) for one in zip(KNOWN, runs, strict=True)]
            assert ages.all() == [ages[row] for row in range(len(ages))] == ages_expected
            if ages.are_in_order():
                assert None not in ages_expected
                assert ages_expected == sorted(ages_expected)
    for memory_id, run in [*zip(KNOWN, runs, strict=True), ("nowhere", "r")]:
        assert births.age(memory_id, run) == expected([*events, *added], memory_id, run)


def test_what_columns_say_stays_in_columns_when_other_memories_came_after_them() -> None:
    events = [LedgerEvent(f"e{n}", n, "r", n, "", n, EventKind.MEMORY_WRITTEN, (name,)) for n, name in enumerate("ab")]
    ledger = UnreadLedger(codec.arrow([codec.event_row(event) for event in events], codec.schemas(4)["ledger"]))
    births = Births()
    births.begin_with(ledger)
    births.add("later", "r", (7, "e7", 0))
    assert births.ages({"a": 0, "b": 1}, pa.array(["a", "b"]), ["r", "r"]).are_in_order()
    assert births.age("later", "r") == (7, "e7", 0)
