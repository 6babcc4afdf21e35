"""What is remembered of a bank's rows while they are read once, to hold one table against another afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memrl_core.bank import codec
from memrl_core.bank.consequences import Consequence, consequences
from memrl_core.bank.faults import (
    REPLACING,
    Row,
    event_fault,
    memory_fault,
    payload_in,
    place_fault,
    step_fault,
    trace_in,
    value_fault,
    vector_fault,
)
from memrl_core.bank.operations import WRITING
from memrl_core.records import EventKind


@dataclass(slots=True)
class Seen:
    """What is remembered of the rows that were read, so that one table can be held against another.

    Texts are remembered by their hashes. `written` maps a memory to its texts as the step tells them that wrote it.
    """

    rows: dict[str, int] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, dict[str, int]] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    contradicting: list[str] = field(default_factory=list)
    texts: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    written: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    events: dict[str, list[Consequence]] = field(default_factory=dict)
    outside: list[Consequence] = field(default_factory=list)
    left: dict[str, list[Consequence]] = field(default_factory=dict)
    numbers: dict[str, set[int]] = field(default_factory=dict)
    at: dict[str, tuple[str, int]] = field(default_factory=dict)
    intents: int = 0
    places: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    runs_begun: set[str] = field(default_factory=set)
    runs_named: set[str] = field(default_factory=set)
    bases: set[str] = field(default_factory=set)
    embedders: set[str] = field(default_factory=set)
    snapshot: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)

    def fault(self, name: str, row_id: object, why: str) -> None:
        """Note what is wrong with a row."""
        self.faults.setdefault(name, []).append(f"{str(row_id)[:80]} {why}")


def _look_at_meta(row: Row, dimension: int, seen: Seen) -> None:
    _once(seen, "meta", row, row.get("key"))


def _look_at_memory(row: Row, dimension: int, seen: Seen) -> None:
    memory_id = row.get("id")
    if why := memory_fault(row):
        seen.fault("memories", memory_id, why)
    if why := vector_fault(row.get("embedding"), dimension):
        seen.fault("embeddings", memory_id, why)
    if _once(seen, "memories", row, memory_id) and {"run", "intent", "experience"} <= row.keys():
        seen.texts[str(memory_id)] = (str(row["run"]), hash(row["intent"]), hash(row["experience"]))
        seen.parents.update(codec.parents_of(row.get("parents")))


def _look_at_step(row: Row, dimension: int, seen: Seen) -> None:
    step_id = row.get("id")
    if why := step_fault(row):
        seen.fault("traces", step_id, why)
    if row.get("embedding") is not None:
        seen.intents += 1
        if why := vector_fault(row["embedding"], dimension):
            seen.fault("intents", step_id, why)
    trace = trace_in(row)
    if not _once(seen, "steps", row, step_id) or trace is None:
        return
    seen.left[trace.id] = consequences(trace)
    seen.at[trace.id] = (trace.run, trace.step)
    seen.numbers.setdefault(trace.run, set()).add(trace.step)
    seen.runs_named.add(trace.run)
    if trace.embed is not None:
        seen.embedders.add(trace.embed.embedder)
    for op in trace.write.operations if trace.write else ():
        if op.op in WRITING:
            seen.written[op.memory_id] = (trace.run, hash(op.intent), hash(op.experience))


def _look_at_event(row: Row, dimension: int, seen: Seen) -> None:
    why = event_fault(row)
    if why:
        seen.fault("events", row.get("id"), why)
    if not _once(seen, "ledger", row, row.get("id")) or why:
        return
    kind, payload = EventKind(row["kind"]), payload_in(row) or {}
    if kind is EventKind.RUN_STARTED:
        seen.runs_begun.add(row["run"])
        seen.embedders.add(payload["embedder"])
        if payload.get("base") is not None:
            seen.bases.add(payload["base"])
    if kind is not EventKind.ROLE_ASSIGNED:
        seen.runs_named.add(row["run"])
    # What nobody compares is not kept: a bank may hold many long notes.
    told = {"replaces": payload["replaces"]} if kind in REPLACING else {}
    event = Consequence(row["id"], kind, tuple(row["memory_ids"] or ()), row["value"], row["source"], "", told)
    if row["step_id"]:
        seen.events.setdefault(row["step_id"], []).append(event)
        seen.places.setdefault(row["step_id"], set()).add((row["run"], row["step"]))
    else:
        seen.outside.append(event)


def _look_at_value(row: Row, dimension: int, seen: Seen) -> None:
    if why := value_fault(row):
        seen.fault("snapshot", row.get("memory_id"), why)
    else:
        seen.snapshot[row["run"], row["memory_id"]] = (row["q"], row["visits"])


def _look_at_place(row: Row, dimension: int, seen: Seen) -> None:
    if why := place_fault(row):
        seen.fault("map", row.get("memory_id"), why)
    else:
        seen.placed.add(row["memory_id"])


LOOKS: Mapping[str, Callable[[Row, int, Seen], None]] = {
    "meta": _look_at_meta,
    "memories": _look_at_memory,
    "steps": _look_at_step,
    "ledger": _look_at_event,
    "q_values": _look_at_value,
    "layouts": _look_at_place,
}
"""How a row of each table is looked at, given how many numbers an embedding has."""


def _once(seen: Seen, name: str, row: Row, row_id: object) -> bool:
    """Remember a row's id; False when it came before."""
    content = hash(tuple(str(cell) for column, cell in sorted(row.items()) if column != "created"))
    known = seen.ids.setdefault(name, {})
    if str(row_id) not in known:
        known[str(row_id)] = content
        return True
    before = known[str(row_id)]
    seen.doubled.append(f"{str(row_id)[:80]} ({name})")
    if before != content:
        seen.contradicting.append(seen.doubled[-1])
    return False
