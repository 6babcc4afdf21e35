"""The selections of a run, read in the background, so that they can be made again with other rewards."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.people.later_selections import Choices, compiled, extended
from memrl_core.bank import MemoryBank
from pages.shared.work import Cancelled, Report, Work

KEPT = "later_choices"


def choices_of(bank: MemoryBank, run: str) -> Choices | None:
    """The run's selections; None until they are there. Of a run that goes on, only the new steps are read."""
    known: dict[str, tuple[str, Work[Choices]]] = st.session_state.setdefault(KEPT, {})
    asked = f"{bank.handle}·{bank.next_step(run)}"
    at, work = known.get(run, ("", None))
    if work is None or (at != asked and not work.busy):
        before = work.result if work is not None and at.startswith(bank.handle) else None
        work = Work(lambda report, cancelled: _read(bank, run, before, report, cancelled))
        known[run] = asked, work
    return work.result


def _read(bank: MemoryBank, run: str, before: Choices | None, report: Report, cancelled: Cancelled) -> Choices | None:
    if before is not None:
        return extended(before, bank, run, report, cancelled)
    return compiled(bank, run, on_progress=report, cancelled=cancelled)
