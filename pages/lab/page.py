"""Lab: two agents play side by side under settings that can be changed, theory beside it, and a study of many runs."""

import streamlit as st

from pages.lab import place as lab_place
from pages.lab.twins import controls, settings_of_both, while_they_play

view = st.segmented_control(
    "View", lab_place.VIEWS, default=lab_place.TWINS, key="view", required=True, label_visibility="collapsed",
    bind="query-params",
)  # fmt: skip
place = lab_place.current(view)
# The other views' libraries are not waited for by who sees two agents play.
if view == lab_place.THEORY:
    from pages.lab.theory import theory_beside_practice

    theory_beside_practice(place)
elif view == lab_place.STUDY:
    from pages.lab.study import when_utility_helps

    when_utility_helps()
elif place.twins is not None:
    # Looked at once: a play that ends while the page is drawn would leave its parts at odds.
    playing = place.twins.playing
    with st.container(gap="xsmall", key="lab"):
        controls(place, place.twins, playing)
        settings_of_both(place.twins)
        while_they_play(place.twins, playing)
