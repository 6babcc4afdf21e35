"""The pair at work: stepped or played, with the world shifting under it, and what came of it so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from memrl_core.agent.twins import TwinRuns
from memrl_core.errors import MemRLError
from memrl_core.experiments.lab import Standing, arms_of, standings, streams_of
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.stability import (
    Arm,
    changes_picture,
    curves_picture,
    grid_picture,
    moving_accuracy_picture,
    retention_gain_picture,
)
from memrl_core.numerals import percent, signed
from pages.lab import place as lab_place
from pages.lab.place import LabPlace
from pages.shared.plotly_map import load_plotly, show_in_place
from pages.shared.text import literal

SPEEDS = (1, 2, 5, 10, 20)
REFRESH = 0.5
WINDOW = 20
ARMS = tuple[Arm, Arm]
CHARTS: Mapping[str, tuple[str, Callable[[ARMS], list[Picture]]]] = {
    lab_place.EPOCHS: ("Accuracy and CSR", lambda arms: [curves_picture(arms)]),
    lab_place.CHANGES: ("New, kept, forgotten", lambda arms: [changes_picture(arms)]),
    lab_place.GRID: ("Task by task", lambda arms: [grid_picture(arm) for arm in arms]),
    lab_place.RETENTION: ("Retention and gain", lambda arms: [retention_gain_picture(arms)]),
}
NOW = "moving"
MEASURES: Mapping[str, Callable[[Standing], float | None]] = {
    f"solved of the last {WINDOW}": lambda side: side.recent,
    "accuracy of this epoch": lambda side: side.accuracy,
    "ever solved (CSR)": lambda side: side.csr,
    "solved before, failing now": lambda side: side.lost,
}


def controls(twins: TwinRuns, playing: bool) -> None:
    """Step, play, pause, shift."""
    epoch_left = len(twins.tasks) - twins.steps % len(twins.tasks)
    with st.container(horizontal=True, vertical_alignment="bottom", key="lab_controls"):
        if playing:
            st.button(
                "Pause", icon=":material/pause:", type="primary", key="lab_pause", shortcut="p", on_click=_paused,
                args=(twins,),
            )  # fmt: skip
        else:
            st.button("Play", icon=":material/play_arrow:", type="primary", key="lab_play", shortcut="p",
                      on_click=_played, args=(twins, None))  # fmt: skip
        st.button("Step", icon=":material/skip_next:", key="lab_step", shortcut="n", disabled=playing,
                  on_click=_act, args=(twins.step,))  # fmt: skip
        st.button(
            # The buttons are not drawn again while they play, so a number would be that of an epoch long past.
            "Finish epoch" if playing else f"Finish epoch {twins.steps // len(twins.tasks) + 1}",
            icon=":material/fast_forward:", key="lab_epoch", disabled=playing, on_click=_played,
            args=(twins, epoch_left),
        )  # fmt: skip
        st.select_slider(
            "Steps a second", SPEEDS, value=10, key="lab_speed", width=180, on_change=_faster, args=(twins,)
        )
        st.button(
            "Shift the world", icon=":material/swap_horiz:", key="lab_shift", on_click=_act, args=(twins.shift,),
            help="From the next step on, what was the reliable appliance of each pair is the unreliable one. Nobody "
            "tells the agents.",
        )  # fmt: skip
    if twins.error is not None:
        st.error(literal(str(twins.error)), icon=":material/error:")


def while_they_play(place: LabPlace, twins: TwinRuns, playing: bool) -> None:
    """What came of both so far; drawn again and again while they play."""
    st.fragment(_so_far, run_every=REFRESH if playing else None)(place, twins, playing)
    load_plotly()


def _so_far(place: LabPlace, twins: TwinRuns, played: bool) -> None:
    if played and not twins.playing:
        st.rerun()
    _figures(twins)
    if not twins.steps:
        st.info("Nothing has happened yet. Press **Play**, or **Step** to see one task after the other.")
        return
    _draw([moving_accuracy_picture(streams_of(twins), WINDOW)], NOW)
    chart = _chosen_chart(place)
    _draw(CHARTS[chart][1](arms_of(twins)), chart)


def _figures(twins: TwinRuns) -> None:
    tasks = len(twins.tasks)
    shifted = f" · world shifted at step {', '.join(map(str, twins.shifts))}" if twins.shifts else ""
    done = twins.steps
    st.caption(f"Step {done} · epoch {max(done - 1, 0) // tasks + 1}, task {(done - 1) % tasks + 1 if done else 0} of "
               f"{tasks}{shifted}")  # fmt: skip
    sides = standings(twins, WINDOW)
    rows = [[literal(side.name), *(_share(of(side)) for of in MEASURES.values())] for side in sides]
    difference = [_difference(of(sides[1]), of(sides[0])) for of in MEASURES.values()]
    table = [["", *MEASURES], [":--", *["--:"] * len(MEASURES)], *rows, ["*second − first*", *difference]]
    st.markdown("\n".join(f"| {' | '.join(row)} |" for row in table))


def _share(value: float | None) -> str:
    return "–" if value is None else f"**{percent(value, 0)}**"


def _difference(one: float | None, other: float | None) -> str:
    return "–" if one is None or other is None else f"{signed(100 * (one - other), 0)} pp"


def _chosen_chart(place: LabPlace) -> str:
    key = "lab_chart"
    if st.session_state.get(key) not in CHARTS:
        st.session_state[key] = place.chart
    return str(
        st.segmented_control(
            "Chart",
            list(CHARTS),
            format_func=lambda name: CHARTS[name][0],
            required=True,
            key=key,
            on_change=lambda: lab_place.go(chart=st.session_state[key]),
            label_visibility="collapsed",
        )
    )


def _draw(pictures: list[Picture], name: str) -> None:
    for number, (column, picture) in enumerate(zip(st.columns(len(pictures)), pictures, strict=True)):
        key = f"lab_{name}_{number}"
        with column:
            show_in_place(picture, key)


def _act(what: Callable[[], object]) -> None:
    try:
        what()
    except MemRLError as error:
        st.session_state["failure"] = str(error)


def _played(twins: TwinRuns, steps: int | None) -> None:
    _act(lambda: twins.play(float(st.session_state.get("lab_speed", 10)), steps))


def _paused(twins: TwinRuns) -> None:
    twins.pause()
    twins.wait(2)


def _faster(twins: TwinRuns) -> None:
    twins.change_speed(float(st.session_state["lab_speed"]))
