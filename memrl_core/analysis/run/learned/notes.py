"""What is learned as text or as cases: notes with their links, workflows, reflections, and Memento's cases.

Memento notes the uses of cases under every read, so a run is also watched here by another read than its own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.analysis.run.calibration import calibrated_bins
from memrl_core.analysis.run.learned.deciding import Progress, Watching, lesson_of
from memrl_core.bank import MemoryBank
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.methods.a_mem import Note, Notes, note_of
from memrl_core.policies.methods.awm import Induced, Workflows
from memrl_core.policies.methods.memento import Cases, MementoSettings, Read, kernel_of
from memrl_core.policies.texts import followed
from memrl_core.records import Memory, Outcome, StepTrace
from memrl_core.retrieval import exact_similarity
from memrl_core.retrieval.view import MemoryView

NAME = "memento"


@dataclass(frozen=True, slots=True, eq=False)
class CaseHistory:
    """What Memento has learned of a run under `settings`: before the step looked at, and after it.

    `steps` names the step to which each of the states known after it belongs.
    """

    settings: MementoSettings
    before: Cases
    after: Cases
    steps: tuple[int, ...]


def case_history(
    watching: Watching, read: Read, on_progress: Progress | None = None, cancelled: Cancelled | None = None
) -> CaseHistory | None:
    """What Memento with this read has learned by watching a run; None when it was cancelled. Raises `SettingsError`."""
    bank, run = watching.bank, watching.run
    first, cases = bank.run(run).first_step, Cases()
    before, steps = cases, list[int]()
    for trace in _behind(bank, run, watching.step):
        if cancelled is not None and cancelled():
            return None
        if trace.run == run and trace.step == watching.step:
            before = copy.deepcopy(cases)
        settings = _settings(bank, trace, read)
        make_policy(NAME, settings.model_dump()).learn(cases, lesson_of(bank, trace))
        steps += [trace.step] * (len(cases.states) - len(steps))
        if on_progress is not None:
            on_progress(max(0, trace.step - first + 1), watching.step - first + 1)
    return CaseHistory(_settings(bank, watching.trace, read), before, cases, tuple(steps))


def losses(history: CaseHistory) -> pd.DataFrame:
    """A row for each task that trained the network: step, labelled rows, loss of its batch before and after."""
    rows = [(loss.step, loss.rows, loss.before, loss.after) for loss in history.after.losses]
    return pd.DataFrame(rows, columns=["step", "rows", "before", "after"])


def case_calibration(history: CaseHistory) -> pd.DataFrame:
    """Predictions, each made before its outcome was known, in ten equal bins of [0, 1]; a row a bin that has some.

    Columns: low, high, p (mean), n, success (share), and its 95 % Wilson interval success_low … success_high, in which
    the uses of one step, which share its outcome, count as one. Predictions are the network's once it decides, and the
    kernel's for cases that were used before.
    """
    uses = history.after.rows
    made = uses[~np.isnan(uses["predicted"])]
    bins = calibrated_bins(made["predicted"], made["outcome"], made["state"], 0.0, 1.0)
    return bins.drop(columns="steps").rename(columns={"q": "p"})


def used_cases(history: CaseHistory) -> dict[str, int]:
    """How often each case was used before the step, the most used first."""
    ids = list(history.before.numbers)
    counts = Counter(ids[number] for number in history.before.rows["case"].tolist())
    return dict(counts.most_common())


def kernel_weights(history: CaseHistory, trace: StepTrace, memory_id: str) -> pd.DataFrame:
    """A row for each use of a case before a step: its step, outcome (1, 0), cosine of the two tasks, weight and share.

    Weight is k(s, s′) and share its part of all weights; Q_EC is the sum of share × outcome. Empty where the embedding
    of the step's intent is not known.
    """
    _, uses = history.before.of([memory_id])
    if trace.embed is None or not len(uses):
        return pd.DataFrame(columns=["step", "outcome", "similarity", "weight", "share"])
    asked = np.asarray(trace.embed.embedding, dtype=np.float32)
    similarity = exact_similarity(np.stack([history.before.states[state] for state in uses["state"]]), asked)
    weight = kernel_of(similarity, history.settings.kernel, history.settings.bandwidth)
    return pd.DataFrame(
        {
            "step": [history.steps[state] for state in uses["state"]],
            "outcome": uses["outcome"],
            "similarity": similarity,
            "weight": weight,
            "share": weight / (weight.sum() or 1),
        }
    )


def _behind(bank: MemoryBank, run: str, step: int) -> Iterator[StepTrace]:
    """The finished steps up to `step`, also those of its base run, if it learned from them."""
    info = bank.run(run)
    if info.base is not None and (bank.run(info.base).policy == NAME or info.policy != NAME):
        yield from _behind(bank, info.base, info.base_step)
    yield from bank.each_trace(run, (info.first_step, step))


def _settings(bank: MemoryBank, trace: StepTrace, read: Read) -> MementoSettings:
    known = settings_that_fit(NAME, bank.settings(trace.run, trace.step))
    return MementoSettings.of({**known.model_dump(), "read": read})


@dataclass(frozen=True, slots=True)
class NoteNode:
    """A note as a node of the link graph."""

    memory_id: str
    note: Note


@dataclass(frozen=True, slots=True)
class NoteChange:
    """One part of a note before and after an evolution: the members of a list, or the whole line."""

    part: str
    before: tuple[str, ...]
    after: tuple[str, ...]


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
        NoteEdit(old, op.memory_id, evolution_diff(state.note(old, places).model_dump(), op.data))
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


def link_graph(
    state: Notes, view: MemoryView | None = None
) -> tuple[tuple[NoteNode, ...], tuple[tuple[str, str], ...]]:
    """The notes that stand now, oldest first, and each link between two of them once, the newer one first.

    A link to a note that was replaced leads to the one in its place. With `view`, what people have forgotten is left
    out, and what they have reworded is followed.
    """
    places = state.replaced if view is None else state.places(view)
    standing = {}
    for memory_id in state.notes:
        at = _last(memory_id, places) if view is None else followed(memory_id, places, view)
        if at is not None:
            standing[memory_id] = at
    age = {at: number for number, at in enumerate(dict.fromkeys(standing.values()))}
    latest = {at: state.notes[memory_id] for memory_id, at in standing.items()}
    ends = {
        (standing[memory_id], at)
        for memory_id in standing
        if not state.was_rewritten(memory_id, standing[memory_id])
        for link in state.notes[memory_id].links
        if (at := standing.get(link)) is not None and at != standing[memory_id]
    }
    edges = {(one, other) if age[one] > age[other] else (other, one) for one, other in ends}
    nodes = tuple(NoteNode(memory_id, latest[memory_id]) for memory_id in age)
    return nodes, tuple(sorted(edges, key=lambda edge: (age[edge[0]], age[edge[1]])))


def evolution_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[NoteChange, ...]:
    """What differs between two notes, given as `data` of the operations that wrote them; empty when nothing does."""
    old, new = note_of(before), note_of(after)
    parts = (
        ("context", (old.context,) if old.context else (), (new.context,) if new.context else ()),
        ("keywords", old.keywords, new.keywords),
        ("tags", old.tags, new.tags),
        ("links", old.links, new.links),
    )
    return tuple(NoteChange(part, one, other) for part, one, other in parts if one != other)


def _last(memory_id: str, places: Mapping[str, str]) -> str:
    met: set[str] = set()
    while memory_id in places and memory_id not in met:
        met.add(memory_id)
        memory_id = places[memory_id]
    return memory_id
