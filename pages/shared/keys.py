"""The keyboard: what each key does, and "?" to show it."""

from __future__ import annotations

import streamlit as st

KEYS = (
    ("N", "Step: run the next phase"),
    ("F", "Finish the task"),
    ("← · →", "Back and next through the finished steps"),
    ("Home · End", "First and last step"),
    ("1 · 2", "Thumbs up, thumbs down"),
    ("S", "Save the reward"),
    ("U", "Undo the last reward"),
    ("Esc", "Stop the answer or the run"),
    ("?", "This list"),
)

_listener = st.components.v2.component(
    "memrl_question_mark",
    js="""
export default function ({ setTriggerValue }) {
  const listen = (event) => {
    const at = event.target;
    const types = at && (at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName));
    if (event.key === "?" && !types) setTriggerValue("asked", true);
  };
  document.addEventListener("keydown", listen);
  return () => document.removeEventListener("keydown", listen);
}
""",
)


@st.dialog("Keys")
def _show_keys() -> None:
    for key, meaning in KEYS:
        left, right = st.columns([1, 3])
        left.markdown(f"**{key}**")
        right.markdown(meaning)
    st.caption("Keys rest while you type in a field.")


def keys_help() -> None:
    """The key listener and a button for those without a keyboard."""
    asked = _listener(key="question_mark", on_asked_change=lambda: None, height=1).asked
    if st.button("Keys", icon=":material/keyboard:", type="tertiary", key="keys_button") or asked:
        _show_keys()
