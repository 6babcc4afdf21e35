"""q of every memory over its uses, as the run's own rule moved it or as another method's would have.

Another method's q is the run's ledger folded again under its rule: the same prompts and rewards, but only the memories
that this method credits, each from its own q0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from memrl_core.analysis.learned.watching import Progress, Watching
from memrl_core.bank.mirror import folded
from memrl_core.learning import Fold
from memrl_core.models.base import Cancelled
from memrl_core.policies import settings_that_fit
from memrl_core.policies.base import Policy
from memrl_core.records import EventKind, LedgerEvent, UtilityPoint

SLACK = 1e-9
COLUMNS = ("memory", "use", "step", "before", "q", "reward")
SETTLING = (EventKind.RUN_STARTED, EventKind.SETTINGS_CHANGED)


@dataclass(frozen=True, slots=True)
class Deletion:
    """MemP's rule: from `hits` on, a memory with a success rate under `below` goes; `in_force` if the run does it.

    `met` maps the memories that have met it to the hits with which they first did; `deleted` are those that the run's
    steps have deleted, in this order.
    """

    hits: int
    below: float
    in_force: bool
    met: Mapping[str, int]
    deleted: tuple[str, ...]


def values_over_uses(
    watching: Watching, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> pd.DataFrame:
    """A row for each q that a memory had: memory, use (0: never yet), step, q before, q, and the reward that moved it.

    Rewards that came later count as they stand now. Raises `SettingsError`.
    """
    if watching.own:
        histories: Mapping[str, Sequence[UtilityPoint]] = watching.bank.histories(watching.run)
    else:
        histories = _under_its_rule(watching, on_progress, cancelled)
    rows = [
        (memory_id, point.visits, point.step, point.before, point.after, point.reward)
        for memory_id, points in histories.items()
        for point in points
        if point.step <= watching.step
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def deletion(watching: Watching, rates: pd.DataFrame) -> Deletion:
    """Which memories MemP's deletion rule condemns, by its success rates (`values_over_uses`).

    Raises `SettingsError`.
    """
    settings: Any = watching.method().settings
    hits = rates[rates["reward"].notna()]
    failing = hits[(hits["use"] >= settings.delete_from) & (hits["q"] < settings.delete_below - SLACK)]
    first = failing.groupby("memory", sort=False)["use"].min()
    met = {str(memory_id): int(hits) for memory_id, hits in first.items()}
    in_force = watching.own and settings.variant == "code"
    deleted = tuple(
        memory_id
        for event in watching.bank.events(watching.run)
        if event.kind is EventKind.MEMORY_FORGOTTEN and event.step_id and event.step <= watching.step
        for memory_id in event.memory_ids
    )
    return Deletion(settings.delete_from, settings.delete_below, in_force, met, deleted if in_force else ())


def _under_its_rule(
    watching: Watching, on_progress: Progress | None, cancelled: Cancelled | None
) -> Mapping[str, Sequence[UtilityPoint]]:
    bank, run, method = watching.bank, watching.run, watching.method()
    info = bank.run(run)
    begun = Fold(type(method).rule, method.settings.model_dump())
    if info.base is not None:
        begun.utilities = dict(bank.utilities(info.base, info.base_step))
        for memory_id, known in begun.utilities.items():
            begun.histories.begin(memory_id, info.first_step - 1, known)
    credited = _credited(watching, method, on_progress, cancelled)
    events = [_told(event, watching, credited) for event in bank.events(run)]
    return folded(begun, events, credited).histories


def _credited(
    watching: Watching, method: Policy[Any], on_progress: Progress | None, cancelled: Cancelled | None
) -> dict[str, tuple[str, ...]]:
    """Whom the method credits in each finished step up to the one looked at, by the step's id."""
    return {
        trace.id: method.credited(trace.decision) if trace.decision is not None else ()
        for trace in watching.traces(on_progress, cancelled)
    }


def _told(event: LedgerEvent, watching: Watching, credited: Mapping[str, tuple[str, ...]]) -> LedgerEvent:
    """An event of the ledger as it would be if the run went by the method."""
    if event.kind is EventKind.REWARD_GIVEN:
        return replace(event, memory_ids=credited.get(event.step_id, ()))
    if event.kind in SETTLING:
        settings = settings_that_fit(watching.policy, event.payload["settings"]).model_dump()
        return replace(event, payload={**event.payload, "settings": settings})
    if event.kind is EventKind.MEMORY_WRITTEN:
        return replace(event, value=_first_q(event, watching))
    return event


def _first_q(event: LedgerEvent, watching: Watching) -> float:
    """q of a memory nobody has used yet: MemRL's q0 of its outcome, 0 where the method has none."""
    settings = watching.bank.settings(watching.run, event.step)
    named = "q0_failure" if watching.bank.memory(event.memory_ids[0]).outcome == "failure" else "q0_success"
    return float(getattr(settings_that_fit(watching.policy, settings), named, 0.0))


def values_moved(watching: Watching) -> pd.DataFrame:
    """A row for each learned value that the method names: its name, and the value before and after the step.

    Raises `SettingsError`.
    """
    method, states = watching.method(), (watching.before(), watching.after())
    before, after = ({} if state is None else dict(method.values(state)) for state in states)
    rows = [(name, before.get(name), after.get(name)) for name in {**before, **after}]
    return pd.DataFrame(rows, columns=["value", "before", "after"])
