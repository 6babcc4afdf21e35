"""A person's own task files: checked, reported line by line, kept, and dropped again."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from memrl_core.environments import environment_title
from memrl_core.environments.own_tasks.files import check_file
from memrl_core.environments.tasks import CheckedFile, damaged_sets, drop, keep, kept_sets, sample_data_path
from pages.shared.picture import download, show_table
from pages.shared.text import errors_shown, failure_kept, literal
from pages.tasks.picker import CHOSEN, ENVIRONMENT, SET

CHECKED = "tasks_checked"
SHOWN = 500


def files() -> None:
    """Load a file of tasks, see what is accepted and why the rest is not, keep it; and the files kept so far."""
    st.divider()
    st.subheader("Load a file of tasks", anchor=False)
    loaded, kept = st.columns([3, 2], gap="large")
    with loaded:
        _load()
        if CHECKED in st.session_state:
            _report(st.session_state[CHECKED])
    with kept:
        _kept()


def _load() -> None:
    st.markdown(
        "A JSONL file, one task per line, a JSON array or a CSV table: `intent`, and, so that answers can be judged, "
        "`reference` and `checker` (exact, numeric, regex, choice or sql); or the DB-bench file of LifelongAgentBench. "
        "Without a reference, people judge."
    )
    uploaded = st.file_uploader("File", type=["jsonl", "json", "csv", "tsv"], key="tasks_file")
    path = st.text_input("or a file on the machine that runs this app", key="tasks_path")
    with st.container(horizontal=True):
        asked = st.button(
            "Check the file",
            key="tasks_check",
            icon=":material/fact_check:",
            type="primary",
            disabled=not (uploaded or path.strip()),
        )
        example = sample_data_path() / "task_files" / "example.jsonl"
        download("An example file", example.read_bytes, "tasks.jsonl", "tasks_example")
    if asked:
        with st.spinner("Every task is tried with its own reference …"):
            _check(uploaded, path)
    if message := st.session_state.pop("tasks_said", None):
        st.success(literal(message), icon=":material/save:")


def _check(uploaded: UploadedFile | None, path: str) -> None:
    st.session_state.pop(CHECKED, None)
    with errors_shown(), tempfile.TemporaryDirectory() as folder:
        stored = Path(path.strip()).expanduser()
        if uploaded is not None:
            stored = Path(folder) / (Path(uploaded.name).name or "tasks.jsonl")
            stored.write_bytes(uploaded.getbuffer())
        st.session_state[CHECKED] = check_file(stored)


def _report(checked: CheckedFile) -> None:
    with st.container(border=True, key="tasks_report"):
        accepted, reported = len(checked.accepted), len(checked.reported)
        st.markdown(
            f"**{literal(checked.name)}** · {literal(environment_title(checked.environment))} · "
            f"**{accepted:,} accepted, {reported:,} reported**"
        )
        families = Counter(task.family or "no family" for task in checked.accepted)
        st.caption(literal(", ".join(f"{family} {count}" for family, count in families.most_common())))
        _table("Reported: left out, and why", [(one.where, one.reason) for one in checked.reported], "tasks_reported")
        _table("Accepted, with a note", [(one.where, one.sentence) for one in checked.notes], "tasks_notes")
        with st.container(horizontal=True):
            st.button(
                f"Keep these {accepted:,} tasks",
                key="tasks_keep",
                icon=":material/save:",
                type="primary",
                disabled=not accepted,
                on_click=_keep,
                args=(checked,),
            )
            st.button("Close", key="tasks_close", on_click=lambda: st.session_state.pop(CHECKED, None))


def _table(title: str, rows: list[tuple[str, str]], key: str) -> None:
    if not rows:
        return
    st.markdown(f"{title} ({len(rows):,})")
    show_table(
        pd.DataFrame(rows[:SHOWN], columns=["where", "why"]),
        key,
        title,
        columns={"why": st.column_config.TextColumn("why", width="large")},
    )
    if len(rows) > SHOWN:
        st.caption(f"… and {len(rows) - SHOWN:,} more; `memrl tasks check FILE` lists all.")


def _keep(checked: CheckedFile) -> None:
    with failure_kept():
        name = keep(checked)
        st.session_state.pop(CHECKED, None)
        _go_to(checked.environment, name)
        st.session_state["tasks_said"] = f"Kept as {name}. It is chosen above: start a run on it."


def _go_to(environment: str, name: str) -> None:
    st.session_state[CHOSEN] = st.session_state["tasks_shown"] = environment
    st.session_state[f"tasks_set_{environment}"] = name
    st.query_params[ENVIRONMENT], st.query_params[SET] = environment, name


def _kept() -> None:
    st.markdown("**Kept on this machine**")
    found = kept_sets()
    if not found:
        st.caption("Nothing yet. What you keep stays here, and runs on it can go on after a restart.")
    for damaged in damaged_sets():
        st.warning(literal(damaged.reason), icon=":material/broken_image:")
    for one in found:
        with st.container(horizontal=True, vertical_alignment="center", key=f"kept_{one.name}"):
            st.button(
                literal(one.name),
                key=f"show_{one.name}",
                type="tertiary",
                icon=":material/list:",
                on_click=_go_to,
                args=(one.environment, one.name),
            )
            st.caption(literal(f"{one.tasks} tasks · {environment_title(one.environment)}"))
            with st.popover("", icon=":material/delete:", help="Drop this set"):
                st.markdown("Runs on it stay, but cannot go on until the file is loaded again.")
                st.button("Drop it", key=f"drop_{one.name}", on_click=_drop, args=(one.name,))


def _drop(name: str) -> None:
    with failure_kept():
        drop(name)
