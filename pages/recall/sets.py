"""A golden set of recall in a file: brought in as labels once its notes were seen, and taken away."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from memrl_core.bank.people.roles import Role
from memrl_core.errors import InputError
from memrl_core.exchange.recall_sets import RecallSet, as_jsonl, exported, read_set
from memrl_core.exchange.recall_sets_in_banks import Imported, labels_for
from memrl_core.numerals import counted
from pages.shared.person import person, within_role
from pages.shared.picture import download
from pages.shared.place import Place, download_name
from pages.shared.text import errors_shown, failure_kept, literal

READ, SAVED = "recall_set_read", "recall_set_saved"
SHOWN = 10


@dataclass(frozen=True)
class _Read:
    """A file as it was read for a run; nothing is stored of it yet."""

    run: str
    name: str
    found: RecallSet
    imported: Imported


def golden_set(place: Place) -> None:
    """Import and export, behind one button of the page's bar."""
    with st.popover("Golden set", icon=":material/folder_open:", key="recall_set"):
        st.markdown("**Import labels from a file**")
        uploaded = st.file_uploader("JSON Lines, TREC qrels, or spans with annotations", key="recall_set_file")
        path = st.text_input("or a file or a BEIR folder on the machine that runs this app", key="recall_set_path")
        asked = uploaded is not None or bool(path.strip())
        if st.button("Read it", icon=":material/fact_check:", key="recall_set_ask", disabled=not asked):
            _read(place, uploaded, path)
        read: _Read | None = st.session_state.get(READ)
        if read is not None and read.run == place.info.id:
            _look(place, read)
        if said := st.session_state.pop(SAVED, ""):
            st.success(literal(said), icon=":material/save:")
        st.divider()
        st.markdown("**Export the labels of this run**")
        if place.bank.judgements.standing(place.info.id):
            download("As JSON Lines", lambda: _as_file(place), download_name("recall", kind="jsonl"), "recall_set_out")
            st.caption("A query a line, with every label; `memrl recall check` holds a bank against it.")
        else:
            st.caption("No step of this run is labelled yet.")


def _as_file(place: Place) -> bytes:
    place.bank.refresh()
    return as_jsonl(exported(place.bank, place.info.id))


def _read(place: Place, uploaded: UploadedFile | None, path: str) -> None:
    st.session_state.pop(READ, None)
    with errors_shown(), st.spinner("Reading …"), tempfile.TemporaryDirectory() as folder:
        file = Path(path.strip()).expanduser()
        if uploaded is not None:
            file = Path(folder) / (Path(uploaded.name).name or "set.jsonl")
            file.write_bytes(uploaded.getbuffer())
        elif not file.exists():
            raise InputError(f"There is no file “{file.name[:80]}” at that place. Nothing was read; look at the path.")
        place.bank.refresh()
        found = read_set(file)
        imported = labels_for(found, place.bank, place.info.id, file.name[:80], person())
        st.session_state[READ] = _Read(place.info.id, file.name, found, imported)


def _look(place: Place, read: _Read) -> None:
    labels = read.imported.labels
    steps = {(label.run, label.step) for label in labels}
    st.markdown(
        f"**{literal(read.name)}**: {counted(len(read.found.queries), 'query')}; "
        f"**{counted(len(labels), 'label')}** for {counted(len(steps), 'step')} of this bank"
    )
    _listed("Corrected", read.found.notes)
    _listed("Skipped", read.found.skipped)
    _listed("Worth knowing", read.imported.notes)
    if not labels:
        st.info("No label of this set is about a step and a memory of this bank. Choose another file or another run.")
        return
    own = all(label.rater == person() for label in labels)
    st.button(
        f"Save {counted(len(labels), 'label')}", key="recall_set_save", type="primary", icon=":material/save:",
        on_click=_save, args=(place, read), **within_role(place.bank, Role.RATE if own else Role.MANAGE),
    )  # fmt: skip


def _listed(title: str, lines: Sequence[str]) -> None:
    for line in lines[:SHOWN]:
        st.caption(literal(f"{title}: {line}"))
    if len(lines) > SHOWN:
        st.caption(f"… and {len(lines) - SHOWN:,} more.")


def _save(place: Place, read: _Read) -> None:
    with failure_kept():
        place.bank.write.judgements.judge_all(read.imported.labels)
        st.session_state.pop(READ, None)
        st.session_state[SAVED] = f"{counted(len(read.imported.labels), 'label')} from {read.name} stand in this bank."
