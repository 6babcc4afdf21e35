"""Rows that were salvaged from a damaged bank, sorted into what is kept, what is set aside and what is made anew.

What a bank says twice decides: a step's record and the ledger tell the same rewards and memory operations, and a step
that wrote a memory has its text. Where they differ the step's record is believed, because its columns bear it out, and
the other row is set aside. Nothing is made up: a memory without its embedding cannot be found, so it is set aside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memrl_core.bank.beginnings import let_runs_begin
from memrl_core.bank.consequences import Consequence, agreement, consequences
from memrl_core.bank.faults import (
    BRINGS_IN,
    REPLACING,
    Row,
    event_fault,
    memory_fault,
    payload_in,
    place_fault,
    step_fault,
    trace_in,
    vector_fault,
)
from memrl_core.bank.mended import Mended, step_row
from memrl_core.bank.operations import WRITING
from memrl_core.bank.standing_in import stand_in
from memrl_core.records import EventKind, LedgerEvent, MemoryOperation, StepTrace

TWICE = "was stored before under the same id; the first is kept"
NO_VECTOR = "the embedding of its intent, which was damaged"


def mended(tables: Mapping[str, Sequence[Row]], dimension: int, steps_lost: bool) -> Mended:
    """Sort the rows of `memories`, `steps`, `ledger` and `layouts`, whose embeddings have `dimension` numbers.

    `steps_lost` says that rows of `steps` are known to be gone: attempts that left what a step leaves when it ends
    then count as ended.
    """
    made = Mended()
    _keep_events(made, tables["ledger"])
    traces = _keep_steps(made, tables["steps"], dimension)
    stand_in(made, traces, tables["steps"], steps_lost)
    _keep_memories(made, tables["memories"], _operations(traces.values()), dimension)
    let_runs_begin(made, traces)
    _tell_again(made, traces)
    _let_go_of_missing(made, traces)
    for row in tables["layouts"]:
        why = place_fault(row) or ("" if row["memory_id"] in made.memories else "is of a memory that is not there")
        if why:
            made.set_aside("layouts", row, why)
        else:
            made.places.append(dict(row))
    return made


# --- each table by itself ---------------------------------------------------------------------------------------------


def _keep_events(made: Mended, rows: Iterable[Row]) -> None:
    for row in rows:
        why = event_fault(row) or (TWICE if row["id"] in made.ledger else "")
        if why:
            made.set_aside("ledger", row, why)
        else:
            made.ledger[row["id"]] = dict(row)


def _keep_steps(made: Mended, rows: Iterable[Row], dimension: int) -> dict[str, StepTrace]:
    places = {event["step_id"]: (event["run"], event["step"]) for event in made.ledger.values()}
    traces: dict[str, StepTrace] = {}
    for row in rows:
        trace = trace_in(row)
        if trace is None:
            made.set_aside("steps", row, "has a record that cannot be read")
            continue
        why = step_fault(row)
        if why and trace.id not in places and row.get("id") in places:
            trace = replace(trace, id=row["id"])
        if why and trace.id in places:
            run, step = places[trace.id]
            trace = replace(trace, run=run, step=step)
        vector = row.get("embedding")
        damaged = "embedding" not in row or (vector is not None and vector_fault(vector, dimension))
        if damaged and trace.embed is not None:
            vector, trace = None, replace(trace, embed=None, lacks=(*trace.lacks, NO_VECTOR))
        why = TWICE if trace.id in traces else why or ("has an embedding that cannot be used" if damaged else "")
        if why:
            made.set_aside("steps", row, why)
        if why == TWICE:
            continue
        traces[trace.id] = trace
        made.steps[trace.id] = step_row(trace, row, vector) if why else dict(row)
        made.rebuilt["steps"] += bool(why)
    return traces


def _operations(traces: Iterable[StepTrace]) -> dict[str, tuple[StepTrace, MemoryOperation]]:
    return {
        op.memory_id: (trace, op)
        for trace in traces
        for op in (trace.write.operations if trace.write else ())
        if op.op in WRITING
    }


def _keep_memories(
    made: Mended, rows: Iterable[Row], written: Mapping[str, tuple[StepTrace, MemoryOperation]], dimension: int
) -> None:
    for row in rows:
        memory_id = row.get("id")
        without = vector_fault(row.get("embedding"), dimension)
        if without or not isinstance(memory_id, str) or not memory_id:
            made.set_aside("memories", row, without or "has no id that can be read")
        elif memory_id in made.memories:
            made.set_aside("memories", row, TWICE)
        else:
            _keep_memory(made, row, memory_id, *written.get(memory_id, (None, None)))


def _keep_memory(made: Mended, row: Row, memory_id: str, trace: StepTrace | None, op: MemoryOperation | None) -> None:
    why = memory_fault(row)
    if trace is not None and op is not None and (why or row["run"] == trace.run):
        if not why and (row["intent"], row["experience"]) != (op.intent, op.experience):
            why = "has another text than the step says that wrote it"
        if why:
            made.memories[memory_id] = _memory_row(row, trace, op)
            made.rebuilt["memories"] += 1
    if why:
        made.set_aside("memories", row, why)
    else:
        made.memories[memory_id] = dict(row)


def _memory_row(row: Row, trace: StepTrace, op: MemoryOperation) -> dict[str, Any]:
    """A memory as the step tells that wrote it, with the embedding that was read."""
    task, created = row.get("task"), row.get("created")
    return {
        "id": op.memory_id,
        "intent": op.intent,
        "experience": op.experience,
        "outcome": op.outcome,
        "intent_key": op.intent_key,
        "parents": list(op.parents),
        "run": trace.run,
        "step": trace.step,
        "task": task if isinstance(task, str) else trace.task.id,
        "created": created if isinstance(created, str) else trace.started,
        "embedding": row["embedding"],
    }


# --- one table against another ----------------------------------------------------------------------------------------


def _tell_again(made: Mended, traces: Mapping[str, StepTrace]) -> None:
    """Write the events anew that steps must have left and that are not in the ledger, or are others there."""
    left: dict[str, list[Consequence]] = defaultdict(list)
    for row in list(made.ledger.values()):
        if row["step_id"] in traces:
            trace = traces[row["step_id"]]
            if (row["run"], row["step"]) != (trace.run, trace.step):
                made.set_aside("ledger", row, "is of another step than the attempt that it names")
                made.ledger[row["id"]] = {**row, "run": trace.run, "step": trace.step}
                made.rebuilt["ledger"] += 1
            left[row["step_id"]].append(_consequence(row))
    for trace in traces.values():
        expected = consequences(trace)
        base = _clock(made, trace, expected)
        for position, one in enumerate(expected):
            if one.kind in BRINGS_IN and not made.memories.keys() >= set(one.memory_ids):
                continue
            said, other = agreement(one, left[trace.id])
            if said == "same":
                continue
            stood = made.ledger.pop(other, None)
            if stood is not None:
                made.set_aside("ledger", stood, "says something else than the step that it came from")
            made.add_event(_event(trace, one, base + position, stood))


def _consequence(row: Row) -> Consequence:
    kind = EventKind(row["kind"])
    told = {"replaces": (payload_in(row) or {})["replaces"]} if kind in REPLACING else {}
    return Consequence(row["id"], kind, tuple(row["memory_ids"] or ()), row["value"], row["source"], "", told)


def _clock(made: Mended, trace: StepTrace, expected: Sequence[Consequence]) -> int:
    """The `seq` of the first event that a step left: by those that are there, else after what came before the step."""
    for position, one in enumerate(expected):
        if one.id in made.ledger:
            return int(made.ledger[one.id]["seq"]) - position
    before = (e["seq"] for e in made.ledger.values() if e["run"] == trace.run and e["step"] < trace.step)
    return 1 + max(before, default=0)


def _event(trace: StepTrace, one: Consequence, seq: int, stood: Row | None) -> LedgerEvent:
    return LedgerEvent(
        id=one.id if stood is None else stood["id"],
        seq=seq if stood is None else stood["seq"],
        run=trace.run,
        step=trace.step,
        step_id=trace.id,
        known_at=trace.step if stood is None else stood["known_at"],
        kind=one.kind,
        memory_ids=one.memory_ids,
        value=one.value,
        source="environment" if one.source else None,
        reason=one.reason,
        payload=one.payload,
        created=trace.started if stood is None else stood["created"],
    )


def _let_go_of_missing(made: Mended, traces: Mapping[str, StepTrace]) -> None:
    """Let no run see a memory that is not there: it could not be shown. Other mentions of it do no harm and stay."""
    missing = {i for i in _operations(traces.values()) if i not in made.memories}
    for event in list(made.ledger.values()):
        ids, payload = tuple(event["memory_ids"] or ()), payload_in(event) or {}
        replaces = payload.get("replaces", ()) if event["kind"] in REPLACING else ()
        missing.update(i for i in (*ids, *replaces) if i not in made.memories)
        there = [i for i in ids if i in made.memories]
        if event["kind"] in BRINGS_IN and len(there) < len(ids):
            made.set_aside("ledger", dict(event), "brings in a memory that is not there")
            if there:
                made.ledger[event["id"]] = {**event, "memory_ids": there}
                made.rebuilt["ledger"] += 1
            else:
                del made.ledger[event["id"]]
    made.lost_memories = tuple(sorted(missing))
    if missing:
        made.told.append(f"{len(missing)} memories are lost or set aside; no run sees them any more.")
