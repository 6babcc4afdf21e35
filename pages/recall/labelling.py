"""The labels of one step by keys: 0 to 3 for each memory that was considered, and what should have come besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.recall.changed import changed_sentence, changed_since
from memrl_core.analysis.recall.grades import RELEVANT
from memrl_core.analysis.recall.pooling import done_steps, parts_of, recall_progress
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import Batch
from memrl_core.bank.people.editing import Gone
from memrl_core.bank.people.judgements import MEANING, Label
from memrl_core.bank.people.ratings import LONGEST_REASON
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import JUDGED
from memrl_core.numerals import counted, percent
from memrl_core.records import StepTrace
from memrl_core.retrieval import exact_similarity
from pages.shared import place as places
from pages.shared.person import name_field, person, within_role
from pages.shared.place import Place
from pages.shared.text import failure_kept, literal, verbatim

NEAREST, FOUND = 8, 12
UNDONE = "label_undone"
NEXT: Mapping[str, Any] = {"type": "tertiary", "icon": ":material/skip_next:"}


@st.fragment
def labelling(place: Place) -> None:
    """One step's memories one after the other; a key labels, and the next one comes."""
    bank, run = place.bank, place.info.id
    step = place.step or place.last_step
    trace = bank.trace(run, step)
    mine = parts_of(bank, person(), run)
    batches = [one for one, number in mine if number == step]
    asked = [memory_id for batch in batches for memory_id in batch.pools.get(step, ())]
    items = list(dict.fromkeys(asked)) if batches else _items(bank, trace)
    labels = {label.memory_id: label for label in bank.judgements.standing(run, step) if _mine(label)}
    since = {label.memory_id: gone for label, gone in changed_since(bank, run, labels.values())}
    # Another text is asked anew; the label of the old one stays, with its text.
    items = list(dict.fromkeys([*items, *(gone.now for gone in since.values() if gone.now)]))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="label_bar"):
        name_field("recall_name", row=True)
        done = sum(item in labels for item in items)
        st.markdown(f"**{done} of {len(items)}** memories of step {step}", width="content")
        _moves(place, trace, "" in labels, mine)
    said, elsewhere = st.session_state.pop(UNDONE, ("", False))
    if elsewhere:  # On the whole page: a fragment would keep the step it was drawn with.
        st.session_state[UNDONE] = said, False
        st.rerun()
    if said:
        st.toast(literal(said), icon=":material/undo:")
    for batch in batches:
        _end_of_batch(bank, batch)
    st.subheader(literal(trace.task.intent), anchor=False)
    if said := changed_sentence([(labels[one], gone) for one, gone in since.items()]):
        st.caption(f":material/history: {literal(said)}")
    if "" in labels:
        st.caption(_of_the_step(labels, run))
    key = f"label_at_{run}_{step}"
    at = st.session_state.setdefault(key, next((n for n, item in enumerate(items) if item not in labels), 0))
    left, right = st.columns([3, 2], gap="large")
    with left:
        if items:
            at = min(at, len(items) - 1)
            left_over = [n for n, item in enumerate(items) if n != at and item not in labels]
            after = next((n for n in left_over if n > at), left_over[0] if left_over else at)
            _card(bank, trace, items[at], labels.get(items[at]), since, key, at, len(items), after)
            with st.container(key="label_why"):
                st.text_input(
                    "Reason", key=_reason_key(run, step), max_chars=LONGEST_REASON, label_visibility="collapsed",
                    placeholder="Reason · E, kept with the next labels of this step",
                )  # fmt: skip
        else:
            st.info("No memory was considered in this step. Search for one that should have come.")
    with right:
        _missing(bank, trace, items, labels)


def _of_the_step(labels: Mapping[str, Label], run: str) -> str:
    """What one person says of the whole step, and where what she says of a memory contradicts it."""
    if labels[""].grade:
        return "You say: something should come."
    come = [memory_label(i, run) for i, label in labels.items() if i and (label.grade or 0) >= RELEVANT]
    if not come:
        return "You say: nothing should come."
    return literal(
        f"You say that nothing should come, and that {' and '.join(come)} should. Measures count the memory; "
        "X takes the first back."
    )


def _mine(label: Label) -> bool:
    return label.source == "person" and label.rater == person()


