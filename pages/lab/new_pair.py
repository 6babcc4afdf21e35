"""Starting another pair of runs, going back to one, and looking at one closer."""

from __future__ import annotations

import streamlit as st

from memrl_core.agent.twins import Side, TwinRuns, labels, start_twins
from memrl_core.experiments.lab import QUESTIONS, pairs_in, settings_for
from memrl_core.policies import settings_of
from pages.lab import place as lab_place
from pages.lab.place import LabPlace
from pages.shared import place as places
from pages.shared.forms import policy_choice
from pages.shared.pairs import remember
from pages.shared.text import errors_shown, literal

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
        begin = st.button("Start", type="primary", icon=":material/play_arrow:", key="lab_begin")
    st.caption("Both meet the same tasks in the same order with the same luck; they differ in the settings alone.")
    if begin:
        _begin(place, (pair[0], pair[1]), tasks, int(count), int(seed))


def _begin(place: LabPlace, pair: tuple[Side, Side], tasks: str, count: int, seed: int) -> None:
    with errors_shown():
        twins = start_twins(place.bank, pair, tasks=tasks, task_count=count, seed=seed)
        remember(twins)
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
