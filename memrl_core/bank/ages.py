"""How old memories are, row by row; what came as columns stays so until it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

Age = tuple[int, str, int]
"""Where a memory stands in the order of age: `seq` and id of the event that brought it in, and its place in that."""
MADE_ONE_BY_ONE = 100


class UnreadAges(Protocol):
    """The ages of the first rows."""

    def __len__(self) -> int:
        """How many rows there are."""

    def __getitem__(self, row: int) -> Age | None:
        """The age of one row; None for a memory that came into no run."""

    def all(self) -> list[Age | None]:
        """The ages of all rows."""

    def are_in_order(self) -> bool:
        """Whether it is certain, without looking at each, that all have an age and every row is older than the next."""


class Ages:
    """The ages of the rows of a mirror, None for memories without one."""

    def __init__(self, later: Iterable[Age | None] = (), unread: UnreadAges | None = None) -> None:
        self._unread = unread
        self._begun = 0 if unread is None else len(unread)
        self._changed: dict[int, Age | None] = {}
        self._later = list(later)

    def __len__(self) -> int:
        return self._begun + len(self._later)

    def __getitem__(self, row: int) -> Age | None:
        if row >= self._begun:
            return self._later[row - self._begun]
        if row in self._changed or self._unread is None:
            return self._changed[row]
        return self._unread[row]

    def __setitem__(self, row: int, age: Age | None) -> None:
        if row >= self._begun:
            self._later[row - self._begun] = age
        else:
            self._changed[row] = age

    def append(self, age: Age | None) -> None:
        """Add a row."""
        self._later.append(age)

    def since(self, row: int) -> list[Age | None]:
        """The ages from a row on."""
        if row >= self._begun or self._unread is None:
            return self._later[row - self._begun :]
        if self._begun - row <= MADE_ONE_BY_ONE:
            return [*(self[one] for one in range(row, self._begun)), *self._later]
        begun = self._unread.all()
        for changed, age in self._changed.items():
            begun[changed] = age
        return [*begun[row:], *self._later]

    def are_in_order(self, first: int) -> bool:
        """Whether each row from `first` on is older than the next, and than the last one before with an age."""
        only_unread = self._unread if not (first or self._changed or self._later) else None
        if only_unread is not None and only_unread.are_in_order():
            return True
        while first and self[first - 1] is None:
            first -= 1
        ages = [age for age in self.since(max(0, first - 1)) if age is not None]
        return all(older < younger for older, younger in pairwise(ages))


def by_age(ids: Sequence[str], ages: Sequence[Age | None]) -> list[int]:
    """The positions of memories, the oldest first; those without an age, by their ids, before all others."""
    return sorted(range(len(ids)), key=lambda at: (ages[at] is not None, ages[at] or (0, ids[at], 0)))
