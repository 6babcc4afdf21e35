"""The coach of WebCoach: what it is asked, what it said, and its message in a prompt (arXiv 2511.12997)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from memrl_core.policies.base import Question
from memrl_core.policies.shown import memories_shown, task_shown
from memrl_core.policies.webcoach_condenser import quoted
from memrl_core.prompting import MEMORY_HEADER
from memrl_core.records import Memory, Recalled
from memrl_core.view import MemoryView

COACH = "coach's advice"
ADVICE = "## Advice of the coach"
QUOTED = 2
"""Successes, and failures, that the rule in the coach's place quotes."""
REQUEST = (
    "You coach an agent. You are given its task, what it sees and condensed episodes of earlier tasks. Decide whether "
    "advice from these episodes would help it now; keep silent when they do not fit the task. Fill in the form. "
    "intervene: whether you speak. advice: what the agent shall do or avoid, short and concrete, from the episodes "
    "alone; empty when you keep silent. reason: one sentence on why you speak or keep silent."
)
UNREADABLE = "The coach's reply does not fit its form, which counts as no answer: it kept silent."
NO_ADVICE = "The coach wanted to speak and gave no advice: it kept silent."


class Coaching(BaseModel):
    """What the coach says."""

    intervene: bool
    advice: str
    reason: str


def coach_question(read: Sequence[Recalled], view: MemoryView, gate: float) -> Question[Coaching]:
    """What the coach is asked about the episodes that it reads; without a language model the rule answers."""
    told = f"{task_shown(view)}\n\nEpisodes, best first:\n\n{memories_shown(read, view)}"
    return Question(COACH, Coaching, REQUEST, told, rule_in_its_place(read, view, gate))


def rule_in_its_place(read: Sequence[Recalled], view: MemoryView, gate: float) -> Coaching:
    """The form as filled in without a language model: by the best similarity and the outcomes."""
    best = max(member.similarity for member in read)
    memories = [view.memories[member.memory_id] for member in read]
    judged = [memory for memory in memories if memory.outcome != "unrated"]
    speaks = best > gate and bool(judged)
    if best <= gate:
        why = f"the best similarity {best:.2f} is not above {gate:g}."
    elif not judged:
        why = "no episode here is known to have worked or failed."
    else:
        why = f"the best similarity {best:.2f} is above {gate:g}, and {len(judged)} of the episodes are judged."
    advice = advice_from(judged) if speaks else ""
    return Coaching(intervene=speaks, advice=advice, reason=f"by the rule in the model's place, {why}")


def advice_from(memories: Sequence[Memory]) -> str:
    """Advice in the words of the memories: the first successes and failures, each quoted under its id."""
    parts = []
    for outcome, opening in (("success", "Do as here, where it worked."), ("failure", "Mind this, where it failed.")):
        for memory in [memory for memory in memories if memory.outcome == outcome][:QUOTED]:
            parts.append(f"{opening}\n{MEMORY_HEADER.format(id=memory.id)}\n{quoted(memory)}")
    return "\n".join(parts)


def said_by_coach(view: MemoryView) -> Coaching | str | None:
    """What the coach said; why it counts as silent where it said nothing usable; None where it was not asked."""
    said = {} if view.asked is None else view.asked.said
    if COACH not in said:
        return None
    if said[COACH] is None:
        return UNREADABLE
    coaching = Coaching.model_validate(said[COACH])
    return NO_ADVICE if coaching.intervene and not coaching.advice.strip() else coaching


def coach_message(selected: Sequence[Memory], view: MemoryView) -> str:
    """The coach's advice under the ids of the memories that it comes from; empty where it has none to give."""
    said = said_by_coach(view)
    advice = advice_from(selected) if said is None else "" if isinstance(said, str) else said.advice.strip()
    if not selected or not advice:
        return ""
    sources = MEMORY_HEADER.format(id=", ".join(memory.id for memory in selected))
    return f"{ADVICE}\n\n{sources}\n{advice}\n\n"
