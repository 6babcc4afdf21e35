"""Bank: the memories themselves, the settings that rule them, imports and exports, and the banks of this machine."""

import streamlit as st

from pages.bank.banks import banks_of_this_machine
from pages.bank.import_export import import_export
from pages.bank.memory_table import memory_table
from pages.bank.settings_form import settings_form
from pages.shared import place as places
from pages.shared.header import follow_others, header
from pages.shared.memory_detail import memory_detail
from pages.shared.view import view_of

MEMORIES, SETTINGS, EXCHANGE, BANKS = "Memories", "Settings", "Import and export", "Banks of this machine"

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
    table, detail = st.columns([3, 2], gap="medium")
    with table:
        memory_table(view)
    with detail:
        memory_detail(view, choose="Tick a memory in the table")
    follow_others(place)
