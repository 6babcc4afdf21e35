"""The cooking games of TextWorld: what decides one, the two sets of tasks, and the games made so far, kept as files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memrl_core.records import Task
from memrl_core.settings import home

MOST_SEED = 2**32 - 1
GAME_FILES = ("game.z8", "game.json")
CHECKSUMS = "checksums.json"

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


# --- the sets ---------------------------------------------------------------------------------------------------------

_FAMILIES: dict[str, dict[str, Any]] = {
    "cook": {"recipe": 1, "take": 1, "go": 1, "open": True, "cook": True, "cut": False},
    "cut": {"recipe": 1, "take": 1, "go": 1, "open": True, "cook": False, "cut": True},
    "cook and cut": {"recipe": 2, "take": 2, "go": 1, "open": True, "cook": True, "cut": True},
    "open and take": {"recipe": 3, "take": 3, "go": 1, "open": True, "cook": False, "cut": False},
    "find and cook": {"recipe": 1, "take": 1, "go": 6, "open": True, "cook": True, "cut": False},
}
_COOKBOOKS_EACH = 4


def train_tasks(name: str) -> list[Task]:
    """40 games: four cookbooks a family, each in two kitchens; the families take turns."""
    return _tasks(name, kitchens_each=2, first_kitchen=1)


def heldout_tasks(name: str) -> list[Task]:
    """20 games: the same cookbooks, each in a kitchen that no other game has."""
    return _tasks(name, kitchens_each=1, first_kitchen=1 + 2 * _COOKBOOKS_EACH * len(_FAMILIES))


def _tasks(name: str, kitchens_each: int, first_kitchen: int) -> list[Task]:
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


# --- the games as files -----------------------------------------------------------------------------------------------


def game_file(game: Game, make: Callable[[Path], object]) -> Path:
    """The file of a game; a game that is missing or damaged is made first. Raises `OSError`, and what `make` raises.

    `make` puts `GAME_FILES` into the empty folder that it is given. They move to their place together, so that what is
    there is whole; of two programs that make the same game at once, the first one's stays.
    """
    cache = home() / "cache" / f"textworld-{version('textworld')}"
    folder = cache / game.name
    if _is_whole(folder):
        return folder / GAME_FILES[0]
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="making-", dir=cache, ignore_cleanup_errors=True) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        make(made)
        (made / CHECKSUMS).write_text(json.dumps(_checksums(made)), encoding="utf-8")
        try:
            made.rename(folder)
        except OSError:
            if not _is_whole(folder):
                folder.rename(Path(temporary) / "damaged")
                made.rename(folder)
    return folder / GAME_FILES[0]


def _is_whole(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / CHECKSUMS).read_text(encoding="utf-8")) == _checksums(folder))
    except (OSError, ValueError):
        return False


def _checksums(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in GAME_FILES}
