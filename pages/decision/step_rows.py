"""Rows that each stand for a step: a table in which choosing a row chooses its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler


def chosen_step(
    rows: Sequence[Mapping[str, Any]] | pd.DataFrame | Styler,
    steps: Sequence[int],
    key: str,
    alt: str,
    columns: Mapping[str, Any] | None = None,
) -> int | None:
    """Draw `rows`, of which each stands for one of `steps`; returns the step whose row is chosen."""
    event = st.dataframe(
        rows, key=key, hide_index=True, on_select="rerun", selection_mode="single-row", column_config=columns, alt=alt
    )
    chosen = event["selection"]["rows"]
    if chosen and chosen[0] < len(steps):
        return steps[chosen[0]]
    st.caption("Choose a row to go to its step.")
    return None
