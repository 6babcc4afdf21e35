"""What is only counted: Memory-R1's operations by epoch, and pass@k."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.run.learned.values import OPERATIONS, operations_by_epoch, solved_within
from memrl_core.figures.learned.tallies import operations_picture, pass_picture
from pages.methods.learned_case import Case, show_or_say


def operations(case: Case) -> None:
    """How often each operation was chosen, epoch by epoch."""
    found = case.over_all_steps(
        "operations", lambda report, cancelled: operations_by_epoch(case.watching, report, cancelled)
    )
    if found is None:
        return
    none = not found[list(OPERATIONS)].to_numpy().any()
    show_or_say(operations_picture(found), "learned_operations", none, "Look at a later step.")
    if case.own:
        st.caption("A reply of no use leaves the memory as it is, and is counted: it is never a reward.")
    else:
        st.caption("These are the operations of the run's own method. A model that chooses them was not asked here.")


def tries(case: Case) -> None:
    """The share of tasks that were solved within k tries."""
    found = case.over_all_steps("tries", lambda report, cancelled: solved_within(case.watching.after()))
    if found is None:
        return
    show_or_say(pass_picture(found), "learned_pass", found.empty, "Reward a step on the screen Rewards.")
    if case.own:
        st.caption("No memory was read: what rises with k is luck. Hollow: some tasks still have tries to come.")
    else:
        st.caption(
            "These tries had the memory of the run's own method, so this is no control arm: start a run of Pass@k on "
            "the same tasks for that. Hollow: some tasks still have tries to come."
        )
