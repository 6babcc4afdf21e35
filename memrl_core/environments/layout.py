"""The usual layout of an episode as the text of an experience."""

from __future__ import annotations

from collections.abc import Sequence

from memrl_core.prompting import ANSWER_MARK, AVOID, CHOICE_MARK, STEPS_THAT_WORKED, TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Outcome, Turn

DONE = "Steps taken:"
LONGEST_REPLY = 2_000
LONGEST_ACTION = 200
NOT_DONE_IN_TIME = "it was not done in time."


def layout(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """What was done, under a heading that says how it ended; after a failure with the last that was observed.

    A reply that was stopped was never acted on: it stands only where somebody judged it.
    """
    acted = [turn.reply.text for turn in turns if outcome != "unrated" or not turn.reply.stopped]
    done = [line for text in acted for line in action_lines(text)]
    head = f"{TASK_LINE}{intent}\n"
    if outcome != "failure":
        return head + block(STEPS_THAT_WORKED if outcome == "success" else DONE, done)
    last = turns[-1].observation.strip().splitlines() if turns else []
    return f"{head}{WHAT_WENT_WRONG}{last[0] if last else NOT_DONE_IN_TIME}\n{block(AVOID, done)}"


def action_lines(reply: str) -> list[str]:
    """The lines of a reply that are not empty, without the marks of answers and choices."""
    bare = (line.strip().removeprefix(ANSWER_MARK).removeprefix(CHOICE_MARK) for line in reply.splitlines())
    return [line.strip() for line in bare if line.strip()]


def spoken(reply: str) -> str:
    """The action in a reply: its first line that is not empty, without marks, control characters and double spaces."""
    first = next(iter(action_lines(reply[:LONGEST_REPLY])), "")
    return " ".join("".join(c if c.isprintable() else " " for c in first).split()).rstrip(".")[:LONGEST_ACTION]


def block(title: str, lines: Sequence[str]) -> str:
    """A heading and, under it, lines marked as answers; each line ends with a line break."""
    return title + "\n" + "".join(f"{ANSWER_MARK}{line}\n" for line in lines)
