"""Learned texts and cases on the screen Methods: A-MEM's notes, workflows, reflections, tips, Memento's cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import streamlit as st

from memrl_core.analysis.run.learned.deciding import novelty, recollections, tips_in_order
from memrl_core.analysis.run.learned.notes import (
    CaseHistory,
    NoteEdit,
    case_calibration,
    case_history,
    edits,
    kernel_weights,
    losses,
    notes_and_links,
    reflections,
    used_cases,
    workflows,
)
from memrl_core.figures.run.learned_notes import (
    case_calibration_picture,
    kernel_picture,
    link_picture,
    loss_picture,
    novelty_picture,
    tips_picture,
)
from memrl_core.policies.methods.memento import SPECS, Read
from pages.methods.learned_case import Case, memory_text, show_or_say
from pages.shared.arm import arm_line
from pages.shared.map_layouts import layout_of
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
        gone, added = [text for text in old if text not in named], [text for text in named if text not in old]
        st.markdown(f"{change.part} · {len(added):,} added, {len(gone):,} gone")
        lines = [*(f"− {text}" for text in gone), *(f"+ {text}" for text in added)]
        verbatim("\n".join(" ".join(line.split()) for line in lines) or "(another order)")


def standing_workflows(case: Case) -> None:
    """The workflows as they stand, one a kind of success."""
    found = case.over_all_steps("workflows", lambda report, cancelled: workflows(case.watching))
    if found is None:
        return
    if not found:
        st.info(
            "No workflow yet: the first success writes one. Look at a later step, or reward a step as a success."
            if case.own
            else "Workflows are induced by AWM's own runs only. Start a run of AWM on Home to see them."
        )
        return
    count = "1 workflow stands" if len(found) == 1 else f"{len(found):,} workflows stand"
    st.markdown(f"**{count} after step {case.trace.step}**")
    for start in range(0, len(found), 2):
        for column, one in zip(st.columns(2, gap="medium"), found[start : start + 2], strict=False):
            with column, st.container(border=True, key=f"learned_workflow_{one.induced.memory_id}"):
                mark = " · written in this step" if one.new else ""
                name = literal(one.induced.workflow.name)
                label = literal(case.label(one.induced.memory_id))
                st.markdown(f"**{name}** · {label}, by the actions {literal(one.kind)}{mark}")
                st.markdown(literal(one.induced.workflow.docstring))
                verbatim("\n".join(f"{n}. {step}" for n, step in enumerate(one.induced.workflow.steps, start=1)))
                intents = [success.intent for success in one.induced.successes]
                count = "1 success" if len(intents) == 1 else f"the newest {len(intents):,} successes"
                st.caption(literal(f"Made of {count}: {'; '.join(intents)}"))


def reflections_on_task(case: Case) -> None:
    """What is known of the task of this step, the newest first."""
    found = reflections(case.watching)
    read = sum(one.read for one in found)
    kept = "1 memory" if len(found) == 1 else f"{len(found):,} memories"
    st.markdown(f"**{kept} of this task after step {case.trace.step}; the next try reads {read}**")
    st.caption(literal(f"Task {case.trace.task.id}: {case.trace.task.intent}"))
    if not found:
        st.info(
            "Nothing is kept of this task: a success writes no reflection, and other tasks' are not read. Look at a "
            "step that failed."
        )
    if not case.own and found:
        st.caption("The run's own method wrote these; Reflexion would have written after failures only, in its words.")
    for one in found:
        memory_text(case, one.memory, " · **read at the next try**" if one.read else " · too old to be read")


def tips(case: Case) -> None:
    """The meter over the run, and a moment's tips in both orders."""
    found = case.over_all_steps("novelty", lambda report, cancelled: novelty(case.watching, report, cancelled))
    if found is None:
        return
    show_or_say(novelty_picture(found), "learned_novelty", found.empty, "Choose a run whose steps have a pool.")
    if not case.own:
        st.caption(
            "In the run of another method only the beginning of each task is asked again, by the embedding of the "
            "intent alone: this method's own key has the observation in it too."
        )
    _moment(case)


