"""ScienceWorld's engine as this program sees it: it begins a task, does actions and lists tasks, in another process."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Sequence
from typing import Any

from memrl_core.environments.child import Child, ChildFailed, idle
from memrl_core.environments.scienceworld_child import java_folder
from memrl_core.errors import EnvironmentFailed, InputError

CHILD = "memrl_core.environments.scienceworld_child"
SECONDS_TO_START = 120.0
SECONDS_TO_ACT = 60.0
SECONDS_TO_LIST = 300.0

NO_PACKAGE = "The package scienceworld is not installed. Install it: pip install 'memrl-inspector[scienceworld]'."
NO_JAVA = (
    "ScienceWorld needs Java, and there is none here. Install it (on Debian: apt install default-jre-headless), or "
    "name its folder in JAVA_HOME."
)
SEE_JAVA = "see that `java -version` works, then try again."

Stands = dict[str, Any]
"""How a world stands: what it `said`, `score`, whether it `ended`, the `valid` actions, a report of its `goals`."""


def missing() -> str:
    """What this machine lacks to run the engine, as a sentence with its remedy; "" when nothing. It starts nothing."""
    if importlib.util.find_spec("scienceworld") is None:
        return NO_PACKAGE
    return "" if java_folder() else NO_JAVA


class Engine:
    """An engine from `begin` to `close`, playing one task at a time; the process is kept for whoever needs it next."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._begun: dict[str, Any] = {}
        self._done: list[str] = []

    def begin(self, task: str, variation: int, simplifications: str) -> Stands:
        """Load a task anew. Raises `InputError` with the engine's reason when it has none such, `EnvironmentFailed`."""
        if lacking := missing():
            raise EnvironmentFailed(lacking)
        if self._child is None:
            self._child = idle.borrow(CHILD)
            self._give_back = weakref.finalize(self, idle.give_back, self._child)
        self._begun = {"do": "begin", "task": task, "variation": variation, "simplifications": simplifications}
        self._done = []
        was_running = self._child.running
        try:
            stands = self._load()
        except ChildFailed as error:
            if was_running:  # Java may have ended while nobody used it.
                return self.begin(task, variation, simplifications)
            raise EnvironmentFailed(
                f"ScienceWorld could not be started: {error}. Nothing was started; {SEE_JAVA}"
            ) from None
        if "wrong" in stands:
            raise InputError(stands["wrong"])
        return stands

    def act(self, action: str) -> Stands:
        """Do an action. Raises `EnvironmentFailed` when the engine ended or takes too long.

        The same action can then be tried again: an engine is started anew and brought up to here.
        """
        assert self._child is not None
        try:
            if not self._child.running or self._child.started != self._life:
                self._load()
                for done in self._done:
                    self._ask(done)
            stands = self._ask(action)
        except ChildFailed as error:
            raise EnvironmentFailed(
                f"ScienceWorld stopped: {error}. The step is kept up to here; try again, and the engine is started "
                "anew and plays up to here."
            ) from None
        self._done.append(action)
        return stands

    def close(self) -> None:
        """Give the process back."""
        if self._child is not None:
            self._child = None
            self._give_back()

    def _load(self) -> Stands:
        assert self._child is not None
        stands = self._child.ask(self._begun, SECONDS_TO_START)
        self._life = self._child.started
        return stands

    def _ask(self, action: str) -> Stands:
        assert self._child is not None
        return self._child.ask({"do": "act", "action": action}, SECONDS_TO_ACT)


def listed(split: str, each: int) -> Sequence[tuple[str, int, str]]:
    """(type, variation, description) of the first `each` variations of every type in a split, sorted by type.

    Raises `EnvironmentFailed`.
    """
    if lacking := missing():
        raise EnvironmentFailed(lacking)
    child = idle.borrow(CHILD)
    try:
        answer = child.ask({"do": "list", "split": split, "each": each}, SECONDS_TO_LIST)
    except ChildFailed as error:
        raise EnvironmentFailed(
            f"ScienceWorld's tasks could not be listed: {error}. Nothing was kept; {SEE_JAVA}"
        ) from None
    finally:
        idle.give_back(child)
    return [(kind, variation, told) for kind, variation, told in answer["tasks"]]
