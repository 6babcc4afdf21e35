"""The bank's embeddings in memory, and what each run believes of them, ready for one matrix product."""

from __future__ import annotations

import gc
import threading
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.bank.ages import Age, Ages, UnreadAges, by_age
from memrl_core.bank.unread import UnreadRun
from memrl_core.errors import InputError
from memrl_core.learning import CHANGES_MEMORIES, REWARDING, Fold, by_step, order_key, unmoved
from memrl_core.records import EventKind, LedgerEvent, Memory, Utility
from memrl_core.retrieval.view import MemoryView

UNIT_TOLERANCE = 1e-3
MUCH = 50_000
LEFT_TO_PYTHON = 5_000
"""So many rows of a closed bank take little memory until Python looks for garbage by itself."""
SPARE = 8
"""A bank that is opened has room for an eighth more memories before its matrix has to grow."""
MOVES_NOTHING = (
    EventKind.NOTE_PINNED,
    EventKind.NOTE_REMOVED,
    EventKind.ENVIRONMENT_CHANGED,
    EventKind.SCALES_CHANGED,
    EventKind.ROLE_ASSIGNED,
)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Within it, nothing is looked through for garbage: all that is read stays, and looking takes half as long.

    What is much is not looked through later either, until `gc.unfreeze`: each full collection would take seconds.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MUCH:
            gc.freeze()
        if was_enabled:
            gc.enable()


_left_behind = threading.Event()


def was_closed(rows: int) -> None:
    """Note that a bank of so many rows was closed, so that it is freed before the next one is read."""
    gc.unfreeze()
    if rows > LEFT_TO_PYTHON:
        _left_behind.set()


def free_closed() -> None:
    """Free banks that were closed since the last call.

    Their parts refer to each other, so that only a full collection finds them, and columns are too few objects to bring
    one about: without this, every bank that was ever opened would stay in memory.
    """
    if _left_behind.is_set():
        _left_behind.clear()
        gc.collect()


