"""A task and its retrieved memories as a policy shows them to the model that judges them, and the reason it gives."""

from __future__ import annotations

from collections.abc import Sequence

from memrl_core.prompting import MEMORY_HEADER, TASK_LINE
from memrl_core.records import Recalled, RecallRecord
from memrl_core.view import MemoryView

LONGEST_REASON = 300


def task_shown(view: MemoryView) -> str:
    """The intent, and what the environment said last; nothing where nobody asks."""
    return "" if view.asked is None else f"{TASK_LINE}{view.asked.intent}\n{view.asked.observation}".strip()


def memories_shown(members: Sequence[Recalled], view: MemoryView) -> str:
    """The memories in this order, each with its id, outcome and similarity."""
    shown = []
    for member in members:
        memory = view.memories[member.memory_id]
        head = f"{MEMORY_HEADER.format(id=memory.id)}\nOutcome: {memory.outcome}. Similarity: {member.similarity:.2f}."
        shown.append(f"{head}\n{memory.experience.strip()}")
    return "\n\n".join(shown)


def members_of(recalled: RecallRecord, memory_ids: Sequence[str]) -> list[Recalled]:
    """These members of the pool, in the order of their ids."""
    by_id = {member.memory_id: member for member in recalled.pool}
    return [by_id[memory_id] for memory_id in memory_ids]


def as_sentence(reason: str) -> str:
    """A model's reason as one sentence of a note: one line, not endless, with a full stop."""
    line = " ".join(reason.split())[:LONGEST_REASON].rstrip(" .")
    return f"{line}." if line else "no reason was given."
