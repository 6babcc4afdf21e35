"""RMM's reranker: how a pool was ranked, what another draw would have made of it, and what taught the adapters."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.run.learned.deciding import adapter_norms, citations, drawn_again, ranks, recollections
from memrl_core.figures.learned.reranking import bump_picture, citations_picture, norms_picture
from memrl_core.numerals import signed
from pages.methods.learned_case import Case
from pages.shared.picture import show
from pages.shared.text import literal

DRAWS = "learned_draws"


def reranker(case: Case) -> None:
    """The bump chart of the step, then the history."""
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _ranks(case)
    with right:
        found = case.over_all_steps(
            "adapters",
            lambda report, cancelled: (
                adapter_norms(case.watching, report, cancelled),
                citations(case.watching, report, cancelled),
            ),
        )
        if found is None:
            return
        norms, cited = found
        if len(norms):
            show(norms_picture(norms), "learned_norms")
        else:
            st.info(
                "The adapters have had no lesson yet: they are as they were drawn. They learn from orders that this "
                "method drew itself, and from what the answers cited: start a run of it on Home."
            )
    if cited.empty:
        return
    show(citations_picture(cited, case.run), "learned_citations")
    baseline = case.settings["baseline"]
    st.caption(
        f"R is +1 for what the answer used and −1 for the rest of the prompt; with b = {baseline:g} the advantages are "
        f"{signed(1 - baseline)} and {signed(-1 - baseline)}. An unreadable reply is no feedback, never a reward."
    )


def _ranks(case: Case) -> None:
    found = recollections(case.watching, case.trace)
    if not found:
        st.info("This step was recorded without its pool or its intent's embedding. Choose another step.")
        return
    decision = found[0].decision
    draws = _draws(case)
    seed = decision.seed + draws
    order = drawn_again(decision, seed) if draws else ranks(decision)
    show(bump_picture(order, decision.k2, case.run), "learned_bump")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Draw again",
            icon=":material/casino:",
            key="learned_draw",
            on_click=_draw,
            args=(case,),
            disabled=not order,
            help="Another seed for the noise, the same scores. Nothing is stored.",
        )
        if draws:
            st.markdown(f"Draw {draws}: seed {seed}, with the scores of this step.")
        else:
            st.markdown(f"As it was drawn: seed {seed}.")
    if decision.note:
        st.caption(literal(decision.note))


def _draws(case: Case) -> int:
    asked, draws = st.session_state.get(DRAWS, ("", 0))
    return draws if asked == _asked(case) else 0


def _draw(case: Case) -> None:
    st.session_state[DRAWS] = _asked(case), _draws(case) + 1


def _asked(case: Case) -> str:
    return f"{case.trace.id} {case.watching.policy}"
