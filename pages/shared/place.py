"""Where the person is: bank, run, step and memory, kept in the URL so that a link reopens what they saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import streamlit as st

from memrl_core.agent.live import LiveRun
from memrl_core.agent.preferences import DEMO, RECORDINGS, banks_folder, demo_bank, home_problem, load_preferences
from memrl_core.agent.runs import live_run
from memrl_core.agent.twins import TwinRuns, open_twins
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.addresses import is_local, shown
from memrl_core.bank.storage.folders import list_banks
from memrl_core.errors import InputError, MemRLError
from memrl_core.exchange.safe_files import file_name
from memrl_core.records import RunInfo
from pages.shared.person import must_be
from pages.shared.text import literal

NAMES = ("bank", "run", "step", "memory")
EXPORTED, LEFT, STEPS_NEXT = "exported", "left", "steps_next"
_HANGS_ON = {"bank": ("run", "step", "memory"), "run": ("step",), "step": (), "memory": ()}


@dataclass(frozen=True)
class Place:
    """A bank of this machine, one of its runs, and a finished step of it; `step` is None at the live end.

    The run has the steps `first_step` to `last_step`; both are 0 while it has none. `facts` is how many facts the bank
    had when the page began to read it.
    """

    bank_name: str
    bank: MemoryBank
    run: RunInfo | None
    step: int | None
    first_step: int
    last_step: int
    memory: str | None
    facts: int

    @property
    def info(self) -> RunInfo:
        """The run, for what is drawn only where there is one."""
        assert self.run is not None
        return self.run

    @property
    def link(self) -> dict[str, str]:
        """The place as parameters of a URL."""
        parts = {"bank": self.bank_name, "run": self.run and self.run.id, "step": self.step, "memory": self.memory}
        return {name: str(part) for name, part in parts.items() if part}


@st.cache_resource(max_entries=8, show_spinner="Opening the bank …", on_release=lambda bank: bank.close())
def opened(uri: str) -> MemoryBank:
    """The one handle on a bank that all sessions of this server share."""
    return MemoryBank.open(uri)


def bank_named(name: str) -> MemoryBank | None:
    """The bank of this machine that goes by this name; None where there is none, or it cannot be opened."""
    uri = known_banks().get(name)
    try:
        return opened(uri) if uri else None
    except MemRLError:
        return None


@st.cache_resource
def live_runs() -> dict[tuple[str, str], LiveRun]:
    """Steps under way, by bank and run: they outlive a reload of the page."""
    return {}


def known_banks() -> dict[str, str]:
    """Name to URI: the banks in the home folder and those a person opened from elsewhere."""
    here = {summary.name: summary.path for summary in list_banks(banks_folder())}
    if home_problem():  # The demos lie elsewhere then.
        with suppress(MemRLError):
            here |= {name: str(demo_bank(name)) for name in RECORDINGS}
    return {**load_preferences().opened, **here}


def go(**changes: object) -> None:
    """Move to another bank, run, step or memory because a person asks for it on the page."""
    st.session_state[MOVES] = moves() + 1
    keep(**changes)


def moves() -> int:
    """How often a person has moved by the page, in place of by the stage, in this session."""
    return int(st.session_state.get(MOVES, 0))


def keep(**changes: object) -> None:
    """Keep what is shown from now on; what hangs on what changed is forgotten."""
    stored = st.session_state.setdefault("place", {})
    for name in NAMES:
        if name in changes:
            for below in _HANGS_ON[name]:
                stored.pop(below, None)
            stored[name] = changes[name]
    st.session_state["place"] = {name: str(value) for name, value in stored.items() if value is not None}
    # The URL follows in `current`: what a callback writes to it does not reach the browser in time.
    st.session_state["moved"] = True


def go_to_steps(**changes: object) -> None:
    """Move there and show the page Step."""
    steps_next(**changes)
    follow()


def steps_next(**changes: object) -> None:
    """Move there, and show the page Step when the script runs next: for callbacks.

    A button that is asked about within the page is forgotten when something in the browser interrupts the script, as a
    component does that has just been mounted.
    """
    go(**changes)
    st.session_state[STEPS_NEXT] = True


def follow() -> None:
    """Show the page Step if somebody has asked for it."""
    if st.session_state.pop(STEPS_NEXT, False):
        st.switch_page("pages/step/page.py", query_params=st.session_state["place"])


def current(keep: Mapping[str, str] | None = None, *, stop: bool = True) -> Place | None:
    """Where the URL, or without one the session, says the person is.

    A bank, run or step that does not exist gets a notice in the page's place, and the URL stays as it is: nothing else
    is shown under a link that somebody gave. Without `stop` the page goes on below the notice. `keep` holds what a page
    has in the URL besides. None when there is nothing to show.
    """
    asked = {name: st.query_params[name] for name in NAMES if name in st.query_params}
    if _is_left(asked) or not asked:
        asked = dict(st.session_state.get("place", {}))
    banks = known_banks()
    name = _name_of(asked.get("bank", DEMO), banks)
    if name not in banks and name == DEMO:
        try:
            banks[name] = str(demo_bank())
        except MemRLError as error:
            st.info(literal(str(error)))
            return None
    if name not in banks:
        if "bank" in st.query_params and not is_local(name):
            st.query_params["bank"] = shown(name)  # Without a password.
        also = ", ".join(f"{part} {asked[part][:40]}" for part in ("run", "step") if part in asked)
        sentence = f"{_no_such_bank(name)} Nothing is shown in its place{f' (asked for: {also})' if also else ''}."
        _not_here(sentence, "Open the demo", {"bank": DEMO}, stop)
        return None
    bank = opened(banks[name])
    bank.refresh()
    facts, runs = bank.facts, bank.runs()
    run = next((info for info in runs if info.id == asked["run"]), None) if "run" in asked else (None, *runs)[-1]
    if run is None and "run" in asked:
        sentence = f"There is no run “{asked['run']}” in the bank {name}. Nothing is shown in its place."
        newest = (f"Show its newest run, {runs[-1].id}", {"run": runs[-1].id}) if runs else ("Show the bank", {})
        _not_here(sentence, newest[0], {"bank": name, **newest[1]}, stop)
        return None
    first, last = _steps(bank, run)
    if run is not None and last and not _is_step(asked.get("step"), first, last):
        sentence = f"“{asked['step']}” is not a step of the run {run.id}, which has steps {first} to {last}."
        _not_here(sentence, "Show its newest step", {"bank": name, "run": run.id}, stop)
        return None
    place = Place(
        name,
        bank,
        run,
        int(asked["step"]) if "step" in asked and last else None,
        first,
        last,
        _memory(bank, asked.get("memory")),
        facts,
    )
    st.session_state["place"] = place.link
    at = f"step-{place.step}" if place.step else f"after-step-{last}"
    st.session_state[EXPORTED] = (name, run.id if run else None, at)
    if left := st.session_state.get(LEFT):
        left.append(dict(st.session_state["place"]))  # The browser may tell it when the session is further already.
    link = {**place.link, **(keep or {})}
    for name in NAMES:
        if name not in link:
            st.query_params.pop(name, None)
    st.query_params.update(link)
    return place


def download_name(*parts: object, kind: str) -> str:
    """A file's name that says of which bank, run and step it is, then what it holds."""
    here = st.session_state.get(EXPORTED, ()) if "run" in st.query_params else ()
    return file_name(*here, *parts, kind=kind)


