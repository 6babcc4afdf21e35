"""The memory operations of Memory-R1, asked of an untrained model.

Source: arXiv 2508.19828, whose point is that a manager and an answer agent are trained by rewards. Neither is here:
what is left are the four operations and the list of near memories that they are chosen for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from memrl_core.policies.base import (
    Ask,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    UngatedSettings,
    Written,
    added,
    deleted,
    intent_key,
    nearest,
    nothing,
    seed_of,
)
from memrl_core.prompting import MEMORY_HEADER, TASK_LINE
from memrl_core.records import Memory
from memrl_core.retrieval.view import MemoryView

CHOOSE = "choose operation"
REQUEST = (
    "You keep the memory of an agent. Read what it has just been through and the memories nearest to it, and choose "
    "one operation. ADD: the memory says nothing like it yet. UPDATE: one of the memories is better said anew with it; "
    "name that memory and write its whole new text. DELETE: it shows that one of the memories is wrong or of no more "
    "use; name that memory. NOOP: the memory says it already. For ADD and UPDATE give the text to store, and keep its "
    "layout, with the task in its first line and every answer or action in a line that begins with “> ”."
)
UNUSABLE = "no usable answer"
LONGEST_SHOWN = 600


class MemoryR1OpsSettings(UngatedSettings):
    """The settings of the look-alike; its k is k2."""

    shown: int = Field(
        30,
        ge=1,
        le=200,
        title="Memories shown on write",
        description="How many of the nearest memories the model reads when it chooses an operation.",
    )


SPEC = PolicySpec(
    name="memory_r1_ops",
    title="Memory-R1 operations (prompted look-alike)",
    citation="arXiv 2508.19828, its operations only",
    variant="adapted",
    deviations=(
        "The trained manager of the source is not here: a prompted model chooses the operation, and nothing learns "
        "from how that turned out. The source's results say nothing about this.",
        "The trained answer agent of the source, which picks from its memories those that it answers by, is not here: "
        "the k2 most similar stand in the prompt.",
        "An operation is about a whole episode; in the source about a fact of a conversation.",
        "UPDATE writes a new memory in the place of the old one, under the intent and outcome of the newcomer.",
        "With the simulated model a rule chooses: NOOP when the same text is there; UPDATE when this is a success and "
        "the nearest memory of the same intent is not; DELETE of a failure of the same intent when this is a success; "
        "else ADD.",
    ),
    idea="The model itself keeps the memory in order: for every episode it chooses whether to add, to say anew, to "
    "delete or to leave things as they are.",
    record="Intent with its embedding, and the text that the model wants stored.",
    recall="The k1 memories most similar to the intent.",
    select="The k2 most similar.",
    update="Nothing: rewards change no value. In the source they train the model that chooses; here it only reads how "
    "the episode ended.",
    write="One question to the model, and the one operation that it chooses; an answer that cannot be used leaves the "
    "memory as it is, and is counted.",
    forget="DELETE, when the model chooses it.",
    cannot="A memory that the model deletes wrongly is gone: nothing teaches it which operations helped later.",
    carries_over="Every memory; its q is not read.",
    feedback=("episode reward", "human"),
    needs=("model on write",),
    learns="text",
)


class Chosen(BaseModel):
    """The operation that the model chooses."""

    operation: Literal["ADD", "UPDATE", "DELETE", "NOOP"]
    memory: str = Field("", description="id of the memory that UPDATE or DELETE is about")
    text: str = Field("", description="the text to store with ADD or UPDATE")


class MemoryR1Ops(Policy[MemoryR1OpsSettings]):
    """Add, say anew, delete or leave: one operation an episode."""

    spec = SPEC
    Settings = MemoryR1OpsSettings
    ignored = ("duplicates", "duplicate_threshold")

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """The operation that the model chooses; NOOP where its answer cannot be used."""
        found = nearest(new.embedding, view, self.settings.shown, self.settings.ties, seed_of(new.trace))
        near = [view.memories[seen.memory_id] for seen in found]
        chosen = ask(operation_question(new, near))
        if chosen is None:
            return (nothing(new, UNUSABLE),)
        if chosen.operation == "NOOP":
            same = next((memory.id for memory in near if _same_text(memory, new)), None)
            return (nothing(new, "the memory says it already", same),)
        if chosen.operation == "ADD":
            return (added(new, new.memory_id, _laid_out(chosen.text, new)),)
        about = next((memory for memory in near if memory.id == _bare(chosen.memory)), None)
        if about is None:
            return (nothing(new, f"{UNUSABLE}: {chosen.operation} of a memory that was not shown"),)
        if chosen.operation == "DELETE":
            return (Written(deleted([about.id], "The model found that the new episode makes it useless.")),)
        why = "The model said it anew with the new episode."
        text = _laid_out(chosen.text, new)
        return (added(new, new.memory_id, text, op="UPDATE", replaces=(about.id,), why=why),)


def operation_question(new: NewExperience, near: Sequence[Memory]) -> Question[Chosen]:
    """Which operation is to be done, given the nearest memories."""
    shown = "\n\n".join(
        f"{MEMORY_HEADER.format(id=memory.id)}\nOutcome: {memory.outcome}.\n{memory.experience.strip()[:LONGEST_SHOWN]}"
        for memory in near
    )
    message = f"What it has been through:\nOutcome: {new.outcome}.\n{new.experience.strip()}\n\n"
    message += f"The memories nearest to it:\n\n{shown}" if near else "There are no memories yet."
    return Question(CHOOSE, Chosen, REQUEST, message, _by_rule(new, near))


def _by_rule(new: NewExperience, near: Sequence[Memory]) -> Chosen:
    """What replaces the model's choice: see the spec's deviations."""
    if any(_same_text(memory, new) for memory in near):
        return Chosen(operation="NOOP")
    alike = [memory for memory in near if intent_key(memory.intent) == intent_key(new.intent)]
    if new.outcome == "success" and alike:
        if alike[0].outcome != "success":
            return Chosen(operation="UPDATE", memory=alike[0].id, text=new.experience)
        failure = next((memory.id for memory in alike if memory.outcome == "failure"), None)
        if failure is not None:
            return Chosen(operation="DELETE", memory=failure)
    return Chosen(operation="ADD", text=new.experience)


def _laid_out(text: str, new: NewExperience) -> str:
    """The text to store: the model's, under the line that names the task; the episode's own where it gave none."""
    words = text.strip()
    if not words:
        return new.experience
    return words if words.startswith(TASK_LINE) else f"{TASK_LINE}{new.intent}\n{words}"


def _bare(named: str) -> str:
    """An id without the brackets and the word that it was shown with."""
    return named.strip().removeprefix("[").removesuffix("]").removeprefix("memory ").strip()


def _same_text(memory: Memory, new: NewExperience) -> bool:
    return memory.experience.split() == new.experience.split()
