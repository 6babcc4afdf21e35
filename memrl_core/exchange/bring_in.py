"""Imports into a bank, new or existing: all of the contents, or none.

The same content is the same thing. Another thing of the same name gets -2, -3 ... behind it, wherever it is mentioned,
and gets the same again whenever it is imported again. A run that is here in part is the same run when nothing in it
contradicts the other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from memrl_core.bank import MemoryBank
from memrl_core.bank.operations import RUN_NAME, is_run_name
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import REVERSIBLE
from memrl_core.bank.storage import codec
from memrl_core.bank.storage.addresses import is_local
from memrl_core.bank.storage.folders import is_bank, must_be_path
from memrl_core.errors import BankMissing, InputError
from memrl_core.exchange.archive import is_archive, read_bank
from memrl_core.exchange.contents import NOTHING, Account, Contents, Skipped
from memrl_core.exchange.exports import has_header, is_export, read_export
from memrl_core.exchange.official.reader import is_official, read_official
from memrl_core.exchange.safe_files import drafted_folder
from memrl_core.records import EventKind, LedgerEvent, Memory, StepTrace

UNCHANGED = "All of it was there already: nothing was changed."
ROLES_STAY = "a bank that holds something keeps its own roles"


@dataclass(frozen=True, slots=True)
class Arrival:
    """What an import did. `runs` are the runs, by their names in the bank at `uri`, to which anything came.

    `memories`, `steps` and `events` say how many were new. `renamed_memories` and `renamed_runs` map the name in the
    file to the one in the bank, where the bank had something else of that name.
    """

    account: Account
    uri: str
    runs: tuple[str, ...] = ()
    memories: int = 0
    steps: int = 0
    events: int = 0
    renamed_memories: Mapping[str, str] = field(default_factory=dict)
    renamed_runs: Mapping[str, str] = field(default_factory=dict)


def is_own(path: Path) -> bool:
    """Whether `read_any` knows what is there: a bank, an export of one, or what the official code has written."""
    must_be_path(str(path))
    if path.is_dir():
        return is_bank(path) or is_official(path)
    return path.is_file() and (is_archive(path) or has_header(path) or is_official(path))


def read_any(path: Path, cancelled: Callable[[], bool] = lambda: False) -> Contents:
    """What can be imported, known by its content: a bank that was exported, or what the official code has written.

    Raises `InputError`, with what can be imported, for anything else, and for a zip once `cancelled` says so; nothing
    is changed.
    """
    must_be_path(str(path))
    if path.is_file() and is_archive(path):
        contents = read_bank(path, cancelled)
        for event in contents.events:
            if event.kind is EventKind.RUN_STARTED and not is_run_name(event.run):
                raise InputError(f"{path.name} has a run of the name {event.run[:80]!r}. {NOTHING} {RUN_NAME}")
        return contents
    if path.is_dir() and is_bank(path):
        raise InputError(f"{path.name} is a bank itself. {NOTHING} Open it instead.")
    if path.is_file() and is_export(path):
        return read_export(path)
    if is_official(path):
        return read_official(path)
    what = "is not something that can be imported" if path.exists() else "is not there"
    if path.suffix.lower() == ".csv" and path.exists():
        what = "is a table for people, without vectors"
    raise InputError(
        f"{path.name} {what}. {NOTHING} Choose a bank that was exported here as a zip, JSON lines or Parquet; a "
        "checkpoint folder, a trace or a run of the official MemRL code; or spans of OpenInference or OpenTelemetry, "
        "each with the id of its trace. Of the memories of another program a bank is "
        "made by: memrl open FILE --bank NEW"
    )


def bring_in(contents: Contents, uri: str, by: str = "") -> Arrival:
    """Take `contents` into the bank at `uri`, which is made when nothing is there.

    Importing the same again changes nothing. A bank that is there must hold vectors of the same embedder; what it has
    under the same name with other content stays, and the newcomer is renamed everywhere it is mentioned. No embedder
    has to be installed. The roles of people are taken over by an empty bank only: nobody gets a role by an import.
    Into a bank that holds something, `by`, if a person is named, must be allowed to manage it. Raises `InputError` for
    contents that do not fit, `NotAllowed`, and what opening and writing a bank raises.
    """
    with bank_for(uri, lambda: (contents.embedder, contents.dimension, contents.digest)) as bank:
        return _into(bank, contents, uri, by)


@contextmanager
def bank_for(uri: str, made_by: Callable[[], Sequence[Any]]) -> Iterator[MemoryBank]:
    """The bank at `uri`; where nothing is there a new one, which stays if all goes well, for vectors of an embedder
    (`made_by`: its name, dimension and what else `MemoryBank.create` takes).

    Raises what opening and making a bank raise.
    """
    path = Path(uri)
    if is_local(uri) and (not path.exists() or (path.is_dir() and not any(path.iterdir()))):
        with drafted_folder(uri, NOTHING) as draft, MemoryBank.create(str(draft), *made_by()) as bank:
            yield bank
        return
    is_new = False
    try:
        bank = MemoryBank.open(uri)
    except BankMissing:
        bank, is_new = MemoryBank.create(uri, *made_by()), True
    try:
        with bank:
            yield bank
    except BaseException:
        if is_new:
            bank.write.discard()
        raise


def _into(bank: MemoryBank, contents: Contents, uri: str, by: str = "") -> Arrival:
    here = bank.embedder
    if here.is_another(contents.embedder, contents.dimension, contents.digest):
        weights = "" if (here.name, here.dimension) != (contents.embedder, contents.dimension) else ", by other weights"
        raise InputError(
            f"The file holds {contents.dimension:,}-dimensional vectors made by {contents.embedder[:80]}; the bank at "
            f"{uri} holds {here.dimension:,}-dimensional vectors made by {here.name}{weights}. Nothing was imported; "
            "import it as a new bank."
        )
    with bank.write.alone():
        if by and bank.facts:
            bank.people.must_be(by, Role.MANAGE)
        arriving = Arriving(contents, bank)
        names = arriving.names()
        named = [(names.memory(memory), vector) for memory, vector in contents.memories.values()]
        memories = {memory.id: (memory, vector) for memory, vector in named if memory.id not in arriving.memories}
        events = [event for event in map(names.event, contents.events) if event.id not in arriving.events]
        traces = [trace for trace in map(names.trace, contents.traces) if trace.id not in arriving.steps]
        account = contents.account
        roles = sum(event.kind is EventKind.ROLE_ASSIGNED for event in events)
        if roles and bank.facts:
            events = [event for event in events if event.kind is not EventKind.ROLE_ASSIGNED]
            account = replace(account, skipped=(*account.skipped, Skipped(f"{roles:,} roles of people", ROLES_STAY)))
        if memories or events or traces:
            bank.write.adopt(memories, events, traces)
        else:
            account = replace(account, read=(*account.read, UNCHANGED))
        # Two maps have no common directions: a bank that has its own map places the newcomers in it.
        if contents.layout is not None and not arriving.memories and bank.layouts.newest() is None:
            places = dict(contents.layout.coordinates)
            fitted = {memory_id: places.pop(memory_id) for memory_id in contents.layout.fitted}
            bank.write.layouts.add(bank.write.layouts.save(contents.layout.method, fitted), places)
    return Arrival(
        account,
        uri,
        tuple(dict.fromkeys([*(event.run for event in events if event.run), *(trace.run for trace in traces)])),
        len(memories),
        len(traces),
        len(events),
        names.memories,
        names.runs,
    )


# --- what facts from elsewhere are called here ------------------------------------------------------------------------

_TRACE = TypeAdapter(StepTrace)
_LINKS = {"undoes": "events", "redoes": "events", "together": "events", "other": "steps"}
"""Keys of an event's payload that lead to other events or steps, perhaps of another run."""
_NAMED_BY = {
    **dict.fromkeys(
        ("memory_id", "memory_ids", "duplicate_of", "parents", "selected", "greedy", "credited"), "memories"
    ),
    **dict.fromkeys(("left_out", "replaces", "takes_away", "rewards", "data", "filled"), "memories"),
    **dict.fromkeys(("run", "base"), "runs"),
    **dict.fromkeys(("id", "step_id"), "steps"),
    "revokes": "events",
    **_LINKS,
}
"""What the keys of a record name. All other texts stay as they are: prompts as they were sent."""


