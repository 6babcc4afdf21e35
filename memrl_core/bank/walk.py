"""A run step by step: what each of its finished steps recalled from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any

from memrl_core.bank.facts import Facts
from memrl_core.bank.storage import schema
from memrl_core.bank.utilities import Utilities
from memrl_core.learning import Fold, copied, named_by, order_key
from memrl_core.records import LedgerEvent

_LEDGER = schema.ledger.c


def seen_until(facts: Facts, run: str, step: int, epoch: int) -> int:
    """The step after which the memory stood that a step of an epoch recalls from (`batch_size`)."""
    size = _batch_size(facts.settings_at(run)(step))
    if size == 1:
        return step - 1
    earlier = (row for row in reversed(facts.step_rows(run)) if row.step < step)
    first = min((row.step for row in takewhile(lambda row: row.epoch == epoch, earlier)), default=step)
    return _before_batch(first, step, size)


def walk(facts: Facts, utilities: Utilities, run: str) -> Iterator[tuple[int, Fold, Collection[str] | None]]:
    """Every finished step with the fold of what it recalled from, and which memories changed since the last.

    The fold grows in place, so it is to be read before the next is asked for. The changes are None where everything
    has to be read again: at first, and after a reward that came late. Raises `UnknownRun`.
    """
    steps = facts.step_rows(run)
    if not steps:
        return
    # What the first step recalled from may be a memory of any size, which is folded once and kept.
    at = seen_until(facts, run, steps[0].step, steps[0].epoch)
    fold, changed = copied(utilities.past(run, at)), None
    arrivals: dict[int, list[LedgerEvent]] = {}
    for event in facts.counting(facts.events_where(_LEDGER.run == run, _LEDGER.known_at > at)):
        arrivals.setdefault(event.known_at, []).append(event)
    waiting: dict[int, list[LedgerEvent]] = {}
    settings_at, epoch, first = facts.settings_at(run), None, 0
    for row in steps:
        step = row.step
        if row.epoch != epoch:
            epoch, first = row.epoch, step
        until = _before_batch(first, step, _batch_size(settings_at(step)))
        moved: set[str] | None = set() if changed is not None else None
        for known in range(at + 1, until + 1):
            come = sorted(arrivals.get(known, ()), key=order_key)
            if any(event.step < known for event in come):
                fold, moved, waiting = copied(utilities.past(run, known)), None, {}
                continue
            for event in come:
                if event.step > known:
                    waiting.setdefault(event.step, []).append(event)
            now = [*waiting.pop(known, ()), *(event for event in come if event.step == known)]
            fold.take(known, now)
            if moved is not None:
                moved.update(memory_id for event in now for memory_id in named_by(event))
        at = max(at, until)
        changed = moved
        yield step, fold, changed
        changed = set()


def _batch_size(settings: Mapping[str, Any]) -> int:
    return int(settings.get("batch_size", 1))


def _before_batch(first: int, step: int, size: int) -> int:
    """The step before the mini-batch of `size` steps that `step` is in, counted from the epoch's `first` step."""
    return first - 1 + (step - first) // size * size
