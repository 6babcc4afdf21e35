"""Banks and traces in and out: files uploaded or named, downloads, banks merged."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from memrl_core.agent.preferences import banks_folder
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.folders import valid_name
from memrl_core.errors import MemRLError
from memrl_core.exchange.archive import bank_bytes
from memrl_core.exchange.bring_in import Arrival, bring_in, is_own, read_any
from memrl_core.exchange.foreign.traces import has_spans, import_spans
from memrl_core.exchange.new_banks import merge
from memrl_core.models.base import Cancelled, Progress
from memrl_core.numerals import counted
from pages.bank.foreign import open_foreign
from pages.shared import place as places
from pages.shared.person import person, within_role
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal
from pages.shared.work import working

KINDS = {
    "zip": "Everything, as one zip that can be imported",
    "jsonl": "Everything, as JSON lines that can be imported",
    "parquet": "The memories with vectors and q, as Parquet that can be imported",
    "csv": "The memories as a table for people, as CSV",
}
FILE_TYPES = ["zip", "jsonl", "parquet", "json"]
SHOWN = 200


def import_export(place: Place | None) -> None:
    """Import on the left, what goes out and what two banks give together on the right."""
    taken_in, given_out = st.columns(2, gap="large")
    with taken_in:
        _arrived()
        open_foreign()
        st.divider()
        st.subheader("Import a bank, a checkpoint or traces")
        _import_form()
    with given_out:
        st.subheader("Export")
        _export(place)
        st.subheader("Merge two banks")
        _merge_form()


def _import_form() -> None:
    st.markdown(
        "A bank exported here as a zip, JSON lines or Parquet (memories and q only), or a checkpoint, a trace or a run "
        "of the official MemRL code; or spans of OpenInference, OpenTelemetry, Langfuse or Phoenix as steps. All of it "
        "arrives or nothing."
    )
    uploaded = st.file_uploader("File", type=FILE_TYPES, key="import_file")
    path = st.text_input("or a file or folder on the machine that runs this app", key="import_path")
    target = st.text_input(
        "Into the bank", value="imported", key="import_target", max_chars=60,
        help="The name of a new bank, or of one of this machine that holds vectors of the same embedder.",
    )  # fmt: skip
    look = within_role(places.bank_named(target), Role.MANAGE, disabled=not (uploaded or path.strip()))
    what = f"{uploaded.file_id if uploaded else path.strip()} into {target}"
    known_work = st.session_state.get("work_import")
    if st.button("Import", type="primary", key="import", **look) and not (known_work and known_work[1].busy):
        st.session_state["asked_import"] = what
        st.session_state.pop("work_import", None)
    if st.session_state.get("asked_import") != what:
        return
    with errors_shown():
        known = places.known_banks()
        uri = known.get(target) or str(banks_folder() / valid_name(target))
        by = person()

        def do(report: Progress, cancelled: Cancelled) -> Arrival | None:
            report(0, 100)
            bring = partial(_uploaded, uploaded) if uploaded else partial(_import, Path(path.strip()).expanduser())
            return bring(uri, by, report, cancelled)

        arrival = working("import", what, do, "%: reading and checking, then writing")
        if arrival is None:
            return
        for key in ("asked_import", "work_import"):
            del st.session_state[key]
        st.session_state["arrived"] = (target, arrival)
        places.go(bank=target, run=arrival.runs[-1] if arrival.runs else None)
        st.rerun()


def _import(path: Path, uri: str, by: str, report: Progress, cancelled: Cancelled) -> Arrival | None:
    if not is_own(path) and has_spans(path):
        return import_spans(path, uri, by, lambda done, size: report(round(100 * done / max(size, 1)), 100), cancelled)
    contents = read_any(path, cancelled)
    report(50, 100)
    return bring_in(contents, uri, by=by)


def _uploaded(file: UploadedFile, uri: str, by: str, report: Progress, cancelled: Cancelled) -> Arrival | None:
    with tempfile.TemporaryDirectory() as folder:
        name = Path(Path(file.name).name or "file")
        path = Path(folder) / f"{name.stem}{name.suffix.lower()}"
        path.write_bytes(file.getbuffer())
        return _import(path, uri, by, report, cancelled)


def _arrived() -> None:
    if "arrived" not in st.session_state:
        return
    bank, arrival = st.session_state["arrived"]
    assert isinstance(arrival, Arrival)
    account = arrival.account
    with st.container(border=True, key="arrived_box"):
        st.success(
            f"New in the bank {literal(bank)}: {counted(arrival.memories, 'memory')}, {counted(arrival.steps, 'step')} "
            f"and {counted(arrival.events, 'event')}."
        )
        st.caption(literal(f"Read as {account.source}."))
        for sentence in account.read:
            st.markdown(f"- {literal(sentence)}")
        _lines("What it does not tell", account.lacks)
        _lines("Faults in it", account.faults)
        _lines("Skipped", tuple(f"{skipped.where}: {skipped.why}" for skipped in account.skipped))
        renamed = {**arrival.renamed_runs, **arrival.renamed_memories}
        _lines("Renamed", tuple(f"{old} is now {new}" for old, new in renamed.items()))
        st.button("Close", key="close_arrived", type="tertiary", on_click=lambda: st.session_state.pop("arrived"))


def _lines(title: str, lines: tuple[str, ...]) -> None:
    if not lines:
        return
    with st.expander(f"{title} ({len(lines):,})", key=f"arrived_{title}"):
        for line in lines[:SHOWN]:
            st.text(line)
        if len(lines) > SHOWN:
            st.caption(f"… and {len(lines) - SHOWN:,} more.")


def _export(place: Place | None) -> None:
    if place is None:
        st.caption("There is no bank to export.")
        return
    kind = st.radio(
        f"Write the bank “{literal(place.bank_name)}” as", list(KINDS), format_func=KINDS.get, key="export_kind"
    )
    st.download_button(
        "Download",
        lambda: bank_bytes(place.bank, kind),
        file_name=f"{place.bank_name}.{kind}",
        icon=":material/download:",
        on_click="ignore",
        key="export",
    )


def _merge_form() -> None:
    with st.container(horizontal=True):
        first = _merged_run("One", "first", 0)
        second = _merged_run("Another", "second", 1)
    if first is None or second is None:
        return
    name = st.text_input("Name of the new bank", value="merged", key="merge_name", max_chars=60)
    st.caption("Both stay as they are. The new bank holds all their runs, and one that knows what these two know.")
    if not st.button("Merge", key="merge"):
        return
    with errors_shown():
        (one, one_run), (other, other_run) = first, second
        with st.spinner("Merging …"):
            merged = merge(one, other, str(banks_folder() / valid_name(name)), one_run, other_run)
        places.go_to_steps(bank=valid_name(name), run=merged.run)


def _merged_run(label: str, key: str, position: int) -> tuple[MemoryBank, str] | None:
    """A bank and one of its runs to merge; None where the bank has none or cannot be opened."""
    known = places.known_banks()
    names = sorted(known)
    with st.container():
        name = st.selectbox(label, names, key=f"merge_{key}", index=min(position, len(names) - 1))
        try:
            bank = places.opened(known[name])
        except MemRLError as error:
            st.error(literal(str(error)))
            return None
        runs = [info.id for info in reversed(bank.runs())]
        if not runs:
            st.info("This bank has no run.")
            return None
        return bank, str(st.selectbox(f"{label}: its run", runs, key=f"merge_{key}_run"))
