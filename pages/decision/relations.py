"""Questions about how memories relate: used together, born from one another, copies of one another."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.analysis.memory.relations import CopyGroup, copies, lineage, partners, with_and_without
from memrl_core.analysis.run.rates import Rate
from memrl_core.bank import MemoryBank
from memrl_core.numerals import percent
from pages.decision.case import Case, uses_of
from pages.shared.table import in_signs
from pages.shared.text import literal

SHOWN = 200


def said(rate: Rate) -> str:
    """A share of successes with its counts and interval."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "never rated"
    return f"{rate.successes:,} of {rate.n:,} ({percent(rate.low)} to {percent(rate.high)})"


def company(case: Case, a: str) -> None:
    """Did A earn its credit, or its company?"""
    uses = uses_of(case)
    mine = with_and_without(uses, a)
    label = literal(case.label(a))
    st.markdown(
        f"Successes of the steps with {label} in their pool: where it was given to the model "
        f"**{literal(said(mine.used))}**, where it was passed over **{literal(said(mine.passed_over))}**."
    )
    found = partners(uses, a)
    if not found:
        st.caption("It was never given to the model together with another memory.")
        return
    st.dataframe(
        [
            {
                "beside": case.label(p.partner),
                "successes with it": said(p.beside),
                "successes without it": said(p.apart),
                "intent": case.memory(p.partner).intent,
            }
            for p in found[:SHOWN]
        ],
        key=f"partners_{a}",
        hide_index=True,
        alt="The memories that were in the prompt beside this one, with how it went",
    )
    st.caption(
        "Every memory in a prompt gets the whole reward. This compares, it does not prove: steps differ in more."
    )


def family(case: Case, a: str) -> None:
    """From which memories was A born, and what came of it?"""
    found = lineage(case.bank.memories(), a)
    above, below = sum(map(len, found.ancestors)), sum(map(len, found.descendants))
    st.markdown(f"{literal(case.label(a))}: ancestors **{above}**, descendants **{below}**.")
    utilities = case.bank.utilities(case.run)
    levels = [
        *((-n, level) for n, level in enumerate(found.ancestors, start=1)),
        (0, (a,)),
        *((n, level) for n, level in enumerate(found.descendants, start=1)),
    ]
    parents: dict[str, list[str]] = {}
    for parent, child in found.links:
        parents.setdefault(child, []).append(case.label(parent))
    st.dataframe(
        in_signs(
            [
                {
                    "generation": number,
                    "memory": case.label(i),
                    "q": utilities[i].q if i in utilities else None,
                    "outcome": case.memory(i).outcome,
                    "in its prompt": ", ".join(parents.get(i, ())),
                    "intent": case.memory(i).intent,
                }
                for number, level in sorted(levels)
                for i in level
            ][:SHOWN],
            "q",
        ),
        key=f"family_{a}",
        hide_index=True,
        alt="Ancestors and descendants of this memory, by generation",
    )
    if found.missing:
        st.caption(literal(f"Named as parents and not in this bank: {', '.join(found.missing[:8])}."))


def duplicates(case: Case) -> None:
    """Which memories are near-duplicates, and do they split the uses?"""
    threshold = st.slider("Near-duplicates from a cosine of", 0.5, 1.0, 0.95, 0.01, key="copies_threshold")
    found = _copies(case.bank, case.bank.state, case.run, threshold, uses_of(case))
    if not found:
        st.markdown(f"No two intents are at least {threshold:g} alike.")
        return
    members = sum(len(group.members) for group in found)
    st.markdown(f"**{len(found):,} groups** hold {members:,} memories.")
    st.dataframe(
        in_signs(
            [
                {
                    "group": number,
                    "memory": case.label(copy.memory_id),
                    "q": copy.q,
                    "uses rewarded": copy.visits,
                    "in pools": copy.pools,
                    "given": copy.uses,
                    "together in pools": group.crowded_pools,
                    "together in prompts": group.crowded_prompts,
                    "intent": case.memory(copy.memory_id).intent,
                }
                for number, group in enumerate(found, start=1)
                for copy in group.members
            ][:SHOWN],
            "q",
        ),
        key="copies",
        hide_index=True,
        alt="Groups of near-duplicates with their q and uses",
    )
    st.caption("Together: in how many steps at least two of the group took places that others could have had.")


@st.cache_data(max_entries=8, show_spinner="Comparing every memory with every other …")
def _copies(_bank: MemoryBank, state: str, run: str, threshold: float, _uses: pd.DataFrame) -> list[CopyGroup]:
    return copies(_bank.view(run), _uses, threshold)
