"""How an environment came to its verdict."""

from __future__ import annotations

import streamlit as st

from memrl_core.records import Judgement
from pages.shared.text import literal, verbatim

HEIGHT = 260
MOST_LINES = 9


def judged(judgement: Judgement) -> None:
    """What was expected beside what came, and why that did or did not do; no model and no memory reads this."""
    with st.container(key="judgement"):
        sides = (("Expected", judgement.expected), ("Came", judgement.came))
        for column, (title, text) in zip(st.columns(2), sides, strict=True):
            with column:
                st.caption(title)
                with st.container(height=HEIGHT if text.count("\n") > MOST_LINES else "content"):
                    verbatim(text or "(nothing)")
        st.markdown(f"**Why.** {literal(judgement.why)}")
