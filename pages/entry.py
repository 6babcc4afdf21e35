"""How every visit comes in: by `app.py`, whichever page the link names."""

from __future__ import annotations

import gc
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from memrl_core.cli.serving import FOREIGN, NEEDS_LOGIN, is_loopback, is_own_host, raise_open_files
from pages.shared import place
from pages.shared.person import has_login, secrets_are_broken
from pages.shared.text import literal

FIRST = ("home", "step", "decision", "rewards", "playground", "lessons")
MORE = ("steps", "recall", "compare", "race", "methods", "tasks", "bank", "lab", "room")
STYLE = f"<style>{Path(__file__).with_name('entry.css').read_text(encoding='utf-8')}</style>"
raise_open_files()  # Also for those who start this by `streamlit run`.
_history = st.components.v2.component(
    "memrl_history", js=Path(__file__).with_name("history.js").read_text(encoding="utf-8")
)


def is_open() -> bool:
    """Whether this visitor may see the banks: on this machine, or logged in where a login is set up."""
    if secrets_are_broken():
        return False
    if has_login():
        return bool(st.user.is_logged_in)
    return is_loopback(st.get_option("server.address") or "") and not _foreign()


def _foreign() -> str:
    """The host by which this page was asked for, or that of the site that asks, where it is not this machine's.

    Streamlit refuses those as well, as long as nobody starts it with other options.
    """
    headers = st.context.headers
    asked = (headers.get("Host", ""), headers.get("Origin", "").rpartition("://")[2])
    return next((host for host in asked if host and not is_own_host(host)), "")


def wall() -> None:
    """What everybody else sees."""
    if secrets_are_broken():
        st.error("The file secrets.toml cannot be read, so nobody can log in and nothing is shown. Correct it.")
    elif has_login():
        st.title("MemRL Inspector", anchor=False)
        st.markdown("Log in to see the banks of this server. Your rewards are kept under the name of your login.")
        st.button("Log in", type="primary", icon=":material/login:", key="login", on_click=st.login)
    elif is_loopback(st.get_option("server.address") or ""):
        st.error(literal(FOREIGN.format(host=_foreign()[:80])))
    else:
        st.error(NEEDS_LOGIN.format(address=literal(str(st.get_option("server.address") or "every address"))))


def navigation(menu: bool = True) -> StreamlitPage:
    """The pages, in the order of the menu; returns the one to run."""
    first, more = ([_page(name) for name in names] for names in (FIRST, MORE))
    return st.navigation({"": first, "More": more}, position="top" if menu else "hidden")


def _page(name: str) -> StreamlitPage:
    return st.Page(f"pages/{name}/page.py", title=name.capitalize(), url_path=name, default=name == "home")


def hear_history() -> None:
    """Let the browser's Back and Forward lead to the places where the person was, and to no others."""
    _history(key="browser_history", on_popped_change=place.went_back, height=1)


@st.cache_resource
def settle(page: str) -> None:
    """Take everything that is loaded after the first run of `page` out of the garbage collector's sight.

    Streamlit collects garbage after every run of a script or fragment, in all threads' time. With the libraries and a
    bank in memory that takes longer than drawing the page.
    """
    gc.collect()
    gc.freeze()
