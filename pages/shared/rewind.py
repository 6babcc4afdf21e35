"""Go back and try again: a run from before a step on, or other settings from the next step on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from memrl_core.agent.runs import fork
from memrl_core.bank.people.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.policies import settings_of
from memrl_core.settings import PolicySettings
from pages.shared import place as places
from pages.shared.forms import often_changed, settings_in_two_columns
from pages.shared.models import chat_model_choice
from pages.shared.person import person, within_role
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal


def rewind_form(place: Place, step: int, begin_with: PolicySettings | None = None) -> None:
    """Start a run that knows what the place's run knew before `step`, and show it on the page Step.

    `begin_with` are the settings in the fields; those that were in force at the step where none are given.
    """
    try:
        settings = begin_with or settings_of(place.info.policy, place.bank.settings(place.info.id, step))
    except MemRLError:
        return  # Settings of another version: such a run can be looked at, not continued.
    look = within_role(place.bank, Role.MANAGE)
    with st.popover("Rewind to here", icon=":material/undo:", key=f"rewind_{place.info.id}_{step}", **look):
        st.markdown(
            f"A new run that knows what {literal(place.info.id)} knew before step {step}. It meets the same tasks with "
            "the same seeds; this run stays as it is."
        )
        key = f"rewound_{place.info.id}_{step}"
        with st.container(height=380, border=False):
            values = settings_in_two_columns(settings, key, often_changed(place.info.policy))
            model = chat_model_choice(key, place.info.model, place.info.model)
        name = st.text_input("Name", key="rewind_name", placeholder="chosen for you")
        if st.button("Rewind", type="primary", key="rewind", width="stretch", **look):
            with errors_shown():
                started = fork(place.bank, place.info.id, step, values, name.strip() or None, by=person(), model=model)
                places.go_to_steps(run=started.id, step=None)


def compare_button(place: Place) -> None:
    """The way to Compare for a run that goes on from another one; nothing for others."""
    if place.info.base is None:
        return
    base = place.info.base
    if st.button(
        f"Compare with {literal(base)}",
        icon=":material/compare_arrows:",
        key="compare_with_base",
        help=f"{literal(place.info.id)} goes on from {literal(base)}, with what that knew after step "
        f"{place.info.base_step}.",
    ):
        st.switch_page("pages/compare/page.py", query_params={**st.session_state["place"], "against": base})


def next_settings_form(place: Place, under_way: bool, **look: Any) -> None:
    """Other settings for the steps to come, without the one that is `under_way`: an event of the run."""
    bank, run = place.bank, place.info.id
    try:
        current = settings_of(place.info.policy, bank.settings(run))
    except MemRLError:
        return
    look = within_role(bank, Role.MANAGE, **look)
    first = next_changed(place, under_way)
    with st.popover("Settings", icon=":material/tune:", key=f"settings_{run}_{first}", **look):
        with st.container(height=380, border=False):
            values = settings_in_two_columns(current, f"next_{run}_{first}", often_changed(place.info.policy))
        if st.button(f"Use from step {first} on", type="primary", key="use_settings", width="stretch", **look):
            with errors_shown():
                use_settings(place, values, first)
                st.rerun()


def next_changed(place: Place, under_way: bool) -> int:
    """The first step that other settings would hold for: the one that is `under_way` has its own."""
    return place.bank.next_step(place.info.id) + under_way


def use_settings(place: Place, changed: Mapping[str, Any], first: int) -> None:
    """Let the run go on under these settings from the step `first` on; those that are not named stay.

    Raises `SettingsError` for a value out of range, and `NotAllowed`.
    """
    bank, run = place.bank, place.info.id
    current = settings_of(place.info.policy, bank.settings(run))
    chosen = settings_of(place.info.policy, {**current.model_dump(), **changed})
    if chosen != current:
        bank.write.change_settings(run, chosen.model_dump(), first, by=person())
