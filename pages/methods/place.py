"""Which part of the page Methods is shown; kept in the URL, so that a link reopens it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

SHOW, BY = "show", "by"
OWN = "own"
LEARNED_BY = "learned_by"
CARDS, TABLE, POOL, LEARNED = "Cards", "Side by side", "On this pool", "What it has learned"
VIEWS = {"cards": CARDS, "table": TABLE, "pool": POOL, "learned": LEARNED}


def in_link() -> dict[str, str]:
    """What the page has in the URL beside the place."""
    asked = st.query_params.get(SHOW)
    # The page's own choice comes back in the URL; another one was asked for by a link.
    if asked is not None and asked != st.session_state.get("methods_shown"):
        st.session_state["methods_view"] = VIEWS.get(asked, CARDS)
    if BY in st.query_params and LEARNED_BY not in st.session_state:
        st.session_state[LEARNED_BY] = st.query_params[BY]
    by = st.session_state.get(LEARNED_BY, OWN)
    return {SHOW: _short(st.session_state.get("methods_view", CARDS)), **({BY: by} if by != OWN else {})}


def chosen_view() -> str:
    """The part to show."""
    st.session_state.setdefault("methods_view", CARDS)
    chosen = str(
        st.segmented_control(
            "Show", list(VIEWS.values()), key="methods_view", required=True, label_visibility="collapsed"
        )
    )
    st.query_params[SHOW] = st.session_state["methods_shown"] = _short(chosen)
    return chosen


def chosen_method(own: str, titles: Mapping[str, str]) -> str:
    """The method to look at what it has learned: the run's `own`, or another of those that have `titles`."""
    options = [OWN, *(name for name in titles if name != own)]
    if st.session_state.get(LEARNED_BY) not in options:
        st.session_state[LEARNED_BY] = OWN
    chosen = st.selectbox(
        "What has been learned by",
        options,
        key=LEARNED_BY,
        width=620,
        format_func=lambda name: (
            f"{titles.get(own, own)} — this run's own method"
            if name == OWN
            else f"{titles[name]} — as if it had watched this run"
        ),
    )
    if chosen == OWN:
        st.query_params.pop(BY, None)
        return own
    st.query_params[BY] = chosen
    return str(chosen)


def _short(view: str) -> str:
    return next(name for name, title in VIEWS.items() if title == view)
