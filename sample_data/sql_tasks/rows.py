"""The tables of a task: small, with the habits that it needs and otherwise at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sql_tasks.declared import Family, Habits, Schema

TYPES = {
    "label": "TEXT NOT NULL",
    "kind": "TEXT",
    "gone": "TEXT",
    "moment": "TEXT",
    "due": "TEXT",
    "state": "TEXT",
    "note": "TEXT",
    "item": "TEXT PRIMARY KEY",
}
"""The SQL types of columns by part; the others hold whole numbers."""
WITH_ID = ("who", "what")
ROWS = {"who": (8, 10), "what": (9, 12)}
PEOPLE = 9
"""How many rows who has where a task does not show them."""
FIRST_DAYS, LAST_DAYS = (13, 18), (21, 24)


def tables(
    schema: Schema, family: Family, habits: Habits, drawn: Mapping[str, Any], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """The tables of one task, as `Task.data` holds them. `drawn` is what the question asks about, by its draws."""
    bounds = {**ROWS, **family.rows}
    counts = {table: int(rng.integers(bounds[table][0], bounds[table][1] + 1)) for table in family.tables}
    columns = _Columns(schema, habits, drawn, rng, counts)
    made = []
    for table, parts in family.tables.items():
        values = {part: columns.of(part, counts[table]) for part in parts}
        ids = {"id": list(range(1, counts[table] + 1))} if table in WITH_ID else {}
        types = [f"{schema.words[part]} {TYPES.get(part, 'INTEGER')}" for part in parts]
        types = ["id INTEGER PRIMARY KEY"] * bool(ids) + types
        name = schema.words[table]
        rows = [list(row) for row in zip(*ids.values(), *values.values(), strict=True)]
        made.append({"name": name, "create": f"CREATE TABLE {name} ({', '.join(types)})", "rows": rows})
    return made


@dataclass
class _Columns:
    """Draws the columns of one task one after the other; some follow from those before."""

    schema: Schema
    habits: Habits
    drawn: Mapping[str, Any]
    rng: np.random.Generator
    counts: Mapping[str, int]

    def __post_init__(self) -> None:
        self.known: dict[str, list[Any]] = {}

    def of(self, part: str, count: int) -> list[Any]:
        """`count` values of a column, by its part; kept in `known` for those that follow from them."""
        values: list[Any] = getattr(self, f"_{part}")(count)
        for row in self.rng.choice(count, size=self.habits.gaps.get(part, 0), replace=False):
            values[row] = None
        self.known[part] = values
        return values

    def _pick(self, values: Sequence[Any], count: int) -> list[Any]:
        return [values[int(i)] for i in self.rng.integers(len(values), size=count)]

    def _shuffled(self, values: Sequence[Any], count: int) -> list[Any]:
        """Each of `values` about equally often."""
        repeated = [values[i % len(values)] for i in range(count)]
        return [repeated[int(i)] for i in self.rng.permutation(count)]

    def _numbers(self, part: str, bounds: tuple[int, int, int], count: int) -> list[int]:
        low, high, step = bounds
        steps = (high - low) // step
        spread = self.habits.spread.get(part, "even")
        if spread == "few":
            places = self._pick(list(self.rng.permutation(steps + 1)[:4]), count)
        elif spread == "extremes":
            places = [round(steps * (0.1 * p if q < 0.65 else 1 - 0.1 * p)) for p, q in self.rng.random((count, 2))]
        elif spread == "levels":
            heights = {kind: i / len(self.schema.kinds) for i, kind in enumerate(self.schema.kinds)}
            places = [round(steps * (heights[k] + 0.3 * float(self.rng.random()))) for k in self.known["kind"]]
        else:
            places = list(self.rng.integers(steps + 1, size=count))
        return [low + int(place) * step for place in places]

    # --- columns of who -----------------------------------------------------------------------------------------------

    def _label(self, count: int) -> list[str]:
        labels = [self.schema.labels[int(i)] for i in self.rng.permutation(len(self.schema.labels))[:count]]
        for _ in range(self.habits.twins):
            one, other = self.rng.choice(count, size=2, replace=False)
            labels[one] = labels[other]
        return labels

    def _kind(self, count: int) -> list[str]:
        return self._shuffled(self.schema.kinds, count)

    def _size(self, count: int) -> list[int]:
        return self._numbers("size", self.schema.sizes, count)

    def _gone(self, count: int) -> list[str | None]:
        days = [_day(2023, int(self.rng.integers(1, 13)), int(self.rng.integers(1, 29))) for _ in range(count)]
        gone = set(self.rng.permutation(count)[: self.habits.left])
        return [day if row in gone else None for row, day in enumerate(days)]

    def _flag(self, count: int) -> list[int]:
        return self._pick((0, 1, 1), count)

    def _senior(self, count: int) -> list[int]:
        return [1, *(int(self.rng.integers(1, row + 1)) for row in range(1, count))]

    def _whole(self, count: int) -> list[int]:
        low_or_full = self.habits.spread.get("part") == "extremes"
        wholes = []
        for part, chance in zip(self.known["part"], self.rng.random(count), strict=True):
            some = 2 * part + 3 if low_or_full else part + int(self.rng.integers(1, 7))
            wholes.append(part if part and chance < 0.35 else some)
        return wholes

    def _part(self, count: int) -> list[int]:
        return [int(number) for number in self.rng.integers(0, 13, size=count)]

    def _tally(self, count: int) -> list[int]:
        return self._numbers("tally", self.schema.amounts, count)

    # --- columns of what ----------------------------------------------------------------------------------------------

    def _refers(self, count: int) -> list[int]:
        people = self.counts.get("who", PEOPLE)
        ids = [int(i) + 1 for i in self.rng.permutation(people)]
        if self.habits.listed == "others":
            ids = [i for i in ids if self.known["kind"][i - 1] != self.drawn["v"]]
        if "what" not in self.counts:
            return ids[:count]
        some = self._pick(ids[:-2], count)
        return ids + some[people:] if self.habits.referred == "all" else some

    def _amount(self, count: int) -> list[int]:
        return self._numbers("amount", self.schema.amounts, count)

    def _state(self, count: int) -> list[str]:
        states = self._shuffled(self.schema.states, count)
        asked = self.drawn.get("v")
        if asked and self.habits.referred == "all":
            states[: self.counts["who"]] = [asked] * self.counts["who"]
        if asked and self.habits.referred == "once":
            other = next(state for state in self.schema.states if state != asked)
            seen: set[int] = set()
            for row, who in enumerate(self.known["refers"]):
                if states[row] == asked and who in seen:
                    states[row] = other
                elif states[row] == asked:
                    seen.add(who)
        return states

    def _moment(self, count: int) -> list[str]:
        days = self._days(count)
        times = [f" {h:02}:{m:02}" for h, m in self.rng.integers((7, 0), (22, 60), size=(count, 2))]
        timed = self.rng.random(count) < self.habits.timed
        return [day + time * bool(with_time) for day, time, with_time in zip(days, times, timed, strict=True)]

    def _due(self, count: int) -> list[str]:
        shifts = self._shuffled((-2, 0, 0, 1, 3), count)
        return [f"{m[:8]}{int(m[8:10]) + shift:02}" for m, shift in zip(self.known["moment"], shifts, strict=True)]

    def _days(self, count: int) -> list[str]:
        years = self._shuffled(self.habits.years, count)
        if self.habits.months:
            months = [int(month) + 1 for month in self.rng.permutation(12)[: self.habits.months]]
            drawn = zip(years, self._shuffled(months, count), self.rng.integers(1, 29, size=count), strict=True)
            return [_day(year, month, int(day)) for year, month, day in drawn]
        first, last = int(self.drawn["d"]), int(self.drawn.get("e", self.drawn["d"]))
        near = [first - 3, first - 1, first, first, (first + last) // 2, last, last, last + 1, last + 2]
        return [_day(year, int(self.drawn["m"]), day) for year, day in zip(years, self._pick(near, count), strict=True)]

    def _note(self, count: int) -> list[str]:
        asked = self.drawn["n"]
        another = [number for number in range(15, 50, 5) if number != asked]
        notes = []
        for row in range(count):
            number = self._pick(another, 1)[0]
            texts, number = (
                (self.schema.percents, asked),
                (self.schema.percents, number),
                (self.schema.counts, asked if self.habits.bare else number),
                (self.schema.plain, number),
            )[row % 4]
            notes.append(self._pick(texts, 1)[0].format(number))
        return [notes[int(i)] for i in self.rng.permutation(count)]

    # --- columns of the store -----------------------------------------------------------------------------------------

    def _item(self, count: int) -> list[str]:
        others = [item for item in self.schema.items if item != self.drawn["v"]]
        items = ([self.drawn["v"]] if self.habits.stocked else []) + others
        return [items[int(i)] for i in self.rng.permutation(count)]

    def _quantity(self, count: int) -> list[int]:
        return [int(number) for number in self.rng.integers(2, 60, size=count)]


def _day(year: int, month: int, day: int) -> str:
    return f"{year}-{month:02}-{day:02}"
