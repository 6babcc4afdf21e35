"""Questions about a run: transfer, forgetting, steps without memory, soundness, and how its memories relate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from memrl_core.analysis.decision import findings
from memrl_core.analysis.memory.relations import CopyGroup, copies, lineage, partners, with_and_without
from memrl_core.analysis.memory.uses import attempts
from memrl_core.analysis.run.over_time import fallback, forgetting, losses, transfer
from memrl_core.analysis.run.rates import Rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.check import check
from memrl_core.numerals import fixed, percent
from pages.decision.case import Case, chosen_step, uses_of
from pages.shared import place as places
from pages.shared.picture import show_table
from pages.shared.text import literal

SHOWN = 200
TWINS = 0.95
"""The cosine from which two intents are near-duplicates."""


def transferred(case: Case) -> None:
    """Is it transfer or memorisation?"""
    found = transfer(case.bank, case.run, uses_of(case))
    if found.empty:
        st.info("No memory was given to the model yet.")
        return
    uses = found.groupby("origin", observed=True)["uses"].sum()
    known = int(uses.drop("unknown", errors="ignore").sum())
    if known:
        same = int(uses.get("same task", 0)) / known
        st.markdown(f"**{percent(same)} of the uses** were of memories that the same task had written before.")
    else:
        st.markdown("From which tasks the memories came is not known.")
    show_table(
        found,
        "transfer",
        "Uses by epoch and by where the memory came from, with the successes of their steps",
        columns={
            "origin": "memory from",
            "share": "share of uses",
            "similarity": "mean similarity",
            "low": "from",
            "high": "to",
        },
        write={"share": percent, "similarity": fixed, "success": percent, "low": percent, "high": percent},
    )


def forgot(case: Case) -> None:
    """What was forgotten, and which change of memories went with it?"""
    table = _attempts(case.bank, case.bank.state, case.run)
    lost = losses(table)
    by_epoch = forgetting(table)
    if len(by_epoch) < 2:
        st.info(
            "Forgetting shows when tasks come again and are rated both times: let the run go through its tasks a "
            "second time, or rate its answers."
        )
        return
    directly = sum(e.lost_last for e in by_epoch)
    st.markdown(
        f"**Failures after the same task had been solved at some time: {len(lost):,}**, {directly:,} of them right "
        "after a success (the column *of these failed now*)."
    )
    show_table(
        [
            {
                "epoch": e.epoch,
                "attempts": e.attempts,
                "failures": e.failures,
                "solved the time before": e.solved_last,
                "of these failed now": e.lost_last,
                "share of failures": e.of_failures,
                "share of solved": e.of_solved,
            }
            for e in by_epoch
        ],
        "forgetting",
        "Forgetting by epoch",
        shares=("share of failures", "share of solved"),
    )
    if not lost:
        return
    step = chosen_step(
        [
            {
                "task": one.task,
                "solved in step": one.solved_step,
                "failed in step": one.failed_step,
                "no longer given": "not recorded" if one.left is None else findings.names(one.left, case.run),
                "given instead": "not recorded" if one.entered is None else findings.names(one.entered, case.run),
            }
            for one in lost[:SHOWN]
        ],
        [one.failed_step for one in lost[:SHOWN]],
        "losses",
        "Tasks that were solved and failed later, with the memories that were swapped",
    )
    if step is not None and st.button(f"Open step {step}", icon=":material/history:", key="loss_step"):
        places.go_to_steps(step=step)


def without_memory(case: Case) -> None:
    """How often was the pool empty, and did the model do better then?"""
    found = fallback(_attempts(case.bank, case.bank.state, case.run))
    st.markdown(
        f"The pool was empty in **{found.empty_steps:,} of {found.steps:,} steps**. Successes with an empty pool: "
        f"{literal(in_words(found.empty))}; with memories: {literal(in_words(found.filled))}."
    )
    if not found.sizes.empty:
        show_table(
            found.sizes,
            "pool_sizes",
            "Steps and successes by the size of the pool",
            columns={"pool": "pool size", "low": "from", "high": "to"},
            shares=("success", "low", "high"),
        )
    st.caption("The first steps of a run have an empty pool by nature, so the difference alone proves nothing.")


def sound(case: Case) -> None:
    """Is the bank sound?"""
    if not st.button("Check the bank", key="check_bank", icon=":material/health_and_safety:"):
        st.caption("Reads every table and compares it with the ledger. Nothing is changed.")
        return
    with st.spinner("Checking …"):
        rows = check(str(case.bank.uri))
    for row in rows:
        says = literal(" ".join(part for part in (row.sentence, row.remedy) if part))
        st.markdown(f"{':material/check_circle:' if row.ok else ':material/error:'} {says}")


@st.cache_data(max_entries=4, show_spinner="Reading every step of the run …")
def _attempts(_bank: MemoryBank, state: str, run: str) -> pd.DataFrame:
    return attempts(_bank, run)


GROUPS = 200


def in_words(rate: Rate) -> str:
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
        f"**{literal(in_words(mine.used))}**, where it was passed over **{literal(in_words(mine.passed_over))}**."
    )
    found = partners(uses, a)
    if not found:
        st.caption("It was never given to the model together with another memory.")
        return
    show_table(
        [
            {
                "beside": case.label(p.partner),
                "successes with it": in_words(p.beside),
                "successes without it": in_words(p.apart),
                "intent": case.memory(p.partner).intent,
            }
            for p in found[:GROUPS]
        ],
        f"partners_{a}",
        "The memories that were in the prompt beside this one, with how it went",
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
    show_table(
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
        ][:GROUPS],
        f"family_{a}",
        "Ancestors and descendants of this memory, by generation",
        signs=("q",),
    )
    if found.missing:
        st.caption(literal(f"Named as parents and not in this bank: {', '.join(found.missing[:8])}."))


def duplicates(case: Case) -> None:
    """Which memories are near-duplicates, and do they split the uses?"""
    threshold = st.slider("Near-duplicates from a cosine of", 0.5, 1.0, TWINS, 0.01, key="copies_threshold")
    found = _copies(case.bank, case.bank.state, case.run, threshold, uses_of(case))
    if not found:
        st.markdown(f"No two intents are at least {threshold:g} alike.")
        return
    members = sum(len(group.members) for group in found)
    st.markdown(f"**{len(found):,} groups** hold {members:,} memories.")
    _groups(case, found)


def twin(case: Case, a: str) -> None:
    """Has A a twin, and do they share its uses?"""
    found = [
        group
        for group in _copies(case.bank, case.bank.state, case.run, TWINS, uses_of(case))
        if any(copy.memory_id == a for copy in group.members)
    ]
    if not found:
        st.markdown(f"No other intent is at least {TWINS:g} as similar to that of **{literal(case.label(a))}**.")
        return
    (group,) = found
    mine = next(copy for copy in group.members if copy.memory_id == a)
    others = tuple(copy for copy in group.members if copy is not mine)
    st.markdown(
        f"**{len(others):,} other{'s' if len(others) > 1 else ''}** with an intent of a cosine of at least {TWINS:g}; "
        f"they have {sum(copy.visits for copy in others):,} rewarded uses, "
        f"**{literal(case.label(a))}** has {mine.visits:,}."
    )
    _groups(case, [replace(group, members=(mine, *others))])


def _groups(case: Case, found: Sequence[CopyGroup]) -> None:
    show_table(
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
        ][:GROUPS],
        "copies",
        "Groups of near-duplicates with their q and uses",
        signs=("q",),
    )
    st.caption("Together: in how many steps at least two of the group took places that others could have had.")


@st.cache_data(max_entries=8, show_spinner="Comparing every memory with every other …")
def _copies(_bank: MemoryBank, state: str, run: str, threshold: float, _uses: pd.DataFrame) -> list[CopyGroup]:
    return copies(_bank.view(run), _uses, threshold)
