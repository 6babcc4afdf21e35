"""What a person has typed and a key that comes right behind takes along: else it is saved a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

WAITS = "waits_for_a_key"
SECONDS = 0.7
"""How long it waits; on Step as well."""


def wait(save: Callable[[], object]) -> None:
    """Call `save` in a moment, or as soon as the person leaves the page, unless `taken` is called before."""
    st.session_state[WAITS] = time.monotonic(), save


def taken() -> None:
    """Nothing waits any more."""
    st.session_state.pop(WAITS, None)


def save_what_waits(after: float = 0.0) -> bool:
    """Save what has waited for so many seconds; whether there was any."""
    since, save = st.session_state.get(WAITS, (None, None))
    if since is None or time.monotonic() - since < after:
        return False
    taken()
    save()
    return True


def follow_what_waits() -> None:
    """Save it once it has waited long enough; to be called where the page is drawn."""
    if WAITS in st.session_state:
        _look()


@st.fragment(run_every=SECONDS)
def _look() -> None:
    if save_what_waits(SECONDS):
        st.rerun()
