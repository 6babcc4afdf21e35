"""What the page Decision remembers besides the place: the question, the two memories, and the settings tried out.

The URL carries it, so that a link reopens what was seen; within a session the session's own state goes first.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from memrl_core.errors import SettingsError
from memrl_core.settings import PolicySettings
from pages.shared.place import ASKED_ABOUT
from pages.shared.text import literal

TRIED = ("weight", "delta", "k1", "k2", "alpha", "normaliser")
ASK, FIRST, SECOND = "ask", "a", "b"
NAMES = (ASK, FIRST, SECOND, *TRIED)
STATE = "decision_state"


def opened() -> dict[str, str]:
    """The page's state, from the URL when the session comes in by a link."""
    if STATE not in st.session_state:
        st.session_state[STATE] = {name: st.query_params[name] for name in NAMES if name in st.query_params}
    state: dict[str, str] = st.session_state[STATE]
    if ASKED_ABOUT in st.query_params:
        state |= {ASK: st.query_params.get(ASK, "pair"), FIRST: st.query_params.pop(ASKED_ABOUT)}
    return state


def put(name: str, value: str | None) -> None:
    """Remember a part of the state; None forgets it."""
    state = opened()
    if value is None:
        state.pop(name, None)
    else:
        state[name] = value


def into_url() -> None:
    """Write the state beside the place, for the link."""
    for name in NAMES:
        value = opened().get(name)
        if value is not None:
            st.query_params[name] = value
        elif name in st.query_params:
            del st.query_params[name]


def tried(recorded: PolicySettings) -> PolicySettings:
    """The recorded settings with those that are tried out; a combination that cannot be gets a sentence."""
    state = opened()
    changes: Mapping[str, str] = {name: state[name] for name in TRIED if name in state and hasattr(recorded, name)}
    try:
        return type(recorded).of({**recorded.model_dump(), **changes})
    except SettingsError as error:
        message = str(error).removeprefix("Settings were not changed. ")
        st.warning(f"These settings do not go together, so the recorded ones are shown. {literal(message)}")
        return recorded


def try_out(name: str, value: object, recorded: object) -> None:
    """Try a setting out; the recorded value is no trial."""
    put(name, None if value == recorded else str(value))


def forget_trials() -> None:
    """Go back to the settings with which the step was decided."""
    for name in TRIED:
        put(name, None)
