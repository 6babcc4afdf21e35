"""The bar on top of every screen: where the person is, and what is at work; and the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import HASHING, OLLAMA_PREFIX, is_of_ollama, lacks
from memrl_core.agent.runs import can_go_on
from memrl_core.analysis.decision.labels import weights_label
from memrl_core.bank.people.roles import actor_of
from memrl_core.environments import environment_title
from memrl_core.models.gguf import is_gguf
from memrl_core.models.ollama import OllamaStatus, ollama_status
from memrl_core.numerals import dimensions
from memrl_core.records import RunInfo
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.place import Place
from pages.shared.text import in_badge, literal
from pages.shared.view import BADGES, spec_under


@st.cache_data(ttl=5, show_spinner=False)
def status_of(address: str, model: str | None) -> OllamaStatus:
    """Ollama's state, asked at most every five seconds."""
    return ollama_status(address, model)


def model_status(model: str) -> OllamaStatus:
    """How the model of a run is: in Ollama, in this program, or at a server that is asked only with a step."""
    preferences = load_preferences()
    if is_of_ollama(model):
        return status_of(preferences.ollama_address, model.removeprefix(OLLAMA_PREFIX))
    if lacking := lacks(model) if is_gguf(model) else "":
        return OllamaStatus("model_missing", lacking, "")
    where = "runs in this program" if is_gguf(model) else f"is asked at {preferences.openai_address}"
    return OllamaStatus("running", f"{model} {where}.", "")


def bar() -> AbstractContextManager[Any]:
    """The one row at the top of a screen; it stays there while the page scrolls."""
    return st.container(horizontal=True, vertical_alignment="center", key="header", gap="small")


def header(place: Place, slider: bool = True, keys: Keys | None = None) -> None:
    """Bank, run and step to move between, with a slider or without; everything else about them is in a popover.

    `keys` are those of the page, where they are others than those of a step.
    """
    with bar():
        bank_picker(place)
        if place.run:
            run_picker(place, place.run)
            _steps(place, slider)
        _about(place)
        keys_help(keys or STEPPING)
    if place.bank.missing:
        st.warning(literal(place.bank.missing))


def _about(place: Place) -> None:
    """World, method, model and embedder of the run, under the number of its memories."""
    run = place.run
    status = model_status(run.model) if run and not run.simulated and can_go_on(run) else None
    unmoved = place.bank.credits.unmoved(run.id) if run else ""
    fails = bool(unmoved) or (status is not None and status.state != "running")
    saved = place.bank.saved(run.id if run else None)
    with (
        st.container(key="memory_count", width="content"),
        st.popover(_memories(place), icon=f":material/{'warning' if fails else 'database'}:", type="tertiary"),
        st.container(key="chips", gap="small"),
    ):
        if run:
            _environment_chip(run)
            _method_chip(run, unmoved)
            _model_chip(run, status)
        _embedder_chip(place)
        st.caption(f"last write {saved.astimezone():%Y-%m-%d %H:%M:%S}" if saved else "nothing saved yet")


def _memories(place: Place) -> str:
    count = place.bank.memory_count(place.run.id, place.step) if place.run else 0
    return "1 memory" if count == 1 else f"{count:,} memories"


def _picked(key: str, shown: Any, take: Callable[[Any], None]) -> None:
    # Streamlit reports a change too when a run of the page was cut short; what is shown already was not picked.
    if st.session_state.get(key, shown) != shown:
        take(st.session_state[key])


def _picker(
    draw: Callable[..., Any], label: str, options: Sequence[str], shown: str, take: Callable[[str], None], **look: Any
) -> None:
    """One of the `options` in a row of controls, standing at what is `shown`."""
    # With what is shown in its name: what the browser sent before it learns of a move by the stage is no choice.
    key = f"header_{label.lower()}_{shown}"
    st.session_state[key] = shown
    draw(label, options, key=key, label_visibility="collapsed", on_change=_picked, args=(key, shown, take), **look)


def bank_picker(place: Place) -> None:
    """Another bank of this machine."""
    _picker(
        st.selectbox,
        "Bank",
        sorted(places.known_banks()),
        place.bank_name,
        lambda name: places.go(bank=name),
        width=140,
    )


def run_picker(place: Place, run: RunInfo) -> None:
    """Another run of this bank."""
    runs = [info.id for info in reversed(place.bank.runs())]
    _picker(st.selectbox, "Run", runs, run.id, lambda name: places.go(run=name), width=180)