@dataclass(frozen=True, slots=True)
class Names:
    """The new name of what is renamed, by its old one; what is not there keeps its name.

    `events` names events, and by what they say they were appended together.
    """

    memories: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.memories or self.runs or self.steps or self.events)

    def memory(self, memory: Memory) -> Memory:
        """A memory with its parents and run under their new names."""
        return replace(
            memory,
            id=self.memories.get(memory.id, memory.id),
            parents=self._in(memory.parents, "memories"),
            run=self.runs.get(memory.run, memory.run),
        )

    def event(self, event: LedgerEvent) -> LedgerEvent:
        """An event with its run, attempt, memories, what it revokes and its payload under their new names."""
        if not self:
            return event
        payload = self._in(event.payload, "")
        if event.kind is EventKind.RUN_STARTED:
            payload["id"] = self.runs.get(event.run, event.run)
        elif event.kind is EventKind.NOTE_PINNED:
            # What the person saw: ids of memories among other words and numbers.
            payload = {key: self._in(seen, "memories") for key, seen in payload.items()}
        return replace(
            event,
            id=self.events.get(event.id, event.id),
            run=self.runs.get(event.run, event.run),
            step_id=self.steps.get(event.step_id, event.step_id),
            memory_ids=self._in(event.memory_ids, "memories"),
            revokes=self.events.get(event.revokes, event.revokes),
            payload=payload,
        )

    def trace(self, trace: StepTrace) -> StepTrace:
        """A step with its run and every memory that it mentions under their new names."""
        if not self:
            return trace
        values = _TRACE.dump_python(trace)
        kept = {name: values[name] for name in ("task", "settings")}
        moved: StepTrace = _TRACE.validate_python({**self._in(values, ""), **kept})
        return moved

    def _in(self, value: Any, kind: str) -> Any:
        """A value in which every text of this kind has its new name; a mapping's keys say what they name."""
        if isinstance(value, str):
            return getattr(self, kind).get(value, value) if kind else value
        if isinstance(value, Mapping):
            if kind:
                return {self._in(key, kind): self._in(inner, kind) for key, inner in value.items()}
            return {key: self._in(inner, _NAMED_BY.get(key, "")) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._in(inner, kind) for inner in value)
        return value


