"""Value updates and the fold of a ledger: pure functions.

Sources: arXiv 2601.03192, equation 4, for the update; the fold is this program's own definition of what a run believes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean, multimode
from typing import Any

from memrl_core.errors import SettingsError
from memrl_core.records import EventKind, LedgerEvent, RewardSource, Utility, UtilityPoint
from memrl_core.settings import OFF

UpdateRule = Callable[[Utility, float, Mapping[str, Any]], float]
"""q after a reward: of what was believed before, the reward, and the settings of the step."""
SettingsAt = Callable[[int], Mapping[str, Any]]
REWARDING = (EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED, EventKind.CREDIT_ASSIGNED, EventKind.CREDIT_REVOKED)
"""The events that can only change how q moves in their own step, and with it all that follows from that move."""
REPLACES = (EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED)
"""The events by which a memory takes the place of others."""
BRINGS_IN = frozenset({EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, *REPLACES})
"""The events by which a run comes to know a memory that it may never have seen."""


def updated_q(q: float, reward: float, alpha: float) -> float:
    """Eq. 4: q + alpha * (reward - q). Raises `SettingsError` for a value that is not a finite number."""
    if not (math.isfinite(q) and math.isfinite(reward) and math.isfinite(alpha)):
        raise SettingsError(f"A utility cannot move by q = {q}, reward = {reward}, α = {alpha}. Nothing was changed.")
    return q + alpha * (reward - q)


def memrl_rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
    """MemRL's q after a reward, by the settings of the step: eq. 4, and never below a q floor (official code)."""
    q = updated_q(believed.q, reward, float(settings["alpha"]))
    floor = float(settings.get("q_floor", OFF))
    return max(floor, q) if floor > OFF else q


