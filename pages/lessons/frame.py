"""What stands around every page of a lesson: its look, the strip of its pages, and the ways on and back."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from memrl_core.figures.picture import Shown
from memrl_core.lessons import progress
from memrl_core.lessons.progress import PAGES, Page, Progress
from memrl_core.lessons.words import Words
from pages.shared import lesson_place as places
from pages.shared.lesson_place import At, browser
from pages.shared.picture import show

PRESENTED_TYPE = 18
STILL = """<style>
@media (prefers-reduced-motion: reduce) {
  *, *::before, *::after { transition: none !important; animation: none !important; scroll-behavior: auto !important; }
}
.st-key-lesson_in_browser { position: absolute; }
</style>"""
PRESENTING = """<style>
html { font-size: 140% !important; }
[data-testid="stHeader"], [data-testid="stSidebar"] { display: none !important; }
.stMainBlockContainer { max-width: 72rem; margin: 0 auto; padding-top: 1.5rem; }
</style>"""


def look(presenting: bool) -> None:
    """Nothing moves for those who asked for that; large type and no menu while presenting."""
    st.html(STILL)
    if presenting:
        st.html(PRESENTING)


def chart(at: At, picture: Shown, key: str) -> None:
    """A picture with its table; its type grows with that of the page while presenting."""
    if at.presenting:
        picture.figure.update_layout(font_size=PRESENTED_TYPE)
    show(picture, key)


def title_of(page: Page, words: Words) -> str:
    """What a page of a lesson is called."""
    return str(getattr(words, page))


def strip(at: At) -> None:
    """The lesson's title and its five pages, each a way there: seen, open, or still closed."""
    st.subheader(at.lesson.title)
    with st.container(horizontal=True, key="lesson_strip", gap="small"):
        for number, page in enumerate(PAGES, start=1):
            st.button(
                f"{number} {title_of(page, at.words)}",
                icon=_icon(at, page),
                key=f"page_{page}",
                type="primary" if page == at.page else "tertiary",
                on_click=places.go,
                kwargs={places.PAGE: page},
            )


def moves(at: At, keys: Sequence[str]) -> None:
    """Back and next, by button and by arrow key, through the pages and then to the next lesson of `keys`."""
    here = PAGES.index(at.page)
    st.divider()
    with st.container(horizontal=True, vertical_alignment="center", key="lesson_moves"):
        if here:
            _move(at.words.back, "left", {places.PAGE: PAGES[here - 1]})
        else:
            _move(at.words.all_lessons, "left", {places.LESSON: None})
        if here + 1 < len(PAGES):
            _move(at.words.next, "right", {places.PAGE: PAGES[here + 1]})
        elif following := [key for key in keys if key > at.key]:
            _move(at.words.next_lesson, "right", {places.LESSON: following[0], places.PAGE: PAGES[0]})
        else:
            _move(at.words.all_lessons, "right", {places.LESSON: None})
        if at.presenting:
            label, icon, mode = at.words.leave_presenting, ":material/close_fullscreen:", None
        else:
            label, icon, mode = at.words.present, ":material/slideshow:", "1"
        st.button(label, icon=icon, type="tertiary", key="present", on_click=places.go, kwargs={places.PRESENTER: mode})
        if not at.presenting:
            start_again(at)


def start_again(at: At) -> None:
    """Clear this lesson; the list, and the lesson itself, offer to undo it."""
    st.button(
        at.words.start_again,
        icon=":material/replay:",
        type="tertiary",
        key="start_again",
        on_click=_clear,
        args=(at.key,),
    )


def undo(key: str, known: Progress, words: Words) -> None:
    """The way back from a lesson that was cleared."""
    if key in known.cleared:
        with st.container(horizontal=True, vertical_alignment="center", key=f"cleared_{key}"):
            st.caption(words.cleared)
            st.button(
                words.undo,
                icon=":material/undo:",
                type="tertiary",
                key=f"undo_{key}",
                on_click=places.act,
                args=(lambda: progress.undo_start_again(browser(), key),),
            )


def _clear(key: str) -> None:
    places.act(lambda: progress.start_again(browser(), key))
    places.go(**{places.PAGE: PAGES[0]})


def _move(label: str, arrow: str, where: dict[str, str | None]) -> None:
    icon = ":material/arrow_back:" if arrow == "left" else ":material/arrow_forward:"
    st.button(
        label,
        icon=icon,
        key=f"move_{arrow}",
        type="primary" if arrow == "right" else "secondary",
        shortcut=arrow,
        on_click=places.go,
        kwargs=where,
    )


def _icon(at: At, page: Page) -> str | None:
    if not progress.opens(at.lesson, at.kept, page):
        return ":material/lock:"
    return ":material/check:" if page in at.kept.seen and page != at.page else None
