"""Cooking games of TextWorld: read the cookbook, fetch and treat the ingredients, prepare the meal, eat it.

Engine and games: TextWorld (arXiv 1806.11532), its challenge tw-cooking. Games are made on this machine, once for each
task, and kept in the folder of banks. Run as a program, this is the process in which the package textworld makes games
and plays them: importing it is heavy, and its interpreter is C code.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from memrl_core.environments.base import (
    NOT_DONE_IN_TIME,
    EnvironmentSpec,
    StepResult,
    TurnsOptions,
    block,
    choices_listed,
    layout,
    script,
    spoken,
)
from memrl_core.environments.child import ChildFailed, serve
from memrl_core.environments.games.engine import REFUSED, EngineWorld, turns_in_words
from memrl_core.errors import EnvironmentFailed, InputError
from memrl_core.records import Outcome, Task, Turn
from memrl_core.settings import home

SECONDS_TO_MAKE = 180.0

INSTRUCTIONS = (
    "You play a text game: find out from the cookbook in the kitchen what the meal needs, fetch the ingredients, cut "
    "and cook each of them as the cookbook says and in no other way, prepare the meal in the kitchen, and eat it. "
    "Each turn you see what happened and what you can do. Answer with exactly one of the lines offered, without the "
    "dash. If memories of earlier tasks are given, use them."
)


MOST_SEED = 2**32 - 1
GAME_FILE = "game.z8"

COOKBOOKS = (
    *("Ada", "Bruno", "Chloe", "Dario", "Edith", "Felix", "Greta", "Hugo", "Irma", "Jakob"),
    *("Kira", "Leon", "Marta", "Nils", "Olga", "Pablo", "Rosa", "Stefan", "Tessa", "Viktor"),
)
"""Whose each cookbook of the sets is: none of these words occurs in an action."""


class Game(BaseModel):
    """What decides a game, by the names of the challenge tw-cooking; a task's data.

    `seed` decides the kitchen (rooms, furniture, what else lies about, the words); `cookbook` the recipe and where its
    ingredients are kept, so that two games may share a recipe and nothing else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    seed: int = Field(ge=0, le=MOST_SEED)
    cookbook: int = Field(ge=0, le=MOST_SEED)
    recipe: int = Field(ge=1, le=3, description="ingredients of the recipe")
    take: int = Field(ge=0, le=3, description="ingredients that have to be fetched")
    go: Literal[1, 6] = Field(description="rooms")
    open: bool = Field(description="whether doors and containers are closed at first")
    cook: bool = Field(description="whether ingredients have to be cooked")
    cut: bool = Field(description="whether ingredients have to be cut")

    @model_validator(mode="after")
    def _takes_no_more_than_there_are(self) -> Self:
        if self.take > self.recipe:
            raise ValueError("no more ingredients can be fetched (take) than the recipe has (recipe)")
        return self

    @property
    def name(self) -> str:
        """All of it, as the name of a folder."""
        return "cooking-" + "-".join(f"{key}{int(value)}" for key, value in self.model_dump().items())


class TextWorldOptions(TurnsOptions):
    """How long a game may last."""

    max_turns: int = Field(
        30, ge=1, le=200, title="Turns", description="Actions after which a game ends, with the points made by then."
    )