def unmoved(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
    """The rule of policies that keep no q, or whose rules are not known here: q stays."""
    return believed.q


# --- the rewards of one step ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Earned:
    """One reward as it moves q; `raters` are the people whose rewards are in it."""

    value: float
    source: RewardSource
    raters: tuple[str, ...] = ()


def active_rewards(events: Iterable[LedgerEvent]) -> list[LedgerEvent]:
    """Of the events of one step, the rewards that stand, in the order they were given.

    Each person, and the environment, has one active reward, the latest, unless it was revoked; a revoked reward
    uncovers nothing older.
    """
    revoked = set()
    latest: dict[tuple[str, str], LedgerEvent] = {}
    for event in events:
        if event.kind is EventKind.REWARD_REVOKED:
            revoked.add(event.revokes)
        elif event.kind is EventKind.REWARD_GIVEN:
            latest[event.source or "", event.rater] = event
    return sorted((event for event in latest.values() if event.id not in revoked), key=order_key)


def earned(environment: float | None, people: Mapping[str, float], settings: Mapping[str, Any]) -> tuple[Earned, ...]:
    """The rewards that move q for one step, in the order in which they apply.

    `people` maps raters to their rewards. The settings `human_rewards` and `several_raters` decide; a run that was
    started without them has the defaults of `MemRLSettings`.
    """
    own = () if environment is None else (Earned(environment, "environment"),)
    if not people:
        return own
    by_people = Earned(_agreed(list(people.values()), settings), "person", tuple(people))
    rule = _rule(settings, "human_rewards", "override")
    if not own or rule == "override":
        return (by_people,)
    if rule == "both":
        return (*own, by_people)
    return (Earned(fmean((own[0].value, by_people.value)), "person", by_people.raters),)


def rewards_of(active: Sequence[LedgerEvent], settings: Mapping[str, Any]) -> tuple[Earned, ...]:
    """`earned` by the active rewards of a step."""
    environment = next((event.value for event in active if event.source == "environment"), None)
    people = {event.rater: event.value or 0.0 for event in active if event.source == "person"}
    return earned(environment, people, settings)


def shares_in(active: Sequence[LedgerEvent], settings: Mapping[str, Any]) -> tuple[Mapping[str, float], ...]:
    """For each of `rewards_of`, the ids of the events that are in it with their share; shares add up to 1."""
    people = [event for event in active if event.source == "person"]
    agreed = _agreed([event.value or 0.0 for event in people], settings) if people else None
    if _rule(settings, "several_raters", "mean") == "majority":
        people = [event for event in people if event.value == agreed] or people
    by_people = {event.id: 1 / len(people) for event in people}
    own = {event.id: 1.0 for event in active if event.source == "environment"}
    rule = _rule(settings, "human_rewards", "override")
    if not by_people or not own:
        return (by_people or own,) if active else ()
    if rule == "override":
        return (by_people,)
    return (own, by_people) if rule == "both" else ({i: share / 2 for i, share in (*own.items(), *by_people.items())},)


def effective_reward(active: Sequence[LedgerEvent], settings: Mapping[str, Any]) -> float | None:
    """The reward of the step as one number, the mean where two apply; None when there is none."""
    rewards = rewards_of(active, settings)
    return fmean(reward.value for reward in rewards) if rewards else None


def _agreed(values: Sequence[float], settings: Mapping[str, Any]) -> float:
    if _rule(settings, "several_raters", "mean") == "majority":
        most = multimode(values)
        if len(most) == 1:
            return most[0]
    return fmean(values)


def _rule(settings: Mapping[str, Any], name: str, default: str) -> str:
    return str(settings.get(name, default))


def assigned_credit(events: Iterable[LedgerEvent]) -> Mapping[str, float | None]:
    """Of the events of one step, each memory's own reward where a person has let one count; the latest that stands.

    None for a memory that gets no credit: the step does not move its q.
    """
    standing: dict[str, LedgerEvent] = {}
    for event in events:
        if event.kind is EventKind.CREDIT_ASSIGNED:
            standing[event.id] = event
        elif event.kind is EventKind.CREDIT_REVOKED:
            standing.pop(event.revokes, None)
    if not standing:
        return {}
    latest = max(standing.values(), key=order_key)
    own = latest.payload["rewards"].items()
    return {memory_id: None if reward is None else float(reward) for memory_id, reward in own}


def moves_of(events: Sequence[LedgerEvent], settings: Mapping[str, Any]) -> Iterator[tuple[str, Earned]]:
    """Which memories move by which rewards in one step, in order; a memory's own credit takes the place of them all."""
    active = active_rewards(events)
    rewards = rewards_of(active, settings)
    if not rewards:
        return
    own = assigned_credit(events)
    for memory_id in dict.fromkeys(m for event in active for m in event.memory_ids):
        if memory_id in own:
            if (reward_of_its_own := own[memory_id]) is not None:
                yield memory_id, Earned(reward_of_its_own, rewards[-1].source, rewards[-1].raters)
        else:
            for reward in rewards:
                yield memory_id, reward


# --- the fold ---------------------------------------------------------------------------------------------------------


def order_key(event: LedgerEvent) -> tuple[int, int, str]:
    """Where an event stands in a fold: by the step it is about, then by when it was known."""
    return event.step, event.seq, event.id


def in_ledger(event: LedgerEvent) -> tuple[int, str]:
    """Where an event stands in the ledger: by its clock, whatever step it is about."""
    return event.seq, event.id


@dataclass(frozen=True, slots=True)
class Origin:
    """The step at whose end a memory took the place of those that it `replaced`, and took over their q and visits."""

    step: int
    replaced: tuple[str, ...]


@dataclass(slots=True)
class Fold:
    """What a run believes after a sequence of whole steps; grows by `take`.

    `utilities` maps the ids of the memories that the run sees, oldest first, to q and visits; `away` those that were
    forgotten or replaced, whose q still follows the rewards of steps that used them. `histories` holds every entry of
    each memory; the first `inherited` ones came from the run that this one started from. `origins` are those of the
    memories that began in the place of others in this run, the oldest first. Of `begun_anew`, which came a second time
    after others had begun with their q, the histories no longer tell which q that was.
    """

    rule: UpdateRule
    settings: Mapping[str, Any] = field(default_factory=dict)
    utilities: dict[str, Utility] = field(default_factory=dict)
    histories: dict[str, list[UtilityPoint]] = field(default_factory=dict)
    away: dict[str, Utility] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)
    inherited: dict[str, int] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    begun_anew: set[str] = field(default_factory=set)

    def take(self, step: int, events: Sequence[LedgerEvent]) -> None:
        """Fold in all events of one step, given in `order_key` order."""
        for event in events:
            if event.kind in (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED):
                self.settings = event.payload["settings"]
        for memory_id, reward in moves_of(events, self.settings):
            known = self.utilities if memory_id in self.utilities else self.away
            before = known.get(memory_id)
            if before is not None:
                after = Utility(self.rule(before, reward.value, self.settings), before.visits + 1)
                known[memory_id] = after
                self.histories[memory_id].append(moved(memory_id, step, before.q, after, reward))
        for event in events:
            change = _CHANGES.get(event.kind)
            if change is not None:
                change(self, step, event)

    def refolded(
        self, changed: Mapping[int, Sequence[LedgerEvent]], settings_at: SettingsAt
    ) -> dict[str, list[UtilityPoint]] | None:
        """The histories that differ when the steps `changed` hold these events, which differ in `REWARDING` ones only.

        Each move depends on nothing but the memory's own q before it, so only the named memories are folded again, and
        those that began with a q that has changed. None when one of these, or one that it began with, was `begun_anew`:
        everything has to be folded again then.
        """
        named = self._named_in(changed, settings_at)
        since = {memory_id: min(at_steps) for memory_id, at_steps in named.items()}
        begun: dict[str, Origin] = {}
        for memory_id, origin in self.origins.items():
            if any(since.get(old, math.inf) <= origin.step for old in origin.replaced):
                since[memory_id], begun[memory_id] = origin.step, origin
        behind = (old for origin in begun.values() for old in origin.replaced)
        if not self.begun_anew.isdisjoint((*since, *behind)):
            return None
        found: dict[str, list[UtilityPoint]] = {}
        for memory_id in (*(i for i in named if i not in begun), *begun):
            points = self.histories[memory_id]
            if memory_id in begun:
                step, replaced = begun[memory_id].step, begun[memory_id].replaced
                believed = _taken_over([self.at_end_of(step, old, found) for old in replaced])
                points = [beginning(memory_id, step, believed), *points[1:]]
            found[memory_id] = self._replayed(points, since[memory_id], named.get(memory_id, {}), settings_at)
        return found

    def replace_histories(self, histories: Mapping[str, list[UtilityPoint]]) -> None:
        """Put what `refolded` found in the place of what was there."""
        for memory_id, points in histories.items():
            self.histories[memory_id] = points
            known = self.utilities if memory_id in self.utilities else self.away
            known[memory_id] = Utility(points[-1].after, points[-1].visits)

    def _named_in(
        self, changed: Mapping[int, Sequence[LedgerEvent]], settings_at: SettingsAt
    ) -> dict[str, dict[int, list[Earned]]]:
        """The known memories that rewarding events name, with the moves of each in these steps."""
        named: dict[str, dict[int, list[Earned]]] = {}
        for step, events in changed.items():
            for memory_id in (m for event in events if event.kind in REWARDING for m in event.memory_ids):
                if memory_id in self.histories:
                    named.setdefault(memory_id, {})[step] = []
            for memory_id, reward in moves_of(events, settings_at(step)):
                if memory_id in named:
                    named[memory_id][step].append(reward)
        return named

    def at_end_of(self, step: int, memory_id: str, refolded: Mapping[str, Sequence[UtilityPoint]]) -> Utility:
        """q and visits of a memory that was there when a step had ended, by its new history if it has one."""
        points = refolded.get(memory_id, self.histories[memory_id])
        last = points[bisect_right(points, step, self.inherited.get(memory_id, 0), key=_step) - 1]
        return Utility(last.after, last.visits)

    def _replayed(
        self,
        points: Sequence[UtilityPoint],
        since: int,
        changed: Mapping[int, Sequence[Earned]],
        settings_at: SettingsAt,
    ) -> list[UtilityPoint]:
        """A memory's `points`, made again from step `since` on; in the steps `changed`, by the moves given there."""
        memory_id = points[0].memory_id
        kept = self.inherited.get(memory_id, 0)
        while kept < len(points) and points[kept].step < since:
            kept += 1
        made = list(points[:kept])
        rest: dict[int, list[UtilityPoint]] = {step: [] for step in changed}
        for point in points[kept:]:
            rest.setdefault(point.step, []).append(point)
        for step in sorted(rest):
            moves = changed.get(step)
            if moves is None:
                moves = [_earned_at(point) for point in rest[step] if point.reward is not None]
            for move in moves:
                if made:
                    last = made[-1]
                    believed = Utility(last.after, last.visits)
                    after = Utility(self.rule(believed, move.value, settings_at(step)), last.visits + 1)
                    made.append(moved(memory_id, step, last.after, after, move))
            made += [point for point in rest[step] if point.reward is None]
        return made

    # --- what becomes of the memories themselves ----------------------------------------------------------------------

    def _written(self, step: int, event: LedgerEvent) -> None:
        believed = Utility(event.value or 0.0, int(event.payload.get("visits", 0)))
        for memory_id in event.memory_ids:
            self._begin(memory_id, step, believed)

    def _forgotten(self, step: int, event: LedgerEvent) -> None:
        self._leave(event.memory_ids)

    def _restored(self, step: int, event: LedgerEvent) -> None:
        self._leave(event.payload.get("takes_away", ()))
        self._return(event.memory_ids)

    def _replaced(self, step: int, event: LedgerEvent) -> None:
        """The new memory begins with the mean q of those that it replaces, weighted by their visits."""
        replaced = [memory_id for memory_id in event.payload["replaces"] if memory_id in self.histories]
        known = [self.utilities.get(i) or self.away[i] for i in replaced]
        (new,) = event.memory_ids
        if new in self.histories:
            self._return((new,))
        elif known:
            self._begin(new, step, _taken_over(known))
            self.origins[new] = Origin(step, tuple(replaced))
        if self.pinned.intersection(replaced):
            self.pinned.add(new)
        self._leave(replaced)

    def _pinned(self, step: int, event: LedgerEvent) -> None:
        self.pinned.update(event.memory_ids)

    def _unpinned(self, step: int, event: LedgerEvent) -> None:
        self.pinned.difference_update(event.memory_ids)

    def _begin(self, memory_id: str, step: int, believed: Utility) -> None:
        if memory_id in self.histories:
            self._let_begin_anew(memory_id)
        comes_back = self.away.pop(memory_id, None) is not None
        self.utilities[memory_id] = believed
        self.histories[memory_id] = [beginning(memory_id, step, believed)]
        self.inherited.pop(memory_id, None)
        if comes_back:
            self.utilities = {i: self.utilities[i] for i in self.histories if i in self.utilities}

    def _let_begin_anew(self, memory_id: str) -> None:
        if any(memory_id in origin.replaced for origin in self.origins.values()):
            self.begun_anew.add(memory_id)
        else:
            self.origins.pop(memory_id, None)

    def _leave(self, memory_ids: Iterable[str]) -> None:
        for memory_id in memory_ids:
            if memory_id in self.utilities:
                self.away[memory_id] = self.utilities.pop(memory_id)

    def _return(self, memory_ids: Iterable[str]) -> None:
        back = {memory_id: self.away.pop(memory_id) for memory_id in memory_ids if memory_id in self.away}
        if back:
            both = self.utilities | back
            self.utilities = {memory_id: both[memory_id] for memory_id in self.histories if memory_id in both}


