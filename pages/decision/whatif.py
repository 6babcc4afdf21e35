"""The settings tried out on a recorded step."""

from __future__ import annotations

from typing import Any, get_args

import streamlit as st

from memrl_core.settings import MemRLSettings, Normaliser, PolicySettings
from pages.decision import state
from pages.decision.case import Case

NORMALISERS = get_args(Normaliser)


def settings_tried(case: Case) -> None:
    """One control a setting, standing at the value that is looked at."""
    recorded, looked_at = case.recorded, case.settings
    st.markdown("**What if …**")
    if case.situation is None and case.at is not None:
        st.caption("This step cannot be decided again, so nothing can be tried out on it.")
        return
    if looked_at == recorded:
        st.caption("As recorded. Move a control to see another decision; nothing is changed by it.")
    else:
        st.badge("what-if — not applied", icon=":material/science:", color="orange")
    _control(recorded, looked_at, "weight", "λ · weight of q", (0.0, 1.0), step=0.01)
    _control(recorded, looked_at, "delta", "δ · similarity gate", (-1.0, 1.0), step=0.01)
    widest = max(50, 2 * recorded.k1)
    _control(recorded, looked_at, "k1", "k1 · pool size", (1, widest), step=1)
    _control(recorded, looked_at, "k2", "k2 · memories in the prompt", (0, max(10, recorded.k2)))
    _control(recorded, looked_at, "alpha", "α · step size", (0.01, 1.0), step=0.01)
    if isinstance(recorded, MemRLSettings) and isinstance(looked_at, MemRLSettings):
        _normaliser(recorded, looked_at)
    st.button(
        "Back to the recorded settings",
        icon=":material/undo:",
        key="what_if_reset",
        disabled=looked_at == recorded,
        on_click=state.forget_trials,
        width="stretch",
    )


def _normaliser(recorded: MemRLSettings, looked_at: MemRLSettings) -> None:
    key = "what_if_normaliser"
    st.session_state[key] = looked_at.normaliser
    st.segmented_control(
        "Normaliser", NORMALISERS, key=key, required=True,
        help=MemRLSettings.model_fields["normaliser"].description,
        on_change=lambda: state.try_out("normaliser", st.session_state[key], recorded.normaliser),
    )  # fmt: skip


def _control(
    recorded: PolicySettings,
    looked_at: PolicySettings,
    name: str,
    label: str,
    limits: tuple[float, float],
    **more: Any,
) -> None:
    if not hasattr(recorded, name):
        return
    key = f"what_if_{name}"
    value = getattr(looked_at, name)
    st.session_state[key] = value
    st.slider(
        label,
        min(limits[0], value),
        max(limits[1], value),
        key=key,
        on_change=lambda: state.try_out(name, st.session_state[key], getattr(recorded, name)),
        **more,
    )