class TextWorld(EngineWorld):
    """Cooking games. The reward is the share of the game's points that was made, 1 for a won game."""

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
    instructions = INSTRUCTIONS
    child = "memrl_core.environments.games.textworld"

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
            path = str(self._game_file(game))
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise EnvironmentFailed(
                f"The game could not be kept in the folder of banks ({why}). Make room there, or name "
                "another folder in MEMRL_HOME; nothing was started."
            ) from error
        self._start({"path": path})
        self._ended = False
        return self._described(self._answer["text"], 0)

    def distil(self, task: Task, turns: Sequence[Turn], outcome: Outcome) -> str:
        """The actions that led to points, and what lost the game; from the texts alone."""
        return experience(task.intent, turns, outcome)

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
        # Four cookbooks a family, each in two kitchens; and the same ones in kitchens that no other game has.
        if name == cls.sets[0]:
            return _tasks(name, kitchens_each=2, first_kitchen=1)
        return _tasks(name, kitchens_each=1, first_kitchen=1 + 2 * _COOKBOOKS_EACH * len(_FAMILIES))

    @classmethod
    def faults(cls, task: Task) -> list[str]:
        """What is wrong with the data of a task, a sentence each."""
        try:
            Game.model_validate(dict(task.data))
        except ValidationError as error:
            found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
            return [f"{where[:80] or 'The data'}: {what.removeprefix('Value error, ')}." for where, what in found]
        return []

    def _game_file(self, game: Game) -> Path:
        """The file of a game; one that is missing is made first. Raises `OSError` and `EnvironmentFailed`.

        A game is made in a folder beside its place and moved there as a whole; of two programs that make the same one
        at once, the first one's stays.
        """
        cache = home() / "cache" / f"textworld-{version('textworld')}"
        folder = cache / game.name
        if not folder.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="making-", dir=cache, ignore_cleanup_errors=True) as temporary:
                made = Path(temporary) / "made"
                made.mkdir()
                question = {"do": "make", "folder": str(made), "game": game.model_dump()}
                try:
                    self._child.ask(question, SECONDS_TO_MAKE)
                except ChildFailed as error:
                    raise EnvironmentFailed(
                        f"The game could not be made: {error}. Nothing was started; try again."
                    ) from None
                try:
                    made.rename(folder)
                except OSError:
                    if not folder.is_dir():
                        raise
        return folder / GAME_FILE

    @property
    def _over(self) -> bool:
        return bool(self._answer["won"] or self._answer["lost"])

    def _command(self, typed: str) -> str | None:
        """One of the actions offered; the game never reads anything else."""
        return next((one for one in self._answer["offered"] if one.lower() == typed.lower()), None)

    def _response(self, command: str) -> str:
        return str(self._answer["text"])

    def _described(self, response: str, gained: int) -> str:
        return f"{response}\n{choices_listed(self._answer['offered'])}"

    def _end(self, response: str, gained: int) -> StepResult:
        score, most, won = self._points, self._answer["most"], bool(self._answer["won"])
        points, turns = f"{score} of {most} points", turns_in_words(self._turns)
        if won:
            verdict, why = f"Solved: {points} in {turns}.", "The meal was eaten."
        elif self._over:
            verdict = f"Failed: {points}; the game was lost."
            why = f"“{self._actions[-1]}” lost the game: {first_line(response)}"
        else:
            verdict = f"Failed: {points}; the turns ran out after {self._turns}."
            why = f"After {turns} the meal was not eaten."
        seen = "\n".join([response, *([] if self._over else [OUT_OF_TURNS]), POINTS.format(score, most)])
        expected = self._answer["recipe"] + "\n" + block("What wins:", self._answer["walkthrough"])
        reward = 1.0 if won else min(1.0, score / most) if most > 0 else 0.0
        return self._judged(seen, verdict, won, reward, expected, why, truncated=not self._over)


# --- the sets ---------------------------------------------------------------------------------------------------------

_FAMILIES: dict[str, dict[str, Any]] = {
    "cook": {"recipe": 1, "take": 1, "go": 1, "open": True, "cook": True, "cut": False},
    "cut": {"recipe": 1, "take": 1, "go": 1, "open": True, "cook": False, "cut": True},
    "cook and cut": {"recipe": 2, "take": 2, "go": 1, "open": True, "cook": True, "cut": True},
    "open and take": {"recipe": 3, "take": 3, "go": 1, "open": True, "cook": False, "cut": False},
    "find and cook": {"recipe": 1, "take": 1, "go": 6, "open": True, "cook": True, "cut": False},
}
_COOKBOOKS_EACH = 4


