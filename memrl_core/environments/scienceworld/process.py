"""The package scienceworld in a process of its own: it starts the engine, a Java program, and talks to it.

Questions are
{"do": "play", "task": …, "variation": …, "simplifications": …, "actions": [all since the beginning]}, answered by how
the world stands after them, or by {"wrong": a sentence} where the engine has no such task; and
{"do": "list", "split": "train" | "dev" | "test", "each": n}, answered by the first n variations of each type of task.

The Java program ends with this process: it is in the same group, and its standard input ends.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from typing import Any, NoReturn

from memrl_core.environments.child import serve

JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # The engine keeps things in sets by identity hash: their order, and the names that it makes of it, would change
    # from episode to episode. Where all hashes are equal they stand in the order in which they were made.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    # Measured: 0.5 GB instead of 1.9 GB of memory at the same speed.
    "-XX:+UseSerialGC",
    "-Xmx1g",
    "-XX:-UsePerfData",
)
NO_LIMIT = sys.maxsize
QUARTERS_BEFORE = {"train": 0, "dev": 2, "test": 3}


def java_folder() -> str:
    """Where the Java program lies that is used: in `JAVA_HOME`, else the first on the path; "" when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which("java", path=os.path.join(home, "bin")) if home else None) or shutil.which("java")
    return os.path.dirname(found) if found else ""


class World:
    """The engine's world, which is started at the first question."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._types: list[str] = []
        self._task: tuple[str, int, str] | None = None
        self._done: list[str] = []
        self._state: dict[str, Any] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """How the world stands, or the list that was asked for."""
        if self._engine is None:
            self._start()
        try:
            if question["do"] == "play":
                task = question["task"], question["variation"], question["simplifications"]
                return self._play(task, question["actions"])
            self._task = None
            return {"tasks": self._list(question["split"], question["each"])}
        except Exception as error:
            _give_up(f"the Java program ended or failed, {type(error).__name__}")

    def _start(self) -> None:
        os.environ["PATH"] = os.pathsep.join(filter(None, (java_folder(), os.environ.get("PATH"))))
        os.environ["JAVA_TOOL_OPTIONS"] = " ".join((*JAVA_OPTIONS, os.environ.get("JAVA_TOOL_OPTIONS", "")))
        try:
            self._engine = import_module("scienceworld").ScienceWorldEnv(envStepLimit=NO_LIMIT)
            self._types = self._engine.get_task_names()
        except Exception as error:
            _give_up(f"Java did not start the engine, {type(error).__name__}")
        # Never used here, and left behind by a process that is killed.
        self._engine._obj_tree_tempdir.cleanup()

    def _play(self, task: tuple[str, int, str], actions: list[str]) -> dict[str, Any]:
        """How the world stands after these actions, which go on from those done before or begin anew."""
        if not actions or task != self._task or self._done != actions[: len(self._done)]:
            if faults := self._faults(*task[:2]):
                return {"wrong": faults}
            self._engine.load(*task)
            _, info = self._engine.reset()
            self._task, self._done = task, []
            self._state = self._stands(f"{info['look']}\n{info['inv']}", info, ended=False)
        for action in actions[len(self._done) :]:
            response, _, ended, info = self._engine.step(action)
            self._state = self._stands(response, info, ended)
            self._done.append(action)
        return self._state

    def _faults(self, task: str, variation: int) -> str:
        if task not in self._types:
            return f"There is no type of task “{task[:80]}”. Known: {', '.join(self._types)}."
        variations = self._engine.get_max_variations(task)
        wrong = f"The type {task} has the variations 0 to {variations - 1}, and none with this number."
        return wrong if variation >= variations else ""

    def _stands(self, response: str, info: dict[str, Any], ended: bool) -> dict[str, Any]:
        goals = self._engine.get_goal_progress()
        return {"text": response, "score": info["score"], "ended": ended, "valid": info["valid"], "goals": goals}

    def _list(self, split: str, each: int) -> list[tuple[str, int, str]]:
        found = []
        for task in self._types:
            # A task has to be loaded before its splits can be asked for: best the one with which the split begins.
            loaded = self._engine.get_max_variations(task) // 4 * QUARTERS_BEFORE[split]
            self._engine.load(task, loaded)
            for variation in getattr(self._engine, f"get_variations_{split}")()[:each]:
                if variation != loaded:
                    self._engine.load(task, variation)
                    loaded = variation
                found.append((task, variation, self._engine.get_task_description()))
        return found


def _give_up(why: str) -> NoReturn:
    """End at once, with `why` as the last words: what the package does when it is collected would write below them."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    serve(World().answer)
