"""An environment as a person meets it: which is shown, its sets, and one task with what the model is sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

import pandas as pd
import streamlit as st

from memrl_core.environments import (
    environment_class,
    environment_names,
    environment_title,
    make_environment,
    why_unusable,
)
from memrl_core.environments.base import Environment
from memrl_core.environments.tasks import set_names
from memrl_core.errors import MemRLError
from memrl_core.prompting import first_messages
from memrl_core.records import Task
from pages.shared.forms import start_run_form, tasks_in
from pages.shared.picture import show_table
from pages.shared.place import Place, notice
from pages.shared.text import literal, verbatim

SEED = 1
PROMPT_HEIGHT = 380


def card(name: str) -> None:
    """What the environment is, who judges, what it needs, and whether this machine has that."""
    why = why_unusable(name)
    try:
        found = environment_class(name)
    except MemRLError:
        st.error(literal(why), icon=":material/error:")
        return
    spec = found.spec
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(literal(spec.title), anchor=False, width="content")
        if why:
            st.badge("not ready here", color="orange", icon=":material/block:")
        else:
            st.badge("ready", color="green", icon=":material/check:")
        who = "judged by its world" if found.reward_source == "environment" else "judged by a person"
        st.badge(who, color="gray")
    if why:
        st.warning(literal(why), icon=":material/build:")
    st.markdown(literal(spec.idea))
    st.markdown(f"**How it is judged.** {literal(spec.judged)}")
    st.caption(literal(" · ".join(part for part in (spec.source, spec.needs) if part)))
    with st.expander("The instructions to the model, and what can be set", key="tasks_rules"):
        verbatim(found.instructions)
        for field in found.Options.model_fields.values():
            st.markdown(f"**{literal(field.title or '')}.** {literal(field.description or '')}")


def chosen_set(place: Place | None, name: str) -> list[Task] | None:
    """The tasks of one of the environment's sets, to run or to look at; None, with what to do, when there is none."""
    try:
        sets = set_names(name)
    except MemRLError:
        return None
    if not sets:
        st.info(
            "It has no tasks of its own: load a file of them below, and keep what is accepted.",
            icon=":material/upload_file:",
        )
        return None
    key = f"tasks_set_{name}"
    asked = st.query_params.get(SET)
    if key not in st.session_state:
        st.session_state[key] = asked if asked in sets else sets[0]
    if st.session_state[key] not in sets:
        st.session_state[key] = sets[0]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = str(st.selectbox("Set of tasks", sets, key=key, width=360))
        with st.popover(
            "Start a run on this set", icon=":material/add:", type="primary", disabled=bool(why_unusable(name))
        ):
            start_run_form(place, name, chosen)
    if st.query_params.get(SET) != chosen:
        st.query_params.pop(TASK, None)
    st.query_params[SET] = chosen
    try:
        tasks = tasks_in(chosen)
    except MemRLError as error:
        if not why_unusable(name):  # Otherwise the card has said it.
            st.error(literal(str(error)), icon=":material/error:")
        return None
    families = Counter(task.family or "no family" for task in tasks)
    listed = ", ".join(f"{family} {count}" for family, count in families.most_common())
    st.caption(f"{len(tasks):,} tasks in {len(families):,} families", help=literal(listed))
    return tasks


def set_table(tasks: Sequence[Task]) -> Task:
    """All tasks under each other; the one whose row is chosen."""
    chosen = show_table(
        pd.DataFrame([(task.family, task.intent, task.id) for task in tasks], columns=["family", "asked", "task"]),
        f"tasks_table_{tasks[0].environment}_{st.query_params.get(SET)}",
        "The tasks of this set with their family and what is asked",
        height=PROMPT_HEIGHT + 40,
        on_select="rerun",
        selection_mode="single-row",
        columns={
            "family": st.column_config.TextColumn("family", width=120),
            "asked": st.column_config.TextColumn("asked", width="large"),
        },
    )
    rows = chosen.selection.rows
    if rows:
        st.query_params[TASK] = tasks[rows[0]].id
    linked = next((task for task in tasks if task.id == st.query_params.get(TASK)), tasks[0])
    return tasks[rows[0]] if rows else linked


def one_task(name: str, task: Task) -> None:
    """What the model is sent first for a task, without any memory; the answer is there for who asks."""
    st.markdown(f"**{literal(task.id)}**")
    needs_engine = bool(environment_class(name).spec.needs)
    if why_unusable(name) or (
        needs_engine and not st.toggle("Set up its world, and show the prompt", key="tasks_set_up")
    ):
        verbatim(task.intent)
        return
    st.caption("What the model is sent first, before any memory")
    try:
        prompt = _prompt(name, task)
    except MemRLError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    with st.container(height=PROMPT_HEIGHT, key="tasks_prompt"):
        verbatim(prompt)
    with st.expander("What only the judge knows (it may give the answer away)", key="tasks_data"):
        st.code(json.dumps(dict(task.data), ensure_ascii=False, indent=1)[:20_000], language="json", wrap_lines=True)


def _prompt(name: str, task: Task) -> str:
    with st.spinner("The world is being set up …"), closing(_simulated(name)) as world:
        observation = world.reset(task, seed=SEED, at_step=1)
        messages, _ = first_messages(world.instructions, (), task.intent, observation)
        return messages[-1].content


def _simulated(name: str) -> Environment:
    return make_environment(name, **environment_class(name).simulated_options)


ENVIRONMENT, SET, TASK = "environment", "set", "task"
IN_LINK = (ENVIRONMENT, SET, TASK)
CHOSEN = "tasks_environment"


def in_link() -> dict[str, str]:
    """What the page has in the URL beside the place."""
    return {name: st.query_params[name] for name in IN_LINK if name in st.query_params}


def chosen_environment() -> str:
    """The environment to show."""
    names = environment_names()
    asked = st.query_params.get(ENVIRONMENT)
    # A browser that draws only the second of two quick runs sends nothing as the choice.
    lost = st.session_state.get(CHOSEN) is None
    # The page's own choice comes back in the URL; another one was asked for by a link.
    if asked is not None and (lost or asked != st.session_state.get("tasks_shown")):
        if asked in names:
            st.session_state[CHOSEN] = asked
        else:
            notice("There is no such environment here. The household is shown instead.")
    if st.session_state.get(CHOSEN) is None:
        st.session_state[CHOSEN] = names[0]
    chosen = str(
        st.segmented_control(
            "Environment", names, key=CHOSEN, required=True, format_func=environment_title, label_visibility="collapsed"
        )
    )
    if st.query_params.get(ENVIRONMENT) != chosen:
        for name in (SET, TASK):
            st.query_params.pop(name, None)
    st.query_params[ENVIRONMENT] = st.session_state["tasks_shown"] = chosen
    return chosen
