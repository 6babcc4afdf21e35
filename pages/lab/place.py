"""Where the person is in the Lab: the pair of runs, kept in the URL."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import streamlit as st

from memrl_core.agent.preferences import banks_folder
from memrl_core.agent.twins import TwinRuns
from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.experiments.lab import BANK, lab_bank, opening_pair
from pages.shared import place as places
from pages.shared.place import pair_of
from pages.shared.text import literal

NAMES = ("bank", "left", "right")
STORED, MOVED = "lab_place", "lab_moved"
TWINS, THEORY, STUDY = VIEWS = ("Two agents", "Theory beside practice", "When utility helps")
OPENING_SPEED, OPENING_EPOCHS = 10, 12
"""Without a link the Lab opens with a pair that plays at so many steps a second, and stops after so many epochs."""
_OPENING = threading.Lock()


@dataclass(frozen=True)
class LabPlace:
    """A bank with the pair of runs that is looked at; `twins` is None in a view that needs none."""

    bank_name: str
    bank: MemoryBank
    twins: TwinRuns | None


def go(left: str, right: str) -> None:
    """Move to another pair."""
    st.session_state[STORED] = {**st.session_state.get(STORED, {}), "left": left, "right": right}
    # The URL follows in `current`: what a callback writes to it does not reach the browser in time.
    st.session_state[MOVED] = True


def current(view: str) -> LabPlace:
    """Where the URL, or without one the session, says the person is; what does not exist gets a notice.

    Without a pair in the link it is the newest one, at play. Where the bank or a run is not here, the URL stays as it
    is until the person goes elsewhere.
    """
    asked = {name: st.query_params[name] for name in NAMES if name in st.query_params}
    if st.session_state.pop(MOVED, False) or not asked:
        asked = dict(st.session_state.get(STORED, {}))
    wrong = ""
    known = places.known_banks()
    name = asked.get("bank", BANK)
    if name not in known and name != BANK:
        wrong = f"There is no bank “{name[:80]}” on this machine. Below is the Lab's own."
        name = BANK
    if name not in known:
        lab_bank().close()
    bank = places.opened(known.get(name) or str(banks_folder() / BANK))
    bank.refresh()
    twins = None
    if not wrong and asked.get("left") and asked.get("right"):
        try:
            twins = pair_of(bank, asked["left"], asked["right"])
        except MemRLError as error:
            wrong = str(error)
    if twins is None and view == TWINS:
        name, (bank, twins) = BANK, _opened()
    kept = {
        "bank": name,
        **({"left": twins.runs[0], "right": twins.runs[1]} if twins else {}),
    }
    st.session_state[STORED] = kept
    if wrong:
        st.warning(literal(wrong[:300]), icon=":material/link_off:")
    else:
        st.query_params.update(kept)
    return LabPlace(name, bank, twins)


def _opened() -> tuple[MemoryBank, TwinRuns]:
    """The Lab's bank and the pair it opens with, at play up to the end of its last epoch."""
    lab_bank().close()
    bank = places.opened(str(banks_folder() / BANK))
    with _OPENING:
        twins = opening_pair(bank)
        twins = pair_of(bank, *twins.runs)
        left = OPENING_EPOCHS * len(twins.tasks) - twins.steps
        if left > 0:
            twins.play(OPENING_SPEED, left)
    return bank, twins
