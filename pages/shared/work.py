"""Long work on a page: how far it is, a button to stop it, and its result, kept until something else is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import streamlit as st

from memrl_core.background import Work
from pages.shared.text import literal

Result = TypeVar("Result")


def working(name: str, what: str, begin: Callable[[], Work[Result]], unit: str) -> Result | None:
    """The result of the work called `name` on exactly `what`; draws its progress, and returns None until it is there.

    Other work of this name that is still under way is stopped.
    """
    known: tuple[str, Work[Result]] | None = st.session_state.get(f"work_{name}")
    if known is None or known[0] != what:
        if known is not None:
            known[1].stop()
        known = what, begin()
        st.session_state[f"work_{name}"] = known
    work = known[1]
    if work.busy:
        _progress(work, name, unit)
        return None
    if work.error is not None or work.stopped:
        if work.error is not None:
            st.error(literal(str(work.error)), icon=":material/error:")
        else:
            st.info("Stopped.")
        if st.button("Start again", key=f"again_{name}", icon=":material/replay:"):
            del st.session_state[f"work_{name}"]
            st.rerun()
        return None
    return work.result


@st.fragment(run_every=0.4)
def _progress(work: Work, name: str, unit: str) -> None:
    if not work.busy:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        if work.total:
            st.progress(work.done / work.total, f"{work.done:,} of {work.total:,} {unit}")
        else:
            st.markdown("Starting …")
        st.button("Stop", icon=":material/stop_circle:", key=f"stop_{name}", on_click=work.stop)
