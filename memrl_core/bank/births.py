"""The events by which memories came into runs, and how old the memories are by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memrl_core.bank.ages import Age, UnreadAges
from memrl_core.bank.unread import Integers, UnreadLedger

Birth = tuple[str, Age]
"""A run, and the age of a memory by the event that brought it into that run."""


class Births:
    """The births of every memory; those in an unread ledger stay columns where a memory has no other."""

    def __init__(self) -> None:
        self._made: dict[str, list[Birth]] = {}
        self._ledger: UnreadLedger | None = None
        self._positions: Mapping[str, int] = {}
        self._rows: Integers = np.zeros(0, np.int64)
        self._places: Integers = np.zeros(0, np.int64)

    def begin_with(self, ledger: UnreadLedger) -> None:
        """Begin with what the columns of a ledger say; births that were added before are in its other rows."""
        self._ledger = ledger

    def add(self, memory_id: str, run: str, age: Age) -> None:
        """Note that a memory came into a run."""
        is_laid_out = self._ledger is None or bool(self._positions)
        if memory_id not in self._made:
            # Until memories are there, what the columns say of them is added by whoever asks first.
            self._made[memory_id] = self._of(memory_id) if is_laid_out else []
        self._made[memory_id].append((run, age))

    def age(self, memory_id: str, its_run: str) -> Age | None:
        """When a memory came into the run that it is from, or into any where that one is not here; None if into none.

        Its own run decides because the clocks of other banks, from which runs may come later, are not this bank's.
        """
        births = self._of(memory_id)
        own = [age for run, age in births if run == its_run]
        return min(own or (age for _, age in births), default=None)

    def ages(self, positions: Mapping[str, int], ids: pa.Array, runs: Sequence[str]) -> UnreadAges:
        """`age` of many memories, whose ids (n,) are those of `positions` in its order, with the run of each.

        `positions` may grow by others later.
        """
        ledger = self._ledger
        if ledger is None or self._positions or not positions:
            every = {row: self.age(*one) for row, one in enumerate(zip(positions, runs, strict=True))}
            return AgesInLedger(None, np.full(len(every), -1), np.zeros(len(every), np.int64), every)
        rows, places, memory_ids = ledger.begun()
        if memory_ids.equals(ids):
            at = np.arange(len(ids))
        else:
            at = pc.fill_null(pc.index_in(memory_ids, value_set=ids), -1).to_numpy(zero_copy_only=False)
        one_of_many = np.bincount(at[at >= 0], minlength=len(ids)) != 1
        one_of_many[[positions[memory_id] for memory_id in self._made if memory_id in positions]] = True
        several = (at < 0) | one_of_many[at]
        for number in np.flatnonzero(several).tolist():
            birth = ledger.birth(int(rows[number]), int(places[number]))
            self._made.setdefault(memory_ids[number].as_py(), []).append(birth)
        self._positions, self._rows, self._places = positions, np.full(len(ids), -1), np.zeros(len(ids), np.int64)
        self._rows[at[~several]], self._places[at[~several]] = rows[~several], places[~several]
        several_births = np.flatnonzero(self._rows < 0).tolist()
        made = {position: self.age(ids[position].as_py(), runs[position]) for position in several_births}
        return AgesInLedger(ledger, self._rows, self._places, made)

    def _of(self, memory_id: str) -> list[Birth]:
        if self._ledger is not None and not self._positions:
            self._make_all(self._ledger)
        if memory_id in self._made:
            return self._made[memory_id]
        at = self._positions.get(memory_id, len(self._rows))
        if self._ledger is None or at >= len(self._rows) or self._rows[at] < 0:
            return []
        return [self._ledger.birth(int(self._rows[at]), int(self._places[at]))]

    def _make_all(self, ledger: UnreadLedger) -> None:
        rows, places, memory_ids = ledger.begun()
        for memory_id, row, place in zip(memory_ids.to_pylist(), rows.tolist(), places.tolist(), strict=True):
            self._made.setdefault(memory_id, []).append(ledger.birth(row, place))
        self._ledger = None


class AgesInLedger:
    """The ages of memories by the rows of a ledger (n,) that brought them in, and their places (n,) in these.

    `made` holds the ages of those with -1 for a row.
    """

    def __init__(
        self, ledger: UnreadLedger | None, rows: Integers, places: Integers, made: Mapping[int, Age | None]
    ) -> None:
        self._ledger = ledger
        self._rows = rows
        self._places = places
        self._made = made

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Age | None:
        if self._ledger is None or self._rows[row] < 0:
            return self._made[row]
        return self._ledger.birth(int(self._rows[row]), int(self._places[row]))[1]

    def all(self) -> list[Age | None]:
        """The ages of all memories."""
        ages: list[Age | None] = (
            [None] * len(self) if self._ledger is None else self._ledger.ages(self._rows, self._places)
        )
        for row, age in self._made.items():
            ages[row] = age
        return ages

    def are_in_order(self) -> bool:
        """Whether the columns alone say that each is older than the next; events of one time are told apart by id."""
        if self._ledger is None or self._made:
            return False
        later = np.diff(self._ledger.seq[self._rows]) > 0
        same_event = (np.diff(self._rows) == 0) & (np.diff(self._places) > 0)
        return bool((later | same_event).all())
