"""Records to rows of `bank.db` and of the table `memories`, and back. The schema is public: docs/format.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter
from sqlalchemy import select

from memrl_core.bank.people.roles import actor_of
from memrl_core.bank.storage import schema
from memrl_core.bank.storage.digests import digest
from memrl_core.errors import BankDamaged
from memrl_core.records import Candidate, EventKind, LedgerEvent, Memory, RunInfo, StepTrace, UtilityPoint
from memrl_core.retrieval.view import LEAST_PART, Embeddings

LARGEST_STEP = 10_000_000
STEP_COLUMNS = ("id", "run", "step", "epoch", "task", "outcome", "reward", "created")
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError)
"""What rows raise that another program has written, or that were damaged."""

_TRACE = TypeAdapter(StepTrace)
_RUN = TypeAdapter(RunInfo)
EVENT_FIELDS = tuple(LedgerEvent.__dataclass_fields__)
_MEMORY_FIELDS = tuple(Memory.__dataclass_fields__)
_MOVE_FIELDS = ("memory_id", "step", "before", "after", "visits", "reward", "source")

EVENTS = select(*(schema.ledger.c[name] for name in EVENT_FIELDS))
"""A query to which a WHERE is added; `event_of` reads what it finds."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A finished step in short, with the columns `STEP_COLUMNS`; `reward` is the one it ended with."""

    id: str
    run: str
    step: int
    epoch: int
    task: str
    outcome: str
    reward: float | None
    created: str


@dataclass(frozen=True, slots=True)
class Inserted:
    """Where a memory stands in the order of age: `seq` of the event that brought it into its run, and where in that."""

    seq: int
    position: int = 0


# --- runs -------------------------------------------------------------------------------------------------------------


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


def run_row(info: RunInfo) -> dict[str, Any]:
    """A row of `runs`."""
    names = {column.name for column in schema.runs.c} - {"position", "settings", "info"}
    row = {name: getattr(info, name) for name in names}
    payload = run_payload(info)
    return {**row, "settings": json.dumps(payload["settings"]), "info": json.dumps(payload)}


# --- steps ------------------------------------------------------------------------------------------------------------


def step_row(trace: StepTrace, created: str) -> dict[str, Any]:
    """A row of `steps`: the intent's vector stands in its own column instead of in the JSON; null when not known."""
    bare = replace(trace, embed=replace(trace.embed, embedding=())) if trace.embed else trace
    row = {
        "id": trace.id,
        "run": trace.run,
        "step": trace.step,
        "epoch": trace.epoch,
        "task": trace.task.id,
        "outcome": trace.reward.outcome if trace.reward else "unrated",
        "reward": trace.reward.reward if trace.reward else None,
        "seconds": math.fsum(trace.seconds.values()),
        "created": created,
        "embedding": np.asarray(trace.embed.embedding, dtype="<f4").tobytes() if trace.embed else None,
        "trace": _TRACE.dump_json(bare).decode(),
    }
    return {**row, "digest": digest(row)}


def trace_of(trace: str | bytes, embedding: bytes | None) -> StepTrace:
    """The trace of a row of `steps`. Raises `ValueError` when the JSON is not a trace."""
    found = _TRACE.validate_json(trace)
    if found.embed is None or embedding is None:
        return found
    return replace(found, embed=replace(found.embed, embedding=tuple(vector_of(embedding).tolist())))


def trace_at(trace: str, embedding: bytes | None, run: str, step: int) -> StepTrace:
    """The trace of a row of `steps`. Raises `BankDamaged` when it cannot be read."""
    try:
        return trace_of(trace, embedding)
    except (ValueError, KeyError) as error:
        raise BankDamaged(
            f"Step {step} of run {run} cannot be read. Nothing was changed; its rewards, memories and q are kept. Look "
            "at another step, or restore a copy of the bank."
        ) from error


def vector_of(numbers: bytes) -> npt.NDArray[np.float32]:
    """The vector (d,) in a cell."""
    return np.frombuffer(numbers, dtype="<f4")


def candidate_rows(trace: StepTrace) -> list[dict[str, Any]]:
    """The rows of `candidates`: the memories that the phases A and B of a step looked at."""
    seen: dict[str, Any] = {"run": trace.run, "step": trace.step}
    decision = trace.decision
    if decision is not None:
        seen["propensity"] = decision.propensity
        return [seen | _candidate_row(one) for one in decision.candidates]
    if trace.recall is None:
        return []
    seen |= dict.fromkeys(("rank_select", "similarity_z", "q", "q_z", "score", "propensity"))
    return [
        seen
        | {
            "memory_id": one.memory_id,
            "rank_recall": one.rank_recall,
            "similarity": one.similarity,
            "selected": False,
            "reason": None if one.reason is None else str(one.reason),
        }
        for one in (*trace.recall.pool, *trace.recall.left_out)
    ]


def _candidate_row(one: Candidate) -> dict[str, Any]:
    z = {term.name: term.normalised for term in one.terms}
    return {
        "memory_id": one.memory_id,
        "rank_recall": one.rank_recall,
        "rank_select": one.rank_select,
        "similarity": one.similarity,
        "similarity_z": z.get("similarity"),
        "q": one.q,
        "q_z": z.get("q"),
        "score": one.score,
        "selected": one.selected,
        "reason": str(one.reason),
    }


