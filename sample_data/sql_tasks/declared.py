"""What is declared in words.csv, schemas.toml and families.toml, as records."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Schema:
    """An everyday database. `words` names its tables and columns by their parts; the rest is what stands in them."""

    name: str
    words: Mapping[str, str]
    kinds: list[str]
    states: list[str]
    items: list[str]
    labels: list[str]
    sizes: tuple[int, int, int]
    amounts: tuple[int, int, int]
    percents: list[str]
    counts: list[str]
    plain: list[str]


@dataclass(frozen=True, slots=True)
class Habits:
    """How the rows of a task are.

    `gaps` is how many values of a column are NULL. `spread` is how numbers lie: "even", "few" (some are equal),
    "extremes" (low or high), "levels" (each kind at its own height). `timed` is the share of moments with a time of
    day, in `years` and, where the question names none, in that many `months`. `left` is how many rows are gone, `twins`
    how many repeat the label of another. `referred` is which rows of who are mentioned by rows of
    what that the question is about: "some", "all", or none twice ("once"). `bare` adds notes with the number asked for
    and no percent sign; `stocked` gives the item asked for a row; `listed` is who stands in the listing: "any" rows, or
    "others" than those asked for.
    """

    gaps: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[str, str] = field(default_factory=dict)
    timed: float = 0.5
    years: tuple[int, ...] = (2024,)
    months: int = 0
    left: int = 0
    twins: int = 0
    referred: str = "some"
    bare: bool = False
    stocked: bool = False
    listed: str = "any"


@dataclass(frozen=True, slots=True)
class Family:
    """One form of question, of its solution, and of what goes wrong; see families.toml."""

    name: str
    intent: str
    tables: Mapping[str, list[str]]
    reference: str
    careless: str
    others: tuple[str, str, str]
    hard: Habits
    easy: Habits
    draws: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ordered: bool = False

    @property
    def kind(self) -> str:
        return "query" if self.reference.startswith("SELECT") else "modification"


def schemas() -> list[Schema]:
    """The schemas, in the order of words.csv."""
    with (HERE / "words.csv").open(encoding="utf-8", newline="") as file:
        parts = list(csv.DictReader(file))
    contents = tomllib.loads((HERE / "schemas.toml").read_text(encoding="utf-8"))
    return [Schema(name, {row["part"]: row[name] for row in parts}, **values) for name, values in contents.items()]


def families() -> list[Family]:
    """The families, in the order of families.toml."""
    declared = tomllib.loads((HERE / "families.toml").read_text(encoding="utf-8"))
    made = []
    for name, values in declared.items():
        hard, easy = (Habits(**values.pop(mood, {})) for mood in ("hard", "easy"))
        made.append(Family(name=name, hard=hard, easy=easy, **values))
    return made
