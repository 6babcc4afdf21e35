"""Cooking games of TextWorld: read the cookbook, fetch and treat the ingredients, prepare the meal, eat it.

Engine and games: TextWorld (arXiv 1806.11532), its challenge tw-cooking. Games are made on this machine, once for each
task, and kept in the folder of banks.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import Field, ValidationError

from memrl_core.environments.base import Environment, EnvironmentOptions, EnvironmentSpec
from memrl_core.environments.child import Borrowed, ChildFailed
from memrl_core.environments.layout import block, spoken
from memrl_core.environments.textworld.games import Game, game_file, heldout_tasks, train_tasks
from memrl_core.environments.textworld.words import OUT_OF_TURNS, POINTS, REFUSED, experience, first_line
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.prompting import ANSWER_MARK, CHOICE_MARK, CHOICES
from memrl_core.records import Judgement, Outcome, RewardSource, Task, Turn

CHILD = "memrl_core.environments.textworld.process"
SECONDS_TO_MAKE = 180.0
SECONDS_TO_ANSWER = 60.0
LONGEST_TOLD = 4_000

INSTRUCTIONS = (
    "You play a text game: find out from the cookbook in the kitchen what the meal needs, fetch the ingredients, cut "
    "and cook each of them as the cookbook says and in no other way, prepare the meal in the kitchen, and eat it. "
    "Each turn you see what happened and what you can do. Answer with exactly one of the lines offered, without the "
    "dash. If memories of earlier tasks are given, use them."
)


class TextWorldOptions(EnvironmentOptions):
    """How long a game may last."""

    max_turns: int = Field(
        30, ge=1, le=200, title="Turns", description="Actions after which a game ends, with the points made by then."
    )


class TextWorld(Environment):
    """Cooking games. A reward comes once, at the end: the share of the game's points that was made, 1 for a won game.

    Earlier turns give 0 although the game counts its points as they are made, because what learns from single turns
    adds the rewards of an episode up.
    """

    name = "textworld"
    spec = EnvironmentSpec(
        title="TextWorld: cooking",
        idea="Find out from a cookbook what the meal needs, fetch it, cut and cook it as the book says, and eat. "
        "Several games share a cookbook, in kitchens of their own: what a memory tells of one game helps in another.",
        judged="By the game: the share of its points that was made, 1 when the meal was eaten. An ingredient treated "
        "in a wrong way loses the game, which keeps its points.",
        source="TextWorld (Côté et al., arXiv 1806.11532), its challenge tw-cooking; games are made on this machine.",
        needs="the package textworld, on Linux or macOS",
        answer_tokens=32,
    )
    Options = TextWorldOptions
    sets = ("textworld-train", "textworld-heldout")
    reward_source: RewardSource = "environment"
    instructions = INSTRUCTIONS

    def __init__(self, max_turns: int = 30) -> None:
        self.max_turns = max_turns
        self._child = Borrowed(CHILD)
        self._ended = True

    def reset(self, task: Task, *, seed: int, at_step: int) -> str:
        """Begin `task`; its game is made first where it never was, which takes some seconds. There is no luck in it.

        Raises `InputError` when the task is not one of these games, and `EnvironmentFailed`.
        """
        self._ended = True
        faults = self.faults(task)
        if faults:
            raise InputError(f"Task {task.id[:80]} is no cooking game: {' '.join(faults)} Nothing was started.")
        if lacking := self.missing():
            raise EnvironmentFailed(lacking)
        game = Game.model_validate(dict(task.data))
        try:
            self._path = str(game_file(game, lambda folder: self._make(game, str(folder))))
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise EnvironmentFailed(
                f"The game could not be kept in the folder of banks ({why}). Make room there, or name "
                "another folder in MEMRL_HOME; nothing was started."
            ) from error
        self._turns = 0
        self._actions: list[str] = []
        self._came: list[str] = []
        self._stands = self._ask([])
        self._expected = self._stands["recipe"] + "\n" + block("What wins:", self._stands["walkthrough"])
        self._ended = False
        return self._described(self._stands["text"])

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do one of the actions offered. What is not offered costs a turn; the game never reads it.

        After `EnvironmentFailed` the same action can be tried again: the game is then begun anew and played up to here.
        """
        if self._ended:
            raise InputError("This episode has ended. Begin the next task.")
        typed = spoken(action)
        command = next((one for one in self._stands["offered"] if one.lower() == typed.lower()), None)
        if command is None:
            response = f"{REFUSED}{typed[:80]}” here."
            self._came.append(f"{ANSWER_MARK}{typed[:80]} (not offered)")
        else:
            before = self._stands["score"]
            self._stands = self._ask([*self._actions, command])
            self._actions.append(command)
            response = self._stands["text"]
            gained = self._stands["score"] - before
            self._came.append(f"{ANSWER_MARK}{command}" + (f" ({gained:+d} point)" if gained else ""))
        self._turns += 1
        if self._stands["won"] or self._stands["lost"] or self._turns >= self.max_turns:
            return self._end(response)
        return self._described(response), 0.0, False, False, {}

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The actions that led to points, and what lost the game; from the texts alone."""
        return experience(task.intent, turns, outcome)

    def close(self) -> None:
        """Give the game's process back; the environment can be reset again."""
        self._ended = True
        self._child.close()

    @classmethod
    def missing(cls) -> str:
        """What this machine lacks to run it, as a sentence with its remedy; "" when nothing."""
        if sys.platform == "win32":
            return "TextWorld does not run on Windows itself. Use Linux, macOS, or the Linux subsystem of Windows."
        if importlib.util.find_spec("textworld") is None:
            return "The package textworld is not installed. Install it: pip install 'memrl-inspector[textworld]'."
        return ""

    @classmethod
    def make_tasks(cls, name: str) -> list[Task]:
        """The 40 games of textworld-train or the 20 of textworld-heldout. Raises `InputError` for another name."""
        if name not in cls.sets:
            return super().make_tasks(name)
        return train_tasks(name) if name == cls.sets[0] else heldout_tasks(name)

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with the data of a task, a sentence each."""
        try:
            Game.model_validate(dict(task.data))
        except ValidationError as error:
            found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
            return [f"{where[:80] or 'The data'}: {what.removeprefix('Value error, ')}." for where, what in found]
        return []

    def _make(self, game: Game, folder: str) -> None:
        try:
            self._child.ask({"do": "make", "folder": folder, "game": game.model_dump()}, SECONDS_TO_MAKE)
        except ChildFailed as error:
            raise EnvironmentFailed(f"The game could not be made: {error}. Nothing was started; try again.") from None

    def _ask(self, actions: Sequence[str]) -> dict[str, Any]:
        question = {"do": "play", "path": self._path, "actions": list(actions)}
        try:
            return self._child.ask(question, SECONDS_TO_ANSWER)
        except ChildFailed as error:
            raise EnvironmentFailed(
                f"The game stopped: {error}. The turns so far are kept; try again, and it is played up to here anew."
            ) from None

    def _described(self, response: str) -> str:
        return "\n".join((response, CHOICES, *(CHOICE_MARK + one for one in self._stands["offered"])))

    def _end(self, response: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._ended = True
        score, most = self._stands["score"], self._stands["most"]
        won, lost = self._stands["won"], self._stands["lost"]
        reward = 1.0 if won else min(1.0, max(0.0, score / most)) if most > 0 else 0.0
        points = f"{score} of {most} points"
        if won:
            verdict, why = f"Solved: {points} in {self._turns} turns.", "The meal was eaten."
        elif lost:
            verdict = f"Failed: {points}; the game was lost."
            why = f"“{self._actions[-1]}” lost the game: {first_line(response)}"
        else:
            verdict = f"Failed: {points}; the turns ran out after {self._turns}."
            why = f"After {self._turns} turns the meal was not eaten."
        shown = [response, *([] if won or lost else [OUT_OF_TURNS]), POINTS.format(score, most)]
        came = "\n".join((f"{points}.", *self._came))
        judgement = Judgement(*(text[:LONGEST_TOLD] for text in (self._expected, came, why)))
        info = {"verdict": verdict, "success": won, "judgement": judgement}
        return "\n".join(shown), reward, won or lost, not (won or lost), info
