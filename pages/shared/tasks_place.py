"""Which environment, set and task the page Tasks shows; kept in the URL, so that a link reopens it."""

from __future__ import annotations

import streamlit as st

from memrl_core.environments import environment_names, environment_title

ENVIRONMENT, SET, TASK = "environment", "set", "task"
IN_LINK = (ENVIRONMENT, SET, TASK)
CHOSEN = "tasks_environment"


def in_link() -> dict[str, str]:
    """What the page has in the URL beside the place."""
    return {name: st.query_params[name] for name in IN_LINK if name in st.query_params}


def chosen_environment() -> str:
    """The environment to show."""
    names = environment_names()
    asked = st.query_params.get(ENVIRONMENT)
    # The page's own choice comes back in the URL; another one was asked for by a link.
    if asked is not None and asked != st.session_state.get("tasks_shown"):
        if asked in names:
            st.session_state[CHOSEN] = asked
        else:
            st.toast("There is no such environment here. The household is shown instead.", icon=":material/link_off:")
    st.session_state.setdefault(CHOSEN, names[0])
    chosen = str(
        st.segmented_control(
            "Environment", names, key=CHOSEN, required=True, format_func=environment_title, label_visibility="collapsed"
        )
    )
    if st.query_params.get(ENVIRONMENT) != chosen:
        for name in (SET, TASK):
            st.query_params.pop(name, None)
    st.query_params[ENVIRONMENT] = st.session_state["tasks_shown"] = chosen
    return chosen
