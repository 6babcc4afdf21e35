"""All memories of a run as a table to search, filter, sort and take away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.memory.relations import KNOWN_APART, Common, catalogue, in_common, known_of, matching
from memrl_core.analysis.recall.uses import UseCounts, use_counts
from memrl_core.bank import MemoryBank
from memrl_core.exchange.safe_files import csv_bytes
from memrl_core.numerals import fixed, percent, signed
from memrl_core.records import Memory
from pages.shared import place as places
from pages.shared.picture import Rows, download, show_table
from pages.shared.text import literal
from pages.shared.view import View, families_of

OUTCOMES = ("success", "failure", "unrated")
MOST_NAMED = 6
"""Of families and of runs, as many are named."""

FAR = {
    "surfaced": "Steps in whose pool it was",
    "selected": "Steps in whose prompt it was",
    "used": "Steps whose answer used it: as people say, else where the answer takes its actions. Empty where not known",
    "helpful": "Of these, steps that succeeded",
}
"""How far a memory comes (`UseCounts`)."""


def memory_table(view: View) -> None:
    """Search in the full text, filter by outcome and q; a chosen row opens the memory beside the table."""
    held = _with_uses(view, catalogue(view.moment, view.memories))
    everything = view.place.bank.metadata(view.run.id)
    metadata = {name: known_of(everything[name]) for name in held["id"] if name in everything}
    rows = _of_selection(view, held)
    about: list[str] = []
    if metadata and len(rows):
        rows = rows.assign(metadata=[KNOWN_APART.join(metadata.get(name, ())) for name in rows["id"]])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = st.text_input(
            "Search", key="memory_search", placeholder="egg microwave", help="In the intent and the experience."
        )
        outcomes = st.multiselect("Outcome", OUTCOMES, key="memory_outcomes", placeholder="all")
        low, high = _q_limits(rows)
        if metadata:
            values = sorted({value for known in metadata.values() for value in known})
            about = st.multiselect("Metadata", values, key="memory_about", placeholder="all")
        limits = st.slider("q", low, high, (low, high), 0.05, key="memory_q", width=220)
    found = matching(rows, words, outcomes, limits, about)
    tick = "" if found.empty or view.place.memory else " · tick one to read it"
    st.markdown(f"**{len(found):,} of {len(rows):,} memories**{tick}")
    if rows.empty:
        st.info("No memories yet. Go to Step and press Step: the first task writes the first memory.")
        return
    if found.empty:
        st.info("Nothing matches. Take a word or a filter away.")
        return
    _ticked(
        view,
        list(found["id"]),
        found.drop(columns=["id", "experience"]),
        "memory_rows",
        "The memories of this run with their utility, uses and origin",
        write={"q": signed, "similarity": fixed},
        columns={
            "memory": st.column_config.TextColumn("memory", width="small"),
            "intent": st.column_config.TextColumn("intent", width="large"),
            "q": st.column_config.Column("q", width="small"),
            "uses": "updates",
            **{name: st.column_config.NumberColumn(name, help=said) for name, said in FAR.items()},
            "similarity": "similarity to this step",
        },
        height=560,
    )
    download(
        f"These {len(found):,} memories as CSV",
        lambda: csv_bytes(found.to_dict("records"), list(found.columns)),
        places.download_name("memories", kind="csv"),
        "memory_csv",
    )
    _away(view)


def _with_uses(view: View, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with how far each memory came, up to the step that is shown."""
    bank, trace = view.place.bank, view.moment.trace
    last = None if view.moment.live or trace is None else trace.step
    counts = _how_far(bank, bank.state, view.run.id, last)
    far = [counts.get(one, UseCounts(0, 0)) for one in rows["id"]]
    columns = pd.DataFrame(far, columns=list(UseCounts._fields), index=rows.index).astype("Int64")
    at = rows.columns.get_loc("uses") + 1
    return pd.concat([rows.iloc[:, :at], columns, rows.iloc[:, at:]], axis=1)


