"""The q of every run as `q_values` and `q_moves` have it, and as it was."""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import or_, select

from memrl_core.bank.facts import Facts, damage
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.storage.connecting import chunks
from memrl_core.learning import CHANGES_MEMORIES, REWARDING, Fold, by_step, copied, folded
from memrl_core.learning.fold import Origin
from memrl_core.policies import update_rule
from memrl_core.records import EventKind, LedgerEvent, Utility, UtilityPoint
from memrl_core.retrieval.view import MemoryView

PASTS_KEPT = 8
FOLDED = 0.9
"""Up to this part of a run, what was believed is folded: little is to be read there, and much has moved since."""
_VALUES = (
    "SELECT memory_id, q, visits, place, away, pinned, inherited, origin_step, replaced, begun_anew "
    "FROM q_values WHERE run = ?"
)
_MOVED_SINCE = "SELECT DISTINCT memory_id FROM q_moves WHERE run = ? AND step > ?"
_KNOWN_BY = (
    "SELECT (SELECT max(position) FROM ledger WHERE run = ? AND known_at <= ?), "
    "(SELECT count(*) FROM steps WHERE run = ? AND step <= ?)"
)
_NAMED = "SELECT 1 FROM q_values WHERE run = ? AND memory_id IN"
_LEDGER = schema.ledger.c
_WRITES = frozenset({EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED})
_HIDES_NOTHING = frozenset({EventKind.MEMORY_PINNED, EventKind.MEMORY_UNPINNED})


def _changes_what_was(event: LedgerEvent, step: int) -> bool:
    """Whether, of an event since `step`, the tables no longer tell what the run saw before it."""
    if event.step <= step and event.kind in (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED, *_WRITES):
        return True
    return event.kind in CHANGES_MEMORIES - _WRITES - _HIDES_NOTHING


