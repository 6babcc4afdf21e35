"""Questions about one memory of a run."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.decision import findings
from memrl_core.analysis.memory.provenance import provenance
from memrl_core.analysis.memory.relations import neighbourhoods, opposed
from memrl_core.figures.memory.utility import history_picture
from memrl_core.numerals import fixed, signed
from pages.decision.case import Case, chosen_step, uses_of
from pages.shared import place as places
from pages.shared.picture import show, show_table
from pages.shared.text import literal

WITHOUT = "q now without it"


def origin(case: Case, a: str) -> None:
    """Which rewards made A's q what it is?"""
    found = provenance(case.bank, case.run, a, as_of=case.place.step)
    if found is None:
        st.info("This run does not know this memory, so it has no q for it.")
        return
    history = case.bank.history(case.run, a, as_of=case.place.step)
    st.markdown(literal(findings.origin(found, a, case.run, brought=history[0].visits)))
    if history[0].visits:
        _elsewhere(case, a)
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
                "share of q now": c.share,
                WITHOUT: c.without,
            }
            for c in found.contributions
        ],
        [c.step for c in found.contributions],
        f"origin_{a}",
        "Every reward that moved this q",
        signs=("reward", "q before", "q after", WITHOUT),
        shares=("share of q now",),
    )
    if step is not None and st.button(f"Open step {step}", icon=":material/history:", key="origin_step"):
        places.go_to_steps(step=step)
    show(history_picture(history, case.recorded.model_dump(), a, case.run), "origin_history")


def _elsewhere(case: Case, a: str) -> None:
    others = [info.id for info in case.bank.runs() if info.id != case.run and len(case.bank.history(info.id, a)) > 1]
    if others:
        st.caption(literal(f"Its earlier rewards stand in this bank's run {', '.join(others[:5])}: choose it above."))


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
