"""How far a person is in each lesson: a file in the home folder for each browser, so that a reload loses nothing.

A browser is an id that it keeps itself; those who share a server do not see each other's predictions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from memrl_core.agent import workspace
from memrl_core.errors import InputError
from memrl_core.lessons.lesson import Lesson
from memrl_core.lessons.scene import Value

Page = Literal["claim", "predict", "do", "reveal", "notice"]
PAGES: tuple[Page, ...] = ("claim", "predict", "do", "reveal", "notice")
GUARDED: tuple[Page, ...] = ("do", "reveal", "notice")
BROWSER = re.compile("[0-9a-f]{32}")

_writing = threading.Lock()


class Kept(BaseModel):
    """One lesson as a person left it. `prediction` counts the choices from 1; `passed` holds conditions of checks."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    prediction: int | None = Field(None, ge=1, le=5)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    seen: tuple[Page, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        """Whether the prediction stands: the page was seen on which the answer can be found."""
        return "do" in self.seen or self.revealed

    @property
    def revealed(self) -> bool:
        """Whether the reveal was seen."""
        return "reveal" in self.seen

    @property
    def finished(self) -> bool:
        """Whether the last page was seen."""
        return PAGES[-1] in self.seen


class Progress(BaseModel):
    """All lessons that were begun, by key, and those cleared last, for undo."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    lessons: dict[str, Kept] = Field(default_factory=dict)
    cleared: dict[str, Kept] = Field(default_factory=dict)

    def of(self, key: str) -> Kept:
        """One lesson; as nobody has begun it when it is not there."""
        return self.lessons.get(key, Kept())


@dataclass(frozen=True, slots=True)
class Score:
    """Predictions that were right, of those whose reveal was seen; lessons finished, of all there are."""

    right: int
    predicted: int
    finished: int
    lessons: int


def missing(lesson: Lesson[Any], kept: Kept) -> tuple[Page, ...]:
    """The pages on which something is to be done before the reveal opens."""
    pages: list[Page] = []
    if kept.prediction is None:
        pages.append("predict")
    if any(check.condition not in kept.passed for check in lesson.do.check):
        pages.append("do")
    return tuple(pages)


def opens(lesson: Lesson[Any], kept: Kept, page: Page) -> bool:
    """Whether a page can be read now: nothing is missing on those before it."""
    return not missing_before(lesson, kept, page)


def missing_before(lesson: Lesson[Any], kept: Kept, page: Page) -> tuple[Page, ...]:
    """The pages before `page` on which something is to be done before it opens."""
    return tuple(earlier for earlier in missing(lesson, kept) if PAGES.index(earlier) < PAGES.index(page))


def predicted(lesson: Lesson[Any], kept: Kept, choice: int) -> Kept:
    """With another prediction. Raises `InputError` once it is locked, or for a choice that is not offered."""
    if kept.locked:
        raise InputError("You have begun to try it, so the prediction stands. Start the lesson again to predict anew.")
    if not 1 <= choice <= len(lesson.predict.choices):
        raise InputError(f"There is no choice {choice}: they are counted from 1 to {len(lesson.predict.choices)}.")
    return kept.model_copy(update={"prediction": choice})


def fitting(lesson: Lesson[Any], kept: Kept) -> Kept:
    """Without a prediction that the lesson, which may have been rewritten since, no longer offers."""
    if kept.prediction is None or kept.prediction <= len(lesson.predict.choices):
        return kept
    return kept.model_copy(update={"prediction": None, "seen": tuple(p for p in kept.seen if p not in GUARDED)})


def moved(kept: Kept, **changes: JsonValue) -> Kept:
    """With something done in the scene."""
    return kept.model_copy(update={"inputs": {**kept.inputs, **changes}})


def saw(lesson: Lesson[Any], kept: Kept, page: Page) -> Kept:
    """With a page seen, when it could be read."""
    if page in kept.seen or not opens(lesson, kept, page):
        return kept
    return kept.model_copy(update={"seen": tuple(p for p in PAGES if p == page or p in kept.seen)})


