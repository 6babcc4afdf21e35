"""Long work on a page: how far it is, a button to stop it, and its result, kept until something else is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import streamlit as st

from memrl_core.agent.live import InBackground
from memrl_core.models.base import Cancelled, Progress
from pages.shared.text import literal

Result = TypeVar("Result")
Do: TypeAlias = Callable[[Progress, Cancelled], Result | None]

PATIENCE = 0.15
UNEXPECTED = "Something unexpected went wrong ({error}). Nothing was changed; try again."


class Work(InBackground, Generic[Result]):
    """Runs `do(report, cancelled)` at once; `done` of `total` is what it last reported.

    `result` is what it returned, None while it runs and when it was stopped or failed; `error` is what went wrong.
    """

    unexpected = UNEXPECTED

    def __init__(self, do: Do[Result]) -> None:
        super().__init__()
        self.done, self.total = 0, 0
        self.result: Result | None = None
        self.do = do
        self._cancel = threading.Event()
        self._begin_work(self._run)
        self.wait(PATIENCE)

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop before its end."""
        return self._cancel.is_set()

    def stop(self) -> None:
        """Ask it to end; what it has found so far may be its result."""
        self._cancel.set()

    def _report(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def _run(self) -> None:
        self.result = self.do(self._report, self._cancel.is_set)


def working(
    name: str, what: str, do: Do[Result], unit: str, draw: Callable[[Any], None] | None = None
) -> Result | None:
    """What `do` finds for exactly `what`, as the work called `name`; draws its progress, and returns None until then.

    `draw` draws more of the `do` at work below the bar. Other work of this name that is still under way is stopped.
    """
    known: tuple[str, Work[Result]] | None = st.session_state.get(f"work_{name}")
    if known is None or known[0] != what:
        if known is not None:
            known[1].stop()
        known = what, Work(do)
        st.session_state[f"work_{name}"] = known
    work = known[1]
    if work.busy:
        _progress(work, name, unit, draw)
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


def asked_for(label: str, key: str, icon: str, what: str, **look: Any) -> bool:
    """A button; whether it was pressed for exactly `what`."""
    if st.button(label, key=key, icon=icon, **look):
        st.session_state[f"asked_{key}"] = what
    return bool(st.session_state.get(f"asked_{key}") == what)


@st.fragment(run_every=0.4)
def _progress(work: Work[Any], name: str, unit: str, draw: Callable[[Any], None] | None) -> None:
    if not work.busy:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        if work.total:
            st.progress(work.done / work.total, f"{work.done:,} of {work.total:,} {unit}")
        else:
            st.markdown("Starting …")
        st.button("Stop", icon=":material/stop_circle:", key=f"stop_{name}", on_click=work.stop)
    if draw is not None:
        draw(work.do)
