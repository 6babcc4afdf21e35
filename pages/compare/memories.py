"""Memories in a comparison: q of one in every run, and which would be given more or less often."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.analysis.compare.alignment import parted_after
from memrl_core.analysis.compare.comparison import Comparison
from memrl_core.analysis.compare.divergence import changed_uses
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.outline import shortened
from memrl_core.figures.compare.comparison import trajectories_picture
from memrl_core.numerals import signed
from pages.shared import place as places
from pages.shared.picture import show
from pages.shared.place import Place
from pages.shared.text import literal


def trajectories(place: Place, comparison: Comparison, line: int) -> None:
    """q of a chosen memory in both runs, for memories that both know; those that part farthest come first."""
    first, other = comparison.alignment.lines[0], comparison.alignment.lines[line]
    one, two = place.bank.utilities(first.info.id), place.bank.utilities(other.info.id)
    theirs = {i: i for i in one if i in two} | {mine: its for its, mine in comparison.likes[line - 1].items()}
    if not theirs:
        st.info("No memory is known in both runs, so no q can be compared.")
        return
    apart = {i: two[its].q - one[i].q for i, its in theirs.items()}
    ordered = sorted(theirs, key=lambda i: -abs(apart[i]))
    asked = {its: mine for mine, its in theirs.items()}.get(place.memory or "", place.memory)
    if asked is not None and asked not in theirs:
        st.caption(f"{literal(memory_label(asked, first.info.id))} is known in one of the two runs only.")
    st.session_state["compare_memory"] = asked if asked in theirs else ordered[0]
    chosen = st.selectbox(
        "Memory",
        ordered,
        key="compare_memory",
        format_func=lambda i: (
            f"{memory_label(i, first.info.id)} · Δq {signed(apart[i])} · {shortened(place.bank.memory(i).intent, 60)}"
        ),
        on_change=lambda: places.go(memory=st.session_state["compare_memory"]),
    )
    histories = [
        (first.name, place.bank.history(first.info.id, chosen)),
        (other.name, place.bank.history(other.info.id, theirs[chosen])),
    ]
    label = memory_label(chosen, first.info.id)
    show(trajectories_picture(histories, label, parted_after(first, other)), "compare_q")
    if theirs[chosen] != chosen:
        same = place.bank.memory(chosen).experience == place.bank.memory(theirs[chosen]).experience
        st.caption(
            f"Two memories that the same step of both runs wrote: {literal(chosen)} and {literal(theirs[chosen])}, "
            + ("with the same text." if same else "with different texts.")
        )


def gained_and_lost(place: Place, comparison: Comparison) -> None:
    """How often each memory is in the prompt as recorded and as supposed, where that differs."""
    changes = changed_uses(comparison.pairs[0], comparison.likes[0])
    if not changes:
        st.info("Every memory would be given as often as it was.")
        return
    more = sum(change.other > change.one for change in changes)
    st.markdown(f"**{more} memories would be given more often, {len(changes) - more} less often**")
    run = comparison.alignment.lines[0].info.id
    st.dataframe(
        pd.DataFrame(
            {
                "memory": [memory_label(c.memory_id, run) for c in changes],
                "recorded": [c.one for c in changes],
                "supposed": [c.other for c in changes],
                "Δ": [c.other - c.one for c in changes],
                "outcome": [place.bank.memory(c.memory_id).outcome for c in changes],
                "intent": [place.bank.memory(c.memory_id).intent for c in changes],
            }
        ),
        key="compare_gained",
        hide_index=True,
        column_config={"Δ": st.column_config.NumberColumn("Δ", format="%+d")},
        alt="Memories that would be given more or less often under the other settings",
    )
