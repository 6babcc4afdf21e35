"""The package textworld in a process of its own: it makes cooking games and plays them.

Importing it is heavy and its interpreter is C code. Questions are
{"do": "make", "folder": …, "game": …}, answered by {} when the game is there, and
{"do": "play", "path": …, "actions": [all since the beginning]}, answered by how the game stands after them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from memrl_core.environments.child import serve
from memrl_core.environments.textworld.games import GAME_FILES

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
    options.path = str(Path(folder) / GAME_FILES[0])
    settings = {name: game[name] for name in ("recipe", "take", "go", "open", "cook", "cut")}
    with tempfile.TemporaryDirectory(dir=folder) as compiling:
        tempfile.tempdir = compiling  # What a killed compiler leaves goes away with the folder.
        try:
            made = make_game({**settings, "drop": False, "recipe_seed": 0, "split": None}, options)
            textworld.generator.compile_game(made, options)
        finally:
            tempfile.tempdir = None
    Path(options.path).with_suffix(".ni").unlink(missing_ok=True)


def _answer(question: dict[str, Any], player: Player) -> dict[str, Any]:
    if question["do"] == "make":
        make(question["folder"], question["game"])
        return {}
    return player.play(question["path"], question["actions"])


if __name__ == "__main__":
    the_player = Player()
    serve(lambda question: _answer(question, the_player))
