"""The two ways to rate: one answer at a time, or two answers to one task side by side."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from memrl_core.analysis.people.rating_queue import QueueFilter, Sitting, pairs
from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.learning.scales import Choice, Scale, mapping_words
from memrl_core.numerals import signed
from memrl_core.records import LedgerEvent
from pages.rewards.card import answer, elsewhere, heading, judged, read_memories
from pages.rewards.moves import moves
from pages.shared.person import person
from pages.shared.place import Place
from pages.shared.reward_queue import (
    SAVED,
    failure,
    filters,
    keep_in_link,
    known_facts,
    save,
    sitting_of,
    told,
    waiting_places,
    why_empty,
)
from pages.shared.reward_rate import Panel, rating_panel, scale_picker, what_it_would_do
from pages.shared.text import literal

Pair = tuple[tuple[str, int], tuple[str, int]]
PAIR_BUTTONS = (("1", "first", "Left is better"), ("2", "second", "Right is better"), ("3", "tie", "Equal"))


@st.fragment
def rating(place: Place) -> None:
    """One output after the other; a key rates it, and the next one comes."""
    # Out of a fragment an error would come to the app as another one, without its sentence.
    try:
        _rating(place)
    except MemRLError as error:
        st.error(literal(str(error)), icon=":material/error:")


def _rating(place: Place) -> None:
    bank = place.bank
    assert place.run is not None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="queue_filters"):
        chosen = filters(bank)
        run = chosen.run or place.run.id
        scale = scale_picker(run, bank.ratings.scales(run))
    if scale == "pairwise":
        _pairs(place, chosen)
    else:
        _single(place, chosen, scale)


def _single(place: Place, chosen: QueueFilter, scale: Scale) -> None:
    bank = place.bank
    sitting = sitting_of(place, chosen, "steps", lambda: waiting_places(bank, chosen))
    # The bar stands above the output and is drawn after it: the next output is what the person waits for.
    bar = st.container()
    if sitting.place is None:
        _bar(bar, bank, sitting)
        _end(bank, sitting, chosen)
        return
    trace = bank.trace(*sitting.place)
    panel = Panel(bank, trace, sitting)
    with st.container(key=f"output_{trace.id}"):
        story, rate = st.columns([3, 2], gap="medium")
        with story:
            heading(trace)
            answer(trace)
        with rate:
            rating_panel(panel, scale)
        sitting.shows(time.monotonic())
        _bar(bar, bank, sitting)
        with story:
            read_memories(bank, trace)
        with rate:
            judged(bank, trace, panel.scales.hide_verdict)
            what_it_would_do(panel, scale, panel.scales.hide_verdict and panel.mine is None)
            elsewhere(trace)
    keep_in_link(sitting.place, chosen)
    if sitting.at + 1 < len(sitting.places):
        # Read ahead, so that the next key finds it in memory.
        bank.trace(*sitting.places[sitting.at + 1])


def _bar(bar: DeltaGenerator, bank: MemoryBank, sitting: Sitting) -> None:
    with bar:
        moves(bank, sitting)
        failure()
        told()
        _saved(bank)


def _pairs(place: Place, chosen: QueueFilter) -> None:
    bank = place.bank
    sitting = sitting_of(
        place, chosen, "pairs",
        lambda: tuple(((a.run, a.step), (b.run, b.step)) for a, b in pairs(known_facts(bank), chosen, person())),
    )  # fmt: skip
    _bar(st.container(), bank, sitting)
    if sitting.place is None or not isinstance(sitting.place[0], tuple):
        st.info("There is no pair to compare: no task was answered twice, or you have rated both answers of each.")
        return
    first, second = (bank.trace(*step) for step in sitting.place)
    st.subheader(literal(first.task.intent), anchor=False)
    low, high = bank.ratings.bounds(first.run, first.step)
    st.caption(literal(mapping_words(bank.ratings.scales(first.run), "pairwise", low, high)))
    panels = Panel(bank, first, sitting), Panel(bank, second, sitting)
    may = panels[0].may
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="pair_buttons"):
        for key, better, label in PAIR_BUTTONS:
            st.button(
                label,
                shortcut=key,
                key=f"pair_{better}_{first.id}_{second.id}",
                disabled=not may,
                on_click=_compare,
                args=(bank, sitting, sitting.place, better),
            )
        with st.container(key="reason_box"):
            st.text_input("Reason (optional) · E", key="pair_reason", max_chars=2000, disabled=not may)
    for column, panel in zip(st.columns(2, gap="medium"), panels, strict=True):
        trace = panel.trace
        with column:
            st.caption(literal(f"step {trace.step} of {trace.run} · epoch {trace.epoch}"))
            answer(trace)
            read_memories(bank, trace)
            if panel.mine is not None:
                st.markdown(f"You gave **{signed(panel.mine.value or 0.0)}**: a comparison takes its place.")
            judged(bank, trace, panel.scales.hide_verdict)
            what_it_would_do(panel, "pairwise", panel.scales.hide_verdict and panel.mine is None)
    sitting.shows(time.monotonic())


def _compare(bank: MemoryBank, sitting: Sitting, pair: Pair, better: Choice) -> None:
    reason, name = st.session_state.get("pair_reason", ""), person()
    save(bank, sitting, pair, lambda: bank.ratings.rate_pair(*pair, better, name, reason))
    st.session_state["pair_reason"] = ""


def _saved(bank: MemoryBank) -> None:
    """What the last click did: the reward, whether the environment thought otherwise, and how far q moved."""
    known = {event.id: event for event in bank.events_of(st.session_state.get(SAVED, ()))}
    if not known:
        return
    words = " · ".join(_saved_words(bank, event) for event in known.values())
    with st.container(key="saved_line"):
        st.markdown(f":material/check_circle: Saved: {literal(words)}. Undo with U.")


def _saved_words(bank: MemoryBank, event: LedgerEvent) -> str:
    words = f"{signed(event.value or 0.0)} for step {event.step} of {event.run}"
    low, high = bank.ratings.bounds(event.run, event.step)
    environment = next((e.value for e in bank.ratings.of(event.run, event.step) if e.source == "environment"), None)
    if environment is not None:
        middle = (low + high) / 2
        differs = (environment - middle) * ((event.value or 0.0) - middle) < 0
        words += f" ({'the environment disagrees' if differs else 'the environment'}: {signed(environment)})"
    moves = [
        p for i in event.memory_ids for p in bank.history(event.run, i) if p.step == event.step and p.reward is not None
    ]
    return words + (f", {len(moves):,} q moved" if moves else ", no memory to credit")


def _end(bank: MemoryBank, sitting: Sitting, chosen: QueueFilter) -> None:
    if sitting.rated:
        st.success(f"Done: you have rated all {len(sitting.rated):,} of this queue.", icon=":material/task_alt:")
        st.caption("“What changed” shows what your ratings taught the agent. Other steps wait under another filter.")
    else:
        st.info(why_empty(bank, chosen))
