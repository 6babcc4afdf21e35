"""Two runs step by step: where they part, one pair of steps side by side, and all pairs as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from memrl_core.analysis.compare.alignment import ComparedStep
from memrl_core.analysis.compare.comparison import (
    SAYS,
    Comparison,
    Difference,
    Pair,
    divergences,
    frequency,
    neighbours,
    pair_rows,
)
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.outline import shortened
from memrl_core.exchange.safe_files import csv_bytes, file_name
from memrl_core.numerals import signed
from pages.shared import place as places
from pages.shared.picture import download, show_table
from pages.shared.place import Place
from pages.shared.text import literal, verbatim

EARLIER = "compare_earlier"
ORDINALS = {1: "first time", 2: "second time", 3: "third time"}


def where_they_part(place: Place, pairs: Sequence[Pair]) -> None:
    """For each way to differ: how often, and the first time, with a jump."""
    for entry in divergences(pairs):
        with st.container(horizontal=True, vertical_alignment="center", key=f"part_{entry.difference}"):
            st.markdown(f"**{SAYS[entry.difference]}** {frequency(entry)}", width="stretch")
            if entry.first is not None:
                st.button(
                    f"First: step {entry.first.one.step}",
                    icon=":material/call_split:",
                    key=f"first_{entry.difference}",
                    on_click=_go,
                    args=(place, entry.first),
                )


def side_by_side(place: Place, comparison: Comparison, line: int) -> None:
    """The pair at the place's step (without one, the first that differs), with steps to the nearest that differ."""
    pairs = comparison.pairs[line - 1]
    if not pairs:
        st.info(f"All steps that can be laid side by side are shared with {literal(comparison.names[line])}.")
        return
    at = _position(place, pairs)
    if at is None:
        st.info(
            f"Step {place.step} of {literal(comparison.names[0])} is not compared: it has no like in "
            f"{literal(comparison.names[line])}, or both share it."
        )
        st.button("Go to the first that differs", key="compare_first", on_click=_go_to_first)
        return
    pair = pairs[at]
    _stepper(place, pairs, at)
    task = f"Task **{literal(pair.one.task)}**" if pair.one.task else "A task without a name"
    st.markdown(f"{task}, {ORDINALS.get(pair.occurrence, f'{pair.occurrence}th time')}")
    verbatim(pair.one.intent)
    like, lines = comparison.likes[line - 1], comparison.alignment.lines
    left, right = st.columns(2, border=True)
    with left:
        _step(
            place, pair.one, comparison.names[0], {i: ("removed" if i in pair.removed else "") for i in _ids(pair.one)}
        )
    with right:
        marks = {i: ("added" if like.get(i, i) in pair.added else "") for i in _ids(pair.other)}
        supposed = lines[line].info.id == lines[0].info.id
        _step(place, pair.other, comparison.names[line], marks, like, supposed)


def _ids(step: ComparedStep) -> tuple[str, ...]:
    return step.selected or ()


def _position(place: Place, pairs: Sequence[Pair]) -> int | None:
    if place.step is None:
        earlier = st.session_state.get(EARLIER)
        found = (at for at, pair in enumerate(pairs) if (pair.one.run, pair.one.step) == earlier)
        first = (at for at, pair in enumerate(pairs) if pair.differences)
        return next(found, next(first, len(pairs) - 1))
    return next((at for at, pair in enumerate(pairs) if pair.one.step == place.step), None)


def _go(place: Place, pair: Pair) -> None:
    """Show a pair. The place is a step of its own run; one of the run that it goes on from is remembered apart."""
    own = pair.one.run == place.info.id
    st.session_state[EARLIER] = None if own else (pair.one.run, pair.one.step)
    places.go(step=pair.one.step if own else None)


def _go_to_first() -> None:
    st.session_state[EARLIER] = None
    places.go(step=None)