def _tasks(name: str, kitchens_each: int, first_kitchen: int) -> list[Task]:
    """The families take turns."""
    tasks: list[Task] = []
    for nth in range(_COOKBOOKS_EACH):
        for _ in range(kitchens_each):
            for number, (family, asked) in enumerate(_FAMILIES.items()):
                owner = COOKBOOKS[number * _COOKBOOKS_EACH + nth]
                game = Game(seed=first_kitchen + len(tasks), cookbook=10 * (number + 1) + nth + 1, **asked)
                task_id = f"{name}-{len(tasks) + 1:02}"
                tasks.append(Task(task_id, _intent(game, owner), "textworld", family, game.model_dump()))
    return tasks


def _intent(game: Game, owner: str) -> str:
    """What a game asks for. It names cookbook and kitchen, not the recipe, which the player has to find out."""
    one = game.recipe == 1
    treatments = [word for word, asked in (("cut", game.cut), ("cook", game.cook)) if asked]
    taken = f"take {game.recipe} ingredient{'' if one else 's'}"
    treated = f", {' and '.join(treatments)} {'it' if one else 'them'}" if treatments else ""
    rooms = "1 room" if game.go == 1 else f"{game.go} rooms"
    return f"Prepare the meal of {owner}'s cookbook: {taken}{treated}. Kitchen {game.seed}, {rooms}."


# --- memories ---------------------------------------------------------------------------------------------------------

OUT_OF_TURNS = "The turns have run out."
POINTS = "You have {} of {} points."

# The game's own words.
_GAINED = "Your score has just gone up"
_LOST = "*** You lost! ***"
_WON = "*** The End ***"

_WAY_BACK = {"go north": "go south", "go south": "go north", "go east": "go west", "go west": "go east"}
_BETWEEN = (" with ", " from ", " into ", " on ", " in ")


def experience(intent: str, turns: Sequence[Turn], outcome: Outcome) -> str:
    """The actions that led to points, and what lost the game; where none gained a point, what was tried."""
    done = [(spoken(turn.reply.text), turn.observation) for turn in turns if not turn.reply.stopped]
    last = done[-1][1] if done else ""
    kept = _that_led_to_points(done)
    if not done or (outcome == "success" and not kept) or (outcome == "failure" and _says(last, _WON)):
        return layout(intent, turns, outcome)  # A person may judge otherwise than the game.
    wrong = "" if _says(last, _WON) else _what_went_wrong(done[-1][0], last)
    avoid = [done[-1][0]] if _says(last, _LOST) else []
    tried = list(dict.fromkeys(action for action, observed in done if not observed.startswith(REFUSED)))
    return script(intent, outcome, kept, wrong=wrong, avoid=avoid, tried=tried)


def first_line(text: str) -> str:
    """What the game says first."""
    return text.partition("\n")[0]


def _that_led_to_points(done: Sequence[tuple[str, str]]) -> list[str]:
    """Of (action, what was observed) the actions that gained points, and what led to them.

    These are the ways there without turning back, what was opened, and the first taking of what gained points later:
    hands are never full, so nothing need be put away.
    """
    gains = {position for position, (_, observed) in enumerate(done) if _says(observed, _GAINED)}
    used = {thing for position in gains for thing in _things(done[position][0])}
    kept: list[str] = []
    taken: set[str] = set()
    for position, (action, observed) in enumerate(done[: max(gains, default=-1) + 1]):
        if observed.startswith(REFUSED):
            continue
        verb, thing = action.partition(" ")[0], next(iter(_things(action)), "")
        if verb == "take" and thing in used - taken:
            taken.add(thing)
            kept.append(action)
        elif position in gains and verb != "take":
            kept.append(action)
        elif verb == "go" and kept and kept[-1] == _WAY_BACK.get(action):
            kept.pop()
        elif verb == "go" or (verb == "open" and action not in kept):
            kept.append(action)
    return kept


def _things(action: str) -> list[str]:
    """What an action names: the thing, and with, from or on what."""
    rest = action.partition(" ")[2]
    between = next((word for word in _BETWEEN if word in rest), None)
    return [part for part in (rest.split(between) if between else [rest]) if part]


def _what_went_wrong(action: str, last: str) -> str:
    if _says(last, _LOST):
        return f"“{action}” lost the game: {first_line(last)}"
    return " ".join(last.splitlines()[-2:]) if _says(last, OUT_OF_TURNS) else NOT_DONE_IN_TIME


