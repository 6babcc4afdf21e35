"""Which models there are, and what to do when there are none."""

from __future__ import annotations

import contextlib
import os
from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from memrl_core.agent.preferences import load_preferences, save_preferences
from memrl_core.agent.run_parts import HASHING, SIMULATED, default_embedder, make_model, models_at_hand
from memrl_core.agent.runs import reconnect
from memrl_core.analysis.decision.outline import reply_notes, tokens_of
from memrl_core.analysis.run.following import measured_follows
from memrl_core.errors import EmbedderMismatch, ModelError
from memrl_core.models.base import Cancelled, ModelOptions, Progress
from memrl_core.models.gguf import facts as gguf_facts
from memrl_core.models.gguf import is_gguf, weights_of
from memrl_core.models.ollama import InstalledModel, LoadedModel, OllamaStatus, pull_model
from memrl_core.models.ollama_client import OPENAI_COMPATIBLE, checked_address, is_local, openai_address
from memrl_core.numerals import percent
from memrl_core.records import Message, Reply
from pages.shared import place as places
from pages.shared.header import status_of
from pages.shared.person import has_login
from pages.shared.picture import show_table
from pages.shared.text import errors_shown, literal, verbatim
from pages.shared.work import working

EMBEDDERS = {"wordllama": "wordllama (by meaning)", "hashing": "hashing (by letters and words)"}
ANOTHER_MACHINE = "another_machine_asked"
SAYS = {"completion": "answer", "embedding": "embed"}
TRIED, PULLING = "tried_model", "pulling_model"
MOST_TRIED = 64
"""Tokens of an answer that is only tried."""


def chat_model_choice(key: str, begin_with: str = "", own: str = "") -> str:
    """A model that is at hand, or another one that a person names; `begin_with` is the one to begin with, if any.

    `own` is a run's model, which goes first whether it is at hand or not.
    """
    status = status_of(load_preferences().ollama_address, None)
    bare = {model.name for model in status.models if model.chat_template is False}
    at_hand = models_at_hand(model.name for model in status.models if model.can_chat)
    if own:
        at_hand = list(dict.fromkeys([own, *at_hand]))
    chosen = st.selectbox(
        "Model",
        at_hand,
        index=at_hand.index(begin_with) if begin_with in at_hand else 0,
        key=f"{key}_model",
        format_func=lambda name: f"{model_label(name)} · no chat template" if name in bare else model_label(name),
        accept_new_options=True,
        help="Or type another: gguf:PATH, a file on this machine; openai:NAME, of an OpenAI-compatible server.",
    )
    if status.state == "not_running":
        st.caption(literal(f"{status.sentence.partition('. ')[0]}, so its models are not in the list."))
    return str(chosen or SIMULATED)


def model_label(name: str) -> str:
    """What a model is called where one is chosen."""
    if name == SIMULATED:
        return "simulated model (no language model)"
    return f"{name.removeprefix('gguf:')} · in this program" if name.startswith("gguf:") else name


def embedders_at_hand() -> list[str]:
    """This program's own embedders, then those of Ollama where it runs."""
    status = status_of(load_preferences().ollama_address, None)
    own = dict.fromkeys([default_embedder(), HASHING])
    return [*own, *(model.name for model in status.models if model.can_embed)]


def embedder_choice(key: str) -> str:
    """The embedder of a new bank: one of this program's own, or an Ollama model."""
    chosen = st.selectbox(
        "Embedder of the new bank",
        embedders_at_hand(),
        key=f"{key}_embedder",
        format_func=lambda name: EMBEDDERS.get(name, name),
        help="What makes the vectors that are compared. WordLlama's were distilled from the token table of Llama 2.",
    )
    return str(chosen)


def ollama_panel() -> None:
    """The models at hand, to be chosen and tried; where Ollama is, and a way to get more."""
    preferences = load_preferences()
    with st.expander("Models · choose, try, pull"):
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
        if os.environ.get("OPENAI_API_KEY") and preferences.openai_address != openai_address():
            st.caption(
                f"The key in OPENAI_API_KEY goes to {literal(openai_address())} alone, which OPENAI_BASE_URL names "
                "where this program is started, and not to an address that is chosen here."
            )
        now = (preferences.ollama_address, preferences.openai_address, preferences.timeout)
        if st.button("Use these", key="ollama_save", disabled=(address, server, timeout) == now):
            with errors_shown():
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
        if ANOTHER_MACHINE in st.session_state:
            _confirm_another_machine(st.session_state[ANOTHER_MACHINE])
        status = status_of(preferences.ollama_address, None)
        (st.success if status.state == "running" else st.warning)(literal(status.sentence))
        if status.remedy:
            st.code(status.remedy, language=None)
        _at_hand(status)
        if status.state == "running":
            _pull(preferences.ollama_address)