class Mirror:
    """All embeddings of a bank as one float32 matrix, grown by doubling; its rows are put in the order of age.

    A memory without an age, which no run can see, stays where it arrived until others are moved.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._matrix = np.zeros((64, dimension), dtype=np.float32)
        self._groups = np.zeros(64, dtype=np.int64)
        self._ages = Ages()
        self._in_order = 0

    def __len__(self) -> int:
        return len(self.ids)

    def checked(self, vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """`vector` (d,) if it can be stored; raises `InputError` when it is not a finite unit vector of this size."""
        if vector.shape != (self.dimension,):
            raise InputError(
                f"An embedding of {vector.size} numbers does not fit a bank of {self.dimension}. Nothing was stored."
            )
        if not np.isfinite(vector).all() or abs(float(np.linalg.norm(vector)) - 1) > UNIT_TOLERANCE:
            raise InputError("An embedding is not a finite vector of length 1. Nothing was stored.")
        return vector.astype(np.float32)

    def append(self, ids: Sequence[str], keys: Sequence[str], vectors: npt.NDArray[np.float32]) -> None:
        """Add memories that are not there yet: vectors (n, d); ids that are there already are passed over."""
        needed = len(self.ids) + len(ids)
        if needed > len(self._matrix):
            self._matrix = _grown(self._matrix, max(needed, 2 * len(self._matrix)))
        if needed > len(self._groups):
            self._groups = _grown(self._groups, max(needed, 2 * len(self._groups)))
        for memory_id, key, vector in zip(ids, keys, vectors, strict=True):
            if memory_id in self.rows:
                continue
            row = len(self.ids)
            self._matrix[row] = vector
            self._groups[row] = self._keys.setdefault(key, len(self._keys))
            self.rows[memory_id] = row
            self.ids.append(memory_id)
            self._ages.append(None)

    def begin_with(
        self,
        rows: dict[str, int],
        groups: npt.NDArray[np.int64],
        keys: Sequence[str],
        ages: UnreadAges,
        vectors: npt.NDArray[np.float32],
    ) -> None:
        """Put the first memories in: their ids with their `rows`, their intents' numbers (n,) among `keys`, their ages.

        `vectors` (at least n, d) becomes the matrix: they are there once. What is given is changed from now on.
        """
        self.ids, self.rows = list(rows), rows
        self._matrix = vectors
        self._keys = dict(zip(keys, range(len(keys)), strict=True))
        self._groups = with_room((len(rows),), np.int64)
        self._groups[: len(rows)] = groups
        self._ages, self._in_order = Ages(unread=ages), 0
        self.put_in_order()

    def date(self, memory_id: str, age: Age) -> None:
        """Note how old a memory is; raises `KeyError` for an unknown id."""
        row = self.rows[memory_id]
        if self._ages[row] != age:
            self._ages[row] = age
            self._in_order = min(self._in_order, row)

    def put_in_order(self) -> None:
        """Move the rows where a memory came after younger ones, into new arrays: a view in use keeps the old."""
        if self._in_order < len(self.ids) and not self._ages.are_in_order(self._in_order):
            self._move(self._ages.since(0))
        self._in_order = len(self.ids)

    def _move(self, ages: Sequence[Age | None]) -> None:
        order = by_age(self.ids, ages)
        self._matrix = _grown(self._matrix[order], len(self._matrix))
        self._groups = _grown(self._groups[order], len(self._groups))
        self._ages = Ages(ages[row] for row in order)
        self.ids = [self.ids[row] for row in order]
        self.rows = {memory_id: row for row, memory_id in enumerate(self.ids)}

    def embedding(self, memory_id: str) -> npt.NDArray[np.float32]:
        """A copy of the memory's vector (d,); raises `KeyError` for an unknown id."""
        copy: npt.NDArray[np.float32] = self._matrix[self.rows[memory_id]].copy()
        return copy

    def view(self, fold: Fold) -> MemoryView:
        """The memories of a fold as arrays: a slice of the matrix, with a mask where other runs' rows lie between."""
        self.put_in_order()
        rows = np.fromiter(
            (self.rows[memory_id] for memory_id in fold.utilities), dtype=np.int64, count=len(fold.utilities)
        )
        if len(rows) == 0:
            return MemoryView(
                [], self._matrix[:0], np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), self.rows
            )
        first, last = int(rows.min()), int(rows.max()) + 1
        q, visits = np.zeros(last - first), np.zeros(last - first, dtype=np.int64)
        q[rows - first] = [utility.q for utility in fold.utilities.values()]
        visits[rows - first] = [utility.visits for utility in fold.utilities.values()]
        visible = None
        if last - first != len(rows):
            visible = np.zeros(last - first, dtype=bool)
            visible[rows - first] = True
        return MemoryView(
            ids=self.ids[first:last],
            embeddings=self._matrix[first:last],
            q=q,
            visits=visits,
            intent_groups=self._groups[first:last],
            rows=self.rows,
            first_row=first,
            visible=visible,
        )

    def changed(self, view: MemoryView, fold: Fold, moved: Collection[str]) -> MemoryView:
        """What `view` has become when the fold that it shows holds other beliefs of the memories that have `moved`.

        It is `view(fold)` at the cost of copying three arrays; rows that are gone at either end may still be in it.
        """
        self.put_in_order()
        at = sorted(self.rows.get(memory_id, -1) for memory_id in moved)
        first, last = view.first_row, view.first_row + len(view.ids)
        if first == last or view.rows is not self.rows or at[0] < first:
            return self.view(fold)
        last = max(last, at[-1] + 1)
        more = last - first - len(view.ids)
        q, visits = np.append(view.q, np.zeros(more)), np.append(view.visits, np.zeros(more, np.int64))
        visible = np.ones(len(view.ids), dtype=bool) if view.visible is None else view.visible
        visible = np.append(visible, np.zeros(more, dtype=bool))
        for row in at:
            known = fold.utilities.get(self.ids[row])
            visible[row - first] = known is not None
            if known is not None:
                q[row - first], visits[row - first] = known.q, known.visits
        return replace(
            view,
            ids=[*view.ids, *self.ids[last - more : last]],
            embeddings=self._matrix[first:last],
            q=q,
            visits=visits,
            intent_groups=self._groups[first:last],
            visible=None if visible.all() else visible,
        )


