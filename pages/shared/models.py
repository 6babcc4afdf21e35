"""Which models there are, and what to do when there are none."""

from __future__ import annotations

import contextlib

import streamlit as st

from memrl_core import workspace
from memrl_core.errors import MemRLError, ModelError
from memrl_core.models.ollama_status import checked_address, pull_model
from pages.shared import place as places
from pages.shared.header import status_of
from pages.shared.text import literal


def chat_model_choice(key: str) -> str:
    """The simulated model or one that Ollama has."""
    status = status_of(workspace.load_preferences().ollama_address, None)
    names = [workspace.SIMULATED, *(model.name for model in status.models if model.can_chat)]
    chosen = st.selectbox(
        "Model", names, key=f"{key}_model", format_func=lambda n: "simulated model" if n == workspace.SIMULATED else n
    )
    if status.state == "not_running":
        st.caption(literal(status.sentence))
    return str(chosen)


def embedder_choice(key: str) -> str:
    """The embedder of a new bank: the embedded lexical one, or an Ollama model."""
    status = status_of(workspace.load_preferences().ollama_address, None)
    names = [workspace.EMBEDDED_EMBEDDER, *(model.name for model in status.models if model.can_embed)]
    labels = {workspace.EMBEDDED_EMBEDDER: "hashing (lexical, always there)"}
    chosen = st.selectbox(
        "Embedder of the new bank", names, key=f"{key}_embedder", format_func=lambda n: labels.get(n, n)
    )
    return str(chosen)


def ollama_panel() -> None:
    """Where Ollama is, what it has, and a way to get more."""
    preferences = workspace.load_preferences()
    with st.expander("Models · use a local Ollama"):
        where, patience = st.columns([3, 1])
        address = where.text_input("Ollama's address", value=preferences.ollama_address, key="ollama_address")
        timeout = patience.number_input(
            "Give up after (s)",
            1.0,
            3600.0,
            preferences.timeout,
            10.0,
            key="ollama_timeout",
            help="Seconds without a word from the model. Raise it for a large model on a slow machine.",
        )
        chosen = {"ollama_address": address, "timeout": timeout}
        unchanged = chosen == preferences.model_dump(include={"ollama_address", "timeout"})
        if st.button("Use these", key="ollama_save", disabled=unchanged):
            try:
                chosen["ollama_address"] = checked_address(address)
                workspace.save_preferences(preferences.model_copy(update=chosen))
                _start_afresh()
            except MemRLError as error:
                st.error(literal(str(error)))
        status = status_of(preferences.ollama_address, None)
        (st.success if status.state == "running" else st.warning)(literal(status.sentence))
        if status.remedy:
            st.code(status.remedy, language=None)
        if status.models:
            st.dataframe(
                [{"model": m.name, "size (GB)": round(m.size / 1e9, 2)} for m in status.models], hide_index=True
            )
        if status.state == "running":
            _pull(preferences.ollama_address)


def _start_afresh() -> None:
    """Ask Ollama again, and let runs that are idle go on with what is there now."""
    status_of.clear()
    preferences = workspace.load_preferences()
    for live in places.live_runs().values():
        if not live.busy:
            # A server that is not there gets its sentence where it is needed.
            with contextlib.suppress(ModelError):
                workspace.reconnect(live, preferences)
    st.rerun()


def _pull(address: str) -> None:
    if pulled := st.session_state.pop("pulled", None):
        st.success(f"{literal(pulled)} is there: choose it for a run, or for the vectors of a new bank.")
    name = st.text_input("Model to pull", key="pull_name", placeholder="llama3.2  ·  nomic-embed-text")
    if not st.button("Pull", key="pull", disabled=not name.strip()):
        return
    bar = st.progress(0.0, "Starting …")
    # Any click runs the page anew, which ends the loop below and with it the download.
    st.button("Cancel the pull", key="cancel_pull", icon=":material/stop_circle:")
    try:
        for progress in pull_model(address, name.strip()):
            share = progress.completed / progress.total if progress.total else 0.0
            bar.progress(min(share, 1.0), literal(progress.status))
    except MemRLError as error:
        st.error(literal(str(error)))
        return
    status_of.clear()
    st.session_state["pulled"] = name.strip()
    st.rerun()