def _at_hand(status: OllamaStatus) -> None:
    """Every model that is here with what is known of it, and what can be done with one."""
    own = [name for name in models_at_hand(()) if is_gguf(name)]
    names = [*own, *(model.name for model in status.models)]
    if not names:
        return
    loaded = {model.name: model for model in status.loaded}
    rows = [_own_row(name) for name in own] + [_row(model, loaded.get(model.name)) for model in status.models]
    columns = {
        "context": st.column_config.NumberColumn("context (tokens)", format="localized"),
        "measured": st.column_config.TextColumn("measured here", width="large"),
    }
    show_table(rows, "models", "The models at hand, with size, context and what they can do", columns=columns)
    answering = {*own, *(model.name for model in status.models if model.can_chat)}
    chosen = st.selectbox("Model", names, key="panel_model", format_func=model_label)
    can = chosen in answering
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button(
            "Use it in a new run", icon=":material/add:", key="use_model", disabled=not can,
            on_click=_use_in_a_run, help=None if can else "It makes embeddings and cannot answer.",
        )  # fmt: skip
        asked = st.text_input("Try it", "Name three things in a kitchen.", key="try_prompt", max_chars=2000)
        if st.button("Ask", icon=":material/send:", key="try_model", disabled=not (can and asked.strip())):
            st.session_state[TRIED] = (chosen, asked.strip())
    if st.session_state.get(TRIED) == (chosen, asked.strip()):
        _tried(chosen, asked.strip())


def _own_row(name: str) -> dict[str, Any]:
    size, facts = round(weights_of(name).stat().st_size / 1e9, 2), gguf_facts(name)
    return {
        "model": model_label(name), "size (GB)": size, "context": facts.get("context"), "can": "answer",
        "measured": _measured(facts.get("digest", "")),
    }  # fmt: skip


def _measured(digest: str) -> str:
    """What experiments of this program found of these weights; nothing for others."""
    return " · ".join(one.sentence for one in measured_follows(digest)) if digest else ""


def _row(model: InstalledModel, loaded: LoadedModel | None) -> dict[str, Any]:
    in_memory = note = ""
    if not model.can_chat:
        note = "makes embeddings: for the vectors of a bank"
    elif model.chat_template is False:
        note = "no chat template: it goes on with a text instead of answering"
    if loaded is not None:
        on_card = percent(loaded.size_vram / loaded.size, 0) if loaded.size else "0 %"
        in_memory = f"{loaded.size / 1e9:.1f} GB, {on_card} on a graphics card"
    can = ", ".join(SAYS.get(one, one) for one in model.capabilities or ())
    return {
        "model": model.name, "size (GB)": round(model.size / 1e9, 2), "context": model.context, "can": can,
        "measured": _measured(model.digest), "loaded": in_memory, "note": note,
    }  # fmt: skip


def _use_in_a_run() -> None:
    name = st.session_state["new_run_model"] = st.session_state["panel_model"]
    st.toast(literal(f"{name} is chosen: go on with “Start a live run”."), icon=":material/add:")


def _tried(name: str, asked: str) -> None:
    """What the model answers to one message, with its time and its speed."""
    preferences = load_preferences()

    def answer(report: Progress, cancelled: Cancelled) -> Reply:
        model = make_model(name, preferences)
        return model.chat([Message("user", asked)], ModelOptions(num_predict=MOST_TRIED), cancelled=cancelled)

    reply = working("try", f"{name}: {asked}", answer, "answers")
    if reply is not None:
        verbatim(reply.text)
        speed = [f"{reply.answer_tokens / reply.seconds:.1f} tokens a second"] if reply.answer_tokens else []
        st.caption(literal(" · ".join([f"{reply.seconds:.2f} s", *tokens_of(reply), *speed, *reply_notes(reply)])))


def _address_field(where: Any, label: str, name: str, variable: str) -> str:
    """Where a server is: with a login for whoever starts this program to say, as roles hold in a bank and all share
    it."""
    now = str(getattr(load_preferences(), name))
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
                with errors_shown():
                    _use(chosen)
            if st.button("Keep the address as it was", key="keep_address"):
                del st.session_state[ANOTHER_MACHINE]
                st.rerun()


def _use(chosen: dict[str, Any]) -> None:
    save_preferences(load_preferences().model_copy(update=chosen))
    _start_afresh()


def _start_afresh() -> None:
    """Ask Ollama again, and let runs that are idle go on with what is there now."""
    status_of.clear()
    preferences = load_preferences()
    for live in places.live_runs().values():
        if not live.busy:
            # A server that is not there gets its sentence where it is needed.
            with contextlib.suppress(ModelError, EmbedderMismatch):
                reconnect(live, preferences)
    st.rerun()


def _pull(address: str) -> None:
    """Have Ollama fetch a model; leaving the page does not stop it, its button does."""
    if pulled := st.session_state.pop("pulled", None):
        st.success(f"{literal(pulled)} is there: choose it for a run, or for the vectors of a new bank.")
    name = st.text_input("Model to pull", key="pull_name", placeholder="llama3.2  ·  nomic-embed-text").strip()
    if st.button("Pull", icon=":material/download:", key="pull", disabled=not name):
        st.session_state[PULLING] = (address, name)
    if PULLING not in st.session_state:
        return
    at, wanted = st.session_state[PULLING]

    def fetch(report: Progress, cancelled: Cancelled) -> str | None:
        for progress in pull_model(at, wanted, cancelled):
            report(progress.completed // 10**6, progress.total // 10**6)
        return None if cancelled() else wanted

    if working("pull", f"{wanted} at {at}", fetch, "MB") is not None:
        del st.session_state[PULLING], st.session_state["work_pull"]
        status_of.clear()
        st.session_state["pulled"] = wanted
        st.rerun()