def _steps(place: Place, slider: bool) -> None:
    """The step that is shown, to be typed, slid or stepped to; the live end; and the way to the table of all steps."""
    first, last, newest = place.first_step, place.last_step, places.newest_step(place)
    at, live = place.step or last, place.step is None
    shown = newest if live else at
    with st.container(horizontal=True, vertical_alignment="center", key="steps", gap="xsmall"):
        if not last:
            st.markdown(_where(place), width="content")
            return
        on_key("move_First", lambda _: _go_to(place, first))
        on_key("move_Back", lambda count: _go_by(place, -count))
        on_key("move_Next", lambda count: _go_by(place, count))
        on_key("move_Last", lambda _: _go_to(place, last))
        _move_button("Back", ":material/chevron_left:", shown - 1, shown <= first)
        # With the step in its name: of a run of the page that is cut short, the browser tells the value before it.
        with st.container(key="header_step", width="content"):
            st.number_input("Step", first, last, at, key=f"step_{at}", width=76, label_visibility="collapsed",
                            on_change=_picked, args=(f"step_{at}", at, _to))  # fmt: skip
        st.markdown(_where(place), width="content")
        _move_button("Next", ":material/chevron_right:", at + 1 if at < last else None, live or at >= newest)
        if slider and first < last:
            with st.container(key="header_slider"):
                st.slider("Any step", first, last, at, key=f"slid_{at}", label_visibility="collapsed",
                          on_change=_picked, args=(f"slid_{at}", at, _to))  # fmt: skip
        _mode(place)
        if st.button("All steps", icon=":material/table_rows:", type="tertiary", key="all_steps", help="All steps"):
            st.switch_page("pages/steps/page.py", query_params=st.session_state["place"])


def _move_button(label: str, icon: str, target: int | None, disabled: bool) -> None:
    st.button(
        label, icon=icon, key=f"move_{label}", type="tertiary", disabled=disabled, help=label, on_click=_to,
        args=(target,),
    )  # fmt: skip


def _to(step: int | None) -> None:
    places.go(step=step)


def _go_by(place: Place, steps: int) -> None:
    # From where the session is by now: a page that was cut short by the next key was not drawn to its end.
    at = int(st.session_state["place"].get("step", places.newest_step(place)))
    _go_to(place, at + steps)


def _go_to(place: Place, step: int) -> None:
    last = place.bank.next_step(place.run.id) - 1 if place.run else 0
    if last < step <= places.newest_step(place):
        places.go(step=None)
    elif last:
        places.go(step=min(max(step, place.first_step), last))


def _where(place: Place) -> str:
    run = places.live_if_begun(place)
    if place.step is None and run is not None and run.under_way:
        return f"{place.bank.next_step(run.agent.run_id):,} under way"
    return f"of {place.last_step:,}" if place.last_step else "no step yet"


def _mode(place: Place) -> None:
    def to(mode: str) -> None:
        places.go(step=None if mode == "Live" else place.last_step)

    shown = "Live" if place.step is None else "Replay"
    _picker(st.segmented_control, "Mode", ["Live", "Replay"], shown, to, required=True)


def _environment_chip(run: RunInfo) -> None:
    values = {
        name: ("off", "on")[value] if isinstance(value, bool) else value
        for name, value in run.environment_options.items()
    }
    options = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
    st.badge(
        in_badge(" · ".join(part for part in (environment_title(run.environment), options) if part)),
        icon=":material/public:",
        color="gray",
        help=literal(f"The world of this run. Tasks: {run.tasks or 'typed, or given by who made it'}."),
    )


def _method_chip(run: RunInfo, unmoved: str) -> None:
    spec = spec_under(run.policy, run.settings)
    if spec is None:
        st.badge(
            in_badge(f"{run.policy}: not installed here"), icon=":material/memory:", color="red",
            help="The rules of this run are not here: it can be looked at, and neither continued nor rated.",
        )  # fmt: skip
        if unmoved:
            st.warning(literal(unmoved))
        return
    label, colour, meaning = BADGES[spec.variant]
    learns_from = ", ".join(spec.feedback) or "nothing"
    differs = "".join(f"\n- {literal(sentence)}" for sentence in spec.deviations)
    st.badge(
        in_badge(f"{spec.title} · {label}"), icon=":material/memory:", color=colour,
        help=f"{meaning} It learns from: {learns_from}." + (f" It differs in:\n{differs}" if differs else ""),
    )  # fmt: skip


def _model_chip(run: RunInfo, status: OllamaStatus | None) -> None:
    if run.simulated:
        analogy = "No language model is at work: answers are carried over from the memories in the prompt by analogy."
        st.badge("simulated model", icon=":material/theater_comedy:", color="violet", help=analogy)
        return
    if status is None:
        about = "A run from elsewhere."
        st.badge(in_badge(f"model {run.model}"), icon=":material/smart_toy:", color="gray", help=about)
        return
    options = ", ".join(f"{name} {value}" for name, value in run.model_options.items())
    weights = weights_label(run.model_facts)
    colours: Mapping[str, Literal["green", "orange", "red"]]
    colours = {"running": "green", "model_missing": "orange", "not_running": "red"}
    says = {"running": run.model, "model_missing": f"{run.model} missing", "not_running": "Ollama not running"}
    st.badge(
        in_badge(" · ".join(part for part in (says[status.state], options) if part)),
        icon=":material/smart_toy:", color=colours[status.state],
        help=literal(" ".join([status.sentence, weights]).strip()),
    )  # fmt: skip
    if status.state != "running":
        st.text(status.sentence)