def _stepper(place: Place, pairs: Sequence[Pair], at: int) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="compare_stepper"):
        before, after = neighbours(pairs, at)
        for label, icon, pair in (
            ("Previous difference", ":material/chevron_left:", before),
            ("Next difference", ":material/chevron_right:", after),
        ):
            st.button(label, icon=icon, key=f"compare_{label}", disabled=pair is None, on_click=_go, args=(place, pair))
        found = sorted(pairs[at].differences, key=list(Difference).index)
        summary = " · ".join(SAYS[d].lower() for d in found) or "no difference"
        st.markdown(f"pair **{at + 1}** of {len(pairs):,}: {summary}")


def _step(
    place: Place,
    step: ComparedStep,
    name: str,
    marks: dict[str, str],
    like: Mapping[str, str] | None = None,
    supposed: bool = False,
) -> None:
    st.markdown(f"**{literal(name)}** · step {step.step}" + _reward(step))
    if step.selected is None:
        st.caption("Which memories were given to the model is not recorded.")
    elif not step.selected:
        st.caption("No memory was given to the model.")
    for memory_id, mark in marks.items():
        _memory(place, memory_id, mark, step, like or {}, name)
    if supposed:
        st.caption("Nobody knows what the model would have answered.")
        return
    if step.answer is None:
        st.caption("What the model answered is not recorded.")
    else:
        with st.container(height=170, border=False):
            verbatim(step.answer)
    if st.button(f"Open step {step.step} of {literal(step.run)}", icon=":material/arrow_forward:", key=f"open_{name}"):
        places.go_to_steps(run=step.run, step=step.step)


def _reward(step: ComparedStep) -> str:
    if step.reward is None:
        return ""
    return f" · reward **{signed(step.reward)}**" + (f" · {step.outcome}" if step.outcome else "")


def _memory(place: Place, memory_id: str, mark: str, step: ComparedStep, like: Mapping[str, str], side: str) -> None:
    memory, twin = place.bank.memory(memory_id), like.get(memory_id)
    text = literal(f"{memory_label(memory_id, step.run)} {shortened(memory.intent, 60)} · {memory.outcome}")
    if mark == "removed":
        text = f":material/remove: ~~{text}~~"
    elif mark == "added":
        text = f":green[:material/add:] **{text}**"
    if twin and place.bank.memory(twin).experience != memory.experience:
        text += " · other text than its counterpart"
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.markdown(text, width="stretch")
        st.button(
            "q",
            icon=":material/show_chart:",
            type="tertiary",
            key=f"q_{side}_{memory_id}",
            on_click=places.go,
            kwargs={"memory": memory_id},
            help="Show its q in both runs",
        )


def task_table(place: Place, comparison: Comparison, line: int) -> None:
    """Every pair as a row: memories shared, added, removed, and rewards; choosing a row shows the pair."""
    rows = pair_rows(comparison, line)
    if rows.empty:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        only = st.toggle("Only what differs", value=True, key="compare_only")
        shown = rows[rows["differs in"] != ""] if only else rows
        st.markdown(f"{len(shown):,} of {len(rows):,} pairs")
    if shown.empty:
        st.success("No step differs in what is known of both.")
        return
    pairs = [comparison.pairs[line - 1][at] for at in shown.index]

    def chosen() -> None:
        picked = st.session_state["compare_rows"]["selection"]["rows"]
        if picked and picked[0] < len(pairs):
            _go(place, pairs[picked[0]])

    show_table(
        shown,
        "compare_rows",
        "All pairs of steps with the memories that are shared, added and removed, and the rewards",
        on_select=chosen,
        selection_mode="single-row",
        height=min(420, 38 + 35 * len(shown)),
        columns={"intent": st.column_config.TextColumn("intent", width="medium")},
    )
    download(
        f"These {len(shown):,} pairs as CSV",
        lambda: csv_bytes(shown.astype(object).where(shown.notna(), None).to_dict("records"), list(shown.columns)),
        file_name(place.bank_name, comparison.names[0], "against", comparison.names[line], kind="csv"),
        "compare_csv",
    )