class Arriving:
    """Contents beside the bank that they are to be taken into: what is there already, and what the rest is called."""

    def __init__(self, contents: Contents, bank: MemoryBank) -> None:
        self._contents = contents
        self._bank = bank
        self.memories = set(bank.memory_ids())
        self.events = {event.id: event for event in bank.events()}
        self.steps = {row.id: row for info in bank.runs() for row in bank.steps.rows(info.id)}
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
            tried = (self._with_run(names, run, name) for name in _free_names(run, bases))
            names = next(found for found in tried if self._fits(run, found))
        return names

    def _memory_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for memory_id, (memory, vector) in self._contents.memories.items():
            names[memory_id] = next(
                name
                for name in _free_names(memory_id, self._contents.memories)
                if name not in self.memories or self._is_same(name, memory, vector, names)
            )
        return {before: after for before, after in names.items() if before != after}

    def _is_same(self, name: str, memory: Memory, vector: npt.NDArray[np.float32], decided: Mapping[str, str]) -> bool:
        here = self._bank.memory(name)
        # Runs may share a memory, so its run does not matter here; a parent comes before its child.
        parents = tuple(decided.get(parent, parent) for parent in memory.parents)
        moved = replace(memory, id=name, run=here.run, parents=parents)
        return moved == here and vector.astype(np.float32).tobytes() == self._bank.embedding(name).tobytes()

    def _bases(self) -> dict[str, str | None]:
        starts = [event for event in self._contents.events if event.kind is EventKind.RUN_STARTED]
        bases = {event.run: codec.run_of(event.payload).base for event in starts}
        begun = set(bases) | self._runs
        named = {*self._events_of, *self._traces_of} - set(bases) | {b for b in bases.values() if b and b not in begun}
        if named:
            raise InputError(f"The run “{min(named)[:80]}” is named and never begins. {NOTHING}")
        return bases

    def _with_run(self, names: Names, run: str, name: str) -> Names:
        if name == run:
            return names
        tail = name.removeprefix(run)
        events = self._events_of[run]
        joint = {e.payload["together"] for e in events if e.kind in REVERSIBLE and "together" in e.payload}
        attempts = {trace.id for trace in self._traces_of[run]} | {event.step_id for event in events if event.step_id}
        return Names(
            names.memories,
            {**names.runs, run: name},
            {**names.steps, **{attempt: attempt + tail for attempt in attempts}},
            {**names.events, **{event_id: event_id + tail for event_id in {e.id for e in events} | joint}},
        )

    def _fits(self, run: str, names: Names) -> bool:
        return all(self._event_fits(names.event(event)) for event in self._events_of[run]) and all(
            self._step_fits(names.trace(trace)) for trace in self._traces_of[run]
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


def _unlinked(event: LedgerEvent) -> LedgerEvent:
    if event.kind not in REVERSIBLE:
        return event
    return replace(event, payload={key: value for key, value in event.payload.items() if key not in _LINKS})


def _free_names(name: str, reserved: Container[str]) -> Iterator[str]:
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
