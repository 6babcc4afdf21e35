"""The way from Home to the lessons and the Lab."""

from __future__ import annotations

import streamlit as st

from memrl_core.lessons.lesson import load_shelf
from pages.shared.text import literal

SHOWN = 3


def lessons_and_lab() -> None:
    """The first lessons, and the Lab."""
    lessons = load_shelf().lessons
    st.subheader("Learn how it works")
    *columns, last = st.columns(SHOWN + 1)
    for column, (key, lesson) in zip(columns, lessons.items(), strict=False):
        with column, st.container(border=True, height="stretch"):
            st.markdown(f"**{literal(lesson.title)}**")
            st.caption(literal(lesson.predict.question))
            if st.button("Begin", icon=":material/school:", type="tertiary", key=f"home_{key}"):
                st.switch_page("pages/lessons/page.py", query_params={"lesson": key})
    with last, st.container(border=True, height="stretch"):
        st.markdown("**Lab**")
        st.caption("Two agents side by side under two settings, and a world that shifts under them.")
        if st.button("Open the Lab", icon=":material/science:", type="tertiary", key="home_lab"):
            st.switch_page("pages/lab/page.py")
