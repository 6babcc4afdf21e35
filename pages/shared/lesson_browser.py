"""The browser that takes the lessons: its id in a cookie, and its page at the top when another page is turned to."""

from __future__ import annotations

import secrets

import streamlit as st

from memrl_core.lessons.progress import BROWSER

STORED, COOKIE = "lesson_browser", "memrl_browser"

_in_browser = st.components.v2.component(
    "memrl_lessons",
    js=f"""
export default function ({{ data, setStateValue }}) {{
  // Another tab may have given this browser its id since this session began.
  const known = document.cookie.match(/(?:^|; ){COOKIE}=({BROWSER.pattern})(?:;|$)/)?.[1];
  if (known && known !== data.browser) setStateValue("known", known);
  else document.cookie = "{COOKIE}=" + data.browser + "; path=/; max-age=31536000; SameSite=Strict";
  // Streamlit leaves the page scrolled where the one before it was.
  if (window.memrlLessonAt !== data.at) {{
    document.querySelector('[data-testid="stMain"]').scrollTo({{ top: 0, behavior: "instant" }});
    window.memrlLessonAt = data.at;
  }}
}}
""",
)


def browser() -> str:
    """The id under which this browser's progress is kept; one of the session where the browser keeps no cookies."""
    given = st.context.cookies.get(COOKIE, "")
    return str(st.session_state.setdefault(STORED, given if BROWSER.fullmatch(given) else secrets.token_hex(16)))


def in_browser(at: str) -> None:
    """Keep the id in the browser, and begin at the top of the page when `at` is another page than before."""
    data = {"browser": browser(), "at": at}
    with st.container(key="lesson_in_browser"):
        known = _in_browser(key="lesson_browser_kept", data=data, on_known_change=lambda: None, height=1).known
    if known and BROWSER.fullmatch(str(known)) and known != browser():
        st.session_state[STORED] = known
        st.rerun()
