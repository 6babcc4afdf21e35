"""What MemP keeps as words: scripts of episodes, their rewording after a failure, and the facts of a task.

Source: arXiv 2508.06433 and its released code (build `direct` and `round`, `adjust_memory`, `ave_fact`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.policies.base import NewExperience, Question
from memrl_core.prompting import ANSWER_MARK, AVOID, STEPS_THAT_WORKED, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import Memory, Turn

EVENTS, ADJUSTED, FACTS = "events that mattered", "adjusted memory", "facts"
MOST_FACTS = 12
EVENTS_REQUEST = (
    "You are given a task and the numbered events of an episode: what was done, and what came of it. Name the events "
    "that mattered for the task: those that worked and brought it forward. Answer with their numbers in order."
)
ADJUST_REQUEST = (
    "A memory was followed in a task that then failed. Read the memory, the task and what was done. Write the memory "
    "anew so that it guides better: in one sentence what went wrong, then the actions to avoid, then the steps to take "
    "instead, each as a short line."
)
FACTS_REQUEST = (
    "Take the facts out of a task. Give each a short value under a key; use the keys action, object, condition, place "
    "and amount where they fit, so that tasks alike have the same keys."
)
OWN_WORDS = "\n\nIn the words of "
SECTIONS = (STEPS_THAT_WORKED, AVOID, TRY_INSTEAD)
_WORD = re.compile(r"\w+")
_EMPTY = re.compile("an?|and|as|at|by|for|from|in|into|is|it|of|on|or|some|that|the|then|this|to|with")


class Kept(BaseModel):
    """The events that make a script, by their numbers from 1."""

    events: list[int]


class Adjusted(BaseModel):
    """A memory written anew after a failure."""

    what_went_wrong: str
    avoid: list[str]
    try_instead: list[str]


class Facts(BaseModel):
    """What a task is about, by key."""

    facts: dict[str, str] = Field(max_length=MOST_FACTS)


# --- scripts ----------------------------------------------------------------------------------------------------------


def events_question(new: NewExperience) -> Question[Kept] | None:
    """Which turns of an episode that did not fail make its script; None where there is nothing to choose from."""
    turns = _turns_of(new)
    if new.outcome == "failure" or len(turns) < 2:
        return None
    worked = _sections(new.experience)[STEPS_THAT_WORKED]
    mattered = [number for number, turn in enumerate(turns, start=1) if set(_lines(turn)) & set(worked)]
    told = [f"{number}. {' / '.join(_lines(turn))} → {_outcome(turn)}" for number, turn in enumerate(turns, start=1)]
    text = f"{TASK_LINE}{new.intent}\n\n" + "\n".join(told)
    return Question(EVENTS, Kept, EVENTS_REQUEST, text, Kept(events=mattered))


def script_of(new: NewExperience, kept: Kept | None) -> str:
    """The chosen turns as an experience; the episode as it was laid out where no turn was chosen."""
    turns = _turns_of(new)
    numbers = sorted({number for number in kept.events if 1 <= number <= len(turns)}) if kept else []
    lines = [line for number in numbers for line in _lines(turns[number - 1])]
    return f"{TASK_LINE}{new.intent}\n{_block(STEPS_THAT_WORKED, lines)}" if lines else new.experience


def adjust_question(old: Memory, new: NewExperience) -> Question[Adjusted]:
    """How the memory that was followed shall read after a failure.

    The template takes what the environment lays out; it gives steps to take instead only where the memory's own steps
    went wrong: where it is about the same intent, or has a line to avoid in it, up to one word.
    """
    verdict = new.trace.reward.verdict if new.trace.reward is not None else ""
    told = (
        f"The memory:\n{old.experience.strip()}\n\nThe task in which it failed, and what was done:\n"
        f"{new.experience.strip()}\n\nHow it ended: {verdict}"
    )
    found = _sections(new.experience)
    wrong = next((line for line in new.experience.splitlines() if line.startswith(WHAT_WENT_WRONG)), "")
    own = [line for title in (STEPS_THAT_WORKED, TRY_INSTEAD) for line in _sections(old.experience)[title]]
    is_to_blame = old.intent == new.intent or any(_alike(line, bad) for line in own for bad in found[AVOID])
    template = Adjusted(
        what_went_wrong=wrong.removeprefix(WHAT_WENT_WRONG) or verdict,
        avoid=found[AVOID],
        try_instead=found[TRY_INSTEAD] if is_to_blame else [],
    )
    return Question(ADJUSTED, Adjusted, ADJUST_REQUEST, told, template)


def reworded_experience(old: Memory, intent: str, adjusted: Adjusted) -> str:
    """The memory's new text: about the task `intent` in which it failed, whose words its lines are in.

    Without steps to take instead the old text stays, with what went wrong below it.
    """
    wrong = f"{WHAT_WENT_WRONG}{_line(adjusted.what_went_wrong)}\n"
    if instead := _block(TRY_INSTEAD, adjusted.try_instead):
        return f"{TASK_LINE}{intent}\n{wrong}{_block(AVOID, adjusted.avoid)}{instead}"
    kept = [line for line in old.experience.rstrip().splitlines() if not line.startswith(WHAT_WENT_WRONG)]
    return "\n".join([*kept, wrong])


def _turns_of(new: NewExperience) -> tuple[Turn, ...]:
    return new.trace.generate.turns if new.trace.generate is not None else ()


def _lines(turn: Turn) -> list[str]:
    return [line for line in map(_line, turn.reply.text.splitlines()) if line]


def _outcome(turn: Turn) -> str:
    return next((line.strip() for line in turn.observation.splitlines() if line.strip()), "the end")


def _sections(experience: str) -> Mapping[str, list[str]]:
    """The lines under each heading of an episode's layout, without the words that a model added below it."""
    found: dict[str, list[str]] = {title: [] for title in SECTIONS}
    current: list[str] = []
    for line in experience.partition(OWN_WORDS)[0].splitlines():
        if line.startswith(ANSWER_MARK):
            current.append(_line(line))
        elif line.strip():
            current = found.get(line.strip(), [])
    return found


