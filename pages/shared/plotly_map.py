"""A Plotly chart that keeps zoom, camera and selection while its data changes, which `st.plotly_chart` does not.

The JavaScript is the one that the Python package of Plotly carries; nothing is fetched from a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from plotly.offline import get_plotlyjs

from memrl_core.figures.picture import Picture

_chart = st.components.v2.component(
    "memrl_map",
    html='<div class="memory-map" role="group"></div>',
    css=".memory-map { width: 100%; }",
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


def plotly_map(picture: Picture, key: str, image: Mapping[str, object], height: int = 470) -> str | None:
    """Draw the picture, which the chart's camera saves as `image` says; returns the id of the point just clicked.

    A page that draws any calls `load_plotly` once, after them.
    """
    data = {"figure": picture.figure.to_json(), "alt": picture.alt, "height": height, "image": dict(image)}
    clicked = _chart(key=key, data=data, on_clicked_change=lambda: None, height=height).clicked
    return str(clicked) if clicked else None


def load_plotly() -> None:
    """Send Plotly's script to the browser, unless this session has it."""
    if not st.session_state.get("plotly_sent"):
        loaded = _library(key="plotly_library", on_loaded_change=lambda: None, height=1).loaded
        st.session_state["plotly_sent"] = bool(loaded)
