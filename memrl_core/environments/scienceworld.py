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

from memrl_core.environments.base import DONE, Environment, EnvironmentOptions, EnvironmentSpec, block, layout, spoken
from memrl_core.environments.child import Borrowed, ChildFailed, serve
from memrl_core.environments.tasks import load_tasks
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.prompting import (
    ANSWER_MARK,
    AVOID,
    CHOICE_MARK,
    CHOICES,
    STEPS_THAT_WORKED,
    TASK_LINE,
    TRY_INSTEAD,
    WHAT_WENT_WRONG,
)
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn
from memrl_core.settings import home

CHILD = "memrl_core.environments.scienceworld"
SECONDS_TO_START = 120.0
SECONDS_TO_ACT = 60.0
SECONDS_TO_LIST = 300.0

NO_PACKAGE = "The package scienceworld is not installed. Install it: pip install 'memrl-inspector[scienceworld]'."
NO_JAVA = (
    "ScienceWorld needs Java, and there is none here. Install it (on Debian: apt install default-jre-headless), or "
    "name its folder in JAVA_HOME."
)
SEE_JAVA = "see that `java -version` works, then try again."

VARIATIONS_EACH = 3
"""Variations of each type of task in a set."""

LONGEST_TEXT = 4_000
SPLITS = {"scienceworld-train": "train", "scienceworld-dev": "dev", "scienceworld-test": "test"}

INSTRUCTIONS = (
    "You act in a small world with a kitchen, a workshop, a greenhouse and other rooms, and solve a task of elementary "
    "science. Each turn you see what happened and what you can do. Answer with one action on one line: one of those "
    "offered, without the dash, or another of their kind, such as “look around”, “open cupboard”, “pick up metal pot”, "
    "“move metal pot to stove”, “pour jug into flower pot 1”, “use thermometer on water”, “wait”. With “focus on …” "
    "you tell the game which thing the task is about: do it only where the task asks for it, because to focus on the "
    "wrong thing ends the game and takes all points. If memories of earlier tasks are given, use them."
)

StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class ScienceWorldOptions(EnvironmentOptions):
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


