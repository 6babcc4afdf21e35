"""Memento: loss and calibration of its predictions, and the past uses behind the value of a case."""

from __future__ import annotations

from typing import get_args

import streamlit as st

from memrl_core.analysis.run.learned.texts import (
    CaseHistory,
    case_calibration,
    case_history,
    kernel_weights,
    losses,
    used_cases,
)
from memrl_core.figures.learned.cases import case_calibration_picture, kernel_picture, loss_picture
from memrl_core.policies.methods.memento import SPECS, Read
from pages.methods.learned_case import Case, show_or_say
from pages.shared.arm import arm_line
from pages.shared.picture import show
from pages.shared.text import literal

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
