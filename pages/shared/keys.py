"""The keyboard: what each key does, and "?" to show it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import streamlit as st

from pages.shared import place as places

Keys = tuple[tuple[str, str], ...]
STEPPING: Keys = (
    ("N", "Step: run the next phase"),
    ("F", "Finish the task"),
    ("← · →", "Back and next through the finished steps"),
    ("Home · End", "First and last step"),
    ("On the stage", "Clicked: 1 … 7, ← · → phases, Shift+← · → steps, Space plays, ↑ · ↓ walk the pool"),
    ("1 … 5", "Bad to good, on every scale; with thumbs 1 and 5: the reward is saved and q moves"),
    ("S", "Skip: leave the answer unrated"),
    ("U", "Undo the last reward"),
    ("E", "Write a reason; Enter ends it"),
    ("Esc", "Stop the answer or the run"),
    ("/", "On Decision: search the questions"),
    ("?", "This list"),
)
RATING: Keys = (
    ("1 … 5", "Bad to good, on every scale; with thumbs 1 and 5, with a rubric one digit a criterion"),
    ("1 · 3 · 5", "Of two answers: the left is better, both are equal, the right is better"),
    ("E", "Write a reason; Enter ends it"),
    ("S", "Skip: this one comes again at the end"),
    ("J · K", "Next, previous"),
    ("U · Y", "Undo, redo what you did last"),
    ("?", "This list"),
)

_listener = st.components.v2.component("memrl_keys", js=Path(__file__).with_name("keys.js").read_text(encoding="utf-8"))
HANDLERS, HEARD, LISTENER = "key_handlers", "keys_heard", "question_mark"


def on_key(button: str, act: Callable[[int], None]) -> None:
    """What `count` presses of the key of a button do, quick ones together; the button's own callback is for clicks."""
    st.session_state.setdefault(HANDLERS, {})[button] = act


def _pressed() -> None:
    """Do what the keys that were pressed since the last run of the page stand for, in their order."""
    presses = st.session_state[LISTENER].get("presses") or {}
    window, heard = st.session_state.get(HEARD, (None, 0))
    new = int(presses.get("count", 0)) - (heard if window == presses.get("of") else 0)
    st.session_state[HEARD] = presses.get("of"), presses.get("count", 0)
    buttons = presses.get("last", [])[-new:] if new > 0 else []
    for button, group in groupby(buttons):
        if act := st.session_state.get(HANDLERS, {}).get(button):
            act(len(list(group)))


@st.dialog("Keys")
def _show_keys(keys: Keys) -> None:
    for key, meaning in keys:
        left, right = st.columns([1, 3])
        left.markdown(f"**{key}**")
        right.markdown(meaning)
    st.caption("Keys rest while you type in a field.")


def keys_help(keys: Keys = STEPPING) -> None:
    """The key listener and a button for those without a keyboard."""
    asked = _listener(
        key=LISTENER,
        on_asked_change=lambda: None,
        on_presses_change=_pressed,
        on_popped_change=places.went_back,
        height=1,
    ).asked
    if st.button("Keys", icon=":material/keyboard:", type="tertiary", key="keys_button") or asked:
        _show_keys(keys)
