"""The settings tried out on a recorded step, and what can be done with them: fork the run, note a finding."""

from __future__ import annotations

import streamlit as st

from memrl_core import workspace
from memrl_core.errors import MemRLError
from memrl_core.report.step import step_report
from memrl_core.settings import MemRLSettings, PolicySettings
from pages.questions import state
from pages.questions.case import Case
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.text import literal

NORMALISERS = ("pool", "fixed")


def settings_tried(case: Case) -> None:
    """One control a setting, standing at the value that is looked at."""
    recorded, looked_at = case.recorded, case.settings
    st.markdown("**What if …**")
    if case.situation is None and case.at is not None:
        st.caption("This step cannot be decided again, so nothing can be tried out on it.")
        return
    if looked_at == recorded:
        st.caption("As recorded. Move a control to see another decision; nothing is changed by it.")
    else:
        st.badge("what-if — not applied", icon=":material/science:", color="orange")
    _control(recorded, looked_at, "weight", "λ · weight of q", (0.0, 1.0), step=0.01)
    _control(recorded, looked_at, "delta", "δ · similarity gate", (-1.0, 1.0), step=0.01)
    widest = max(50, 2 * recorded.k1)
    _control(recorded, looked_at, "k1", "k1 · pool size", (1, widest), step=1)
    _control(recorded, looked_at, "k2", "k2 · memories in the prompt", (0, max(10, recorded.k2)))
    _control(recorded, looked_at, "alpha", "α · step size", (0.01, 1.0), step=0.01)
    if isinstance(recorded, MemRLSettings) and isinstance(looked_at, MemRLSettings):
        _normaliser(recorded, looked_at)
    st.button(
        "Back to the recorded settings",
        icon=":material/undo:",
        key="what_if_reset",
        disabled=looked_at == recorded,
        on_click=state.forget_trials,
        width="stretch",
    )


def _normaliser(recorded: MemRLSettings, looked_at: MemRLSettings) -> None:
    key = "what_if_normaliser"
    st.session_state[key] = looked_at.normaliser
    st.segmented_control(
        "Normaliser", NORMALISERS, key=key, required=True,
        help=MemRLSettings.model_fields["normaliser"].description,
        on_change=lambda: state.try_out("normaliser", st.session_state[key], recorded.normaliser),
    )  # fmt: skip


def _control(
    recorded: PolicySettings,
    looked_at: PolicySettings,
    name: str,
    label: str,
    limits: tuple[float, float],
    **more: object,
) -> None:
    if not hasattr(recorded, name):
        return
    key = f"what_if_{name}"
    value = getattr(looked_at, name)
    st.session_state[key] = value
    st.slider(
        label,
        min(limits[0], value),
        max(limits[1], value),
        key=key,
        on_change=lambda: state.try_out(name, st.session_state[key], getattr(recorded, name)),
        **more,
    )


def fork_form(case: Case) -> None:
    """Start a run that goes on from before this step under the settings looked at."""
    if not workspace.can_go_on(case.place.run):
        return
    with st.popover("Fork the run from here", icon=":material/call_split:", width="stretch"):
        st.markdown(
            f"A new run that knows what this one knew before step {case.trace.step}, with the settings on the left. "
            "It meets the same tasks with the same seeds; this run stays as it is."
        )
        name = st.text_input("Name", key="fork_name", placeholder="chosen for you")
        if not st.button("Fork", type="primary", key="fork", width="stretch"):
            return
        try:
            forked = workspace.fork(
                case.bank, case.run, case.trace.step, case.settings.model_dump(), name.strip() or None, by=person()
            )
        except MemRLError as error:
            st.error(literal(str(error)))
            return
        places.go_to_steps(run=forked.id)


def report_button(case: Case) -> None:
    """The step as one HTML file."""
    st.download_button(
        "Report of this step",
        lambda: step_report(case.bank, case.run, case.trace.step),
        file_name=f"{case.run}-step-{case.trace.step}.html",
        mime="text/html",
        icon=":material/summarize:",
        on_click="ignore",
        key="step_report",
        width="stretch",
        help="One HTML file with every number, figure and text of the step; it opens without a network.",
    )


def notes(case: Case) -> None:
    """The findings pinned to this step, a form for another, and the way back for each."""
    standing = case.bank.notes.standing(case.run, case.trace.step)
    with st.popover(
        f"Notes ({len(standing)})" if standing else "Pin a note", icon=":material/push_pin:", width="stretch"
    ):
        for note in standing:
            st.text(note.reason)
            about = f" about {', '.join(case.label(i) for i in note.memory_ids)}" if note.memory_ids else ""
            with st.container(horizontal=True, vertical_alignment="center"):
                st.caption(literal(f"{note.rater}, {note.created[:16].replace('T', ' ')} UTC{about}"))
                if note.payload:
                    st.button(
                        "Show what was seen",
                        key=f"seen_{note.id}",
                        type="tertiary",
                        on_click=_seen,
                        args=(note.payload,),
                    )
                st.button("Remove", key=f"unpin_{note.id}", type="tertiary", on_click=_remove, args=(case, note.id))
        with st.form("note", clear_on_submit=True, border=False):
            text = st.text_area("What did you find?", key="note_text", max_chars=4000)
            if not st.form_submit_button("Pin", type="primary", icon=":material/push_pin:"):
                return
        seen = dict(state.opened())
        about = [i for i in (seen.get(state.FIRST),) if i]
        try:
            case.bank.notes.pin(case.run, case.trace.step, text, person(), about, **seen)
        except MemRLError as error:
            st.error(literal(str(error)))
            return
        st.rerun()


def _remove(case: Case, note_id: str) -> None:
    try:
        case.bank.notes.remove(note_id, person())
    except MemRLError as error:
        st.session_state["failure"] = str(error)


def _seen(payload: dict[str, str]) -> None:
    state.forget_trials()
    for name, value in payload.items():
        if name in state.NAMES:
            state.put(name, str(value))
