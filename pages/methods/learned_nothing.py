"""Methods that learn nothing, and why that is the lesson."""

from __future__ import annotations

import streamlit as st

from pages.methods.learned_case import Case

LESSONS = {
    "none": "Nothing is learned and nothing is remembered: every try is the model alone. That is the lesson: what "
    "another method is worth counts from here, on the same tasks and with as many tries.",
    "rag": "Nothing is learned from rewards: the most similar memory is read, whether it ever helped or not. That is "
    "the lesson: what MemRL does better on the same tasks is what values add to similarity.",
    "exprag": "Nothing is learned beyond what is stored: each experience keeps its label, correct or not, and nobody "
    "adds up whether reading it helped. That is the lesson: a label is a fact about the past episode, not a value for "
    "the next one.",
    "exprecent": "Nothing is learned: the newest experiences are read, whatever they are worth. That is the lesson: "
    "where this does as well as MemRL, what counted was how new a memory is, not how good.",
}


def nothing(case: Case) -> None:
    """The sentence."""
    st.info(LESSONS[case.watching.policy], icon=":material/school:")
