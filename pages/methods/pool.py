"""A step's question put to all methods at once: what each would have put before the model, and why."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label, reason_sentence
from memrl_core.analysis.decision.on_this_pool import OnThisPool, on_this_pool
from memrl_core.figures.decision.methods_on_pool import methods_on_pool_picture
from memrl_core.numerals import signed
from memrl_core.policies import usable_policies
from memrl_core.records import StepTrace
from pages.shared.arm import arm_line
from pages.shared.picture import show
from pages.shared.place import Place
from pages.shared.text import literal, verbatim
from pages.shared.work import Work, working

SAME, OWN = "The same pool", "Its own recall"


def pool(place: Place | None) -> None:
    """The picture of all choices, and below it one method's in full."""
    if place is None or place.run is None or not place.last_step:
        st.info("There is no finished step to ask about. Start a run on Home, or open the demo.")
        st.page_link("pages/home/page.py", label="Home", icon=":material/home:")
        return
    trace = place.bank.trace(place.run.id, place.step or place.last_step)
    st.markdown(f"**Step {trace.step}** · {literal(trace.task.intent)}")
    way = st.segmented_control(
        "Each method gets", [SAME, OWN], key="methods_way", default=SAME, required=True,
        help="The same pool: phase A as the run recalled it, only the selection differs. Its own recall: each method "
        "asks memory in its own way, by similarity, recency or task.",
    )  # fmt: skip
    found = working(
        "on_this_pool",
        f"{place.bank.state} {trace.id} {way}",
        lambda: _begin(place, trace, way == OWN),
        "methods",
    )
    if found is None:
        return
    memories = {
        c.memory_id: place.bank.memory(c.memory_id) for one in found if one.decision for c in one.decision.candidates
    }
    show(methods_on_pool_picture(found, memories, trace.run), "methods_on_pool")
    st.caption(
        f"Nothing is stored and no model is asked. Each method decides as if it had watched this run up to step "
        f"{trace.step}, under this run's k1, k2 and δ. Whether another choice would have gone better is a question for "
        "Compare."
    )
    _one(found, trace)


def _begin(place: Place, trace: StepTrace, own_recall: bool) -> Work[list[OnThisPool] | None]:
    return Work(
        lambda report, cancelled: on_this_pool(place.bank, trace, usable_policies(), own_recall, report, cancelled)
    )


def _one(found: list[OnThisPool], trace: StepTrace) -> None:
    names = [one.spec.name for one in found]
    titles = {one.spec.name: one.spec.title for one in found}
    st.session_state.setdefault("methods_one", names[0])
    chosen = st.selectbox("Look closer at", names, key="methods_one", format_func=titles.__getitem__)
    one = found[names.index(chosen)]
    arm_line(one.spec)
    if one.problem or one.decision is None or one.recall is None:
        st.warning(literal(one.problem))
        return
    for note in one.notes:
        st.info(literal(note), icon=":material/info:")
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Why**")
        st.dataframe(
            [
                {
                    "memory": memory_label(c.memory_id, trace.run),
                    "given": c.selected,
                    "score": None if c.score is None else signed(c.score),
                    **{term.name: signed(term.contribution) for term in c.terms},
                    "why": reason_sentence(c, one.recall, one.decision),
                }
                for c in one.decision.candidates
            ],
            key="methods_one_why",
            hide_index=True,
            alt="Every memory the method considered, with its terms and the reason",
        )
    with right:
        st.markdown("**What the model would read before its task**")
        with st.container(height=360, key="methods_one_told"):
            verbatim(one.given or "(nothing)")
