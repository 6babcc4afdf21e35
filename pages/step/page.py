"""Step: one task from intent to new memory on one screen, the stage; what a phase has more of opens over a panel."""

import streamlit as st

from memrl_core.errors import MemRLError
from pages.shared import place as places
from pages.shared.header import bar, follow_others, header, keys_help
from pages.shared.picture import layout_of
from pages.shared.text import errors_shown
from pages.shared.view import view_of
from pages.step.controls import controls, follows_banner, model_banner
from pages.step.drawers import drawer
from pages.step.hand import act_on, count_later
from pages.step.stage import layout_choice, look_in_link, stage

place = places.current(keep=look_in_link())
if place is None or place.run is None:
    if place is not None:
        header(place)
    st.info("There is no run to step through yet. Start one: its first memory will be the first point on the map.")
    st.page_link("pages/home/page.py", label="Start a run", icon=":material/add:")
    st.stop()

above, picture, below = st.container(key="above"), st.container(), st.container()
try:
    view = view_of(place)
    if acted := act_on(view):
        place = places.current(keep=look_in_link()) or place
        view = view_of(place)
    with picture:
        # Before all else: the browser draws what comes first first, and the stage is what a step is watched on.
        comes_again = stage(view, acted)
except MemRLError:
    # A step that cannot be read is no reason to leave the bank: the header leads to the others.
    with above:
        header(place)
        with errors_shown():
            raise
    st.stop()
with above:
    if comes_again:
        # What the browser would have to load for the rest of the row keeps the stage waiting.
        with bar():
            keys_help()
    else:
        header(place, slider=False)
    notices = st.container(key="notices")
    with notices:
        model_banner(view)
    controls(view)
    # An earlier step that cannot be read takes neither the buttons nor this step away.
    with errors_shown(), notices:
        follows_banner(view)
if comes_again:
    # What is read below the stage would only keep the browser from drawing it.
    st.stop()
with above, errors_shown(), below:
    drawer(view)
layout = layout_of(place.bank.uri, place.bank)
layout_choice(view, layout)
if not view.busy:
    count_later(view)
    with st.container(key="below_stage"):
        follow_others(place, place.facts)