def _is_left(asked: Mapping[str, str]) -> bool:
    """Whether the URL is one that the session has moved on from: the browser learns of a move after it was made."""
    left = st.session_state.setdefault(LEFT, [])
    if st.session_state.pop("moved", False):
        left.append(asked)
        return True
    if asked in left and asked != st.session_state.get("place"):
        return True
    left.clear()
    return False


def went_back() -> None:
    """Follow the URL again: the person asked for it by the browser's own Back or Forward."""
    st.session_state.pop(LEFT, None)


def live(place: Place) -> LiveRun:
    """The run of this place as it is being advanced, by someone who may.

    Raises `NotAllowed`, and `ModelError` when its embedder cannot be had.
    """
    must_be(place.bank, Role.MANAGE)
    key = (str(place.bank.uri), place.info.id)
    runs = live_runs()
    if key not in runs:
        runs[key] = live_run(place.bank, place.info.id, load_preferences())
    return runs[key]


def live_if_begun(place: Place) -> LiveRun | None:
    """The same, but only when somebody has begun to advance it since the server started."""
    return live_runs().get((str(place.bank.uri), place.run.id)) if place.run else None


def newest_step(place: Place) -> int:
    """The number of the step under way, where there is one, or else of the last that has ended."""
    begun = live_if_begun(place)
    return place.last_step + (begun is not None and begun.under_way)


@st.cache_resource
def pairs() -> dict[tuple[str, str, str], TwinRuns]:
    """Every pair that somebody looked at, by bank and runs."""
    return {}


