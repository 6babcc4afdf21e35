"""What other people do in the same bank, seen within two seconds."""

from __future__ import annotations

import streamlit as st

from memrl_core.bank.roles import actor_of
from pages.shared.person import person
from pages.shared.place import Place
from pages.shared.text import literal

SECONDS = 1.5
DRAWN = "drawn_facts"


def follow_others(place: Place) -> None:
    """Draw the page anew when something is appended that it does not show yet; to be called at its end."""
    st.session_state[DRAWN] = place.bank.facts
    others(place, DRAWN)


@st.fragment(run_every=SECONDS)
def others(place: Place, drawn: str) -> None:
    """Who else was here lately; draws the page anew when the session's `drawn` is not how many facts there are."""
    bank = place.bank
    bank.refresh()
    if bank.facts != st.session_state.get(drawn, bank.facts):
        st.rerun()
    said = [f"{who} at {event.created[11:19]} UTC" for event in bank.lately() if (who := actor_of(event)) != person()]
    if said:
        st.caption(literal(f"Others, last seen: {', '.join(said[:3])}"))
