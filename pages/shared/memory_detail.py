"""One memory: its text, where it came from, and how its q came about."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.figures.utility import history_picture
from memrl_core.numerals import signed
from pages.shared import place as places
from pages.shared.memory_changes import memory_changes, what_became_of
from pages.shared.picture import show
from pages.shared.text import literal, verbatim
from pages.shared.view import View


def memory_detail(view: View, choose: str = "Click a point of the map, or a memory in the prompt") -> None:
    """The memory that was clicked on the map, in a table, in a chart's button or in a link; `choose` says how to."""
    memory_id = view.place.memory
    if memory_id is None:
        st.caption(f"{choose}, to read it here.")
        return
    memory, bank = view.place.bank.memory(memory_id), view.place.bank
    known = view.moment.utilities.get(memory_id)
    with st.container(border=True, key="memory_detail"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"#### Memory {literal(memory_label(memory_id, view.run.id))}")
            st.button("Close", key="close_memory", type="tertiary", on_click=places.go, kwargs={"memory": None})
        if known is None:
            gone = memory_id in bank.away(view.run.id)
            st.info(
                "The run no longer sees this memory: it was forgotten, or another took its place."
                if gone and view.moment.live
                else "This run did not know this memory at this moment."
            )
        else:
            with st.container(horizontal=True):
                st.metric("q", signed(known.q), width="content")
                then = _at_decision(view, memory_id)
                if then is not None and then != known.q:
                    st.metric("q at the decision", signed(then), width="content")
                st.metric("Uses rewarded", known.visits, width="content")
                st.metric("Outcome", memory.outcome, width="content")
        verbatim(memory.experience)
        parents = ", ".join(memory_label(parent, view.run.id) for parent in memory.parents) or "none"
        st.caption(
            literal(
                f"written in step {memory.step} of {memory.run}, task {memory.task}, {memory.created[:19]} UTC · "
                f"memories in its prompt: {parents}"
            )
        )
        if memory.run == view.run.id and memory.step != view.place.step and memory.step <= view.place.last_step:
            st.button(
                f"Go to step {memory.step}, which wrote it",
                icon=":material/history:",
                key="origin",
                on_click=places.go,
                kwargs={"step": memory.step},
            )
        memory_changes(view, memory)
        what_became_of(view, memory)
        if st.button("Ask about this memory", icon=":material/contact_support:", key="ask_memory", type="tertiary"):
            link = {**st.session_state["place"], "origin_of": memory_id}
            st.switch_page("pages/decision/page.py", query_params=link)
        history = bank.history(view.run.id, memory_id, as_of=view.place.step)
        if history:
            show(history_picture(history, view.run.settings, memory_id, view.run.id), "history")


def _at_decision(view: View, memory_id: str) -> float | None:
    """The memory's q when the step on the screen chose among its pool; None where the memory was not looked at."""
    trace = view.moment.trace
    seen = trace.decision.candidates if trace is not None and trace.decision is not None else ()
    return next((candidate.q for candidate in seen if candidate.memory_id == memory_id), None)
