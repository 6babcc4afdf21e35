"""Bank: the memories themselves, the settings that rule them, imports and exports, and the banks of this machine."""

import streamlit as st

from memrl_core.bank.people.roles import Role
from memrl_core.policies import settings_of
from pages.bank.banks import banks_of_this_machine
from pages.bank.import_export import import_export
from pages.bank.memory_table import memory_table
from pages.shared import place as places
from pages.shared.forms import settings_in_two_columns, settings_in_use
from pages.shared.header import follow_others, header
from pages.shared.memory_detail import memory_detail
from pages.shared.person import person, within_role
from pages.shared.text import errors_shown
from pages.shared.view import View, view_of

MEMORIES, SETTINGS, EXCHANGE, BANKS = "Memories", "Settings", "Import and export", "Banks of this machine"


def settings_form(view: View) -> None:
    """Every setting with its range; Save appends the change to the ledger."""
    bank, run = view.place.bank, view.run.id
    current = settings_of(view.run.policy, bank.settings(run, view.place.step))
    if not view.moment.live:
        st.caption("These were in force at the step that is replayed. Go live to change them.")
    with st.form("settings", border=False):
        names = settings_in_use(view.run.policy)
        values = settings_in_two_columns(current, f"settings_{run}_{view.place.step}", names)
        saved = st.form_submit_button(
            "Save for the next steps", type="primary", icon=":material/save:",
            **within_role(bank, Role.MANAGE, disabled=not view.moment.live),
        )  # fmt: skip
    if not saved:
        return
    with errors_shown():
        chosen = settings_of(view.run.policy, values)
        if chosen == current:
            st.info("Nothing was changed: these settings are in force already.")
            return
        first = bank.next_step(run) + (1 if view.live is not None and view.live.under_way else 0)
        bank.write.change_settings(run, chosen.model_dump(), first, by=person())
        st.success(f"Saved. In force from step {first} on; finished steps keep the settings they were made with.")


place = places.current(keep=places.selection_in_link())
if place is not None:
    header(place)
has_run = place is not None and place.run is not None
chosen = st.segmented_control(
    "Show",
    [MEMORIES, SETTINGS, EXCHANGE, BANKS],
    default=MEMORIES,
    key="bank_view",
    required=True,
    label_visibility="collapsed",
)
if chosen == EXCHANGE:
    import_export(place)
elif chosen == BANKS:
    banks_of_this_machine(place)
elif place is None or not has_run:
    st.info("This bank has no run, so it holds no memory yet. Start one: its first task writes the first memory.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
elif chosen == SETTINGS:
    settings_form(view_of(place))
else:
    view = view_of(place)
    # The table's place in the page stays the same: it keeps how far it is scrolled.
    table, *detail = st.columns([3, 2] if view.place.memory else [1], gap="medium")
    with table:
        memory_table(view)
    for beside in detail:
        with beside:
            memory_detail(view)
    follow_others(place)