# --- the ledger -------------------------------------------------------------------------------------------------------


def event_row(event: LedgerEvent) -> dict[str, Any]:
    """A row of `ledger`."""
    row: dict[str, Any] = {name: getattr(event, name) for name in EVENT_FIELDS}
    row["kind"] = str(event.kind)
    row["memory_ids"] = json.dumps(event.memory_ids)
    row["payload"] = json.dumps(dict(event.payload))
    row["digest"] = digest(row)
    return {**row, "actor": actor_of(event), "undoes": str(event.payload.get("undoes", ""))}


def event_of(row: Sequence[Any]) -> LedgerEvent:
    """The event of a row that `EVENTS` finds. Raises `ValueError` for a kind that this version does not know."""
    id_, seq, run, step, step_id, known_at, kind, memory_ids, value, source, rater, reason, revokes, payload, made = row
    return LedgerEvent(
        id_,
        seq,
        run,
        step,
        step_id,
        known_at,
        EventKind(kind),
        tuple(json.loads(memory_ids)),
        value,
        source,
        rater,
        reason,
        revokes,
        json.loads(payload),
        made,
    )


def move_row(run: str, number: int, point: UtilityPoint, event_id: str) -> dict[str, Any]:
    """A row of `q_moves`: the entry of this number in a memory's history."""
    row = {name: getattr(point, name) for name in _MOVE_FIELDS}
    return {"run": run, "number": number, **row, "event": event_id, "raters": json.dumps(point.raters)}


MOVES = "SELECT memory_id, step, before, after, visits, reward, source, raters FROM q_moves WHERE run = ?"


def move_of(row: Sequence[Any]) -> UtilityPoint:
    """The entry of a row that `MOVES` finds."""
    memory_id, step, before, after, visits, reward, source, raters = row
    given = () if raters == "[]" else tuple(json.loads(raters))
    return UtilityPoint(memory_id, step, before, after, visits, reward, source, given)


# --- memories ---------------------------------------------------------------------------------------------------------


@cache
def memory_schema(dimension: int) -> pa.Schema:
    """What is known of a memory itself, with its embedding."""
    text, whole = pa.string(), pa.int64()
    return pa.schema(
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
            "embedding": pa.list_(pa.float32(), dimension),
        }
    )


@cache
def table_schema(dimension: int) -> pa.Schema:
    """The columns of the table `memories`: `origin` is the run that a memory is from."""
    columns = [field.with_name("origin") if field.name == "run" else field for field in memory_schema(dimension)]
    return pa.schema([*columns, ("seq", pa.int64()), ("place", pa.int64()), ("digest", pa.string())])


def memory_row(memory: Memory, embedding: npt.NDArray[np.float32]) -> dict[str, Any]:
    """A memory with its embedding (d,), as `memory_schema` has it."""
    row = {name: getattr(memory, name) for name in _MEMORY_FIELDS}
    return {**row, "parents": list(memory.parents), "embedding": embedding}


def table_row(memory: Memory, embedding: npt.NDArray[np.float32], inserted: Inserted) -> dict[str, Any]:
    """A row of the table `memories`."""
    row = memory_row(memory, embedding)
    row["origin"] = row.pop("run")
    row |= {"seq": inserted.seq, "place": inserted.position}
    return {**row, "digest": digest(row)}


def memory_of(row: Mapping[str, Any]) -> Memory:
    """The memory of a row of the table `memories`."""
    values = {name: row["origin" if name == "run" else name] for name in _MEMORY_FIELDS}
    return Memory(**{**values, "parents": tuple(parent for parent in row["parents"] or () if parent is not None)})


def arrow(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table of exactly this schema."""
    return pa.Table.from_pylist(list(rows), schema)


def embeddings_apart(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.Table, Embeddings]:
    """The rows without their embeddings, and these (n, dimension). Raises `ValueError` where one has none.

    They stay where Arrow holds them: to copy a hundred thousand embeddings takes as long as to read them.
    """
    index = schema.get_field_index("embedding")
    dimension = schema.field(index).type.list_size
    others, parts = [], []
    for batch in batches:
        column = batch.column(index)
        if column.null_count:
            raise ValueError("A row has no vector.")
        parts.append(column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension))
        others.append(batch.drop_columns(["embedding"]))
    return pa.Table.from_batches(others, schema.remove(index)), Embeddings(_with_small_joined(parts), dimension)


def _with_small_joined(parts: list[npt.NDArray[np.float32]]) -> Iterator[npt.NDArray[np.float32]]:
    for is_large, neighbours in groupby(parts, lambda part: len(part) >= LEAST_PART):
        if is_large:
            yield from neighbours
        else:
            yield np.concatenate(list(neighbours))


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of the table `memories`, each embedding as an array (d,)."""
    others, embeddings = embeddings_apart(table.to_batches(), table.schema)
    for row, vector in zip(others.to_pylist(), embeddings, strict=True):
        yield {**row, "embedding": vector}
