"""EMPO² memory: how new the states were, and the tips of a moment by score beside those by similarity."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.run.learned.deciding import novelty, recollections, tips_in_order
from memrl_core.figures.learned.tips import novelty_picture, tips_picture
from pages.methods.learned_case import Case, show_or_say
from pages.shared.picture import show
from pages.shared.text import literal, verbatim


def tips(case: Case) -> None:
    """The meter over the run, and a moment's tips in both orders."""
    found = case.over_all_steps("novelty", lambda report, cancelled: novelty(case.watching, report, cancelled))
    if found is None:
        return
    show_or_say(novelty_picture(found), "learned_novelty", found.empty, "Choose a run whose steps have a pool.")
    if not case.own:
        st.caption(
            "In the run of another method only the beginning of each task is asked again, by the embedding of the "
            "intent alone: this method's own key has the observation in it too."
        )
    _moment(case)


def _moment(case: Case) -> None:
    moments = recollections(case.watching, case.trace)
    if not moments:
        st.info("This step was recorded without its pool or its intent's embedding. Choose another step.")
        return
    turns = {one.turn: one for one in moments}
    turn = st.selectbox(
        "Moment of this step",
        list(turns),
        key="learned_turn",
        width=300,
        format_func=lambda turn: f"before turn {turn + 1}" if turn else "at the beginning",
    )
    one = turns[turn]
    in_order = tips_in_order(one.decision)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        show(tips_picture(in_order, one.decision.k2, case.run), "learned_tips")
        st.caption(literal(" ".join((one.decision.note, one.recall.why)).strip()))
    with right:
        st.markdown("**The tips, by stored score**")
        with st.container(height=420, key="learned_tip_texts"):
            for memory_id, score, similarity in zip(
                in_order["memory"], in_order["score"], in_order["similarity"], strict=True
            ):
                st.markdown(f"{literal(case.label(memory_id))} · score {score:.2f} · cosine {similarity:.2f}")
                verbatim(case.bank.memory(memory_id).experience)
