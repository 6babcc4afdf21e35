"""The frozen layout of each bank's map, and plotly.js for pages that draw in place."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from plotly.offline import get_plotlyjs

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.figures.picture import Picture
from pages.shared.picture import image_options, table_twin
from pages.shared.text import literal


@st.cache_resource(max_entries=8, show_spinner=False, on_release=lambda layout: layout.close())
def layout_of(uri: str, _bank: MemoryBank) -> MapLayout:
    """The frozen layout of a bank, shared by all sessions of this server."""
    return MapLayout(_bank)


_chart = st.components.v2.component(
    "memrl_map",
    html="""<div class="map-frame"><div class="memory-map" role="group"></div></div>""",
    css="""
.map-frame { position: relative; }
.memory-map { width: 100%; }
.memory-map:not([data-drawn])::before { content: "Drawing …"; position: absolute; top: 24px; font-size: 14px; }
""",
    js=Path(__file__).with_name("plotly_map.js").read_text(),
    isolate_styles=False,
)
# Plotly's script is 5 MB: it is sent once a session, not with every rerun. Streamlit's own charts load another copy
# under the same global name, and a chart drawn by one copy is drawn from scratch, zoom lost, by the other.
_library = st.components.v2.component(
    "memrl_plotly",
    js=get_plotlyjs()
    + """
window.memrlPlotly = window.Plotly;
export default function ({ setStateValue }) { setStateValue("loaded", true); }
""",
)


def show_in_place(picture: Picture, key: str) -> None:
    """Draw a picture with its title and its table twin, as `show` does, for charts that a control moves.

    `st.plotly_chart` draws from scratch whatever has changed, which takes several times as long.
    """
    st.markdown(f"**{literal(picture.title)}**")
    height = picture.height or 340
    data = {"figure": picture.to_json(), "alt": picture.alt, "image": image_options(key), "height": height}
    _chart(key=key, data=data, height=height)
    table_twin(picture, key)


def load_plotly() -> None:
    """Send Plotly's script to the browser, unless this session has it."""
    if not st.session_state.get("plotly_sent"):
        loaded = _library(key="plotly_library", on_loaded_change=lambda: None, height=1).loaded
        st.session_state["plotly_sent"] = bool(loaded)
