"""The pair at play: its settings, the world that shifts under it, what came of it so far, and ways to other pairs."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from memrl_core.agent.twins import Side, TwinRuns, labels, start_twins
from memrl_core.bank.people.roles import Role
from memrl_core.bank.storage.layouts import Point
from memrl_core.experiments.lab import (
    QUESTIONS,
    arms_of,
    landscapes_of,
    opens_the_lab,
    pairs_in,
    places_of,
    settings_for,
    streams_of,
)
from memrl_core.figures.memory.landscape import landscape_picture
from memrl_core.figures.picture import Picture
from memrl_core.figures.run.stability import curves_picture, grid_picture, moving_accuracy_picture
from memrl_core.policies import settings_of
from memrl_core.settings import symbol
from pages.lab import place as lab_place
from pages.lab.place import LabPlace
from pages.shared import place as places
from pages.shared.forms import policy_choice, settings_in_use
from pages.shared.person import must_be, within_role
from pages.shared.picture import load_plotly, show, show_in_place
from pages.shared.text import errors_shown, failure_kept, literal

SPEEDS = (1, 2, 5, 10, 20)
REFRESH = 0.5
WINDOW = 20
FRAMES = 60
CHANGEABLE = {"alpha": (0.01, 1.0, 0.01), "weight": (0.0, 1.0, 0.05), "epsilon": (0.0, 1.0, 0.05), "k2": (0, 10, 1)}
"""Settings that are sliders, with least, most and step."""
ACCURACY, MAP, EPOCHS = CHARTS = ("Accuracy", "Both memories", "Accuracy and CSR by epoch")


def controls(place: LabPlace, twins: TwinRuns, playing: bool) -> None:
    """Play, pause, step, shift, and the ways to other pairs and pages."""
    tasks = len(twins.tasks)
    always, at_rest = within_role(twins.bank, Role.MANAGE), within_role(twins.bank, Role.MANAGE, disabled=playing)
    with st.container(horizontal=True, vertical_alignment="bottom", key="lab_controls"):
        if playing:
            st.button(
                "Pause", icon=":material/pause:", type="primary", key="lab_pause", shortcut="p", on_click=_paused,
                args=(twins,), **always,
            )  # fmt: skip
        else:
            st.button("Play", icon=":material/play_arrow:", type="primary", key="lab_play", shortcut="p",
                      on_click=_played, args=(twins, None), **always)  # fmt: skip
        st.button("Step", icon=":material/skip_next:", key="lab_step", shortcut="n",
                  on_click=_act, args=(twins, twins.step), **at_rest)  # fmt: skip
        st.button(
            # The buttons are not drawn again while they play, so a number would be that of an epoch long past.
            "Finish epoch" if playing else f"Finish epoch {twins.steps // tasks + 1}",
            icon=":material/fast_forward:", key="lab_epoch", on_click=_played,
            args=(twins, tasks - twins.steps % tasks), **at_rest,
        )  # fmt: skip
        st.button(
            "Shift the world", icon=":material/swap_horiz:", key="lab_shift", on_click=_act,
            args=(twins, twins.shift), **within_role(twins.bank, Role.MANAGE, help=SHIFTS),
        )  # fmt: skip
        st.select_slider(
            "Steps a second",
            SPEEDS,
            value=lab_place.OPENING_SPEED,
            key="lab_speed",
            width=150,
            on_change=_faster,
            args=(twins,),
            disabled=always["disabled"],
        )
        pair_menus(place, twins)
        st.page_link("pages/race/page.py", label="Race with a real model", icon=":material/flag:")
    errors = [twins.error] if twins.error is not None else [error for error in twins.errors if error is not None]
    for error in errors:
        st.error(literal(str(error)), icon=":material/error:")


def settings_of_both(twins: TwinRuns) -> None:
    """The sliders of either side: what they change holds from its next step on, and is an event of its ledger."""
    named, off = labels(twins.bank, *twins.runs), within_role(twins.bank, Role.MANAGE)["disabled"]
    for side, (column, run) in enumerate(zip(st.columns(2, gap="medium"), twins.runs, strict=True)):
        policy, now = twins.bank.run(run).policy, twins.bank.settings(run)
        names = [name for name in CHANGEABLE if name in settings_in_use(policy)]
        column.markdown(f"**{literal(named[side])}**")
        for part, name in zip(column.columns(len(CHANGEABLE)), names, strict=False):
            key = f"lab_{run}_{name}"
            low, high, step = CHANGEABLE[name]
            st.session_state[key] = min(max(now[name], low), high)
            part.slider(symbol(name), low, high, step=step, key=key, on_change=_changed,
                        args=(twins, side, name, key), disabled=off)  # fmt: skip


def while_they_play(twins: TwinRuns, playing: bool) -> None:
    """What came of both so far; drawn again and again while they play."""
    st.fragment(_so_far, run_every=REFRESH if playing else None)(twins, playing)
    load_plotly()


def _so_far(twins: TwinRuns, played: bool) -> None:
    if played and not twins.playing:
        st.rerun()
    _figures(twins)
    if not twins.steps:
        if not played:
            st.info("Nothing has happened yet. Press **Play**, or **Step** to see one task after the other.")
        return
    show_in_place(grid_picture(arms_of(twins)), "lab_grid")
    chart = st.segmented_control(
        "Chart", CHARTS, default=ACCURACY, key="chart", required=True, label_visibility="collapsed",
        bind="query-params",
    )  # fmt: skip
    if chart == ACCURACY:
        show_in_place(moving_accuracy_picture(streams_of(twins), WINDOW), "lab_accuracy")
    elif chart == EPOCHS:
        show_in_place(curves_picture(arms_of(twins)), "lab_epochs")
    elif played:
        show_in_place(_maps(twins, 1), "lab_map_now")
    else:
        show(_maps_kept(twins.bank.state, twins.runs, twins), "lab_map")


def _figures(twins: TwinRuns) -> None:
    tasks, done, info = len(twins.tasks), twins.steps, twins.bank.run(twins.runs[0])
    epoch, task = (done - 1) // tasks + 1 if done else 1, (done - 1) % tasks + 1 if done else 0
    simulated = " · simulated model" if info.simulated else ""
    shifted = f" · world shifted at step {', '.join(map(str, twins.shifts))}" if twins.shifts else ""
    st.caption(f"Step {done} · epoch {epoch}, task {task} of {tasks} · seed {info.seed}{simulated}{shifted}")
    if opens_the_lab(twins):
        st.caption(
            "This pair opens the Lab because its shift shows: in 40 seeds the share solved falls by 33 ± 7 points at "
            "λ = 0 and by 37 ± 7 at λ = ½ from the epoch before it to the epoch after it."
        )


def _maps(twins: TwinRuns, frames: int) -> Picture:
    sides = landscapes_of(twins, _places(str(twins.bank.uri), twins.runs, twins), frames)
    return landscape_picture(sides, twins.bank.settings(twins.runs[0]), twins.shifts)


@st.cache_data(max_entries=8, show_spinner="Drawing the frames …")
def _maps_kept(state: str, runs: tuple[str, str], _twins: TwinRuns) -> Picture:
    return _maps(_twins, FRAMES)


@st.cache_data(max_entries=8, show_spinner=False)
def _places(uri: str, runs: tuple[str, str], _twins: TwinRuns) -> dict[str, Point]:
    return places_of(_twins)


def _act(twins: TwinRuns, what: Callable[[], object]) -> None:
    """Do something to the pair, by someone who may."""
    with failure_kept():
        must_be(twins.bank, Role.MANAGE)
        what()


def _changed(twins: TwinRuns, side: int, name: str, key: str) -> None:
    _act(twins, lambda: twins.change(side, **{name: st.session_state[key]}))


def _played(twins: TwinRuns, steps: int | None) -> None:
    _act(twins, lambda: twins.play(float(st.session_state.get("lab_speed", lab_place.OPENING_SPEED)), steps))


def _paused(twins: TwinRuns) -> None:
    _act(twins, twins.pause)
    twins.wait(2)


def _faster(twins: TwinRuns) -> None:
    _act(twins, lambda: twins.change_speed(float(st.session_state["lab_speed"])))


SHIFTS = "From the next step on other ways, appliances or teams are the right ones. Nobody tells the agents."
METHODS = "Two methods beside each other"
SIDES = ("left", "right")
SETS = ("household-train", "household-heldout")
MOST_TASKS = 60
SHOWN = 6


def pair_menus(place: LabPlace, twins: TwinRuns) -> None:
    """The menus of other pairs and of other pages that show this one."""
    with st.popover("Other pairs", icon=":material/add:", type="tertiary", key="lab_pairs", on_change="rerun") as menu:
        if menu.open:
            _new_pair(place)
            _earlier(place)
    with st.popover("Look closer", icon=":material/search:", type="tertiary", key="lab_closer"):
        for side, run in zip(SIDES, twins.runs, strict=True):
            if st.button(f"Steps of the {side}", type="tertiary", icon=":material/footprint:", key=f"lab_to_{side}"):
                places.go_to_steps(bank=place.bank_name, run=run)
        if st.button("Compare both", type="tertiary", icon=":material/compare_arrows:", key="lab_compare"):
            places.go(bank=place.bank_name, run=twins.runs[0])
            st.switch_page(
                "pages/compare/page.py", query_params={**st.session_state["place"], "against": twins.runs[1]}
            )


def _new_pair(place: LabPlace) -> None:
    """Choose a question or two methods, and start. All other settings are sliders of the pair."""
    question = st.selectbox("What do you want to see?", [*QUESTIONS, METHODS], key="lab_question")
    if question == METHODS:
        sides = [policy_choice(f"lab_policy_{side}", f"Method on the {side}") for side in SIDES]
        pair = [Side(settings_of(policy, {}), policy) for policy in sides]
    else:
        pair = [Side(settings) for settings in settings_for(question)]
    tasks = st.selectbox("Tasks", SETS, key="lab_tasks")
    with st.container(horizontal=True, vertical_alignment="bottom", key="lab_start"):
        count = st.number_input("How many", 2, MOST_TASKS, 20, key="lab_count", width=140)
        seed = st.number_input("Seed", 0, 2**31 - 1, 0, key="lab_seed", width=140)
        begin = st.button("Start", type="primary", icon=":material/play_arrow:", key="lab_begin",
                          **within_role(place.bank, Role.MANAGE))  # fmt: skip
    st.caption("Both meet the same tasks in the same order with the same luck; they differ in the settings alone.")
    if begin:
        _begin(place, (pair[0], pair[1]), tasks, int(count), int(seed))


def _begin(place: LabPlace, pair: tuple[Side, Side], tasks: str, count: int, seed: int) -> None:
    with errors_shown():
        must_be(place.bank, Role.MANAGE)
        twins = start_twins(place.bank, pair, tasks=tasks, task_count=count, seed=seed)
        places.pairs()[(str(place.bank.uri), *twins.runs)] = twins
        lab_place.go(left=twins.runs[0], right=twins.runs[1])
        st.rerun()


def _earlier(place: LabPlace) -> None:
    for left, right in pairs_in(place.bank)[:SHOWN]:
        names = labels(place.bank, left, right)
        steps = min(place.bank.next_step(run) for run in (left, right)) - 1
        st.button(
            f"{literal(names[0])} against {literal(names[1])} · seed {place.bank.run(left).seed} · {steps} steps",
            type="tertiary",
            icon=":material/history:",
            key=f"lab_open_{left}",
            on_click=lab_place.go,
            kwargs={"left": left, "right": right},
        )
