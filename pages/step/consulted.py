"""What a policy asked the model for its own ends in a step, and how an environment came to its verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence

import streamlit as st

from memrl_core.records import Consulted, Judgement, Phase, StepTrace
from pages.shared.text import literal, verbatim


def consulted(trace: StepTrace, *phases: Phase) -> None:
    """The questions of these phases, each to unfold."""
    asked = [one for one in trace.consulted if one.phase in phases]
    if not asked:
        return
    failed = sum(one.filled is None for one in asked)
    label = f"What the method asked the model ({len(asked):,})"
    if failed:
        label += f" — {failed} without a usable answer"
    with st.expander(label, icon=":material/forum:", key=f"consulted_{'_'.join(phases)}"):
        _questions(asked)


def _questions(asked: Sequence[Consulted]) -> None:
    for number, one in enumerate(asked):
        with st.container(border=True, key=f"consulted_{one.phase}_{number}"):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{literal(one.purpose)}**")
                if one.simulated:
                    st.badge("template, no model asked", color="violet", icon=":material/theater_comedy:")
                elif one.filled is None:
                    st.badge("no usable answer: counts as no feedback", color="orange", icon=":material/warning:")
            verbatim(one.messages[-1].content)
            for note in one.notes:
                st.caption(literal(note))
            if one.filled is not None:
                verbatim(json.dumps(dict(one.filled), ensure_ascii=False, indent=1))
            elif one.reply:
                cut = f" (cut at {one.cut})" if one.cut else ""
                st.caption(literal(f"The reply{cut}, which does not fit the form:"))
                verbatim(one.reply)


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
