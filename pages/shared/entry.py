"""How every visit comes in: by `app.py`, whichever page the link names."""

from __future__ import annotations

import gc

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from memrl_core.commands.serving import FOREIGN, NEEDS_LOGIN, is_loopback, is_own_host
from pages.shared.person import has_login, secrets_are_broken
from pages.shared.text import literal

FIRST = ("home", "step", "decision", "rewards", "playground", "lessons")
MORE = ("steps", "compare", "methods", "tasks", "bank", "lab", "room")
STYLE = """<style>
:root { --memrl-row: 2.75rem; }
[data-testid="stHeader"] { height: var(--memrl-row); min-height: var(--memrl-row); }
/* What is drawn below must not make the page narrower by a scrollbar: the map would move. */
[data-testid="stMain"] { scrollbar-gutter: stable; }
.stMainBlockContainer { padding: calc(var(--memrl-row) + 1rem) 2.5rem 3rem; }
/* One row that stays at the top, wherever on the page it is written. */
.stMainBlockContainer:has(.st-key-header) { padding-top: calc(2 * var(--memrl-row) + 1rem); }
.st-key-header {
  position: fixed; top: var(--memrl-row); left: 0; right: 0; z-index: 100; height: var(--memrl-row);
  padding: 0 1rem; flex-wrap: nowrap; background: Canvas; border-bottom: 1px solid rgb(128 128 128 / 30%);
}
[data-testid="stLayoutWrapper"]:has(> .st-key-header) { position: absolute; }
.st-key-header > *, .st-key-steps > * { flex: none; }
.st-key-header > :is(.st-key-header_bank, .st-key-header_run) { flex: 0 1 auto; min-width: 5rem; }
.st-key-header > :has(> .st-key-steps) { flex: 1 1 0; min-width: 0; }
.st-key-steps { flex-wrap: nowrap; }
.st-key-steps > :has(> .st-key-header_slider) { flex: 0 1 16rem; min-width: 3rem; }
.st-key-header .st-key-question_mark { position: absolute; width: 1px; }
.st-key-header > .st-key-keys_button { margin-left: auto; }
/* A rater's own buttons, in the same row. */
.st-key-queue_bar {
  position: fixed; top: var(--memrl-row); left: 30rem; right: 3.5rem; z-index: 101; height: var(--memrl-row);
  flex-wrap: nowrap;
}
[data-testid="stLayoutWrapper"]:has(> .st-key-queue_bar) { position: absolute; }
.st-key-queue_bar > * { flex: none; }
@media (max-width: 800px) {
  .st-key-queue_bar { position: static; flex-wrap: wrap; height: auto; }
  [data-testid="stLayoutWrapper"]:has(> .st-key-queue_bar) { position: static; }
  .st-key-header { overflow: auto hidden; }
  .st-key-header > :has(> .st-key-steps) { flex: none; }
  .st-key-header_slider { display: none; }
}
.st-key-header :is([data-testid="stSliderThumbValue"], [data-testid="stSliderTickBar"]) { display: none; }
.st-key-header :is(.st-key-move_Back, .st-key-move_Next, .st-key-all_steps, .st-key-keys_button) button p,
.st-key-queue_moves button p {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
}
/* The primary colour carries white text on buttons; as text itself it must be nearer to the text colour. */
button[data-variant="segmented_control"][data-selected="true"] p, [data-testid="stSliderThumbValue"] p {
  color: color-mix(in srgb, currentColor 45%, CanvasText);
}
/* In sight, below the menu, while the answer that it asks about is read. */
[data-testid="stLayoutWrapper"]:has(> div > div > .st-key-reward_wanted) {
  position: sticky; top: calc(2 * var(--memrl-row)); z-index: 99;
}
.st-key-reward_wanted { background: Canvas; }
</style>"""


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
        st.error("The file secrets.toml cannot be read, so nobody can log in and nothing is shown. Mend it.")
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


@st.cache_resource
def settle(page: str) -> None:
    """Take everything that is loaded after the first run of `page` out of the garbage collector's sight.

    Streamlit collects garbage after every run of a script or fragment, in all threads' time. With the libraries and a
    bank in memory that takes longer than drawing the page.
    """
    gc.collect()
    gc.freeze()
