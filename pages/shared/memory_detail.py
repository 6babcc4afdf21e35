"""One memory: its text, where it came from, how its q came about, and what a person can change."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import embedder_of
from memrl_core.analysis.decision.labels import memory_label, memory_labels
from memrl_core.analysis.people.audit import Sentences, who_did
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import MEMORIES
from memrl_core.figures.memory.utility import history_picture
from memrl_core.learning import REPLACES
from memrl_core.numerals import signed
from memrl_core.records import Memory
from pages.shared import place as places
from pages.shared.person import person, within_role
from pages.shared.picture import show
from pages.shared.text import errors_shown, failure_kept, literal, minute, verbatim
from pages.shared.view import View


def memory_detail(view: View) -> None:
    """The memory that was clicked on the map, in a table, in a chart's button or in a link."""
    memory_id = view.place.memory
    if memory_id is None:
        st.caption("Click a point of the map, or a memory in the prompt, to read it here.")
        return
    memory, bank = view.place.bank.memory(memory_id), view.place.bank
    known = view.moment.utilities.get(memory_id)
    with st.container(border=True, key="memory_detail"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"#### Memory {literal(memory_label(memory_id, view.run.id))}")
            st.button("Close", key="close_memory", type="tertiary", on_click=places.go, kwargs={"memory": None})
        if known is None:
            gone = memory_id in bank.editing.away(view.run.id)
            st.info(
                "The run no longer sees this memory: it was forgotten, or another took its place."
                if gone and view.moment.live
                else "This run did not know this memory at this moment."
            )
        else:
            with st.container(horizontal=True):
                st.metric("q", signed(known.q), width="content")
                then = _at_decision(view, memory_id)
                if then is not None and then != known.q:
                    st.metric("q at the decision", signed(then), width="content")
                st.metric("Uses rewarded", known.visits, width="content")
                st.metric("Outcome", memory.outcome, width="content")
        verbatim(memory.experience)
        parents = memory_labels(memory.parents, view.run.id)
        written = f"written in step {memory.step} of {memory.run}, task {memory.task}"
        where = written if memory.step > 0 else f"given to {memory.run} before its first step"
        prompt = f" · memories in its prompt: {parents}" if memory.step > 0 else ""
        st.caption(literal(f"{where}, {memory.created[:19]} UTC{prompt}"))
        steps = range(view.place.first_step, view.place.last_step + 1)
        if memory.run == view.run.id and memory.step != view.place.step and memory.step in steps:
            st.button(
                f"Go to step {memory.step}, which wrote it",
                icon=":material/history:",
                key="origin",
                on_click=places.go,
                kwargs={"step": memory.step},
            )
        memory_changes(view, memory)
        what_became_of(view, memory)
        if st.button("Ask about this memory", icon=":material/contact_support:", key="ask_memory", type="tertiary"):
            link = st.session_state["place"] | places.asking("origin", memory_id)
            st.switch_page("pages/decision/page.py", query_params=link)
        history = bank.history(view.run.id, memory_id, as_of=view.place.step)
        if history:
            show(history_picture(history, view.run.settings, memory_id, view.run.id), "history")


def _at_decision(view: View, memory_id: str) -> float | None:
    """The memory's q when the step on the screen chose among its pool; None where the memory was not looked at."""
    trace = view.moment.trace
    seen = trace.decision.candidates if trace is not None and trace.decision is not None else ()
    return next((candidate.q for candidate in seen if candidate.memory_id == memory_id), None)


EDIT, MERGE, PIN, FORGET = "Edit", "Merge", "Pin", "Forget"


def memory_changes(view: View, memory: Memory) -> None:
    """What can be done to a memory from the next step on, and the undo of what this person did to memories last."""
    bank, run = view.place.bank, view.run.id
    look = within_role(bank, Role.MANAGE)
    pinned = memory.id in bank.editing.pinned(run)
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="memory_changes"):
        if pinned:
            st.badge("pinned", icon=":material/keep:", color="blue", help="Not to be forgotten until it is unpinned")
        if memory.id in bank.utilities(run, of=[memory.id]):
            if st.button("Change", icon=":material/edit:", key="change_memory", type="tertiary", **look):
                _dialog(view, memory, pinned)
        elif memory.id in bank.editing.away(run) and st.button(
            "Restore", icon=":material/restore_from_trash:", key="restore_memory", type="tertiary",
            **within_role(bank, Role.MANAGE, help="The run sees it again from its next step on, with the q it had"),
        ):  # fmt: skip
            _do(lambda: bank.write.editing.restore(run, [memory.id], person()))
        done = bank.undo.done(person(), MEMORIES)
        if done and done[-1].first.run == run:
            st.button(
                "Undo the last change", icon=":material/undo:", key="undo_change", type="tertiary",
                on_click=_undo, args=(bank,), **look,
            )  # fmt: skip


def what_became_of(view: View, memory: Memory) -> None:
    """Every change of a memory and of those it came from or was replaced by, with who did it and why."""
    bank, run = view.place.bank, view.run.id
    events = bank.editing.changes(run, memory.id)
    if len(events) < 2:
        return
    sentences = Sentences(events)
    with st.expander(f"What became of it · {len(events):,}"):
        for event in events:
            why = f": {event.reason}" if event.reason else ""
            st.markdown(f"- {minute(event.created)} · {literal(f'{who_did(event)} {sentences.of(event)}{why}')}")


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
        if what in (EDIT, MERGE):
            embedder = embedder_of(bank, load_preferences())
            if what == EDIT:
                return bank.write.editing.edit(run, memory.id, intent, experience, embedder, person(), reason)
            return bank.write.editing.merge(run, [memory.id, *others], intent, experience, embedder, person(), reason)
        if what == PIN:
            (bank.write.editing.unpin if pinned else bank.write.editing.pin)(run, [memory.id], person(), reason)
        else:
            bank.write.editing.forget(run, [memory.id], person(), reason)
        return None

    verb = "Unpin" if what == PIN and pinned else str(what)
    if st.button(verb, type="primary", key="change_go"):
        _do(act)


def _do(act: Callable[[], object]) -> None:
    with errors_shown():
        made = act()
        if isinstance(made, Memory):
            places.go(memory=made.id)
        st.toast("Saved. Undo stands beside the memory.", icon=":material/save:")
        st.rerun()


def _undo(bank: MemoryBank) -> None:
    with failure_kept():
        action = bank.write.undo.undo(person(), MEMORIES)
        if action is not None and action.first.kind in REPLACES:
            places.go(memory=action.first.payload["replaces"][0])
        st.toast("Undone: the memory is what it was.", icon=":material/undo:")
