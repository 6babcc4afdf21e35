"""Which part of the page Methods is shown; kept in the URL, so that a link reopens it."""

from __future__ import annotations

import streamlit as st

SHOW = "show"
CARDS, TABLE, POOL = "Cards", "Side by side", "On this pool"
VIEWS = {"cards": CARDS, "table": TABLE, "pool": POOL}


def in_link() -> dict[str, str]:
    """What the page has in the URL beside the place."""
    if SHOW in st.query_params and "methods_view" not in st.session_state:
        st.session_state["methods_view"] = VIEWS.get(st.query_params[SHOW], CARDS)
    return {SHOW: _short(st.session_state.get("methods_view", CARDS))}


def chosen_view() -> str:
    """The part to show."""
    st.session_state.setdefault("methods_view", CARDS)
    chosen = st.segmented_control(
        "Show", list(VIEWS.values()), key="methods_view", required=True, label_visibility="collapsed"
    )
    st.query_params[SHOW] = _short(chosen)
    return str(chosen)


def _short(view: str) -> str:
    return next(name for name, title in VIEWS.items() if title == view)
