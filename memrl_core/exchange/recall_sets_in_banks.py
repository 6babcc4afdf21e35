"""A golden set of recall in a bank: which of its memories and steps a set speaks of, and what comes for its queries."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memrl_core.agent.asking import asked_by, templates
from memrl_core.agent.learned_state import learned_before
from memrl_core.analysis.recall.found import Ranking
from memrl_core.analysis.recall.grades import Rule
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import Label
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import few, printable
from memrl_core.exchange.recall_sets import RecallSet, SetQuery, judged_of
from memrl_core.policies import make_policy
from memrl_core.policies.base import Policy
from memrl_core.policies.decide import decide
from memrl_core.records import StepTrace
from memrl_core.retrieval.view import Asked

DIGITS, LAST_STEP = 19, 2**63 - 1
"""A number of a step has fewer digits, and no bank can hold a later step."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A set in the terms of a bank, its ids in the order of the set.

    `names` maps ids of the set to ids here: the same id, or the memory of the same intent where that is one. Of the
    others the bank holds `changed` with another text, and `unknown` not at all. `by_intent` counts those of other ids.
    """

    names: Mapping[str, str]
    unknown: tuple[str, ...]
    changed: tuple[str, ...] = ()
    by_intent: int = 0

    def notes(self, so: str) -> list[str]:
        """What is worth knowing of it; `so` says what becomes of memories that are not here."""
        of = len(self.names) + len(self.unknown) + len(self.changed)
        notes = []
        if self.by_intent:
            notes.append(f"{self.by_intent:,} memories were found by their intent: they have other ids here.")
        if self.changed:
            notes.append(
                f"{len(self.changed):,} of {of:,} memories of the set have another text here than they were labelled "
                f"for ({_few(self.changed)}): {so}; label them anew."
            )
        if self.unknown:
            notes.append(
                f"{len(self.unknown):,} of {of:,} memories of the set are not in this bank ({_few(self.unknown)}): "
                f"{so}."
            )
        return notes


def placed(found: RecallSet, bank: MemoryBank) -> Placed:
    """Which memories of a bank a set speaks of. A memory whose text was changed has another id since."""
    memories = {memory.id: memory for memory in bank.memories()}
    of_intent: dict[str, list[str]] = defaultdict(list)
    for memory in memories.values():
        of_intent[memory.intent].append(memory.id)
    names: dict[str, str] = {}
    unknown, changed, by_intent = dict[str, None](), dict[str, None](), 0
    for label in (label for query in found.queries for label in query.labels if label.memory):
        if label.memory in names or label.memory in unknown or label.memory in changed:
            continue
        known = memories.get(label.memory)
        if known is not None and label.intent in ("", known.intent):
            names[label.memory] = label.memory
        elif len(same := of_intent.get(label.intent, []) if label.intent else []) == 1:
            names[label.memory], by_intent = same[0], by_intent + 1
        else:
            (unknown if known is None else changed)[label.memory] = None
    return Placed(names, tuple(unknown), tuple(changed), by_intent)


@dataclass(frozen=True, slots=True)
class Imported:
    """The labels of a set for the steps of a bank, and sentences about what was left out."""

    labels: tuple[Label, ...]
    notes: tuple[str, ...]


class StepsOfQueries:
    """Which steps of a bank the queries of a set are about. Raises `UnknownRun`.

    A query is the step that it names, by “run” and “step” or by an id such as “run/12”, where that step has its text;
    or it is every step of `run` with its text, or without a text every step of the task that its id names. A number
    alone names no step. `foreign` are queries that name a step of another text, `by_task` those found by their task.
    """

    def __init__(self, bank: MemoryBank, run: str) -> None:
        self._bank, self._run = bank, run
        self._runs = {info.id for info in bank.runs()}
        self._of_task: dict[str, list[int]] = defaultdict(list)
        for row in bank.steps.rows(bank.run(run).id):
            self._of_task[row.task].append(row.step)
        self._of_text: dict[str, list[int]] | None = None
        self.foreign: list[str] = []
        self.by_task: list[str] = []

    def named(self, query: SetQuery) -> tuple[str, int] | None:
        """The step that a query names; None where it names none, or one of another text."""
        before, _, number = query.id.rpartition("/")
        run, step = query.run, query.step
        if not run and number.isdecimal() and len(number) < DIGITS:
            run, step = before, int(number)
        if run not in self._runs or step > LAST_STEP or not self._bank.steps.has(run, step):
            return None
        if query.text in ("", *_texts_of(self._bank.trace(run, step))):
            return run, step
        self.foreign.append(query.id)
        return None

    def of(self, query: SetQuery) -> list[tuple[str, int]]:
        """All steps that a query is about."""
        if (named := self.named(query)) is not None:
            return [named]
        steps = self._of_task.get(query.id, [])
        if query.text:
            steps = [step for step in steps if query.text in _texts_of(self._bank.trace(self._run, step))]
        elif steps:
            self.by_task.append(query.id)
        return [(self._run, step) for step in steps or (self._with(query.text) if query.text else [])]

    def _with(self, text: str) -> list[int]:
        if self._of_text is None:
            self._of_text = defaultdict(list)
            for trace in self._bank.each_trace(self._run):
                self._of_text[trace.task.intent].append(trace.step)
        return self._of_text.get(text, [])

    def notes(self) -> list[str]:
        """What is worth knowing of how queries were found."""
        notes = []
        if self.foreign:
            named = f"{len(self.foreign):,} ({_few(self.foreign)})"
            notes.append(f"Queries that name a step of another text, and are looked for by theirs: {named}.")
        if self.by_task:
            named = f"{len(self.by_task):,} ({_few(self.by_task)})"
            notes.append(
                f"Queries without a text that are taken for the tasks of run {self._run} with their ids: {named}."
            )
        return notes


def _few(ids: Iterable[str]) -> str:
    return few(printable(one)[:40] for one in ids)


def _texts_of(trace: StepTrace) -> set[str]:
    """What a step asked for: its intent, and the queries of another agent's retrievals."""
    return {trace.task.intent, *(one.query for one in trace.retrievals if one.query)}


