"""ScienceWorld: elementary science in a small text world; boil water, find a living thing, build a circuit, grow fruit.

Engine and tasks: ScienceWorld (Wang et al., arXiv 2203.07540), the package scienceworld, which needs Java. Run as a
program, this is the process that starts the engine, a Java program, and talks to it. The Java program ends with that
process: it is in the same group, and its standard input ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, Literal, NoReturn

from pydantic import Field

from memrl_core.environments.base import (
    EnvironmentSpec,
    StepResult,
    TurnsOptions,
    choices_listed,
    layout,
    script,
    spoken,
)
from memrl_core.environments.child import Child, ChildFailed, serve
from memrl_core.environments.games.engine import REFUSED, EngineWorld, turns_in_words
from memrl_core.environments.tasks import load_tasks, write_whole
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.records import Outcome, Task, Turn
from memrl_core.settings import home

SECONDS_TO_LIST = 300.0
NO_PACKAGE = "The package scienceworld is not installed. Install it: pip install 'memrl-inspector[scienceworld]'."
NO_JAVA = (
    "ScienceWorld needs Java, and there is none here. Install it (on Debian: apt install default-jre-headless), or "
    "name its folder in JAVA_HOME."
)
VARIATIONS_EACH = 3
"""Variations of each type of task in a set."""

SPLITS = {"scienceworld-train": "train", "scienceworld-dev": "dev", "scienceworld-test": "test"}

INSTRUCTIONS = (
    "You act in a small world with a kitchen, a workshop, a greenhouse and other rooms, and solve a task of elementary "
    "science. Each turn you see what happened and what you can do. Answer with one action on one line: one of those "
    "offered, without the dash, or another of their kind, such as “look around”, “open cupboard”, “pick up metal pot”, "
    "“move metal pot to stove”, “pour jug into flower pot 1”, “use thermometer on water”, “wait”. With “focus on …” "
    "you tell the game which thing the task is about: do it only where the task asks for it, because to focus on the "
    "wrong thing ends the game and takes all points. If memories of earlier tasks are given, use them."
)


class ScienceWorldOptions(TurnsOptions):
    """How long an episode lasts, how hard it is made, and how much is offered."""

    max_turns: int = Field(
        30,
        ge=1,
        le=200,
        title="Turns",
        description="Actions after which an episode ends, with the points made by then. Many tasks can be solved in "
        "30, some need 50 to 180.",
    )
    simplifications: Literal["none", "easy"] = Field(
        "easy",
        title="Simplifications",
        description="easy: the engine's own: doors stand open, one can teleport to any room, flower pots water "
        "themselves, and nothing can be wired up where the task does not need it. none: the world without these.",
    )
    most_offered: int = Field(
        150,
        ge=10,
        le=1000,
        title="Actions offered",
        description="Often a thousand actions are possible. At most so many are offered, from each verb alike, those "
        "that share words with the task first; what is left out can still be typed.",
    )


class ScienceWorld(EngineWorld):
    """ScienceWorld's tasks. The reward is the points made, of 100; lost points count as none."""

    name = "scienceworld"
    spec = EnvironmentSpec(
        title="ScienceWorld",
        idea="Thirty types of tasks of elementary science in a house with a workshop and a greenhouse: boil, melt, "
        "measure, mix, wire up, grow, find, compare. Each type has variations in substance, place and room.",
        judged="By the game: the share of its 100 points that was made, for the goal and for steps towards it. To "
        "focus on the wrong thing ends the game without any.",
        source="ScienceWorld (Wang et al., arXiv 2203.07540), its own engine and split into train, dev and test.",
        needs="the package scienceworld, and Java",
        answer_tokens=32,
    )
    Options = ScienceWorldOptions
    sets = tuple(SPLITS)
    instructions = INSTRUCTIONS
    child = "memrl_core.environments.games.scienceworld"
    remedy = "see that `java -version` works, then "

    def __init__(
        self, max_turns: int = 30, simplifications: Literal["none", "easy"] = "easy", most_offered: int = 150
    ) -> None:
        super().__init__(max_turns)
        self.simplifications = simplifications
        self.most_offered = most_offered
        self._intent = ""

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`; the engine is started where none is running. There is no luck in it.

        Raises `InputError` when the engine has no such task, and `EnvironmentFailed`.
        """
        self._ended = True
        self._intent = task.intent
        if faults := _ill_formed(task) or self._begin(task):
            raise InputError(f"Task {task.id[:80]} is none of ScienceWorld's: {' '.join(faults)} Nothing was started.")
        self._ended = False
        return self._described(plain(self._answer["text"]), 0)

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The actions that led to points, and what lost them all; from the texts alone."""
        return experience(task.intent, turns, outcome)

    @classmethod
    def missing(cls) -> str:
        """What this machine lacks to run it, as a sentence with its remedy; "" when nothing."""
        if importlib.util.find_spec("scienceworld") is None:
            return NO_PACKAGE
        return "" if java_folder() else NO_JAVA

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        """The first three variations of every type in one of the engine's splits; types take turns.

        Listing them takes the engine some seconds, once. Raises `InputError` for another name, `EnvironmentFailed`.
        """
        if name not in SPLITS:
            return super().make_tasks(name)
        if cls.missing() == NO_PACKAGE:  # Its version names the file in which they are kept.
            raise EnvironmentFailed(NO_PACKAGE)
        kept = home() / "cache" / f"{name}-{version('scienceworld')}.jsonl"
        with suppress(InputError):  # Not there yet, or damaged.
            return load_tasks(kept)
        if lacking := cls.missing():
            raise EnvironmentFailed(lacking)
        with closing(Child(cls.child)) as child:
            try:
                answer = child.ask({"do": "list", "split": SPLITS[name], "each": VARIATIONS_EACH}, SECONDS_TO_LIST)
            except ChildFailed as error:
                raise EnvironmentFailed(
                    f"ScienceWorld's tasks could not be listed: {error}. Nothing was kept; {cls.remedy}try again."
                ) from None
        types = [list(of_type) for _, of_type in groupby(answer["tasks"], key=itemgetter(0))]
        tasks = [_task(*one) for nth in zip_longest(*types) for one in nth if one is not None]
        with suppress(OSError):  # Without a file they are listed again next time.
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, "".join(json.dumps(asdict(task)) + "\n" for task in tasks).encode())
        return tasks

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each; the engine is asked whether it has such a task."""
        with closing(cls(simplifications="none")) as world:
            try:
                return _ill_formed(task) or world._begin(task)
            except EnvironmentFailed as error:
                return [str(error)]

    def _begin(self, task: Task) -> list[str]:
        """Begin a game; gives what is wrong with the task. Raises `EnvironmentFailed`."""
        if lacking := self.missing():
            raise EnvironmentFailed(lacking)
        self._start({**task.data, "simplifications": "easy" if self.simplifications == "easy" else ""})
        return [self._answer["wrong"]] if "wrong" in self._answer else []

    @property
    def _over(self) -> bool:
        return bool(self._answer["ended"]) or self._points >= ALL_POINTS

    def _command(self, typed: str) -> str:
        return typed

    def _response(self, command: str) -> str:
        return answered(command, self._answer["text"])

    def _described(self, response: str, gained: int) -> str:
        valid = self._answer["offered"]
        offered = choices(valid, self._intent, self.most_offered)
        left = turns_in_words(self.max_turns - len(self._actions))
        lines = [f"{response}\n{score_line(self._points, gained)} {left} left."]
        if more := len(set(valid)) - len(offered):
            lines.append(f"Possible too, and left out of the list: {more}. They can be typed.")
        return "\n".join([*lines, *([choices_listed(offered)] if offered else [])])

    def _end(self, response: str, gained: int) -> StepResult:
        points, turns = self._points, turns_in_words(self._turns)
        goals = why = plain(self._answer["goals"])
        made, solved = f"{points} of {ALL_POINTS} points", points >= ALL_POINTS
        if solved:
            verdict, last = f"Solved: {made} in {turns}.", ""
        elif self._answer["score"] < 0:
            did = culprit(self._actions)[:80]
            verdict = f"Failed: “{did}” ended the game after {turns} and took all points."
            why, last = f"“{did}” was a wrong choice, which ends the game.\n{goals}", f"\n{TAKEN_AWAY}"
        else:
            verdict = f"Failed: {made} after {turns}."
            last = "\nThe game ends here." if self._over else "\nThe turns have run out."
        seen = f"{response}\n{score_line(points, gained)}{last}"
        expected = f"{ALL_POINTS} points.\n{goals}"
        return self._judged(seen, verdict, solved, points / ALL_POINTS, expected, why, truncated=not self._over)


def java_folder() -> str:
    """Where the Java program lies that is used: in `JAVA_HOME`, else the first on the path; "" when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which("java", path=os.path.join(home, "bin")) if home else None) or shutil.which("java")
    return os.path.dirname(found) if found else ""


def _ill_formed(task: Task) -> list[str]:
    """What is wrong with the data of a task, as far as can be seen without the engine."""
    faults = []
    kind, variation = task.data.get("task"), task.data.get("variation")
    if not isinstance(kind, str):
        faults.append("task is a text: the type, such as boil.")
    if type(variation) is not int or variation < 0:
        faults.append("variation is a whole number from 0.")
    return faults + [f"The key “{key[:80]}” is not known." for key in task.data if key not in ("task", "variation")]


def _task(kind: str, variation: int, description: str) -> Task:
    data = {"task": kind, "variation": variation}
    return Task(f"scienceworld-{kind}-{variation}", " ".join(description.split()), "scienceworld", kind, data)


ALL_POINTS = 100
LONGEST_SEEN = 8_000
SHORTEST_WORD = 3
EMPTY_WORDS = frozenset({"the", "task", "your"})
"""These, and shorter words of an intent, say nothing of what a task is about."""

TAKEN_AWAY = "The game ends here and takes all points away."

_NOT_KNOWN = ("No known action matches", "Unknown action.")
_WHICH = "Ambiguous request:"
_WITHOUT_EFFECT = ("'m not sure how to", "'s not clear how to", " already ", " can't ", "There is only one thing")
"""The engine's own words, these and those of the two lines above."""

_ONLY_LOOKS = ("look", "examine", "read", "inventory", "task")
_WORD = re.compile(r"\w+")
_POINTS = re.compile(r"^Score: (\d+) of 100(?: \(([+-]\d+)\))?", re.MULTILINE)


def answered(action: str, response: str) -> str:
    """What the engine said to an action, as the model reads it."""
    if response.startswith(_NOT_KNOWN):
        return f"{REFUSED}{action[:80]}” here: there is no such action, or no such thing."
    return plain(response)


def plain(response: str) -> str:
    """What the engine said, without tabs, empty lines and excessive length."""
    lines = (line.rstrip().replace("\t", "  ") for line in response.splitlines())
    return "\n".join(line for line in lines if line)[:LONGEST_SEEN]


def score_line(points: int, gained: int) -> str:
    """The score so far, and what the last action changed in it."""
    return f"Score: {points} of {ALL_POINTS}" + (f" ({gained:+d})" if gained else "") + "."


def choices(valid: Sequence[str], intent: str, most: int) -> list[str]:
    """At most `most` of the valid actions: those that share most words with the task first, then in alphabetic order.

    Where some have to be left out, each verb gives as many as the others as long as it has any: on the engine's own
    solutions this keeps 85 of 100 steps among 150 offered, the first 150 in this order only 32 to 53.
    """
    wanted = {word for word in _WORD.findall(intent.lower()) if len(word) >= SHORTEST_WORD} - EMPTY_WORDS
    ordered = sorted(set(valid), key=lambda action: (-len(wanted.intersection(_WORD.findall(action.lower()))), action))
    given: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for index, action in enumerate(ordered):
        verb = action.partition(" ")[0]
        turns.append((given[verb], index))
        given[verb] += 1
    return [ordered[index] for index in sorted(index for _, index in sorted(turns)[:most])]


# --- memories ---------------------------------------------------------------------------------------------------------


def experience(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """An episode as the text of a memory: the actions that changed something, up to the last that gained points.

    After a failure they are what to try instead, and the action that lost all points is what to avoid.
    """
    done = [(spoken(turn.reply.text), turn.observation) for turn in turns]
    points = next((_points(observed)[0] for _, observed in reversed(done) if _POINTS.search(observed)), 0)
    wrong, avoid = f"{points} of {ALL_POINTS} points after {turns_in_words(len(turns))}.", []
    if done and TAKEN_AWAY in done[-1][1]:
        lost = culprit([action for action, _ in done])
        wrong, avoid = f"“{lost}” ended the game and took all points.", [lost]
        done = done[: -2 if done[-1][0] != lost else -1]
    changed = _that_changed(done)
    last_gain = max((index for index, (_, observed) in enumerate(done) if _points(observed)[1] > 0), default=-1)
    kept = [done[index][0] for index in changed if index <= last_gain]
    tried = list(dict.fromkeys(done[index][0] for index in changed))
    if points >= ALL_POINTS:
        wrong, avoid = "", []
    if (outcome == "failure" and not wrong) or (outcome != "failure" and not changed):
        return layout(intent, turns, outcome)  # A person may judge otherwise than the game.
    return script(intent, outcome, kept, wrong=wrong, avoid=avoid, tried=tried)


def culprit(actions: Sequence[str]) -> str:
    """The last action; the one before it where the last is the number of one of its meanings."""
    return actions[-2] if actions[-1].isdecimal() and len(actions) > 1 else actions[-1]


def _points(observation: str) -> tuple[int, int]:
    """The points after a turn, and how many it gained."""
    found = _POINTS.findall(observation)
    return (int(found[-1][0]), int(found[-1][1] or 0)) if found else (0, 0)


def _that_changed(done: Sequence[tuple[str, str]]) -> list[int]:
    """The places of the actions that gained points, or may have changed something."""
    indices = []
    for index, (action, observed) in enumerate(done):
        first = observed.partition("\n")[0]
        if first.startswith(_WHICH):
            following = done[index + 1 : index + 2]
            idle = not any(number.isdecimal() and not response.startswith(REFUSED) for number, response in following)
        else:
            looks = action.partition(" ")[0].lower() in _ONLY_LOOKS
            idle = looks or first.startswith(REFUSED) or any(words in first for words in _WITHOUT_EFFECT)
        if action and (not idle or _points(observed)[1] > 0):
            indices.append(index)
    return indices


# --- in the process of its own ----------------------------------------------------------------------------------------

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


class World:
    """The engine's world, which is started at the first question.

    Questions are {"do": "play", "task": …, "variation": …, "simplifications": …, "actions": [all since the beginning]},
    answered by how the world stands after them, or by {"wrong": a sentence} where the engine has no such task; and
    {"do": "list", "split": "train" | "dev" | "test", "each": n}, answered by the first n variations of each type.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        self._types: list[str] = []
        self._task: tuple[str, int, str] | None = None
        self._done: list[str] = []
        self._state: dict[str, Any] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """How the world stands, or the tasks that were to be listed."""
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
        return {"text": response, "score": info["score"], "ended": ended, "offered": info["valid"], "goals": goals}

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
