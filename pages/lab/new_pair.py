"""Starting a pair of runs, and going back to one."""

from __future__ import annotations

from typing import Any

import streamlit as st

from memrl_core.agent.twins import Side, TwinRuns, labels, start_twins
from memrl_core.errors import MemRLError
from memrl_core.experiments.lab import QUESTIONS, pairs_in, settings_for
from memrl_core.policies import settings_of
from memrl_core.settings import MemRLSettings
from pages.lab import place as lab_place
from pages.lab.place import LabPlace
from pages.shared import place as places
from pages.shared.forms import often_changed, policy_choice, settings_fields
from pages.shared.pairs import remember
from pages.shared.text import literal

OWN = "My own settings"
CHANGED = ("weight", "alpha", "delta", "epsilon", "k1", "k2")
SIDES = ("left", "right")
SETS = ("household-train", "household-heldout")
MOST_TASKS = 60
SHOWN = 8


def new_pair(place: LabPlace) -> None:
    """Choose a question or both settings, and start."""
    question = st.selectbox("What do you want to see?", [*QUESTIONS, OWN], key="lab_question")
    left, right = settings_for(question) if question != OWN else (MemRLSettings(), MemRLSettings())
    values = [
        _side(column, name, settings, question)
        for column, name, settings in zip(st.columns(2), SIDES, (left, right), strict=True)
    ]
    with st.container(horizontal=True, vertical_alignment="bottom", key="lab_start"):
        tasks = st.selectbox("Tasks", SETS, key="lab_tasks", width=220)
        count = st.number_input("How many", 2, MOST_TASKS, 20, key="lab_count", width=140)
        seed = st.number_input("Seed", 0, 2**31 - 1, 0, key="lab_seed", width=140)
        begin = st.button("Start", type="primary", icon=":material/play_arrow:", key="lab_begin")
    st.caption("Both meet the same tasks in the same order with the same luck; they differ in the settings alone.")
    if begin:
        _begin(place, values, tasks, int(count), int(seed))
    _earlier(place)


def pair_line(place: LabPlace, twins: TwinRuns) -> None:
    """Which pair this is, and the ways to look closer at it."""
    info = twins.bank.run(twins.runs[0])
    left, right = labels(twins.bank, *twins.runs)
    with st.container(horizontal=True, vertical_alignment="center", key="lab_pair"):
        simulated = " · simulated model" if info.simulated else f" · {literal(info.model)}"
        st.markdown(
            f"**{literal(left)}** against **{literal(right)}** · {len(twins.tasks):,} tasks · seed {info.seed}"
            f"{simulated}"
        )
        for side, run in zip(SIDES, twins.runs, strict=True):
            if st.button(f"Steps of the {side}", type="tertiary", icon=":material/footprint:", key=f"lab_to_{side}"):
                places.go_to_steps(bank=place.bank_name, run=run)
        if st.button("Compare both", type="tertiary", icon=":material/compare_arrows:", key="lab_compare"):
            places.go(bank=place.bank_name, run=twins.runs[0])
            st.switch_page(
                "pages/compare/page.py", query_params={**st.session_state["place"], "against": twins.runs[1]}
            )
        st.button(
            "Another pair", type="tertiary", icon=":material/add:", key="lab_another", on_click=lab_place.go,
            kwargs={"left": None, "right": None},
        )  # fmt: skip


def _side(column: Any, name: str, settings: MemRLSettings, question: str) -> tuple[str, dict[str, Any]]:
    with column, st.container(border=True):
        st.markdown(f"**{name.capitalize()}**")
        policy = policy_choice(f"lab_policy_{name}")
        key = f"lab_{name}_{question}" if policy == "memrl" else f"lab_{name}_{policy}"
        start = settings if policy == "memrl" else settings_of(policy, {})
        names = CHANGED if policy == "memrl" else often_changed(policy)
        first, second = st.columns(2)
        with first:
            chosen = settings_fields(start, key, names[::2])
        with second:
            chosen |= {n: v for n, v in settings_fields(start, key, names[1::2]).items() if n in names[1::2]}
    return policy, chosen


def _begin(place: LabPlace, values: list[tuple[str, dict[str, Any]]], tasks: str, count: int, seed: int) -> None:
    try:
        left, right = (Side(settings_of(policy, chosen), policy) for policy, chosen in values)
        twins = start_twins(place.bank, (left, right), tasks=tasks, task_count=count, seed=seed)
    except MemRLError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    remember(twins)
    lab_place.go(left=twins.runs[0], right=twins.runs[1])
    st.rerun()


def _earlier(place: LabPlace) -> None:
    found = pairs_in(place.bank)
    if not found:
        return
    st.subheader("Earlier pairs")
    for left, right in found[:SHOWN]:
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