def _says(observed: str, words: str) -> bool:
    """Whether a line begins with these words; a reply that was refused stands within its line."""
    return any(line.startswith(words) for line in observed.splitlines())


# --- in the process of its own ----------------------------------------------------------------------------------------

_BANNER = re.compile(r"[\s_|$\\/<>-]*")
_PROMPT = re.compile(r"\n>[^\n]*\s*\Z")
_END = re.compile(r"(?<=\n) *(\*\*\* .+ \*\*\*).*", re.DOTALL)


def plain(feedback: str) -> str:
    """What a game says, without its banner, prompt, status line, empty lines, and the questions after its end."""
    text = _END.sub(r"\1", _PROMPT.sub("", feedback))
    lines = [line.strip() for line in text.splitlines()]
    while lines and _BANNER.fullmatch(lines[0]):
        del lines[0]
    return "\n".join(line for line in lines if line)


class Player:
    """Plays one game at a time."""

    def __init__(self) -> None:
        self._game: Any = None
        self._state: Any = None
        self._path = ""
        self._done: list[str] = []
        self._expected: dict[str, Any] = {}

    def play(self, path: str, actions: list[str]) -> dict[str, Any]:
        """How the game in a file stands after these actions, which go on from those done before or begin anew."""
        goes_on = actions and path == self._path and self._done == actions[: len(self._done)]
        if not goes_on:
            self._begin(path)
        for action in actions[len(self._done) :]:
            self._state = self._game.step(action)[0]
            self._done.append(action)
        state = self._state
        return {
            "text": plain(state["feedback"]),
            "offered": list(state["admissible_commands"]),
            "score": int(state["score"] or 0),
            "most": int(state["max_score"]),
            "won": bool(state["won"]),
            "lost": bool(state["lost"]),
            **self._expected,
        }

    def _begin(self, path: str) -> None:
        if self._game is not None:
            self._game.close()
        textworld = import_module("textworld")
        asked = ("admissible_commands", "policy_commands", "score", "max_score", "won", "lost")
        wanted = textworld.EnvInfos(**dict.fromkeys(asked, True), extras=["recipe"])
        self._game = textworld.start(path, wanted)
        self._game.seed(0)
        self._path, self._done = path, []
        self._state = self._game.reset()
        walkthrough = list(self._state["policy_commands"])
        recipe = "\n".join(line.strip() for line in self._state["extra.recipe"].strip().splitlines())
        self._expected = {"recipe": recipe, "walkthrough": walkthrough}


def make(folder: str, game: Mapping[str, Any]) -> None:
    """Make a game (`games.Game` as a mapping) in an existing folder; it keeps nothing else there."""
    textworld = import_module("textworld")
    _, make_game, _ = import_module("textworld.challenges").CHALLENGES["tw-cooking"]
    options = textworld.GameOptions()
    kitchen, cookbook = game["seed"], game["cookbook"]
    options.seeds = {"map": kitchen, "objects": kitchen, "grammar": kitchen, "quest": cookbook}
    options.path = str(Path(folder) / GAME_FILE)
    settings = {name: game[name] for name in ("recipe", "take", "go", "open", "cook", "cut")}
    with tempfile.TemporaryDirectory(dir=folder) as compiling:
        tempfile.tempdir = compiling  # What a killed compiler leaves goes away with the folder.
        try:
            made = make_game({**settings, "drop": False, "recipe_seed": 0, "split": None}, options)
            textworld.generator.compile_game(made, options)
        finally:
            tempfile.tempdir = None
    Path(options.path).with_suffix(".ni").unlink(missing_ok=True)


def _answer(player: Player, question: dict[str, Any]) -> dict[str, Any]:
    """{} when the game that was to be made is there; else how a game stands after its `actions`."""
    if question["do"] == "make":
        make(question["folder"], question["game"])
        return {}
    return player.play(question["path"], question["actions"])


if __name__ == "__main__":
    serve(partial(_answer, Player()))
