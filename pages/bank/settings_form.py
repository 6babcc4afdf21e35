"""The settings of a run: changed for the steps to come, never for those that were."""

from __future__ import annotations

import streamlit as st

from memrl_core.policies import settings_of
from pages.shared.forms import settings_fields, settings_in_use
from pages.shared.person import person
from pages.shared.text import errors_shown
from pages.shared.view import View


def settings_form(view: View) -> None:
    """Every setting with its range; Save appends the change to the ledger."""
    bank, run = view.place.bank, view.run.id
    current = settings_of(view.run.policy, bank.settings(run, view.place.step))
    if not view.moment.live:
        st.caption("These were in force at the step that is replayed. Go live to change them.")
    with st.form("settings", border=False):
        left, right = st.columns(2)
        names = settings_in_use(view.run.policy)
        half = (len(names) + 1) // 2
        key = f"settings_{run}_{view.place.step}"
        with left:
            values = settings_fields(current, key, names[:half])
        with right:
            values |= {n: v for n, v in settings_fields(current, key, names[half:]).items() if n in names[half:]}
        saved = st.form_submit_button(
            "Save for the next steps", type="primary", icon=":material/save:", disabled=not view.moment.live
        )
    if not saved:
        return
    with errors_shown():
        chosen = settings_of(view.run.policy, values)
        if chosen == current:
            st.info("Nothing was changed: these settings are in force already.")
            return
        first = bank.next_step(run) + (1 if view.live is not None and view.live.under_way else 0)
        bank.change_settings(run, chosen.model_dump(), first, by=person())
        st.success(f"Saved. In force from step {first} on; finished steps keep the settings they were made with.")
