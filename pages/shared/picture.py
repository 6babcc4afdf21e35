"""A chart with its finding as title, its table twin and ways to take both away."""

from __future__ import annotations

import streamlit as st

from memrl_core.figures.picture import Picture
from pages.shared.text import literal

EXPORT = {"displaylogo": False, "toImageButtonOptions": {"format": "svg", "filename": "memrl"}}


def show(picture: Picture, key: str) -> None:
    """Draw a picture; its table opens below it."""
    st.markdown(f"**{literal(picture.title)}**")
    st.plotly_chart(picture.figure, key=key, alt=picture.alt, config=EXPORT)
    table_twin(picture, key)


def table_twin(picture: Picture, key: str) -> None:
    """The same data as a table, drawn only once it is asked for."""
    if st.toggle("Show as table", key=f"{key}_table"):
        st.dataframe(picture.table, key=f"{key}_rows", hide_index=True, alt=picture.alt)
