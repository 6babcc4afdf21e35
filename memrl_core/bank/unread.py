"""Rows of a bank that were read as columns and become records one by one, when somebody asks.

A large bank is opened in a tenth of the time that it takes to make a record of every row.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memrl_core.bank import codec
from memrl_core.learning import CHANGES_MEMORIES, REWARDING, Fold
from memrl_core.learning.histories import Earned
from memrl_core.records import EventKind, LedgerEvent, Utility

MADE_ONE_BY_ONE = 200
"""Making one record from its columns takes ten times as long as making it among all others."""
REWARD, BEGINNING, RATING, OTHER = 0, 1, 2, 3
_PLAIN = {
    EventKind.REWARD_GIVEN: REWARD,
    EventKind.MEMORY_WRITTEN: BEGINNING,
    EventKind.MEMORY_IMPORTED: BEGINNING,
}

SETS = (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED)

Record = TypeVar("Record")
Integers = npt.NDArray[np.int64]


class Records(Mapping[str, Record], Generic[Record]):
    """Records by id in the order in which they came; what came as columns is made when it is asked for."""

    def __init__(self) -> None:
        self._numbered: dict[str, Record | int] = {}
        self._unnumbered: pa.Table | None = None
        self._numbering = threading.Lock()
        self._columns: pa.Table | None = None
        self._made: Callable[[pa.Table], Iterable[Record]] | None = None
        self._one_by_one = 0

    def __len__(self) -> int:
        unnumbered = self._unnumbered
        return len(self._numbered) if unnumbered is None else int(unnumbered.num_rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._found

    def __getitem__(self, record_id: str) -> Record:
        found = self._found[record_id]
        return self._make(record_id, found) if isinstance(found, int) else found

    def __setitem__(self, record_id: str, record: Record) -> None:
        self._found[record_id] = record

    def begin_with(
        self,
        columns: pa.Table,
        made: Callable[[pa.Table], Iterable[Record]],
        positions: dict[str, int] | None = None,
    ) -> None:
        """Begin with rows, whose records `made` gives.

        `positions`, each id with its row, is changed from now on. Without it, where no id is there twice, the ids are
        read when the first of them is asked for.
        """
        self._numbered = cast("dict[str, Record | int]", positions or {})
        self._unnumbered = columns if positions is None else None
        self._columns, self._made = columns, made

    @property
    def _found(self) -> dict[str, Record | int]:
        if self._unnumbered is not None:
            with self._numbering:
                if self._unnumbered is not None:
                    self._numbered = cast("dict[str, Record | int]", numbered(self._unnumbered["id"]))
                    self._unnumbered = None
        return self._numbered

    def _make(self, record_id: str, row: int) -> Record:
        columns, made = self._columns, self._made
        if columns is None or made is None:
            return self[record_id]  # Another thread has made them all meanwhile.
        if self._one_by_one < MADE_ONE_BY_ONE:
            self._one_by_one += 1
            (record,) = made(columns.slice(row, 1))
            self._found[record_id] = record
            return record
        records = list(made(columns))
        for name, found in list(self._found.items()):
            if isinstance(found, int):
                self._found[name] = records[found]
        self._columns = self._made = None  # Only now: a thread that still finds a number needs them.
        return records[row]


def numbered(ids: pa.ChunkedArray) -> dict[str, int]:
    """Each id with its row; where one is there twice, with its last."""
    listed: list[str] = ids.to_pylist()
    return dict(zip(listed, range(len(listed)), strict=True))


def by_run(table: pa.Table) -> dict[str, Integers]:
    """The rows of each run, in their order; the runs in the order in which they are met."""
    codes, runs = numbered_texts(table["run"])
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []
    return dict(zip(runs, parts, strict=True))


def numbered_texts(column: pa.ChunkedArray) -> tuple[Integers, list[str]]:
    """A column of texts as a number for each row (n,), and the texts that they stand for, as they are met.

    Raises `ValueError` where a text is missing.
    """
    coded = _coded(column)
    return _numbers(coded.indices), coded.dictionary.to_pylist()


class UnreadLedger:
    """The first rows of a ledger as columns.

    Plain are the environment's rewards, and what was written or imported: of these the columns say all that a fold
    needs. Ratings, rewards from elsewhere, become events when they are folded or asked for. `kinds` (n,) tells them
    apart, OTHER being events that are made at once, by `others`. Raises `ValueError`, `TypeError` or `KeyError` for
    rows that are none of a ledger.
    """

    def __init__(self, table: pa.Table) -> None:
        codec.must_be_usable(table)
        self.table = table
        self.steps, self.seq, self.known_at = (_whole(table[name]) for name in ("step", "seq", "known_at"))
        self.kinds = _kinds(table)
        self._flat = pc.list_flatten(table["memory_ids"])
        self._offsets = _offsets(table["memory_ids"])
        self.others = [int(row) for row in np.flatnonzero(self.kinds == OTHER)]
        self._by_payload = self._begun_visits()
        self._believed: dict[int, Utility] = {}

    @cached_property
    def ids(self) -> list[str]:
        """The id of each event."""
        ids: list[str] = self.table["id"].to_pylist()
        return ids

    @cached_property
    def step_ids(self) -> list[str]:
        """The attempt that each event belongs to."""
        step_ids: list[str] = self.table["step_id"].to_pylist()
        return step_ids

    @cached_property
    def values(self) -> list[float | None]:
        """The value of each event."""
        values: list[float | None] = self.table["value"].to_pylist()
        return values

    @cached_property
    def visits(self) -> list[int]:
        """The visits with which a memory began, a number a row; 0 where the payload says nothing of them."""
        if self._by_payload is None:
            return [0] * self.table.num_rows
        codes, begun = self._by_payload
        found: list[int] = begun[codes].tolist()
        return found

    def believed(self, row: int) -> Utility:
        """What a memory that began by this event is worth then; the same object in every fold, so none looks twice."""
        if row not in self._believed:
            self._believed[row] = Utility(self.values[row] or 0.0, self.visits[row])
        return self._believed[row]

    def ratings(self) -> list[LedgerEvent]:
        """The rewards that did not come from the environment, but for those in `others`."""
        return self.events(np.flatnonzero(self.kinds == RATING))

    def memory_ids(self, row: int) -> list[str]:
        """The memories that an event is about."""
        return self._memory_ids[self._first[row] : self._first[row + 1]]

    @cached_property
    def _memory_ids(self) -> list[str]:
        memory_ids: list[str] = self._flat.to_pylist()
        return memory_ids

    @cached_property
    def _first(self) -> list[int]:
        first: list[int] = self._offsets.tolist()
        return first

    def events(self, rows: Integers | Sequence[int]) -> list[LedgerEvent]:
        """The events in these rows."""
        return list(codec.events_of(self.table.take(pa.array(rows, pa.int64()))))

    def begun(self) -> tuple[Integers, Integers, pa.Array]:
        """Of every memory that began by a plain event: the row of that (m,), its place in it (m,), and its id (m,)."""
        rows = np.flatnonzero(self.kinds == BEGINNING)
        first = self._offsets
        lengths = first[rows + 1] - first[rows]
        places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        memory_ids = self._flat.take(pa.array(np.repeat(first[rows], lengths) + places)).combine_chunks()
        return np.repeat(rows, lengths), places, memory_ids

    def birth(self, row: int, place: int) -> tuple[str, tuple[int, str, int]]:
        """The run into which a row brought a memory, and the memory's age by it."""
        return self.table["run"][row].as_py(), (int(self.seq[row]), self.table["id"][row].as_py(), place)

    def ages(self, rows: Integers, places: Integers) -> list[Any]:
        """The ages by the births in these rows (n,) at these places (n,)."""
        ids = self.ids
        return list(zip(self.seq[rows].tolist(), [ids[row] for row in rows.tolist()], places.tolist(), strict=True))

    def _begun_visits(self) -> tuple[Integers, Integers] | None:
        """Of each row the number of its payload, and of each payload the visits that it says; None where none does."""
        if pc.all(pc.equal(self.table["payload"], "{}")).as_py():
            return None
        coded = _coded(self.table["payload"])
        begun = np.zeros(len(coded.dictionary), dtype=np.int64)
        codes = _numbers(coded.indices)
        for code in np.unique(codes[self.kinds == BEGINNING]).tolist():
            begun[code] = int(json.loads(coded.dictionary[code].as_py()).get("visits", 0))
        return codes, begun


