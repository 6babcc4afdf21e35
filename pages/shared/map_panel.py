"""The map beside a step: frozen places, this step's marks, and what to colour."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import get_args

import numpy as np
import streamlit as st

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.figures.drawing import Drawing
from memrl_core.figures.map.map_points import map_points, pool_far_on_screen
from memrl_core.figures.map.memory_map import (
    SVG_POINTS,
    ColourBy,
    Labels,
    MapScene,
    left_out_when_lifted,
    map_alt,
    map_picture,
    map_title,
)
from memrl_core.figures.map.point_cloud import PointCloud, cloud_marks, point_cloud
from memrl_core.figures.picture import PictureOnDemand, Shown
from memrl_core.records import Phase
from pages.shared import place as places
from pages.shared.picture import image_options, table_twin
from pages.shared.plotly_map import cloud_map, load_plotly, plotly_map
from pages.shared.text import literal
from pages.shared.view import View

COLOURS: tuple[ColourBy, ...] = get_args(ColourBy)
LABELS: tuple[Labels, ...] = get_args(Labels)
HEAD_START = 0.1
"""Seconds in which a browser draws a large map that has changed, if nothing else comes: else it lays out that first."""


@st.cache_resource(max_entries=8, show_spinner=False, on_release=lambda layout: layout.close())
def layout_of(uri: str, _bank: MemoryBank) -> MapLayout:
    """The frozen layout of a bank, shared by all sessions of this server."""
    return MapLayout(_bank)


def map_panel(view: View) -> None:
    """Where this step's memories lie, what they are worth, and what has just moved."""
    layout = layout_of(view.place.bank.uri, view.place.bank)
    with st.container(horizontal=True, vertical_alignment="bottom", key="map_controls"):
        colour = st.selectbox("Colour", COLOURS, key="map_colour", width=130)
        labels = st.segmented_control("Labels", LABELS, default="chosen", key="map_labels")
        shape = st.segmented_control("View", ["2-D", "3-D"], default="2-D", key="map_shape", help="3-D: height is q")
    before = st.session_state.get("map_picture")
    drawn = _drawn(view, layout, colour, labels or "off", lifted=shape == "3-D")
    picture = drawn.picture
    st.markdown(f"**{literal(picture.title)}**")
    if not view.moment.utilities:
        st.info("No memories yet. Press **Step**: the first task writes the first point of this map.")
    if drawn.cloud is None:
        clicked = plotly_map(picture, f"map_{shape}", image_options("map"))
    else:
        assert drawn.marks is not None
        clicked = cloud_map(drawn.marks, drawn.cloud, picture.alt, "map_large", image_options("map"))
    load_plotly()
    if clicked and clicked != view.place.memory:
        places.go(memory=clicked)
        st.rerun()
    if drawn.left_out:
        st.caption(drawn.left_out)
    _notes(layout, drawn.far)
    table_twin(picture, "map")
    if drawn.cloud is not None and st.session_state["map_picture"] is not before:
        time.sleep(HEAD_START)


@dataclass(frozen=True)
class _Drawn:
    """A map: `far` of its pool lie far off, and `left_out` says what it does not show.

    A large one is drawn as `marks` over a `cloud`; its `picture` is then made when somebody takes it away.
    """

    picture: Shown
    far: int
    left_out: str = ""
    marks: Drawing | None = None
    cloud: PointCloud | None = None


def _drawn(view: View, layout: MapLayout, colour: ColourBy, labels: Labels, lifted: bool) -> _Drawn:
    """The map, made anew only when something on it has changed."""
    layout.places()
    trace, bank = view.moment.trace, view.place.bank
    shown = (bank.uri, view.run.id, trace.id if trace else "", view.moment.next_phase, view.place, bank.facts)
    key = (*shown, layout.id, layout.provisional, colour, labels, lifted)
    drawn = st.session_state.get("map_picture")
    if drawn is None or drawn[0] != key:
        scene = _scene(view, layout)
        drawn = (key, _made(scene, colour, labels, lifted))
        st.session_state["map_picture"] = drawn
    return drawn[1]


def _made(scene: MapScene, colour: ColourBy, labels: Labels, lifted: bool) -> _Drawn:
    # What the session saw last goes on in most cases: a step moves a few of the points.
    points = map_points(scene, st.session_state.get("map_points"))
    st.session_state["map_points"] = points
    far = pool_far_on_screen(scene, points)
    if len(points.ids) <= SVG_POINTS:
        return _Drawn(map_picture(scene, colour, labels, lifted), far)
    picture = PictureOnDemand(
        map_title(scene), map_alt(scene, colour, lifted), lambda: map_picture(scene, colour, labels, lifted)
    )
    if lifted:
        return _Drawn(picture, far, left_out_when_lifted(scene))
    cloud = point_cloud(scene, points, colour)
    return _Drawn(picture, far, marks=cloud_marks(scene, cloud, colour, labels), cloud=cloud)


def _scene(view: View, layout: MapLayout) -> MapScene:
    moment, trace = view.moment, view.moment.trace
    everywhere = layout.places()
    query = None
    if trace is not None and trace.embed is not None and everywhere:
        query = layout.place_query(np.asarray(trace.embed.embedding, dtype=np.float32))
    return MapScene(
        run=view.run.id,
        layout_id=layout.id,
        places=everywhere,
        memories=view.memories,
        utilities=moment.utilities,
        settings=trace.settings if trace else view.run.settings,
        similarities=moment.similarities,
        query=query,
        pool=moment.pool if moment.reached(Phase.RECALL) else (),
        selected=moment.selected if moment.reached(Phase.SELECT) else (),
        moved=moment.moved if moment.reached(Phase.UPDATE) else {},
        provisional=frozenset(layout.provisional),
        focus=view.place.memory,
    )


def _notes(layout: MapLayout, far: int) -> None:
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
            f"{layout.method} of the embeddings, frozen. Distances here are approximate; ranking uses cosine in the "
            f"full space{f': {far} of the pool are not among the 10 nearest here' if far else ''}. "
            "▲ above, ▼ below the middle of q, ● never updated."
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