class ScienceWorld(Environment):
    """ScienceWorld's tasks. A reward comes once, at the end: the points made, of 100; lost points count as none.

    Earlier turns give 0 although the game counts its points as they are made, because what learns from single turns
    adds the rewards of an episode up, and the last one holds them all.
    """

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
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS

    def __init__(
        self, max_turns: int = 30, simplifications: Literal["none", "easy"] = "easy", most_offered: int = 150
    ) -> None:
        self.max_turns = max_turns
        self.simplifications = simplifications
        self.most_offered = most_offered
        self._child = Borrowed(CHILD)
        self._ended = True

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`; the engine is started where none is running. There is no luck in it.

        Raises `InputError` when the engine has no such task, and `EnvironmentFailed`.
        """
        self._ended = True
        self._intent = task.intent
        self._actions: list[str] = []
        self._came: list[str] = []
        self._stands: dict[str, Any] = {}
        try:
            if response := _ill_formed(task):
                raise InputError(" ".join(response))
            self._stands = self._begin(task)
        except InputError as error:
            raise InputError(f"Task {task.id[:80]} is none of ScienceWorld's: {error} Nothing was started.") from None
        self._ended = False
        return self._described(f"{plain(self._stands['text'])}\n{score_line(self._points, 0)}")

    def step(self, action: str) -> StepResult:
        """Do one action, offered or not. What the engine does not know costs a turn.

        After `EnvironmentFailed` the same action can be tried again: the engine is then started anew and the task
        played up to here.
        """
        if self._ended:
            raise InputError("This episode has ended. Begin the next task.")
        typed, before = spoken(action), self._points
        try:
            self._stands = self._play([*self._actions, typed])
        except ChildFailed as error:
            raise EnvironmentFailed(
                f"ScienceWorld stopped: {error}. The step is kept up to here; try again, and the engine is started "
                "anew and plays up to here."
            ) from None
        self._actions.append(typed)
        response = answered(typed, self._stands["text"])
        gained = self._points - before
        note = f" ({gained:+d})" if gained else " (refused)" if response.startswith(REFUSED) else ""
        self._came.append(f"{ANSWER_MARK}{typed[:80]}{note}")
        seen = f"{response}\n{score_line(self._points, gained)}"
        if self._stands["ended"] or self._points >= ALL_POINTS or len(self._actions) >= self.max_turns:
            return self._end(seen)
        return self._described(seen), 0.0, False, False, {}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The actions that led to points, and what lost them all; from the texts alone."""
        return experience(task.intent, turns, outcome)

    def close(self) -> None:
        """Give the engine to whoever needs one next; the environment can be reset again."""
        self._ended = True
        self._child.close()

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
        with closing(Borrowed(CHILD)) as child:
            try:
                answer = child.ask({"do": "list", "split": SPLITS[name], "each": VARIATIONS_EACH}, SECONDS_TO_LIST)
            except ChildFailed as error:
                raise EnvironmentFailed(
                    f"ScienceWorld's tasks could not be listed: {error}. Nothing was kept; {SEE_JAVA}"
                ) from None
        types = [list(of_type) for _, of_type in groupby(answer["tasks"], key=itemgetter(0))]
        tasks = [_task(*one) for nth in zip_longest(*types) for one in nth if one is not None]
        with suppress(OSError):  # Without a file they are listed again next time.
            kept.parent.mkdir(parents=True, exist_ok=True)
            draft = kept.with_suffix(f".{os.getpid()}")
            draft.write_text("".join(json.dumps(asdict(task)) + "\n" for task in tasks), encoding="utf-8")
            draft.replace(kept)
        return tasks

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with a task, a sentence each; the engine is asked whether it has such a task."""
        if response := _ill_formed(task):
            return response
        with closing(cls(simplifications="none")) as world:
            try:
                world._begin(task)
            except (InputError, EnvironmentFailed) as error:
                return [str(error)]
        return []

    def _begin(self, task: Task) -> dict[str, Any]:
        """How a task stands at its beginning. Raises `InputError` when there is none such, and `EnvironmentFailed`."""
        if lacking := self.missing():
            raise EnvironmentFailed(lacking)
        easy = "easy" if self.simplifications == "easy" else ""
        self._game = {
            "do": "play",
            "task": task.data["task"],
            "variation": task.data["variation"],
            "simplifications": easy,
        }
        was_running = self._child.running
        try:
            stands = self._play([])
        except ChildFailed as error:
            if was_running:  # Java may have ended while nobody used it.
                return self._begin(task)
            raise EnvironmentFailed(
                f"ScienceWorld could not be started: {error}. Nothing was started; {SEE_JAVA}"
            ) from None
        if "wrong" in stands:
            raise InputError(stands["wrong"])
        return stands

    def _play(self, actions: list[str]) -> dict[str, Any]:
        """How the world stands after all these actions; a new process plays up to there. Raises `ChildFailed`."""
        within = SECONDS_TO_ACT if actions and self._child.running else SECONDS_TO_START
        return self._child.ask({**self._game, "actions": actions}, within)

    @property
    def _points(self) -> int:
        return max(0, int(self._stands["score"]))

    def _described(self, seen: str) -> str:
        valid = self._stands["valid"]
        offered = choices(valid, self._intent, self.most_offered)
        lines = [f"{seen} {_turns(self.max_turns - len(self._actions))} left."]
        if more := len(set(valid)) - len(offered):
            lines.append(f"Possible too, and left out of the list: {more}. They can be typed.")
        return "\n".join([*lines, *([CHOICES] if offered else []), *(CHOICE_MARK + one for one in offered)])

    def _end(self, seen: str) -> StepResult:
        self._ended = True
        points, turns = self._points, _turns(len(self._actions))
        goals = why = plain(self._stands["goals"])
        solved, lost = points >= ALL_POINTS, self._stands["score"] < 0
        made, over = f"{points} of {ALL_POINTS} points", solved or bool(self._stands["ended"])
        if solved:
            verdict = f"Solved: {made} in {turns}."
        elif lost:
            did = culprit(self._actions)[:80]
            verdict = f"Failed: “{did}” ended the game after {turns} and took all points."
            why = f"“{did}” was a wrong choice, which ends the game.\n{goals}"
            seen += f"\n{TAKEN_AWAY}"
        else:
            verdict = f"Failed: {made} after {turns}."
            seen += "\nThe game ends here." if over else "\nThe turns have run out."
        came = "\n".join((f"{made}.", *self._came))
        judgement = Judgement(*(text[:LONGEST_TEXT] for text in (f"{ALL_POINTS} points.\n{goals}", came, why)))
        info = {"verdict": verdict, "success": solved, "judgement": judgement}
        return seen, points / ALL_POINTS, over, not over, info


def java_folder() -> str:
    """Where the Java program lies that is used: in `JAVA_HOME`, else the first on the path; "" when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which("java", path=os.path.join(home, "bin")) if home else None) or shutil.which("java")
    return os.path.dirname(found) if found else ""


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _ill_formed(task: Task) -> list[str]:
    """What is wrong with the data of a task, as far as can be seen without the engine."""
    response = []
    kind, variation = task.data.get("task"), task.data.get("variation")
    if not isinstance(kind, str):
        response.append("task is a text: the type, such as boil.")
    if not isinstance(variation, int) or isinstance(variation, bool) or variation < 0:
        response.append("variation is a whole number from 0.")
    response += [f"The key “{key[:80]}” is not known." for key in task.data if key not in ("task", "variation")]
    return response


def _task(kind: str, variation: int, description: str) -> Task:
    data = {"task": kind, "variation": variation}
    return Task(f"scienceworld-{kind}-{variation}", " ".join(description.split()), "scienceworld", kind, data)


ALL_POINTS = 100
LONGEST_SEEN = 8_000
SHORTEST_WORD = 3
EMPTY_WORDS = frozenset({"the", "task", "your"})
"""These, and shorter words of an intent, say nothing of what a task is about."""

REFUSED = "You cannot do “"
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
    for place, action in enumerate(ordered):
        verb = action.partition(" ")[0]
        turns.append((given[verb], place))
        given[verb] += 1
    return [ordered[place] for place in sorted(place for _, place in sorted(turns)[:most])]


# --- memories ---------------------------------------------------------------------------------------------------------


def experience(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """An episode as the text of a memory: the actions that changed something, up to the last that gained points.

    After a failure they are what to try instead, and the action that lost all points is what to avoid.
    """
    done = [(spoken(turn.reply.text), turn.observation) for turn in turns]
    points = next((_points(observed)[0] for _, observed in reversed(done) if _POINTS.search(observed)), 0)
    wrong = f"{WHAT_WENT_WRONG}{points} of {ALL_POINTS} points after {len(turns)} turn{'s' * (len(turns) != 1)}.\n"
    avoid = ""
    if done and TAKEN_AWAY in done[-1][1]:
        lost = culprit([action for action, _ in done])
        wrong, avoid = f"{WHAT_WENT_WRONG}“{lost}” ended the game and took all points.\n", block(AVOID, [lost])
        done = done[: -2 if done[-1][0] != lost else -1]
    changed = _that_changed(done)
    last_gain = max((place for place, (_, observed) in enumerate(done) if _points(observed)[1] > 0), default=-1)
    kept = [done[place][0] for place in changed if place <= last_gain]
    tried = block(DONE, list(dict.fromkeys(done[place][0] for place in changed))) if changed else ""
    head = f"{TASK_LINE}{intent}\n"
    if outcome == "failure" and points < ALL_POINTS:
        return head + wrong + avoid + (block(TRY_INSTEAD, kept) if kept else tried)
    if outcome == "failure" or not changed:
        return layout(intent, turns, outcome)  # A person may judge otherwise than the game.
    worked = block(STEPS_THAT_WORKED if outcome == "success" else DONE, kept) if kept else tried
    return head + worked + (wrong + avoid if points < ALL_POINTS else "")


def culprit(actions: Sequence[str]) -> str:
    """The last action; the one before it where the last is the number of one of its meanings."""
    return actions[-2] if actions[-1].isdecimal() and len(actions) > 1 else actions[-1]


def _points(observation: str) -> tuple[int, int]:
    """The points after a turn, and how many it gained."""
    found = _POINTS.findall(observation)
    return (int(found[-1][0]), int(found[-1][1] or 0)) if found else (0, 0)


def _that_changed(done: Sequence[tuple[str, str]]) -> list[int]:
    """The places of the actions that gained points, or may have changed something."""
    places = []
    for place, (action, observed) in enumerate(done):
        first = observed.partition("\n")[0]
        if first.startswith(_WHICH):
            following = done[place + 1 : place + 2]
            idle = not any(number.isdecimal() and not response.startswith(REFUSED) for number, response in following)
        else:
            looks = action.partition(" ")[0].lower() in _ONLY_LOOKS
            idle = looks or first.startswith(REFUSED) or any(words in first for words in _WITHOUT_EFFECT)
        if action and (not idle or _points(observed)[1] > 0):
            places.append(place)
    return places


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
