"""The way from Home to the lessons and the Lab."""

from __future__ import annotations

import streamlit as st

from memrl_core.errors import MemRLError
from memrl_core.lessons import progress
from memrl_core.lessons.shelf import load_shelf
from pages.shared import lesson_place
from pages.shared.lesson_place import browser

SHOWN = 3


def lessons_and_lab() -> None:
    """The next lessons that are not finished, and the Lab."""
    try:
        shelf = load_shelf()
    except MemRLError:
        return
    known, words = progress.load_progress(browser()), shelf.words
    st.subheader("Learn how it works")
    waiting = [key for key in shelf.lessons if not known.of(key).finished] or list(shelf.lessons)
    *columns, last = st.columns(SHOWN + 1)
    for column, key in zip(columns, waiting, strict=False):
        with column, st.container(border=True, height="stretch"):
            st.markdown(f"**{shelf.lessons[key].title}**")
            st.caption(shelf.lessons[key].summary)
            kept = known.of(key)
            label = words.go_on if kept.seen else words.begin
            if st.button(label, icon=":material/school:", type="tertiary", key=f"home_{key}"):
                where = {lesson_place.LESSON: key, lesson_place.PAGE: progress.next_page(kept)}
                st.switch_page("pages/lessons/page.py", query_params=where)
    with last, st.container(border=True, height="stretch"):
        st.markdown("**Lab**")
        st.caption("Two agents side by side under two settings, and a world that shifts under them.")
        if st.button("Open the Lab", icon=":material/science:", type="tertiary", key="home_lab"):
            st.switch_page("pages/lab/page.py")
