"""Which models there are, and what to do when there are none."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from memrl_core import workspace
from memrl_core.errors import EmbedderMismatch, MemRLError, ModelError
from memrl_core.models.ollama_client import OPENAI_COMPATIBLE
from memrl_core.models.ollama_status import checked_address, is_local, pull_model
from pages.shared import place as places
from pages.shared.header import status_of
from pages.shared.person import has_login
from pages.shared.text import literal

EMBEDDERS = {"wordllama": "wordllama (by meaning)", "hashing": "hashing (by letters and words)"}
ANOTHER_MACHINE = "another_machine_asked"


def chat_model_choice(key: str) -> str:
    """A model that is at hand, or another one that a person names."""
    status = status_of(workspace.load_preferences().ollama_address, None)
    chosen = st.selectbox(
        "Model",
        workspace.models_at_hand(model.name for model in status.models if model.can_chat),
        key=f"{key}_model",
        format_func=model_label,
        accept_new_options=True,
        help="Or type another: gguf:PATH, a file on this machine; openai:NAME, of an OpenAI-compatible server.",
    )
    if status.state == "not_running":
        st.caption(literal(f"{status.sentence.partition('. ')[0]}, so its models are not in the list."))
    return str(chosen or workspace.SIMULATED)


def model_label(name: str) -> str:
    """What a model is called where one is chosen."""
    if name == workspace.SIMULATED:
        return "simulated model (no language model)"
    return f"{name.removeprefix('gguf:')} · in this program" if name.startswith("gguf:") else name


def embedder_choice(key: str) -> str:
    """The embedder of a new bank: one of this program's own, or an Ollama model."""
    status = status_of(workspace.load_preferences().ollama_address, None)
    own = dict.fromkeys([workspace.default_embedder(), workspace.HASHING])
    chosen = st.selectbox(
        "Embedder of the new bank",
        [*own, *(model.name for model in status.models if model.can_embed)],
        key=f"{key}_embedder",
        format_func=lambda name: EMBEDDERS.get(name, name),
        help="What makes the vectors that are compared. WordLlama's were distilled from the token table of Llama 2.",
    )
    return str(chosen)


def ollama_panel() -> None:
    """Where Ollama is, what it has, and a way to get more."""
    preferences = workspace.load_preferences()
    with st.expander("Models · use a local Ollama"):
        where, patience = st.columns([3, 1])
        address = _address_field(where, "Ollama's address", "ollama_address", "OLLAMA_HOST")
        timeout = patience.number_input(
            "Give up after (s)",
            1.0,
            3600.0,
            preferences.timeout,
            10.0,
            key="ollama_timeout",
            help="Seconds without a word from the model. Raise it for a large model on a slow machine.",
        )
        server = _address_field(st, "OpenAI-compatible server", "openai_address", "OPENAI_BASE_URL")
        now = (preferences.ollama_address, preferences.openai_address, preferences.timeout)
        if st.button("Use these", key="ollama_save", disabled=(address, server, timeout) == now):
            try:
                # What nobody chose stays with the variables of the environment.
                asked = {}
                if address != preferences.ollama_address:
                    asked["ollama_address"] = checked_address(address)
                if server != preferences.openai_address:
                    asked["openai_address"] = checked_address(server, *OPENAI_COMPATIBLE)
                if all(map(is_local, asked.values())):
                    _use({"timeout": timeout, **asked})
                else:
                    st.session_state[ANOTHER_MACHINE] = {"timeout": timeout, **asked}
            except MemRLError as error:
                st.error(literal(str(error)))
        if ANOTHER_MACHINE in st.session_state:
            _confirm_another_machine(st.session_state[ANOTHER_MACHINE])
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


def _address_field(where: Any, label: str, name: str, variable: str) -> str:
    """Where a server is: with a login for whoever starts this program to say, as roles hold in a bank and all share
    it."""
    now = str(getattr(workspace.load_preferences(), name))
    if has_login():
        where.text_input(
            label, value=now, disabled=True,
            help=f"On a server with a login, {variable} decides it where the server is started.",
        )  # fmt: skip
        return now
    return str(where.text_input(label, value=now, key=name))


def _confirm_another_machine(chosen: dict[str, Any]) -> None:
    hosts = [urlsplit(to) for name, to in chosen.items() if name.endswith("_address") and not is_local(to)]
    named = " and ".join(f"**{literal(parts.netloc)}**" for parts in hosts)
    open_to_read = " The way there is not encrypted." if any(parts.scheme == "http" for parts in hosts) else ""
    with st.container(border=True, key="another_machine"):
        st.warning(
            f"{named} {'is' if len(hosts) == 1 else 'are'} not this machine. Sent there will be: prompts with the "
            "memories in them, texts to embed, and the names of models. Whoever runs it can read them."
            f"{open_to_read} Nothing was sent so far.",
            icon=":material/outbound:",
        )
        with st.container(horizontal=True):
            if st.button("Send them there", type="primary", key="confirm_address"):
                del st.session_state[ANOTHER_MACHINE]
                try:
                    _use(chosen)
                except MemRLError as error:
                    st.error(literal(str(error)))
            if st.button("Keep the address as it was", key="keep_address"):
                del st.session_state[ANOTHER_MACHINE]
                st.rerun()


def _use(chosen: dict[str, Any]) -> None:
    workspace.save_preferences(workspace.load_preferences().model_copy(update=chosen))
    _start_afresh()


def _start_afresh() -> None:
    """Ask Ollama again, and let runs that are idle go on with what is there now."""
    status_of.clear()
    preferences = workspace.load_preferences()
    for live in places.live_runs().values():
        if not live.busy:
            # A server that is not there gets its sentence where it is needed.
            with contextlib.suppress(ModelError, EmbedderMismatch):
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
