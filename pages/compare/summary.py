"""The head of a comparison: how far it can be trusted, what differs in the settings, and every metric."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.analysis.compare.comparison import (
    Comparison,
    SettingDifference,
    finding,
    left_alone,
    metric_table,
    setup_warnings,
    shared_past,
)
from memrl_core.figures.compare.comparison import reward_picture
from pages.shared.picture import show
from pages.shared.text import literal


def setup(comparison: Comparison, settings: list[SettingDifference]) -> None:
    """What was not the same, what could not be paired, and the settings that differ as a table."""
    for sentence in setup_warnings(comparison.alignment):
        st.warning(literal(sentence), icon=":material/balance:")
    if past := shared_past(comparison.alignment):
        st.info(past)
    if alone := left_alone(comparison.alignment):
        st.caption(literal(alone))
    if settings:
        table = pd.DataFrame([s.values for s in settings], columns=list(comparison.names))
        table.insert(0, "setting that differs", [s.title for s in settings])
        st.table(_literal(table), hide_index=True, border="horizontal", alt="The settings in which the runs differ")
    else:
        st.caption("All settings are the same.")


def outcomes(comparison: Comparison) -> None:
    """All metrics beside the reward so far."""
    numbers, curve = st.columns([3, 2], gap="medium")
    with numbers:
        st.markdown(f"**{literal(finding(comparison))}**")
        st.table(
            _literal(metric_table(comparison)),
            hide_index=True,
            border="horizontal",
            alt="Every metric of every run, with the difference to the first and its 95 % interval",
        )
        st.caption(
            f"{len(comparison.alignment.rows):,} steps in lockstep. Δ: to {literal(comparison.names[0])}; in brackets "
            "its 95 % percentile interval from 2,000 draws of whole tasks. n: tasks. An interval that holds 0 may be "
            "chance."
        )
        with st.expander("What each metric is"):
            st.markdown("\n".join(f"- **{literal(m.name)}**: {literal(m.meaning)}" for m in comparison.metrics))
    with curve:
        if comparison.rewards is None:
            st.info("No task has a reward in every run, so there is no reward to add up.")
        else:
            show(reward_picture(comparison.rewards, comparison.names), "compare_rewards")


def _literal(table: pd.DataFrame) -> pd.DataFrame:
    """A table of texts in which no head and no cell acts as Markdown."""
    return table.map(literal).rename(columns=literal)