class Utilities:
    """q and visits by (run, memory), read from the tables and written to them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._pasts: OrderedDict[tuple[str, int, tuple[int | None, ...]], Fold] = OrderedDict()

    # --- as the tables have them --------------------------------------------------------------------------------------

    def known(self, run: str, memory_ids: Iterable[str] | None = None) -> Fold:
        """What the run believes now of all memories, or of those of `memory_ids` that it knows; without histories.

        Raises `UnknownRun`.
        """
        return self.read(run, memory_ids)[0]

    def now(self, run: str) -> Fold:
        """What the run believes now, without histories: read once until it changes, and not to be changed.

        Raises `UnknownRun`.
        """
        kept = self._facts.of(run)
        if kept.now is None:
            kept.now = replace(self.known(run), histories={})
        return kept.now

    def read(self, run: str, memory_ids: Iterable[str] | None = None, among: str = "") -> tuple[Fold, dict[str, int]]:
        """The same, with the position of each memory in the order of the run's histories; `among` is a condition."""
        fold, positions = Fold(update_rule(self._facts.run(run).policy)), {}
        for row in self.rows(f"{_VALUES} {among}", run, memory_ids, itemgetter(3)):
            memory_id, q, visits, position, away, pinned, inherited, origin_step, replaced, begun_anew = row
            (fold.away if away else fold.utilities)[memory_id] = Utility(q, visits)
            positions[memory_id] = position
            fold.histories[memory_id] = []
            if pinned:
                fold.pinned.add(memory_id)
            if inherited:
                fold.inherited[memory_id] = inherited
            if begun_anew:
                fold.begun_anew.add(memory_id)
            if origin_step is not None:
                fold.origins[memory_id] = Origin(origin_step, tuple(json.loads(replaced)))
        fold.origins = dict(sorted(fold.origins.items(), key=lambda item: item[1].step))
        return fold, positions

    def ever_known(self, run: str) -> list[str]:
        """The ids of all memories that the run sees or has seen."""
        return [i for (i,) in self._facts.database.raw("SELECT memory_id FROM q_values WHERE run = ?", (run,))]

    def histories(self, run: str, memory_ids: Iterable[str] | None = None) -> dict[str, list[UtilityPoint]]:
        """How every q of the run came about, or that of those of `memory_ids` that it has ever known."""
        self._facts.run(run)
        in_order = "SELECT memory_id, place FROM q_values WHERE run = ?"
        wanted = None if memory_ids is None else set(memory_ids)
        found: dict[str, list[UtilityPoint]] = {i: [] for i, _ in self.rows(in_order, run, wanted, itemgetter(1))}
        with self._facts.readable():
            for row in self.rows(codec.MOVES, run, wanted, None, "ORDER BY memory_id, number"):
                if row[0] in found:
                    found[row[0]].append(codec.move_of(row))
        return found

    def rows(
        self,
        query: str,
        run: str,
        memory_ids: Iterable[str] | None,
        key: Callable[[Any], Any] | None,
        end: str = "",
    ) -> Iterable[Any]:
        raw = self._facts.database.raw
        if memory_ids is None:
            found = raw(f"{query} {end}", (run,))
        else:
            found = []
            for ids in chunks(memory_ids):
                found += raw(f"{query} AND memory_id IN ({', '.join('?' * len(ids))}) {end}", (run, *ids))
        return found if key is None else sorted(found, key=key)

    def followed(self, run: str) -> tuple[int, int]:
        """How many entries of a run are by a reward, and how many of these moved q."""
        query = "SELECT before <> after, count(*) FROM q_moves WHERE run = ? AND reward IS NOT NULL GROUP BY 1"
        counts = {bool(moved): int(count) for moved, count in self._facts.database.raw(query, (run,))}
        return sum(counts.values()), counts.get(True, 0)

    def beginning_before(
        self, run: str, histories: Mapping[str, Sequence[UtilityPoint]]
    ) -> dict[str, Sequence[UtilityPoint]]:
        """Histories of a run in which what it began with has the step before its first."""
        info = self._facts.run(run)
        if info.base is None:
            return dict(histories)
        inherited, before = self.known(run, histories).inherited, info.first_step - 1
        found: dict[str, Sequence[UtilityPoint]] = {}
        for memory_id, points in histories.items():
            given = inherited.get(memory_id, 0)
            found[memory_id] = [*(replace(p, step=before) for p in points[:given]), *points[given:]]
        return found

    def view(self, run: str) -> MemoryView:
        """What the run sees now as arrays, made once until it changes. Raises `UnknownRun`."""
        facts = self._facts
        known = facts.of(run)
        if known.view is None or known.view.rows is not facts.memories.rows:
            with facts.database.snapshot(), ThreadPoolExecutor(1) as beside:
                # LanceDB reads without Python's lock, and SQLite's rows need it for each.
                reading = beside.submit(facts.memories.read)
                ids, q, visits = self._arrays(run)
                reading.result()
                facts.look()
            known = facts.of(run)
            known.view = facts.memories.view_of(ids, q, visits)
        return known.view

    def _arrays(self, run: str) -> tuple[list[str], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """The memories (n) that a run sees now, with their q (n,) and visits (n,)."""
        ids: list[str] = []
        q, visits = array("d"), array("q")
        query = "SELECT memory_id, q, visits FROM q_values WHERE run = ? AND NOT away"
        for memory_id, value, count in self._facts.database.lazily(query, (run,)):
            ids.append(memory_id)
            q.append(value)
            visits.append(count)
        return ids, np.array(q, np.float64), np.array(visits, np.int64)

    # --- as they were -------------------------------------------------------------------------------------------------

    def past(self, run: str, step: int) -> Fold:
        """The fold of what was known when `step` had ended and the next had not begun. Raises `UnknownRun`."""
        self._facts.look()
        # What comes later changes nothing of what was known then, and to fold a long run takes seconds.
        key = (run, step, (self._facts.dropped, *self._known_by(run, step)))
        if key not in self._pasts:
            with self.foldable(run):
                until = self._facts.events_where(_LEDGER.run == run, _LEDGER.known_at <= step)
                self._pasts[key] = folded(self.start(run), until, self._facts.committed(until))
            while len(self._pasts) > PASTS_KEPT:
                self._pasts.popitem(last=False)
        return self._pasts[key]

    def _known_by(self, run: str, step: int) -> tuple[int | None, ...]:
        """The newest event of a run that was known when `step` had ended, and how many steps had; so for its bases."""
        info = self._facts.run(run)
        base = () if info.base is None else self._known_by(info.base, info.base_step)
        return *self._facts.database.raw(_KNOWN_BY, (run, step, run, step))[0], *base

    def earlier(self, run: str, step: int) -> Mapping[str, Utility]:
        """q and visits of the memories that the run saw when `step` had ended, oldest first. Raises `UnknownRun`.

        Read from the tables, less the moves since, where all that came since is rewards and new memories; else folded,
        as are the steps before the last part of a run (see `FOLDED`).
        """
        if step < FOLDED * self._facts.next_step(run):
            return self.past(run, step).utilities
        now = self.now(run)
        since = self._facts.counting(
            self._facts.events_where(_LEDGER.run == run, or_(_LEDGER.known_at > step, _LEDGER.step > step))
        )
        new = {i for event in since if event.kind in _WRITES for i in event.memory_ids}
        if any(event.known_at <= step or _changes_what_was(event, step) for event in since) or self._knew(
            run, step, new
        ):
            return self.past(run, step).utilities
        late = [event for event in since if event.step <= step and event.kind in REWARDING]
        # A credit that takes nothing back moves nothing, and names the memories that the reward in its place moved.
        emptied = [replace(event, kind=EventKind.CREDIT_REVOKED, revokes="") for event in late]
        known = [e for at in {event.step for event in late} for e in self._facts.at(run, at) if e.known_at <= step]
        changed = by_step([*self._facts.counting(known), *emptied], lambda attempt: True)
        fold, _ = self.reached(run, changed)
        without = fold.refolded(changed, self._facts.settings_at(run))
        if without is None:
            return self.past(run, step).utilities
        moved = {i for (i,) in self._facts.database.raw(_MOVED_SINCE, (run, step))} | without.keys()
        fold = self.read(run, moved)[0]
        fold.histories = self.histories(run, moved)
        then = {i: fold.at_end_of(step, i, without) for i in moved if i in now.utilities and i not in new}
        return {i: then.get(i, utility) for i, utility in now.utilities.items() if i not in new}

    def _knew(self, run: str, step: int, memory_ids: Set[str]) -> bool:
        """Whether a run had met one of these memories by `step`, or may have taken it over from its base."""
        if not memory_ids:
            return False
        base = self._facts.run(run).base
        if base is not None and any(
            self._facts.database.raw(f"{_NAMED} ({', '.join('?' * len(some))}) LIMIT 1", (base, *some))
            for some in chunks(memory_ids)
        ):
            return True
        query = select(_LEDGER.memory_ids).where(
            _LEDGER.run == run, _LEDGER.step <= step, _LEDGER.kind.in_(CHANGES_MEMORIES)
        )
        named = json.loads(f"[{', '.join(ids for (ids,) in self._facts.database.rows(query))}]")
        return any(not memory_ids.isdisjoint(ids) for ids in named)

    def start(self, run: str) -> Fold:
        """A new fold of what the run knew before its first step: nothing, or what its base knew then."""
        info = self._facts.run(run)
        rule = update_rule(info.policy)
        if info.base is None:
            return Fold(rule)
        fold = copied(self.past(info.base, info.base_step))
        fold.rule = rule
        fold.settings = info.settings
        fold.inherited = {memory_id: len(points) for memory_id, points in fold.histories.items()}
        fold.origins, fold.begun_anew = {}, set()
        return fold

    def anew(self, run: str) -> Fold:
        """The fold of the whole ledger of a run. Raises `UnknownRun`, `BankDamaged`."""
        with self.foldable(run):
            events = self._facts.events(run)
            return folded(self.start(run), events, self._facts.committed(events))

    def foldable(self, run: str) -> AbstractContextManager[None]:
        """What cannot be folded within it, as `BankDamaged`."""
        return damage(f"The q of run “{run[:80]}” does not follow from its ledger: an event there cannot be folded.")

    def supposed(self, event: LedgerEvent) -> Mapping[str, Sequence[UtilityPoint]]:
        """The histories that would differ if `event`, a rewarding one, were appended too; its attempt counts as
        finished.
        """
        run, facts = event.run, self._facts
        at = [*facts.at(run, event.step), event]
        counting = facts.committed(at) | {event.step_id}
        changed = by_step(at, counting.__contains__)
        histories = self.reached(run, changed)[0].refolded(changed, facts.settings_at(run))
        if histories is not None:
            return histories
        events = [*facts.events(run), event]
        then = folded(self.start(run), events, facts.committed(events) | {event.step_id}).histories
        now = self.histories(run)
        return {i: points for i, points in then.items() if points != now.get(i)}

    # --- what a late reward reaches -----------------------------------------------------------------------------------

    def origins(self, run: str) -> Fold:
        """A fold that holds only what began in the place of others in a run, and what was begun anew."""
        return self.read(run, among="AND (origin_step IS NOT NULL OR begun_anew)")[0]

    def reached(self, run: str, changed: Mapping[int, Sequence[LedgerEvent]]) -> tuple[Fold, dict[str, int]]:
        """The memories with their histories that rewards of these steps may reach, and the positions of these."""
        named = {i for at in changed.values() for event in at if event.kind in REWARDING for i in event.memory_ids}
        whole, behind = self._facts.of(run).now or self.origins(run), set(named)
        for memory_id, origin in whole.origins.items():
            if not named.isdisjoint(origin.replaced):
                named.add(memory_id)
                behind |= {memory_id, *origin.replaced}
        fold, positions = self.read(run, behind)
        fold.origins, fold.begun_anew = whole.origins, whole.begun_anew
        fold.histories = self.histories(run, behind)
        return fold, positions