@st.cache_data(max_entries=4, show_spinner=False)
def _how_far(_bank: MemoryBank, state: str, run: str, last: int | None) -> dict[str, UseCounts]:
    return use_counts(_bank, run, last)


def _of_selection(view: View, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of what was selected on the map of Step, if any of it is here; else all."""
    chosen = rows["id"].isin(places.selection()) if len(rows) else None
    if chosen is None or not chosen.any():
        return rows
    with st.container(horizontal=True, vertical_alignment="center", key="bank_selection"):
        st.markdown(f":material/lasso_select: **{chosen.sum():,} memories selected on the map**", width="content")
        st.button("Show all", key="bank_selection_all", type="tertiary", on_click=_show_all)
    _in_common(view, rows[chosen])
    return rows[chosen]


def _in_common(view: View, rows: pd.DataFrame) -> None:
    """What the selected memories have in common, beside the rest of the run."""
    ids = set(rows["id"])
    chosen = [view.memories[i] for i in ids]
    others = [memory for i, memory in view.memories.items() if i not in ids]
    found = in_common(chosen, others, list(rows["q"]), [_family(view, memory) for memory in chosen])
    with st.container(border=True, key="bank_in_common"):
        st.markdown("**What do these have in common?**\n\n" + "\n".join(f"- {line}" for line in _lines(found)))


def _family(view: View, memory: Memory) -> str:
    written_in = next((run.tasks for run in view.place.bank.runs() if run.id == memory.run), "")
    return families_of(written_in).get(memory.task) or "unknown"


def _lines(found: Common) -> list[str]:
    low, middle, high = map(signed, found.q)
    words = ", ".join(
        f"{literal(word)} ({percent(here, 0)}, rest {percent(rest, 0)})" for word, here, rest in found.words
    )
    return [
        f"Families: {_counts(found.families)}",
        f"Outcomes: {_counts(found.outcomes)}",
        f"Written in: {_counts(found.runs)}",
        f"q: {low} to {high}, median {middle}",
        f"Words more frequent than in the rest: {words or 'none'}",
    ]


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{literal(name)} {count:,}" for name, count in list(counts.items())[:MOST_NAMED]]
    return ", ".join(shown) + (f", {len(counts) - MOST_NAMED:,} more" if len(counts) > MOST_NAMED else "")


def _show_all() -> None:
    places.selecting(())


def _away(view: View) -> None:
    """Memories that were forgotten or replaced: to be read, and restored."""
    bank, run = view.place.bank, view.run.id
    away = bank.editing.away(run) if view.moment.live else {}
    if not away:
        return
    with st.expander(f"{len(away):,} that the run no longer sees"):
        ids = list(away)
        rows = [
            {"memory": memory_label(i, run), "intent": bank.memory(i).intent, "q when it went": away[i].q} for i in ids
        ]
        alt = "The memories that were forgotten or replaced, with their q"
        _ticked(view, ids, rows, "away_rows", alt, signs=("q when it went",))


def _ticked(view: View, ids: Sequence[str], rows: Rows, key: str, alt: str, **look: Any) -> None:
    """A table of memories in which the one is ticked that the card shows; a tick opens it, its removal closes it."""

    def follow() -> None:
        ticked = st.session_state[key]["selection"]["rows"]
        places.go(memory=ids[ticked[0]] if ticked else None)

    # Streamlit keeps a tick by its position, which a filter gives to another memory, and keeps it when the card closes.
    at = [ids.index(view.place.memory)] if view.place.memory in ids else []
    if st.session_state.get(key, {"selection": {"rows": []}})["selection"]["rows"] != at:
        st.session_state[key] = {"selection": {"rows": at, "columns": [], "cells": []}}
    show_table(rows, key, alt, on_select=follow, selection_mode="single-row", **look)


def _q_limits(rows: pd.DataFrame) -> tuple[float, float]:
    if rows.empty:
        return -1.0, 1.0
    return min(-1.0, float(rows["q"].min())), max(1.0, float(rows["q"].max()))
