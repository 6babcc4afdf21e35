"""Write the household task sets: `python sample_data/make_tasks.py`. The same seed writes the same files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memrl_core.environments.household import GOAL_FAMILIES, PLACES

HABITS = {
    **dict.fromkeys(("egg", "onion", "muffin", "butter", "teapot", "kettle"), "counter"),
    **dict.fromkeys(("potato", "apple", "tomato", "carrot", "lemon", "orange", "peach", "plum", "melon"), "basket"),
    **dict.fromkeys(("bread", "soup", "stew", "sausage", "pancake", "waffle", "bagel", "pumpkin"), "pantry"),
    **dict.fromkeys(("coffee", "cocoa", "juice", "cheese", "pudding", "cake"), "pantry"),
    **dict.fromkeys(("mug", "plate", "bowl", "pan", "saucer", "jar", "bottle", "tray", "pot"), "cabinet"),
    **dict.fromkeys(("spoon", "knife", "fork", "ladle", "whisk", "towel", "glove", "key"), "drawer"),
    **dict.fromkeys(("book", "candle", "magazine", "camera", "radio", "statue", "doll", "ball"), "shelf"),
    **dict.fromkeys(("watch", "letter", "pen", "notebook", "wallet", "ruler"), "desk"),
    **dict.fromkeys(("pizza", "omelette", "burger", "salad", "napkin"), "table"),
}
"""Where a thing usually is."""
AT_HOME = 0.8
VEGETABLES = ("potato", "tomato", "carrot", "onion", "pumpkin")
FRUIT = ("apple", "lemon", "orange", "peach", "plum", "melon")
COOKED = ("egg", "soup", "stew", "sausage", "pizza", "omelette", "burger")
BAKED = ("bread", "muffin", "pancake", "waffle", "bagel")
DRINKS = ("coffee", "cocoa")
CHILLED = ("juice", "cheese", "butter", "pudding", "cake", "salad")
DISHES = ("mug", "plate", "bowl", "pan", "saucer", "tray", "pot", "jar", "bottle", "teapot", "kettle")
CUTLERY = ("spoon", "knife", "fork", "ladle", "whisk")
CLOTH = ("towel", "glove", "napkin")
OBJECTS = {
    "place": tuple(HABITS),
    "examine": tuple(HABITS),
    "clean": (*DISHES, *CUTLERY, *CLOTH, *VEGETABLES, *FRUIT, "statue", "doll", "ball", "ruler"),
    "heat": (*VEGETABLES, *COOKED, *BAKED, *DRINKS, "apple", "peach", "plum", "mug", "plate", "bowl", "pan", "towel"),
    "cool": (*FRUIT, *COOKED, *DRINKS, *CHILLED, "tomato", "carrot", "bread", "mug", "plate", "bowl", "pan", "bottle"),
    "place two": tuple(thing for thing in HABITS if thing not in (*VEGETABLES, *COOKED, *DRINKS, *CHILLED, "knife")),
}
"""Family to the things that its tasks are about."""
PHRASES = {
    "place": (
        "put the {o} on the {t}",
        "bring the {o} to the {t}",
        "the {o} belongs on the {t}, move it there",
        "carry the {o} over to the {t}",
        "could you set the {o} down on the {t}?",
        "I want the {o} on the {t}",
        "find the {o} and leave it on the {t}",
        "on the {t}, please: the {o}",
    ),
    "examine": (
        "look at the {o} in good light",
        "examine the {o} under a lamp",
        "inspect the {o} with some light",
        "hold the {o} up to a lamp and look at it",
        "check the {o} for scratches where it is bright",
        "it is too dark to see the {o}, light it",
        "shine a lamp on the {o}",
        "I need to see the {o} clearly",
    ),
    "clean": (
        "put a clean {o} on the {t}",
        "wash the {o}, then put it on the {t}",
        "leave the {o} spotless on the {t}",
        "the {o} is dirty, get it clean and onto the {t}",
        "rinse the {o} and return it to the {t}",
        "scrub the {o} before it goes on the {t}",
        "on the {t} I want the {o} without a stain",
        "get the dirt off the {o} and bring it to the {t}",
    ),
    "heat": (
        "put a hot {o} on the {t}",
        "warm up the {o} and put it on the {t}",
        "serve a heated {o} on the {t}",
        "the {o} is too cold, heat it and take it to the {t}",
        "I would like the {o} warm, on the {t}",
        "bring a steaming {o} to the {t}",
        "make the {o} hot before it goes on the {t}",
        "on the {t} there should be a warm {o}",
    ),
    "cool": (
        "put a cold {o} on the {t}",
        "chill the {o} and put it on the {t}",
        "serve a cooled {o} on the {t}",
        "the {o} is too warm, cool it and take it to the {t}",
        "I would like the {o} cold, on the {t}",
        "bring an icy {o} to the {t}",
        "let the {o} cool before it goes on the {t}",
        "on the {t} there should be a chilled {o}",
    ),
    "place two": (
        "put two {many} on the {t}",
        "bring both {many} to the {t}",
        "there should be two {many} on the {t}",
        "find two {many} and leave them on the {t}",
        "the two {many} belong together on the {t}",
        "carry both {many} over to the {t}",
        "I want both of the {many} on the {t}",
        "on the {t}, please: two {many}",
    ),
}
TREATMENT = {"examine": "light", "clean": "clean", "heat": "heat", "cool": "cool"}
TARGETS = ("counter", "table", "desk", "shelf")

TRAIN, HELDOUT = 240, 60
DEMO = slice(16, 24)


def household_tasks(count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """`count` tasks without ids, families in turn: no two of a family want the same of the same thing.

    A family uses all its things and all its phrases before it uses one again.
    """
    things, phrases = (
        {family: _again_and_again(rng, of_family[family]) for family in GOAL_FAMILIES}
        for of_family in (OBJECTS, PHRASES)
    )
    seen: set[tuple[str, str, str]] = set()
    tasks: list[dict[str, Any]] = []
    while len(tasks) < count:
        family = GOAL_FAMILIES[len(tasks) % len(GOAL_FAMILIES)]
        thing = next(things[family])
        wanted = 2 if family == "place two" else 1
        where = _things(rng, thing, wanted)
        target = str(rng.choice([place for place in TARGETS if place != where[thing]]))
        if (family, thing, target) in seen:
            continue
        seen.add((family, thing, target))
        data = {"object": thing, "target": target, "count": wanted, "things": where}
        if family in TREATMENT:
            data["treatment"] = TREATMENT[family]
        intent = _worded(next(phrases[family]), thing, target)
        tasks.append({"intent": intent, "environment": "household", "family": family, "data": data})
    return tasks


def _worded(phrase: str, thing: str, target: str) -> str:
    """The phrase about a thing and where it belongs."""
    many = f"{thing}es" if thing.endswith(("ch", "sh", "s", "x")) else f"{thing}s"
    return phrase.format(o=thing, many=many, t=target)


def _again_and_again(rng: np.random.Generator, items: Sequence[str]) -> Iterator[str]:
    """All `items` in random order, then all again in another."""
    while True:
        yield from (str(item) for item in rng.permutation(items))


def _numbered(tasks: list[dict[str, Any]], prefix: str, rng: np.random.Generator) -> list[dict[str, Any]]:
    """The tasks in random order, with ids."""
    order = rng.permutation(len(tasks))
    return [{"id": f"{prefix}-{i + 1:03d}", **tasks[int(position)]} for i, position in enumerate(order)]


def _things(rng: np.random.Generator, thing: str, wanted: int) -> dict[str, str]:
    others = [other for other in HABITS if other != thing]
    chosen = [thing, *rng.choice(others, size=5, replace=False)]
    where = {str(name): _place(rng, str(name)) for name in chosen}
    if wanted == 2:
        where[f"{thing}#2"] = where[thing]
    return where


def _place(rng: np.random.Generator, thing: str) -> str:
    return HABITS[thing] if rng.random() < AT_HOME else str(rng.choice(PLACES))


def _in_other_words(task: dict[str, Any]) -> dict[str, Any]:
    """The task with every wording of its family, its own first: each epoch asks it in another one."""
    data = task["data"]
    phrases = [_worded(phrase, data["object"], data["target"]) for phrase in PHRASES[task["family"]]]
    at = phrases.index(task["intent"])
    return {**task, "data": {**data, "wordings": [*phrases[at:], *phrases[:at]]}}


def main() -> None:
    """Write the sets beside this file; the demo's tasks are a slice of the training set, in several wordings each."""
    folder = Path(__file__).parent / "tasks"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    tasks = household_tasks(TRAIN + HELDOUT, rng)
    train, heldout = _numbered(tasks[:TRAIN], "train", rng), _numbered(tasks[TRAIN:], "heldout", rng)
    demo = [_in_other_words(task) for task in train[DEMO]]
    for name, written in (("household-train", train), ("household-heldout", heldout), ("household-demo", demo)):
        lines = [json.dumps(task, ensure_ascii=False) for task in written]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
