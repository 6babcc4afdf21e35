"""What would q be if one reward had been another: the ledger folded again with that one value changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memrl_core.bank import MemoryBank
from memrl_core.bank.mirror import folded
from memrl_core.errors import InputError
from memrl_core.learning import Fold
from memrl_core.policies import update_rule
from memrl_core.records import EventKind, LedgerEvent


@dataclass(frozen=True, slots=True)
class SupposedReward:
    """A reward of `step` supposed to be `instead` of `value`.

    `moved` maps every memory whose q would differ today to its q now and its q then, in the order of age. What was
    selected and written after the reward is left as it was.
    """

    event_id: str
    step: int
    value: float
    instead: float
    moved: Mapping[str, tuple[float, float]]


def supposed_reward(bank: MemoryBank, run: str, event_id: str, instead: float) -> SupposedReward:
    """q of the run's memories today if a reward, given in this run or in one it started from, had been `instead`.

    Nothing moves when the reward does not count: after it was revoked or replaced, beside a person's, or where the
    memory has a credit of its own. Raises `InputError` for a value that is not finite, and for an unknown reward.
    """
    if not math.isfinite(instead):
        raise InputError(f"{instead} is not a reward: give a finite number.")
    given = next((e for e in _events_behind(bank, run) if e.id == event_id), None)
    if given is None or given.kind is not EventKind.REWARD_GIVEN:
        raise InputError("That reward is not in this run or in what it started from.")
    now = bank.utilities(run)
    then = _fold(bank, run, None, replace(given, value=instead)).utilities
    moved = {i: (known.q, then[i].q) for i, known in now.items() if known.q != then[i].q}
    return SupposedReward(event_id, given.step, given.value or 0.0, instead, moved)


def _events_behind(bank: MemoryBank, run: str) -> list[LedgerEvent]:
    info = bank.run(run)
    earlier = [e for e in _events_behind(bank, info.base) if e.known_at <= info.base_step] if info.base else []
    return [*earlier, *bank.events(run)]


def _fold(bank: MemoryBank, run: str, as_of: int | None, changed: LedgerEvent) -> Fold:
    """The fold of a run with one event in the place of the one of the same id (see `Knowledge.start`)."""
    info = bank.run(run)
    rule = update_rule(info.policy)
    start = Fold(rule)
    if info.base is not None:
        start = replace(_fold(bank, info.base, info.base_step, changed), rule=rule, settings=info.settings)
    events = [changed if e.id == changed.id else e for e in bank.events(run) if as_of is None or e.known_at <= as_of]
    return folded(start, events, {row.id for row in bank.step_rows(run)})