def _moment(case: Case) -> None:
    moments = recollections(case.watching, case.trace)
    if not moments:
        st.info("This step was recorded without its pool or its intent's embedding. Choose another step.")
        return
    turns = {one.turn: one for one in moments}
    turn = st.selectbox(
        "Moment of this step",
        list(turns),
        key="learned_turn",
        width=300,
        format_func=lambda turn: f"before turn {turn + 1}" if turn else "at the beginning",
    )
    one = turns[turn]
    in_order = tips_in_order(one.decision)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        show(tips_picture(in_order, one.decision.k2, case.run), "learned_tips")
        st.caption(literal(" ".join((one.decision.note, one.recall.why)).strip()))
    with right:
        st.markdown("**The tips, by stored score**")
        with st.container(height=420, key="learned_tip_texts"):
            for memory_id, score, similarity in zip(
                in_order["memory"], in_order["score"], in_order["similarity"], strict=True
            ):
                st.markdown(f"{literal(case.label(memory_id))} · score {score:.2f} · cosine {similarity:.2f}")
                verbatim(case.bank.memory(memory_id).experience)


LATER = "Look at a later step: predictions begin once cases were used in judged tasks."
SIMILAR = (
    "This read learns nothing that it goes by: the K most similar cases are read, whether they helped or not. The "
    "outcome of every use is noted all the same, so that the two other reads can be tried out on this run."
)


def cases(case: Case) -> None:
    """What one of the three reads has learned."""
    reads = get_args(Read)
    first = case.settings["read"] if case.own else "kernel"
    read = st.segmented_control(
        "Read", reads, default=first, required=True, key=f"learned_read_{case.run}",
        help="similar: the K most alike. kernel: by the outcomes of past uses, weighted by how alike their tasks were. "
        "network: by a learned chance to help.",
    )  # fmt: skip
    if read != case.settings["read"]:
        arm_line(SPECS[read])
    history = case.over_all_steps(
        "cases", lambda report, cancelled: case_history(case.watching, read, report, cancelled), read
    )
    if history is None:
        return
    if read == "similar":
        st.info(SIMILAR)
        st.caption(f"{len(history.after.uses):,} uses of {len(history.after.numbers):,} cases are noted.")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        if read == "network":
            found = losses(history)
            show_or_say(loss_picture(found), "learned_loss", found.empty, LATER)
        else:
            _kernel(case, history)
    with right:
        bins = case_calibration(history)
        show_or_say(case_calibration_picture(bins), "learned_calibration", bins.empty, LATER)
        st.caption(
            "Every case of a prompt gets the whole task's outcome as its label, whether it helped or not. Each p was "
            "made before its outcome was known."
        )


def _kernel(case: Case, history: CaseHistory) -> None:
    used = used_cases(history)
    if not used:
        st.info("No case was used in a judged task before this step. Look at a later step.")
        return
    selected = case.trace.decision.selected if case.trace.decision else ()
    here = [memory_id for memory_id in selected if memory_id in used]
    options = list(dict.fromkeys([*here, *used]))
    chosen = st.selectbox(
        "Case",
        options,
        key="learned_case",
        format_func=lambda i: (
            f"{case.label(i)} · {used[i]} uses{' · in this prompt' if i in here else ''} · "
            f"{case.bank.memory(i).intent[:60]}"
        ),
    )
    weights = kernel_weights(history, case.trace, chosen)
    if weights.empty:
        st.info(
            "This step was recorded without the embedding of its intent: no past use can be weighed. Choose another."
        )
        return
    show(kernel_picture(weights, history, case.label(chosen)), "learned_kernel")
    st.caption(literal(f"For “{case.trace.task.intent[:80]}”, by the uses before step {case.trace.step}."))


LESSONS = {
    "none": "Nothing is learned and nothing is remembered: every try is the model alone. That is the lesson: what "
    "another method is worth counts from here, on the same tasks and with as many tries.",
    "rag": "Nothing is learned from rewards: the most similar memory is read, whether it ever helped or not. That is "
    "the lesson: what MemRL does better on the same tasks is what values add to similarity.",
    "exprag": "Nothing is learned beyond what is stored: each experience keeps its label, correct or not, and nobody "
    "adds up whether reading it helped. That is the lesson: a label is a fact about the past episode, not a value for "
    "the next one.",
    "exprecent": "Nothing is learned: the newest experiences are read, whatever they are worth. That is the lesson: "
    "where this does as well as MemRL, what counted was how new a memory is, not how good.",
}


def nothing(case: Case) -> None:
    """The sentence."""
    st.info(LESSONS[case.watching.policy], icon=":material/school:")
