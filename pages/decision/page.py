"""Decision: one question at a time about why memories were recalled, reranked and used, and what would change that."""

from __future__ import annotations

import streamlit as st

from memrl_core.agent.runs import can_go_on
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank.people.roles import Role
from memrl_core.figures.report.step import step_report
from pages.decision import state
from pages.decision.body import body
from pages.decision.case import case_at
from pages.shared import place as places
from pages.shared.header import header
from pages.shared.person import person, role_to_take_back, within_role
from pages.shared.picture import download
from pages.shared.place import Place
from pages.shared.rewind import rewind_form
from pages.shared.text import errors_shown, failure_kept, literal, minute


def actions(place: Place) -> None:
    """One button each, for the step that is shown; none where the run has no step."""
    step = place.step or place.last_step
    if place.run is None or not step:
        return
    run = place.run.id
    with st.container(horizontal=True, gap="small", key="step_actions"):
        _notes(place, run, step)
        if can_go_on(place.run):
            rewind_form(place, step, case_at(place).settings)
        download(
            "Report of this step",
            lambda: step_report(place.bank, run, step),
            f"{run}-step-{step}.html",
            "step_report",
            icon=":material/summarize:",
            help="One HTML file with every number, figure and text of the step; it opens without a network.",
        )


def _notes(place: Place, run: str, step: int) -> None:
    """The findings pinned to this step, a form for another, and the way back for each."""
    standing = place.bank.notes.standing(run, step)
    with st.popover(f"Notes ({len(standing):,})" if standing else "Pin a note", icon=":material/push_pin:"):
        for note in standing:
            st.text(note.reason)
            named = ", ".join(memory_label(memory_id, run) for memory_id in note.memory_ids)
            about = f" about {named}" if named else ""
            with st.container(horizontal=True, vertical_alignment="center"):
                st.caption(literal(f"{note.rater}, {minute(note.created)}{about}"))
                if note.payload:
                    st.button(
                        "Show what was seen",
                        key=f"seen_{note.id}",
                        type="tertiary",
                        on_click=_seen,
                        args=(note.payload,),
                    )
                st.button(
                    "Remove", key=f"unpin_{note.id}", type="tertiary", on_click=_remove, args=(place, note.id),
                    **within_role(place.bank, role_to_take_back(note)),
                )  # fmt: skip
        with st.form("note", clear_on_submit=True, border=False):
            text = st.text_area("What did you find?", key="note_text", max_chars=4000)
            look = within_role(place.bank, Role.RATE)
            if not st.form_submit_button("Pin", type="primary", icon=":material/push_pin:", **look):
                return
        seen = dict(state.opened())
        about_memories = [i for i in (seen.get(state.FIRST),) if i]
        with errors_shown():
            place.bank.write.notes.pin(run, step, text, person(), about_memories, **seen)
            st.rerun()


def _remove(place: Place, note_id: str) -> None:
    with failure_kept():
        place.bank.write.notes.remove(note_id, person())


def _seen(payload: dict[str, str]) -> None:
    state.forget_trials()
    for name, value in payload.items():
        if name in state.NAMES:
            state.put(name, str(value))


place = places.current(keep=state.opened())
if place is not None:
    header(place)
if place is None or place.run is None:
    st.info("There is no run yet, so no decision to ask about. Start one, or bring one in on the page Bank.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    st.stop()
if not place.last_step and not place.bank.utilities(place.run.id):
    st.info("This run has no step and no memory yet. Its first step will be the first decision to ask about.")
    st.page_link("pages/step/page.py", label="Go to Step", icon=":material/skip_next:")
    st.stop()

actions(place)
body(place)
