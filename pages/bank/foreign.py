"""Memories of another program: looked through, their columns picked, and made into a bank."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from memrl_core.agent.preferences import banks_folder, load_preferences
from memrl_core.agent.run_parts import new_embedder
from memrl_core.bank.storage.folders import valid_name
from memrl_core.errors import InputError
from memrl_core.exchange.bring_in import Arrival, is_own
from memrl_core.exchange.contents import NOTHING
from memrl_core.exchange.foreign.columns import FIELDS
from memrl_core.exchange.foreign.opening import NAMED, Look, look, open_memories, report_of, source_of
from memrl_core.models.base import Cancelled, Progress
from pages.shared import place as places
from pages.shared.models import embedder_choice
from pages.shared.picture import show_table
from pages.shared.text import errors_shown, literal
from pages.shared.work import working

FILE_TYPES = ["json", "jsonl", "ndjson", "csv", "tsv", "parquet", "db", "sqlite", "sqlite3", "af", "txt", "md"]
GUESSED, NONE = "as guessed", "none"
KEPT, ANEW = "those in the file", "made anew"
ASKED, FOLDER = "foreign_asked", "foreign_folder"


def open_foreign() -> None:
    """A file to look at; below it what would come of it, and the bank to make."""
    st.subheader("Open the memories of another program")
    st.markdown(
        "JSON, JSON lines, CSV, Parquet, SQLite, a folder of LanceDB tables: mem0, LangGraph, Letta, MemOS, A-MEM, ACE "
        "and what has a text in each row. Nothing is written before you have seen it."
    )
    uploaded = st.file_uploader("File", type=FILE_TYPES, key="foreign_file")
    path = st.text_input("or a file or folder on the machine that runs this app", key="foreign_path")
    table = st.text_input("Table, where there are several", key="foreign_table")
    given = uploaded.file_id if uploaded else path.strip()
    if st.button("Look", key="foreign_look", icon=":material/search:", disabled=not given):
        st.session_state[ASKED] = f"{given} {table}"
        for name in [name for name in st.session_state if str(name).startswith(("foreign_map_", "work_foreign"))]:
            del st.session_state[name]
    if st.session_state.get(ASKED) != f"{given} {table}":
        return
    with errors_shown():
        found = _looked(_path_of(uploaded) if uploaded else path.strip(), table.strip(), st.session_state[ASKED])
        if found is not None:
            _report(found)
            _make(found, st.session_state[ASKED])


def _path_of(uploaded: UploadedFile) -> str:
    """Where the uploaded file lies while it is looked at; the folder is deleted with the session."""
    known = st.session_state.get(FOLDER)
    if known is None or known[0] != uploaded.file_id:
        folder = tempfile.TemporaryDirectory(prefix="memrl-open-")
        path = Path(folder.name) / (Path(uploaded.name).name or "memories")
        path.write_bytes(uploaded.getbuffer())
        known = st.session_state[FOLDER] = (uploaded.file_id, path, folder)
    return str(known[1])


def _looked(path: str, table: str, asked: str) -> Look | None:
    named = {name: st.session_state.get(f"foreign_map_{name}", GUESSED) for name in FIELDS}
    chosen = {name: "" if column == NONE else column for name, column in named.items() if column != GUESSED}
    fresh = st.session_state.get("foreign_vectors") == ANEW

    def do(report: Progress, cancelled: Cancelled) -> Look | None:
        if is_own(Path(path).expanduser()):
            raise InputError(f"This is a bank, or comes from the official code. {NOTHING} Take it in by Import.")
        return look(source_of(path, table), chosen, fresh, report, cancelled)

    return working("foreign_look", f"{asked} {chosen} {fresh}", do, "read")


def _report(found: Look) -> None:
    account = report_of(found, skip_bad=False)
    st.markdown(f"**{literal(account.source)}** · {found.rows:,} rows · **{found.memories:,} memories**")
    for sentence in account.read[1:]:
        st.caption(literal(sentence))
    rows = [
        {"id": one.id, "intent": one.intent, "text": one.text, "q": one.q, "visits": one.visits,
         "outcome": one.outcome, "created": one.created[:16],
         "dimensions": None if one.vector is None else len(one.vector)}
        for one in found.preview
    ]  # fmt: skip
    show_table(pd.DataFrame(rows), "foreign_preview", "The first memories as they would be in the bank", signs=("q",))
    lists = (
        ("What it does not tell", account.lacks),
        ("Worth knowing", account.faults),
        (f"Rows that cannot be taken: {found.bad_count:,}", tuple(f"{one.where}: {one.why}" for one in found.bad)),
    )
    for title, lines in lists:
        if lines:
            with st.expander(f"{title} ({len(lines):,})" if "Rows" not in title else title, key=f"foreign_{title[:5]}"):
                for line in lines:
                    st.text(line)
                if "Rows" in title and found.bad_count > NAMED:
                    st.caption(f"… and {found.bad_count - len(found.bad):,} more.")
    with st.expander("Columns", key="foreign_columns", icon=":material/view_column:"):
        columns = st.columns(4)
        for at, name in enumerate(FIELDS):
            guess = found.mapped.columns.get(name, NONE)
            options = [GUESSED, *([NONE] if name != "text" else []), *found.columns]
            columns[at % 4].selectbox(name, options, key=f"foreign_map_{name}", format_func=partial(_written, guess))


def _written(guess: str, column: str) -> str:
    return f"{guess} · guess" if column == GUESSED else column


def _make(found: Look, asked: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if "vector" in found.mapped.columns:
            st.radio("Vectors", [KEPT, ANEW], key="foreign_vectors", horizontal=True)
        embedder = embedder_choice("foreign") if found.fresh else ""
        name = st.text_input("Name of the new bank", value="opened", key="foreign_name", max_chars=60)
    skip = bool(found.bad_count) and st.checkbox(
        f"Leave out the rows that cannot be taken ({found.bad_count:,})", key="foreign_skip"
    )
    what = f"{asked} {found.mapped.columns} {embedder} {name} {skip}"
    if st.button("Make the bank", key="foreign_make", type="primary", disabled=bool(found.bad_count) and not skip):
        st.session_state["foreign_made"] = what
        st.session_state.pop("work_foreign_write", None)
    if st.session_state.get("foreign_made") != what:
        return
    path = banks_folder() / valid_name(name)

    def do(report: Progress, cancelled: Cancelled) -> Arrival | None:
        made = new_embedder(embedder, load_preferences()) if embedder else None
        return open_memories(found, str(path), made, skip, report, cancelled)

    arrival = working("foreign_write", what, do, "memories written")
    if arrival is None:
        return
    for key in (ASKED, FOLDER, "foreign_made", "work_foreign_write", "work_foreign_look"):
        st.session_state.pop(key, None)
    st.session_state["arrived"] = (path.name, arrival)
    places.go(bank=path.name, run=arrival.runs[-1])
    st.rerun()
