"""Questions about one memory of a run, and about memories that are alike."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.analysis.decision import explain
from memrl_core.analysis.memory.provenance import provenance, trust
from memrl_core.analysis.memory.relations import (
    copies,
    lineage,
    neighbourhoods,
    opposed,
    partners,
    skipped_by,
    with_and_without,
)
from memrl_core.analysis.run.metrics import Rate
from memrl_core.bank import MemoryBank
from memrl_core.figures.memory.utility import history_picture
from memrl_core.numerals import fixed, percent, signed
from pages.decision.case import Case, chosen_step, uses_of
from pages.shared import place as places
from pages.shared.picture import show, show_table
from pages.shared.text import literal

WITHOUT = "q now without it"
GROUPS = 200
TWINS = 0.95
"""The cosine from which two intents are near-duplicates."""


def origin(case: Case, a: str) -> None:
    """Which rewards made A's q what it is?"""
    found = provenance(case.bank, case.run, a, as_of=case.place.step)
    if found is None:
        st.info("This run does not know this memory, so it has no q for it.")
        return
    history = case.bank.history(case.run, a, as_of=case.place.step)
    st.markdown(literal(explain.origin(found, a, case.run, brought=history[0].visits)))
    if not found.contributions:
        return
    step = chosen_step(
        [
            {
                "step": c.step,
                "reward": c.value,
                "by": c.rater or c.source,
                "q before": c.before,
                "q after": c.after,
                "Δ": c.after - c.before,
                "share of q now": c.share,
                WITHOUT: c.without,
                **({"reason": c.reason} if any(one.reason for one in found.contributions) else {}),
            }
            for c in found.contributions
        ],
        [c.step for c in found.contributions],
        f"origin_{a}",
        "Every reward that moved this q",
        signs=("reward", "q before", "q after", "Δ", WITHOUT),
        shares=("share of q now",),
    )
    if step is not None and step < case.place.first_step:
        st.caption(f"Step {step} is of the run that this one began with: what was known then came along.")
    elif step is not None and st.button(f"Open step {step}", icon=":material/history:", key="origin_step"):
        places.go_to_steps(step=step)
    show(history_picture(history, case.recorded.model_dump(), a, case.run), "origin_history")


def served(case: Case, a: str) -> None:
    """Is A good in general, or only for such intents?"""
    found = neighbourhoods(case.bank, case.run, a, uses_of(case))
    if not found:
        st.info("This memory was never given to the model in a step whose embedding was stored.")
        return
    middle = case.recorded.q_midpoint
    rated = [n for n in found if n.mean_reward is not None]
    if not rated:
        st.markdown("None of its uses was rated yet, so whether it helps is not known.")
    elif opposed(found, middle):
        st.markdown("**One q hides two stories**: it helps in one neighbourhood of intents and harms in another.")
    elif len(rated) == 1:
        st.markdown("Only uses for one neighbourhood of intents were rated: whether it helps elsewhere is not known.")
    else:
        st.markdown(f"Its rewards point the same way in all {len(rated):,} neighbourhoods of intents that were rated.")
    show_table(
        [
            {
                "intents like": n.intent,
                "uses": n.uses,
                "mean reward": n.mean_reward,
                "successes": f"{n.successes} of {n.rated}",
                "similarity": n.similarity,
                "steps": ", ".join(map(str, n.steps[:12])) + (" …" if len(n.steps) > 12 else ""),
            }
            for n in found
        ],
        f"served_{a}",
        "The neighbourhoods of intents that this memory served, with their rewards",
        columns={"intents like": st.column_config.TextColumn("intents like", width="large")},
        write={**{"mean reward": signed}, "similarity": fixed},
    )
    st.caption("A neighbourhood holds intents within a cosine distance of 0.5 of one another on average.")


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


def in_words(rate: Rate) -> str:
    """A share of successes with its counts and interval."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "never rated"
    return f"{rate.successes:,} of {rate.n:,} ({percent(rate.low)} to {percent(rate.high)})"


def company(case: Case, a: str) -> None:
    """Did A earn its credit, or its company?"""
    uses = uses_of(case)
    used, passed_over = with_and_without(uses, a)
    label = literal(case.label(a))
    st.markdown(
        f"Successes of the steps with {label} in their pool: where it was given to the model "
        f"**{literal(in_words(used))}**, where it was passed over **{literal(in_words(passed_over))}**."
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


def twin(case: Case, a: str) -> None:
    """Has A a twin, and do they share its uses?"""
    found = _copies_of(case, TWINS)
    mine = found["memory_id"] == a
    if not mine.any():
        st.markdown(f"No other intent is at least {TWINS:g} as similar to that of **{literal(case.label(a))}**.")
        return
    others = found[(found["group"] == found.loc[mine, "group"].iloc[0]) & ~mine]
    st.markdown(
        f"**{len(others):,} other{'s' if len(others) > 1 else ''}** with an intent of a cosine of at least {TWINS:g}; "
        f"they have {others['visits'].sum():,} rewarded uses, "
        f"**{literal(case.label(a))}** has {found.loc[mine, 'visits'].iloc[0]:,}."
    )
    _groups(case, pd.concat([found[mine], others]).assign(group=1))


def duplicates(case: Case) -> None:
    """Which memories are near-duplicates, and do they split the uses?"""
    threshold = st.slider("Near-duplicates from a cosine of", 0.5, 1.0, TWINS, 0.01, key="copies_threshold")
    found = _copies_of(case, threshold)
    if found.empty:
        st.markdown(f"No two intents are at least {threshold:g} alike.")
        return
    table = uses_of(case)
    given = table.loc[table["selected"].astype(bool), "memory_id"]
    known, twins = case.bank.utilities(case.run), set(found["memory_id"])
    skipped = skipped_by(case.bank.view(case.run), threshold)
    share = f" and took {percent(given.isin(twins).mean(), 0)} of all places in prompts" if len(given) else ""
    st.markdown(
        f"**{found['group'].max():,} groups** hold {len(found):,} of {len(known):,} memories{share}. "
        + (
            f"With *duplicates = skip* {len(skipped):,} would not have been written, with the outcome and words of an "
            f"older one; they took {int(given.isin(skipped).sum()):,} places."
            if skipped
            else "*Duplicates = skip* would have changed nothing: no two have the same outcome and words."
        )
    )
    _groups(case, found)


GROUP_TITLES = {
    "memory_id": "memory",
    "visits": "uses rewarded",
    "pools": "in pools",
    "uses": "given",
    "crowded_pools": "together in pools",
    "crowded_uses": "together in prompts",
}


def _groups(case: Case, found: pd.DataFrame) -> None:
    shown = found.head(GROUPS)
    intents = [case.memory(memory_id).intent for memory_id in shown["memory_id"]]
    columns = ["group", "memory_id", "q", *list(GROUP_TITLES)[1:], "intent"]
    rows = shown.assign(memory_id=shown["memory_id"].map(case.label), intent=intents)[columns]
    alt = "Groups of near-duplicates with their q and uses"
    show_table(rows.rename(columns=GROUP_TITLES), "copies", alt, signs=("q",))
    st.caption("Together: in how many steps at least two of the group took places that others could have had.")


def _copies_of(case: Case, threshold: float) -> pd.DataFrame:
    return _copies(case.bank, case.bank.state, case.run, threshold, uses_of(case))


@st.cache_data(max_entries=8, show_spinner="Comparing every memory with every other …")
def _copies(_bank: MemoryBank, state: str, run: str, threshold: float, _uses: pd.DataFrame) -> pd.DataFrame:
    return copies(_bank.view(run), _uses, threshold)
