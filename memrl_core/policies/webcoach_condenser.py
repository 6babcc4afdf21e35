"""Condensed episodes: what WebCoach keeps of an episode, and how that stands in a prompt (arXiv 2511.12997)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from memrl_core.policies.base import NewExperience, Question
from memrl_core.prompting import ANSWER_MARK, AVOID, STEPS_THAT_WORKED, TASK_LINE, TRY_INSTEAD, WHAT_WENT_WRONG
from memrl_core.records import Memory

CONDENSE = "condensed episode"
REQUEST = (
    "You condense the finished episode of an agent for a coach who reads it before similar tasks. Fill in the form. "
    "summary: three to five sentences on what was to be done, what was done and how it ended. success_workflows: the "
    "ways that worked, each with a short name and its steps. fail_modes: the patterns that failed, each with the "
    "actions to avoid and what to do instead. Leave a list empty where there is nothing to say."
)
KEPT = 2
"""Fail modes and workflows of an episode that stand in a prompt."""
SECTIONS = (STEPS_THAT_WORKED, AVOID, TRY_INSTEAD)
LONGEST_QUOTE = 300


class Workflow(BaseModel):
    """A way that worked."""

    name: str
    steps: list[str]


class FailMode(BaseModel):
    """A pattern that failed."""

    pattern: str
    avoid: list[str]
    instead: list[str]


class Condensed(BaseModel):
    """An episode as the condenser tells it."""

    summary: str
    fail_modes: list[FailMode]
    success_workflows: list[Workflow]


def condenser_question(new: NewExperience) -> Question[Condensed]:
    """What the condenser is asked about a finished episode; without a language model it is cut to its lines."""
    reward = new.trace.reward
    ended = f"{new.outcome}. {reward.verdict if reward is not None else ''}".strip()
    told = f"{new.experience.strip()}\n\nHow it ended: {ended}"
    return Question(CONDENSE, Condensed, REQUEST, told, _cut_to_lines(new, ended))


def laid_out(intent: str, condensed: Condensed) -> str:
    """A condensed episode as the text of an experience: summary, the first workflows, the first fail modes."""
    text = f"{TASK_LINE}{intent}\nSummary: {_line(condensed.summary)}\n"
    for workflow in condensed.success_workflows[:KEPT]:
        text += _block(STEPS_THAT_WORKED, workflow.steps)
    for mode in condensed.fail_modes[:KEPT]:
        text += f"{WHAT_WENT_WRONG}{_line(mode.pattern)}\n" + _block(AVOID, mode.avoid)
        text += _block(TRY_INSTEAD, mode.instead)
    return text


def quoted(memory: Memory) -> str:
    """The lines of a memory that say what to do or to avoid; its beginning where it has none."""
    told = memory.experience.strip().splitlines()
    if not any(line.startswith(ANSWER_MARK) for line in told):
        return memory.experience.strip()[:LONGEST_QUOTE]
    return "\n".join(line for line in told if line in SECTIONS or line.startswith((TASK_LINE, ANSWER_MARK)))


def _cut_to_lines(new: NewExperience, ended: str) -> Condensed:
    lines = _lines_of(new.experience)
    wrong = next((line for line in new.experience.splitlines() if line.startswith(WHAT_WENT_WRONG)), "")
    worked, avoid, instead = (lines[title] for title in SECTIONS)
    failed = bool(wrong or avoid or instead)
    return Condensed(
        summary=f"It ended as a {ended}",
        fail_modes=[FailMode(pattern=wrong.removeprefix(WHAT_WENT_WRONG), avoid=avoid, instead=instead)]
        if failed
        else [],
        success_workflows=[Workflow(name=new.intent, steps=worked)] if worked else [],
    )


def _lines_of(experience: str) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {title: [] for title in SECTIONS}
    current: list[str] = []
    for line in experience.splitlines():
        if line.startswith(ANSWER_MARK):
            current.append(line.removeprefix(ANSWER_MARK))
        elif line.strip():
            current = found.get(line.strip(), [])
    return found


def _block(title: str, lines: Sequence[str]) -> str:
    kept = [_line(line) for line in lines if line.strip()]
    return f"{title}\n" + "".join(f"{ANSWER_MARK}{line}\n" for line in kept) if kept else ""


def _line(text: str) -> str:
    return " ".join(text.split()).removeprefix(ANSWER_MARK)
