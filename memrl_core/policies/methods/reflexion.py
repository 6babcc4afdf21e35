"""Reflexion: after a failed try the model says what it learns from it, and reads that at the next try of this task.

Source: arXiv 2303.11366 and its official code for ALFWorld: reflections belong to one task, the last three are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from memrl_core.policies.base import Ask, NewExperience, Policy, PolicySpec, Question, Vector, When, Written, added
from memrl_core.policies.methods.exprecent import ages, measured, nearest_others
from memrl_core.policies.ranking import Chosen, TermColumn, ranked
from memrl_core.policies.texts import section, sections_of, went_wrong
from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICES, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import Decision, Reason, Recalled, RecallRecord, Turn
from memrl_core.retrieval import of_task
from memrl_core.retrieval.view import Asked, MemoryView
from memrl_core.settings import PolicySettings

REQUEST = (
    "You failed at a task that you will try again. Read what you did, and what you told yourself after earlier tries. "
    "Say in one sentence what the root cause was; then what to avoid, and what to do next time, each as short lines "
    "that name actions or answers."
)
EARLIER = "What you told yourself after earlier tries:"
ATTEMPT = "What you did:"
NOT_SOLVED = "The task was not solved."
NO_CAUSE = "this try did not solve the task."
A_RETRY = "a retry: what earlier tries of this very task left is read"
NO_REFLECTION = "no reflection on this task: it is met for the first time, or no earlier try of it failed"
UNREADABLE = "the model's reflection could not be used, so what the environment lays out replaces it"


class ReflexionSettings(PolicySettings):
    """The settings of Reflexion."""

    last: int = Field(
        3,
        ge=1,
        le=10,
        title="Reflections read",
        description="How many of the newest reflections on this very task stand in the prompt. Takes the place of k1 "
        "and k2.",
    )


class Reflection(BaseModel):
    """The lesson of a failed try, as the model fills it in."""

    root_cause: str = Field(description="Why the try failed, in one sentence.")
    avoid: list[str] = Field(description="Actions or answers not to repeat.")
    next_time: list[str] = Field(description="Actions or answers for the next try, in their order.")


class Reflexion(Policy[ReflexionSettings]):
    """Every task teaches itself alone."""

    wants_summary = False
    ignored = ("k1", "k1_counts", "delta", "k2", "ties", "duplicates", "duplicate_threshold")

    spec = PolicySpec(
        name="reflexion",
        title="Reflexion",
        citation="arXiv 2303.11366",
        variant="adapted",
        deviations=(
            "The official code skips a task once it is solved. A run here goes through every task each epoch: a solved "
            "task is tried again with the reflections that it has.",
            "A reflection is asked for as a form (root cause, what to avoid, what to do next time) instead of free "
            "text, so that every model can use it.",
            "A try ends when the environment ends it; repeating an action does not.",
        ),
        idea="After a failed try the model says in words why it failed and what to do next. It reads that when it "
        "meets the same task again; no other task gains from it.",
        record="One reflection a failed try: the task's id and intent, root cause, what to avoid, what to do next.",
        when="At a retry of the same task.",
        recall="The newest reflections on this very task; no similarity is asked. The nearest others are shown.",
        select="All that were recalled, in the order in which they were written.",
        update="Nothing: no value moves. The words are what is learned.",
        write="After a failure one reflection, asked from the model; after a success nothing.",
        forget="Nothing is deleted; what is older than the last few is not read.",
        cannot="It carries nothing from one task to another, and a failure that is reported only after the step has "
        "ended leaves no reflection.",
        carries_over="Memories of the very same task, whatever method wrote them; all others are not read.",
        needs=("episode reward", "model on write"),
        learns="text",
    )
    Settings = ReflexionSettings

    def when(self, asked: Asked) -> When:
        """At the beginning of a task; whether it is a retry shows in what is recalled."""
        if asked.turn == 0:
            return When(True, "at the beginning of a task, in case it is a retry")
        return When(False, "reflections are read at the beginning of a retry, not within it")

    def recall(self, query: Vector, view: MemoryView, coarse: Vector | None = None) -> RecallRecord:
        """The newest reflections on the task that is asked."""
        own = of_task(view, view.asked.task if view.asked is not None else "")
        excluded = bool(self.excluded_task(view))
        pool = own[:0] if excluded else own[::-1][: self.settings.last]
        left_out = []
        for rank, (position, similarity) in enumerate(nearest_others(query, view, pool, coarse), start=len(pool) + 1):
            missed = Reason.SAME_TASK if excluded else Reason.NOT_RECENT
            reason = missed if position in own else Reason.OTHER_TASK
            left_out.append(Recalled(view.ids[position], similarity, rank, reason))
        return RecallRecord(
            self.settings.last,
            "record",
            -1.0,
            False,
            view.size,
            measured(query, view, pool),
            tuple(left_out),
            rule="same task",
            why=self._why(len(pool), excluded),
        )

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """The newest reflections on this task among the pool, oldest first, as the official code lists its trials."""
        task = view.asked.task if view.asked is not None else ""
        same = np.array([bool(task) and view.memories[m.memory_id].task == task for m in recalled.pool], dtype=np.bool_)
        age = ages(recalled, view)
        newest_first = sorted(np.flatnonzero(same).tolist(), key=lambda position: float(age[position]))
        taken = newest_first[: self.settings.last][::-1]
        chosen = Chosen(
            taken,
            "greedy" if newest_first else "silent" if recalled.pool else "fallback",
            reasons={int(i): Reason.OTHER_TASK for i in np.flatnonzero(~same)},
            greedy=taken,
        )
        terms = [TermColumn("same task", same.astype(np.float64), float(len(same))), TermColumn("age", age, -1.0)]
        return ranked(recalled, view, terms, k2=self.settings.last, seed=seed, chosen=chosen)

    def write(self, new: NewExperience, view: MemoryView, ask: Ask) -> tuple[Written, ...]:
        """After a failure what the model says of it; nothing otherwise."""
        if new.outcome != "failure":
            return ()
        reflection = ask(Question("reflection", Reflection, REQUEST, _message(new, view), _template(new.experience)))
        text = "" if reflection is None else laid_out(new.intent, reflection)
        if not text:
            return (added(new, new.memory_id, new.experience, why=UNREADABLE),)
        return (added(new, new.memory_id, text, why="the try failed"),)

    def _why(self, found: int, excluded: bool) -> str:
        if excluded:
            return "the settings leave out memories of the same task, and this method reads no others"
        return A_RETRY if found else NO_REFLECTION


def laid_out(intent: str, reflection: Reflection) -> str:
    """A reflection as the text of an experience; empty when it says nothing."""
    cause = " ".join(reflection.root_cause.split())
    avoid, next_time = section(AVOID, reflection.avoid), section(TRY_INSTEAD, reflection.next_time)
    if not (cause or avoid or next_time):
        return ""
    return f"{TASK_LINE}{intent}\n{WHAT_WENT_WRONG}{cause or NO_CAUSE}\n{avoid}{next_time}".strip()


def _template(experience: str) -> Reflection:
    """The environment's layout of the episode as a reflection."""
    found = sections_of(experience)
    return Reflection(root_cause=went_wrong(experience) or NO_CAUSE, avoid=found[AVOID], next_time=found[TRY_INSTEAD])


# The environment's verdict stays out: it may hold the expected answer, and the source tells no more than the failure.
def _message(new: NewExperience, view: MemoryView) -> str:
    earlier = [view.memories[memory_id].experience for memory_id in new.parents if memory_id in view.memories]
    parts = [f"{TASK_LINE}{new.intent}", f"{ATTEMPT}\n{_attempt(new.trace.turns)}", NOT_SOLVED]
    return "\n\n".join([*parts, f"{EARLIER}\n\n" + "\n\n".join(earlier)] if earlier else parts)


def _attempt(turns: Sequence[Turn]) -> str:
    """What was done and what came of it, without the choices that were offered."""
    return "\n".join(
        f"{ANSWER_MARK}{turn.reply.text.strip()}\n{turn.observation.partition(CHOICES)[0].strip()}".strip()
        for turn in turns
    )
