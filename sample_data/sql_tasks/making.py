"""From families and schemas to tasks: each family once in each schema, some of them hard and some easy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sql_tasks.declared import Family, Schema, families, schemas
from sql_tasks.judging import says_something, solves
from sql_tasks.rows import FIRST_DAYS, LAST_DAYS, tables

HELD_OUT = (0, 5, 9)
"""Which schemas of a family are held out, counted from one that moves on with the family."""
EASY = {"train": 4, "heldout": 1}
"""In how many schemas of a family the careless statement passes."""
TRIES = 500
WORDS = ("kinds", "states", "items")

Task = dict[str, Any]


def task_sets(seed: int) -> dict[str, list[Task]]:
    """The tasks by set: "train" and "heldout". No schema of a family stands in both."""
    sets: dict[str, list[Task]] = {name: [] for name in EASY}
    every = schemas()
    for place, family in enumerate(families()):
        held = {(place + step) % len(every) for step in HELD_OUT}
        numbers = {"train": [i for i in range(len(every)) if i not in held], "heldout": sorted(held)}
        made = 0
        for name, members in numbers.items():
            rng = np.random.default_rng((seed, place, len(members)))
            easy = {members[int(i)] for i in rng.permutation(len(members))[: EASY[name]]}
            for number in members:
                made += 1
                rng = np.random.default_rng((seed, place, number))
                task = _task(family, every[number], number in easy, rng)
                sets[name].append({"id": f"sql-{family.name}-{made:02}", **task})
    for name, tasks in sets.items():
        order = np.random.default_rng((seed, len(tasks))).permutation(len(tasks))
        sets[name] = [tasks[int(i)] for i in order]
    return sets


def lines(tasks: Sequence[Task]) -> str:
    """The tasks as the text of a JSONL file."""
    return "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)


def _task(family: Family, schema: Schema, easy: bool, rng: np.random.Generator) -> Task:
    """One task whose careless statement passes when it is `easy`, and fails otherwise."""
    for _ in range(TRIES):
        drawn = _drawn(family, schema, rng)
        slots = {**schema.words, **drawn}
        careless, *others = (text.format(**slots) for text in (family.careless, *family.others))
        data: dict[str, Any] = {
            "tables": tables(schema, family, family.easy if easy else family.hard, drawn, rng),
            "kind": family.kind,
            "reference": family.reference.format(**slots),
            "ordered": family.ordered,
        }
        if solves(data, careless) != easy or not says_something(data) or any(solves(data, other) for other in others):
            continue
        drafts = [data["reference"], careless, *others[:2]]
        data["near_misses"] = others if easy else [careless, *others[:2]]
        data["drafts"] = [drafts[int(i)] for i in rng.permutation(len(drafts))]
        return {"intent": family.intent.format(**slots), "environment": "sql", "family": family.name, "data": data}
    raise RuntimeError(f"{family.name} in {schema.name}: no rows found that make it {'easy' if easy else 'hard'}.")


def _drawn(family: Family, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
    """What the question asks about, by the keys of the family's draws."""
    drawn: dict[str, Any] = {}
    for key, source in family.draws.items():
        if source in WORDS:
            left = [word for word in getattr(schema, source) if word not in drawn.values()]
            drawn[key] = left[int(rng.integers(len(left)))]
        elif source == "month":
            drawn[key] = f"{rng.integers(2, 12):02}"
        elif source in ("first day", "last day"):
            first, last = FIRST_DAYS if source == "first day" else LAST_DAYS
            drawn[key] = str(rng.integers(first, last + 1))
        elif key == "n":
            low, high, step = source
            number = low + step * int(rng.integers((high - low) // step + 1))
            drawn[key] = number * schema.amounts[1] // 100 if family.draws.get("of") == "amounts" else number
    return drawn
