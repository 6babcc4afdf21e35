"""Grades of relevance from labels: several raters settled by a rule, and the labels that an environment can derive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memrl_core.analysis.people.agreement import Agreement, agreement
from memrl_core.analysis.run.metrics import Rate, rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.judgements import Label, LabelSource
from memrl_core.environments import environment_class, environment_names
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import MemRLError
from memrl_core.numerals import counted, percent
from memrl_core.records import Memory, RunInfo, StepTrace, Task

Rule = Literal["majority", "any", "strict"]
"""Which grade raters that differ give together: the middle one (the lower of two), the highest, or the lowest."""
SOURCES: tuple[LabelSource, ...] = ("person", "import", "judge", "derived")
"""Whose label counts where there are several of one memory: the first of these."""
STORED_DERIVED = (
    "Stored derived labels speak only of memories that a step considered, which favours what was shown: what else "
    "should have come is not counted as missed."
)
SAME_TASK, SAME_KIND, OTHER_KIND = 3, 2, 0
RELEVANT = 1
"""From this grade on a memory counts as relevant."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of the recall of one step: grades by memory, and whether nothing should come (None: not said).

    A step with a relevant memory has something that should come, whatever else was said; `contradicts` says that the
    same source called nothing right.
    """

    grades: Mapping[str, int]
    nothing: bool | None = None
    contradicts: bool = False

    @property
    def relevant(self) -> dict[str, int]:
        """The memories that should come."""
        return {memory_id: grade for memory_id, grade in self.grades.items() if grade >= RELEVANT}


def settled(grades: Sequence[int], rule: Rule = "majority") -> int:
    """One grade of those that several raters gave."""
    ordered = sorted(grades)
    if rule == "majority":
        return ordered[(len(ordered) - 1) // 2]
    return ordered[-1] if rule == "any" else ordered[0]


def judged(
    labels: Iterable[Label], rule: Rule = "majority", sources: Sequence[LabelSource] = SOURCES
) -> dict[int, Judged]:
    """The labels of one run by step; of each memory those of the first of `sources` that has any count.

    Where an earlier source says that nothing should come, what a later one calls relevant is irrelevant.
    """
    by_step: dict[int, dict[str, dict[LabelSource, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    for label in labels:
        if label.grade is not None and label.source in sources:
            by_step[label.step][label.memory_id].setdefault(label.source, []).append(label.grade)
    return {step: _judged(by_memory, rule, sources) for step, by_memory in by_step.items()}


def _judged(
    by_memory: Mapping[str, Mapping[LabelSource, Sequence[int]]], rule: Rule, sources: Sequence[LabelSource]
) -> Judged:
    first = {memory_id: next(one for one in sources if one in by_source) for memory_id, by_source in by_memory.items()}
    grades = {memory_id: settled(by_memory[memory_id][source], rule) for memory_id, source in first.items()}
    something = grades.pop("", None)
    if something == 0:
        says = sources.index(first[""])
        grades = {i: 0 if sources.index(first[i]) > says else grade for i, grade in grades.items()}
    relevant = any(grade >= RELEVANT for grade in grades.values())
    nothing = False if relevant else None if something is None else something == 0
    by_same = (grade >= RELEVANT and first[memory_id] == first[""] for memory_id, grade in grades.items())
    return Judged(grades, nothing, something == 0 and any(by_same))


def agreement_of(labels: Iterable[Label]) -> Agreement:
    """How far people agree who labelled the same memories of the same steps; relevant or not is what is compared."""
    ratings: dict[str, dict[str, float]] = defaultdict(dict)
    for label in labels:
        if label.grade is not None and label.source == "person":
            ratings[f"{label.run}/{label.step}/{label.memory_id}"][label.rater] = float(label.grade)
    return agreement(ratings, RELEVANT / 2)


def with_people(labels: Sequence[Label], rule: Rule = "majority") -> dict[str, Rate]:
    """Of what a model, a file or the environment labels and people too, how much is relevant or not as people say it.

    By the rater and the source, such as "llama3.2 (judge)"; people who differ are settled by `rule`.
    """
    people: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for label in labels:
        if label.grade is not None and label.source == "person":
            people[label.run, label.step, label.memory_id].append(label.grade)
    alike: dict[str, list[bool]] = defaultdict(list)
    for label in labels:
        said = people.get((label.run, label.step, label.memory_id))
        if said and label.grade is not None and label.source != "person":
            same = (settled(said, rule) >= RELEVANT) == (label.grade >= RELEVANT)
            alike[f"{label.rater} ({label.source})"].append(same)
    return {who: rate("success" if one else "failure" for one in found) for who, found in sorted(alike.items())}


def agreement_sentences(labels: Sequence[Label], rule: Rule = "majority") -> list[str]:
    """How far people agree with each other, and with them whatever else labelled; [] where nobody can be compared."""
    both, said = agreement_of(labels), []
    if both.share is not None:
        kappa = "" if both.kappa is None else f", κ {both.kappa:.2f}"
        of = counted(both.steps_rated_by_two_or_more, "item")
        said.append(f"People agree on {percent(both.share)} of {of} that two or more labelled{kappa}.")
    for who, right in with_people(labels, rule).items():
        ends = f"{percent(right.low or 0.0, 0)} – {percent(right.high or 0.0, 0)}"
        share = f"{percent(right.share or 0.0, 0)} of {counted(right.n, 'item')} that both labelled ({ends})"
        said.append(f"{who} says relevant or not as people do in {share}.")
    return said


def on_gold(bank: MemoryBank, run: str, labels: Iterable[Label]) -> dict[str, Rate]:
    """Of the labels of each person, how many say relevant or not as the environment knows: its gold, by rater.

    Nobody who labels sees what it knows. Empty where it knows nothing. Raises `UnknownRun`.
    """
    deriver = Deriver(bank, run)
    right: dict[str, list[bool]] = defaultdict(list)
    tasks: dict[int, Task] = {}
    for label in labels if deriver.knows else ():
        if label.source == "person" and label.memory_id and label.grade is not None and label.run == run:
            if label.step not in tasks:
                tasks[label.step] = bank.trace(run, label.step).task
            known = deriver.grade(tasks[label.step], bank.memory(label.memory_id))
            if known is not None:
                right[label.rater].append((known >= RELEVANT) == (label.grade >= RELEVANT))
    return {rater: rate("success" if one else "failure" for one in said) for rater, said in sorted(right.items())}


# --- what an environment knows ----------------------------------------------------------------------------------------


class Deriver:
    """What the environment of a run knows of the kinds of its tasks, as labels. No method and no model ever sees it."""

    def __init__(self, bank: MemoryBank, run: str) -> None:
        self._info = bank.run(run)
        self._class = (
            environment_class(self._info.environment) if self._info.environment in environment_names() else None
        )
        infos = [info for info in bank.runs() if info.environment == self._info.environment]
        self._tasks = {task.id: task for info in infos for task in _tasks_of(info)}

    @property
    def knows(self) -> bool:
        """Whether this environment says of any of its tasks what they are about."""
        return self._class is not None and any(map(self._kind_of_task, list(self._tasks.values())[:1]))

    def speaks_of(self, task: Task) -> bool:
        """Whether it knows what this task is about."""
        return bool(self._kind_of_task(task))

    def _kind_of_task(self, task: Task) -> str:
        return "" if self._class is None else self._class.kind_of(task.intent, task)

    def kind(self, memory: Memory) -> str:
        """What a memory is about; "" where that is not known."""
        if self._class is None:
            return ""
        return self._class.kind_of(memory.intent, self._tasks.get(memory.task))

    def grade(self, task: Task, memory: Memory) -> int | None:
        """How relevant a memory is to a task; None where the environment does not know."""
        wanted, found = self._kind_of_task(task), self.kind(memory)
        if not wanted or not found:
            return None
        return OTHER_KIND if wanted != found else SAME_TASK if memory.task == task.id else SAME_KIND

    def of_step(self, trace: StepTrace, memories: Iterable[Memory]) -> list[Label]:
        """The labels of these memories for a step; with those that a run could see, the last says if none fits."""
        grades = [(memory.id, self.grade(trace.task, memory)) for memory in memories]
        rater = self._info.environment

        def label(memory_id: str, grade: int) -> Label:
            return Label(trace.run, trace.step, memory_id, grade, rater, "derived")

        known = [label(memory_id, grade) for memory_id, grade in grades if grade is not None]
        if self._kind_of_task(trace.task):
            known.append(label("", int(any(one.grade for one in known))))
        return known


def _tasks_of(info: RunInfo) -> list[Task]:
    try:
        return tasks_of_set(info.tasks) if info.tasks else []
    except MemRLError:
        return []
