"""A-MEM: the graph of notes and links, and what the step changed in the notes near the new one."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from memrl_core.analysis.run.learned.texts import NoteEdit, edits, notes_and_links
from memrl_core.figures.learned.links import link_picture
from pages.methods.learned_case import Case
from pages.shared.map_panel import layout_of
from pages.shared.picture import show
from pages.shared.text import literal, verbatim

CIRCLE, MAP = "By age, on a circle", "As on the map"


def notes(case: Case) -> None:
    """The link graph, and beside it the edits of the step."""
    found = case.over_all_steps(
        "notes", lambda report, cancelled: (notes_and_links(case.watching), edits(case.watching))
    )
    if found is None:
        return
    graph, edited = found
    if not graph.notes:
        st.info("No note yet: the first finished step writes the first. Look at a later step.")
        return
    left, right = st.columns([3, 2], gap="medium")
    with left:
        lying = st.segmented_control("Notes lie", [CIRCLE, MAP], default=CIRCLE, required=True, key="learned_lying")
        places = layout_of(case.bank.uri, case.bank).places() if lying == MAP else None
        show(link_picture(graph, case.run, places), "learned_links")
        st.caption("● success, ✕ failure, ○ unrated. No reward changes a note: that is the lesson.")
    with right:
        _edits(case, edited)


def _edits(case: Case, found: Sequence[NoteEdit]) -> None:
    st.markdown(f"**Neighbours edited in step {case.trace.step}: {len(found):,}**")
    if not found:
        st.caption(
            "No neighbour was edited."
            if case.own
            else "Only A-MEM's own runs edit neighbours: memories of another method are notes without links."
        )
    for edit in found:
        with st.container(border=True, key=f"learned_edit_{edit.new}"):
            st.markdown(f"**{literal(case.label(edit.old))} → {literal(case.label(edit.new))}**")
            _changes(case, edit)


def _changes(case: Case, edit: NoteEdit) -> None:
    if not edit.changes:
        st.caption("The same note, written anew.")
    for change in edit.changes:
        named = [case.label(i) for i in change.after] if change.part == "links" else list(change.after)
        old = [case.label(i) for i in change.before] if change.part == "links" else list(change.before)
        st.markdown(f"{change.part} · {len(change.added):,} added, {len(change.gone):,} gone")
        lines = [f"− {text}" for text in old if text not in named] + [f"+ {text}" for text in named if text not in old]
        verbatim("\n".join(" ".join(line.split()) for line in lines) or "(another order)")
