"""What one run sees of a bank at one moment, as arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.records import Memory

Vectors = npt.NDArray[np.float32]
LEAST_PART = 16_384
"""Vectors that each part has where there are so many: with many small parts, a product takes twice the time."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What memory is asked for: by a task as it begins (`turn` 0), or by a later turn of its episode.

    `embedding` (d,) is the unit vector of the policy's key, most often of the intent. `task` is the task's id and
    `step` the number of the step, for rules that go by them; what only the environment may know of a task, its family
    and data, is not here. `observation` is what the environment said last. `answers` holds what the model said when the
    policy consulted it before selecting. `seed` is the step's: it draws among equally similar memories in phase A, as
    it does among equals in phase B.
    """

    embedding: npt.NDArray[np.float32]
    task: str = ""
    intent: str = ""
    observation: str = ""
    turn: int = 0
    step: int = 0
    answers: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


class Embeddings:
    """Unit vectors (n, d) in float32 arrays one after another: of many, neither reading nor adding copies the rest.

    It has what a policy needs of an array: `shape`, `@`, and rows by number, slice, positions or mask, which are copies
    unless one number or a slice is asked for. `numpy.asarray` gives them all as one array.
    """

    def __init__(self, parts: Iterable[Vectors], dimension: int) -> None:
        """`parts` are arrays (m, dimension), kept as they are."""
        self._parts = [part for part in parts if len(part)]
        self._ends = [*accumulate(map(len, self._parts))]
        self._dimension = dimension
        self._room, self._used = np.zeros((0, dimension), np.float32), 0

    @property
    def shape(self) -> tuple[int, int]:
        """n and d."""
        return len(self), self._dimension

    def append(self, vector: Vectors) -> None:
        """Add a vector (d,) behind all others; slices that were made before stay as they are."""
        if self._used == len(self._room):
            self._make_room()
        self._room[self._used] = vector
        self._used += 1
        self._parts[-1] = self._room[: self._used]
        self._ends[-1] += 1

    def _make_room(self) -> None:
        """A part with room for more: the only one where there are few vectors, or one behind the others."""
        n, there = len(self), list[Vectors]()
        if n < LEAST_PART:
            self._room, self._used = np.empty((max(64, 2 * n), self._dimension), np.float32), n
            self._room[:n] = self
        else:
            self._room, self._used = np.empty((LEAST_PART, self._dimension), np.float32), 0
            there = self._parts
        self._parts = [*there, self._room[: self._used]]
        self._ends = [*accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Vectors]:
        return chain.from_iterable(self._parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        whole = np.concatenate([np.zeros((0, self._dimension), np.float32), *self._parts])
        return whole if dtype is None else whole.astype(dtype)

    def __matmul__(self, other: Vectors) -> Vectors:
        if len(self._parts) == 1:
            found: Vectors = self._parts[0] @ other
            return found
        return np.concatenate([np.zeros((0, *other.shape[1:]), np.float32), *(part @ other for part in self._parts)])

    def products(self, queries: Vectors) -> Vectors:
        """The products of many queries (m, d) with all vectors (m, n), those of a query side by side."""
        found = np.empty((len(queries), len(self)), np.float32)
        for part, end in zip(self._parts, self._ends, strict=True):
            np.matmul(queries, part.T, out=found[:, end - len(part) : end])
        return found

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            if step != 1:
                return self[np.arange(first, last, step)]
            parts = zip(self._parts, [0, *self._ends], strict=False)
            own = (part[max(0, first - start) : max(0, last - start)] for part, start in parts)
            return Embeddings(own, self._dimension)
        rows = np.asarray(key)
        if rows.ndim == 0:
            row = range(len(self))[key]
            at = bisect_right(self._ends, row)
            return self._parts[at][row - self._ends[at]]
        if rows.dtype == bool or not rows.size:
            rows = np.flatnonzero(rows)
        if len(self._parts) == 1:
            return self._parts[0].take(rows, axis=0)
        rows = np.where(rows < 0, rows + len(self), rows)
        found, part_of = np.empty((len(rows), self._dimension), np.float32), np.searchsorted(self._ends, rows, "right")
        for at in np.unique(part_of):
            # Counted from its end, so that no row beyond the last part is taken for one of them.
            found[part_of == at] = self._parts[at][rows[part_of == at] - self._ends[at]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class MemoryView:
    """The memories of a run in age order (oldest first), with what the run believes of them.

    `ids` (n,); `embeddings` (n, d) float32 unit vectors, of a bank's view its own without a copy; `q` (n,) float64;
    `visits` (n,) int64; `intent_groups` (n,) int64, equal where memories count as one intent; `visible` (n,) bool is
    False for rows of other runs that lie between this run's own, None when all rows are the run's.
    `rows` maps a memory's id to its row in the whole mirror, of which this view begins at `first_row`. `memories` holds
    the texts of at least these memories by id. `asked` is what memory is asked for and `learned` what the policy has
    learned beyond q; both are there when a policy decides.
    """

    ids: Sequence[str]
    embeddings: Vectors | Embeddings
    q: npt.NDArray[np.float64]
    visits: npt.NDArray[np.int64]
    intent_groups: npt.NDArray[np.int64]
    rows: Mapping[str, int]
    first_row: int = 0
    visible: npt.NDArray[np.bool_] | None = None
    memories: Mapping[str, Memory] = field(default_factory=dict)
    asked: Asked | None = None
    learned: Any = None

    @property
    def size(self) -> int:
        """How many memories the run sees."""
        return len(self.ids) if self.visible is None else int(np.count_nonzero(self.visible))

    def only(self, ids: Collection[str]) -> MemoryView:
        """The same view, in which of its memories those of `ids` alone can be seen."""
        wanted = set(ids)
        named = np.fromiter((one in wanted for one in self.ids), dtype=np.bool_, count=len(self.ids))
        return replace(self, visible=named if self.visible is None else named & self.visible)

    @property
    def answers(self) -> Mapping[str, Any]:
        """What the model said when the policy consulted it, by purpose; nothing where nobody asks."""
        return {} if self.asked is None else self.asked.answers

    def position(self, memory_id: str) -> int:
        """Where in this view's arrays the memory stands; raises `KeyError` for an unknown id."""
        return self.rows[memory_id] - self.first_row

    def positions_of(self, memory_ids: Iterable[str]) -> npt.NDArray[np.int64]:
        """Where in this view's arrays these memories stand (n,); raises `KeyError` for an unknown id."""
        rows = self.rows
        return np.array([rows[memory_id] for memory_id in memory_ids], dtype=np.int64) - self.first_row

    def products(self, queries: Vectors) -> Vectors:
        """The float32 products of many queries (m, d) with all embeddings (m, n), those of a query side by side."""
        if isinstance(self.embeddings, Embeddings):
            return self.embeddings.products(queries)
        return queries @ self.embeddings.T

    def sees(self, memory_id: str) -> bool:
        """Whether the run sees the memory."""
        position = self.rows.get(memory_id, -1) - self.first_row
        return 0 <= position < len(self.ids) and (self.visible is None or bool(self.visible[position]))

    def positions(self) -> npt.NDArray[np.int64]:
        """Where in the arrays the run's memories stand, oldest first."""
        return np.arange(len(self.ids)) if self.visible is None else np.flatnonzero(self.visible)
