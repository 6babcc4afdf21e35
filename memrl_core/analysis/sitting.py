"""One person's way through a queue of steps: an order that stays as it was when they sat down."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

from memrl_core.analysis.rating_queue import Progress, progress

TOO_SOON = 0.3
"""Seconds after an output has come up within which nobody can have read it: a key that was held, or hit twice."""

Place = Hashable
"""What is rated at once: a step, as (run, number), or a pair of steps."""


@dataclass
class Sitting:
    """A queue that one person goes through.

    `at` is the position looked at, `len(places)` when the end is reached. `rated` is what was rated in this sitting and
    when; `skipped` comes again when nothing else is left; `closed` needs no rating any more, since others gave theirs.
    """

    places: tuple[Place, ...]
    at: int = 0
    rated: dict[Place, datetime] = field(default_factory=dict)
    skipped: set[Place] = field(default_factory=set)
    closed: set[Place] = field(default_factory=set)
    _shown: tuple[Place, float] | None = None

    @property
    def place(self) -> Place | None:
        """What is looked at; None at the end."""
        return self.places[self.at] if self.at < len(self.places) else None

    @property
    def progress(self) -> Progress:
        """How far the person is."""
        remaining = len(self.places) - len(self.closed.union(self.rated))
        return progress(list(self.rated.values()), remaining, len(self.rated))

    def shows(self, clock: float) -> None:
        """Note that what is looked at has come up at `clock`, in seconds of a clock that only runs forward."""
        if self.place is not None and (self._shown is None or self._shown[0] != self.place):
            self._shown = self.place, clock

    def too_soon(self, place: Place, clock: float) -> bool:
        """Whether `place` came up less than `TOO_SOON` ago."""
        return self._shown is not None and self._shown[0] == place and clock - self._shown[1] < TOO_SOON

    def has_rated(self, place: Place, when: datetime) -> None:
        """Note a rating, and go on if it is of what is looked at: a click that arrives twice goes on once."""
        self.rated.setdefault(place, when)
        self.skipped.discard(place)
        if place == self.place:
            self._go_on()

    def skip(self) -> None:
        """Leave what is looked at for later."""
        if self.place is not None:
            self.skipped.add(self.place)
            self._go_on()

    def move(self, steps: int) -> None:
        """Look at another one, rated or not."""
        self.at = min(max(self.at + steps, 0), max(len(self.places) - 1, 0))

    def go_to(self, place: Place) -> None:
        """Look at one; what is not in the queue is put in before the one looked at."""
        if place not in self.places:
            self.places = (*self.places[: self.at], place, *self.places[self.at :])
        self.at = self.places.index(place)

    def take_back(self, place: Place) -> None:
        """Note that the rating of one was undone, and look at it."""
        self.rated.pop(place, None)
        self.closed.discard(place)
        self.go_to(place)

    def follow(self, waiting: Sequence[Place]) -> int:
        """Take in what waits now that others have rated, and say how many are new; those are added at the end.

        Who was through looks at the first that waits again.
        """
        known, wait = set(self.places), set(waiting)
        self.closed = {place for place in self.places if place not in wait and place not in self.rated}
        new = tuple(place for place in waiting if place not in known)
        self.places += new
        if self.place is None:
            self._go_on()
        return len(new)

    def _go_on(self) -> None:
        order = chain(range(self.at + 1, len(self.places)), range(min(self.at + 1, len(self.places))))
        waiting = (i for i in order if self.places[i] not in self.rated and self.places[i] not in self.closed)
        first_skipped = None
        for position in waiting:
            if self.places[position] not in self.skipped:
                self.at = position
                return
            first_skipped = position if first_skipped is None else first_skipped
        self.at = len(self.places) if first_skipped is None else first_skipped
