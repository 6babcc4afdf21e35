"""What a rater judges: the intent, what the model read, its answer; what others made of it only afterwards."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank import MemoryBank
from memrl_core.bank.roles import actor_of
from memrl_core.learning import effective_reward
from memrl_core.numerals import signed
from memrl_core.records import LedgerEvent, StepTrace
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.text import literal, verbatim


def heading(trace: StepTrace) -> None:
    """The intent, and where it comes from."""
    st.subheader(literal(trace.task.intent), anchor=False)
    model = trace.generate.model if trace.generate else "unknown model"
    simulated = " (simulated)" if trace.generate and trace.generate.simulated else ""
    st.caption(
        literal(
            f"step {trace.step} of {trace.run} · epoch {trace.epoch} · task {trace.task.id} · policy {trace.policy} · "
            f"model {model}{simulated} · {trace.started[:16].replace('T', ' ')} UTC"
        )
    )


def answer(trace: StepTrace) -> None:
    """All that the model said, letter for letter, with what the environment said in between."""
    st.markdown("**Answer**")
    if trace.generate is None or not trace.generate.turns:
        st.caption("This step was recorded without its answer.")
        return
    lines = []
    for number, turn in enumerate(trace.generate.turns):
        lines.append(turn.reply.text or "(nothing)")
        if turn.observation and number < len(trace.generate.turns) - 1:
            # Only its first line: environments repeat in every turn what can be done next.
            lines.append(f"    ⤷ {turn.observation.strip().splitlines()[0]}")
    verbatim("\n".join(lines))
    if trace.generate.turns[-1].reply.stopped:
        st.caption("The answer was stopped by a person.")


def read_memories(bank: MemoryBank, trace: StepTrace) -> None:
    """The memories that were in the prompt, each to be opened, and the prompt as it was sent."""
    selected = trace.decision.selected if trace.decision else ()
    st.markdown(f"**What the model read** · {len(selected):,} {'memory' if len(selected) == 1 else 'memories'}")
    for memory_id in selected:
        memory = bank.memory(memory_id)
        with st.expander(literal(f"{memory_label(memory_id, trace.run)} · {memory.outcome} · {memory.intent[:90]}")):
            verbatim(memory.experience)
    if trace.generate is not None and trace.generate.messages:
        with st.expander("The prompt as it was sent"):
            verbatim("\n\n".join(f"[{message.role}]\n{message.content}" for message in trace.generate.messages))


def judged(bank: MemoryBank, trace: StepTrace, hidden: bool) -> None:
    """The environment's verdict and other people's ratings, once the person has rated or where nothing is hidden."""
    given = bank.ratings.of(trace.run, trace.step)
    mine = any(event.source == "person" and event.rater == person() for event in given)
    if hidden and not mine:
        others = sum(event.source == "person" for event in given)
        told = f" {others} {'person has' if others == 1 else 'people have'} rated it." if others else ""
        st.caption(
            f":material/visibility_off: The environment's verdict and other ratings show once you have rated.{told}"
        )
        return
    with st.container(border=True, key=f"judged_{trace.id}"):
        if trace.reward is not None and trace.reward.verdict:
            st.markdown("**The environment's verdict**")
            verbatim(trace.reward.verdict)
        if given:
            for event in given:
                st.markdown(f"- {literal(_rating_words(event))}")
            now = effective_reward(given, bank.settings(trace.run, trace.step))
            st.caption(f"By this run's rules the step counts as {signed(now or 0.0)}.")
        else:
            st.caption("Nobody has rated this step, and the environment gave no reward.")


def _rating_words(event: LedgerEvent) -> str:
    who = "The environment" if event.source == "environment" else "You" if event.rater == person() else event.rater
    by = actor_of(event)
    done = f" (given back by {by})" if event.source == "person" and by != event.rater else ""
    reason = f": {event.reason}" if event.reason else ""
    return f"{who} {signed(event.value or 0.0)}{done}{reason}"


def elsewhere(trace: StepTrace) -> None:
    """The same step on the screens that explain it."""
    with st.container(horizontal=True, gap="small", key="elsewhere"):
        for label, page, icon in (
            ("Replay this step", "pages/step/page.py", ":material/replay:"),
            ("Why these memories?", "pages/decision/page.py", ":material/contact_support:"),
        ):
            if st.button(label, icon=icon, type="tertiary", key=f"to_{page[6:-3]}"):
                places.go(run=trace.run, step=trace.step)
                st.switch_page(page, query_params=st.session_state["place"])
