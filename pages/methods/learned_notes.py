"""Learned texts and cases on the screen Methods: A-MEM's notes, workflows, reflections, tips, Memento's cases."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from memrl_core.analysis.run.learned.deciding import novelty, recollections
from memrl_core.analysis.run.learned.notes import (
    NoteEdit,
    case_calibration,
    cases_learned,
    edits,
    losses,
    notes_and_links,
    reflections,
    workflows,
)
from memrl_core.figures.run.learned import case_calibration_picture, link_picture, loss_picture, novelty_picture
from memrl_core.policies.methods.memento import Read
from pages.methods.learned_case import Case, memory_text, show_or_say
from pages.shared.picture import show, show_table
from pages.shared.text import literal, verbatim


def notes(case: Case) -> None:
    """The link graph, and beside it the edits of the step."""
    found = case.over_all_steps("notes", lambda *_: (notes_and_links(case.watching), edits(case.watching)))
    if found is None:
        return
    graph, edited = found
    if not graph.notes:
        st.info("No note yet: the first finished step writes the first. Look at a later step.")
        return
    left, right = st.columns([3, 2], gap="medium")
    with left:
        show(link_picture(graph, case.run), "learned_links")
        st.caption("● success, ✕ failure, ○ unrated; the oldest on top. No reward changes a note: that is the lesson.")
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
    for part, (before, after) in edit.changes.items():
        old, named = ([case.label(i) if part == "links" else i for i in side] for side in (before, after))
        gone, added = [text for text in old if text not in named], [text for text in named if text not in old]
        st.markdown(f"{part} · {len(added):,} added, {len(gone):,} gone")
        lines = [*(f"− {text}" for text in gone), *(f"+ {text}" for text in added)]
        verbatim("\n".join(" ".join(line.split()) for line in lines) or "(another order)")


def standing_workflows(case: Case) -> None:
    """The workflows as they stand, one a kind of success."""
    found = case.over_all_steps("workflows", lambda *_: workflows(case.watching))
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
        for column, (kind, one, new) in zip(st.columns(2, gap="medium"), found[start : start + 2], strict=False):
            with column, st.container(border=True, key=f"learned_workflow_{one.memory_id}"):
                mark = " · written in this step" if new else ""
                label = literal(case.label(one.memory_id))
                st.markdown(f"**{literal(one.workflow.name)}** · {label}, by the actions {literal(kind)}{mark}")
                st.markdown(literal(one.workflow.docstring))
                verbatim("\n".join(f"{n}. {step}" for n, step in enumerate(one.workflow.steps, start=1)))
                intents = [success.intent for success in one.successes]
                count = "1 success" if len(intents) == 1 else f"the newest {len(intents):,} successes"
                st.caption(literal(f"Made of {count}: {'; '.join(intents)}"))


def reflections_on_task(case: Case) -> None:
    """What is known of the task of this step, the newest first."""
    found = reflections(case.watching)
    read = sum(will_be for _, will_be in found)
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
    for memory, will_be in found:
        memory_text(case, memory, " · **read at the next try**" if will_be else " · too old to be read")


def tips(case: Case) -> None:
    """Novelty over the run, and the tips of a moment of the step."""
    found = case.over_all_steps("novelty", lambda *progress: novelty(case.watching, *progress))
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
    pool = [candidate for candidate in one.decision.candidates if candidate.rank_select is not None]
    st.markdown(f"**{len(pool):,} tips found, by stored score; ✓ was given**")
    st.caption(literal(" ".join((one.decision.note, one.recall.why)).strip()))
    scores = {c.memory_id: next(term.raw for term in c.terms if term.name == "score") for c in pool}
    with st.container(height=420, key="learned_tip_texts"):
        for tip in sorted(pool, key=lambda c: (-scores[c.memory_id], -c.similarity)):
            name = f"{'✓ ' if tip.selected else ''}{literal(case.label(tip.memory_id))}"
            st.markdown(f"{name} · score {scores[tip.memory_id]:.2f} · cosine {tip.similarity:.2f}")
            verbatim(case.bank.memory(tip.memory_id).experience)


LATER = "Look at a later step: predictions begin once cases were used in judged tasks."
SIMILAR = (
    "This read learns nothing that it goes by: the K most similar cases are read, whether they helped or not. The "
    "outcome of every use is noted all the same."
)


def cases(case: Case) -> None:
    """What one of the three reads has learned."""
    read: Read = case.settings["read"] if case.own else "kernel"
    learned = case.over_all_steps("cases", lambda *progress: cases_learned(case.watching, read, *progress), read)
    if learned is None:
        return
    if read == "similar":
        st.info(SIMILAR)
        st.caption(f"{len(learned.uses):,} uses of {len(learned.numbers):,} cases are noted.")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        if read == "network":
            found = losses(learned)
            show_or_say(loss_picture(found), "learned_loss", found.empty, LATER)
        elif learned.worth:
            rows = [(case.label(memory_id), worth) for memory_id, worth in learned.worth.items()]
            show_table(
                pd.DataFrame(rows, columns=["case", "Q_EC"]), "learned_worth", "Q_EC of each case, where used last"
            )
        else:
            st.info("No case was used in a judged task yet. Look at a later step.")
    with right:
        bins = case_calibration(learned)
        show_or_say(case_calibration_picture(bins), "learned_calibration", bins.empty, LATER)
        st.caption(
            "Every case of a prompt gets the whole task's outcome as its label, whether it helped or not. Each p was "
            "made before its outcome was known."
        )


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
