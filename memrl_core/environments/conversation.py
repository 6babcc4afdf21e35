"""Free text: the agent answers what it is asked, and a person says how good the answer was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memrl_core.environments.base import Environment, EnvironmentSpec
from memrl_core.prompting import ANSWER_MARK, AVOID, STEPS_THAT_WORKED, TASK_LINE, WHAT_WENT_WRONG
from memrl_core.records import Outcome, RewardSource, Task, Turn

ANSWER = "The answer:"
JUDGED_BY_A_PERSON = "A person judges this answer."


class Conversation(Environment):
    """One question, one answer, no verdict of its own."""

    name = "conversation"
    spec = EnvironmentSpec(
        title="Conversation",
        idea="A person asks, the agent answers in free text, once.",
        judged="By a person: until somebody gives a reward, no q moves.",
        source="What you type, or a short list of questions written for this program.",
    )
    sets = ("conversation",)
    reward_source: RewardSource = "person"
    instructions = (
        "You answer what a person asks, briefly. If memories of earlier answers are given, keep to what was judged "
        "well and away from what was judged badly."
    )
    max_turns = 1

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """There is nothing to observe but the task itself."""
        return "Answer in your own words."

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The answer ends the episode."""
        return "", 0.0, True, False, {"verdict": JUDGED_BY_A_PERSON, "success": None}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The task and the answer, under a heading that says how it was judged."""
        answer = "\n".join(ANSWER_MARK + line for turn in turns for line in turn.reply.text.strip().splitlines())
        head = f"{TASK_LINE}{task.intent}\n"
        if outcome == "failure":
            return f"{head}{WHAT_WENT_WRONG}a person judged this answer badly.\n{AVOID}\n{answer}"
        return f"{head}{STEPS_THAT_WORKED if outcome == 'success' else ANSWER}\n{answer}"