class UnreadRun:
    """The rows of one run in an unread ledger, in the order in which they lie there."""

    def __init__(self, ledger: UnreadLedger, rows: Integers) -> None:
        self.ledger, self.rows = ledger, rows
        self.kinds: list[int] = ledger.kinds.tolist()

    def events(self) -> list[LedgerEvent]:
        """All of them as records."""
        return self.ledger.events(self.rows)

    def ratings_known_at(self) -> tuple[Integers, Integers]:
        """Of every rating, the newest step that had begun, and the step that it is about."""
        rows = self.rows[self.ledger.kinds[self.rows] == RATING]
        return self.ledger.known_at[rows], self.ledger.steps[rows]

    def at(self, step: int) -> list[LedgerEvent]:
        """Those about one step."""
        rows = self.rows[self.ledger.steps[self.rows] == step]
        return self.ledger.events(rows) if len(rows) else []

    def comes_before(self, events: Iterable[LedgerEvent]) -> bool:
        """Whether all of them are about later steps than these rows are."""
        last = int(self.ledger.steps[self.rows].max())
        return all(event.step > last for event in events)

    def of_no_attempt(self) -> list[int]:
        """The steps of the events of no attempt that move or change a memory, each once."""
        ledger = self.ledger
        rows = [row for row in self.rows.tolist() if not ledger.step_ids[row]]
        rewards = {int(ledger.steps[row]) for row in rows if ledger.kinds[row] != OTHER}
        others = self.ledger.events([row for row in rows if ledger.kinds[row] == OTHER])
        return sorted(rewards | {e.step for e in others if e.kind in REWARDING or e.kind in CHANGES_MEMORIES})

    def attempts(self) -> Iterator[tuple[int, str]]:
        """Step and attempt of every event that belongs to one."""
        for row in self.rows.tolist():
            if self.ledger.step_ids[row]:
                yield int(self.ledger.steps[row]), self.ledger.step_ids[row]

    def fold(self, base: Fold, committed: Container[str], until: int | None = None) -> Fold:
        """`base`, an empty fold, and the events that count, step by step; with `until`, those known by that step.

        The same as `mirror.folded` of the same events, without making a record of each.
        """
        ledger = self.ledger
        rows = self.rows if until is None else self.rows[ledger.known_at[self.rows] <= until]
        made = self._made(rows[np.isin(ledger.kinds[rows], (RATING, OTHER))])
        changing = {event.step for event in made.values() if event.kind in REWARDING or event.kind in CHANGES_MEMORIES}
        made |= self._made(rows[np.isin(ledger.steps[rows], list(changing))])
        for step, members in self._by_step(rows, committed):
            if step in changing or not self._fold_plainly(base, step, members, made):
                if not made.keys() >= set(members):
                    made = self._made(rows)
                base.take(step, [made[row] for row in members])
        return base

    def _made(self, rows: Integers) -> dict[int, LedgerEvent]:
        return dict(zip(rows.tolist(), self.ledger.events(rows), strict=True))

    def _by_step(self, rows: Integers, committed: Container[str]) -> Iterator[tuple[int, list[int]]]:
        """The steps in their order, each with the rows that count, in the order of a fold."""
        ledger = self.ledger
        steps, seq = ledger.steps[rows], ledger.seq[rows]
        order = np.lexsort((seq, steps))
        steps, seq, rows = steps[order], seq[order], rows[order]
        begins = np.flatnonzero(np.diff(steps, prepend=steps[:1] - 1)).tolist() if len(rows) else []
        tied = np.zeros(len(rows), dtype=bool)
        tied[1:] = (np.diff(steps) == 0) & (np.diff(seq) == 0)
        listed, with_ties, numbers = rows.tolist(), set(steps[tied].tolist()), steps.tolist()
        attempts = ledger.step_ids
        for first, last in zip(begins, [*begins[1:], len(listed)], strict=True):
            members = [row for row in listed[first:last] if not attempts[row] or attempts[row] in committed]
            if numbers[first] in with_ties:
                members.sort(key=lambda row: (int(ledger.seq[row]), ledger.ids[row]))
            if members:
                yield numbers[first], members

    def _fold_plainly(self, base: Fold, step: int, members: Sequence[int], made: Mapping[int, LedgerEvent]) -> bool:
        """Fold in a step with at most one reward, the environment's; False, and nothing done, for any other."""
        ledger, kinds = self.ledger, self.kinds
        rewarding = -1
        begun: list[str] = []
        for row in members:
            if kinds[row] == BEGINNING:
                begun += ledger.memory_ids(row)
            elif kinds[row] == REWARD:
                if rewarding >= 0:
                    return False
                rewarding = row
        if begun and (len(set(begun)) < len(begun) or not base.histories.keys().isdisjoint(begun)):
            return False
        for row in members:
            if kinds[row] == OTHER and made[row].kind in SETS:
                base.settings = made[row].payload["settings"]
        if rewarding >= 0:
            self._fold_reward(base, step, rewarding)
        if begun:
            for row in members:
                if kinds[row] == BEGINNING:
                    believed = ledger.believed(row)
                    for memory_id in ledger.memory_ids(row):
                        base.utilities[memory_id] = believed
                        base.histories.begin(memory_id, step, believed)
        return True

    def _fold_reward(self, base: Fold, step: int, row: int) -> None:
        value = self.ledger.values[row]
        assert value is not None
        reward = Earned(value, "environment")
        rule, settings, move = base.rule, base.settings, base.histories.move
        for memory_id in dict.fromkeys(self.ledger.memory_ids(row)):
            known = base.utilities if memory_id in base.utilities else base.away
            before = known.get(memory_id)
            if before is not None:
                after = Utility(rule(before, value, settings), before.visits + 1)
                known[memory_id] = after
                move(memory_id, step, reward, before.q, after)


