"""Rememberer: the actions of a state with their values and the advice on them, and the targets of the step."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from memrl_core.analysis.run.learned.values import KnownState, known_states, targets
from memrl_core.figures.learned.actions import actions_picture
from memrl_core.records import ValueChange
from pages.methods.learned_case import Case
from pages.shared.picture import show
from pages.shared.text import verbatim

INTENT_SHOWN, SEEN_SHOWN = 44, 60


def actions(case: Case) -> None:
    """One state's actions, and below them what this step's rewards were made into."""
    found = case.over_all_steps(
        "actions", lambda report, cancelled: (known_states(case.watching), targets(case.watching))
    )
    if found is None:
        return
    states, changes = found
    if not states:
        st.info("No action has a value yet: values come with the first reward. Look at a later step.")
        return
    place = st.selectbox(
        f"State ({len(states):,} known)",
        range(len(states)),
        key="learned_state",
        format_func=lambda number: _named(case, states[number]),
    )
    state = states[place]
    left, right = st.columns([3, 2], gap="medium")
    with left:
        show(actions_picture(state), "learned_actions")
        if any(action.invented for action in state.actions):
            st.warning(
                "Hatched advice is invented: the method draws an action that the state offers and makes up a value for "
                "it, where nothing recorded can be encouraged or discouraged. Nothing was learned of it.",
                icon=":material/casino:",
            )
    with right:
        st.markdown("**What is seen in this state**")
        with st.container(height=300, key="learned_seen"):
            verbatim(state.observation or "(nothing)")
    _targets(case, changes)


def _named(case: Case, state: KnownState) -> str:
    met = f"turn {state.turn} of this step · " if state.turn is not None else ""
    seen = " ".join(state.observation.split())[:SEEN_SHOWN]
    return f"{met}{case.label(state.memory_id)} · {state.task[:INTENT_SHOWN]} · {seen}"


def _targets(case: Case, changes: Sequence[ValueChange]) -> None:
    st.markdown(f"**What step {case.trace.step} taught: {len(changes):,} values**")
    if not changes:
        st.info("This step has no reward, so no value moved. Give it one on the screen Rewards.")
        return
    st.dataframe(
        pd.DataFrame(
            {
                "memory": [case.label(change.memory_id) if change.memory_id else "new" for change in changes],
                "action": [change.name for change in changes],
                "Q before": [change.before for change in changes],
                "target G": [change.reward for change in changes],
                "Q after": [change.after for change in changes],
                "N": [change.visits for change in changes],
                "target, then the move": [change.formula for change in changes],
            }
        ),
        key="learned_targets",
        hide_index=True,
        column_config={"target, then the move": st.column_config.TextColumn(width="large")},
        alt="The values that this step moved, each with its target and the sum behind it",
    )
    settings = case.settings
    if settings["variant"] == "code":
        told = "The target is the sum of all rewards to the end of the episode, as the released scripts run it."
    else:
        rewards = "1 reward" if settings["n"] == 1 else f"{settings['n']} rewards"
        told = f"The target is {rewards}, then the best Q of the state that was reached."
    st.caption(f"{told} γ = {settings['gamma']:g}.")
