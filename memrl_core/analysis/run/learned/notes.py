"""What is learned as text or as cases: notes with their links, workflows, reflections, and Memento's cases.

Memento notes the uses of cases under every read, so a run is also watched here by another read than its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from memrl_core.agent.learned_state import lesson_of
from memrl_core.analysis.run.calibration import calibrated_bins
from memrl_core.analysis.run.learned.deciding import Watching
from memrl_core.bank import MemoryBank
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.methods.a_mem import Note, Notes, linked_pairs, note_of
from memrl_core.policies.methods.awm import Induced, Workflows
from memrl_core.policies.methods.memento import Cases, MementoSettings, Read
from memrl_core.policies.texts import followed
from memrl_core.records import Memory, MemoryOperation, Outcome, StepTrace

NAME = "memento"


def cases_learned(
    watching: Watching, read: Read, on_progress: Progress = unheard, cancelled: Cancelled = never
) -> Cases | None:
    """What Memento with this read has learned by watching a run; None when it was cancelled. Raises `SettingsError`."""
    bank, run = watching.bank, watching.run
    first, cases = bank.run(run).first_step, Cases()
    for trace in _behind(bank, run, watching.step):
        if cancelled():
            return None
        known = settings_that_fit(NAME, bank.settings(trace.run, trace.step))
        settings = MementoSettings.of({**known.model_dump(), "read": read})
        make_policy(NAME, settings.model_dump()).learn(cases, lesson_of(bank, trace))
        on_progress(max(0, trace.step - first + 1), watching.step - first + 1)
    return cases


def losses(cases: Cases) -> pd.DataFrame:
    """A row for each task that trained the network: step, labelled rows, loss of its batch before and after."""
    rows = [(loss.step, loss.rows, loss.before, loss.after) for loss in cases.losses]
    return pd.DataFrame(rows, columns=["step", "rows", "before", "after"])


def case_calibration(cases: Cases) -> pd.DataFrame:
    """Predictions, each made before its outcome was known, in ten equal bins of [0, 1]; a row per bin that has some.

    Columns: low, high, p (mean), n, success (share), and its 95 % Wilson interval success_low … success_high, in which
    the uses of one step, which share its outcome, count as one. Predictions are the network's once it decides, and the
    kernel's for cases that were used before.
    """
    made = cases.rows[~np.isnan(cases.rows["predicted"])]
    bins = calibrated_bins(made["predicted"], made["outcome"], made["state"], 0.0, 1.0)
    return bins.drop(columns="steps").rename(columns={"q": "p"})


def _behind(bank: MemoryBank, run: str, step: int) -> Iterator[StepTrace]:
    """The finished steps up to `step`, also those of its base run, if it learned from them."""
    info = bank.run(run)
    if info.base is not None and (bank.run(info.base).policy == NAME or info.policy != NAME):
        yield from _behind(bank, info.base, info.base_step)
    yield from bank.each_trace(run, (info.first_step, step))


@dataclass(frozen=True, slots=True, eq=False)
class LinkGraph:
    """A-MEM's notes as they stand by memory, oldest first, and each link once as (newer, older).

    `written` and `edited` are the notes that the step looked at wrote, and those that it put in the place of others.
    """

    notes: Mapping[str, Note]
    links: tuple[tuple[str, str], ...]
    outcomes: Mapping[str, Outcome]
    written: frozenset[str]
    edited: frozenset[str]


@dataclass(frozen=True, slots=True)
class NoteEdit:
    """A neighbour that a step has edited: the old note, the one in its place, and the parts (before, after) changed."""

    old: str
    new: str
    changes: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]


def notes_and_links(watching: Watching) -> LinkGraph:
    """A-MEM's link graph when the step had ended.

    What people have forgotten is left out, and what they have reworded is followed.
    """
    state = watching.after()
    assert isinstance(state, Notes)
    seen = watching.bank.view(watching.run, watching.step)
    rows = state.places(seen)
    notes = {at: note for i, note in state.notes.items() if (at := followed(i, rows, seen)) is not None}
    age = {memory_id: number for number, memory_id in enumerate(notes)}
    pairs = [pair for pair in linked_pairs(state, rows, seen) if age.get(pair[0], -1) > age.get(pair[1], len(age))]
    return LinkGraph(
        notes,
        tuple(sorted(pairs, key=lambda pair: (age[pair[0]], age[pair[1]]))),
        {memory_id: seen.memories[memory_id].outcome for memory_id in notes},
        frozenset(op.memory_id for op in _operations(watching) if op.op == "ADD"),
        frozenset(op.memory_id for op in _operations(watching) if op.op == "UPDATE"),
    )


def edits(watching: Watching) -> list[NoteEdit]:
    """The neighbours that the step has edited, before and after."""
    state = watching.before()
    assert isinstance(state, Notes)
    rows = state.places(watching.bank.view(watching.run, watching.step - 1))
    return [
        NoteEdit(old, op.memory_id, _changed(state.note(old, rows), note_of(op.data)))
        for op in _operations(watching)
        if op.op == "UPDATE" and op.data
        for old in op.replaces
    ]


def _changed(old: Note, new: Note) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The parts in which two notes differ: the members of a list, or the whole line."""
    parts = {
        "context": ((old.context,) if old.context else (), (new.context,) if new.context else ()),
        "keywords": (old.keywords, new.keywords),
        "tags": (old.tags, new.tags),
        "links": (old.links, new.links),
    }
    return {part: (before, after) for part, (before, after) in parts.items() if before != after}


def _operations(watching: Watching) -> tuple[MemoryOperation, ...]:
    write = watching.trace.write
    return () if write is None else write.operations


def workflows(watching: Watching) -> list[tuple[str, Induced, bool]]:
    """AWM's workflows as they stand when the step had ended: (kind, workflow, whether the step has written it)."""
    state = watching.after()
    assert isinstance(state, Workflows)
    written = {op.memory_id for op in _operations(watching)}
    return [(kind, induced, induced.memory_id in written) for kind, induced in sorted(state.by_kind.items())]


def reflections(watching: Watching) -> list[tuple[Memory, bool]]:
    """What the run knows of the step's own task when the step had ended, the newest first: (memory, will be read).

    Reflexion reads the newest few of them at the next try, whoever wrote them. Raises `SettingsError`.
    """
    bank, run, task = watching.bank, watching.run, watching.trace.task.id
    last = watching.method().settings.last
    seen = bank.view(run, watching.step)
    own = [seen.memories[seen.ids[position]] for position in seen.positions().tolist()]
    newest = [memory for memory in reversed(own) if memory.task == task]
    return [(memory, index < last) for index, memory in enumerate(newest)]
