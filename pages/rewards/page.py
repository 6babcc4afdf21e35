"""Rewards: outputs that await a person, one key per rating; who agrees; what it changed; everything can be undone."""

from collections.abc import Callable, Mapping

import streamlit as st

from memrl_core.bank.people.roles import Role
from pages.rewards.audit import audit_trail
from pages.rewards.changed import changed
from pages.rewards.files import reward_files
from pages.rewards.people import people
from pages.rewards.queue import FACTS, asked_filter, link_of
from pages.rewards.rating import rating
from pages.rewards.rules import rules
from pages.shared import place as places
from pages.shared.header import RATING, bank_picker, bar, follow_others, keys_help, others, run_picker
from pages.shared.person import MAY, name_field, person
from pages.shared.place import Place
from pages.shared.text import literal

VIEWS: Mapping[str, Callable[[Place], None] | None] = {
    "Queue": None,
    "People": people,
    "What changed": changed,
    "Audit": audit_trail,
    "Import and export": reward_files,
    "Rules": rules,
}
OF_ONE_RUN = ("People", "What changed", "Rules")
VIEW = "rewards_view"

if st.query_params.get("view") in VIEWS and VIEW not in st.session_state:
    st.session_state[VIEW] = st.query_params["view"]
view = st.session_state.setdefault(VIEW, "Queue")
place = places.current({"view": view, **link_of(asked_filter())})
if place is None or place.run is None:
    if place is not None:
        bank_picker(place)
    st.info("This bank has no run, so there is no output to rate yet. Start one, and its steps come here.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    st.stop()

with bar():
    bank_picker(place)
    st.selectbox("View", list(VIEWS), key=VIEW, width=160, label_visibility="collapsed")
    name_field("rewards_name", row=True)
    if view in OF_ONE_RUN:
        run_picker(place, place.run)
    keys_help(RATING)
role = place.bank.people.role_of(person())
if role is not Role.MANAGE:
    st.caption(literal(f"{person()} {MAY[role]} in this bank."))

if show := VIEWS[view]:
    show(place)
    follow_others(place)
else:
    rating(place)
    others(place, FACTS)
