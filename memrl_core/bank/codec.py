"""Records to rows and back. The schema of the tables is public: any LanceDB client can read a bank."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from memrl_core.records import EventKind, LedgerEvent, Memory, RunInfo, StepTrace

SCHEMA_VERSION = 1
LARGEST_STEP = 10_000_000
NUMBERS_OF_STEPS = frozenset({"step", "known_at"})

_TRACE = TypeAdapter(StepTrace)
_RUN = TypeAdapter(RunInfo)

STEP_COLUMNS = ("id", "run", "step", "epoch", "task", "outcome", "reward", "created")


def vector_type(dimension: int) -> pa.DataType:
    """A unit embedding."""
    return pa.list_(pa.float32(), dimension)


def schemas(dimension: int) -> dict[str, pa.Schema]:
    """Every table of a bank whose embeddings have `dimension` numbers."""
    text, whole, real = pa.string(), pa.int64(), pa.float64()
    return {
        "meta": pa.schema({"key": text, "value": text}),
        "memories": pa.schema(
            {
                "id": text,
                "intent": text,
                "experience": text,
                "outcome": text,
                "intent_key": text,
                "parents": pa.list_(text),
                "run": text,
                "step": whole,
                "task": text,
                "created": text,
                "embedding": vector_type(dimension),
            }
        ),
        "steps": pa.schema(
            {
                "id": text,
                "run": text,
                "step": whole,
                "epoch": whole,
                "task": text,
                "outcome": text,
                "reward": real,
                "created": text,
                "embedding": vector_type(dimension),
                "trace": text,
            }
        ),
        "ledger": pa.schema(
            {
                "id": text,
                "seq": whole,
                "run": text,
                "step": whole,
                "step_id": text,
                "known_at": whole,
                "kind": text,
                "memory_ids": pa.list_(text),
                "value": real,
                "source": text,
                "rater": text,
                "reason": text,
                "revokes": text,
                "payload": text,
                "created": text,
            }
        ),
        "q_values": pa.schema({"run": text, "memory_id": text, "q": real, "visits": whole}),
        "layouts": pa.schema(
            {"layout": text, "method": text, "memory_id": text, "x": real, "y": real, "fitted": pa.bool_()}
        ),
    }


def memory_row(memory: Memory, embedding: npt.NDArray[np.float32]) -> dict[str, Any]:
    """A row of `memories`; `embedding` is (d,)."""
    return {
        "id": memory.id,
        "intent": memory.intent,
        "experience": memory.experience,
        "outcome": memory.outcome,
        "intent_key": memory.intent_key,
        "parents": list(memory.parents),
        "run": memory.run,
        "step": memory.step,
        "task": memory.task,
        "created": memory.created,
        "embedding": embedding,
    }


def memory_of(row: Mapping[str, Any]) -> Memory:
    """The memory of a row of `memories`."""
    values = {name: row[name] for name in Memory.__dataclass_fields__}
    return Memory(**{**values, "parents": parents_of(row["parents"])})


def memories_of(table: pa.Table) -> Iterator[Memory]:
    """The memories of rows of `memories`, as `memory_of` gives them; their embeddings are not looked at.

    Raises `ValueError` where a row has no id.
    """
    must_be_usable(table)
    columns = {name: table[name].to_pylist() for name in Memory.__dataclass_fields__}
    columns["parents"] = [parents_of(parents) for parents in columns["parents"]]
    return map(Memory, *columns.values())


def parents_of(cell: Sequence[str | None] | None) -> tuple[str, ...]:
    """The parents that a cell names; other programs may have left places in it empty."""
    return tuple(parent for parent in cell or () if parent is not None)


def step_row(trace: StepTrace, created: str) -> dict[str, Any]:
    """A row of `steps`: the intent's vector stands in its own column instead of in the JSON; null when not known."""
    bare = replace(trace, embed=replace(trace.embed, embedding=())) if trace.embed else trace
    return {
        "id": trace.id,
        "run": trace.run,
        "step": trace.step,
        "epoch": trace.epoch,
        "task": trace.task.id,
        "outcome": trace.reward.outcome if trace.reward else "unrated",
        "reward": trace.reward.reward if trace.reward else None,
        "created": created,
        "embedding": np.asarray(trace.embed.embedding, dtype=np.float32) if trace.embed else None,
        "trace": _TRACE.dump_json(bare).decode(),
    }


