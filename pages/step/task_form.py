"""What the agent is asked next, where a person types it."""

from __future__ import annotations

import streamlit as st

from memrl_core.environments.tasks import LONGEST_INTENT
from memrl_core.errors import MemRLError
from memrl_core.records import Phase
from pages.shared import place as places
from pages.shared.text import literal
from pages.shared.view import View
from pages.step.controls import show_parts


def task_form(view: View) -> None:
    """Type the next task, or see which one of the list it will be."""
    if view.run.environment != "conversation":
        return
    st.text_area(
        "Ask the agent something",
        key="typed_intent",
        placeholder="Explain what a hash table is to a ten-year-old.",
        help=f"At most {LONGEST_INTENT:,} characters.",
    )
    st.button("Ask", key="ask", icon=":material/send:", on_click=_ask, args=(view,), disabled=view.busy)
    if failure := st.session_state.pop("task_failure", None):
        st.error(literal(failure))


def _ask(view: View) -> None:
    try:
        places.live(view.place).begin(st.session_state["typed_intent"])
    except MemRLError as error:
        st.session_state["task_failure"] = str(error)
        return
    st.session_state["typed_intent"] = ""
    show_parts(Phase.EMBED)
