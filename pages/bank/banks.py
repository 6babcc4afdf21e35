"""The banks of this machine: make, open, copy, delete, and the demo put back as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from memrl_core.agent.preferences import DEMO, RECORDINGS, banks_folder, load_preferences, reset_demo_bank
from memrl_core.agent.run_parts import create_bank
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.folders import copy_bank, delete_bank, list_banks, valid_name
from pages.shared import place as places
from pages.shared.forms import open_bank_form
from pages.shared.models import embedder_choice
from pages.shared.person import must_be, within_role
from pages.shared.picture import layout_of
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal


def banks_of_this_machine(place: Place | None) -> None:
    """One row per bank with what can be done to it, then ways to get another."""
    for summary in list_banks(banks_folder()):
        here = place is not None and summary.name == place.bank_name
        # The others are opened, to ask for the role, only when one is to be deleted.
        look = within_role(place.bank if here and place is not None else None, Role.MANAGE)
        with st.container(horizontal=True, vertical_alignment="center", key=f"bank_{summary.name}"):
            st.markdown(f"**{literal(summary.name)}**" + (" · open now" if here else ""), width=260)
            st.button(
                "Open", key=f"open_{summary.name}", on_click=places.go, kwargs={"bank": summary.name}, disabled=here
            )
            with st.popover("Copy", key=f"copy_{summary.name}"):
                _copy_form(summary.name, Path(summary.path))
            if summary.name in RECORDINGS:
                if st.button("Reset the demo", key=f"reset_{summary.name.replace('-', '_')}", **look):
                    _confirm(
                        summary.name,
                        "Put the demo bank back as it was? What you added to it is lost.",
                        "Reset",
                        partial(_reset_demo, summary.name),
                    )
            elif st.button("Delete", key=f"delete_{summary.name}", **look):
                _confirm(
                    summary.name,
                    f"Delete the bank “{literal(summary.name)}” with all its memories and runs? This cannot be undone.",
                    "Delete",
                    partial(_delete, summary.name, Path(summary.path)),
                )
    st.divider()
    make, find = st.columns(2, gap="large")
    with make:
        st.subheader("New bank")
        _create_form()
    with find:
        st.subheader("Open a bank from elsewhere")
        open_bank_form()


def _create_form() -> None:
    name = st.text_input("Name", key="create_name", placeholder="my-bank", max_chars=60)
    embedder = embedder_choice("create")
    if not st.button("Create", key="create_bank", disabled=not name.strip()):
        return
    with errors_shown():
        path = banks_folder() / valid_name(name)
        create_bank(str(path), embedder, load_preferences()).close()
        places.go(bank=path.name)
        st.rerun()


def _copy_form(name: str, source: Path) -> None:
    target = st.text_input("Name of the copy", value=f"{name}-copy", key=f"copy_name_{name}", max_chars=60)
    if not st.button("Copy", key=f"copy_go_{name}"):
        return
    with errors_shown():
        places.opened(str(source)).write.flush()
        copy_bank(source, banks_folder() / valid_name(target))
        places.go(bank=valid_name(target))
        st.rerun()


@st.dialog("Are you sure?")
def _confirm(name: str, question: str, verb: str, act: Callable[[], None]) -> None:
    st.markdown(question)
    with st.container(horizontal=True):
        if st.button(verb, type="primary", key="confirm", **within_role(places.bank_named(name), Role.MANAGE)):
            with errors_shown():
                act()
                st.rerun()
        if st.button("Keep it", key="keep"):
            st.rerun()


def _release(uri: str) -> None:
    """Let go of every handle on a bank that is about to be replaced or deleted, by someone who may."""
    must_be(places.opened(uri), Role.MANAGE)
    places.release(uri)
    layout_of.clear()


def _delete(name: str, path: Path) -> None:
    _release(str(path))
    delete_bank(path)
    if st.session_state.get("place", {}).get("bank") == name:
        places.go(bank=DEMO)


def _reset_demo(name: str) -> None:
    _release(str(banks_folder() / name))
    reset_demo_bank(name)
    if st.session_state.get("place", {}).get("bank") == name:
        places.go(bank=name)