def _kinds(table: pa.Table) -> npt.NDArray[np.int8]:
    """Which rows are plain or ratings, by kind; what a person has brought in, or done for another, is neither."""
    names = _coded(table["kind"])
    by_name = [_PLAIN.get(EventKind(name), OTHER) for name in names.dictionary.to_pylist()]
    kinds: npt.NDArray[np.int8] = np.array(by_name or [OTHER], dtype=np.int8)[_numbers(names.indices)]
    own = _mask(pc.equal(table["source"], "environment"))
    bare = _mask(pc.equal(table["payload"], "{}"))
    named = _mask(pc.match_substring(table["payload"], '"by"')) | _mask(pc.equal(table["source"], "person"))
    valued = _mask(pc.is_valid(table["value"]))
    kinds[(kinds == REWARD) & ~(bare & valued)] = OTHER
    kinds[(kinds == REWARD) & ~own] = RATING
    kinds[(kinds == BEGINNING) & named] = OTHER
    return kinds


def _mask(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = pc.fill_null(values, False).to_numpy()
    return mask


def _whole(column: pa.ChunkedArray) -> Integers:
    if column.null_count:
        raise ValueError("A number is missing.")
    numbers: Integers = column.to_numpy()
    return numbers


def _coded(column: pa.ChunkedArray) -> Any:
    """A column of texts as one array of numbers that stand for them. Raises `ValueError` where a text is missing."""
    if column.null_count:
        raise ValueError("A text is missing.")
    return pa.chunked_array(column.chunks, column.type).combine_chunks().dictionary_encode()


def _numbers(indices: Any) -> Integers:
    numbers: Integers = indices.to_numpy(zero_copy_only=False)
    return numbers


def _offsets(lists: pa.ChunkedArray) -> Integers:
    """Where the list of each row begins among all of them, and where the last one ends."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
