"""Questions about what a q says: how it would recover, how far it can be trusted, and what another reward had done."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.memory.belief import recovery, rewards_to_reach, supposed_reward, trust
from memrl_core.analysis.memory.provenance import provenance
from memrl_core.numerals import percent, signed
from pages.decision.case import Case
from pages.shared.picture import show_table
from pages.shared.text import literal


def recovered(case: Case, a: str) -> None:
    """How many rewards until the choice about A changes, or its q is back?"""
    assert case.situation is not None
    low, high = case.recorded.reward_failure, case.recorded.reward_success
    known = case.candidate(a)
    against = low if known is not None and known.selected else high
    with st.container(horizontal=True):
        reward = st.number_input("Each reward", value=against, step=0.1, format="%.2f", key=f"recovery_{a}_{against}")
        target = st.number_input("q to reach", value=(low + high) / 2, step=0.1, format="%.2f", key="recovery_target")
    found = recovery(case.situation, a, float(reward), case.weighed)
    label = literal(case.label(a))
    if known is not None:
        needed = rewards_to_reach(known.q, float(target), float(reward), case.weighed.alpha)
        outcome = "will never be reached this way" if needed is None else f"is reached after **{needed}** of them"
        st.markdown(f"From q {signed(known.q)} of {label}, the q {signed(float(target))} {outcome}.")
    if found is None:
        st.markdown(f"{label} is not in the pool, where no q counts: ask what kept it out.")
        return
    selected, after = found
    now = "given to the model" if selected else "not given to the model"
    outcome = "no number of such rewards changes that" if after is None else f"**{after}** of them change that"
    st.markdown(f"{label} is {now} in this step; {outcome}, if nothing else moves.")


def trusted(case: Case, a: str) -> None:
    """How far can A's q be trusted?"""
    points = case.bank.history(case.run, a, as_of=case.place.step)
    if not points:
        st.info("This run does not know this memory, so it has no q for it.")
        return
    found = trust(points, case.weighed_as_recorded.alpha, (case.recorded.reward_failure, case.recorded.reward_success))
    label = literal(case.label(a))
    if found.n == 0:
        came = f" It came with {points[0].visits} uses whose rewards are not known here." if points[0].visits else ""
        st.markdown(
            f"No reward has reached {label} in this run: its q is still its first one, {signed(found.q)}.{came}"
        )
        return
    if found.low is None or found.high is None:
        st.markdown(f"One reward is too few to say how far the q of {label} ({signed(found.q)}) can be trusted.")
    elif found.low == found.high:
        st.markdown(
            f"All {found.n} rewards of {label} were equal, so they say nothing about the spread of its q "
            f"({signed(found.q)}). That is not certainty."
        )
    else:
        st.markdown(
            f"**q of {label} is {signed(found.q)}, with a 95 % band from {signed(found.low)} to "
            f"{signed(found.high)}**, by its own {found.n} rewards (mean {signed(found.mean or 0.0)})."
        )
    st.caption(
        f"With α = {case.weighed_as_recorded.alpha:g} a q averages over about {found.window:.1f} rewards; its first "
        f"value still weighs {percent(found.q0_share)}."
        + ("" if found.limit is None else f" In the long run its variance tends to {found.limit:.3f}.")
    )
    show_table(
        [
            {"rewards": r.n, "q as it was": r.recorded, "q expected": r.expected, "from": r.low, "to": r.high}
            for r in found.ladder
        ],
        f"trust_{a}",
        "q after each reward beside what theory expects for the mean reward",
        signs=("q as it was", "q expected", "from", "to"),
    )


def otherwise_rewarded(case: Case, a: str) -> None:
    """What would q be if one reward had been another?"""
    found = provenance(case.bank, case.run, a)
    if found is None or not found.contributions:
        st.info("No reward has reached this memory yet.")
        return
    by_id = {c.event_id: c for c in found.contributions}
    with st.container(horizontal=True):
        event = st.selectbox(
            "The reward",
            list(by_id),
            index=len(by_id) - 1,
            key=f"instead_event_{a}",
            format_func=lambda i: (
                f"step {by_id[i].step}: {signed(by_id[i].value)} by {by_id[i].rater or by_id[i].source}"
            ),
        )
        value = st.number_input("had been", value=0.0, step=0.1, format="%.2f", key=f"instead_value_{a}")
    outcome = supposed_reward(case.bank, case.run, event, float(value))
    if not outcome:
        st.markdown("No q would be another today.")
        return
    show_table(
        [
            {"memory": case.label(i), "q now": now, "q then": then, "Δ": then - now, "intent": case.memory(i).intent}
            for i, (now, then) in outcome.items()
        ],
        "instead_rows",
        "The memories whose q would be another today",
        signs=("q now", "q then", "Δ"),
    )
    st.caption("What was selected and written since is left as it was. To change the reward itself, rate the step.")
