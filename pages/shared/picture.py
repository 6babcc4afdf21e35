"""A chart with its finding as title, its table twin and ways to take both away; how tables write numbers; maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler
from plotly.offline import get_plotlyjs

from memrl_core.analysis.map.map_layout import MapLayout
from memrl_core.bank import MemoryBank
from memrl_core.errors import in_order
from memrl_core.exchange.safe_files import csv_bytes, for_excel
from memrl_core.figures.picture import Picture
from memrl_core.figures.report.document import picture_report
from memrl_core.numerals import NOTHING, fixed, percent, signed
from pages.shared.place import download_name
from pages.shared.text import literal


def show(picture: Picture, key: str, **look: Any) -> None:
    """Draw a picture; its table opens below it, and both can be saved. `look` is what else `st.plotly_chart` takes."""
    st.markdown(f"**{literal(picture.title)}**")
    st.plotly_chart(
        picture.figure,
        key=key,
        alt=picture.alt,
        config={"displaylogo": False, "toImageButtonOptions": image_options(key)},
        **look,
    )
    table_twin(picture, key)


def table_twin(picture: Picture, key: str) -> None:
    """The same data as a table, drawn only once it is asked for, and the menu that saves chart and table."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"{key}_below"):
        as_table = st.toggle("Show as table", key=f"{key}_table")
        with st.popover("Save", icon=":material/download:", type="tertiary", key=f"{key}_save"):
            alone = "One file that opens without a network and can still be zoomed."
            page = download_name(picture.title, kind="html")
            download("Chart as HTML", lambda: picture_report(picture), page, f"{key}_html", help=alone)
            columns = [str(column) for column in picture.table.columns]
            table = download_name(picture.title, kind="csv")
            download("Table as CSV", lambda: csv_bytes(picture.table.to_dict("records"), columns), table, f"{key}_csv")
    if as_table:
        rows = with_one_precision(picture.table)
        st.dataframe(rows, key=f"{key}_rows", hide_index=True, alt=picture.alt, placeholder=NOTHING)


def image_options(key: str) -> dict[str, object]:
    """What the camera of the chart `key` saves."""
    # Plotly adds the ending itself.
    return {"format": "svg", "filename": download_name(key, kind="").rstrip(".")}


MOST_STYLED = 500
"""Rows up to which cells are written here: with 2,000 it takes half a second."""

Rows: TypeAlias = pd.DataFrame | Sequence[Mapping[str, Any]]


def written(rows: Rows, **by_name: Callable[[float], str]) -> pd.DataFrame | Styler:
    """The rows with the columns named written by a function each, and whole numbers as such, with a separator of
    thousands.

    Very long tables keep their numbers as they are. No text turns its letters round.
    """
    table = pd.DataFrame(rows).copy()
    for name in table.select_dtypes(include=["object", "string"]):
        table[name] = [in_order(cell) if isinstance(cell, str) else cell for cell in table[name]]
    known: dict[Any, Callable[[float], str]] = {name: write for name, write in by_name.items() if name in table}
    table = table.astype(dict.fromkeys(known, float)) if len(table) <= MOST_STYLED else table
    whole = {name: partial(fixed, places=0) for name, column in table.items() if _is_misread(column)}
    if (not known and not whole) or len(table) > MOST_STYLED:
        return table
    return table.style.format({**whole, **known}, na_rep=NOTHING)


def _is_misread(column: pd.Series) -> bool:
    """Whether its whole numbers would lack their thousands or, where some are missing, get decimals."""
    if pd.api.types.is_integer_dtype(column):
        return bool((column.abs() >= 1000).any())
    there = column.dropna()
    return pd.api.types.is_float_dtype(column) and 0 < len(there) < len(column) and bool((there % 1 == 0).all())


def show_table(
    rows: Rows,
    key: str,
    alt: str,
    signs: Iterable[str] = (),
    shares: Iterable[str] = (),
    write: Mapping[str, Callable[[float], str]] | None = None,
    **look: Any,
) -> Any:
    """Draw a table: `signs` are signed numbers, `shares` per cent, others are written by a function each.

    `look` is what else `st.dataframe` takes; there `columns` gives columns other titles or widths.
    """
    table = written(rows, **dict.fromkeys(signs, signed), **dict.fromkeys(shares, percent), **(write or {}))
    return st.dataframe(
        table, key=key, hide_index=True, column_config=look.pop("columns", None), alt=alt, placeholder=NOTHING, **look
    )


def chosen_row(rows: Rows, key: str, alt: str, **look: Any) -> int | None:
    """Draw a table as `show_table` does; returns the position of the row that is chosen."""
    event = show_table(rows, key, alt, on_select="rerun", selection_mode="single-row", **look)
    chosen = event["selection"]["rows"]
    return chosen[0] if chosen and chosen[0] < len(rows) else None


MIMES = {"csv": "text/csv", "html": "text/html", "jsonl": "application/jsonl"}


def download(label: str, make: Callable[[], bytes | str], name: str, key: str, **more: Any) -> None:
    """A button that makes a file once it is pressed; beside that of a CSV file there is a box for Excel's sake."""
    kind = name.rsplit(".", 1)[-1]
    look = {"icon": ":material/download:", "on_click": "ignore", "mime": MIMES[kind], **more}
    if kind != "csv":
        st.download_button(label, make, file_name=name, key=key, **look)
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content", key=f"{key}_row"):
        button = st.container(width="content")
        excel = st.checkbox("for Excel", key=f"{key}_for_excel", help="With the mark by which Excel knows UTF-8")
        with button:
            st.download_button(label, partial(_csv, make, excel), file_name=name, key=key, **look)


def _csv(make: Callable[[], bytes | str], excel: bool) -> bytes:
    made = make()
    data = made.encode() if isinstance(made, str) else made
    return for_excel(data) if excel else data


def with_one_precision(table: pd.DataFrame) -> pd.DataFrame | Styler:
    """The table with four decimals in every column of numbers that has any decimals, and else with none."""
    numbers = {str(name): column.dropna() for name, column in table.items() if pd.api.types.is_float_dtype(column)}
    return written(
        table, **{name: partial(fixed, places=0 if (some % 1 == 0).all() else 4) for name, some in numbers.items()}
    )


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
