"""Facts from elsewhere under the names that they get in a bank: every mention of a renamed thing follows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from memrl_core.bank.undo import REVERSIBLE
from memrl_core.records import (
    Decision,
    EventKind,
    LedgerEvent,
    Memory,
    MemoryOperation,
    RecallRecord,
    StepTrace,
    Turn,
)

LINKS = ("undoes", "redoes", "together", "other")
"""Keys of an event's payload that lead to other events or steps, perhaps of another run."""
_OF_MEMORIES = ("replaces", "takes_away")


@dataclass(frozen=True, slots=True)
class Names:
    """The new name of what is renamed, by its old one; what is not there keeps its name.

    `events` names events, and by what they say they were appended together.
    """

    memories: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, str] = field(default_factory=dict)


def renamed_memory(memory: Memory, names: Names) -> Memory:
    """A memory with its parents and run under their new names."""
    return replace(
        memory,
        id=_new(names.memories, memory.id),
        parents=_all(names.memories, memory.parents),
        run=_new(names.runs, memory.run),
    )


def renamed_event(event: LedgerEvent, names: Names) -> LedgerEvent:
    """An event with its run, attempt, memories, what it revokes and its payload under their new names."""
    return replace(
        event,
        id=_new(names.events, event.id),
        run=_new(names.runs, event.run),
        step_id=_new(names.steps, event.step_id),
        memory_ids=_all(names.memories, event.memory_ids),
        revokes=_new(names.events, event.revokes),
        payload=_payload(event, names),
    )


def _payload(event: LedgerEvent, names: Names) -> Mapping[str, Any]:
    payload = event.payload
    if event.kind is EventKind.RUN_STARTED:
        base = payload.get("base")
        return {**payload, "id": _new(names.runs, event.run), "base": base and _new(names.runs, base)}
    if event.kind is EventKind.CREDIT_ASSIGNED:
        return {**payload, "rewards": {_new(names.memories, i): r for i, r in payload["rewards"].items()}}
    if event.kind is EventKind.NOTE_PINNED:
        # What the person saw: the memories that were picked stand among other words and numbers.
        return {key: _new(names.memories, seen) if isinstance(seen, str) else seen for key, seen in payload.items()}
    if event.kind in REVERSIBLE:
        return {key: _followed(key, value, names) for key, value in payload.items()}
    return payload


def _followed(key: str, value: Any, names: Names) -> Any:
    if key in _OF_MEMORIES:
        return list(_all(names.memories, value))
    if key in LINKS:
        return _new(names.steps if key == "other" else names.events, value)
    return value


def renamed_trace(trace: StepTrace, names: Names) -> StepTrace:
    """A step with its run and every memory that it mentions under their new names. Prompts stay as they were sent."""
    known = names.memories
    generate, reward, update, write = trace.generate, trace.reward, trace.update, trace.write
    return replace(
        trace,
        id=_new(names.steps, trace.id),
        run=_new(names.runs, trace.run),
        recall=trace.recall and _recall(trace.recall, known),
        decision=trace.decision and _decision(trace.decision, known),
        generate=generate
        and replace(
            generate,
            spans=_each(known, generate.spans),
            turns=tuple(_turn(turn, known) for turn in generate.turns),
        ),
        reward=reward and replace(reward, credited=_all(known, reward.credited)),
        update=update and replace(update, changes=_each(known, update.changes)),
        write=write and replace(write, operations=tuple(_operation(one, known) for one in write.operations)),
        consulted=tuple(replace(one, filled=one.filled and _in_data(known, one.filled)) for one in trace.consulted),
    )


def _turn(turn: Turn, known: Mapping[str, str]) -> Turn:
    """What was recalled before a turn and what was left out of it, under new names; the text stays as it was sent."""
    turn = replace(turn, left_out=_all(known, turn.left_out))
    if turn.recalled is None:
        return turn
    recall, decision = _recall(turn.recalled.recall, known), _decision(turn.recalled.decision, known)
    return replace(turn, recalled=replace(turn.recalled, recall=recall, decision=decision))


def _operation(operation: MemoryOperation, known: Mapping[str, str]) -> MemoryOperation:
    return replace(
        operation,
        memory_id=_new(known, operation.memory_id),
        parents=_all(known, operation.parents),
        duplicate_of=operation.duplicate_of and _new(known, operation.duplicate_of),
        replaces=_all(known, operation.replaces),
        data={_in_data(known, key): _in_data(known, value) for key, value in operation.data.items()},
    )


def _in_data(known: Mapping[str, str], value: Any) -> Any:
    """What a policy keeps with a memory: a text that is a memory's whole id is taken for that memory."""
    if isinstance(value, str):
        return _new(known, value)
    if isinstance(value, Mapping):
        return {_in_data(known, key): _in_data(known, inner) for key, inner in value.items()}
    return type(value)(_in_data(known, inner) for inner in value) if isinstance(value, list | tuple) else value


def _recall(recall: RecallRecord, known: Mapping[str, str]) -> RecallRecord:
    return replace(recall, pool=_each(known, recall.pool), left_out=_each(known, recall.left_out))


def _decision(decision: Decision, known: Mapping[str, str]) -> Decision:
    return replace(
        decision,
        candidates=_each(known, decision.candidates),
        selected=_all(known, decision.selected),
        greedy=_all(known, decision.greedy),
    )


def _new(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)


def _all(names: Mapping[str, str], mentioned: Iterable[str]) -> tuple[str, ...]:
    return tuple(names.get(name, name) for name in mentioned)


def _each(names: Mapping[str, str], records: Iterable[Any]) -> tuple[Any, ...]:
    """Records about a memory each, under its new name."""
    return tuple(replace(record, memory_id=_new(names, record.memory_id)) for record in records)
