"""The selections of a run, read in the background, so that they can be made again with other rewards."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.later_selections import Choices, compiled
from memrl_core.background import Work
from memrl_core.bank import MemoryBank

KEPT = "later_choices"


def choices_of(bank: MemoryBank, run: str) -> Choices | None:
    """The run's selections, read in the background; None until they are there."""
    known: dict[str, tuple[str, Work[Choices]]] = st.session_state.setdefault(KEPT, {})
    asked = f"{bank.handle}·{bank.next_step(run)}"
    if run not in known or known[run][0] != asked:
        if run in known:
            known[run][1].stop()
        known[run] = (
            asked,
            Work(lambda report, cancelled: compiled(bank, run, on_progress=report, cancelled=cancelled)),
        )
    return known[run][1].result
