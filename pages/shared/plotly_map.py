"""A Plotly chart that keeps zoom, camera and selection while its data changes, which `st.plotly_chart` does not.

The JavaScript is the one that the Python package of Plotly carries; nothing is fetched from a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from plotly.offline import get_plotlyjs

from memrl_core.figures.drawing import Drawing
from memrl_core.figures.map.point_cloud import PointCloud
from memrl_core.figures.picture import Shown
from pages.shared.picture import image_options, table_twin
from pages.shared.text import literal

_chart = st.components.v2.component(
    "memrl_map",
    html="""<div class="map-frame"><canvas class="map-cloud" hidden></canvas>
<div class="memory-map" role="group"></div><div class="map-hint" hidden></div></div>""",
    css="""
.map-frame { position: relative; }
.memory-map { width: 100%; }
.memory-map:not([data-drawn])::before { content: "Drawing …"; position: absolute; top: 24px; font-size: 14px; }
.map-cloud { position: absolute; pointer-events: none; }
.map-hint {
  position: absolute; pointer-events: none; padding: 2px 6px; font-size: 12px; white-space: pre;
  color: Canvas; background: CanvasText; border-radius: 3px;
}
""",
    js=Path(__file__).with_name("plotly_map.js").read_text(),
    isolate_styles=False,
)
# The points of a large map go to the browser once; after that only what a step changes in them.
_points = st.components.v2.component("memrl_points", js=Path(__file__).with_name("point_cloud.js").read_text())
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


def plotly_map(picture: Shown, key: str, image: Mapping[str, object], height: int = 470) -> str | None:
    """Draw the picture, which the chart's camera saves as `image` says; returns the id of the point just clicked.

    A page that draws any calls `load_plotly` once, after them.
    """
    data = {"figure": picture.to_json(), "alt": picture.alt, "image": dict(image), "map": True}
    return _drawn(data, key, height)


def show_in_place(picture: Shown, key: str) -> None:
    """Draw a picture with its title and its table twin, as `show` does, for charts that a control moves.

    `st.plotly_chart` draws from scratch whatever has changed, which takes several times as long.
    """
    st.markdown(f"**{literal(picture.title)}**")
    data = {"figure": picture.to_json(), "alt": picture.alt, "image": image_options(key), "map": False}
    _drawn(data, key, picture.height or 340)
    table_twin(picture, key)


def cloud_map(
    marks: Drawing, cloud: PointCloud, alt: str, key: str, image: Mapping[str, object], height: int = 470
) -> str | None:
    """The same for marks over points that are a cloud, painted below them."""
    sent: tuple[PointCloud, dict[str, object]] | None = st.session_state.get(f"{key}_cloud")
    changes = cloud.since(sent[0]) if sent else None
    if sent is None or changes is None:
        sent = cloud, cloud.packed()
        changes = cloud.since(cloud)
        st.session_state[f"{key}_cloud"] = sent
    cloud_data = {"slot": key, "key": sent[1]["key"], "changes": changes}
    data = {"figure": marks.to_json(), "cloud": cloud_data, "alt": alt, "image": dict(image), "map": True}
    clicked = _drawn(data, key, height)
    if st.session_state.get(f"{key}_taken") != cloud_data["key"]:
        taken = _points(key=f"{key}_points", data={"slot": key, "cloud": sent[1]}, on_taken_change=_nothing, height=1)
        st.session_state[f"{key}_taken"] = taken.taken
    return cloud.ids[int(clicked.removeprefix("row "))] if clicked else None


def _drawn(data: Mapping[str, object], key: str, height: int) -> str | None:
    """The chart, `height` pixels high; what was just clicked on it, if it is a map."""
    clicked = _chart(key=key, data={**data, "height": height}, on_clicked_change=lambda: None, height=height).clicked
    return str(clicked) if clicked else None


def _nothing() -> None:
    """A component tells its state only where somebody asks to be called."""


def load_plotly() -> None:
    """Send Plotly's script to the browser, unless this session has it."""
    if not st.session_state.get("plotly_sent"):
        loaded = _library(key="plotly_library", on_loaded_change=lambda: None, height=1).loaded
        st.session_state["plotly_sent"] = bool(loaded)
