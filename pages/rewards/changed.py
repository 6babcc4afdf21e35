"""What people's rewards changed in a run: the q that moved, the tasks that now get other memories, and their ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.runs import can_go_on, rerunner
from memrl_core.analysis.decision.labels import memory_labels
from memrl_core.analysis.people.reward_effect import (
    Differing,
    RewardEffect,
    actions_since,
    marked,
    moves_sentence,
    rerun_tasks,
    reruns_sentence,
    reward_effect,
    selections_changed,
    selections_sentence,
)
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import actor_of
from memrl_core.figures.memory.utility import reward_effect_picture
from pages.shared.picture import show, show_table
from pages.shared.place import Place
from pages.shared.rewards import choices_of
from pages.shared.text import literal, verbatim
from pages.shared.work import asked_for, working

SPANS = {"the last hour": timedelta(hours=1), "the last day": timedelta(days=1), "ever": None}
MOST_MARKED = 100


def changed(place: Place) -> None:
    """From rewards to q, from q to selections, from selections to outcomes."""
    bank = place.bank
    run = place.info.id
    with st.container(horizontal=True, vertical_alignment="bottom", key="changed_of"):
        whose = st.selectbox(
            "Rewards of", ["", *sorted({actor_of(event) for event in bank.people.lately()})],
            key="changed_who", width=220, format_func=lambda name: name or "everybody",
        )  # fmt: skip
        span = st.selectbox("given in", list(SPANS), 2, key="changed_span", width=160)
        last = st.number_input("Last tasks to look at", 1, 500, 20, key="changed_last", width=180)
    events = _events(bank, run, whose, SPANS[span])
    if not events:
        st.info("Nobody of these has rated a step of this run in that time. Rate some in the queue, then look again.")
        return
    found = reward_effect(bank, run, events)
    left, right = st.columns(2, gap="large")
    left.subheader(f"{moves_sentence(found)}.", anchor=False)
    if not found.moved:
        st.caption("The rewards agree with what counted before, or went to steps that used no memory.")
        return
    with left:
        show(reward_effect_picture(found.moved, bank.settings(run), run), "changed_q")
        _marked(bank, run)
    with right:
        _selections(bank, run, found, int(last))


def _events(bank: MemoryBank, run: str, whose: str, span: timedelta | None) -> frozenset[str]:
    since = "" if span is None else (datetime.now(UTC) - span).isoformat(timespec="milliseconds")
    people = [whose] if whose else sorted({actor_of(event) for event in bank.people.lately()})
    return frozenset(event.id for who in people for event in actions_since(bank, who, since) if event.run == run)


def _selections(bank: MemoryBank, run: str, found: RewardEffect, last: int) -> None:
    choices = choices_of(bank, run, "Reading the run's selections …")
    if choices is None:
        return
    last = min(last, len(choices.of_step))
    differing = selections_changed(choices, found, last)
    st.subheader(f"{selections_sentence(differing, last)}.", anchor=False)
    st.caption("Were these tasks asked again now: their pools as recorded, decided with q now and with q without.")
    if choices.why_left_out:
        st.caption(literal(choices.why_left_out))
    if not differing:
        return
    show_table(
        [_selection_row(bank, run, one, "without", "now") for one in differing],
        "changed_selections",
        "The tasks that would get other memories, with the earlier and the present ones",
    )
    _rerun(bank, run, differing)


def _marked(bank: MemoryBank, run: str) -> None:
    """Finished steps whose selection is not what the rewards of now, known then, would have made it."""
    choices = choices_of(bank, run)
    if choices is None:
        return
    steps = marked(choices, bank.histories(run))
    if not steps:
        return
    with st.expander(
        f"{len(steps):,} of {len(choices.of_step):,} finished steps are marked", icon=":material/bookmark:"
    ):
        st.caption("By the rewards as they stand now they would have selected other memories. They are not rewritten.")
        show_table(
            [_selection_row(bank, run, one, "selected", "would select") for one in steps[:MOST_MARKED]],
            "marked_steps",
            "The marked steps, with the memories they selected and those they would select",
        )
        if len(steps) > MOST_MARKED:
            st.caption(f"The first {MOST_MARKED} are shown.")


def _selection_row(bank: MemoryBank, run: str, one: Differing, then: str, now: str) -> dict[str, str | int]:
    return {
        "step": one.step,
        "task": bank.trace(run, one.step).task.intent,
        then: memory_labels(one.selected, run),
        now: memory_labels(one.would, run),
    }


def _rerun(bank: MemoryBank, run: str, differing: list[Differing]) -> None:
    info = bank.run(run)
    if not can_go_on(info):
        st.caption("The world of this run is not here, so its tasks cannot be answered again.")
        return
    who = "the simulated model" if info.simulated else info.model
    asked = f"{bank.handle}·{run}·{differing}"
    label = f"Answer these {len(differing):,} tasks again, both ways"
    about = literal(f"{2 * len(differing)} answers of {who}, with the same seeds. Nothing is stored.")
    if not asked_for(label, "rerun_changed", ":material/replay:", asked, help=about):
        return
    preferences = load_preferences()
    found = working(
        "rerun_changed", asked,
        lambda *progress: rerun_tasks(
            bank, run, differing, lambda trace: rerunner(bank, trace, preferences), *progress
        ),
        "answers",
    )  # fmt: skip
    if found is None:
        return
    st.subheader(f"{reruns_sentence(found)}.", anchor=False)
    if info.simulated:
        st.caption("Answered by the simulated model: no language model was at work.")
    for one in found:
        mark = {(False, True): "solved now", (True, False): "failing now"}.get(
            (one.before == "success", one.after == "success"), "as before"
        )
        with st.expander(literal(f"step {one.step} · {one.intent[:90]} · {one.before} → {one.after} · {mark}")):
            before, after = st.columns(2)
            with before:
                st.caption("without these rewards")
                verbatim(one.answers[0])
            with after:
                st.caption("with them")
                verbatim(one.answers[1])
