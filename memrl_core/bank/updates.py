"""How q follows what is appended to a bank, in the transaction that stores it.

Events that are newer than all that counts move the rows that they name. A late reward is worked into the histories that
it reaches; anything else that comes late folds the run anew. Runs that began with what changed follow.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, delete

from memrl_core.bank.facts import Facts
from memrl_core.bank.storage import codec, schema
from memrl_core.bank.utilities import Utilities
from memrl_core.errors import InputError
from memrl_core.learning import BRINGS_IN, CHANGES_MEMORIES, REWARDING, Fold, by_step, named_by, order_key
from memrl_core.policies import is_installed
from memrl_core.records import EventKind, LedgerEvent, StepTrace, UtilityPoint

MOVING = frozenset({*REWARDING, *CHANGES_MEMORIES, EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED})
"""The events on which a q may depend."""
LOOKED_UP = 64
"""So many steps are looked up one by one; for more, all events of the run are read."""
_AT_ONCE = frozenset({*REWARDING, *CHANGES_MEMORIES})
_AHEAD = (
    "SELECT max(step) FROM ledger WHERE run = ? AND step > ? AND step_id = '' AND kind IN "
    f"({', '.join(repr(str(kind)) for kind in sorted(_AT_ONCE))})"
)
_EVENTS = "SELECT memory_id, step, source, event FROM q_moves WHERE run = ?"
_MOVES = schema.q_moves.c
_CUT = delete(schema.q_moves).where(
    _MOVES.run == bindparam("r"), _MOVES.memory_id == bindparam("m"), _MOVES.number >= bindparam("n")
)


class Updates:
    """Appends facts with the q that follow from them, within the transaction of the caller."""

    def __init__(self, facts: Facts, utilities: Utilities) -> None:
        self._facts = facts
        self._q = utilities

    def folded_to(self, run: str) -> int:
        """The highest step of which anything counts: the newest, or a later one with events of no attempt."""
        newest = self._facts.of(run).newest or 0
        ((ahead,),) = self._facts.database.raw(_AHEAD, (run, newest))
        return max(newest, ahead or 0)

    def store(self, events: Sequence[LedgerEvent], traces: Sequence[StepTrace], created: str) -> None:
        """Write facts with the q that follow from them, within the transaction of the caller.

        Raises `InputError` where the policy that moves a q is not installed, `BankDamaged`.
        """
        facts = self._facts
        started = {event.run for event in events if event.kind is EventKind.RUN_STARTED}
        runs = {event.run for event in events if event.run and event.kind in MOVING} | {t.run for t in traces}
        before = {run: self.folded_to(run) for run in runs - started}
        facts.append(events, traces, created)
        whole = set(started)
        while runs:
            run = min(runs, key=self._depth)
            runs.remove(run)
            reached = set(facts.forks(run))
            if run not in whole:
                counting = self._counting(run, events, traces)
                earliest = min((event.known_at for event in counting), default=sys.maxsize)
                reached = {fork for fork in reached if earliest <= facts.run(fork).base_step}
            if run in whole or not self._follow(run, counting, before[run]):
                self.rewrite(run)
            whole |= reached
            runs |= reached

    def _depth(self, run: str) -> tuple[int, str]:
        base = self._facts.run(run).base
        return (0, run) if base is None else (self._depth(base)[0] + 1, run)

    def _counting(self, run: str, events: Sequence[LedgerEvent], traces: Sequence[StepTrace]) -> list[LedgerEvent]:
        """The events of a run that move q and count from now on: of `events`, and of the attempts that ended."""
        ended = {trace.id: trace.step for trace in traces if trace.run == run}
        given = {event.id for event in events}
        there = self._at(run, set(ended.values())) if ended else ()
        earlier = [event for event in there if event.step_id in ended and event.id not in given]
        moving = [event for event in (*earlier, *events) if event.run == run and event.kind in MOVING]
        committed = ended.keys() | self._facts.committed(e for e in moving if e.step_id not in ended)
        return [event for event in moving if not event.step_id or event.step_id in committed]

    def _at(self, run: str, steps: Collection[int]) -> list[LedgerEvent]:
        """The events about these steps, those of each in the order in which they were appended."""
        if len(steps) > LOOKED_UP:
            return [event for event in self._facts.events(run) if event.step in steps]
        return [event for step in steps for event in self._facts.at(run, step)]

    def _follow(self, run: str, counting: Sequence[LedgerEvent], folded_to: int) -> bool:
        """Move the q of a run by events that count from now on; False where it has to be folded anew."""
        facts, settings_at = self._facts, self._facts.settings_at(run)
        come = by_step((event for event in counting if event.step > folded_to), lambda _: True)
        appended = sorted((e for e in counting if e.step <= folded_to and e.kind in CHANGES_MEMORIES), key=order_key)
        if any(event.step <= folded_to and event.kind not in _AT_ONCE for event in counting):
            return False
        if appended:
            new = {event.id for event in appended}
            later = facts.counting(facts.at(run, folded_to, appended[0].seq))
            there = [order_key(e) for e in later if e.kind in CHANGES_MEMORIES and e.id not in new]
            if order_key(appended[0]) < max(there, default=(folded_to, 0, "")):
                return False
        late = sorted({e.step for e in counting if e.step <= folded_to and e.kind in REWARDING})
        if late and not self._work_in(run, {step: facts.at(run, step) for step in late}):
            return False
        if appended:
            self._take(run, folded_to, appended, settings_at(folded_to))
        for step, events in come.items():
            self._take(run, step, events, settings_at(step))
        return True

    def _take(self, run: str, step: int, events: Sequence[LedgerEvent], settings: Mapping[str, Any]) -> None:
        """Fold in events of a step that is newer than all that counts, and write the rows that they name."""
        with self._q.foldable(run):
            named = {memory_id for event in events for memory_id in named_by(event)}
        if not named:
            return
        fold, positions = self._q.read(run, named)
        fold.settings = settings
        if any(event.kind in BRINGS_IN and not positions.keys().isdisjoint(event.memory_ids) for event in events):
            fold.origins = self._q.origins(run).origins
        counts, seen = self._counts(run, positions), len(fold.utilities)
        with self._q.foldable(run):
            fold.take(step, events)
        known = self._facts.of(run)
        if known.count is not None:
            known.count += len(fold.utilities) - seen
        moves, cut = [], {}
        for memory_id, points in fold.histories.items():
            first = counts.get(memory_id, 0)
            if first and points and points[0].before is None:  # It begins anew.
                cut[memory_id] = first = 0
            moves += [(first + n, point) for n, point in enumerate(points)]
        self._write(run, fold, positions, moves, cut, events=events)

    def _counts(self, run: str, memory_ids: Collection[str]) -> dict[str, int]:
        """How many entries of each memory are stored."""
        query = "SELECT memory_id, max(number) FROM q_moves WHERE run = ?"
        return {i: number + 1 for i, number in self._q.rows(query, run, memory_ids, None, "GROUP BY memory_id")}

    def _work_in(self, run: str, events: Mapping[int, Sequence[LedgerEvent]]) -> bool:
        """Work rewards of steps that have passed into the histories that they reach; False where that cannot be.

        `events` are all of these steps, those of each in the order in which they were appended.
        """
        self.must_know_rule(run)
        late = {step: sorted(self._facts.counting(of), key=order_key) for step, of in events.items()}
        fold, positions = self._q.reached(run, late)
        stored = dict(fold.histories)
        with self._q.foldable(run):
            found = fold.refolded(late, self._facts.settings_at(run))
        if found is None:
            return False
        fold.replace_histories(found)
        cut = {i: _alike(stored[i], points) for i, points in found.items()}
        moves = [(n, point) for i, points in found.items() for n, point in enumerate(points) if n >= cut[i]]
        fold.histories = found
        self._write(run, fold, positions, moves, cut, late, [event for of in events.values() for event in of])
        return True

    def rewrite(self, run: str) -> None:
        """Fold the whole ledger of a run and write what follows in the place of what is there."""
        database, known = self._facts.database, self._facts.of(run)
        if database.raw("SELECT 1 FROM q_values WHERE run = ? LIMIT 1", (run,)):
            self.must_know_rule(run)
        fold = self._q.anew(run)
        for table in (schema.q_values, schema.q_moves):
            database.execute(delete(table).where(table.c.run == run))
        known.view, known.ever_known, known.count = None, 0, None
        moves = [(n, point) for points in fold.histories.values() for n, point in enumerate(points)]
        self._write(run, fold, {}, moves, {})

    def must_know_rule(self, run: str) -> None:
        """Raise `InputError` where nobody here knows how a run's rewards move q: what is stored of it would be lost."""
        info = self._facts.run(run)
        if not is_installed(info.policy):
            raise InputError(
                f"The policy “{info.policy[:80]}” of run “{info.id[:80]}” is not installed here, so its q cannot be "
                "computed. Nothing was changed; install the package that the policy is from, and try again."
            )

    def _write(
        self,
        run: str,
        fold: Fold,
        positions: dict[str, int],
        moves: Sequence[tuple[int, UtilityPoint]],
        cut: Mapping[str, int],
        late: Collection[int] = (),
        events: Sequence[LedgerEvent] | None = None,
    ) -> None:
        """Write the memories in the histories of `fold`, and `moves` with their numbers.

        Of a memory in `cut`, the moves from that number on are replaced; those of steps that are not `late` keep the
        event that caused them. `events` are those behind the moves, where they are at hand.
        """
        facts = self._facts
        known, database = facts.of(run), facts.database
        new = [memory_id for memory_id in fold.histories if memory_id not in positions]
        if new:
            if known.ever_known is None:
                ((known.ever_known,),) = database.raw("SELECT count(*) FROM q_values WHERE run = ?", (run,))
            positions |= {memory_id: known.ever_known + n for n, memory_id in enumerate(new)}
            known.ever_known += len(new)
        rows = self._q.rows(_EVENTS, run, cut, None, "ORDER BY memory_id, number") if late else ()
        kept = {(i, step, source): event for i, step, source, event in rows if step not in late}
        database.execute(_CUT, [{"r": run, "m": i, "n": number} for i, number in cut.items()])
        database.put(schema.q_values, [value_row(run, fold, positions, memory_id) for memory_id in fold.histories])
        if events is None:
            events = self._at(run, {p.step for _, p in moves if (p.memory_id, p.step, p.source) not in kept})
        causes = _causes(events)
        made = [
            codec.move_row(run, n, p, kept.get((p.memory_id, p.step, p.source)) or (causes(p) or [""])[-1])
            for n, p in moves
        ]
        database.insert(schema.q_moves, made)
        if late and known.now is not None:
            # Rewards of steps that have passed bring and take away no memory.
            now = known.now
            known.now = replace(now, utilities=now.utilities | fold.utilities, away=now.away | fold.away)
        else:
            known.now = None
        if known.view is not None:
            known.view = facts.memories.changed(known.view, fold, fold.histories)

    def derived(self, run: str, fold: Fold) -> Iterator[tuple[dict[str, Any], list[tuple[dict[str, Any], list[str]]]]]:
        """What the tables hold of each memory of a run that is as in `fold`: its row of `q_values` and those of
        `q_moves`, each with the events that may have caused the move ([] where none is in the run, "" among them where
        the move came with the run's base, whose steps have the same numbers).
        """
        info = self._facts.run(run)
        base = {} if info.base is None else self._q.past(info.base, info.base_step).histories
        known = {memory_id: len(points) for memory_id, points in base.items()}
        positions = {memory_id: position for position, memory_id in enumerate(fold.histories)}
        causes = _causes(self._at(run, {point.step for points in fold.histories.values() for point in points}))
        for memory_id, points in fold.histories.items():
            came = known.get(memory_id, 0)
            moves = [
                (codec.move_row(run, n, point, ""), [*causes(point), *([""] if n < came else [])])
                for n, point in enumerate(points)
            ]
            yield value_row(run, fold, positions, memory_id), moves


