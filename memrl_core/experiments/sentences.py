"""Sentences of lessons, the room and the documents that state an effect, each with its predicate.

A predicate is a list of bounds. A bound is a measure of `memrl_core.lessons.measures`, the settings that the sentence
speaks of, as far as the reader's hand reaches, and between which points the mean over fresh seeds lies: seeds that
nobody looked at when the sentence was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from math import inf
from statistics import fmean, stdev
from typing import Any

from memrl_core.experiments.toml_files import read_model
from memrl_core.lessons.lesson import Lesson, shipped_folder
from memrl_core.lessons.measures import OF_RUN, ON_THE_PLANE, run_of
from memrl_core.lessons.room import QUESTIONS
from memrl_core.lessons.world import Settings

FRESH = 40
Given = dict[str, Any]
Measured = Callable[[str, Sequence[Settings]], Sequence[float]]
"""A measure of each of some settings."""


def first_fresh_seed() -> int:
    """A number of today's date, such as 2026112700: the first of 40 seeds that no other day has."""
    return int(f"{datetime.now(UTC):%Y%m%d}00")


@cache
def _of_run(settings: Settings) -> dict[str, float]:
    run = run_of(settings)
    return {name: measure(run) for name, measure in OF_RUN.items()}


@cache
def _on_the_plane(name: str, settings: Settings) -> float:
    return ON_THE_PLANE[name](settings)


def computed(name: str, settings: Sequence[Settings]) -> list[float]:
    """A measure of each of some settings, kept: sentences ask for the same runs."""
    return [_of_run(one)[name] if name in OF_RUN else _on_the_plane(name, one) for one in settings]


@dataclass(frozen=True, slots=True)
class Bound:
    """Between which points (hundredths of the measure) the mean over seeds lies, for each of `settings`.

    With `against` it is the mean difference to those settings, paired by seed; with `other`, to another measure.
    """

    measure: str
    least: float = -inf
    most: float = inf
    settings: tuple[Given, ...] = ({},)
    against: Given | None = None
    other: str = ""

    def found(self, seeds: Sequence[int], measured: Measured = computed) -> Iterator[tuple[str, bool]]:
        """For each of the settings, what was computed in words, and whether it is within the bounds."""
        for given in self.settings:
            values = measured(self.measure, [Settings(seed=seed, **given) for seed in seeds])
            beside = [0.0] * len(seeds)
            if self.against is not None or self.other:
                there = given if self.against is None else self.against
                beside = list(measured(self.other or self.measure, [Settings(seed=seed, **there) for seed in seeds]))
            points = [100 * (value - other) for value, other in zip(values, beside, strict=True)]
            mean, half = fmean(points), 1.96 * stdev(points) / len(points) ** 0.5
            words = f"{self.measure} {_words(given)}"
            if self.other or self.against is not None:
                words += (
                    f" minus {self.other or self.measure} {_words(given if self.against is None else self.against)}"
                )
            yield (
                f"{words}: {mean:.1f} ± {half:.1f}, stated {_range(self.least, self.most)}",
                (self.least <= mean <= self.most),
            )


def _words(given: Given) -> str:
    return "(" + ", ".join(f"{name} {value}" for name, value in given.items()) + ")"


