"""What facts from elsewhere are called in a bank that may hold the same, or others under the same names.

The same content is the same thing. Another thing of the same name gets -2, -3 ... behind it, and gets the same again
whenever it is imported again. A run that is here in part is the same run when nothing in it contradicts the other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt

from memrl_core.bank import MemoryBank, codec
from memrl_core.bank.undo import REVERSIBLE
from memrl_core.errors import InputError
from memrl_core.exchange.contents import Contents
from memrl_core.exchange.renaming import LINKS, Names, renamed_event, renamed_trace
from memrl_core.records import EventKind, LedgerEvent, Memory, StepTrace


class Meeting:
    """Contents beside the bank that they are to be taken into: what is there already, and what the rest is called."""

    def __init__(self, contents: Contents, bank: MemoryBank) -> None:
        self._contents = contents
        self._bank = bank
        self.memories = set(bank.memory_ids())
        self.events = {event.id: event for event in bank.events()}
        self.steps = {row.id: row for info in bank.runs() for row in bank.step_rows(info.id)}
        self.keeps_its_roles = bank.facts > 0
        self._runs = {info.id for info in bank.runs()}
        self._taken = {(row.run, row.step) for row in self.steps.values()}
        self._events_of: dict[str, list[LedgerEvent]] = defaultdict(list)
        self._traces_of: dict[str, list[StepTrace]] = defaultdict(list)
        for event in contents.events:
            if event.kind is not EventKind.ROLE_ASSIGNED:
                self._events_of[event.run].append(event)
        for trace in contents.traces:
            self._traces_of[trace.run].append(trace)

    def names(self) -> Names:
        """What everything in the contents is called in the bank. Raises `InputError` for a run that never begins."""
        names = Names(self._memory_names())
        bases = self._bases()
        for run in _bases_first(bases):
            tried = (self._with_run(names, run, name) for name in _candidates(run, bases))
            names = next(found for found in tried if self._fits(run, found))
        return names

    # --- memories -----------------------------------------------------------------------------------------------------

    def _memory_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for memory_id, (memory, vector) in self._contents.memories.items():
            names[memory_id] = next(
                name
                for name in _candidates(memory_id, self._contents.memories)
                if name not in self.memories or self._is_same(name, memory, vector, names)
            )
        return {before: after for before, after in names.items() if before != after}

    def _is_same(self, name: str, memory: Memory, vector: npt.NDArray[np.float32], decided: Mapping[str, str]) -> bool:
        here = self._bank.memory(name)
        # Runs may share a memory, so that whose it is does not tell it from another; a parent comes before its child.
        parents = tuple(decided.get(parent, parent) for parent in memory.parents)
        moved = replace(memory, id=name, run=here.run, parents=parents)
        return moved == here and vector.astype(np.float32).tobytes() == self._bank.embedding(name).tobytes()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _bases(self) -> dict[str, str | None]:
        starts = [event for event in self._contents.events if event.kind is EventKind.RUN_STARTED]
        bases = {event.run: codec.run_of(event.payload).base for event in starts}
        begun = set(bases) | self._runs
        named = {*self._events_of, *self._traces_of} - set(bases) | {b for b in bases.values() if b and b not in begun}
        if named:
            raise InputError(f"The run “{min(named)[:80]}” is named and never begins. Nothing was imported.")
        return bases

    def _with_run(self, names: Names, run: str, name: str) -> Names:
        if name == run:
            return names
        tail = name.removeprefix(run)
        events = self._events_of[run]
        ids = {event.id for event in events} | {event.payload["together"] for event in events if _is_joint(event)}
        attempts = {trace.id for trace in self._traces_of[run]} | {e.step_id for e in self._events_of[run] if e.step_id}
        return Names(
            names.memories,
            {**names.runs, run: name},
            {**names.steps, **{attempt: attempt + tail for attempt in attempts}},
            {**names.events, **{event_id: event_id + tail for event_id in ids}},
        )

    def _fits(self, run: str, names: Names) -> bool:
        return all(self._event_fits(renamed_event(event, names)) for event in self._events_of[run]) and all(
            self._step_fits(renamed_trace(trace, names)) for trace in self._traces_of[run]
        )

    def _event_fits(self, event: LedgerEvent) -> bool:
        here = self.events.get(event.id)
        if here is None:
            return event.kind is not EventKind.RUN_STARTED or event.run not in self._runs
        # What is linked may be of a run whose name is not decided yet.
        return _unlinked(here) == _unlinked(replace(event, payload=json.loads(json.dumps(dict(event.payload)))))

    def _step_fits(self, trace: StepTrace) -> bool:
        here = self.steps.get(trace.id)
        if here is None:
            return (trace.run, trace.step) not in self._taken
        return here.run == trace.run and _as_stored(self._bank.trace(here.run, here.step)) == _as_stored(trace)


def _as_stored(trace: StepTrace) -> StepTrace:
    row = codec.step_row(trace, "")
    return codec.trace_of(row["trace"], row["embedding"])


def _is_joint(event: LedgerEvent) -> bool:
    return event.kind in REVERSIBLE and "together" in event.payload


def _unlinked(event: LedgerEvent) -> LedgerEvent:
    if event.kind not in REVERSIBLE:
        return event
    return replace(event, payload={key: value for key, value in event.payload.items() if key not in LINKS})


def _candidates(name: str, reserved: Container[str]) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in count(2) if f"{name}-{number}" not in reserved)


def _bases_first(bases: Mapping[str, str | None]) -> list[str]:
    ordered: dict[str, None] = {}
    for start in bases:
        line: dict[str, None] = {}
        run: str | None = start
        while run is not None and run in bases and run not in ordered and run not in line:
            line[run] = None
            run = bases[run]
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)
