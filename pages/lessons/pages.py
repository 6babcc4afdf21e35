"""The five pages of a lesson: claim, predict, do, reveal, notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from memrl_core.lessons import progress
from memrl_core.lessons.lesson import Check
from memrl_core.lessons.progress import Page
from memrl_core.lessons.words import filled
from pages.lessons.frame import title_of
from pages.lessons.scenes import draw
from pages.shared import lesson_place as places
from pages.shared.lesson_place import At
from pages.shared.text import literal


def page(at: At) -> None:
    """The page the person is on, or what is to be done before it opens."""
    if progress.opens(at.lesson, at.kept, at.page):
        _PAGES[at.page](at)
    else:
        _closed(at)


def _claim(at: At) -> None:
    st.markdown(at.lesson.claim)


def _predict(at: At) -> None:
    predict = at.lesson.predict
    st.markdown(predict.question)
    st.markdown(f"**{at.words.your_prediction}**")
    # Buttons, and no radio: it would keep the focus, and the arrow keys would change the choice and not the page.
    for number, choice in enumerate(predict.choices, start=1):
        chosen = number == at.kept.prediction
        st.button(
            choice,
            icon=":material/radio_button_checked:" if chosen else ":material/radio_button_unchecked:",
            key=f"prediction_{number}",
            type="primary" if chosen else "secondary",
            disabled=at.kept.locked,
            on_click=places.keep,
            args=(at.key, lambda kept, number=number: progress.predicted(at.lesson, kept, number)),
        )
    if at.kept.locked:
        st.caption(at.words.prediction_locked)
    elif at.kept.prediction is not None:
        st.caption(at.words.prediction_kept)


def _do(at: At) -> None:
    st.markdown(at.lesson.do.text)
    _checks(at)
    _scene(at, live=True)


def _reveal(at: At) -> None:
    _verdict(at)
    st.markdown(at.lesson.reveal.text)
    _scene(at, live=False)


def _notice(at: At) -> None:
    st.markdown("\n".join(f"- {point}" for point in at.lesson.notice.points))
    _verdict(at)


_PAGES: Mapping[Page, Callable[[At], None]] = {
    "claim": _claim,
    "predict": _predict,
    "do": _do,
    "reveal": _reveal,
    "notice": _notice,
}


def _closed(at: At) -> None:
    st.info(at.words.closed, icon=":material/lock:")
    missing = progress.missing_before(at.lesson, at.kept, at.page)
    for earlier in missing:
        _link(at, earlier)
    for check in at.lesson.do.check if "do" in missing else ():
        if check.condition not in at.kept.passed:
            _check(at, check)


def _link(at: At, target: Page) -> None:
    st.button(
        filled(at.words.go_there, page=title_of(target, at.words)),
        icon=":material/arrow_forward:",
        key=f"go_{target}",
        on_click=places.go,
        kwargs={places.PAGE: target},
    )


def _checks(at: At) -> None:
    st.markdown(f"**{at.words.checks}**")
    for check in at.lesson.do.check:
        _check(at, check)


def _check(at: At, check: Check) -> None:
    passed = check.condition in at.kept.passed
    mark = ":material/check_box:" if passed else ":material/check_box_outline_blank:"
    with st.container(horizontal=True, vertical_alignment="center", key=f"check_{at.lesson.do.check.index(check)}"):
        st.markdown(f"{mark} {check.label}", width="content")
        if not passed:
            with st.popover(at.words.hint, type="tertiary"):
                st.markdown(check.hint)


def _verdict(at: At) -> None:
    predict, words = at.lesson.predict, at.words
    assert at.kept.prediction is not None
    you_said = filled(words.you_said, choice=predict.choices[at.kept.prediction - 1])
    if progress.is_right(at.lesson, at.kept):
        st.success(f"**{words.right}** {you_said}\n\n{predict.because}", icon=":material/check_circle:")
        return
    answer = filled(words.answer_was, choice=predict.choices[predict.answer - 1])
    st.info(f"**{words.wrong}** {you_said}\n\n{answer}\n\n{predict.because}", icon=":material/lightbulb:")


def _scene(at: At, live: bool) -> None:
    if at.bank is None:
        st.error(literal(at.trouble), icon=":material/error:")
    else:
        draw(at, at.bank, live)
