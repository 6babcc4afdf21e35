"""A lesson as data: one screen of the playground's world around a question; one TOML file each, checked when read.

Texts come from the author of the file and are not trusted: the browser gets them as text, **bold** is the only mark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from memrl_core.environments.tasks import sample_data_path
from memrl_core.errors import InputError
from memrl_core.experiments.toml_files import read_model
from memrl_core.lessons.measures import MEASURES, measured
from memrl_core.lessons.world import Settings
from memrl_core.settings import home

SEEDS = 40
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=700)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
Control = Literal["alpha", "lambda", "epsilon", "change", "k1", "k2", "delta", "keep", "step", "rest", "shifted"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Given(_Part):
    """Settings of the playground by their names in its address; what is left out is its default."""

    alpha: float = Field(0.3, ge=0, le=1)
    lambda_: float = Field(0.5, ge=0, le=1, alias="lambda")
    epsilon: float = Field(0.0, ge=0, le=1)
    change: float = Field(0.0, ge=0, le=0.2)
    delta: float = Field(-0.1, ge=-0.1, le=0.95)
    k1: int = Field(24, ge=1, le=48)
    k2: int = Field(3, ge=1, le=8)
    keep: int = Field(288, ge=8, le=288)
    shifted: bool = True

    def settings(self, seed: int) -> Settings:
        """The same as settings of a run."""
        given = self.model_dump()
        weight, shifted = given.pop("lambda_"), given.pop("shifted")
        return replace(Settings(seed=seed, **given), weight=weight, shifts=(145,) if shifted else ())


class Predict(_Part):
    """The question before the hand may move. `answer` counts the choices from 1; `because` comes with the verdict."""

    question: Text
    choices: list[Line] = Field(min_length=2, max_length=4)
    answer: int = Field(ge=1)
    because: Text

    @field_validator("answer")
    @classmethod
    def _is_a_choice(cls, answer: int, known: ValidationInfo) -> int:
        choices = known.data.get("choices")
        if choices and answer > len(choices):
            raise ValueError(f"choices are counted from 1 to {len(choices)}")
        return answer


class Preset(_Part):
    """A preset of the playground: its settings by their names in its address, and what they are, in words."""

    name: Line
    sentence: Text
    settings: dict[str, int | float] = {}

    def run_settings(self, seed: int) -> Settings:
        """The settings of a run."""
        given: dict[str, Any] = {("weight" if name == "lambda" else name): v for name, v in self.settings.items()}
        return Settings(seed=seed, **given)


class _Presets(_Part):
    preset: tuple[Preset, ...]


PRESETS = read_model(sample_data_path() / "presets.toml", _Presets).preset


class Finding(_Part):
    """A mean over 40 seeds, computed when it is shown; `mean` is what the file states, to three digits, if anything."""

    measure: str
    settings: Given = Given()
    mean: float | None = None

    @field_validator("measure")
    @classmethod
    def _is_known(cls, measure: str) -> str:
        if measure not in MEASURES:
            raise ValueError(f"there is no measure “{measure[:40]}”; there are {', '.join(MEASURES)}")
        return measure

    def computed(self, seeds: int = SEEDS) -> float:
        """The mean over the seeds 1 to `seeds`."""
        return fmean(measured(self.measure, self.settings.settings(seed)) for seed in range(1, seeds + 1))


class Lesson(_Part):
    """One lesson. `measure` is what is compared over 40 seeds between the `start` and where the hand stands."""

    title: Line
    sentence: Text
    formula: Literal["update", "score", "none"] = "none"
    picture: Literal["map", "plane", "trails", "remedies", "pair", "life", "credit"] = "map"
    measure: str
    start: Given = Given()
    hand: list[Control] = Field(min_length=1, max_length=3)
    predict: Predict
    finding: list[Finding] = Field([], max_length=6)

    @field_validator("hand")
    @classmethod
    def _is_once(cls, hand: list[Control]) -> list[Control]:
        if len(set(hand)) < len(hand):
            raise ValueError("each slider can be there once")
        return hand

    _measure_is_known = field_validator("measure")(Finding._is_known.__func__)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Shelf:
    """The lessons by key (the file's name without its ending), in the order of their keys.

    `own` are the keys of those that a person wrote. `stated_at` has, for each of these, the line of the mean of each
    finding, 0 where it states none. `troubles` has a sentence for each file that could not be used.
    """

    lessons: dict[str, Lesson]
    troubles: tuple[str, ...]
    own: frozenset[str] = frozenset()
    stated_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def shipped_folder() -> Path:
    """Where the lessons that come with the program lie."""
    return sample_data_path() / "lessons"


def own_folder() -> Path:
    """Where a person's own lessons lie; one with the name of a shipped lesson replaces it."""
    return home() / "lessons"


def load_shelf() -> Shelf:
    """Everything that can be read; a file that cannot leaves the others, and the one it would replace, as they are."""
    lessons: dict[str, Lesson] = {}
    troubles, stated_at = [], {}
    for folder in (shipped_folder(), own_folder()):
        for path in sorted(folder.glob("*.toml")):
            try:
                lessons[path.stem] = read_model(path, Lesson)
                if folder == own_folder():
                    stated_at[path.stem] = _lines_of_means(path.read_text(encoding="utf-8-sig"))
            except InputError as error:
                troubles.append(str(error))
    return Shelf(dict(sorted(lessons.items())), tuple(troubles), frozenset(stated_at), stated_at)


def _lines_of_means(text: str) -> tuple[int, ...]:
    """For each `[[finding]]` of a file, the line that states its mean, 0 where none does."""
    found: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip().startswith("[[finding]]"):
            found.append(0)
        elif found and re.match(r"\s*mean\s*=", line):
            found[-1] = number
    return tuple(found)
