"""Environments as another package would offer them, under names that the program then knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest
from pydantic import Field

from memrl_core import environments
from memrl_core.environments.base import Environment, EnvironmentOptions, EnvironmentSpec
from memrl_core.errors import InputError
from memrl_core.records import Judgement, Task
from tests.policies.foreign import EntryPoint
from tests.policies.foreign import installed as offered

SWITCHES = ("left", "middle", "right")


class LampOptions(EnvironmentOptions):
    """One option."""

    presses: int = Field(3, ge=1, le=9, title="Presses", description="How often a switch may be pressed.")


class Lamp(Environment):
    """A lamp with three switches, one of which works."""

    name = "what it calls itself"
    spec = EnvironmentSpec("Lamp", "Find the switch of a lamp.", "By the world: 1 when the lamp is on.", "A test.")
    Options = LampOptions
    sets = ("lamp-train",)
    simulated_options: Mapping[str, Any] = {"presses": 2}
    instructions = "Answer with one of the lines offered."
    max_turns = 3

    def __init__(self, presses: int = 3) -> None:
        self.max_turns = presses

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        if "switch" not in task.data:
            raise InputError(f"Task {task.id[:80]} is about no lamp. Choose tasks of the lamp.")
        self.works, self.left = task.data["switch"], self.max_turns
        return self.offered("The lamp is off.")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        lit = action.strip() == f"press {self.works}"
        if not lit and self.left:
            return self.offered("It stays off."), 0.0, False, False, {}
        judgement = Judgement(str(self.works), action[:80], "The lamp is on." if lit else "The lamp stayed off.")
        info = {"verdict": "The lamp is on." if lit else "Still dark.", "success": lit, "judgement": judgement}
        return "", float(lit), lit, not lit, info

    def offered(self, reported: str) -> str:
        """What is said, and the switches."""
        return "\n".join([reported, "You can:", *(f"- press {switch}" for switch in SWITCHES)])

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        return [Task(f"lamp-{s}", f"light the {s} lamp", "some lamp", "lamp", {"switch": s}) for s in SWITCHES]


LEFT = Task("lamp-left", "light the left lamp", "lamp", "lamp", {"switch": "left"})


def installed(monkeypatch: pytest.MonkeyPatch, **found: Any) -> AbstractContextManager[Mapping[str, EntryPoint]]:
    """Within it, the environments of `found` are offered by other packages."""
    return offered(monkeypatch, environments.REGISTRY, **found)
