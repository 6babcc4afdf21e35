"""How every q of a run came about, kept short until somebody reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from memrl_core.records import RewardSource, Utility, UtilityPoint


@dataclass(frozen=True, slots=True)
class Earned:
    """One reward as it moves q; `raters` are the people whose rewards are in it."""

    value: float
    source: RewardSource
    raters: tuple[str, ...] = ()


Short = tuple[int, Utility, list[Any]]
"""The step at which a memory began, what was believed then, and of each move its step, its reward and the result."""


class Histories(MutableMapping[str, list[UtilityPoint]]):
    """The entries of each memory by its id, made when they are asked for: most of a long run's never are.

    Those of the ids in `stored` are read by `read` when they are first needed. `changed` says of each memory whose
    entries are not all stored how many of its first ones are.
    """

    def __init__(
        self,
        stored: Iterable[str] = (),
        read: Callable[[Iterable[str] | None], Mapping[str, list[UtilityPoint]]] | None = None,
    ) -> None:
        self._kept: dict[str, list[UtilityPoint] | Short | None] = dict.fromkeys(stored)
        self._read = read
        self.changed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self._kept

    def __getitem__(self, memory_id: str) -> list[UtilityPoint]:
        kept = self._kept[memory_id]
        if kept is None:
            assert self._read is not None
            kept = self._kept[memory_id] = self._read([memory_id]).get(memory_id, [])
        elif isinstance(kept, tuple):
            kept = self._kept[memory_id] = _entries(memory_id, kept)
        return kept

    def __setitem__(self, memory_id: str, points: list[UtilityPoint]) -> None:
        self._kept[memory_id] = points
        self.changed[memory_id] = 0

    def __delitem__(self, memory_id: str) -> None:
        del self._kept[memory_id]

    def __repr__(self) -> str:
        return repr(dict(self))

    def read(self, memory_ids: Iterable[str] | None = None) -> None:
        """Read what of these, or of all, is stored and was not read yet, in one go."""
        wanted = self._kept if memory_ids is None else self._kept.keys() & memory_ids
        missing = [memory_id for memory_id in wanted if self._kept[memory_id] is None]
        if self._read is not None and missing:
            found = self._read(None if memory_ids is None else missing)
            self._kept.update((memory_id, found[memory_id]) for memory_id in missing if memory_id in found)

    def begin(self, memory_id: str, step: int, believed: Utility) -> None:
        """Begin the history of a memory, anew if it has one."""
        self._kept[memory_id] = (step, believed, [])
        self.changed[memory_id] = 0

    def move(self, memory_id: str, step: int, reward: Earned, before: float, after: Utility) -> None:
        """Add a move of the memory's q, which was `before`."""
        kept = self._kept[memory_id]
        if isinstance(kept, tuple):
            self.changed.setdefault(memory_id, 1 + len(kept[2]) // 3)
            kept[2].extend((step, reward, after))
            return
        points = self[memory_id]
        self.changed.setdefault(memory_id, len(points))
        points.append(moved(memory_id, step, before, after, reward))

    def copied(self) -> Histories:
        """The same, which can grow without changing these."""
        self.read()
        other = Histories()
        for memory_id, kept in self._kept.items():
            if isinstance(kept, tuple):
                other._kept[memory_id] = (kept[0], kept[1], list(kept[2]))
            else:
                other._kept[memory_id] = list(self[memory_id])
        return other


def beginning(memory_id: str, step: int, believed: Utility) -> UtilityPoint:
    """The first entry of a memory."""
    return UtilityPoint(memory_id, step, None, believed.q, believed.visits, None, None, ())


def moved(memory_id: str, step: int, before: float, after: Utility, reward: Earned) -> UtilityPoint:
    """The entry of a move by a reward."""
    return UtilityPoint(memory_id, step, before, after.q, after.visits, reward.value, reward.source, reward.raters)


def _entries(memory_id: str, short: Short) -> list[UtilityPoint]:
    step, believed, moves = short
    points = [beginning(memory_id, step, believed)]
    for at in range(0, len(moves), 3):
        points.append(moved(memory_id, moves[at], points[-1].after, moves[at + 2], moves[at + 1]))
    return points
