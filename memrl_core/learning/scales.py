"""Scales on which a person rates an answer, and the reward R that each rating becomes.

`low` and `high` are the run's r− and r+. A scale is laid linearly between them where no reward of its own is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from memrl_core.errors import InputError, SettingsError
from memrl_core.numerals import short, signed
from memrl_core.settings import sentence_of

Scale = Literal["thumbs", "graded", "stars", "pairwise", "rubric"]
Choice = Literal["first", "second", "tie"]
LARGEST_REWARD = 10.0
Reward = Annotated[float, Field(ge=-LARGEST_REWARD, le=LARGEST_REWARD)]

MARKS = range(1, 6)
GRADES = (-1.0, -0.5, 0.0, 0.5, 1.0)
IN_ORDER = (("thumbs_down", "thumbs_up"), ("worse", "tie", "better"))


class Criterion(BaseModel):
    """One thing that the rubric asks about, rated from 1 to 5."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    name: str = Field(min_length=1, max_length=60, title="Criterion", description="What is rated, in a word or two.")
    weight: float = Field(1.0, gt=0, le=100, title="Weight", description="How much it counts beside the others.")

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if len(name.splitlines()) > 1:
            raise ValueError("the name of a criterion is one line")
        return name


class RatingScales(BaseModel):
    """Which scale raters see first, what each rating is worth, and how raters are kept apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    scale: Scale = Field("thumbs", title="Scale", description="The scale that the screen offers first.")
    thumbs_up: Reward | None = Field(None, title="R of thumbs up", description="Empty: the run's r+.")
    thumbs_down: Reward | None = Field(None, title="R of thumbs down", description="Empty: the run's r−.")
    stars: tuple[Reward, Reward, Reward, Reward, Reward] | None = Field(
        None, title="R of 1 … 5 stars", description="Empty: in equal parts from r− to r+. It must not fall."
    )
    better: Reward | None = Field(
        None,
        title="R of the better",
        description="Of two answers. Empty: the run's r+, and where both failed the reward of equals.",
    )
    worse: Reward | None = Field(
        None,
        title="R of the worse",
        description="Of two answers. Empty: the run's r−, and where both succeeded the reward of equals.",
    )
    tie: Reward | None = Field(
        None, title="R of equals", description="Of two equal answers. Empty: halfway between worse and better."
    )
    criteria: tuple[Criterion, ...] = Field(
        (Criterion(name="correct", weight=2), Criterion(name="complete"), Criterion(name="clear")),
        min_length=1,
        max_length=8,
        title="Criteria of the rubric",
        description="Each is rated from 1 to 5; R is their weighted mean, laid from r− to r+.",
    )
    hide_verdict: bool = Field(
        True,
        title="Rate blind",
        description="The environment's verdict and the ratings of others stay hidden until one has rated.",
    )
    ratings_wanted: int | None = Field(
        None,
        ge=1,
        le=20,
        title="Ratings wanted",
        description="How many people should rate a step. Empty: one, and two once two people have rated in the bank.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for names in IN_ORDER:
            rewards = [reward for reward in (getattr(self, name) for name in names) if reward is not None]
            if rewards != sorted(rewards):
                raise ValueError(f"rewards must not fall from {' to '.join(names)}")
        if self.stars is not None and list(self.stars) != sorted(self.stars):
            raise ValueError("rewards must not fall from 1 to 5 stars")
        if len({criterion.name for criterion in self.criteria}) < len(self.criteria):
            raise ValueError("two criteria have the same name")
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validate `values`; raise `SettingsError` with one sentence that names each wrong value."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise SettingsError(sentence_of(error)) from None

    def bounds(self, low: float, high: float) -> tuple[float, float]:
        """The smallest and the largest reward that any of these scales gives."""
        own = [self.thumbs_up, self.thumbs_down, self.better, self.worse, self.tie, *(self.stars or ())]
        rewards = [low, high, *(reward for reward in own if reward is not None)]
        return min(rewards), max(rewards)

    def must_rise(self, low: float, high: float) -> None:
        """Raise `SettingsError` where a better rating is worth less once the run's own rewards stand in the gaps."""
        bad, good = (thumbs_reward(self, up, low, high) for up in (False, True))
        better, worse = pairwise_rewards(self, "first", low, high)
        tie, _ = pairwise_rewards(self, "tie", low, high)
        for what, rewards in (("bad to good", (bad, good)), ("worse over equal to better", (worse, tie, better))):
            if list(rewards) != sorted(rewards):
                listed = ", ".join(map(_signed, rewards))
                raise SettingsError(
                    f"With r− {_signed(low)} and r+ {_signed(high)} of this run, rewards must not fall from {what}: "
                    f"{listed}. Nothing was changed; give both ends a reward of their own."
                )


def thumbs_reward(scales: RatingScales, up: bool, low: float, high: float) -> float:
    """R of a thumb. Raises `InputError` when no thumb is given."""
    if up not in (True, False):
        raise InputError("That is no thumb: choose up or down. Nothing was saved.")
    own, otherwise = (scales.thumbs_up, high) if up else (scales.thumbs_down, low)
    return otherwise if own is None else own


def graded_reward(value: float, low: float, high: float) -> float:
    """R of a value from −1 to 1. Raises `InputError` when it lies outside or is not a number."""
    if not -1 <= value <= 1:
        raise InputError(f"{value:g} is not on the scale: give a number from −1 to 1. Nothing was saved.")
    return _between(low, high, (value + 1) / 2)


