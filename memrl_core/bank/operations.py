"""What a policy wants done to the memory at the end of a step, as far as it can be done: before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from memrl_core.bank.ledger import Ledger
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.codec import Inserted
from memrl_core.bank.storage.folders import DEVICE, is_reserved
from memrl_core.errors import PolicyFailed
from memrl_core.learning import BRINGS_IN, Fold, in_ledger
from memrl_core.policies import POLICIES
from memrl_core.records import EventKind, LedgerEvent, Memory, MemoryOperation, StepTrace

METADATA = "metadata"
"""Under which name the events that bring a memory in hold what is known of it besides (JSON)."""
WRITING = {
    "ADD": EventKind.MEMORY_WRITTEN,
    "UPDATE": EventKind.MEMORY_EDITED,
    "MERGE": EventKind.MEMORY_MERGED,
}
"""The operations that write a memory, and the events that tell of them."""
RUN_NAME = (
    "A run's name has 1 to 200 letters (A to Z), digits, “-”, “_” and “.” only, begins with a letter, a digit or “_”, "
    f"and is no {DEVICE}: it becomes a part of commands, links and names of files."
)
CHANGED_SINCE = "what it was about is pinned, was changed or was forgotten meanwhile"


def is_run_name(name: str) -> bool:
    """Whether a run may have this name (`RUN_NAME`)."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", name) is not None and not is_reserved(name)


def readable(trace: StepTrace) -> StepTrace:
    """A step as every reader will see it, read from what would be stored. Raises `PolicyFailed` where nobody could.

    Only steps of other packages' policies are read back: the program's own keep the contract, and their steps need not
    wait the half millisecond that it takes.
    """
    if trace.policy in POLICIES:
        return trace
    try:
        row = codec.step_row(trace, "")
        read = codec.trace_of(row["trace"], row["embedding"])
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise _unreadable(trace, f"could not be read again ({type(error).__name__}: {message})") from error
    for kept, given in zip(_data(read), _data(trace), strict=True):
        if kept != given:
            raise _unreadable(trace, f"keeps data that is no JSON ({str(given)[:80]})")
    return read


def settled(
    trace: StepTrace,
    embedded: Container[str],
    memories: Mapping[str, Memory],
    known: Callable[[str, Collection[str]], Fold],
) -> StepTrace:
    """A step with its operations, one after the other, on what its run sees: what is not seen is neither replaced nor
    deleted.

    A pinned memory is not deleted. Where nothing is left to replace or delete, the operation is a NOOP: between the
    policy's look and this one a person may have edited or forgotten what it was about, and that stands.

    `embedded` are the ids with an embedding; `memories` those of the bank: what is written there under the same id with
    the same text has come by an earlier call for the same step. `known` gives what a run believes of some memories.
    Raises `PolicyFailed` for an operation that would leave the bank with something it cannot fold or find.
    """
    if trace.write is None:
        return trace
    operations = trace.write.operations
    _must_be_possible(operations, embedded, memories)
    if all(op.op in ("ADD", "NOOP") for op in operations):
        return trace
    fold = known(trace.run, {memory_id for op in operations for memory_id in op.replaces})
    seen = set(fold.utilities)
    done = []
    for op in operations:
        if op.op in ("UPDATE", "MERGE", "DELETE"):
            op = _on(seen, op, fold.pinned)
            seen.difference_update(op.replaces)
        if op.op in WRITING:
            seen.add(op.memory_id)
        done.append(op)
    return replace(trace, write=replace(trace.write, operations=tuple(done)))


def _must_be_possible(
    operations: Sequence[MemoryOperation], embedded: Container[str], memories: Mapping[str, Memory]
) -> None:
    written: set[str] = set()
    for op in operations:
        if op.op not in WRITING:
            continue
        if not op.memory_id or op.memory_id in written or _is_another(op, memories.get(op.memory_id)):
            raise _failed(op, "without an id of its own")
        if op.memory_id not in embedded:
            raise _failed(op, "without an embedding")
        if op.op != "ADD" and (not op.replaces or op.memory_id in op.replaces):
            raise _failed(op, "and does not say in the place of which others")
        written.add(op.memory_id)


