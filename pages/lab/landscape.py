"""The q landscape of a run over time: frozen places, played, paused and scrubbed in the browser."""

from __future__ import annotations

import streamlit as st

from memrl_core.agent.twins import TwinRuns, labels
from memrl_core.analysis.memory.neighbourhoods import landscape
from memrl_core.bank import MemoryBank
from memrl_core.figures.memory.landscape import landscape_picture
from memrl_core.figures.picture import Picture
from pages.lab.place import LabPlace
from pages.shared.map_layouts import layout_of
from pages.shared.picture import show
from pages.shared.text import literal


def landscape_over_time(place: LabPlace, twins: TwinRuns) -> None:
    """One side's memories on the map, moment by moment."""
    if not twins.steps:
        st.info("There is no memory yet. Play the twin runs first; then this shows how their q came about.")
        return
    names = dict(zip(twins.runs, labels(twins.bank, *twins.runs), strict=True))
    run = st.segmented_control(
        "Run", twins.runs, format_func=lambda name: literal(names[name]), default=twins.runs[0], required=True,
        key="landscape_run", label_visibility="collapsed",
    )  # fmt: skip
    if twins.playing:
        st.info("The runs are playing: pause them to see all they have done so far.")
        return
    layout = layout_of(twins.bank.uri, twins.bank)
    layout.places()
    show(_picture(twins.bank.state, str(run), layout.id, twins.bank), "landscape")
    st.caption("Places never move: colour and shape are q. ▲ above, ▼ below the middle of q, ● never updated.")


@st.cache_data(max_entries=8, show_spinner="Drawing the frames …")
def _picture(state: str, run: str, layout_id: str, _bank: MemoryBank) -> Picture:
    places = layout_of(_bank.uri, _bank).places()
    return landscape_picture(landscape(_bank, run, places), _bank.settings(run))