def stars_reward(scales: RatingScales, stars: int, low: float, high: float) -> float:
    """R of 1 to 5 whole stars. Raises `InputError` for any other number."""
    if stars not in MARKS:
        raise InputError(f"{str(stars)[:80]} is not a number of stars: give 1, 2, 3, 4 or 5. Nothing was saved.")
    return _between(low, high, _part(stars)) if scales.stars is None else scales.stars[int(stars) - 1]


def pairwise_rewards(
    scales: RatingScales, choice: Choice, low: float, high: float, both: str = ""
) -> tuple[float, float]:
    """R of the first and of the second of two answers. Raises `InputError` for an unknown choice.

    `both` is "failure" or "success" where both ended so: then the better of two failures, or the worse of two
    successes, gets the reward of equals unless it has one of its own. To be preferred is not to have succeeded.
    """
    better = high if scales.better is None else scales.better
    worse = low if scales.worse is None else scales.worse
    tie = _between(worse, better, 0.5) if scales.tie is None else scales.tie
    if both == "failure" and scales.better is None:
        better = tie
    if both == "success" and scales.worse is None:
        worse = tie
    rewards = {"first": (better, worse), "second": (worse, better), "tie": (tie, tie)}
    if choice not in rewards:
        raise InputError(f"“{str(choice)[:80]}” is no choice: say first, second or tie. Nothing was saved.")
    return rewards[choice]


def rubric_reward(scales: RatingScales, marks: Mapping[str, int], low: float, high: float) -> float:
    """R of one mark per criterion, each 1 to 5.

    Raises `InputError` when a criterion is unknown, is missing or has another mark.
    """
    weights = {criterion.name: criterion.weight for criterion in scales.criteria}
    for name, mark in marks.items():
        if name not in weights:
            asked = ", ".join(weights)
            raise InputError(f"“{name[:80]}” is not a criterion here: rate {asked}. Nothing was saved.")
        if mark not in MARKS:
            raise InputError(f"{str(mark)[:80]} is not a mark for {name}: give 1, 2, 3, 4 or 5. Nothing was saved.")
    missing = [name for name in weights if name not in marks]
    if missing:
        raise InputError(f"No mark for {', '.join(missing)}: rate every criterion from 1 to 5. Nothing was saved.")
    total = sum(weights.values())
    return _between(low, high, sum(weight * _part(marks[name]) for name, weight in weights.items()) / total)


@dataclass(frozen=True, slots=True)
class Option:
    """One choice on a scale: its key from 1 (bad) to 5 (good), its label, the reward R that it becomes, and what is
    kept of it with the reward."""

    key: int
    label: str
    reward: float
    given: Mapping[str, Any]


def options(scales: RatingScales, scale: Scale, low: float, high: float) -> tuple[Option, ...]:
    """What one key gives on a scale, worst first. Empty for pairs and rubrics, which take more."""
    rows: list[tuple[int, str, float, Mapping[str, Any]]]
    if scale == "thumbs":
        rows = [
            (MARKS[0], "Bad", thumbs_reward(scales, False, low, high), {"thumb": "down"}),
            (MARKS[-1], "Good", thumbs_reward(scales, True, low, high), {"thumb": "up"}),
        ]
    elif scale == "graded":
        graded = zip(MARKS, GRADES, strict=True)
        rows = [(key, _grade(grade), graded_reward(grade, low, high), {"grade": grade}) for key, grade in graded]
    else:
        marks = MARKS if scale == "stars" else ()
        rows = [(mark, str(mark), stars_reward(scales, mark, low, high), {"stars": mark}) for mark in marks]
    return tuple(Option(key, label, reward, {"scale": scale, **given}) for key, label, reward, given in rows)


def _grade(grade: float) -> str:
    return f"+{short(grade)}" if grade > 0 else short(grade)


def mapping_words(scales: RatingScales, scale: Scale, low: float, high: float) -> str:
    """What each rating on `scale` is worth, as one line beside the buttons."""
    match scale:
        case "thumbs" | "stars":
            given = options(scales, scale, low, high)
            return " · ".join(f"{one.label.lower()} → {_signed(one.reward)}" for one in given)
        case "graded":
            return f"−1 … 1 → {_signed(low)} … {_signed(high)}"
        case "pairwise":
            better, worse = map(_signed, pairwise_rewards(scales, "first", low, high))
            equal = _signed(pairwise_rewards(scales, "tie", low, high)[0])
            return f"worse → {worse} · equal → {equal} · better → {better}"
        case "rubric":
            return f"R = {_weighted_mean(scales.criteria)}, 1 … 5 → {_signed(low)} … {_signed(high)}"


def _weighted_mean(criteria: tuple[Criterion, ...]) -> str:
    if len(criteria) == 1:
        return criteria[0].name
    terms = (c.name if c.weight == 1 else f"{c.weight:g}·{c.name}" for c in criteria)
    return f"({' + '.join(terms)}) / {sum(c.weight for c in criteria):g}"


def _part(mark: int) -> float:
    """How far up the scale a mark stands, 0 … 1."""
    return (mark - MARKS[0]) / (MARKS[-1] - MARKS[0])


def _between(low: float, high: float, part: float) -> float:
    # Unlike low + part · (high − low), this form meets both ends exactly.
    return low * (1 - part) + high * part


def _signed(value: float) -> str:
    text = signed(value, 2)
    return "0.00" if text == "+0.00" else text
