"""The list of lessons: what there is, how far one is, and how to write another."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit as st

from memrl_core.lessons import progress
from memrl_core.lessons.lesson import Lesson, scene_kinds
from memrl_core.lessons.progress import PAGES, Kept, Progress
from memrl_core.lessons.shelf import Shelf, own_folder, shipped_folder
from memrl_core.lessons.words import Words, filled
from pages.lessons.frame import undo
from pages.shared import lesson_place as places
from pages.shared.text import literal, verbatim

COLUMNS = 2


def lessons_list(shelf: Shelf, known: Progress) -> None:
    """Every lesson with its summary and a way in; the score above, what could not be read below it."""
    words = shelf.words
    st.title(words.heading)
    st.markdown(words.introduction)
    _score(shelf, known)
    for sentence in shelf.troubles:
        st.warning(f"{words.file_troubles} {literal(sentence)}", icon=":material/draft:")
    keys = list(shelf.lessons)
    following = next((key for key in keys if not known.of(key).finished), None)
    for start in range(0, len(keys), COLUMNS):
        for column, key in zip(st.columns(COLUMNS), keys[start : start + COLUMNS], strict=False):
            with column:
                _card(key, keys.index(key) + 1, shelf.lessons[key], known, words, first=key == following)
    with st.expander(words.write_own, icon=":material/edit_note:", key="write_own"):
        _write_own(words)


def _write_own(words: Words) -> None:
    st.markdown(words.write_own_how)
    verbatim(f"{shipped_folder()}\n{own_folder()}")
    kinds = scene_kinds()
    st.table(
        {
            words.scene_kind: [scene.kind for scene in kinds],
            words.scene_settings: [literal(", ".join(scene.settings)) for scene in kinds],
            words.scene_values: [literal(", ".join(scene.values)) for scene in kinds],
        },
        hide_index=True,
        border="horizontal",
        alt=words.scene_kind,
    )


def _score(shelf: Shelf, known: Progress) -> None:
    score = progress.score(shelf.lessons, known)
    score_text = shelf.words.score if score.predicted else shelf.words.no_score
    st.markdown(f"**{filled(score_text, **asdict(score))}**")


def _card(key: str, number: int, lesson: Lesson[Any], known: Progress, words: Words, first: bool) -> None:
    kept = known.of(key)
    with st.container(border=True, height="stretch", key=f"lesson_{key}"):
        st.markdown(f"#### {number} · {lesson.title}")
        st.markdown(lesson.summary)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                words.read_again if kept.finished else words.go_on if kept.seen else words.begin,
                key=f"open_{key}",
                type="primary" if first else "secondary",
                on_click=places.go,
                kwargs={places.LESSON: key, places.PAGE: progress.next_page(kept)},
            )
            st.caption(f"{filled(words.minutes, minutes=lesson.minutes)} · {_how_far(kept, words)}")
        undo(key, known, words)


def _how_far(kept: Kept, words: Words) -> str:
    return words.finished if kept.finished else filled(words.pages_seen, seen=len(kept.seen), pages=len(PAGES))
