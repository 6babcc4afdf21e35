"""The frozen layout of each bank's map, and what is to be said of it."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from pages.shared.text import literal


@st.cache_resource(max_entries=8, show_spinner=False, on_release=lambda layout: layout.close())
def layout_of(uri: str, _bank: MemoryBank) -> MapLayout:
    """The frozen layout of a bank, shared by all sessions of this server."""
    return MapLayout(_bank)


def layout_notes(layout: MapLayout) -> None:
    """What has happened to the map, what is being done to it, and how to lay it out anew."""
    if layout.announcement:
        st.info(literal(layout.announcement), icon=":material/map:")
    if layout.error:
        st.warning(literal(layout.error), icon=":material/map:")
    if layout.state == "fitting":
        _while_fitting(layout)
    elif layout.outgrown:
        with st.container(horizontal=True, vertical_alignment="center", key="outgrown"):
            st.caption(
                f":material/map: This map was fitted on {layout.fitted:,} memories, fewer than half of those it shows. "
                "A new one is turned to fit it; positions then change once, for everyone who uses this bank."
            )
            st.button("Lay out anew", key="lay_out_anew", icon=":material/refresh:", on_click=layout.relayout)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"Map: {layout.method} of the embeddings, frozen. Distances on it are approximate; ranking uses cosine in "
            "the full space."
        )
        with st.popover("Re-layout", icon=":material/refresh:", type="tertiary"):
            st.markdown("Positions change for everyone who uses this bank; the new map is turned to fit the old one.")
            st.button("Lay the map out anew", key="relayout", on_click=layout.relayout)


@st.fragment(run_every=2)
def _while_fitting(layout: MapLayout) -> None:
    if layout.state != "fitting":
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{layout.progress} The map stays as it is until then.")
        st.button("Stop", icon=":material/stop_circle:", key="stop_layout", type="tertiary", on_click=layout.stop)