def trace_of(row: Mapping[str, Any]) -> StepTrace:
    """The trace of a row of `steps`. Raises `ValueError` when the JSON is not a trace."""
    trace = _TRACE.validate_json(row["trace"])
    if trace.embed is None or row["embedding"] is None:
        return trace
    return replace(trace, embed=replace(trace.embed, embedding=tuple(float(x) for x in row["embedding"])))


def event_row(event: LedgerEvent) -> dict[str, Any]:
    """A row of `ledger`."""
    row: dict[str, Any] = {name: getattr(event, name) for name in LedgerEvent.__dataclass_fields__}
    row["kind"] = str(event.kind)
    row["memory_ids"] = list(event.memory_ids)
    row["source"] = event.source or ""
    row["payload"] = json.dumps(dict(event.payload))
    return row


def event_of(row: Mapping[str, Any]) -> LedgerEvent:
    """The event of a row of `ledger`. Raises `ValueError` for a kind that this version does not know."""
    return LedgerEvent(**{**row, **{name: read(row[name]) for name, read in _READ.items()}})


def events_of(table: pa.Table) -> Iterator[LedgerEvent]:
    """The events of rows of `ledger`, as `event_of` gives them.

    Raises `KeyError` when a column is missing, `ValueError` where a row has no id.
    """
    must_be_usable(table)
    # A dictionary a row makes opening a large bank a third slower.
    columns = {name: table[name].to_pylist() for name in LedgerEvent.__dataclass_fields__}
    return map(LedgerEvent, *(map(_READ[name], c) if name in _READ else c for name, c in columns.items()))


_READ: Mapping[str, Callable[[Any], Any]] = {
    "kind": EventKind,
    "memory_ids": lambda ids: tuple(ids or ()),
    "source": lambda source: source or None,
    "payload": lambda text: {} if text == "{}" else _payload(text),
}


def _payload(text: str) -> dict[str, Any]:
    payload = json.loads(text)
    if not isinstance(payload, dict):
        raise ValueError("A payload is no object.")
    return payload


def run_payload(info: RunInfo) -> dict[str, Any]:
    """A run as the payload of its first event."""
    payload: dict[str, Any] = _RUN.dump_python(info, mode="json")
    return payload


def run_of(payload: Mapping[str, Any]) -> RunInfo:
    """The run of a RUN_STARTED payload. Raises `ValueError` for one that no run can begin with."""
    run: RunInfo = _RUN.validate_python(dict(payload))
    if max(run.first_step, run.base_step) > LARGEST_STEP:
        raise ValueError("A run begins at a step that cannot be.")
    return run


def must_be_usable(table: pa.Table) -> None:
    """Raise `ValueError` where a row has no id, an infinite value, or a step beyond `LARGEST_STEP`.

    Histories are walked step by step: a step of any number would never be reached.
    """
    if table["id"].null_count:
        raise ValueError("A row has no id.")
    for name in NUMBERS_OF_STEPS.intersection(table.column_names):
        ends = pc.min_max(table[name]).as_py()
        if any(end is not None and abs(end) > LARGEST_STEP for end in ends.values()):
            raise ValueError("A row has a number of a step that cannot be.")
    if "value" in table.column_names and pc.all(pc.is_finite(table["value"])).as_py() is False:
        raise ValueError("A row has a value that is no finite number.")


def arrow(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table of exactly this schema."""
    listed = list(rows)
    columns = []
    for field in schema:
        values = [row[field.name] for row in listed]
        if pa.types.is_fixed_size_list(field.type):
            columns.append(_vectors(values, field.type.list_size))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def _vectors(values: list[Any], dimension: int) -> pa.Array:
    absent = np.array([value is None for value in values], dtype=bool)
    empty = np.zeros(dimension, dtype=np.float32)
    flat = [empty if value is None else np.asarray(value, dtype=np.float32) for value in values]
    joined = np.concatenate(flat) if flat else np.zeros(0, np.float32)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(joined), dimension, mask=pa.array(absent) if absent.any() else None
    )


def matrix_of(column: pa.ChunkedArray | pa.Array, dimension: int) -> npt.NDArray[np.float32]:
    """A vector column as (n, dimension) float32. Raises `ValueError` where a row has none."""
    if column.null_count:
        raise ValueError("A row has no vector.")
    joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], joined.type)
    flat = joined.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(-1, dimension)
