"""Moving through the queue: previous, next, skip; and what the person did last, undone or done again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from memrl_core.analysis.people.rating_queue import Sitting, duration_words
from memrl_core.bank import MemoryBank
from memrl_core.bank.deeds import REWARDS, Deed
from memrl_core.errors import MemRLError
from memrl_core.numerals import signed
from memrl_core.records import EventKind
from pages.shared.person import person
from pages.shared.reward_queue import SAVED, SITTING, TOLD
from pages.shared.text import literal


def moves(bank: MemoryBank, sitting: Sitting) -> None:
    """Previous, next, skip, undo and redo, and how far the person is."""
    name = person()
    done, undone = bank.deeds.done(name, REWARDS), bank.deeds.undone(name, REWARDS)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="queue_moves"):
        st.button(
            "Previous", icon=":material/arrow_back:", shortcut="k", key="queue_previous",
            disabled=sitting.at == 0, on_click=sitting.move, args=(-1,),
        )  # fmt: skip
        st.button(
            "Next", icon=":material/arrow_forward:", shortcut="j", key="queue_next",
            disabled=sitting.at >= len(sitting.places) - 1, on_click=sitting.move, args=(1,),
        )  # fmt: skip
        st.button(
            "Skip", icon=":material/skip_next:", shortcut="s", key="queue_skip",
            disabled=sitting.place is None, on_click=sitting.skip,
            help="It comes again when nothing else is left",
        )  # fmt: skip
        st.button(
            "Undo", icon=":material/undo:", shortcut="u", key="queue_undo", disabled=not done,
            on_click=_undo, args=(bank, sitting), help=_help("Take back", done),
        )  # fmt: skip
        st.button(
            "Redo", icon=":material/redo:", shortcut="y", key="queue_redo", disabled=not undone,
            on_click=_redo, args=(bank, sitting), help=_help("Do again", undone),
        )  # fmt: skip
        with st.container(width="stretch"):
            _progress_line(sitting)


def _progress_line(sitting: Sitting) -> None:
    """How many are done, at which pace, and how long the rest takes."""
    now = sitting.progress
    if not now.total:
        return
    words = f"**{now.done} of {now.total}** rated"
    if now.pace is not None and now.total > now.done:
        words += f" · {now.pace:.0f} s each · {duration_words(now.left or 0.0)} left"
    if sitting.skipped:
        words += f" · {len(sitting.skipped):,} skipped"
    st.progress(now.done / now.total, words)


def _help(verb: str, deeds: Sequence[Deed]) -> str:
    return literal(f"{verb}: {words_of(deeds[-1])}") if deeds else "You have done nothing that it could be used on"


def words_of(deed: Deed) -> str:
    """A deed in a few words, for a button's help."""
    event = deed.first
    more = f" and {len(deed.events) - 1} more" if len(deed.events) > 1 else ""
    about = f"step {event.step} of {event.run}"
    match event.kind:
        case EventKind.REWARD_GIVEN:
            return f"the reward {signed(event.value or 0.0)} for {about}{more}"
        case EventKind.REWARD_REVOKED:
            return f"taking back the reward for {about}{more}"
        case _:
            return f"{str(event.kind).replace('_', ' ')} in {event.run}{more}"


def _undo(bank: MemoryBank, sitting: Sitting) -> None:
    def undo(name: str) -> Deed | None:
        try:
            return bank.deeds.undo(name, REWARDS)
        except MemRLError as error:
            # What others changed since is left alone; what came before it can still be undone.
            deed = bank.deeds.undo(name, REWARDS, past_blocked=True)
            st.toast(literal(str(error)), duration="long")
            return deed

    _by_deed(bank, sitting, undo, "Undone")


def _redo(bank: MemoryBank, sitting: Sitting) -> None:
    _by_deed(bank, sitting, lambda name: bank.deeds.redo(name, REWARDS), "Done again")


def _by_deed(bank: MemoryBank, sitting: Sitting, act: Callable[[str], Deed | None], verb: str) -> None:
    try:
        deed = act(person())
    except MemRLError as error:
        st.session_state[TOLD] = str(error)
        return
    if deed is None:
        return
    st.session_state.pop(SAVED, None)
    st.session_state[TOLD] = f"{verb}: {words_of(deed)}."
    if deed.first.kind in (EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED):
        _return_to(bank, sitting, deed)


def _return_to(bank: MemoryBank, sitting: Sitting, deed: Deed) -> None:
    """Look at what a deed was about; it counts as rated in this sitting where the person's reward stands now."""
    steps = tuple(dict.fromkeys((e.run, e.step) for e in deed.events if bank.has_step(e.run, e.step)))
    in_pairs = st.session_state[SITTING][0][-1] == "pairs"
    about: tuple[Any, ...] = steps
    if in_pairs:
        compared = len(steps) == 2 and deed.first.payload.get("scale") == "pairwise"
        about = (steps,) if compared else tuple(pair for pair in sitting.places if set(steps) <= set(pair))
    for place in about:
        sitting.rated.pop(place, None)
    if about:
        sitting.take_back(about[0])
    for place in set(about).intersection(sitting.places):
        rated: tuple[tuple[str, int], ...] = place if in_pairs else (place,)
        if all(bank.ratings.mine(run, step, person()) for run, step in rated):
            sitting.rated[place] = datetime.now(UTC)
