"""Write the household task sets: `python sample_data/make_tasks.py`. The same seed writes the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from memrl_core.environments.household import GOAL_FAMILIES, PLACES

HABITS = {
    "egg": "counter",
    "potato": "basket",
    "apple": "basket",
    "tomato": "basket",
    "bread": "pantry",
    "soup": "pantry",
    "mug": "cabinet",
    "plate": "cabinet",
    "bowl": "cabinet",
    "pan": "drawer",
    "spoon": "drawer",
    "knife": "drawer",
    "book": "shelf",
    "watch": "desk",
    "letter": "desk",
    "candle": "shelf",
}
"""Where a thing usually is."""
AT_HOME = 0.8
FOOD = ("egg", "potato", "apple", "tomato", "bread", "soup")
DISHES = ("mug", "plate", "bowl", "pan", "spoon", "knife")
OBJECTS = {
    "place": (*DISHES, "book", "candle"),
    "examine": (*DISHES, *FOOD, "book", "watch", "letter", "candle"),
    "clean": (*DISHES, "apple", "tomato"),
    "heat": (*FOOD, "mug", "plate"),
    "cool": (*FOOD, "mug", "pan"),
    "place two": ("mug", "plate", "bowl", "spoon", "book", "candle"),
}
PHRASES = {
    "place": ("put the {o} on the {t}", "bring the {o} to the {t}", "the {o} belongs on the {t}, move it there"),
    "examine": (
        "look at the {o} in good light",
        "examine the {o} under a lamp",
        "inspect the {o} with some light",
        "hold the {o} up to a lamp and look at it",
    ),
    "clean": (
        "put a clean {o} on the {t}",
        "wash the {o}, then put it on the {t}",
        "leave the {o} spotless on the {t}",
    ),
    "heat": ("put a hot {o} on the {t}", "warm up the {o} and put it on the {t}", "serve a heated {o} on the {t}"),
    "cool": ("put a cold {o} on the {t}", "chill the {o} and put it on the {t}", "serve a cooled {o} on the {t}"),
    "place two": ("put two {o}s on the {t}", "bring both {o}s to the {t}", "there should be two {o}s on the {t}"),
}
TREATMENT = {"examine": "light", "clean": "clean", "heat": "heat", "cool": "cool"}

DEMO = slice(16, 24)


def household_tasks(count: int, seed: int, prefix: str, unlike: set[str] | None = None) -> list[dict[str, Any]]:
    """`count` tasks, families in turn and then shuffled; no intent stands twice or is in `unlike`."""
    rng = np.random.default_rng(seed)
    seen, tasks = set(unlike or ()), []
    while len(tasks) < count:
        family = GOAL_FAMILIES[len(tasks) % len(GOAL_FAMILIES)]
        thing = str(rng.choice(OBJECTS[family]))
        wanted = 2 if family == "place two" else 1
        where = _things(rng, thing, wanted)
        free = [place for place in ("counter", "table", "desk", "shelf") if place != where[thing]]
        target = str(rng.choice(free))
        intent = str(rng.choice(PHRASES[family])).format(o=thing, t=target)
        if intent in seen:
            continue
        seen.add(intent)
        data = {"object": thing, "target": target, "count": wanted, "things": where}
        if family in TREATMENT:
            data["treatment"] = TREATMENT[family]
        tasks.append({"intent": intent, "environment": "household", "family": family, "data": data})
    order = rng.permutation(count)
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


def main() -> None:
    """Write the sets beside this file; the demo's tasks are a slice of the training set."""
    folder = Path(__file__).parent / "tasks"
    folder.mkdir(exist_ok=True)
    train = household_tasks(240, seed=7, prefix="train")
    heldout = household_tasks(60, seed=8, prefix="heldout", unlike={task["intent"] for task in train})
    for name, tasks in (("household-train", train), ("household-heldout", heldout), ("household-demo", train[DEMO])):
        lines = [json.dumps(task, ensure_ascii=False) for task in tasks]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
