"""What is to be said of the map: a proposed layout beside the one in force, the way back, and the way to another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import streamlit as st

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.figures.stage.data import finite
from memrl_core.numerals import fixed
from pages.shared.text import literal
from pages.shared.view import View
from pages.step.stage import table_in_browser

HEIGHT = 440
"""Of both maps, with their titles and the line below."""
DIGITS = 4

_preview = st.components.v2.component(
    "memrl_layouts",
    html='<div class="layouts-host"></div>',
    css=Path(__file__).with_name("layouts.css").read_text(encoding="utf-8"),
    js=Path(__file__).with_name("layouts.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def layout_choice(view: View, layout: MapLayout) -> None:
    """A proposed layout beside the one in force, to be used or dropped; once it is used, the way back."""
    table = table_in_browser()
    if layout.proposal is not None and table is not None:
        _proposal(view, layout, *table)
    elif layout.can_go_back:
        with st.container(horizontal=True, vertical_alignment="center", key="layout_taken"):
            st.markdown(f":material/map: {literal(layout.announcement)}", width="stretch")
            st.button("Back to the old map", key="layout_back", icon=":material/undo:", on_click=layout.go_back)
            st.button("Stay", key="layout_stay", on_click=layout.stay)


def _proposal(view: View, layout: MapLayout, key: str, ids: Sequence[str]) -> None:
    proposal = layout.proposal
    assert proposal is not None
    now = layout.places()
    both = [proposal.coordinates[name] if name in proposal.coordinates and name in now else None for name in ids]
    known = view.place.bank.utilities(view.run.id)
    before = [[known[name].q, known[name].visits] if name in known else None for name in ids]
    axes = [[None if at is None else round(at[axis], DIGITS) for at in both] for axis in (0, 1)]
    with st.container(border=True, key="layout_proposal"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(
                f":material/map: **A new layout of the map, {proposal.method} of {len(proposal.fitted):,} memories.** "
                f"Nothing moves until you use it; then it moves for everyone who uses this bank.{_trust(layout)}",
                width="stretch",
            )
            st.button("Use the new map", key="layout_use", type="primary", on_click=layout.take_proposal)
            st.button("Keep the old", key="layout_keep", on_click=layout.drop_proposal)
        data = {"key": key, "id": proposal.id, "x": axes[0], "y": axes[1], "before": before}
        _preview(key="layouts", height=HEIGHT, data=finite(data))


def _trust(layout: MapLayout) -> str:
    if not np.isfinite(layout.trust).all():
        return ""
    now, new = (fixed(value, 2) for value in layout.trust)
    return f" Trustworthiness (1: all neighbours on the map are neighbours by cosine): old {now}, new {new}."


def layout_notes(layout: MapLayout) -> None:
    """How the map was made, what is being done to it, and how to lay it out anew."""
    if layout.announcement and not layout.can_go_back:
        st.info(literal(layout.announcement), icon=":material/map:")
    if layout.error:
        st.warning(literal(layout.error), icon=":material/map:")
    if layout.state == "fitting":
        _while_fitting(layout)
    elif layout.outgrown and layout.proposal is None:
        with st.container(horizontal=True, vertical_alignment="center", key="outgrown"):
            st.caption(
                f":material/map: This map was fitted on {layout.fitted:,} memories, fewer than half of those it shows. "
                "A new one would show the others better; you see it beside this one before anything moves."
            )
            st.button("Propose a new layout", key="lay_out_anew", icon=":material/refresh:", on_click=layout.relayout)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"Map: {layout.method} of the embeddings, frozen. Distances on it are approximate; ranking uses cosine in "
            "the full space."
        )
        if layout.state == "ready" and layout.proposal is None and not layout.outgrown:
            st.button(
                "Re-layout", key="relayout", icon=":material/refresh:", type="tertiary", on_click=layout.relayout,
                help="Fit a new layout and show it beside this one. Nothing moves until you use it.",
            )  # fmt: skip


@st.fragment(run_every=2)
def _while_fitting(layout: MapLayout) -> None:
    if layout.state != "fitting":
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{layout.progress} The map stays as it is until then.")
        st.button("Stop", icon=":material/stop_circle:", key="stop_layout", type="tertiary", on_click=layout.stop)