def observed(lesson: Lesson[Any], kept: Kept, values: Mapping[str, Value]) -> Kept:
    """With the checks that hold now passed; what was passed once stays so, since checks may ask for opposites."""
    new = [c.condition for c in lesson.do.check if c.condition not in kept.passed and c.holds(values)]
    return kept.model_copy(update={"passed": (*kept.passed, *new)}) if new else kept


def next_page(kept: Kept) -> Page:
    """Where to go on: the first page that was not seen, or the first of all when every one was."""
    return next((page for page in PAGES if page not in kept.seen), PAGES[0])


def is_right(lesson: Lesson[Any], kept: Kept) -> bool:
    """Whether the prediction was the answer."""
    return kept.prediction == lesson.predict.answer


def score(lessons: Mapping[str, Lesson[Any]], progress: Progress) -> Score:
    """The score over the lessons that there are."""
    known = [(lesson, progress.of(key)) for key, lesson in lessons.items()]
    judged = [(lesson, kept) for lesson, kept in known if kept.revealed and kept.prediction is not None]
    return Score(
        right=sum(is_right(lesson, kept) for lesson, kept in judged),
        predicted=len(judged),
        finished=sum(kept.finished for _, kept in known),
        lessons=len(known),
    )


def load_progress(browser: str) -> Progress:
    """The stored progress of a browser; none when nothing was stored.

    Raises `InputError` when the file cannot be read; it is put aside first, so that the next load begins anew.
    """
    place = _place(browser)
    try:
        return Progress.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        return Progress()
    except (OSError, ValidationError):
        aside = place.with_name(f"{browser}-unreadable.json")
        _put_aside(place, aside)
        raise InputError(
            f"Your progress in the lessons could not be read and begins anew. The file is kept as {aside.name}."
        ) from None


def change(browser: str, key: str, how: Callable[[Kept], Kept]) -> None:
    """Change one lesson and store it, whole or not at all. Raises `InputError` when it cannot be stored."""
    with _writing:
        progress = load_progress(browser)
        before = progress.of(key)
        after = how(before)
        if after == before:
            return
        # Once something new is done in a cleared lesson, bringing back the old state would undo that.
        begun = after.prediction is not None or after.inputs
        cleared = {name: kept for name, kept in progress.cleared.items() if name != key or not begun}
        _save(browser, Progress(lessons={**progress.lessons, key: after}, cleared=cleared))


def start_again(browser: str, key: str) -> None:
    """Clear one lesson; `undo_start_again` brings it back."""
    with _writing:
        progress = load_progress(browser)
        rest = {name: kept for name, kept in progress.lessons.items() if name != key}
        cleared = {**progress.cleared, key: progress.of(key)}
        _save(browser, Progress(lessons=rest, cleared=cleared))


def undo_start_again(browser: str, key: str) -> None:
    """Bring back what the lesson was before it was cleared."""
    with _writing:
        progress = load_progress(browser)
        if key in progress.cleared:
            rest = {name: kept for name, kept in progress.cleared.items() if name != key}
            _save(browser, Progress(lessons={**progress.lessons, key: progress.cleared[key]}, cleared=rest))


def _place(browser: str) -> Path:
    if not BROWSER.fullmatch(browser):
        raise InputError("This browser's id for the lessons cannot be used. Delete the cookies of this page.")
    return workspace.home() / "lesson-progress" / f"{browser}.json"


def _put_aside(place: Path, aside: Path) -> None:
    try:
        place.replace(aside)
    except OSError as error:
        raise InputError(
            f"Your progress in the lessons cannot be read ({error.strerror}). Make {place} readable, or delete it."
        ) from None


def _save(browser: str, progress: Progress) -> None:
    target = _place(browser)
    draft = target.with_suffix(".draft")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(progress.model_dump_json(indent=1), encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        raise InputError(
            f"Your progress in the lesson could not be saved ({error.strerror}). Make {target.parent} writable; until "
            "then it counts only what was saved before."
        ) from None
