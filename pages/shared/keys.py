"""The keyboard: what each key does, and "?" to show it."""

from __future__ import annotations

import streamlit as st

Keys = tuple[tuple[str, str], ...]
STEPPING: Keys = (
    ("N", "Step: run the next phase"),
    ("F", "Finish the task"),
    ("← · →", "Back and next through the finished steps"),
    ("Home · End", "First and last step"),
    ("1 · 2", "Bad, good; on a scale of five 1 … 5, 1 is the worst: the reward is saved and q moves"),
    ("S", "Skip: leave the answer unrated"),
    ("U", "Undo the last reward"),
    ("E", "Write a reason; Enter ends it"),
    ("Esc", "Stop the answer or the run"),
    ("?", "This list"),
)
RATING: Keys = (
    ("1 · 2", "Bad, good"),
    ("1 … 5", "On a scale of five, from worst to best; with a rubric, one digit a criterion"),
    ("1 · 2 · 3", "Of two answers: the left is better, the right is better, both are equal"),
    ("E", "Write a reason; Enter ends it"),
    ("S", "Skip: this one comes again at the end"),
    ("J · K", "Next, previous"),
    ("U · Y", "Undo, redo what you did last"),
    ("?", "This list"),
)

_listener = st.components.v2.component(
    "memrl_keys",
    js="""
// A key that is held says itself again: good for going through steps, not for giving rewards.
const ONCE = /^[1-5suy]$/i;

export default function ({ setTriggerValue }) {
  const typing = (at) => at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName);
  const held = (event) => {
    if (event.repeat && ONCE.test(event.key) && !typing(event.target)) event.stopImmediatePropagation();
  };
  const listen = (event) => {
    const at = event.target;
    const types = typing(at);
    // After Enter the keys rate again; Streamlit would leave the cursor in the field.
    if (types && event.key === "Enter" && at.closest(".st-key-reason_box, .st-key-rewards_name")) at.blur();
    if (types || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") setTriggerValue("asked", true);
    if (event.key === "e" || event.key === "E") {
      const field = document.querySelector(".st-key-reason_box input");
      if (field) { event.preventDefault(); field.focus(); }
    }
  };
  // Streamlit ends only the last of this function's runs, and a change of theme runs it again.
  window.memrlDeaf?.();
  // Before Streamlit, which listens on the document.
  window.addEventListener("keydown", held, true);
  document.addEventListener("keydown", listen);
  document.body.dataset.keys = "heard";
  const deaf = () => {
    window.removeEventListener("keydown", held, true);
    document.removeEventListener("keydown", listen);
    if (window.memrlDeaf === deaf) delete document.body.dataset.keys;
  };
  window.memrlDeaf = deaf;
  return deaf;
}
""",
)


@st.dialog("Keys")
def _show_keys(keys: Keys) -> None:
    for key, meaning in keys:
        left, right = st.columns([1, 3])
        left.markdown(f"**{key}**")
        right.markdown(meaning)
    st.caption("Keys rest while you type in a field.")


def keys_help(keys: Keys = STEPPING) -> None:
    """The key listener and a button for those without a keyboard."""
    asked = _listener(key="question_mark", on_asked_change=lambda: None, height=1).asked
    if st.button("Keys", icon=":material/keyboard:", type="tertiary", key="keys_button") or asked:
        _show_keys(keys)