class MovingView:
    """A view of a run that follows a fold from step to step: the same arrays, changed in place."""

    def __init__(self, mirror: Mirror, last: Fold, memories: Mapping[str, Memory]) -> None:
        """`last` is the fold of the newest step that will be shown: what it ever knew decides the range of rows."""
        self._ever = last.histories.keys()
        whole = mirror.view(Fold(unmoved, utilities=dict.fromkeys(self._ever, Utility(0.0, 0))))
        n = len(whole.ids)
        self.view = replace(
            whole,
            q=np.zeros(n),
            visits=np.zeros(n, np.int64),
            visible=np.zeros(n, dtype=bool),
            memories=memories,
        )

    def follow(self, fold: Fold, changed: Collection[str] | None) -> MemoryView:
        """The view of `fold`, in which only `changed` differ from before (None: all may)."""
        view = self.view
        assert view.visible is not None
        if changed is None:
            view.visible[:] = False
        for memory_id in fold.utilities if changed is None else changed:
            known = fold.utilities.get(memory_id)
            if memory_id not in self._ever:
                continue
            position = view.position(memory_id)
            view.visible[position] = known is not None
            if known is not None:
                view.q[position], view.visits[position] = known.q, known.visits
        return view


class RunState:
    """A run's events, and the fold of them up to step `folded_to`; None when all has to be folded anew.

    The first of its events may still be `unread`; `events` and `at` make them. `settings`, `scales` and `descriptions`
    are those that change the run's settings, its scales, and what it was started as. What is not in the fold yet:
    `late` are the steps up to there that rewards have changed since, `appended` what has become of memories after all
    else that the newest of these steps holds, `ahead` the steps after it that hold events of no attempt, which count
    although their step has not ended. `view` is the fold as arrays, None until they are asked for, and `moved` are the
    memories that have changed since. `told_from_outside` counts the rewards, credits and settings that did not come
    from the steps themselves; `told_late` has the newest step that had begun for each that came later than its own.
    """

    def __init__(self, unread: UnreadRun | None = None) -> None:
        self.settings: list[LedgerEvent] = []
        self.scales: list[LedgerEvent] = []
        self.descriptions: list[LedgerEvent] = []
        self.fold: Fold | None = None
        self.late: set[int] = set()
        self.appended: list[LedgerEvent] = []
        self.ahead: set[int] = set()
        self.view: MemoryView | None = None
        self.moved: set[str] = set()
        self.folded_to = 0
        self.last_change = (0, 0, "")
        self.begun = 0
        self.told_from_outside = 0
        self.told_late: list[int] = []
        self._unread = unread
        if unread is not None:
            known_at, steps = unread.ratings_known_at()
            self.told_from_outside = len(steps)
            self.told_late = known_at[known_at > steps].tolist()
        self._events: list[LedgerEvent] = []
        self._at_step: dict[int, list[LedgerEvent]] = {}

    @property
    def events(self) -> list[LedgerEvent]:
        """All events of the run, in the order in which they were taken in."""
        if self._unread is not None:
            self._events[:0] = self._unread.events()
            self._unread = None
            self._at_step = {}
            for event in self._events:
                self._at_step.setdefault(event.step, []).append(event)
        return self._events

    def at(self, step: int) -> list[LedgerEvent]:
        """The events about one step."""
        later = self._at_step.get(step, [])
        return later if self._unread is None else [*self._unread.at(step), *later]

    def attempts(self) -> Iterator[tuple[int, str]]:
        """Step and attempt of every event that belongs to one."""
        if self._unread is not None:
            yield from self._unread.attempts()
        yield from ((event.step, event.step_id) for event in self._events if event.step_id)

    @nothing_collected()
    def folded(self, base: Fold, committed: Container[str], until: int | None = None) -> Fold:
        """`base` and all events that count; with `until`, those that were known when that step had ended."""
        events = [event for event in self._events if event.kind not in MOVES_NOTHING]
        if self._unread is not None and not base.histories and self._unread.comes_before(events):
            base = self._unread.fold(base, committed, until)
        else:
            events = self.events
        return folded(base, [event for event in events if until is None or event.known_at <= until], committed)

    def add(self, event: LedgerEvent) -> None:
        """Take note of an event that has been appended."""
        self._events.append(event)
        self._at_step.setdefault(event.step, []).append(event)
        self.note(event)
        if self.fold is None or event.kind in MOVES_NOTHING:
            return
        if event.step > self.folded_to:
            if _counts_at_once(event):
                self.ahead.add(event.step)
        elif event.kind in REWARDING:
            self.late.add(event.step)
        elif event.kind in CHANGES_MEMORIES and not event.step_id and order_key(event) > self.last_change:
            self.last_change = order_key(event)
            self.appended.append(event)
        else:
            self.fold = None

    def note(self, event: LedgerEvent) -> None:
        """Take note of what an event says of the run as a whole."""
        self.begun = max(self.begun, event.known_at)
        if event.kind is EventKind.SETTINGS_CHANGED or (
            event.kind in REWARDING and not (event.kind is EventKind.REWARD_GIVEN and event.source == "environment")
        ):
            self.told_from_outside += 1
            if event.known_at > event.step:
                self.told_late.append(event.known_at)
        if event.kind is EventKind.SETTINGS_CHANGED:
            self.settings.append(event)
        elif event.kind is EventKind.SCALES_CHANGED:
            self.scales.append(event)
        elif event.kind in (EventKind.RUN_STARTED, EventKind.ENVIRONMENT_CHANGED):
            self.descriptions.append(event)

    def keep(self, fold: Fold, newest: int) -> None:
        """Keep a fold of all that counts now, `newest` being the newest finished step."""
        self.fold = fold
        of_no_attempt = [] if self._unread is None else self._unread.of_no_attempt()
        self.goes_to(*of_no_attempt, *(event.step for event in self._events if _counts_at_once(event)), newest)
        self.view = None
        self.moved.clear()

    def goes_to(self, *steps: int) -> None:
        """Note that the fold holds everything up to the highest of these steps."""
        self.folded_to = max(steps)
        changes = (order_key(e) for e in self.at(self.folded_to) if e.kind in CHANGES_MEMORIES)
        self.last_change = max(changes, default=(self.folded_to, 0, ""))
        self.late.clear()
        self.appended.clear()
        self.ahead.clear()


def _counts_at_once(event: LedgerEvent) -> bool:
    """Whether an event moves or changes a memory even before its step has ended."""
    return not event.step_id and (event.kind in REWARDING or event.kind in CHANGES_MEMORIES)


def folded(base: Fold, events: Sequence[LedgerEvent], committed: Container[str]) -> Fold:
    """`base` and the events that count, step by step."""
    for step, members in sorted(by_step(events, committed.__contains__).items()):
        base.take(step, members)
    return base


def copied(fold: Fold) -> Fold:
    """A fold that can grow without changing `fold`."""
    return replace(
        fold,
        utilities=dict(fold.utilities),
        histories=fold.histories.copied(),
        away=dict(fold.away),
        pinned=set(fold.pinned),
        inherited=dict(fold.inherited),
        origins=dict(fold.origins),
        begun_anew=set(fold.begun_anew),
    )


def with_room(shape: tuple[int, ...], kind: type[np.generic]) -> Any:
    """Zeros for so many rows and the next ones to come; what is not written takes no memory."""
    rows, *rest = shape
    return np.zeros((rows + max(64, rows // SPARE), *rest), dtype=kind)


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    bigger = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    bigger[: len(array)] = array
    return bigger