def memories_of(trace: StepTrace, created: str, known: Mapping[str, Memory]) -> list[Memory]:
    """The memories that the operations of a step write, in order; those that are `known` were written before."""
    new: dict[str, Memory] = {}
    for op in trace.write.operations if trace.write else ():
        if op.op in WRITING and op.memory_id not in known:
            replaced = [new[i] if i in new else known[i] for i in op.replaces if i in new or i in known]
            # What is only reworded stays of its task, so that leaving out the memories of a task leaves it out too.
            task = next((memory.task for memory in replaced if memory.intent == op.intent), trace.task.id)
            new[op.memory_id] = Memory(
                op.memory_id,
                op.intent,
                op.experience,
                op.outcome,
                op.intent_key,
                op.parents,
                trace.run,
                trace.step,
                task,
                created,
            )
    return list(new.values())


def events_of(trace: StepTrace, ledger: Ledger, known_at: int) -> list[LedgerEvent]:
    """The events of a finished step: the environment's reward, and what became of memories."""
    event = partial(ledger.event, trace.run, trace.step, trace.id, known_at=known_at)
    made = []
    given = _environment_reward(trace)
    if trace.reward and given is not None:
        reward: dict[str, Any] = {"memory_ids": trace.reward.credited, "value": given, "source": "environment"}
        made.append(event(EventKind.REWARD_GIVEN, event_id=f"{trace.id}:environment", **reward))
    for op in trace.write.operations if trace.write else ():
        about: dict[str, Any] = {"memory_ids": (op.memory_id,), "reason": op.why}
        if op.op == "DELETE":
            about["memory_ids"] = op.replaces
            made.append(event(EventKind.MEMORY_FORGOTTEN, event_id=f"{trace.id}:deleted:{op.replaces[0]}", **about))
        elif op.op != "NOOP":
            known = {METADATA: op.data[METADATA]} if METADATA in op.data else {}
            if op.op == "ADD":
                about |= {"value": op.q0, "payload": known} if known else {"value": op.q0}
            else:
                about["payload"] = {**known, "replaces": list(op.replaces)}
            made.append(event(WRITING[op.op], event_id=f"{trace.id}:{op.memory_id}", **about))
    # Equal numbers would be sorted by id, and an operation may be about what an earlier one has written.
    return [replace(one, seq=one.seq + position) for position, one in enumerate(made)]


def insertions(events: Iterable[LedgerEvent]) -> dict[tuple[str, str], Inserted]:
    """Where memories stand in the order of age: by the first event that brought each into a run, or into any ("").

    Its own run decides because the clocks of other banks, from which runs may come, are not this bank's.
    """
    found: dict[tuple[str, str], Inserted] = {}
    for event in sorted((event for event in events if event.kind in BRINGS_IN), key=in_ledger):
        for position, memory_id in enumerate(event.memory_ids):
            for run in (event.run, ""):
                found.setdefault((memory_id, run), Inserted(event.seq, position))
    return found


def _on(seen: Collection[str], op: MemoryOperation, pinned: Collection[str]) -> MemoryOperation:
    kept = pinned if op.op == "DELETE" else ()
    there = tuple(i for i in dict.fromkeys(op.replaces) if i in seen and i not in kept)
    if there:
        return op if there == op.replaces else replace(op, replaces=there)
    return replace(op, op="NOOP", memory_id="", replaces=(), data={}, why=f"{CHANGED_SINCE}. {op.why}".rstrip())


def _is_another(op: MemoryOperation, known: Memory | None) -> bool:
    return known is not None and (known.intent, known.experience) != (op.intent, op.experience)


def _data(trace: StepTrace) -> list[Mapping[str, Any]]:
    return [op.data for op in trace.write.operations] if trace.write is not None else []


def _unreadable(trace: StepTrace, how: str) -> PolicyFailed:
    return PolicyFailed(
        f"The step of the policy “{trace.policy[:80]}” {how}. The step was not stored; correct the policy, then "
        "try again, or choose another one."
    )


def _failed(op: MemoryOperation, how: str) -> PolicyFailed:
    return PolicyFailed(
        f"The policy's {op.op} writes “{op.memory_id[:80]}” {how}. The step was not stored; correct the policy, then "
        "try again, or choose another one."
    )


def _environment_reward(trace: StepTrace) -> float | None:
    if trace.reward is None:
        return None
    return trace.reward.reward if trace.reward.source == "environment" else trace.reward.environment
