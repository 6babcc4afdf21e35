"""What is wrong with single rows of a bank. A row is a dictionary; a cell that could not be read is absent from it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from memrl_core.bank import codec
from memrl_core.bank.mirror import UNIT_TOLERANCE
from memrl_core.bank.roles import Role
from memrl_core.records import EventKind, Outcome, RewardSource, StepTrace

Row = Mapping[str, Any]
BRINGS_IN = frozenset(
    {EventKind.MEMORY_WRITTEN, EventKind.MEMORY_IMPORTED, EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED}
)
"""The events by which a run comes to see a memory: it cannot be shown when that memory is not there."""
REPLACING = frozenset({EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED})
MAY_BE_NULL = frozenset({"parents", "memory_ids", "reward", "value", "embedding"})


def vector_fault(vector: Any, dimension: int) -> str:
    """Why something is no unit vector (d,) of `dimension` finite numbers; "" when it is one."""
    if vector is None:
        return "has no embedding"
    if np.shape(vector) != (dimension,):
        return f"has an embedding of {np.size(vector)} numbers instead of {dimension}"
    length = float(np.linalg.norm(np.asarray(vector, dtype=np.float64)))
    return "" if abs(length - 1) <= UNIT_TOLERANCE else "has an embedding that is no finite vector of length 1"


def memory_fault(row: Row) -> str:
    """What is wrong with a row of `memories`, its embedding aside; "" when nothing is."""
    fault = _cells_fault(row, "memories", without="embedding")
    if not fault and row["outcome"] not in get_args(Outcome):
        return "has an outcome that there is not"
    return fault


def step_fault(row: Row) -> str:
    """What is wrong with a row of `steps`, its embedding aside; "" when nothing is."""
    trace = trace_in(row)
    if trace is None:
        return "has a record that cannot be read"
    fault = _cells_fault(row, "steps", without="embedding")
    if fault:
        return fault
    said = codec.step_row(trace, row["created"])
    odd = [name for name in codec.STEP_COLUMNS if name != "created" and row[name] != said[name]]
    return f"has another {odd[0]} than its record says" if odd else ""


def trace_in(row: Row) -> StepTrace | None:
    """The trace of a row of `steps` without its embedding; None when it cannot be read."""
    try:
        return codec.trace_of({"trace": row["trace"], "embedding": None})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def event_fault(row: Row) -> str:
    """What is wrong with a row of `ledger`; "" when nothing is."""
    fault = _cells_fault(row, "ledger")
    if fault:
        return fault
    if row["kind"] not in set(EventKind):
        return "has a kind that this version does not know"
    if row["source"] not in ("", *get_args(RewardSource)):
        return "has a source that there is not"
    if row["value"] is not None and not math.isfinite(row["value"]):
        return "has a value that is no finite number"
    if row["value"] is None and row["kind"] == EventKind.REWARD_GIVEN:
        return "is a reward without a value"
    payload = payload_in(row)
    if payload is None:
        return "has a payload that cannot be read"
    try:
        fits = _PAYLOADS.get(EventKind(row["kind"]), _anything)(row, payload)
    except (ValueError, KeyError, TypeError, AttributeError):
        fits = False
    return "" if fits else "has a payload that its kind cannot have"


def payload_in(row: Row) -> dict[str, Any] | None:
    """The payload of a row of `ledger`; None when it is no JSON object."""
    try:
        payload = json.loads(row["payload"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


def value_fault(row: Row) -> str:
    """What is wrong with a row of `q_values`; "" when nothing is."""
    fault = _cells_fault(row, "q_values")
    if fault:
        return fault
    return "" if math.isfinite(row["q"]) and row["visits"] >= 0 else "has a q or visits that cannot be"


def place_fault(row: Row) -> str:
    """What is wrong with a row of `layouts`; "" when nothing is."""
    fault = _cells_fault(row, "layouts")
    if fault:
        return fault
    return "" if math.isfinite(row["x"]) and math.isfinite(row["y"]) else "has a place that is no finite number"


def _cells_fault(row: Row, table: str, without: str = "") -> str:
    for column in codec.schemas(1)[table]:
        name = column.name
        if name == without:
            continue
        if name not in row:
            return f"has a cell that cannot be read: {name}"
        value = row[name]
        if value is None:
            if name not in MAY_BE_NULL:
                return f"has no {name}"
        elif not _is_of(value, column.type):
            return f"has a {name} of another type"
        elif name in codec.NUMBERS_OF_STEPS and abs(value) > codec.LARGEST_STEP:
            return f"has a {name} that cannot be: {value}"
    return "has an empty id" if row.get("id") == "" else ""


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_int64(kind):
        return isinstance(value, int)
    if pa.types.is_float64(kind):
        return isinstance(value, int | float)
    return _is_texts(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _anything(row: Row, payload: Mapping[str, Any]) -> bool:
    return True


def _is_run(row: Row, payload: Mapping[str, Any]) -> bool:
    named: str = row["run"]
    return codec.run_of(payload).id == named


def _is_replacement(row: Row, payload: Mapping[str, Any]) -> bool:
    return len(row["memory_ids"] or ()) == 1 and _is_texts(payload["replaces"])


def _is_credit(row: Row, payload: Mapping[str, Any]) -> bool:
    rewards: Mapping[str, float] = payload["rewards"]
    return all(math.isfinite(reward) for reward in rewards.values())


def _is_role(row: Row, payload: Mapping[str, Any]) -> bool:
    return isinstance(payload["person"], str) and payload["role"] in set(Role)


_PAYLOADS: Mapping[EventKind, Callable[[Row, Mapping[str, Any]], bool]] = {
    EventKind.RUN_STARTED: _is_run,
    EventKind.SETTINGS_CHANGED: lambda row, payload: isinstance(payload["settings"], dict),
    EventKind.ENVIRONMENT_CHANGED: lambda row, payload: isinstance(payload["options"], dict),
    EventKind.MEMORY_WRITTEN: lambda row, payload: int(payload.get("visits", 0)) >= 0,
    EventKind.MEMORY_IMPORTED: lambda row, payload: int(payload.get("visits", 0)) >= 0,
    EventKind.MEMORY_EDITED: _is_replacement,
    EventKind.MEMORY_MERGED: _is_replacement,
    EventKind.MEMORY_RESTORED: lambda row, payload: _is_texts(payload.get("takes_away", [])),
    EventKind.CREDIT_ASSIGNED: _is_credit,
    EventKind.ROLE_ASSIGNED: _is_role,
}
