"""Value updates and the fold of a ledger: pure functions.

Sources: arXiv 2601.03192, equation 4, for the update; the fold is this program's own definition of what a run believes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from memrl_core.errors import SettingsError
from memrl_core.records import EventKind, LedgerEvent, Utility, UtilityPoint

UpdateRule = Callable[[float, float, Mapping[str, Any]], float]


def updated_q(q: float, reward: float, alpha: float) -> float:
    """Eq. 4: q + alpha * (reward - q). Raises `SettingsError` for a value that is not a finite number."""
    if not (math.isfinite(q) and math.isfinite(reward) and math.isfinite(alpha)):
        raise SettingsError(f"A utility cannot move by q = {q}, reward = {reward}, α = {alpha}. Nothing was changed.")
    return q + alpha * (reward - q)


def memrl_rule(q: float, reward: float, settings: Mapping[str, Any]) -> float:
    """MemRL's update under the settings of a step."""
    return updated_q(q, reward, float(settings["alpha"]))


def active_rewards(events: Iterable[LedgerEvent]) -> list[LedgerEvent]:
    """Of the events of one step, the rewards that count, in the order they were given.

    Each person has one active reward, the latest, unless it was revoked; a revoked reward uncovers nothing older.
    When a person has rated, the environment's reward does not count.
    """
    revoked = set()
    latest: dict[tuple[str, str], LedgerEvent] = {}
    for event in events:
        if event.kind is EventKind.REWARD_REVOKED:
            revoked.add(event.revokes)
        elif event.kind is EventKind.REWARD_GIVEN:
            latest[event.source or "", event.rater] = event
    standing = [event for event in latest.values() if event.id not in revoked]
    by_people = [event for event in standing if event.source == "person"]
    return sorted(by_people or standing, key=order_key)


def effective_reward(active: Sequence[LedgerEvent]) -> float | None:
    """The reward that moves q: the mean of the active ones; None when there are none."""
    return fmean(event.value or 0.0 for event in active) if active else None


def assigned_credit(events: Iterable[LedgerEvent]) -> Mapping[str, float]:
    """Of the events of one step, each memory's own reward where a person has let one count; the latest that stands."""
    standing: dict[str, LedgerEvent] = {}
    for event in events:
        if event.kind is EventKind.CREDIT_ASSIGNED:
            standing[event.id] = event
        elif event.kind is EventKind.CREDIT_REVOKED:
            standing.pop(event.revokes, None)
    if not standing:
        return {}
    latest = max(standing.values(), key=order_key)
    return {memory_id: float(reward) for memory_id, reward in latest.payload["rewards"].items()}


def order_key(event: LedgerEvent) -> tuple[int, int, str]:
    """Where an event stands in a fold: by the step it is about, then by when it was known."""
    return event.step, event.seq, event.id


@dataclass(slots=True)
class Fold:
    """What a run believes after a sequence of whole steps; grows by `take`.

    `utilities` maps memory ids, oldest first, to q and visits; `histories` holds every entry of each.
    """

    rule: UpdateRule = memrl_rule
    settings: Mapping[str, Any] = field(default_factory=dict)
    utilities: dict[str, Utility] = field(default_factory=dict)
    histories: dict[str, list[UtilityPoint]] = field(default_factory=dict)

    def take(self, step: int, events: Sequence[LedgerEvent]) -> None:
        """Fold in all events of one step, given in `order_key` order."""
        for event in events:
            if event.kind in (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED):
                self.settings = event.payload["settings"]
        active = active_rewards(events)
        reward = effective_reward(active)
        if reward is not None:
            own = assigned_credit(events)
            raters = tuple(event.rater for event in active if event.source == "person")
            for memory_id in dict.fromkeys(m for event in active for m in event.memory_ids):
                before = self.utilities.get(memory_id)
                if before is None:
                    continue
                earned = own.get(memory_id, reward)
                after = Utility(self.rule(before.q, earned, self.settings), before.visits + 1)
                self.utilities[memory_id] = after
                self.histories[memory_id].append(
                    UtilityPoint(memory_id, step, before.q, after.q, after.visits, earned, active[0].source, raters)
                )
        for event in events:
            if event.kind in (EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED):
                visits = int(event.payload.get("visits", 0))
                for memory_id in event.memory_ids:
                    q = event.value or 0.0
                    self.utilities[memory_id] = Utility(q, visits)
                    self.histories[memory_id] = [UtilityPoint(memory_id, step, None, q, visits, None, None, ())]
        for event in events:
            if event.kind is EventKind.MEMORY_FORGOTTEN:
                for memory_id in event.memory_ids:
                    self.utilities.pop(memory_id, None)


def by_step(events: Iterable[LedgerEvent], committed: Callable[[str], bool]) -> dict[int, list[LedgerEvent]]:
    """The events that count, a list a step, in fold order: those of no attempt, and those of committed attempts."""
    steps: dict[int, list[LedgerEvent]] = {}
    for event in sorted(events, key=order_key):
        if not event.step_id or committed(event.step_id):
            steps.setdefault(event.step, []).append(event)
    return steps
