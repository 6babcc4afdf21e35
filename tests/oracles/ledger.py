"""What a run believes, from the ledger alone: every event read again in plain Python; shares nothing with the core."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Believed = dict[str, tuple[float, int]]


def believed(
    events: Iterable[Any], finished: set[str], start: Believed | None = None, until: int | None = None
) -> Believed:
    """Memory to (q, visits) from the events of one run, of which `finished` attempts count and what was known `until`.

    `start` is what the run began with (a fork: what its base believed then).
    """
    counted = [e for e in events if (not e.step_id or e.step_id in finished) and (until is None or e.known_at <= until)]
    known, alpha, floor = dict(start or {}), None, -math.inf
    for step in sorted({e.step for e in counted}):
        here = sorted((e for e in counted if e.step == step), key=lambda e: (e.seq, e.id))
        for event in here:
            if event.kind in ("run_started", "settings_changed"):
                alpha = event.payload["settings"]["alpha"]
                floor = event.payload["settings"].get("q_floor", -10)
                floor = floor if floor > -10 else -math.inf
        undone = {e.revokes for e in here if e.revokes}
        newest: dict[tuple[str, str], Any] = {}
        for event in here:
            if event.kind == "reward_given":
                newest[event.source, event.rater] = event
        standing = [e for e in newest.values() if e.id not in undone]
        counting = [e for e in standing if e.source == "person"] or standing
        own: dict[str, float] = {}
        for event in here:
            if event.kind == "credit_assigned" and event.id not in undone:
                own = event.payload["rewards"]
        if counting:
            mean = sum(e.value for e in counting) / len(counting)
            for memory in {m: None for e in counting for m in e.memory_ids}:
                if memory in known:
                    q, visits = known[memory]
                    known[memory] = (max(floor, q + alpha * (own.get(memory, mean) - q)), visits + 1)
        for event in here:
            if event.kind in ("memory_written", "memory_imported"):
                for memory in event.memory_ids:
                    known[memory] = (event.value, event.payload.get("visits", 0))
    return known
