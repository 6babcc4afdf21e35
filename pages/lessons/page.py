"""Lessons: short sequences of claim, predict, do, reveal, notice, each around a scene of the running program."""

import streamlit as st

from memrl_core.lessons.progress import load_progress
from memrl_core.lessons.shelf import load_shelf
from pages.lessons.frame import look, moves, strip, undo
from pages.lessons.list import lessons_list
from pages.lessons.pages import page
from pages.shared import lesson_place as places
from pages.shared.lesson_place import browser, in_browser

shelf = load_shelf()
at = places.current(shelf)
look(presenting=at is not None and at.presenting)
in_browser(f"{at.key}/{at.page}" if at else "")
if at is None:
    lessons_list(shelf, load_progress(browser()))
    st.stop()

strip(at)
undo(at.key, load_progress(browser()), shelf.words)
page(at)
moves(at, list(shelf.lessons))
