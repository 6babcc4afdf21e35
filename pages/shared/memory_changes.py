"""A memory in a person's hands: pin, edit, merge, forget, restore; and what has become of it so far."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from memrl_core.agent import workspace
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.people.audit_words import Sentences, who
from memrl_core.bank import MemoryBank
from memrl_core.bank.deeds import MEMORIES
from memrl_core.bank.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.records import EventKind, Memory
from pages.shared import place as places
from pages.shared.person import allowed, person
from pages.shared.text import literal
from pages.shared.view import View

EDIT, MERGE, PIN, FORGET = "Edit", "Merge", "Pin", "Forget"


def memory_changes(view: View, memory: Memory) -> None:
    """What can be done to a memory from the next step on, and the undo of what this person did to memories last."""
    bank, run = view.place.bank, view.run.id
    may = allowed(bank, Role.MANAGE)
    pinned = memory.id in bank.pinned(run)
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="memory_changes"):
        if pinned:
            st.badge("pinned", icon=":material/keep:", color="blue", help="Not to be forgotten until it is unpinned")
        if memory.id in bank.utilities_of(run, [memory.id]):
            if st.button("Change", icon=":material/edit:", key="change_memory", disabled=not may, type="tertiary"):
                _dialog(view, memory, pinned)
        elif memory.id in bank.away(run) and st.button(
            "Restore", icon=":material/restore_from_trash:", key="restore_memory", disabled=not may, type="tertiary",
            help="The run sees it again from its next step on, with the q it had",
        ):  # fmt: skip
            _do(lambda: bank.editing.restore(run, [memory.id], person()))
        done = bank.deeds.done(person(), MEMORIES)
        if done and done[-1].first.run == run:
            st.button(
                "Undo the last change", icon=":material/undo:", key="undo_change", type="tertiary",
                on_click=_undo, args=(bank,),
            )  # fmt: skip


def what_became_of(view: View, memory: Memory) -> None:
    """Every change of a memory and of those it came from or was replaced by, with who did it and why."""
    bank, run = view.place.bank, view.run.id
    events = bank.editing.changes(run, memory.id)
    if len(events) < 2:
        return
    told = Sentences(events)
    with st.expander(f"What became of it · {len(events):,}"):
        for event in events:
            why = f": {event.reason}" if event.reason else ""
            when = event.created[:16].replace("T", " ")
            st.markdown(f"- {when} UTC · {literal(f'{who(event)} {told.of(event)}{why}')}")


@st.dialog("Change a memory", width="large")
def _dialog(view: View, memory: Memory, pinned: bool) -> None:
    bank, run = view.place.bank, view.run.id
    st.markdown(f"**Memory {literal(memory_label(memory.id, run))}** · {literal(memory.intent)}")
    what = st.segmented_control(
        "What",
        [EDIT, MERGE, PIN, FORGET],
        default=EDIT,
        required=True,
        key="change_what",
        label_visibility="collapsed",
    )
    intent, experience, others = memory.intent, memory.experience, []
    if what == EDIT:
        st.caption(
            "A new wording takes its place from the next step on, with its q and visits. The old one stays for "
            "replays; another intent is embedded anew and gets its own place on the map."
        )
        intent = st.text_input("Intent", memory.intent, key="change_intent", max_chars=20_000)
        experience = st.text_area(
            "Experience", memory.experience, key="change_experience", height=200, max_chars=20_000
        )
    elif what == MERGE:
        st.caption("One memory takes the place of several. Its q is the mean of theirs, weighted by their visits.")
        others = st.multiselect(
            "Together with", [i for i in bank.utilities(run) if i != memory.id], key="change_others",
            format_func=lambda i: f"{memory_label(i, run)} · {bank.memory(i).intent[:70]}",
        )  # fmt: skip
        texts = [memory.experience, *(bank.memory(i).experience for i in others)]
        intent = st.text_input("Intent", memory.intent, key="merge_intent", max_chars=20_000)
        experience = st.text_area(
            "Experience", "\n".join(texts), key=f"merge_experience_{len(others)}", height=200, max_chars=20_000
        )
    elif what == PIN:
        st.caption("A pinned memory is not forgotten, neither by people nor by a policy that prunes.")
    else:
        st.caption("The run no longer sees it from its next step on. It stays on record, and can be restored.")
    reason = st.text_input("Reason", key="change_reason", max_chars=2000, placeholder="for those who come after you")

    def act() -> Memory | None:
        embedder = workspace.make_embedder(bank.embedder.name, workspace.load_preferences())
        if what == EDIT:
            return bank.editing.edit(run, memory.id, intent, experience, embedder, person(), reason)
        if what == MERGE:
            return bank.editing.merge(run, [memory.id, *others], intent, experience, embedder, person(), reason)
        if what == PIN:
            (bank.editing.unpin if pinned else bank.editing.pin)(run, [memory.id], person(), reason)
        else:
            bank.editing.forget(run, [memory.id], person(), reason)
        return None

    verb = "Unpin" if what == PIN and pinned else str(what)
    if st.button(verb, type="primary", key="change_go"):
        _do(act)


def _do(act: Callable[[], object]) -> None:
    try:
        made = act()
    except MemRLError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    if isinstance(made, Memory):
        places.go(memory=made.id)
    st.toast("Saved. Undo stands beside the memory.", icon=":material/save:")
    st.rerun()


def _undo(bank: MemoryBank) -> None:
    try:
        deed = bank.deeds.undo(person(), MEMORIES)
    except MemRLError as error:
        st.session_state["failure"] = str(error)
        return
    if deed is not None and deed.first.kind in (EventKind.MEMORY_EDITED, EventKind.MEMORY_MERGED):
        places.go(memory=deed.first.payload["replaces"][0])
    st.toast("Undone: the memory is what it was.", icon=":material/undo:")
