"""MemP: scripts of past episodes, reworded where they fail and, in the released code, deleted where they keep failing.

Source: arXiv 2508.06433, and its released code (ProcedureMem) where the paper is silent and for what the code adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from memrl_core.policies.base import (
    Ask,
    Lesson,
    NewExperience,
    Policy,
    PolicySpec,
    Question,
    Written,
    added,
    deleted,
    nothing,
    one_memory,
)
from memrl_core.policies.texts import one_line, section, sections_of, went_wrong
from memrl_core.prompting import AVOID, STEPS_THAT_WORKED, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import Decision, Follows, Memory, MemoryOperation, StepTrace, Utility, ValueChange
from memrl_core.retrieval.view import MemoryView
from memrl_core.settings import PolicySettings, usual


class MempSettings(PolicySettings):
    """The settings of MemP; its k is k2."""

    k1: int = usual("k1", 10, "How many memories phase A recalls at most.")
    k1_counts: Literal["record", "intent"] = usual("k1_counts", "record")
    delta: float = usual("delta", 0.2)
    k2: int = usual("k2", 10, "The method's k.")
    reward_failure: float = usual("reward_failure", 0.0, "Also thumbs down. The method has 0 and 1.")
    variant: Literal["paper", "code"] = Field(
        "paper",
        title="Variant",
        description="code: failing memories are deleted, and a task that has a memory gets no second one.",
    )
    update: Literal["vanilla", "validation", "adjustment"] = Field(
        "adjustment",
        title="Update",
        description="vanilla: every episode is stored. validation: successes. adjustment: successes; a failure rewords "
        "the memory that was followed.",
    )
    delete_from: int = Field(
        3, ge=1, le=1000, title="Deleted from n hits", description="Variant code: uses before a memory can be deleted."
    )
    delete_below: float = Field(
        0.5, ge=0, le=1, title="Deleted below", description="Variant code: the success rate below which it is."
    )


SPEC = PolicySpec(
    name="memp",
    title="MemP",
    citation="arXiv 2508.06433",
    variant="paper",
    deviations=(
        "Memories are counted, deleted and written after each task; the released code does so after a batch. There the "
        "reward of a use is looked up by the place of its memory's first use in the batch, so that a second use counts "
        "the first one's reward. That is not copied: each use counts its own.",
        "The released code's thresholds of .5 and .4 are largest distances of its vector index; here δ is the least "
        "cosine.",
        "A script is what a language model writes of the episode in one call, three to five steps in general terms, "
        "below the actions that worked; the source can also keep chosen turns. With the simulated model it is these "
        "actions alone.",
        "With the simulated model a memory whose steps went wrong is reworded as the environment lays the failure out; "
        "to another only the reason is added.",
        "There is no cold start from given trajectories. The key is the intent; the paper also tries the facts of a "
        "task, and memories at random.",
    ),
    idea="An agent keeps scripts of what it did. The memory is kept clean by what is stored, by rewording a script "
    "that has failed, and by deleting scripts that fail too often.",
    record="One memory a script, with hits and successes: its success rate stands as q, its hits as visits.",
    recall="The k1 memories whose intent is most similar, beyond the gate δ.",
    select="The k2 most similar.",
    update="The first memory of the prompt alone: q = successes / hits, a 1/N mean. q does not choose memories.",
    write="Every episode, or successes only; with “adjustment” a failure rewords the first memory of its prompt, which "
    "keeps its q and visits.",
    forget="Released code: a memory with at least 3 hits of which less than half were successes. Paper: nothing.",
    cannot="What is deleted or reworded goes by the first memory alone, although the model has read k2 of them. "
    "Without a first success, validation and adjustment have nothing to begin with.",
    carries_over="Every memory; q and visits go on as a success rate, q cut to 0 … 1, which they are only if the other "
    "policy's were one. So what this run did not store is never deleted.",
    needs=("episode reward", "model on write"),
    learns="success rate",
    variants=("paper", "code", "adapted"),
)


VANILLA_FAILURES = (
    "A failure that “vanilla” stores is kept as what went wrong and what to try instead, among the failures of the "
    "prompt; the source makes a script of it like any other."
)
"""A deviation of the update “vanilla”."""
ONLY_SUCCESSES = "only successes are stored"
NOTHING_USED = "the failure followed no memory that could be reworded"
USED_IS_DELETED = "the memory that was followed is deleted, not reworded"
UNUSABLE = "the model's rewording could not be used, so that the memory stays as it was"
KNOWN_TASK = "the released code stores a task once"
EXACT = 1e-9


class Memp(Policy[MempSettings]):
    """The policy of MemP under given settings."""

    spec = SPEC
    Settings = MempSettings

    def __init__(self, settings: MempSettings) -> None:
        super().__init__(settings)
        if settings.update == "vanilla":
            self.spec = replace(SPEC, variant="adapted", deviations=(*SPEC.deviations, VANILLA_FAILURES))
        else:
            self.spec = replace(SPEC, variant=settings.variant)

    def credited(self, decision: Decision, follows: Follows | None = None) -> tuple[str, ...]:
        """The first memory of the prompt alone."""
        return decision.selected[:1]

    @staticmethod
    def rule(believed: Utility, reward: float, settings: Mapping[str, Any]) -> float:
        """successes / hits with one hit more; a reward above the middle of r− and r+ is a success.

        A q that another policy left is cut to [0, 1] first, so that it can be a rate.
        """
        middle = (float(settings["reward_success"]) + float(settings["reward_failure"])) / 2
        return (_as_rate(believed.q) * believed.visits + (reward > middle)) / (believed.visits + 1)

    def step_size(self, believed: Utility) -> float:
        """1 / N."""
        return 1 / (believed.visits + 1)

    def update(self, credited: Sequence[str], reward: float, values: Mapping[str, Utility]) -> tuple[ValueChange, ...]:
        """How the reward moves the success rate of the first memory."""
        won = int(reward > self.settings.q_midpoint)
        return tuple(
            replace(c, formula=f"({c.visits - 1} × {_as_rate(c.before):.3f} + {won}) / {c.visits} = {c.after:.3f}")
            for c in super().update(credited, reward, values)
        )

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """What becomes of the episode, and the deletion of a memory that this very step has condemned.

        In the released code's order: counted, then deleted, then written; what is deleted is not reworded.
        """
        gone = self._condemned_by(new.trace, view)
        written = self._written(new, view, {*gone, *self._failing(view)}, ask)
        return (written, Written(deleted(gone, self._why_deleted()))) if gone else (written,)

    def forget(self, view: MemoryView) -> tuple[MemoryOperation, ...]:
        """Released code: the memories whose success rate in the view is too low, in every mode of update.

        At WRITE the view is as the step began, because its reward is appended when it ends. So what the step itself
        condemns is deleted by `write`, which sees the trace; this finds what late rewards or settings have condemned.
        """
        gone = self._failing(view)
        return (deleted(gone, self._why_deleted()),) if gone else ()

    def start(self, memories: Sequence[Memory]) -> set[str]:
        """The ids of the memories that the run has stored: none yet."""
        return set()

    def remember(self, state: set[str], lesson: Lesson) -> None:
        """What a step has stored; a new wording belongs to the run if the old one did."""
        for operation in lesson.trace.operations:
            if operation.memory_id and state.issuperset(operation.replaces):
                state.add(operation.memory_id)

    def _written(self, new: NewExperience, view: MemoryView, gone: set[str], ask: Ask) -> Written:
        update = self.settings.update
        if update == "adjustment" and new.outcome == "failure":
            return self._reworded(new, view, gone, ask)
        if update != "vanilla" and new.outcome != "success":
            return nothing(new, ONLY_SUCCESSES)
        if self.settings.variant == "code" and (known := _of_intent(new.intent, view, gone)):
            return nothing(new, KNOWN_TASK, known)
        return one_memory(new, view, self.settings)

    def _reworded(self, new: NewExperience, view: MemoryView, gone: set[str], ask: Ask) -> Written:
        followed = self.credited(new.trace.decision) if new.trace.decision is not None else ()
        if not followed or not view.sees(followed[0]):
            return nothing(new, NOTHING_USED)
        old = view.memories[followed[0]]
        if old.id in gone:
            return nothing(new, USED_IS_DELETED)
        form = ask(adjust_question(old, new))
        if form is None:
            return nothing(new, UNUSABLE)
        return added(
            new,
            new.memory_id,
            reworded_experience(old, new.intent, form),
            view.embeddings[view.position(old.id)].copy(),
            op="UPDATE",
            replaces=(old.id,),
            intent=old.intent,
            intent_key=old.intent_key,
            outcome=old.outcome,
            why="a task in which it was followed has failed",
        )

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _failing(self, view: MemoryView) -> list[str]:
        """The memories of this run with enough hits and too low a success rate, oldest first."""
        settings, stored = self.settings, view.learned if isinstance(view.learned, set) else view.ids
        if settings.variant != "code":
            return []
        fails = (view.visits >= settings.delete_from) & (view.q < settings.delete_below - EXACT)
        ids = (view.ids[position] for position in np.flatnonzero(fails).tolist())
        return [memory_id for memory_id in ids if memory_id in stored and view.sees(memory_id)]

    def _condemned_by(self, trace: StepTrace, view: MemoryView) -> list[str]:
        """The memories that the step's own reward has brought to where they are deleted."""
        changes = [c for c in (trace.update.changes if trace.update is not None else ()) if view.sees(c.memory_id)]
        q, visits = view.q.copy(), view.visits.copy()
        for change in changes:
            if change.target == "memory" and change.name == "q":
                position = view.position(change.memory_id)
                q[position], visits[position] = change.after, change.visits
        before = set(self._failing(view))
        return [i for i in self._failing(replace(view, q=q, visits=visits)) if i not in before]

    def _why_deleted(self) -> str:
        return f"a success rate below {self.settings.delete_below:g} after {self.settings.delete_from} or more uses"


