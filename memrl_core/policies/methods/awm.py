"""Agent Workflow Memory: abstract workflows, induced from successes and written anew as a whole after each.

Source: arXiv 2409.07429 (online setting) and its released code.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from memrl_core.policies.base import (
    Ask,
    Lesson,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    UngatedSettings,
    Written,
    added,
    learned_in,
    nothing,
)
from memrl_core.policies.texts import followed, reworded
from memrl_core.prompting import ANSWER_MARK, STEPS_THAT_WORKED, TASK_LINE
from memrl_core.records import Memory, MemoryOperation, StepTrace
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import usual

ONLY_SUCCESSES = "workflows are induced from successes only"
NO_ANSWER = "the model gave no usable answer, so that the workflow stays as it was"


class AwmSettings(UngatedSettings):
    """The settings of AWM; its k is k2."""

    k1: int = usual("k1", 10, "How many workflows are recalled.")
    k2: int = usual("k2", 10, "The method's k: how many workflows.")
    successes: int = Field(
        3,
        ge=1,
        le=20,
        title="Successes read",
        description="How many of the newest successes of a kind the model reads when it writes the workflow anew.",
    )


SPEC = PolicySpec(
    name="awm",
    title="AWM",
    citation="arXiv 2409.07429",
    variant="adapted",
    deviations=(
        "The environment's reward, or a person's, says what a success is; in the source a language model judges it.",
        "One workflow for each way that worked: the names of the actions, in order. The source induces any number of "
        "them for each web site.",
        "The source induces from all successes so far, this from the workflow so far and the newest ones.",
        "The key of a workflow is its name and docstring, and the intent is compared with it.",
        "Below the abstract steps stand those that worked in the newest success, because the simulated model can only "
        "carry such lines over.",
        "With the simulated model a rule abstracts the newest success: a placeholder for each word of the intent that "
        "its actions are about.",
    ),
    idea="What several successes have in common is kept as one abstract workflow, instead of the episodes.",
    record="One workflow for each sequence of actions that worked: name, docstring, abstract steps, and the newest "
    "success as example.",
    recall="The k1 workflows whose name and docstring are most like the intent.",
    select="The k2 nearest.",
    update="Nothing: rewards change no value. They decide what is a success.",
    write="After a success the workflow of its actions is written anew as a whole, in the place of the old one. A "
    "failure, and what nobody has judged, writes nothing.",
    forget="Nothing, except that a workflow gives way to its new version.",
    cannot="It keeps no warning: what failed is not remembered. A success by luck is made a rule like any other.",
    carries_over="Every memory, by the embedding that it has; its q is not read. Workflows are "
    "induced from this run's successes only.",
    feedback=("episode reward", "human"),
    needs=("episode reward", "model on write"),
    learns="text",
)


class Awm(Policy[AwmSettings]):
    """Workflows instead of episodes."""

    spec = SPEC
    Settings = AwmSettings
    wants_summary = False
    ignored = ("duplicates", "duplicate_threshold")

    def embedded_text(self, operation: MemoryOperation, trace: StepTrace) -> str:
        """The workflow's name and when to use it."""
        return _embedded_text(Workflow.model_validate(dict(operation.data)))

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """The workflow of these actions in its new version; nothing but after a success."""
        if new.outcome != "success":
            return (nothing(new, ONLY_SUCCESSES),)
        success = Success(new.intent, steps_of(new.experience))
        kind = kind_of(success.steps)
        before = learned_in(view, Workflows).by_kind.get(kind)
        stands = followed(before.memory_id, reworded(view), view) if before else None
        earlier = before if stands else None  # What people have forgotten does not come back in a new version.
        successes = (*(earlier.successes if earlier else ()), success)[-self.settings.successes :]
        workflow = ask(induction_question(kind, earlier.workflow if earlier else None, successes))
        if workflow is None:
            return (nothing(new, NO_ANSWER),)
        (vector,) = new.embed([_embedded_text(workflow)])
        changes: dict[str, Any] = {"op": "UPDATE", "replaces": (stands,)} if stands else {}
        kept = [{"intent": one.intent, "steps": list(one.steps)} for one in successes]
        data = {"kind": kind, **workflow.model_dump(), "successes": kept}
        why = "The workflow was written anew after a success." if stands else ""
        text = laid_out(workflow, success)
        return (added(new, new.memory_id, text, vector, data=data, why=why, **changes),)

    def start(self, memories: Sequence[Memory]) -> Workflows:
        """No workflow yet, whatever memories there are."""
        return Workflows()

    def remember(self, state: Workflows, lesson: Lesson) -> None:
        """The workflow that a step has written."""
        for op in lesson.trace.operations:
            induced = induced_by(op)
            if induced is not None:
                state.by_kind[str(op.data["kind"])] = induced


def _embedded_text(workflow: Workflow) -> str:
    return f"{workflow.name}\n{workflow.docstring}"


# --- workflows: what is kept of one, how it is induced, and how it reads ----------------------------------------------


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


class _Data(Workflow):
    kind: str
    successes: tuple[Success, ...]


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
    parts = [f"Actions: {kind}"]
    if before is not None:
        parts.append(f"The workflow so far:\n{_shown(before)}")
    parts += [f"A success:\n{_example(one)}" for one in successes]
    docstring, steps = abstracted(successes[-1])
    template = Workflow(name=kind, docstring=docstring, steps=list(steps))
    return Question(INDUCE, Workflow, REQUEST, "\n\n".join(parts), template)


def laid_out(workflow: Workflow, newest: Success) -> str:
    """A workflow as the text of an experience: the abstract steps, then the newest success as it was."""
    return f"{TASK_LINE}{newest.intent}\n{_shown(workflow)}\n{STEPS_THAT_WORKED}\n" + _marked(newest.steps)


def induced_by(op: MemoryOperation) -> Induced | None:
    """The workflow that an operation wrote; None for one of another policy."""
    try:
        data = _Data.model_validate(op.data)
    except ValidationError:
        return None
    workflow = Workflow(name=data.name, docstring=data.docstring, steps=data.steps)
    return Induced(op.memory_id, workflow, data.successes)


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