def _alike(one: str, other: str) -> bool:
    """Whether two lines are the same up to one word."""
    words, others = one.lower().split(), other.lower().split()
    return len(words) == len(others) and sum(a != b for a, b in zip(words, others, strict=True)) <= 1


def _block(title: str, lines: Sequence[str]) -> str:
    kept = [line for line in map(_line, lines) if line]
    return f"{title}\n" + "".join(f"{ANSWER_MARK}{line}\n" for line in kept) if kept else ""


def _line(text: str) -> str:
    return " ".join(text.split()).removeprefix(ANSWER_MARK.strip()).strip()


# --- facts ------------------------------------------------------------------------------------------------------------


def content_words(intent: str) -> dict[str, str]:
    """The facts of a task by the template: its words but the empty ones, each under its place."""
    words = [word for word in _WORD.findall(intent.lower()) if not _EMPTY.fullmatch(word)][:MOST_FACTS]
    return {f"word {place}": word for place, word in enumerate(words, start=1)}


def facts_question(intent: str) -> Question[Facts]:
    """What a task is about."""
    return Question(FACTS, Facts, FACTS_REQUEST, f"{TASK_LINE}{intent}", Facts(facts=content_words(intent)))


def usable_facts(found: object) -> dict[str, str]:
    """The facts of a form that was filled in, those without a letter or digit left out; empty for anything else."""
    facts = found.get("facts") if isinstance(found, Mapping) else None
    if not isinstance(facts, Mapping):
        return {}
    return {str(key): str(value) for key, value in facts.items() if any(c.isalnum() for c in str(value))}


def shared_facts_similarity(one: Mapping[str, str], other: Mapping[str, str]) -> float | None:
    """The mean cosine of the values under the keys that both have; None when they share no key."""
    shared = sorted(one.keys() & other.keys())
    return fmean(float(_embedded(one[key]) @ _embedded(other[key])) for key in shared) if shared else None


@lru_cache(maxsize=4096)
def _embedded(value: str) -> npt.NDArray[np.float64]:
    vector: npt.NDArray[np.float64] = HashingEmbedder().embed([value])[0].astype(np.float64)
    return vector
