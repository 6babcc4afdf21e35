"""The scenes of lessons on the screen: live while the person is at it, and as they stand when it is revealed."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.spectrum import spectrum
from memrl_core.bank import MemoryBank
from memrl_core.figures.decision.decision_diagram import decision_diagram
from memrl_core.figures.decision.rerank import score_picture, slope_picture
from memrl_core.figures.memory.utility import history_picture
from memrl_core.figures.picture import Shown as Pictured
from memrl_core.lessons.decision import DecisionScene, Looked
from memrl_core.lessons.ladder import LadderScene
from memrl_core.lessons.memories import MemoriesScene, Shown
from memrl_core.lessons.pictures import ladder_picture
from memrl_core.lessons.progress import load_progress
from memrl_core.lessons.twins import TwinsScene
from memrl_core.lessons.words import filled
from memrl_core.numerals import MINUS, signed
from memrl_core.records import Memory
from pages.lessons.frame import chart
from pages.lessons.twins import twins
from pages.shared import lesson_place as places
from pages.shared.lesson_place import At, browser
from pages.shared.text import literal, verbatim

NUMBERS_SHOWN = 6
CONTROLS = {"weight": (0.0, 1.0, 0.01), "delta": (-1.0, 1.0, 0.01), "k2": (0, 10, 1)}


def draw(at: At, bank: MemoryBank, live: bool) -> None:
    """The scene of a lesson: with its controls while `live`, else as it stands."""
    scene = at.lesson.scene
    if isinstance(scene, MemoriesScene):
        _memories(at, scene, bank, live)
    elif isinstance(scene, DecisionScene):
        _decision(at, scene, bank, live)
    elif isinstance(scene, LadderScene):
        _ladder(at, scene, live)
    elif isinstance(scene, TwinsScene):
        twins(at, scene, bank, live)


def _memories(at: At, scene: MemoriesScene, bank: MemoryBank, live: bool) -> None:
    shown, words = scene.shown(bank, at.kept.inputs), at.words
    if live:
        key = "lesson_memory"
        _set(key, shown.picked.id if shown.picked else None)
        st.selectbox(
            words.pick_memory,
            [memory.id for memory in shown.memories],
            key=key,
            format_func={memory.id: _named(at, scene, shown, memory) for memory in shown.memories}.__getitem__,
            on_change=lambda: places.do(at.key, memory=st.session_state[key]),
        )
    if shown.picked is None:
        return
    memory, utility = shown.picked, shown.utilities[shown.picked.id]
    with st.container(horizontal=True):
        st.metric(words.memory, memory_label(memory.id, scene.run), width="content")
        st.metric(words.outcome, memory.outcome, width="content")
        st.metric(words.q, signed(utility.q), width="content")
        st.metric(words.visits, utility.visits, width="content")
    if not live:
        history = bank.history(scene.run, memory.id)
        chart(at, history_picture(history, bank.settings(scene.run), memory.id, scene.run), "lesson_history")
    st.markdown(f"**{words.intent}**")
    verbatim(memory.intent)
    embedding = bank.embedding(memory.id)
    numbers = ", ".join(signed(float(number)) for number in embedding[:NUMBERS_SHOWN])
    st.caption(f"{filled(words.embedding, dimension=len(embedding))}: {numbers}, …")
    st.markdown(f"**{words.experience}**")
    verbatim(memory.experience)
    if shown.same_words:
        others = [(memory_label(one.id, scene.run), shown.utilities[one.id].q) for one in shown.same_words]
        named = ", ".join(f"{label} (q {signed(q)})" for label, q in others)
        st.caption(filled(words.same_words, memories=literal(named)))


def _named(at: At, scene: MemoriesScene, shown: Shown, memory: Memory) -> str:
    utility = shown.utilities[memory.id]
    label = memory_label(memory.id, scene.run)
    return f"{label} · {memory.outcome} · q {signed(utility.q)} · {at.words.visits} {utility.visits} · {memory.intent}"


def _decision(at: At, scene: DecisionScene, bank: MemoryBank, live: bool) -> None:
    looked, words = scene.looked_at(bank, at.kept.inputs), at.words
    st.markdown(f"**{words.intent}**")
    verbatim(looked.trace.task.intent)
    for name in scene.controls:
        _control(at, name, getattr(looked.settings, name), live)
    st.markdown(f"**{words.given_to_model}**")
    candidates = {candidate.memory_id: candidate for candidate in looked.decision.candidates}
    if not looked.decision.selected:
        st.markdown(words.nothing_given)
        return
    memories = [bank.memory(memory_id) for memory_id in looked.decision.selected]
    st.table(
        {
            words.memory: [literal(memory_label(memory.id, scene.run)) for memory in memories],
            words.outcome: [memory.outcome for memory in memories],
            words.similarity: [f"{candidates[memory.id].similarity:.3f}" for memory in memories],
            words.q: [signed(candidates[memory.id].q) for memory in memories],
            words.intent: [literal(memory.intent) for memory in memories],
        },
        hide_index=True,
        border="horizontal",
        alt=words.given_to_model,
    )
    if not live:
        chart(at, _decision_picture(scene, bank, looked), "lesson_decision")


def _decision_picture(scene: DecisionScene, bank: MemoryBank, looked: Looked) -> Pictured:
    decision = looked.decision
    if scene.figure == "ranks":
        return slope_picture(decision, scene.run)
    if scene.figure == "scores":
        considered = [candidate.memory_id for candidate in decision.candidates]
        return score_picture(decision, {i: bank.memory(i) for i in considered}, scene.run)
    return decision_diagram(spectrum(decision), decision.weight, looked.at_start.weight, scene.run)


def _control(at: At, name: str, value: float, live: bool) -> None:
    low, high, step = CONTROLS[name]
    key = f"lesson_{name}"
    _set(key, value)
    st.slider(
        str(getattr(at.words, name)),
        low,
        high,
        key=key,
        step=step,
        disabled=not live,
        on_change=lambda: places.do(at.key, **{name: st.session_state[key]}),
    )


def _ladder(at: At, scene: LadderScene, live: bool) -> None:
    given, words, inputs = scene.given(at.kept.inputs), at.words, at.kept.inputs
    if live:
        with st.container(horizontal=True, vertical_alignment="center", key="lesson_rewards"):
            for number, reward in enumerate(scene.offered):
                signed_reward = f"{reward:+g}".replace("-", MINUS)
                st.button(
                    filled(words.give_reward, reward=signed_reward),
                    key=f"reward_{number}",
                    on_click=places.act,
                    args=(lambda reward=reward: _reward(at, scene, reward),),
                )
            st.button(
                words.take_back,
                icon=":material/undo:",
                type="tertiary",
                key="take_back",
                disabled=not given.rewards,
                on_click=lambda: places.do(at.key, rewards=[*given.rewards[:-1]]),
            )
    if scene.alpha_free:
        key = "lesson_alpha"
        _set(key, given.alpha)
        st.slider(
            words.alpha,
            0.01,
            1.0,
            key=key,
            step=0.01,
            disabled=not live,
            on_change=lambda: places.do(at.key, alpha=st.session_state[key]),
        )
    with st.container(horizontal=True):
        st.metric(words.q, signed(float(at.values["q"])), width="content")
        st.metric(words.rewards_so_far, len(given.rewards), width="content")
        st.metric(words.updates_to_half, f"{at.values['updates_to_half']:.0f}", width="content")
    chart(at, ladder_picture(scene, inputs), "lesson_ladder")


def _reward(at: At, scene: LadderScene, reward: float) -> None:
    # A second press comes before the page is drawn again, so the page's own inputs may be old.
    places.do(at.key, **scene.with_reward(load_progress(browser()).of(at.key).inputs, reward))


def _set(key: str, value: str | float | None) -> None:
    """Show a value in a control, unless it does: setting it again would take back what is being typed meanwhile."""
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value