_CHANGES: Mapping[EventKind, Callable[[Fold, int, LedgerEvent], None]] = {
    EventKind.MEMORY_WRITTEN: Fold._written,
    EventKind.MEMORY_IMPORTED: Fold._written,
    EventKind.MEMORY_FORGOTTEN: Fold._forgotten,
    EventKind.MEMORY_RESTORED: Fold._restored,
    EventKind.MEMORY_EDITED: Fold._replaced,
    EventKind.MEMORY_MERGED: Fold._replaced,
    EventKind.MEMORY_PINNED: Fold._pinned,
    EventKind.MEMORY_UNPINNED: Fold._unpinned,
}
CHANGES_MEMORIES = frozenset(_CHANGES)
"""The events that say what becomes of a memory; within a step they come after its rewards."""


_step = attrgetter("step")


def beginning(memory_id: str, step: int, believed: Utility) -> UtilityPoint:
    """The first entry of a memory."""
    return UtilityPoint(memory_id, step, None, believed.q, believed.visits, None, None, ())


def moved(memory_id: str, step: int, before: float, after: Utility, reward: Earned) -> UtilityPoint:
    """The entry of a move by a reward."""
    return UtilityPoint(memory_id, step, before, after.q, after.visits, reward.value, reward.source, reward.raters)