def _as_rate(q: float) -> float:
    return min(1.0, max(0.0, q))


def _of_intent(intent: str, view: MemoryView, gone: set[str]) -> str | None:
    """The oldest memory of an intent that the run sees and will keep."""
    ids = (view.ids[position] for position in view.positions().tolist())
    return next((i for i in ids if i not in gone and view.memories[i].intent.strip() == intent.strip()), None)


# --- rewordings -------------------------------------------------------------------------------------------------------


ADJUSTED = "adjusted memory"
ADJUST_REQUEST = (
    "A memory was followed in a task that then failed. Read the memory, the task and what was done. Write the memory "
    "anew so that it guides better: in one sentence what went wrong, then the actions to avoid, then the steps to take "
    "instead, each as a short line."
)


class Adjusted(BaseModel):
    """A memory written anew after a failure."""

    what_went_wrong: str
    avoid: list[str]
    try_instead: list[str]


def adjust_question(old: Memory, new: NewExperience) -> Question[Adjusted]:
    """How the memory that was followed shall read after a failure.

    The template takes what the environment lays out; it gives steps to take instead only where the memory's own steps
    went wrong: where it is about the same intent, or has a line to avoid in it, up to one word.
    """
    message = (
        f"The memory:\n{old.experience.strip()}\n\nThe task in which it failed, and what was done:\n"
        f"{new.experience.strip()}\n\nHow it ended: {new.verdict}"
    )
    found = sections_of(new.experience)
    own = [line for title in (STEPS_THAT_WORKED, TRY_INSTEAD) for line in sections_of(old.experience)[title]]
    is_to_blame = old.intent == new.intent or any(_alike(line, bad) for line in own for bad in found[AVOID])
    template = Adjusted(
        what_went_wrong=went_wrong(new.experience) or new.verdict,
        avoid=found[AVOID],
        try_instead=found[TRY_INSTEAD] if is_to_blame else [],
    )
    return Question(ADJUSTED, Adjusted, ADJUST_REQUEST, message, template)


def reworded_experience(old: Memory, intent: str, adjusted: Adjusted) -> str:
    """The memory's new text: about the task `intent` in which it failed, whose words its lines are in.

    Without steps to take instead the old text stays, with what went wrong below it.
    """
    wrong = f"{WHAT_WENT_WRONG}{one_line(adjusted.what_went_wrong)}\n"
    if instead := section(TRY_INSTEAD, adjusted.try_instead):
        return f"{TASK_LINE}{intent}\n{wrong}{section(AVOID, adjusted.avoid)}{instead}"
    kept = [line for line in old.experience.rstrip().splitlines() if not line.startswith(WHAT_WENT_WRONG)]
    return "\n".join([*kept, wrong])


def _alike(one: str, other: str) -> bool:
    """Whether two lines are the same up to one word."""
    words, others = one.lower().split(), other.lower().split()
    return len(words) == len(others) and sum(a != b for a, b in zip(words, others, strict=True)) <= 1
