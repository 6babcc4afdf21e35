"""Learned numbers on the screen Methods: q and rates, RMM's reranker, operations and tries, actions, and timelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
import streamlit as st

from memrl_core.analysis.run.learned.deciding import (
    GIVEN,
    NONE_LEFT,
    NOTHING,
    PRUNED,
    SILENT,
    citations,
    ranks,
    recollections,
    what_became,
)
from memrl_core.analysis.run.learned.values import (
    OPERATIONS,
    KnownState,
    known_states,
    operations_by_epoch,
    solved_within,
    targets,
    values_moved,
    values_over_uses,
)
from memrl_core.figures.run.learned import bump_picture, counts_picture, pass_picture, values_picture
from memrl_core.numerals import signed
from memrl_core.policies.base import Policy
from memrl_core.records import ValueChange
from pages.methods.learned_case import Case, show_or_say
from pages.shared.picture import show, show_table
from pages.shared.text import literal, verbatim

REWARD_IT = "Look at a later step, or reward one on the screen Rewards."


def utilities(case: Case) -> None:
    """q of every memory over its uses."""
    found = case.over_all_steps("values", lambda *progress: values_over_uses(case.watching, *progress))
    if found is None:
        return
    picture = values_picture(found, case.settings, case.run)
    show_or_say(picture, "learned_values", not found["reward"].notna().any(), REWARD_IT)
    if case.own:
        if type(case.method).credited is Policy.credited:
            st.caption("Every memory of a prompt gets the full reward, as rewards stand now.")
        st.caption(
            "q belongs to the memory, not to the pair of task and memory: the number cannot know which task asked."
        )
    else:
        title = literal(case.method.spec.title)
        st.caption(
            f"The ledger of this run folded again under the rule of {title}: the prompts and rewards are the run's, "
            f"each memory begins with the q0 of {title}, which would have put other memories before the model."
        )


def success_rates(case: Case) -> None:
    """MemP's success rate of every memory over its hits."""
    found = case.over_all_steps("rates", lambda *progress: values_over_uses(case.watching, *progress))
    if found is None:
        return
    # Before its first hit a memory has no rate.
    hits = found[found["use"] > 0]
    picture = values_picture(hits, {"reward_failure": 0, "reward_success": 1}, case.run, "success rate")
    show_or_say(picture, "learned_rates", not hits["reward"].notna().any(), REWARD_IT)
    st.caption(
        "MemP counts the first memory of a prompt alone, with 1/N: the rate settles, and a change is noticed late. "
        "MemRL moves every memory of the prompt by α. The rate does not choose memories in MemP."
    )


def named_values(case: Case) -> None:
    """Every value that the method names, before and after the step."""
    found = case.over_all_steps("named", lambda *_: values_moved(case.watching))
    if found is None:
        return
    if found.empty:
        st.info("The method names no learned value here.")
        return
    st.markdown(f"**{len(found):,} learned values** after step {case.trace.step}")
    show_table(found, "learned_named", "Learned values before and after the step")


def reranker(case: Case) -> None:
    """The bump chart of the step, the size of the adapters, then what answers have cited."""
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _ranks(case)
    with right:
        named_values(case)
    cited = case.over_all_steps("cited", lambda *progress: citations(case.watching, *progress))
    if cited is None:
        return
    if cited.empty:
        st.info(
            "The adapters have had no lesson. They learn from orders that this method drew itself, and from what the "
            "answers cited: start a run of it on Home."
        )
        return
    show(counts_picture(cited, "memories in prompts"), "learned_citations")
    baseline = case.settings["baseline"]
    st.caption(
        f"R is +1 for what the answer used and −1 for the rest of the prompt; with b = {baseline:g} the advantages are "
        f"{signed(1 - baseline)} and {signed(-1 - baseline)}. An unreadable reply is no feedback, never a reward."
    )


def _ranks(case: Case) -> None:
    found = recollections(case.watching, case.trace)
    if not found:
        st.info("This step was recorded without its pool or its intent's embedding. Choose another step.")
        return
    decision = found[0].decision
    show(bump_picture(ranks(decision), decision.k2, case.run), "learned_bump")
    st.markdown(f"As it was drawn: seed {decision.seed}.")
    if decision.note:
        st.caption(literal(decision.note))


def operations(case: Case) -> None:
    """How often each operation was chosen, epoch by epoch."""
    found = case.over_all_steps("operations", lambda *progress: operations_by_epoch(case.watching, *progress))
    if found is None:
        return
    none = not found[list(OPERATIONS)].to_numpy().any()
    show_or_say(counts_picture(found, "operations"), "learned_operations", none, "Look at a later step.")
    if case.own:
        st.caption("A reply of no use leaves the memory as it is, and is counted: it is never a reward.")
    else:
        st.caption("These are the operations of the run's own method. A model that chooses them was not asked here.")