def labels_for(found: RecallSet, bank: MemoryBank, run: str, rater: str, by: str = "") -> Imported:
    """A set as labels of the steps that its queries are about (`StepsOfQueries`), one for each step, memory and rater.

    All count as imported, by the rater that the file names, else `rater`. Raises `UnknownRun`.
    """
    here, places = placed(found, bank), StepsOfQueries(bank, run)
    labels: dict[tuple[str, int, str, str], Label] = {}
    lost, differ = [], 0
    for query in found.queries:
        steps = places.of(query)
        if not steps:
            lost.append(query.id)
        known = [(here.names.get(one.memory, ""), one) for one in query.labels if one.memory in ("", *here.names)]
        for (name, step), (memory, one) in itertools.product(steps, known):
            label = Label(name, step, memory, one.grade, one.rater or rater, "import", one.reason, by=by)
            key = name, step, memory, label.rater
            differ += key in labels and labels[key].grade != label.grade
            labels[key] = label
    notes = [*here.notes("their labels were left out"), *places.notes()]
    if differ:
        notes.append(
            f"Labels of one step, memory and rater with different grades, of which the last counts: {differ:,}."
        )
    if lost:
        notes.append(
            f"{len(lost):,} of {len(found.queries):,} queries are no step of run {run} ({_few(lost)}). A query is a "
            f"step by its text, by an id such as {run}/1, or without a text by the id of its task."
        )
    return Imported(tuple(labels.values()), tuple(notes))


@dataclass(frozen=True, slots=True)
class Answers:
    """What came for the queries of a set, in which runs they were asked, and sentences about what was left out."""

    rankings: tuple[Ranking, ...]
    runs: tuple[str, ...]
    notes: tuple[str, ...]