def _range(least: float, most: float) -> str:
    if most == inf:
        return f"{least:g} and more"
    return f"{most:g} and less" if least == -inf else f"{least:g} to {most:g}"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words that stand in `where`, relative to the checkout, and the bounds that make them true."""

    where: str
    says: str
    bounds: tuple[Bound, ...] = field(repr=False)


def _each(name: str, *values: Any) -> tuple[Given, ...]:
    return tuple({name: value} for value in values)


DEFAULT: Given = {}
NEVER: Given = {"shifts": ()}
BY_SIMILARITY: Given = {"weight": 0.0}


def more(measure: str, settings: Sequence[Given], against: Given = DEFAULT, by: float = 0.0) -> Bound:
    """The measure is larger than under `against`, for every one of the settings."""
    return Bound(measure, least=by, settings=tuple(settings), against=against)


def less(measure: str, settings: Sequence[Given], against: Given = DEFAULT, by: float = 0.0) -> Bound:
    """The measure is smaller than under `against`, for every one of the settings."""
    return Bound(measure, most=-by, settings=tuple(settings), against=against)


def about(measure: str, low: float, high: float, *settings: Given) -> Bound:
    """The measure itself, in points."""
    return Bound(measure, low, high, settings or (DEFAULT,))


_Q, _GATED = ({"weight": 0.5},), tuple({"weight": 1.0, "delta": delta} for delta in (0.6, 0.7, 0.8))
_WIDE: Given = {"k1": 48, "delta": -0.1}
_NO_SHIFT_BY_SIMILARITY = {"weight": 0.0, "shifts": ()}
ANSWERS: dict[str, tuple[Bound, ...]] = {
    "01-frozen-and-plastic": (about("trained_kept", 40, 58),),
    "02-similarity-cannot-let-go": (
        more("changed", _Q, BY_SIMILARITY, by=5),
        more("stayed", _Q, BY_SIMILARITY),
    ),
    "03-alpha": (
        less("before", _each("alpha", 1.0)),
        less("before", _each("alpha", 1.0), {"alpha": 0.02}),
        more("changed", _each("alpha", 1.0)),
        more("changed", _each("alpha", 1.0), {"alpha": 0.02}),
    ),
    "04-blind-to-meaning": (less("before", _each("weight", 0.75, 0.9, 1.0), by=3),),
    "05-the-gate": (
        more("before", _GATED, {"weight": 1.0}),
        less("changed", _GATED, {"weight": 1.0}),
    ),
    "06-how-many": (less("before", _each("k2", 1)),),
    "07-never-tried": (
        Bound("changed", most=1, settings=_each("epsilon", 0.2, 0.4, 0.7, 1.0), against=DEFAULT),
        less("stayed", _each("epsilon", 0.2, 0.4, 0.7, 1.0)),
    ),
    "08-the-same-words": (about("pair", 100, 200, {}, {"k2": 8}),),
    "09-one-life": (about("fallen", 65, 98),),
    "10-the-gap": (about("gap", 8, 20, NEVER),),
    "12-forgetting": (
        Bound("replayed_gained", most=-5, other="trained_gained"),
        Bound("anchored_gained", most=-5, other="trained_gained"),
    ),
    "13-precision-and-recall": (
        more("precision", ({"k1": 48, "delta": 0.8},), _WIDE, by=40),
        less("recall", ({"k1": 48, "delta": 0.8},), _WIDE, by=15),
    ),
    "14-who-earned-it": (about("company", 72, 87),),
    "15-what-transfers": (
        about("held_out", 68, 84),
        Bound("held_out", -10, 2, other="seen"),
    ),
    "11-a-full-memory": (
        more("changed", _each("keep", 48)),
        less("stayed", _each("keep", 24, 48), by=8),
    ),
}
"""What makes the right choice of each lesson right."""

REASONS: tuple[tuple[str, str, tuple[Bound, ...]], ...] = (
    ("01", "The trained model could do 75 % of the old ones.", (about("trained_before", 68, 82),)),
    ("01", "Guessing alone gets 40 %, so about three quarters of what it had learned is gone.",
     (about("trained_before", 68, 82), about("trained_kept", 40, 58))),
    ("01", "The memory keeps far more of the old, and learns somewhat less of the new.",
     (Bound("kept", least=15, other="trained_kept"), Bound("gained", -18, 0, other="trained_gained"))),
    ("02", "Of what stayed, q tells the reliable from the lucky.", (more("stayed", _Q, BY_SIMILARITY),)),
    ("02", "before the shift λ = 0.5 does worse than λ = 0", (less("before", _Q, BY_SIMILARITY),)),
    ("02", "In a world that never shifts it is the same: q costs at first and helps later.",
     (less("before", ({"weight": 0.5, **NEVER},), _NO_SHIFT_BY_SIMILARITY),
      more("stayed", ({"weight": 0.5, **NEVER},), _NO_SHIFT_BY_SIMILARITY),
      more("changed", ({"weight": 0.5, **NEVER},), _NO_SHIFT_BY_SIMILARITY))),
    ("03", "behind 0.3 for what changed, and little different before",
     (less("changed", _each("alpha", 0.02, 0.05)), Bound("before", -6, 3, _each("alpha", 0.02, 0.05), DEFAULT))),
    ("03", "Try 0.7: better than 0.3 after the shift, and before it forty seeds show no cost.",
     (more("changed", _each("alpha", 0.7)), Bound("before", -4, 4, _each("alpha", 0.7), DEFAULT))),
    ("04", "What it gains is quickness: what nobody trusts for long is let go sooner.",
     (more("changed", _each("weight", 0.75, 1.0)),)),
    ("04", "Not all of them are of the task's own family.", (about("precision", 0, 90, {"weight": 1.0}),)),
    ("05", "With δ = 0.7 four of five memories that come in are of the task's own family.",
     (about("precision", 76, 84, {"weight": 1.0, "delta": 0.7}),)),
    ("05", "memories of other families were also what pushed the outdated ones out of the prompt",
     (less("changed", _GATED, {"weight": 1.0}),)),
    ("06", "Three outvote it.", (more("before", _each("k2", 3, 5, 8), {"k2": 1}),)),
    ("06", "A small k1 keeps strangers out, which helps before the shift; after it, it holds on to the old.",
     (more("before", _each("k1", 6, 8)), less("changed", _each("k1", 4, 8)))),
    ("07", "Many memories are never used.", (about("never", 30, 46),)),
    ("07", "Blind choices find some of the memories that nobody tried, and cost more than they find",
     (less("never", _each("epsilon", 0.4, 1.0)), less("stayed", _each("epsilon", 0.4, 1.0)))),
    ("08", "With k2 = 1 nobody has company, and each is used less often: the twins lie closer.",
     (less("pair", _each("k2", 1), by=10), more("never", _each("k2", 1)))),
    ("09", "most end below 0, but not all", (about("fallen", 65, 98),)),
    ("09", "With α = 0.05 few do. At λ = 0, where nobody asks q, far fewer fall.",
     (about("fallen", 0, 35, {"alpha": 0.05}), less("fallen", (BY_SIMILARITY,), by=20))),
    ("10", "Let the world shift and the gap grows.", (more("gap", (DEFAULT,), NEVER),)),
    ("10", "Where the world changes again and again, it is larger still.",
     (more("gap", ({**NEVER, "change": 0.05}, {**NEVER, "change": 0.1})),)),
    ("11", "What changed is rid of its old successes; what stayed has lost its own, and before the shift there is "
     "nothing to be rid of.",
     (more("changed", _each("keep", 48)), *(less(name, _each("keep", 24, 48)) for name in ("stayed", "before")))),
    ("14", "The more memories in a prompt, the fewer of them decide.",
     (less("company", _each("k2", 1), by=20), more("company", _each("k2", 5, 8), by=3))),
    ("14", "The model follows the majority of what it reads, and to take one away seldom turns it.",
     (about("company", 72, 87),)),
    ("15", "The tasks that came reach about 80 % in the exam; guessing gets 40 %.", (about("seen", 75, 85),)),
    ("15", "those that came do about as well, and those that never came are guessed.",
     (about("held_out", 30, 50, {"delta": 0.95}), Bound("seen", -5, 5, _each("delta", 0.95), DEFAULT))),
    ("12", "Both remedies let the trained model keep more of the old tasks.",
     tuple(Bound(f"{name}_kept", least=5, other="trained_kept") for name in ("replayed", "anchored"))),
    ("12", "The frozen model with a memory keeps more than either and gains no less.",
     (*(Bound("kept", least=2, other=f"{name}_kept") for name in ("replayed", "anchored")),
      *(Bound("gained", least=-3, other=f"{name}_gained") for name in ("replayed", "anchored")))),
    ("13", "At 0.8 all that comes is right, and about a quarter of what is right stays out. False recall ends there",
     (about("precision", 99, 100, {"k1": 48, "delta": 0.8}), about("recall", 70, 80, {"k1": 48, "delta": 0.8}),
      about("false_recall", 0, 1, {"k1": 48, "delta": 0.8}))),
    ("13", "without a gate the k1 nearest always come", (about("false_recall", 87, 88, _WIDE),)),
)  # fmt: skip
"""What else lessons say after the prediction: the number of the lesson, the words, and what makes them true."""

OF_THE_ROOM: dict[str, tuple[Bound, ...]] = {
    "Does utility help when the world shifts?": (
        more("changed", _Q, BY_SIMILARITY),
        more("stayed", _Q, BY_SIMILARITY),
    ),
    "Utility alone, or similarity as well?": (less("before", _each("weight", 1.0), by=3),),
    "Stiff or nervous?": (more("changed", _each("alpha", 0.7), {"alpha": 0.05}),),
    "One memory or three?": (more("before", _each("k2", 3), {"k2": 1}),),
}
"""What makes the right choice of each question right; `memrl claims check` plays its phones as well."""


OF_TEACHING: tuple[tuple[str, tuple[Bound, ...]], ...] = (
    (
        "q costs at first and helps later, also where the world stays",
        next(bounds for _, says, bounds in REASONS if says.startswith("In a world that never shifts")),
    ),
    ("After it, it lets go sooner", (more("changed", _each("weight", 1.0)),)),
    ("in a world that never changes one task in seven fails at its latest attempt, by luck", ANSWERS["10-the-gap"]),
)
"""What the page for teachers says of effects."""


def sentences() -> Iterator[Sentence]:
    """Every sentence with its predicate: lessons, the room, and the documents."""
    lessons = {path.stem: path for path in sorted(shipped_folder().glob("*.toml"))}
    for key, bounds in ANSWERS.items():
        predict = read_model(lessons[key], Lesson).predict
        yield Sentence(f"sample_data/lessons/{key}.toml", predict.choices[predict.answer - 1], bounds)
    for number, says, bounds in REASONS:
        (key,) = (key for key in lessons if key.startswith(f"{number}-"))
        yield Sentence(f"sample_data/lessons/{key}.toml", says, bounds)
    for title, question in QUESTIONS.items():
        if question.answer is not None:
            yield Sentence("sample_data/room.toml", question.choices[question.answer], OF_THE_ROOM[title])
    for says, bounds in OF_TEACHING:
        yield Sentence("docs/teaching.md", says, bounds)
