"""The strip of a run: each of its steps as one character, and the lines between them, for a browser to draw."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from memrl_core.analysis.decision.moment import outcome_now
from memrl_core.bank import MemoryBank
from memrl_core.bank.step_search import StepQuery
from memrl_core.environments.base import steps_of_change
from memrl_core.errors import MemRLError
from memrl_core.learning import order_key
from memrl_core.policies import with_defaults
from memrl_core.records import EventKind, RunInfo
from memrl_core.settings import symbol

OUTCOMES: Mapping[str, int] = MappingProxyType({"unrated": 0, "success": 1, "failure": 2})
BY_HAND, EMPTY_POOL, INVALID = 4, 8, 16
"""What is added to the number of a step's outcome; the sum, counted on from "0", is its character."""


@dataclass(frozen=True, slots=True)
class Strip:
    """The finished steps of a run as `cells`, a character each, with the numbers and the epochs of these steps.

    `changes` are the steps whose rewards others than the steps themselves had changed by then, in the order of these
    changes, and `settings` from which steps on which settings were changed.
    """

    steps: tuple[int, ...]
    cells: str
    epochs: tuple[int, ...]
    changes: tuple[int, ...]
    settings: tuple[tuple[int, str], ...] = ()


def run_strip(bank: MemoryBank, run: str, known: Strip | None = None) -> Strip:
    """The strip of a run, with outcomes as the rewards count by now.

    Of one that is `known` only the steps are looked at that came since, or whose rewards were changed since, as long as
    the settings stayed. Raises `UnknownRun`.
    """
    changes, settings = tuple(bank.steps.changed_later(run)), _changed_settings(bank, run)
    steps = tuple(bank.steps.table(run, ("step",))["step"].to_pylist())
    if (
        known is None
        or known.settings != settings
        or known.changes != changes[: len(known.changes)]
        or known.steps != steps[: len(known.steps)]
    ):
        known = Strip((), "", (), (), settings)
    cells, epochs = list(known.cells), list(known.epochs)
    changed = set(changes[len(known.changes) :])
    fresh, changed_before = steps[len(known.steps) :], changed.intersection(known.steps)
    if fresh:
        span = (fresh[0], fresh[-1])
        table = bank.steps.table(run, ("epoch", "outcome", "reward"), span).to_pydict()
        epochs += [epoch or 0 for epoch in table["epoch"]]
        bits = dict(zip(fresh, (OUTCOMES.get(one, 0) for one in table["outcome"]), strict=True))
        by_hand = bank.steps.matching(run, StepQuery(source="person", steps=span))
        ended_with = dict(zip(fresh, table["reward"], strict=True))
        unrated = bank.steps.matching(run, StepQuery(source="nobody", steps=span))
        for step in (*by_hand, *(step for step in unrated if ended_with[step] is not None)):
            bits[step] = _outcome_now(bank, run, step, bits[step], ended_with[step])
        marks = (
            (by_hand, BY_HAND),
            (bank.steps.matching(run, StepQuery(empty_pool=True, steps=span)), EMPTY_POOL),
            (bank.steps.matching(run, StepQuery(invalid=True, steps=span)), INVALID),
        )
        for marked, bit in marks:
            for step in marked:
                bits[step] |= bit
        cells += [_cell(bits[step]) for step in fresh]
    for step in changed_before:
        at = bisect_left(steps, step)
        row = bank.steps.table(run, ("id", "outcome", "reward"), (step, step)).to_pylist()[0]
        rated = any(event.source == "person" for event in bank.ratings.active(run, step, row["id"]))
        outcome = _outcome_now(bank, run, step, OUTCOMES.get(row["outcome"], 0), row["reward"])
        lasting = (ord(cells[at]) - ord("0")) & (EMPTY_POOL | INVALID)
        cells[at] = _cell(outcome | lasting | (BY_HAND if rated else 0))
    return Strip(steps, "".join(cells), tuple(epochs), changes, settings)


def _outcome_now(bank: MemoryBank, run: str, step: int, outcome: int, ended_with: float | None) -> int:
    """The number of a step's outcome by now, of one that had `outcome` and the reward `ended_with` when it ended."""
    now = bank.ratings.effective(run, step)
    # A step that cannot be read keeps the outcome that it ended with.
    with suppress(MemRLError):
        if now != ended_with:
            return OUTCOMES[outcome_now(bank.trace(run, step), now)]
    return outcome


def _cell(bits: int) -> str:
    return chr(ord("0") + bits)


def _changed_settings(bank: MemoryBank, run: str) -> tuple[tuple[int, str], ...]:
    """From which steps on settings were changed, and how: (31, "λ 0.5 → 0.9")."""
    changes = sorted(bank.events(run, (EventKind.SETTINGS_CHANGED,)), key=order_key)
    info, found = bank.run(run), []
    before = with_defaults(info.policy, info.settings)
    for event in changes:
        after = with_defaults(info.policy, event.payload["settings"])
        moved = (name for name, value in after.items() if before.get(name) != value)
        if text := ", ".join(f"{symbol(name)} {before.get(name)} → {after[name]}" for name in moved):
            found.append((event.step, text))
        before = after
    return tuple(found)


def is_rewound(info: RunInfo) -> bool:
    """Whether a run goes over steps of the run that it began from."""
    return info.base is not None and info.first_step == info.base_step + 1


def strip_data(strip: Strip, info: RunInfo, ghost: Strip | None = None) -> dict[str, Any]:
    """The strip of a run as JSON: {first, steps, cells, lines: [[step, "epoch" | "shift" | "settings", text]], ghost}.

    `steps` is null where they are numbered without a gap from `first` on. `info` says when the run's world shifts.
    `ghost` is the strip of the run that this one was rewound from, of which what follows that step goes along:
    {run, steps: [step], cells}; null without one.
    """
    steps, options = strip.steps, info.environment_options
    lines: list[tuple[int, str, str]] = [
        (step, "epoch", f"epoch {epoch}")
        for step, (before, epoch) in zip(steps[1:], pairwise(strip.epochs), strict=True)
        if before != epoch
    ]
    with suppress(MemRLError, TypeError):
        shifts = steps_of_change(options.get("shift_at", 0))
        lines += [(step, "shift", "the world shifts") for step in shifts if steps and steps[0] <= step <= steps[-1]]
    # Also those that the next step will be the first to have.
    lines += [(step, "settings", text) for step, text in strip.settings if steps and steps[0] <= step <= steps[-1] + 1]
    gapless = not steps or steps[-1] - steps[0] + 1 == len(steps)
    return {
        "first": steps[0] if steps else 1,
        "steps": None if gapless else list(steps),
        "cells": strip.cells,
        "lines": [list(line) for line in sorted(lines)],
        "ghost": None if ghost is None else _ghost_data(ghost, info),
    }


def _ghost_data(ghost: Strip, info: RunInfo) -> dict[str, Any]:
    again = [(step, cell) for step, cell in zip(ghost.steps, ghost.cells, strict=True) if step >= info.first_step]
    return {"run": info.base, "steps": [step for step, _ in again], "cells": "".join(cell for _, cell in again)}
