"""What is learned as text: AWM's workflows, and Reflexion's reflections on the step's task."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.run.learned.texts import reflections, workflows
from pages.methods.learned_case import Case, memory_text
from pages.shared.text import literal, verbatim


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
                told = " · written in this step" if one.new else ""
                name = literal(one.induced.workflow.name)
                label = literal(case.label(one.induced.memory_id))
                st.markdown(f"**{name}** · {label}, by the actions {literal(one.kind)}{told}")
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