def _causes(events: Iterable[LedgerEvent]) -> Callable[[UtilityPoint], list[str]]:
    """Which of `events` a move may be by, the last of them the newest: those that gave one of its rewards, or that
    brought the memory in.
    """
    given: dict[tuple[int, str], list[str]] = {}
    inserted: dict[tuple[int, str], list[str]] = {}
    for event in events:
        if event.kind in REWARDING and event.source is not None:
            given.setdefault((event.step, event.source), []).append(event.id)
        elif event.kind in BRINGS_IN:
            for memory_id in event.memory_ids:
                inserted.setdefault((event.step, memory_id), []).append(event.id)

    def causes(point: UtilityPoint) -> list[str]:
        if point.source is None:
            return inserted.get((point.step, point.memory_id), [])
        return given.get((point.step, point.source), [])

    return causes


def value_row(run: str, fold: Fold, positions: Mapping[str, int], memory_id: str) -> dict[str, Any]:
    """The row of `q_values` of a memory."""
    away = memory_id not in fold.utilities
    utility = fold.away[memory_id] if away else fold.utilities[memory_id]
    origin = fold.origins.get(memory_id)
    return {
        "run": run,
        "memory_id": memory_id,
        "q": utility.q,
        "visits": utility.visits,
        "place": positions[memory_id],
        "away": away,
        "pinned": memory_id in fold.pinned,
        "inherited": fold.inherited.get(memory_id, 0),
        "origin_step": origin.step if origin else None,
        "replaced": json.dumps(origin.replaced) if origin else "[]",
        "begun_anew": memory_id in fold.begun_anew,
    }


def _alike(one: Sequence[UtilityPoint], two: Sequence[UtilityPoint]) -> int:
    """How many entries at the beginning of two histories are the same."""
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
