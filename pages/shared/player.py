"""A replay that goes on by itself, a step at a time, until its end or until the person moves."""

from __future__ import annotations

from time import monotonic

import streamlit as st

from pages.shared import place as places
from pages.shared.place import Place

PACE = 2.5
"""Seconds for which a step is shown."""
PLAYING, DRAWN = "playing", "playing_drawn"


def play(bank: str, run: str, step: int) -> None:
    """From this step on the replay goes on; whoever moves to another one stops it."""
    st.session_state[PLAYING] = (bank, run, step)


def player(place: Place) -> None:
    """The button that plays and pauses a replay, and what moves it on."""
    assert place.run is not None and place.step is not None
    at, ended = (place.bank_name, place.run.id, place.step), place.step >= place.last_step
    playing = st.session_state.get(PLAYING) == at and not ended
    if playing:
        st.button("Pause", icon=":material/pause:", key="replay_pause", on_click=st.session_state.pop, args=(PLAYING,))
    else:
        st.session_state.pop(PLAYING, None)
        st.button("Play", icon=":material/play_arrow:", key="replay_play", disabled=ended, on_click=play, args=at)
    if playing:
        st.session_state[DRAWN] = monotonic()
        _onward(*at)


@st.fragment(run_every=PACE)
def _onward(bank: str, run: str, step: int) -> None:
    # It also runs once as part of the page, when the step has only just been drawn.
    if st.session_state.get(PLAYING) == (bank, run, step) and monotonic() - st.session_state[DRAWN] > PACE / 2:
        play(bank, run, step + 1)
        places.go(step=step + 1)
        st.rerun()
