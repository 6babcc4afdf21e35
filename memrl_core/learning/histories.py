"""How every q of a run came about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from memrl_core.records import RewardSource, Utility, UtilityPoint


@dataclass(frozen=True, slots=True)
class Earned:
    """One reward as it moves q; `raters` are the people whose rewards are in it."""

    value: float
    source: RewardSource
    raters: tuple[str, ...] = ()


class Histories(Mapping[str, list[UtilityPoint]]):
    """The entries of each memory by its id.

    Those of the ids in `stored` are read by `read` when they are first needed: most of a long run's never are.
    `changed` says of each memory whose entries are not all stored how many of its first ones are.
    """

    def __init__(
        self,
        stored: Iterable[str] = (),
        read: Callable[[Iterable[str] | None], Mapping[str, list[UtilityPoint]]] | None = None,
    ) -> None:
        self._kept: dict[str, list[UtilityPoint] | None] = dict.fromkeys(stored)
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
        return kept

    def __setitem__(self, memory_id: str, points: list[UtilityPoint]) -> None:
        self._kept[memory_id] = points
        self.changed[memory_id] = 0

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
        self[memory_id] = [beginning(memory_id, step, believed)]

    def move(self, memory_id: str, step: int, reward: Earned, before: float, after: Utility) -> None:
        """Add a move of the memory's q, which was `before`."""
        points = self[memory_id]
        self.changed.setdefault(memory_id, len(points))
        points.append(moved(memory_id, step, before, after, reward))

    def copied(self) -> Histories:
        """The same, which can grow without changing these."""
        self.read()
        other = Histories()
        other._kept = {memory_id: list(self[memory_id]) for memory_id in self}
        return other


def beginning(memory_id: str, step: int, believed: Utility) -> UtilityPoint:
    """The first entry of a memory."""
    return UtilityPoint(memory_id, step, None, believed.q, believed.visits, None, None, ())


def moved(memory_id: str, step: int, before: float, after: Utility, reward: Earned) -> UtilityPoint:
    """The entry of a move by a reward."""
    return UtilityPoint(memory_id, step, before, after.q, after.visits, reward.value, reward.source, reward.raters)
