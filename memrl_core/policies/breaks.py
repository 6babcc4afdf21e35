"""What is wrong with what a policy gives, in words; empty when nothing is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from memrl_core.policies.spec import PolicySpec
from memrl_core.records import Decision, MemoryOperation, RecallRecord

TOLERANCE = 1e-9
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def decision_breaks(recalled: RecallRecord, decision: Decision) -> str:
    """What is wrong with a decision about a pool."""
    pool = {member.memory_id for member in recalled.pool}
    missed = {member.memory_id for member in recalled.left_out}
    strangers = [i for i in (*decision.selected, *decision.greedy) if i not in pool]
    if strangers:
        return f"it chose “{strangers[0][:80]}”, which is not in the pool"
    if len(set(decision.selected)) < len(decision.selected):
        return "it chose a memory twice"
    if {c.memory_id for c in decision.candidates} != pool | missed:
        return "its candidates are not the pool and what missed it"
    for candidate in decision.candidates:
        if candidate.selected != (candidate.memory_id in decision.selected):
            return f"{candidate.memory_id[:80]} is called selected in one place and not in another"
        numbers = [n for t in candidate.terms for n in (t.raw, t.normalised, t.weight, t.contribution)]
        if not np.isfinite([*numbers, candidate.score or 0.0]).all():
            return f"a number of {candidate.memory_id[:80]} is not finite"
        total = sum(term.contribution for term in candidate.terms)
        if candidate.score is not None and abs(total - candidate.score) > 1e-6 * max(1.0, abs(total)):
            return f"the terms of {candidate.memory_id[:80]} add up to {total}, its score is {candidate.score}"
    return _chance_breaks(decision)


def _chance_breaks(decision: Decision) -> str:
    if not -TOLERANCE <= decision.propensity <= 1 + TOLERANCE:
        return f"the probability of its choice is {decision.propensity}"
    if decision.draw is not None and not math.isfinite(decision.draw):
        return f"it drew the number {decision.draw}"
    log = decision.log_propensity
    if log is None:
        return ""
    if not log <= TOLERANCE:
        return f"the logarithm of the probability of its order is {log}"
    if abs(decision.propensity - math.exp(log)) > TOLERANCE:
        return f"the probability of its order is {decision.propensity} in one place and {math.exp(log)} in another"
    return ""


def record_breaks(record: Any) -> str:
    """What keeps a record from being stored and read again as it is."""
    try:
        _read_again(record)
    except Exception as error:
        return f"a {type(record).__name__} that could not be read again ({_told(error)})"
    return json_breaks("data", record.data) if isinstance(record, MemoryOperation) else ""


def json_breaks(name: str, given: Mapping[str, Any]) -> str:
    """What keeps values by name from being the same after they were JSON."""
    for key, value in given.items():
        try:
            kept = json.loads(json.dumps({key: value}, allow_nan=False)) == {key: value}
        except (TypeError, ValueError, RecursionError):
            kept = False
        if not kept:
            return f"“{str(key)[:80]}” of its {name} is no JSON ({str(value)[:80]})"
    return ""


def sound_spec(spec: Any, name: str) -> PolicySpec:
    """A card under the name by which the policy is known. Raises `ValueError` that says what is wrong with the card."""
    if not isinstance(spec, PolicySpec):
        raise ValueError("`spec` is no PolicySpec")
    try:
        found: PolicySpec = _read_again(replace(spec, name=name))
    except Exception as error:
        raise ValueError(f"`spec` cannot be shown ({_told(error)})") from error
    if found.variant == "adapted" and not found.deviations:
        raise ValueError("`spec` is called adapted and names no deviations")
    return found


def _read_again(record: Any) -> Any:
    adapter = _adapter(type(record))
    return adapter.validate_json(adapter.dump_json(record, warnings=False))


def _told(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}"[:200]
    return f"{type(error).__name__}: {str(error)[:160]}"
