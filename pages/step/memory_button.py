"""A button that shows a memory beside the map."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.numerals import signed
from pages.shared import place as places
from pages.shared.text import literal
from pages.shared.view import View


def memory_button(view: View, memory_id: str, key: str, q: float | None) -> None:
    """The memory's name and the q that it had where it is shown; a click opens it."""
    keeps_q = view.spec is None or view.spec.keeps_q
    worth = f" · q {signed(q)}" if q is not None and keeps_q else ""
    st.button(
        f"memory {literal(memory_label(memory_id, view.run.id))}{worth}",
        icon=":material/ink_highlighter:",
        type="tertiary",
        key=f"open_{key}",
        on_click=places.go,
        kwargs={"memory": memory_id},
        help="Show this memory beside the map",
    )
