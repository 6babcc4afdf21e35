"""Where the person is in the lessons: lesson, page and presenter mode, kept in the URL; and what they do there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st
from pydantic import JsonValue

from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.lessons import progress
from memrl_core.lessons.lesson import Lesson
from memrl_core.lessons.progress import PAGES, Kept, Page
from memrl_core.lessons.scene import Value
from memrl_core.lessons.shelf import Shelf, lessons_bank, must_be_recorded
from memrl_core.lessons.words import Words, filled
from pages.shared import place as places
from pages.shared.lesson_browser import browser
from pages.shared.text import literal

LESSON, PAGE, PRESENTER = NAMES = ("lesson", "page", "presenter")
STORED, MOVED = "lesson_place", "lesson_moved"


@dataclass(frozen=True)
class At:
    """A page of a lesson, how far the person is, and what the scene yields now.

    `bank` is None, and `trouble` a sentence, when the scene cannot be shown.
    """

    key: str
    lesson: Lesson[Any]
    page: Page
    kept: Kept
    words: Words
    presenting: bool
    bank: MemoryBank | None
    values: Mapping[str, Value]
    trouble: str


def go(**changes: str | None) -> None:
    """Move to a lesson, a page, or into and out of presenter mode; None leaves it."""
    kept = {**st.session_state.get(STORED, {}), **changes}
    st.session_state[STORED] = {name: value for name, value in kept.items() if value is not None}
    # As on the other pages, the URL follows in the run of the page: what a callback writes there comes too late.
    st.session_state[MOVED] = True


def keep(key: str, how: Callable[[Kept], Kept]) -> None:
    """Store a change of a lesson; a failure gets its sentence on the page."""
    act(lambda: progress.change(browser(), key, how))


def act(what: Callable[[], object]) -> None:
    """Do something in a callback; a failure gets its sentence on the page."""
    try:
        what()
    except MemRLError as error:
        st.session_state["failure"] = str(error)


def do(key: str, **changes: JsonValue) -> None:
    """Do something in the scene of a lesson."""
    keep(key, lambda kept: progress.moved(kept, **changes))


def current(shelf: Shelf) -> At | None:
    """The page that the URL names; None for the list. What the URL names and is not there gets a notice.

    Seeing a page is stored, and so is every check that holds now.
    """
    asked = {name: st.query_params[name] for name in NAMES if name in st.query_params}
    if st.session_state.pop(MOVED, False):
        asked = st.session_state[STORED]
    asked = _that_exist(shelf, asked)
    st.session_state[STORED] = asked
    st.query_params.from_dict(asked)
    if LESSON not in asked:
        return None
    key = asked[LESSON]
    lesson, page = shelf.lessons[key], next(p for p in PAGES if p == asked[PAGE])
    bank, values, trouble = _observed(lesson, progress.load_progress(browser()).of(key))
    progress.change(browser(), key, lambda kept: _seen(lesson, kept, values, page))
    kept = progress.load_progress(browser()).of(key)
    return At(key, lesson, page, kept, shelf.words, PRESENTER in asked, bank, values, trouble)


def _seen(lesson: Lesson[Any], kept: Kept, values: Mapping[str, Value], page: Page) -> Kept:
    kept = progress.observed(lesson, progress.fitting(lesson, kept), values)
    return progress.saw(lesson, kept, page)


def _that_exist(shelf: Shelf, asked: Mapping[str, str]) -> dict[str, str]:
    """What of a link can be shown."""
    key = asked.get(LESSON)
    if key is None or key not in shelf.lessons:
        if key is not None:
            _notice(filled(shelf.words.unknown_lesson, name=literal(key[:80])))
        return {}
    page = asked.get(PAGE, PAGES[0])
    if page not in PAGES:
        _notice(filled(shelf.words.unknown_page, name=literal(page[:80])))
        page = PAGES[0]
    return {LESSON: key, PAGE: page, **({PRESENTER: "1"} if asked.get(PRESENTER) == "1" else {})}


def _observed(lesson: Lesson[Any], kept: Kept) -> tuple[MemoryBank | None, Mapping[str, Value], str]:
    try:
        bank = places.opened(str(lessons_bank()))
        bank.refresh()
        must_be_recorded(bank)
        return bank, lesson.scene.observe(bank, kept.inputs), ""
    except MemRLError as error:
        return None, {}, str(error)


def _notice(sentence: str) -> None:
    st.toast(sentence, icon=":material/link_off:", duration="long")