def _items(bank: MemoryBank, trace: StepTrace) -> list[str]:
    """What to label: the pool and near misses of the step and its nearest memories by the vectors, in a drawn order.

    Those of several methods together, as in TREC, so that labels do not favour the one that was shown; the order says
    nothing about ranks.
    """
    considered = [one.memory_id for one in trace.decision.candidates] if trace.decision is not None else []
    if trace.embed is not None and not trace.embed.decided_by:
        view = bank.view(trace.run, bank.steps.seen_until(trace.run, trace.step, trace.epoch))
        places_seen = view.positions()
        vector = np.asarray(trace.embed.embedding, dtype=np.float32)
        similarity = exact_similarity(view.embeddings[places_seen], vector)
        considered += [view.ids[places_seen[n]] for n in np.argsort(-similarity, kind="stable")[:NEAREST]]
        by_q = np.argsort(-view.q[places_seen], kind="stable")[: NEAREST // 2]
        considered += [view.ids[places_seen[n]] for n in by_q]
    items = list(dict.fromkeys(considered))
    order = np.random.default_rng(trace.step).permutation(len(items))
    return [items[place] for place in order]


def _card(
    bank: MemoryBank, trace: StepTrace, memory_id: str, label: Label | None, since: Mapping[str, Gone], key: str,
    at: int, of: int, after: int,
) -> None:  # fmt: skip
    """The memory with a key per grade; a grade goes on to the item at `after`, the next without a label."""
    memory = bank.memory(memory_id)
    with st.container(border=True, key="label_card"):
        st.markdown(f"**{literal(memory_label(memory_id, trace.run))}** · {literal(memory.intent)}")
        verbatim(memory.experience[:1200])
        if label is None:
            st.caption("not labelled by you")
        else:
            why = f" · {literal(label.reason)}" if label.reason else ""
            st.caption(f"you: {label.grade} · {MEANING[label.grade or 0]}{why}")
        if memory_id in since:
            st.caption(f":material/history: {since[memory_id].how} since: this is the text that you labelled.")
        elif old := [memory_label(one, trace.run) for one, gone in since.items() if gone.now == memory_id]:
            st.caption(f":material/history: It took the place of {literal(', '.join(old))} since: label the new text.")
    with st.container(horizontal=True, gap="small", key="label_grades"):
        for grade, meaning in enumerate(MEANING):
            st.button(
                meaning, shortcut=str(grade), key=f"grade_{grade}", on_click=_judge,
                args=(bank, Label(trace.run, trace.step, memory_id, grade, ""), key, after),
                type="primary" if label is not None and label.grade == grade else "secondary",
                **within_role(bank, Role.RATE),
            )  # fmt: skip
    with st.container(horizontal=True, gap="small", key="label_walk"):
        st.button("Previous", shortcut="k", type="tertiary", key="label_previous", disabled=at == 0,
                  on_click=_go, args=(key, at - 1))  # fmt: skip
        st.button("Next", shortcut="j", type="tertiary", key="label_next", disabled=at >= of - 1,
                  on_click=_go, args=(key, at + 1))  # fmt: skip


def _reason_key(run: str, step: int) -> str:
    return f"label_reason_{run}_{step}"


def _go(key: str, at: int) -> None:
    st.session_state[key] = at


def _judge(bank: MemoryBank, label: Label, key: str = "", after: int = 0) -> None:
    """Give a label under the name and the reason that stand there now: what was typed last comes with the press."""
    with failure_kept():
        reason = str(st.session_state.get(_reason_key(label.run, label.step), "")).strip() or label.reason
        bank.write.judgements.judge(replace(label, rater=person(), reason=reason))
        if key:
            st.session_state[key] = after


def _moves(place: Place, trace: StepTrace, said: bool, mine: Sequence[tuple[Batch, int]]) -> None:
    bank = place.bank
    st.button(
        "Nothing should come", shortcut="x", key="label_nothing", icon=":material/block:", on_click=_judge,
        args=(bank, Label(trace.run, trace.step, "", None if said else 0, "")),
        type="primary" if said else "secondary", **within_role(bank, Role.RATE),
    )  # fmt: skip
    done = bank.undo.done(person(), JUDGED)
    st.button(
        "Undo", shortcut="u", type="tertiary", icon=":material/undo:", key="label_undo", on_click=_undo,
        args=(bank, trace), **within_role(bank, Role.RATE, not done),
    )  # fmt: skip
    if mine:
        labels = bank.judgements.standing(trace.run)
        waiting = {step for batch, step in mine if step not in done_steps(batch, person(), labels)}
        steps = list(dict.fromkeys(step for _, step in mine))
        left = [step for step in steps if step in waiting and step != trace.step]
        st.markdown(f"batch: **{len(steps) - len(waiting)} of {len(steps)}** steps", width="content")
        if left and st.button("Next of the batch", shortcut="n", key="label_batch", **NEXT):
            _show(left[0])
    elif trace.step < place.last_step and st.button("Next step", shortcut="n", key="label_step", **NEXT):
        _show(trace.step + 1)


def _end_of_batch(bank: MemoryBank, batch: Batch) -> None:
    """What a person who is through with her part met on gold items; while she labels it would tell which they are."""
    part = next(p for p in recall_progress(batch, bank.judgements.standing(batch.run)) if p.rater == person())
    if part.done < part.steps:
        return
    st.success(f"Done: you have labelled all {counted(part.steps, 'step')} of this batch.", icon=":material/task_alt:")
    gold = part.gold
    if gold.share is not None and gold.low is not None and gold.high is not None:
        st.markdown(
            f"On gold items you say relevant or not as is known in **{percent(gold.share)}** of "
            f"{counted(gold.n, 'label')} (95 % interval {percent(gold.low)} – {percent(gold.high)})."
        )


def _show(step: int) -> None:
    """Another step, on the whole page: a fragment would keep the one it was drawn with."""
    places.go(step=step)
    st.rerun()


def _undo(bank: MemoryBank, trace: StepTrace) -> None:
    """Take back the person's last label, say which it was, and go to its step."""
    with failure_kept():
        undone = bank.write.undo.undo(person(), JUDGED)
        if undone is None:
            return
        event = undone.first
        about = memory_label(event.memory_ids[0], event.run) if event.memory_ids else "whether anything should come"
        where = f"step {event.step}" + ("" if event.run == trace.run else f" of run {event.run}")
        more = f" and {len(undone.events) - 1:,} more" if len(undone.events) > 1 else ""
        elsewhere = (event.run, event.step) != (trace.run, trace.step)
        st.session_state[UNDONE] = f"Undone: what you said of {about} in {where}{more}.", elsewhere
        if elsewhere:
            places.go(run=event.run, step=event.step)


def _missing(bank: MemoryBank, trace: StepTrace, items: Sequence[str], labels: dict[str, Label]) -> None:
    """What should have come and was not considered: found by its words."""
    st.markdown("**Something is missing?**")
    words = st.text_input("Search all memories of the bank", key="label_search", placeholder="words of its intent")
    asked = words.lower().split()
    if asked:
        having = [m for m in bank.memories() if all(word in f"{m.intent} {m.experience}".lower() for word in asked)]
        seen = bank.view(trace.run, bank.steps.seen_until(trace.run, trace.step, trace.epoch))
        known = [memory for memory in having if seen.sees(memory.id)]
        for memory in known[:FOUND]:
            with st.container(horizontal=True, vertical_alignment="center", key=f"missing_{memory.id}"):
                given = labels.get(memory.id)
                st.markdown(f"{literal(memory_label(memory.id, trace.run))} {literal(memory.intent[:90])}")
                st.button(
                    "should have come" if given is None else f"labelled {given.grade}", key=f"should_{memory.id}",
                    disabled=memory.id in items, on_click=_judge,
                    args=(bank, Label(trace.run, trace.step, memory.id, 2, "", reason="should have come")),
                )  # fmt: skip
        if len(known) > FOUND:
            st.caption(f"{len(known) - FOUND:,} more have these words.")
        if unseen := len(having) - len(known):
            st.caption(
                f"Not in memory at this step: {counted(unseen, 'memory')} with these words, written later, forgotten "
                "before, or another run's."
            )
        if not having:
            st.caption("No memory has these words.")
    extra = [memory_id for memory_id in labels if memory_id and memory_id not in items]
    for memory_id in extra:
        st.caption(literal(f"{memory_label(memory_id, trace.run)}: you say it should have come."))
