"""What the agent needs of an environment: Gymnasium's reset and step, in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from memrl_core.records import Outcome, RewardSource, Task, Turn


class Environment(Protocol):
    """Gives observations and rewards for tasks.

    `name` is its registry name, `reward_source` says who judges an answer, `instructions` is the system message
    that tells a model how to act in it, `max_turns` the number of actions after which an episode is truncated.
    """

    name: str
    reward_source: RewardSource
    instructions: str
    max_turns: int

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`; returns the first observation, as the model will read it.

        The same seed gives the same world and the same luck. `at_step` is the number of the step in its run, for worlds
        that change in the course of a run.
        """
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do `action`: (observation, reward, terminated, truncated, info).

        `reward` is the environment's own verdict between 0 and 1 (the agent maps it to r− … r+).
        At the end `info` holds `verdict` (a sentence: what was expected, what came) and `success` (bool).
        """
        ...

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """Lay the episode out as the text of an experience: a script for a success, a reflection for a failure."""
        ...
