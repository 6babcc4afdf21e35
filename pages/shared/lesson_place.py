"""Where the person is in the lessons: lesson, page and presenter mode, kept in the URL; and what they do there."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st
from pydantic import JsonValue

from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.lessons import progress
from memrl_core.lessons.lesson import Lesson
from memrl_core.lessons.progress import BROWSER, PAGES, Kept, Page
from memrl_core.lessons.scene import Value
from memrl_core.lessons.shelf import Shelf, lessons_bank, must_be_recorded
from memrl_core.lessons.words import Words, filled
from pages.shared import place as places
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


BROWSER_ID, COOKIE = "lesson_browser", "memrl_browser"

_in_browser = st.components.v2.component(
    "memrl_lessons",
    js=f"""
export default function ({{ data, setStateValue }}) {{
  // Another tab may have given this browser its id since this session began.
  const known = document.cookie.match(/(?:^|; ){COOKIE}=({BROWSER.pattern})(?:;|$)/)?.[1];
  if (known && known !== data.browser) setStateValue("known", known);
  else document.cookie = "{COOKIE}=" + data.browser + "; path=/; max-age=31536000; SameSite=Strict";
  // Streamlit leaves the page scrolled where the one before it was.
  if (window.memrlLessonAt !== data.at) {{
    document.querySelector('[data-testid="stMain"]').scrollTo({{ top: 0, behavior: "instant" }});
    window.memrlLessonAt = data.at;
  }}
}}
""",
)


def browser() -> str:
    """The id under which this browser's progress is kept; one of the session where the browser keeps no cookies."""
    given = st.context.cookies.get(COOKIE, "")
    return str(st.session_state.setdefault(BROWSER_ID, given if BROWSER.fullmatch(given) else secrets.token_hex(16)))


def in_browser(at: str) -> None:
    """Keep the id in the browser, and begin at the top of the page when `at` is another page than before."""
    data = {"browser": browser(), "at": at}
    with st.container(key="lesson_in_browser"):
        known = _in_browser(key="lesson_browser_kept", data=data, on_known_change=lambda: None, height=1).known
    if known and BROWSER.fullmatch(str(known)) and known != browser():
        st.session_state[BROWSER_ID] = known
        st.rerun()
