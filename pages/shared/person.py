"""Who the person is: by their login where one is set up, else by the name that they type."""

from __future__ import annotations

import streamlit as st

from memrl_core import workspace
from memrl_core.bank import MemoryBank
from memrl_core.bank.roles import SOMEONE, Role, person_name
from memrl_core.errors import MemRLError
from pages.shared.text import literal

NAME, FIELD = "person", "person_field"
MAY = {Role.LOOK: "may look", Role.RATE: "may rate", Role.MANAGE: "may manage"}


def has_login() -> bool:
    """Whether this server asks people to log in (OIDC, in Streamlit's secrets)."""
    try:
        return "auth" in st.secrets
    except FileNotFoundError:
        return False


def person() -> str:
    """The name under which this session rates; "someone" until one is known."""
    if has_login():
        return person_name(str(st.user.get("email") or st.user.get("name") or "")) if st.user.is_logged_in else SOMEONE
    # Another session of this machine may change the remembered name: this one keeps its own.
    return person_name(st.session_state.setdefault(NAME, workspace.load_preferences().rater))


def name_field(key: str, label: str = "Your name") -> None:
    """A field for the name, or who is logged in."""
    if has_login():
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            st.markdown(f":material/person: {literal(person())}", width="content")
            st.button("Log out", key=f"{key}_logout", type="tertiary", on_click=st.logout)
        return
    known = st.session_state.setdefault(NAME, workspace.load_preferences().rater)
    if st.session_state.get(key) != known:
        st.session_state[key] = known
    st.text_input(
        label, key=key, max_chars=80, width=150, placeholder=SOMEONE, on_change=_remember, args=(key,),
        help="Rewards are kept under this name. It is not proof of who you are: without a login anybody can type it.",
    )  # fmt: skip


def allowed(bank: MemoryBank, role: Role) -> bool:
    """Whether the person may do what `role` covers; the core asks again when they do it."""
    return list(Role).index(bank.people.role_of(person())) >= list(Role).index(role)


def _remember(key: str) -> None:
    try:
        name = person_name(st.session_state[key])
        st.session_state[NAME] = "" if name == SOMEONE else name
        preferences = workspace.load_preferences()
        workspace.save_preferences(preferences.model_copy(update={"rater": st.session_state[NAME]}))
    except MemRLError as error:
        st.session_state["failure"] = str(error)