def tries(case: Case) -> None:
    """The share of tasks that were solved within k tries."""
    found = case.over_all_steps("tries", lambda *_: solved_within(case.watching.after()))
    if found is None:
        return
    show_or_say(pass_picture(found), "learned_pass", found.empty, "Reward a step on the screen Rewards.")
    if case.own:
        st.caption("No memory was read: what rises with k is luck. Hollow: some tasks still have tries to come.")
    else:
        st.caption(
            "These tries had the memory of the run's own method, so this is no control arm: start a run of Pass@k on "
            "the same tasks for that. Hollow: some tasks still have tries to come."
        )


INTENT_SHOWN, SEEN_SHOWN = 44, 60


def actions(case: Case) -> None:
    """One state's actions, and below them what this step's rewards were made into."""
    found = case.over_all_steps("actions", lambda *_: (known_states(case.watching), targets(case.watching)))
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
        show_table(
            [
                {"action": one.text, "Q": one.q, "n": one.tries, "immediate reward": one.reward, "advice": one.advice}
                | {"invented": one.invented}
                for one in state.actions
            ],
            "learned_actions",
            "The actions of this state with their values and the advice that they give",
            signs=("Q", "immediate reward"),
        )
        if any(action.invented for action in state.actions):
            st.warning(
                "Some advice is invented: the method draws an action that the state offers and makes up a value for "
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
    st.markdown(f"**Values that step {case.trace.step} changed: {len(changes):,}**")
    if not changes:
        st.info("This step has no reward, so no value moved. Give it one on the screen Rewards.")
        return
    show_table(
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
        "learned_targets",
        "The values that this step moved, each with its target and the sum behind it",
        columns={"target, then the move": st.column_config.TextColumn(width="large")},
    )
    settings = case.settings
    if settings["variant"] == "code":
        sentence = "The target is the sum of all rewards to the end of the episode, as the released scripts run it."
    else:
        rewards = "1 reward" if settings["n"] == 1 else f"{settings['n']} rewards"
        sentence = f"The target is {rewards}, then the best Q of the state that was reached."
    st.caption(f"{sentence} γ = {settings['gamma']:g}.")


WORDS: Mapping[str, Mapping[str, str]] = {
    "webcoach": {GIVEN: "spoke", SILENT: "kept silent", NOTHING: "nothing to read"},
    "self_rag": {
        GIVEN: "needed, all used",
        PRUNED: "needed, graded out in part",
        NONE_LEFT: "needed, all graded out",
        SILENT: "not needed",
        NOTHING: "nothing found",
    },
    "remem": {GIVEN: "kept all", PRUNED: "pruned in part", NONE_LEFT: "pruned all", NOTHING: "nothing retrieved"},
}
LEARNED = {
    "webcoach": "The coach learns nothing from rewards: whether its advice helped is not kept. That is the lesson: "
    "keeping silent is a decision too, and here nobody teaches it.",
    "self_rag": "Nothing is learned: the model judges anew in every step, and no reward corrects its grades.",
    "remem": "Nothing is learned: what was pruned stays in the bank, and may be retrieved and pruned again.",
}


def timeline(case: Case) -> None:
    """How often each thing became of the pool, epoch by epoch, and the reason in the step looked at."""
    name = case.watching.policy
    found = case.over_all_steps("timeline", lambda *progress: what_became(case.watching, *progress))
    if found is None:
        return
    counts = pd.crosstab(found["epoch"], found["what"]).reindex(columns=list(WORDS[name]), fill_value=0)
    picture = counts_picture(counts.rename(columns=WORDS[name]).reset_index(), "times that memory was asked")
    show_or_say(picture, "learned_timeline", found.empty, "Choose a run whose steps have a pool.")
    here = found[found["step"] == case.trace.step]
    for (what, why), turns in here.groupby(["what", "why"], sort=False)["turn"]:
        st.markdown(f"**Step {case.trace.step}, {_when(turns)}: {WORDS[name][what]}.** {literal(why)}")
    st.info(LEARNED[name])


def _when(turns: Iterable[int]) -> str:
    later = ", ".join(str(turn + 1) for turn in turns if turn)
    parts = ["at the beginning"] if 0 in set(turns) else []
    return " and ".join([*parts, *([f"before turn {later}"] if later else [])])
