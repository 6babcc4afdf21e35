"""A lesson as data: claim, predict, do, reveal, notice; one TOML file each, checked when it is read.

Texts are Markdown by whoever wrote the file and are not trusted: no HTML is drawn from them, and no pictures, which
would be fetched from elsewhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from memrl_core.errors import InputError
from memrl_core.lessons.decision import DecisionScene
from memrl_core.lessons.ladder import LadderScene
from memrl_core.lessons.memories import MemoriesScene
from memrl_core.lessons.scene import Scene, Value
from memrl_core.lessons.twins import TwinsScene
from memrl_core.toml_files import line_of, read_model

TYPE_NAMES = {bool: "true or false", float: "a number", str: "a text"}


def _without_pictures(text: str) -> str:
    if "![" in text:
        raise ValueError("a lesson shows no pictures; take “![” out")
    return text


Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000), AfterValidator(_without_pictures)
]
Line = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_without_pictures)
]
SceneT = TypeVar("SceneT", bound=Scene)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Predict(_Part):
    """The question before the reveal. `answer` counts the choices from 1; `because` is shown with the score."""

    question: Text
    choices: list[Line] = Field(min_length=2, max_length=5)
    answer: int = Field(ge=1)
    because: Text

    @field_validator("answer")
    @classmethod
    def _is_a_choice(cls, answer: int, known: ValidationInfo) -> int:
        choices = known.data.get("choices")
        if choices and answer > len(choices):
            raise ValueError(f"choices are counted from 1 to {len(choices)}")
        return answer


class Check(_Part):
    """One condition on a value of the scene; `label` says it in words, `hint` how to get there."""

    value: Line
    at_least: float | None = None
    at_most: float | None = None
    is_: bool | float | Line | None = Field(None, alias="is")
    label: Line
    hint: Text

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if len(self._conditions()) != 1:
            raise ValueError("a check has exactly one of at_least, at_most, is")
        return self

    @property
    def condition(self) -> str:
        """The condition itself, in no language: a translated lesson keeps what was passed."""
        ((name, bound),) = self._conditions().items()
        return f"{self.value} {name} {bound}"

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the values fulfil it; one that is not there yet does not."""
        value = values.get(self.value)
        if value is None:
            return False
        if self.is_ is not None:
            return value == self.is_
        if isinstance(value, str):
            return False
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)

    def _conditions(self) -> dict[str, Value]:
        given = {"at_least": self.at_least, "at_most": self.at_most, "is": self.is_}
        return {name: bound for name, bound in given.items() if bound is not None}


class Do(_Part):
    """What the person does in the scene, and how the program knows that it was done."""

    text: Text
    check: list[Check] = Field(min_length=1, max_length=6)


class Reveal(_Part):
    """What there is to see once the prediction is made and the checks hold."""

    text: Text


class Notice(_Part):
    """What to take away."""

    points: list[Text] = Field(min_length=1, max_length=6)


class Lesson(_Part, Generic[SceneT]):
    """One lesson, with the scene it is about."""

    title: Line
    summary: Line
    minutes: int = Field(ge=1, le=60)
    claim: Text
    scene: SceneT
    predict: Predict
    do: Do
    reveal: Reveal
    notice: Notice


class _SomeScene(Scene):
    """Stands in for a scene of a kind that does not exist, so that only the kind is complained of."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["memories", "decision", "ladder", "twins"]


LESSONS: Mapping[str, type[Lesson[Any]]] = {
    "memories": Lesson[MemoriesScene],
    "decision": Lesson[DecisionScene],
    "ladder": Lesson[LadderScene],
    "twins": Lesson[TwinsScene],
}
"""Kind of scene to the lessons around it; the list is closed."""


@dataclass(frozen=True, slots=True)
class SceneKind:
    """What a lesson's file may say of a scene: its kind, its settings, and the values that checks may ask for."""

    kind: str
    settings: tuple[str, ...]
    values: tuple[str, ...]


def scene_kinds() -> list[SceneKind]:
    """All kinds of scenes, for whoever writes a lesson."""
    kinds = []
    for kind, lesson in LESSONS.items():
        scene = lesson.model_fields["scene"].annotation
        assert isinstance(scene, type) and issubclass(scene, Scene)
        settings = tuple(name for name in scene.model_fields if name != "kind")
        kinds.append(SceneKind(kind, settings, tuple(scene.VALUES)))
    return kinds


def read_lesson(path: Path) -> Lesson[Any]:
    """The lesson in a TOML file. Raises `InputError` with file, line, key and what is allowed."""
    lesson = read_model(path, LESSONS.get(_kind_in(path), Lesson[_SomeScene]))
    for number, check in enumerate(lesson.do.check):
        if wrong := _wrong_value(lesson.scene, check):
            line = line_of(path.read_text(encoding="utf-8"), ("do", "check", number, "value"))
            raise InputError(f"{path.name}, line {line}: do.check.{number + 1}.value: {wrong}.")
    return lesson


def _kind_in(path: Path) -> str:
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8"))["scene"]["kind"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _wrong_value(scene: Scene, check: Check) -> str:
    """What is wrong with the value a check asks for; empty when nothing is."""
    if check.value not in scene.VALUES:
        return f"this scene has no value “{check.value}”. Allowed: {', '.join(scene.VALUES)}"
    kind, given = scene.VALUES[check.value], float if check.is_ is None else type(check.is_)
    if given is kind:
        return ""
    return f"“{check.value}” is {TYPE_NAMES[kind]}" + ("" if kind is float else ", which is compared by is")
