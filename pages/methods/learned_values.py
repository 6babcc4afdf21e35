"""Learned values of memories: MemRL's q, MemP's success rate, and whatever another package's method names."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.run.learned.values import deletion, values_moved, values_over_uses
from memrl_core.analysis.run.learned.watching import Watching
from memrl_core.figures.learned.rates import rates_picture
from memrl_core.figures.learned.values import values_picture
from pages.methods.learned_case import Case, show_or_say

REWARD_IT = "Look at a later step, or reward one on the screen Rewards."


def utilities(case: Case) -> None:
    """q of every memory over its uses."""
    found = case.over_all_steps("values", lambda report, cancelled: values_over_uses(case.watching, report, cancelled))
    if found is None:
        return
    picture = values_picture(found, case.settings, case.run)
    show_or_say(picture, "learned_values", not found["reward"].notna().any(), REWARD_IT)
    if case.own:
        st.caption(
            "Every memory of a prompt gets the full reward, as rewards stand now. q belongs to the memory, not to the "
            "pair of task and memory: the number cannot know which task asked."
        )
    else:
        st.caption(
            "The ledger of this run folded again under MemRL's rule: the prompts and the rewards are the run's, each "
            "memory begins with MemRL's q0. MemRL would have put other memories before the model."
        )


def success_rates(case: Case) -> None:
    """MemP's success rate over hits beside MemRL's q over uses."""
    beside = Watching(case.bank, case.run, case.trace.step, "memrl")
    found = case.over_all_steps(
        "rates",
        lambda report, cancelled: (
            values_over_uses(case.watching, report, cancelled),
            values_over_uses(beside, report, cancelled),
        ),
    )
    if found is None:
        return
    rates, values = found
    rule = deletion(case.watching, rates)
    settings = beside.method().settings.model_dump()
    picture = rates_picture(rates, values, rule, settings, case.run)
    show_or_say(picture, "learned_rates", not rates["reward"].notna().any(), REWARD_IT)
    if rule.in_force:
        after = "The rule is in force in this run."
    else:
        after = "The rule is the released code's (variant “code”); here nothing is deleted by it."
    st.caption(
        "MemP counts the first memory of a prompt alone, with 1/N: it settles, and a change is noticed late. MemRL "
        f"moves every memory of the prompt by α. {after} Neither rate nor rule chooses memories in MemP."
    )


def named_values(case: Case) -> None:
    """Every value that the method names, before and after the step."""
    found = case.over_all_steps("named", lambda report, cancelled: values_moved(case.watching))
    if found is None:
        return
    if found.empty:
        st.info("The method names no learned value here.")
        return
    st.markdown(f"**{len(found):,} learned values** after step {case.trace.step}")
    st.dataframe(found, key="learned_named", hide_index=True, alt="Learned values before and after the step")
