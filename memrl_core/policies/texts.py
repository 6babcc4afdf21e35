"""What a policy reads of a task, a pool and a finished step, and how it shows them to a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memrl_core.prompting import (
    ANSWER_MARK,
    AVOID,
    MEMORY_HEADER,
    STEPS_THAT_WORKED,
    TASK_LINE,
    TRY_INSTEAD,
    WHAT_WENT_WRONG,
    first_observation,
)
from memrl_core.records import Recalled, RecallRecord, StepTrace, Turn
from memrl_core.retrieval.view import MemoryView

LONGEST_REASON = 300
OWN_WORDS = "\n\nIn the words of "
SECTIONS = (STEPS_THAT_WORKED, AVOID, TRY_INSTEAD)


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


# --- the layout of an experience --------------------------------------------------------------------------------------


def sections_of(experience: str) -> Mapping[str, list[str]]:
    """The lines under each heading of an episode's layout, without the words that a model added below it."""
    found: dict[str, list[str]] = {title: [] for title in SECTIONS}
    current: list[str] = []
    for line in experience.partition(OWN_WORDS)[0].splitlines():
        if line.startswith(ANSWER_MARK):
            current.append(one_line(line))
        elif line.strip():
            current = found.get(line.strip(), [])
    return found


def went_wrong(experience: str) -> str:
    """What went wrong in an episode, as its layout has it; empty where that says nothing of it."""
    lines = (line for line in experience.splitlines() if line.startswith(WHAT_WENT_WRONG))
    return next(lines, "").removeprefix(WHAT_WENT_WRONG)


def section(title: str, lines: Sequence[str]) -> str:
    """A heading with its lines, as `sections_of` reads them; empty without any."""
    kept = [line for line in map(one_line, lines) if line]
    return f"{title}\n" + "".join(f"{ANSWER_MARK}{line}\n" for line in kept) if kept else ""


def one_line(text: str) -> str:
    """A text in one line, without the mark of an answer."""
    return " ".join(text.split()).removeprefix(ANSWER_MARK.strip()).strip()


# --- of a finished step -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the agent saw, without what memory added to it, and the turn in which it answered."""

    observation: str
    turn: Turn


def exchanges(trace: StepTrace) -> tuple[Exchange, ...]:
    """The exchanges of the episode in order, without an answer that was stopped.

    The first observation is empty where the prompt is laid out otherwise than here.
    """
    if trace.generate is None:
        return ()
    turns = [turn for turn in trace.turns if not turn.reply.stopped]
    begin = first_observation(trace.generate.messages, trace.task.intent)
    seen = [begin, *(turn.observation for turn in turns)]
    return tuple(Exchange(observation, turn) for observation, turn in zip(seen, turns, strict=False))


def memories_in_prompts(trace: StepTrace) -> tuple[str, ...]:
    """The memories that stood before the model in any turn, each once."""
    decisions = [trace.decision, *(turn.recalled.decision for turn in trace.turns if turn.recalled is not None)]
    return tuple(dict.fromkeys(i for decision in decisions if decision is not None for i in decision.selected))


def verdict_of(reward: float, settings: Mapping[str, Any]) -> float:
    """A step's reward as a verdict in [0, 1]: r− is 0, r+ is 1, what lies beyond is cut off."""
    low, high = float(settings.get("reward_failure", -1.0)), float(settings.get("reward_success", 1.0))
    return min(1.0, max(0.0, (reward - low) / (high - low)))


# What a person edits or merges goes on under the id of the oldest of the old ones, with a dot and a number behind it.
_REWORDED = re.compile(r"\.\d+$")


def followed(memory_id: str, places: Mapping[str, str], view: MemoryView) -> str | None:
    """The memory that the run sees in the place of another, perhaps itself; None when it sees none.

    `places` maps memories to those that took their place.
    """
    met: set[str] = set()
    at: str | None = memory_id
    while at is not None and at not in met:
        if view.sees(at):
            return at
        met.add(at)
        at = places.get(at)
    return None


def reworded(view: MemoryView, others: Iterable[str] = ()) -> dict[str, str]:
    """What people have put in the place of memories: of those that the run sees, and of `others`, by the older id."""
    waiting = [view.ids[position] for position in view.positions().tolist()]
    waiting += others
    found: dict[str, str] = {}
    while waiting:
        memory_id = waiting.pop()
        if _REWORDED.search(memory_id) and memory_id in view.memories:
            older = [i for i in view.memories[memory_id].parents if i not in found]
            found.update(dict.fromkeys(older, memory_id))
            waiting += older
    return found
