"""An episode played by given actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memrl_core.environments.base import Environment
from memrl_core.records import Reply, Task, Turn


def played(world: Environment, task: Task, actions: Sequence[str]) -> tuple[list[Turn], dict[str, Any]]:
    """The turns of an episode, and what the world said at its end."""
    world.reset(task, seed=0, at_step=1)
    turns: list[Turn] = []
    info: dict[str, Any] = {}
    for action in actions:
        assert not info, "the episode ended too early"
        observation, reward, terminated, truncated, info = world.step(action)
        turns.append(Turn(Reply(action), observation, reward, terminated, truncated))
    return turns, info
