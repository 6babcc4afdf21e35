"""Decision: one question at a time about why memories were recalled, reranked and used, and what would change that."""

import streamlit as st

from pages.decision import state
from pages.decision.actions import actions
from pages.decision.body import body
from pages.shared import place as places
from pages.shared.header import header

place = places.current(keep=state.opened())
if place is not None:
    header(place)
if place is None or place.run is None:
    st.info("There is no run yet, so no decision to ask about. Start one, or bring one in on the page Bank.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    st.stop()
if not place.last_step and not place.bank.utilities(place.run.id):
    st.info("This run has no step and no memory yet. Its first step will be the first decision to ask about.")
    st.page_link("pages/step/page.py", label="Go to Step", icon=":material/skip_next:")
    st.stop()

actions(place)
body(place)
