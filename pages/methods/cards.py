"""A card a method, and all methods as one table."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.errors import SettingsError
from memrl_core.policies import policy_class, policy_names
from memrl_core.policies.spec import BADGES as MEANING
from memrl_core.policies.spec import RULES, PolicySpec
from pages.shared.arm import BADGES, deviations
from pages.shared.text import literal

HOOKS = (
    ("Record", "record"),
    ("When", "when"),
    ("Recall", "recall"),
    ("Select", "select"),
    ("Update", "update"),
    ("Write", "write"),
    ("Forget", "forget"),
)
FEEDBACK = ("episode reward", "step reward", "citation", "human")


def cards() -> None:
    """Every method that can be had here, two in a row; a filter by what it learns from."""
    specs = _specs()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wanted = st.pills("Learns from", [*FEEDBACK, "nothing"], key="methods_feedback", selection_mode="multi")
        text = st.text_input("Find", key="methods_find", placeholder="reward, recency, citation …", width=260)
    shown = [spec for spec in specs if _is_wanted(spec, wanted, text)]
    if not shown:
        st.info("No method is like that. Take a filter away.")
    for start in range(0, len(shown), 2):
        for column, spec in zip(st.columns(2, gap="medium"), shown[start : start + 2], strict=False):
            with column, st.container(border=True, key=f"card_{spec.name}"):
                _card(spec)
    _badges()


def table() -> None:
    """All methods under each other, a column a question."""
    st.dataframe(
        pd.DataFrame([_row(spec) for spec in _specs()]),
        key="methods_table",
        hide_index=True,
        height=660,
        row_height=88,
        column_config={"Method": st.column_config.TextColumn("Method", pinned=True, width="medium")},
        alt="All methods with what they keep, when and how they recall, select, update, write and forget",
    )
    st.caption("The rules as they stand with each method's default settings. A double click opens a cell.")
    _badges()


def _badges() -> None:
    """What the badges mean, and by which rule they are given."""
    st.caption(" ".join((*(f"*{BADGES[variant][0]}*: {described}" for variant, described in MEANING.items()), RULES)))


def _specs() -> list[PolicySpec]:
    found = []
    for name in policy_names():
        try:
            found.append(policy_class(name).spec)
        except SettingsError as error:
            st.warning(literal(str(error)))
    return found


def _is_wanted(spec: PolicySpec, feedback: list[str], text: str) -> bool:
    learns_from = spec.feedback or ("nothing",)
    if feedback and not set(feedback) & set(learns_from):
        return False
    described = " ".join(_row(spec).values()).lower()
    return all(word in described for word in text.lower().split())


def _card(spec: PolicySpec) -> None:
    label, colour, help_text = BADGES[spec.variant]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{literal(spec.title)}**")
        st.badge(label, color=colour, help=help_text)
        others = [BADGES[variant][0] for variant in spec.variants if variant != spec.variant]
        if others:
            st.badge(f"also: {', '.join(others)}", color="gray", help="A setting of the run chooses.")
    st.markdown(literal(spec.idea))
    st.markdown(f"**What it cannot do.** {literal(spec.cannot)}")
    with st.expander("Record, recall, select, update, write, forget", key=f"hooks_{spec.name}"):
        for title, field in HOOKS:
            st.markdown(f"**{title}.** {literal(getattr(spec, field))}")
        st.markdown(f"**Memories of another policy.** {literal(spec.carries_over)}")
    if spec.deviations:
        with st.expander(f"Where it differs from its source ({len(spec.deviations):,})", key=f"deviations_{spec.name}"):
            deviations(spec)
    learns_from = ", ".join(spec.feedback) or "nothing"
    needs = ", ".join(spec.needs) or "nothing special"
    st.caption(literal(f"{spec.name} · {spec.citation} · learns from: {learns_from} · needs: {needs}"))


def _row(spec: PolicySpec) -> dict[str, str]:
    return {
        "Method": spec.title,
        "Rules": BADGES[spec.variant][0],
        "Learns from": ", ".join(spec.feedback) or "nothing",
        **{title: getattr(spec, field) for title, field in HOOKS},
        "Cannot": spec.cannot,
        "Needs": ", ".join(spec.needs) or "–",
        "Memories of another policy": spec.carries_over,
        "Source": spec.citation,
        "Name": spec.name,
    }
