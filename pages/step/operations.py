"""What WRITE did to the memory: written, put in the place of others, deleted, or nothing; and a button to a memory."""

from __future__ import annotations

import difflib
import json

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.errors import BankError
from memrl_core.numerals import signed
from memrl_core.records import MemoryOperation
from pages.shared import place as places
from pages.shared.text import literal, verbatim
from pages.shared.view import View


def operations(view: View) -> None:
    """The operations of the step, in their order."""
    trace = view.moment.trace
    assert trace is not None and trace.write is not None
    if not trace.write.operations:
        st.info("Nothing was written: this method keeps no memory of this episode.")
    for number, operation in enumerate(trace.write.operations):
        with st.container(key=f"operation_{number}"):
            _operation(view, operation)


def _operation(view: View, operation: MemoryOperation) -> None:
    run = view.run.id
    replaced = ", ".join(memory_label(memory_id, run) for memory_id in operation.replaces)
    if operation.op == "NOOP":
        same = memory_label(operation.duplicate_of or "", run)
        why = f"the same experience stands in {same} already" if operation.duplicate_of else operation.why
        st.info(f"Nothing was written: {literal(why or 'the method saw no need')}.")
        return
    if operation.op == "DELETE":
        st.warning(literal(f"Deleted: {replaced}. {operation.why}"), icon=":material/delete:")
        return
    known = view.moment.utilities.get(operation.memory_id)
    memory_button(view, operation.memory_id, f"written_{operation.memory_id}", known.q if known else None)
    if operation.replaces:
        st.caption(literal(f"Stands in the place of {replaced}, with its q. {operation.why}"))
        _difference(view, operation)
    verbatim(operation.experience)
    used = ", ".join(memory_label(parent, run) for parent in operation.parents) or "none"
    keeps_q = view.spec is None or view.spec.keeps_q
    starts = f"{operation.outcome} · " + (f"starts at q {signed(operation.q0)} · " if keeps_q else "")
    if operation.replaces:
        starts = ""
    st.caption(literal(f"{starts}memories in its prompt: {used}"))
    if operation.data:
        with st.expander("What the method keeps beside the text", key=f"data_{operation.memory_id}"):
            verbatim(json.dumps(dict(operation.data), ensure_ascii=False, indent=1))


def _difference(view: View, operation: MemoryOperation) -> None:
    """Line by line, what the new text has and the old had not."""
    before: list[str] = []
    for memory_id in operation.replaces:
        try:
            before += view.place.bank.memory(memory_id).experience.splitlines()
        except BankError:
            return
    lines = difflib.unified_diff(before, operation.experience.splitlines(), "before", "after", lineterm="", n=1)
    text = "\n".join(lines)
    if text:
        with st.expander("What changed in its text", key=f"diff_{operation.memory_id}"):
            verbatim(text)


def memory_button(view: View, memory_id: str, key: str, q: float | None) -> None:
    """The memory's name and the q that it had where it is shown; a click opens it."""
    keeps_q = view.spec is None or view.spec.keeps_q
    worth = f" · q {signed(q)}" if q is not None and keeps_q else ""
    st.button(
        f"memory {literal(memory_label(memory_id, view.run.id))}{worth}",
        icon=":material/ink_highlighter:",
        type="tertiary",
        key=f"open_{key}",
        on_click=places.go,
        kwargs={"memory": memory_id},
        help="Show this memory beside the map",
    )
