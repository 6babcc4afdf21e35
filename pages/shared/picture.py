"""A chart with its finding as title, its table twin and ways to take both away."""

from __future__ import annotations

import streamlit as st

from memrl_core.exchange.spreadsheet import csv_bytes
from memrl_core.figures.picture import Shown
from memrl_core.report.document import picture_report
from pages.shared.place import download_name
from pages.shared.table import with_one_precision
from pages.shared.text import literal

FORMATS = ("svg", "png")


def show(picture: Shown, key: str) -> None:
    """Draw a picture; its table opens below it, and both can be saved."""
    st.markdown(f"**{literal(picture.title)}**")
    st.plotly_chart(
        picture.figure,
        key=key,
        alt=picture.alt,
        config={"displaylogo": False, "toImageButtonOptions": image_options(key)},
    )
    table_twin(picture, key)


def table_twin(picture: Shown, key: str) -> None:
    """The same data as a table, drawn only once it is asked for, and the menu that saves chart and table."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"{key}_below"):
        as_table = st.toggle("Show as table", key=f"{key}_table")
        _save_menu(picture, key)
    if as_table:
        st.dataframe(with_one_precision(picture.table), key=f"{key}_rows", hide_index=True, alt=picture.alt)


@st.fragment
def _save_menu(picture: Shown, key: str) -> None:
    # What is in it is made when it is opened: a screen has many charts, and most are never saved.
    menu = st.popover("Save", icon=":material/download:", type="tertiary", key=f"{key}_save", on_change="rerun")
    if not menu.open:
        return
    with menu:
        _image_format(key)
        st.download_button(
            "Chart as HTML",
            lambda: picture_report(picture),
            file_name=download_name(picture.title, kind="html"),
            mime="text/html",
            icon=":material/download:",
            on_click="ignore",
            key=f"{key}_html",
            help="One file that opens without a network and can still be zoomed.",
        )
        st.download_button(
            "Table as CSV",
            lambda: csv_bytes(picture.table.to_dict("records"), [str(column) for column in picture.table.columns]),
            file_name=download_name(picture.title, kind="csv"),
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
            key=f"{key}_csv",
        )


def _image_format(key: str) -> None:
    known = st.session_state.get(f"{key}_image", FORMATS[0])
    chosen = st.segmented_control(
        "The camera above the chart saves it as",
        FORMATS,
        default=known,
        required=True,
        key=f"{key}_format",
        format_func=str.upper,
    )
    if chosen != known:
        st.session_state[f"{key}_image"] = chosen
        st.rerun()  # The chart stands outside this fragment.


def image_options(key: str) -> dict[str, object]:
    """What the camera of the chart `key` saves."""
    chosen = st.session_state.get(f"{key}_image", FORMATS[0])
    # Plotly adds the ending itself.
    return {"format": chosen, "filename": download_name(key, kind="").rstrip("."), "scale": 2}