def answered(
    found: RecallSet,
    bank: MemoryBank,
    run: str,
    embedder: Embedder | None,
    rule: Rule = "majority",
    *,
    only: bool = True,
) -> Answers:
    """What a run would recall now for each query of a set, by its own rules.

    Nothing is stored and no model is asked. For a step of that run, memories that it or a later step wrote stay out:
    the labels do not speak of them. A query without a text is that of the step or the task it names. Unless `only` this
    run is asked, a step is asked in its own. Without an `embedder` only queries of finished steps can be asked, by the
    vectors they have. Raises `UnknownRun`, `ModelError`.
    """
    here, places = placed(found, bank), StepsOfQueries(bank, run)
    by_run: dict[str, list[tuple[SetQuery, tuple[str, int] | None]]] = defaultdict(list)
    for query in found.queries:
        at = places.named(query)
        by_run[run if only or at is None else at[0]].append((query, at))
    # A memory that has another text here is not the one that was labelled, though it has its id.
    names = {**here.names, **{one: f"{one} (as it was)" for one in here.changed}}
    rankings: list[Ranking] = []
    asked_in, notes, lost = [], here.notes("they count as memories that did not come"), list[str]()
    for name, listed in by_run.items():
        came, not_asked = _answered_in(name, listed, bank, places, embedder)
        rankings += [Ranking(pool, selected, judged_of(query, rule, names)) for query, pool, selected in came]
        asked_in += [name] if came else []
        lost += not_asked
        notes += _out_of_sight([query for query, *_ in came], names, bank, name)
    notes += places.notes()
    if lost:
        can = "" if embedder is not None else "or no vector "
        notes.append(
            f"{len(lost):,} of {len(found.queries):,} queries have no text {can}and name no step or task of run {run} "
            f"({_few(lost)}): they were left out. Name steps as in {run}/1, or give texts, as JSON Lines and BEIR do."
        )
    return Answers(tuple(rankings), tuple(asked_in), tuple(notes))


def _answered_in(
    run: str,
    queries: Iterable[tuple[SetQuery, tuple[str, int] | None]],
    bank: MemoryBank,
    places: StepsOfQueries,
    embedder: Embedder | None,
) -> tuple[list[tuple[SetQuery, list[str], Sequence[str]]], list[str]]:
    """The pool and the choice of a run for queries, and the ids of those that cannot be asked."""
    info = bank.run(run)
    policy = make_policy(info.policy, bank.settings(run))
    view = replace(bank.view(run), learned=learned_before(bank, run, bank.next_step(run), info.policy))
    written = np.array([view.memories[i].step if view.memories[i].run == run else 0 for i in view.ids], dtype=np.int64)
    came: list[tuple[SetQuery, list[str], Sequence[str]]] = []
    lost: list[str] = []
    for query, at in queries:
        asked = _asked(query, at, bank, places, policy, embedder)
        if asked is None:
            lost.append(query.id)
            continue
        seen = view
        if at is not None and at[0] == run:
            is_open = written < at[1]
            seen = replace(view, visible=is_open if view.visible is None else view.visible & is_open)
        recalled, decision, _ = decide(policy, replace(seen, asked=asked), info.seed, ask=templates)
        came.append((query, [member.memory_id for member in recalled.pool], decision.selected))
    return came, lost


def _asked(
    query: SetQuery,
    at: tuple[str, int] | None,
    bank: MemoryBank,
    places: StepsOfQueries,
    policy: Policy[Any],
    embedder: Embedder | None,
) -> Asked | None:
    if at is None and not query.text.strip():
        at = next(iter(places.of(query)), None)
    text = query.text
    if at is not None:
        trace = bank.trace(*at)
        if trace.embed is not None and not trace.embed.decided_by and text in ("", trace.task.intent):
            return asked_by(trace)
        text = text or trace.task.intent
    if embedder is None or not text.strip():
        return None
    asked = Asked(np.zeros(embedder.dimension, dtype=np.float32), task=query.id, intent=text)
    return replace(asked, embedding=embedded(embedder, [policy.key(asked)])[0])


def _out_of_sight(queries: Iterable[SetQuery], names: Mapping[str, str], bank: MemoryBank, run: str) -> list[str]:
    """Sentences about memories of queries that a run cannot recall: they went since, or it never had them."""
    wanted = list(dict.fromkeys(names[one.memory] for q in queries for one in q.labels if one.memory in names))
    gone, seen, held = bank.editing.away(run), bank.utilities(run), set(bank.memory_ids())
    notes = []
    if since := [name for name in wanted if name in gone]:
        notes.append(
            f"Edited, merged or forgotten in run {run} since: {len(since):,} memories of the set ({_few(since)}). They "
            "cannot come; label anew what took their place."
        )
    if never := [name for name in wanted if name in held and name not in gone and name not in seen]:
        notes.append(
            f"Run {run} does not know {len(never):,} of the {len(wanted):,} memories that its queries are labelled for "
            f"({_few(never)}): they are another run's and cannot come. Name that run with --run, or label steps of "
            f"{run}."
        )
    return notes
