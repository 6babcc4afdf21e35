"""What a method is, in the line above its decisions: whose rules, where they differ, and what it learns from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import streamlit as st

from memrl_core.errors import SettingsError
from memrl_core.policies import make_policy
from memrl_core.policies.base import BADGES as MEANING
from memrl_core.policies.base import PolicySpec
from memrl_core.records import StepTrace
from pages.shared.text import in_badge, literal

Colour = Literal["green", "blue", "orange"]
BADGES: Mapping[str, tuple[str, Colour, str]] = {
    "paper": ("paper", "green", MEANING["paper"]),
    "code": ("official code", "blue", MEANING["code"]),
    "adapted": ("adapted", "orange", MEANING["adapted"]),
}


def arm_line(spec: PolicySpec) -> None:
    """The badge of a method, what it learns from, its source, and its deviations to unfold."""
    label, colour, help_text = BADGES[spec.variant]
    learns_from = ", ".join(spec.feedback) or "nothing"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(in_badge(spec.title), icon=":material/memory:", color="gray")
        st.badge(label, color=colour, help=help_text)
        st.badge(f"learns from: {learns_from}", icon=":material/school:", color="gray")
        if spec.deviations:
            with st.popover(f"Deviations ({len(spec.deviations):,})", type="tertiary"):
                deviations(spec)
    st.caption(literal(spec.citation))


def deviations(spec: PolicySpec) -> None:
    """Where a method differs from its source, in plain words."""
    st.markdown("\n".join(f"- {literal(sentence)}" for sentence in spec.deviations))


def spec_of(trace: StepTrace) -> PolicySpec | None:
    """The method of a step under its settings; None where it is not installed here, or for other agents' steps."""
    return spec_under(trace.policy, trace.settings) if trace.origin == "agent" else None


def spec_under(policy: str, settings: Mapping[str, Any]) -> PolicySpec | None:
    """What a policy is under these settings; None where it is not installed here."""
    try:
        return make_policy(policy, settings).spec
    except SettingsError:
        return None
