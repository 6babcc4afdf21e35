"""Who the person is: by their login where one is set up, else by the name that they type."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from memrl_core.agent.preferences import load_preferences, save_preferences
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import COVERS, LONGEST_NAME, SOMEONE, Role, person_name
from memrl_core.errors import InputError, MemRLError
from memrl_core.records import LedgerEvent
from pages.shared.text import literal

NAME, COOKIE, BROWSER = "person", "memrl_person", "memrl_browser"
MAY = {Role.LOOK: "may look", Role.RATE: "may rate", Role.MANAGE: "may manage"}

_in_browser = st.components.v2.component(
    "memrl_person",
    js=f"""
export default function ({{ data }}) {{
  const keep = (name, value) => {{
    document.cookie = name + "=" + encodeURIComponent(value) + "; path=/; max-age=31536000; SameSite=Strict";
  }};
  if (!document.cookie.includes("{BROWSER}=")) keep("{BROWSER}", data.browser);
  if (data.name) keep("{COOKIE}", data.name);
}}
""",
)


def has_login() -> bool:
    """Whether this server asks people to log in (OIDC, in Streamlit's secrets)."""
    return st.secrets.load_if_toml_exists() and "auth" in st.secrets


def secrets_are_broken() -> bool:
    """Whether there is a file of secrets that cannot be read: it may hold the login."""
    return not st.secrets.load_if_toml_exists() and any(Path(file).exists() for file in st.get_option("secrets.files"))


def person() -> str:
    """The name under which this session rates; "someone" until one is known."""
    if has_login():
        return _by_login() if st.user.is_logged_in else SOMEONE
    return person_name(_own_name())


def is_distinct() -> bool:
    """Whether what this person does is known as theirs: they have a name, or everybody else has one.

    Others are sessions that are connected now, in another browser: not a page that was closed or loaded anew.
    """
    nameless, own, browser = _nameless(), _session(), _browser()
    if person() != SOMEONE:
        nameless.pop(own, None)
        return True
    nameless[own] = browser
    for session in [session for session in list(nameless) if session != own and not _is_connected(session)]:
        nameless.pop(session, None)
    return all(other == browser for other in list(nameless.values()))


def name_field(key: str, label: str = "Your name", row: bool = False) -> None:
    """A field for the name, or who is logged in; in a `row` of controls without its label."""
    if has_login():
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            st.markdown(f":material/person: {literal(person())}", width="content")
            st.button("Log out", key=f"{key}_logout", type="tertiary", on_click=st.logout)
        return
    known = _own_name()
    if st.session_state.get(key) != known:
        st.session_state[key] = known
    st.text_input(
        label, key=key, max_chars=LONGEST_NAME, width=130, placeholder=label.lower() if row else SOMEONE,
        on_change=_remember, args=(key,), label_visibility="collapsed" if row else "visible",
        help="Rewards are kept under this name. It is not proof of who you are: without a login anybody can type it.",
    )  # fmt: skip
    with st.container(width=1):
        _in_browser(key=f"{key}_kept", data={"name": known, "browser": _browser()}, height=1)


def rename(name: str) -> None:
    """Let this session rate under a name from now on, and remember it on this machine.

    A login decides by itself. Raises `InputError` for an impossible name.
    """
    if has_login():
        return
    name = person_name(name)
    st.session_state[NAME] = "" if name == SOMEONE else name
    _taken().setdefault(name, _session())
    preferences = load_preferences()
    save_preferences(preferences.model_copy(update={"rater": st.session_state[NAME]}))


def allowed(bank: MemoryBank, role: Role) -> bool:
    """Whether the person may do what `role` covers; the core asks again when they do it."""
    return list(Role).index(bank.people.role_of(person())) >= list(Role).index(role)


def must_be(bank: MemoryBank, role: Role) -> None:
    """Raise `NotAllowed` unless the person may do what `role` covers by now, whatever the page was drawn with."""
    bank.refresh()
    bank.people.must_be(person(), role)


def within_role(bank: MemoryBank | None, role: Role, disabled: bool = False, help: str | None = None) -> dict[str, Any]:
    """`disabled` and `help` of a button for what `role` covers: off, with the reason, where the person may not do it.

    Without a `bank` there is none yet, so anybody may.
    """
    if bank is None or allowed(bank, role):
        return {"disabled": disabled, "help": help}
    has = MAY[bank.people.role_of(person())]
    why = f"You {has} in this bank, not {COVERS[role]}. Someone who may manage it can change that: Rewards → People."
    return {"disabled": True, "help": why}


def role_to_take_back(given: LedgerEvent) -> Role:
    """The role by which the person may take back what somebody gave: others' is the manager's."""
    return Role.RATE if given.rater == person() else Role.MANAGE


def _own_name() -> str:
    """The name that this session has, or that is remembered of its browser; "" for none."""
    if NAME not in st.session_state:
        st.session_state[NAME] = _remembered()
    name: str = st.session_state[NAME]
    return name


def _by_login() -> str:
    """The login's address where the provider vouches for it, else its name for the person within the provider."""
    claims = st.user.to_dict()
    address = claims.get("email") if claims.get("email_verified", True) else ""
    return person_name(str(address or claims.get("sub") or "")[:LONGEST_NAME])


def _remembered() -> str:
    """The name that this browser gave last; else the machine's, unless another session goes by it."""
    given = unquote(st.context.cookies.get(COOKIE, ""))[:LONGEST_NAME]
    try:
        if given and person_name(given) != SOMEONE:
            return given
    except InputError:
        pass  # A cookie may hold anything.
    name = load_preferences().rater
    return name if name and _taken().setdefault(name, _session()) == _session() else ""


@st.cache_resource
def _taken() -> dict[str, str]:
    """The first session of this server that went by each name."""
    return {}


@st.cache_resource
def _nameless() -> dict[str, str]:
    """The browser of each session that has asked to rate without a name."""
    return {}


def _session() -> str:
    context = get_script_run_ctx()
    return context.session_id if context else ""


def _browser() -> str:
    """The browser of this session, by the cookie that it sent, or by the one that it is given now."""
    return st.context.cookies.get(BROWSER) or str(st.session_state.setdefault(BROWSER, uuid.uuid4().hex))


def _is_connected(session: str) -> bool:
    return runtime.exists() and runtime.get_instance().is_active_session(session)


def _remember(key: str) -> None:
    try:
        rename(st.session_state[key])
    except MemRLError as error:
        st.session_state["failure"] = str(error)