def _taken_over(replaced: Sequence[Utility]) -> Utility:
    """What a memory begins with in the place of others: their mean q, weighted by visits, and all their visits."""
    visits = sum(utility.visits for utility in replaced)
    if len(replaced) == 1:
        return Utility(replaced[0].q, visits)
    weights = [utility.visits for utility in replaced] if visits else [1] * len(replaced)
    q = math.fsum(w * u.q for w, u in zip(weights, replaced, strict=True)) / sum(weights)
    return Utility(q, visits)


def _earned_at(point: UtilityPoint) -> Earned:
    assert point.reward is not None and point.source is not None
    return Earned(point.reward, point.source, point.raters)


def named_by(event: LedgerEvent) -> Iterator[str]:
    """The memories that an event is about, with those that it takes out of sight."""
    yield from event.memory_ids
    if event.kind in REPLACES:
        yield from event.payload["replaces"]
    elif event.kind is EventKind.MEMORY_RESTORED:
        yield from event.payload.get("takes_away", ())


def by_step(events: Iterable[LedgerEvent], committed: Callable[[str], bool]) -> dict[int, list[LedgerEvent]]:
    """The events that count by step, in fold order: those of no attempt, and those of committed attempts."""
    steps: dict[int, list[LedgerEvent]] = {}
    for event in sorted(events, key=order_key):
        if not event.step_id or committed(event.step_id):
            steps.setdefault(event.step, []).append(event)
    return steps


def folded(base: Fold, events: Iterable[LedgerEvent], committed: Container[str]) -> Fold:
    """`base` and the events that count, step by step; `committed` holds the attempts that ended."""
    for step, members in sorted(by_step(events, committed.__contains__).items()):
        base.take(step, members)
    return base


def copied(fold: Fold) -> Fold:
    """A fold that can grow without changing `fold`."""
    return replace(
        fold,
        utilities=dict(fold.utilities),
        histories={memory_id: list(points) for memory_id, points in fold.histories.items()},
        away=dict(fold.away),
        pinned=set(fold.pinned),
        inherited=dict(fold.inherited),
        origins=dict(fold.origins),
        begun_anew=set(fold.begun_anew),
    )