def pair_of(bank: MemoryBank, left: str, right: str) -> TwinRuns:
    """The pair as it is played, or opened now. Raises as `open_twins` does."""
    known = pairs().get((str(bank.uri), left, right))
    if known is not None and known.bank is bank:
        return known
    twins = open_twins(bank, left, right)
    pairs()[(str(bank.uri), left, right)] = twins
    return twins


def release(uri: str) -> None:
    """Drop the runs under way, the pairs and the handle of a bank that is about to be replaced or deleted.

    Raises `InputError` while an agent works in it.
    """
    running = {key: live for key, live in live_runs().items() if key[0] == uri}
    if any(live.busy for live in running.values()):
        raise InputError("An agent is working in this bank. Stop it first; nothing was changed.")
    played = {key: twins for key, twins in pairs().items() if key[0] == uri}
    if any(twins.playing for twins in played.values()):
        raise InputError("Two agents are playing in this bank. Pause them first; nothing was changed.")
    for key in running:
        del live_runs()[key]
    for pair in played:
        del pairs()[pair]
    opened.clear(uri)


def _name_of(asked: str, banks: Mapping[str, str]) -> str:
    """The name of the bank that a link means by its name, or by an address that was opened here before."""
    if is_local(asked):
        return asked
    return next((name for name, uri in banks.items() if uri.rstrip("/") == asked.rstrip("/")), asked)


def _no_such_bank(asked: str) -> str:
    if is_local(asked):
        return f"There is no bank “{asked[:80]}” on this machine. Import it, or open it on Home; then reload this page."
    # A link must not make the server knock at an address that nobody here has chosen.
    return (
        f"There is no bank at {shown(asked)[:200]} that was opened here before. Open it on Home; then reload this page."
    )


def _not_here(sentence: str, label: str, to: Mapping[str, str], stop: bool) -> None:
    with st.container(border=True, key="not_here"):
        st.warning(literal(sentence[:400]), icon=":material/link_off:")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(literal(label), key="show_instead", on_click=go, kwargs=dict(to))
            st.page_link("pages/home/page.py", label="Home")
    if stop:
        st.stop()


def _steps(bank: MemoryBank, run: RunInfo | None) -> tuple[int, int]:
    if run is None or bank.next_step(run.id) == run.first_step:
        return 0, 0
    return run.first_step, bank.next_step(run.id) - 1


LONGEST_STEP = 9


def _is_step(asked: str | None, first: int, last: int) -> bool:
    """Whether there is such a step; to ask for none is to ask for the live end."""
    if asked is None:
        return True
    return asked.isascii() and asked.isdigit() and len(asked) <= LONGEST_STEP and first <= int(asked) <= last


def _memory(bank: MemoryBank, asked: str | None) -> str | None:
    if asked is None:
        return None
    try:
        return bank.memory(asked).id
    except MemRLError:
        notice(f"The bank holds no memory “{asked}”.")
        return None


def notice(sentence: str) -> None:
    """Say in passing what a link asks for and is not here."""
    st.toast(literal(sentence[:300]), icon=":material/link_off:", duration="long")


SELECTED, MOST_IN_LINK = "memories", 60
"""Memories that were selected together; more than so many do not fit into a link, only into the session."""


def selecting(memory_ids: Sequence[str]) -> dict[str, str]:
    """Hold these memories as those that Bank is to show; what its link says of them."""
    st.session_state[SELECTED] = tuple(memory_ids)
    return selection_in_link()


def selection() -> tuple[str, ...]:
    """The memories that somebody selected on a map, or that a link names; none where all are to be shown."""
    if SELECTED not in st.session_state and SELECTED in st.query_params:
        st.session_state[SELECTED] = tuple(st.query_params[SELECTED].split(","))
    held: tuple[str, ...] = st.session_state.get(SELECTED, ())
    return held


def selection_in_link() -> dict[str, str]:
    """The same for the URL."""
    held = selection()
    return {SELECTED: ",".join(held)} if 0 < len(held) <= MOST_IN_LINK else {}


ASKED_ABOUT = "about"
"""In a link to Decision from another page: the memory that is asked about, whatever was asked before."""


def asking(question: str, memory_id: str) -> dict[str, str]:
    """What a link to Decision says so that it opens this question about this memory."""
    return {"ask": question, ASKED_ABOUT: memory_id}


PLAYING = "playing"
MOVES = "moves"


def play(bank: str, run: str, step: int) -> None:
    """From this step on the stage plays the replay in the browser; whoever moves to another step stops it."""
    st.session_state[PLAYING] = (bank, run, step)
