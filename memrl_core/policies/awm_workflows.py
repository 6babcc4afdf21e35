"""AWM's workflows: what is kept of one, how it is induced from successes, and how it reads (arXiv 2409.07429).

The prompt is in our own words. Where no language model is there, a template abstracts the newest success.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pydantic import BaseModel, Field, ValidationError

from memrl_core.policies.base import Question
from memrl_core.prompting import ANSWER_MARK, STEPS_THAT_WORKED, TASK_LINE
from memrl_core.records import MemoryOperation

INDUCE = "induce workflow"
REQUEST = (
    "You turn what worked into a workflow. Read the workflow so far, if there is one, and the latest successes by the "
    "same actions, and write the workflow anew as a whole: a short name, one sentence on when it is to be used, "
    "and its steps. Put a placeholder in braces, such as {object-1}, for whatever differs from task to task."
)
_WORD = re.compile(r"[^\W_]+")
_SMALL_WORDS = frozenset(
    ("a", "an", "and", "at", "be", "by", "for", "from", "in", "into", "is", "it", "of", "on", "onto", "or", "should",
     "the", "there", "to", "two", "under", "with")
)  # fmt: skip


class Workflow(BaseModel):
    """A workflow as the model writes it."""

    name: str = Field(description="a short name")
    docstring: str = Field(description="one sentence: when to use it")
    steps: list[str] = Field(description="the steps, with placeholders in braces for what differs")


@dataclass(frozen=True, slots=True)
class Success:
    """A task that was solved, and the actions that did it."""

    intent: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Induced:
    """A workflow in the memory, with the successes that the next version is made of, the newest last."""

    memory_id: str
    workflow: Workflow
    successes: tuple[Success, ...]


class _Success(BaseModel):
    intent: str
    steps: tuple[str, ...]


class _Data(Workflow):
    kind: str
    successes: list[_Success]


@dataclass(slots=True)
class Workflows:
    """The workflows of a run by the kind of success that each was induced from."""

    by_kind: dict[str, Induced] = field(default_factory=dict)


def kind_of(steps: Sequence[str]) -> str:
    """What a workflow is kept for: the names (first words) of the actions that worked, in order, repetitions once."""
    return ", ".join(name for name, _ in groupby(step.split()[0].lower() for step in steps if step.strip()))


def steps_of(experience: str) -> tuple[str, ...]:
    """The answers or actions in an experience."""
    lines = (line for line in experience.splitlines() if line.startswith(ANSWER_MARK))
    return tuple(line.removeprefix(ANSWER_MARK).strip() for line in lines)


def abstracted(success: Success) -> tuple[str, tuple[str, ...]]:
    """Intent and steps with a placeholder for each word of the intent that the steps are about.

    Such a word stands in a step behind its first word, which is the action's name.
    """
    about = {word for step in success.steps for word in _WORD.findall(step.lower())[1:]} - _SMALL_WORDS
    things = dict.fromkeys(_singular(word, about) for word in _WORD.findall(success.intent.lower()))
    names = {thing: f"{{object-{number}}}" for number, thing in enumerate((t for t in things if t in about), start=1)}

    def abstract(text: str) -> str:
        return _WORD.sub(lambda word: names.get(_singular(word.group().lower(), about), word.group()), text)

    return abstract(success.intent), tuple(abstract(step) for step in success.steps)


def induction_question(kind: str, before: Workflow | None, successes: Sequence[Success]) -> Question[Workflow]:
    """What the model is asked after a success; the template abstracts the newest."""
    told = [f"Actions: {kind}"]
    if before is not None:
        told.append(f"The workflow so far:\n{_shown(before)}")
    told += [f"A success:\n{_example(one)}" for one in successes]
    docstring, steps = abstracted(successes[-1])
    template = Workflow(name=kind, docstring=docstring, steps=list(steps))
    return Question(INDUCE, Workflow, REQUEST, "\n\n".join(told), template)


def laid_out(workflow: Workflow, newest: Success) -> str:
    """A workflow as the text of an experience: the abstract steps, then the newest success as it was."""
    return f"{TASK_LINE}{newest.intent}\n{_shown(workflow)}\n{STEPS_THAT_WORKED}\n" + _marked(newest.steps)


def induced_by(op: MemoryOperation) -> Induced | None:
    """The workflow that an operation wrote; None for one of another policy."""
    try:
        told = _Data.model_validate(op.data)
    except ValidationError:
        return None
    successes = tuple(Success(one.intent, one.steps) for one in told.successes)
    return Induced(op.memory_id, Workflow(name=told.name, docstring=told.docstring, steps=told.steps), successes)


def _shown(workflow: Workflow) -> str:
    steps = (f"{number}. {_line(step)}" for number, step in enumerate(workflow.steps, start=1))
    return "\n".join((f"Workflow: {_line(workflow.name)}", _line(workflow.docstring), *steps))


def _example(success: Success) -> str:
    return f"{TASK_LINE}{success.intent}\n{_marked(success.steps)}"


def _marked(steps: Sequence[str]) -> str:
    return "\n".join(ANSWER_MARK + step for step in steps)


def _line(text: str) -> str:
    return " ".join(text.split())


def _singular(word: str, known: Container[str]) -> str:
    """The word without a plural s, where only that is known."""
    return word[:-1] if word not in known and word.endswith("s") and word[:-1] in known else word
