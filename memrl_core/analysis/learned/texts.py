"""What is learned as text: notes with their links, workflows, and reflections on a task."""

from __future__ import annotations

from dataclasses import dataclass

from memrl_core.analysis.learned.watching import Watching
from memrl_core.policies.methods.a_mem import NoteChange, NoteNode, Notes, evolution_diff, link_graph
from memrl_core.policies.methods.awm import Induced, Workflows
from memrl_core.records import Memory, Outcome


@dataclass(frozen=True, slots=True, eq=False)
class LinkGraph:
    """A-MEM's notes as they stand, oldest first, and each link once as (newer, older).

    `written` and `edited` are the notes that the step looked at wrote, and those that it put in the place of others.
    """

    notes: tuple[NoteNode, ...]
    links: tuple[tuple[str, str], ...]
    outcomes: dict[str, Outcome]
    written: frozenset[str]
    edited: frozenset[str]


@dataclass(frozen=True, slots=True)
class NoteEdit:
    """A neighbour that a step has edited: the old note, the one in its place, and what differs."""

    old: str
    new: str
    changes: tuple[NoteChange, ...]


@dataclass(frozen=True, slots=True)
class StandingWorkflow:
    """The workflow of a kind of success; `new` if the step looked at has written it."""

    kind: str
    induced: Induced
    new: bool


@dataclass(frozen=True, slots=True)
class TaskReflection:
    """A memory of the step's own task; `read` if the next try of the task would read it."""

    memory: Memory
    read: bool


def notes_and_links(watching: Watching) -> LinkGraph:
    """A-MEM's link graph when the step had ended."""
    state = watching.after()
    assert isinstance(state, Notes)
    seen = watching.bank.as_of(watching.run, watching.step)
    notes, links = link_graph(state, seen)
    operations = watching.trace.write.operations if watching.trace.write is not None else ()
    return LinkGraph(
        notes,
        links,
        {note.memory_id: seen.memories[note.memory_id].outcome for note in notes},
        frozenset(op.memory_id for op in operations if op.op == "ADD"),
        frozenset(op.memory_id for op in operations if op.op == "UPDATE"),
    )


def edits(watching: Watching) -> list[NoteEdit]:
    """The neighbours that the step has edited, before and after."""
    state = watching.before()
    assert isinstance(state, Notes)
    places = state.places(watching.bank.as_of(watching.run, watching.step - 1))
    operations = watching.trace.write.operations if watching.trace.write is not None else ()
    return [
        NoteEdit(old, op.memory_id, evolution_diff(state.note(old, places).data(), op.data))
        for op in operations
        if op.op == "UPDATE" and op.data
        for old in op.replaces
    ]


def workflows(watching: Watching) -> list[StandingWorkflow]:
    """AWM's workflows as they stand when the step had ended, by the actions that worked."""
    state = watching.after()
    assert isinstance(state, Workflows)
    operations = watching.trace.write.operations if watching.trace.write is not None else ()
    written = {op.memory_id for op in operations}
    return [
        StandingWorkflow(kind, induced, induced.memory_id in written) for kind, induced in sorted(state.by_kind.items())
    ]


def reflections(watching: Watching) -> list[TaskReflection]:
    """What the run knows of the step's own task when the step had ended, the newest first.

    Reflexion reads the newest few of them at the next try, whoever wrote them. Raises `SettingsError`.
    """
    bank, run, task = watching.bank, watching.run, watching.trace.task.id
    last = watching.method().settings.last
    seen = bank.as_of(run, watching.step)
    own = [seen.memories[seen.ids[position]] for position in seen.positions().tolist()]
    newest = [memory for memory in reversed(own) if memory.task == task]
    return [TaskReflection(memory, place < last) for place, memory in enumerate(newest)]
