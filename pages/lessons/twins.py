"""The scene `twins` on the screen: play an epoch, shift the world when it is time, and watch both agents."""

from __future__ import annotations

import streamlit as st

from memrl_core.agent.twins import FASTEST, TwinRuns, labels
from memrl_core.bank import MemoryBank
from memrl_core.lessons.pictures import twins_picture
from memrl_core.lessons.twins import SIDES, TwinsScene
from memrl_core.lessons.words import Words, filled
from pages.lessons.frame import chart
from pages.shared import lesson_place as places
from pages.shared.lesson_place import At
from pages.shared.pairs import pair_of, remember
from pages.shared.text import literal

REFRESH = 0.4


def twins(at: At, scene: TwinsScene, bank: MemoryBank, live: bool) -> None:
    """The controls while `live`; below them what both agents have done so far."""
    pair = _pair(at, scene, bank)
    if pair is None:
        st.button(
            at.words.start_twins,
            icon=":material/play_arrow:",
            type="primary",
            key="start_twins",
            on_click=places.act,
            args=(lambda: _begin(at.key, scene, bank),),
        )
        return
    if live:
        _controls(at, scene, pair)
    played = scene.played(bank, at.kept.inputs)
    if played is None or not played.epochs:
        return
    # The values of the page may be older: the runs go on while it is drawn.
    values, names = scene.observe(bank, at.kept.inputs), labels(bank, *pair.runs)
    for column, side, name in zip(st.columns(2), SIDES, names, strict=True):
        with column, st.container(border=True):
            st.markdown(f"**{literal(name)}**")
            with st.container(horizontal=True, key=f"lesson_{side}"):
                for what in ("accuracy", "csr", "forgotten"):
                    st.metric(str(getattr(at.words, what)), f"{values[f'{side}_{what}']:.0%}", width="content")
    for step in played.shifts:
        st.caption(filled(at.words.shifted_at, step=step))
    chart(at, twins_picture(played, names, scene.task_count), "lesson_twins")


def _pair(at: At, scene: TwinsScene, bank: MemoryBank) -> TwinRuns | None:
    names = scene.started(at.kept.inputs)
    return pair_of(bank, *names) if names else None


def _begin(key: str, scene: TwinsScene, bank: MemoryBank) -> None:
    pair = scene.begin(bank)
    remember(pair)
    places.do(key, left=pair.runs[0], right=pair.runs[1])


def _controls(at: At, scene: TwinsScene, pair: TwinRuns) -> None:
    words = at.words
    if pair.playing:
        _progress(pair, scene.epochs * scene.task_count, words)
        return
    if pair.error is not None:
        st.error(literal(str(pair.error)), icon=":material/error:")
    following = scene.steps_to_play(pair)
    with st.container(horizontal=True, vertical_alignment="center", key="lesson_play"):
        if scene.waits_for_shift(pair):
            st.button(
                words.shift,
                icon=":material/swap_horiz:",
                type="primary",
                key="shift",
                on_click=places.act,
                args=(pair.shift,),
            )
        elif following:
            epoch = pair.steps // scene.task_count + 1
            st.button(
                filled(words.play_epoch, epoch=epoch, epochs=scene.epochs),
                icon=":material/play_arrow:",
                type="primary",
                key="play",
                on_click=pair.play,
                args=(FASTEST, following),
            )
        else:
            st.markdown(filled(words.twins_done, epochs=scene.epochs))


@st.fragment(run_every=REFRESH)
def _progress(pair: TwinRuns, steps: int, words: Words) -> None:
    if not pair.playing:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center", key="lesson_playing"):
        st.progress(min(1.0, pair.steps / steps), filled(words.playing, step=pair.steps, steps=steps))
        st.button(words.stop, icon=":material/stop_circle:", key="stop_twins", on_click=pair.pause)