def _embedder_chip(place: Place) -> None:
    embedder = place.bank.embedder
    lexical = embedder.name.startswith(HASHING)
    st.badge(
        in_badge(f"{embedder.name}{' · lexical' if lexical else ''} · {dimensions(embedder.dimension)}"),
        icon=":material/data_array:",
        color="gray",
        help="Similarity compares letters and words, not meaning." if lexical else None,
    )


SECONDS = 1.5
DRAWN = "drawn_facts"


def follow_others(place: Place, drawn: int | None = None) -> None:
    """Draw the page anew when something is appended that it does not show yet; to be called at its end.

    A page that appends nothing itself while it is drawn says how many facts it has `drawn`: those that there were when
    it began to read. What others append meanwhile may not be on it.
    """
    st.session_state[DRAWN] = place.bank.facts if drawn is None else drawn
    others(place, DRAWN)


@st.fragment(run_every=SECONDS)
def others(place: Place, drawn: str) -> None:
    """Who else was here lately; draws the page anew when the session's `drawn` is not how many facts there are."""
    bank = place.bank
    bank.refresh()
    if bank.facts != st.session_state.get(drawn, bank.facts):
        st.rerun()
    seen = [
        f"{who} at {event.created[11:19]} UTC" for event in bank.people.lately() if (who := actor_of(event)) != person()
    ]
    if seen:
        st.caption(literal(f"Others, last seen: {', '.join(seen[:3])}"))


Keys = tuple[tuple[str, str], ...]
STEPPING: Keys = (
    ("N", "Step: run the next phase"),
    ("F", "Finish the task"),
    ("← · →", "Back and next through the finished steps"),
    ("Home · End", "First and last step"),
    ("On the stage", "Clicked: ← · → and Shift+1 … 7 phases, Shift+← · → steps, Space plays, ↑ · ↓ walk the pool"),
    ("M", "The map over the whole stage, and back"),
    ("On the strip", "Clicked: ← · → steps, Home · End, PageUp · PageDown; with Shift a window of steps"),
    ("1 … 5", "Bad to good, on every scale; with thumbs 1 and 5: the reward is saved and q moves"),
    ("S", "Skip: leave the answer unrated"),
    ("U · Y", "Undo your reward or who you credited, whichever came last; give the reward again"),
    ("L", "Label the memory whose card is open: relevant or should have come, irrelevant, no label; no q moves"),
    ("A", "What the answer made of the memory whose card is open: used, ignored, contradicted, nothing said"),
    ("E", "Write a reason, for a reward or a label; Enter ends it"),
    ("Esc", "Close what is open; stop the answer or the run"),
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

LABELLING: Keys = (
    ("0 … 3", "On Label: irrelevant, related, relevant, exactly right; the next memory comes"),
    ("X", "Nothing should come for this step, and back"),
    ("J · K", "Next and previous memory"),
    ("N", "Next step, of a batch its next one"),
    ("U", "Undo your last label, also of another step"),
    ("E", "Write a reason for the labels to come; Enter ends it"),
    ("← · →", "Back and next through the finished steps"),
    ("Home · End", "First and last step"),
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
    count = int(presses.get("count", 0))
    new = count - (heard if window == presses.get("of") else 0)
    buttons = presses.get("last", [])[-new:] if new > 0 else []
    left = len(buttons)
    for button, group in groupby(buttons):
        pressed = len(list(group))
        if act := st.session_state.get(HANDLERS, {}).get(button):
            act(pressed)
        left -= pressed
        # Only now: the next press may end this run of the page before anything was done.
        st.session_state[HEARD] = presses.get("of"), count - left


@st.dialog("Keys")
def _show_keys(keys: Keys) -> None:
    for key, meaning in keys:
        left, right = st.columns([1, 3])
        left.markdown(f"**{key}**")
        right.markdown(meaning)
    st.caption("Keys rest while you type in a field.")


def keys_help(keys: Keys = STEPPING) -> None:
    """The key listener and a button for those without a keyboard."""
    asked = _listener(key=LISTENER, on_asked_change=lambda: None, on_presses_change=_pressed, height=1).asked
    if st.button("Keys", icon=":material/keyboard:", type="tertiary", key="keys_button") or asked:
        _show_keys(keys)
