"""Moving a run on from Step: never past what others have done to it since the screen was drawn."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from memrl_core.agent.live import LiveRun
from memrl_core.analysis.decision.outline import TITLES
from memrl_core.errors import StepError
from pages.shared import place as places
from pages.shared.text import failure_kept
from pages.shared.view import View

SEEN_AT = "seen_at"


def move(view: View, forward: Callable[[LiveRun], None]) -> None:
    """Advance the run, unless others have moved it on since this screen was drawn; a failure gets its sentence."""
    with failure_kept():
        live = places.live(view.place)
        try:
            if forward is not LiveRun.stop and st.session_state.get(SEEN_AT) not in (None, (view.run.id, live.at)):
                raise StepError(_moved_on(live))
            forward(live)
        finally:
            note(view, live)


def _moved_on(live: LiveRun) -> str:
    episode = live.episode
    if episode is not None and episode.phase is not None:
        now = f"step {episode.trace.step:,} is under way, {TITLES[episode.phase]} comes next"
    else:
        now = f"step {live.agent.bank.next_step(live.agent.run_id) - 1:,} has ended"
    return f"This run was moved on elsewhere since this screen was drawn, so nothing was run. By now {now}."


def note(view: View, live: LiveRun | None) -> None:
    """Keep where this session has seen the run, unless it is at work; another session may move it on."""
    at = live.at if live is not None else (view.place.bank.next_step(view.run.id),)
    st.session_state[SEEN_AT] = None if live is not None and live.busy else (view.run.id, at)
