"""Questions about one memory of a run."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis import answers
from memrl_core.analysis.explain import signed
from memrl_core.analysis.neighbourhoods import neighbourhoods, opposed
from memrl_core.analysis.provenance import provenance
from memrl_core.figures.utility import history_picture
from pages.questions.case import Case, uses_of
from pages.shared import place as places
from pages.shared.picture import show
from pages.shared.text import literal


def origin(case: Case, a: str) -> None:
    """Which rewards made A's q what it is?"""
    found = provenance(case.bank, case.run, a, as_of=case.place.step)
    if found is None:
        st.info("This run does not know this memory, so it has no q for it.")
        return
    st.markdown(literal(answers.origin(found, a, case.run)))
    if not found.contributions:
        return
    chosen = st.dataframe(
        [
            {
                "step": c.step,
                "reward": c.value,
                "by": c.rater or c.source,
                "q before": c.before,
                "q after": c.after,
                "share of q now": c.share,
                "q now without it": c.without,
            }
            for c in found.contributions
        ],
        key=f"origin_{a}",
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        column_config={
            **{n: st.column_config.NumberColumn(n, format="%+.3f") for n in ("reward", "q before", "q after")},
            "q now without it": st.column_config.NumberColumn("q now without it", format="%+.3f"),
            "share of q now": st.column_config.NumberColumn("share of q now", format="percent"),
        },
        alt="Every reward that moved this q",
    )["selection"]["rows"]
    steps = [c.step for c in found.contributions]
    if chosen and chosen[0] < len(steps):
        step = steps[chosen[0]]
        if st.button(f"Open step {step}", icon=":material/history:", key="origin_step"):
            places.go_to_steps(step=step)
    else:
        st.caption("Choose a row to open its step.")
    show(
        history_picture(case.bank.history(case.run, a, as_of=case.place.step), case.recorded.model_dump(), a, case.run),
        "origin_history",
    )


def served(case: Case, a: str) -> None:
    """Is A good in general, or only for such intents?"""
    found = neighbourhoods(case.bank, case.run, a, uses_of(case))
    if not found:
        st.info("This memory was never given to the model in a step whose embedding was stored.")
        return
    middle = case.recorded.q_midpoint
    if opposed(found, middle):
        st.markdown("**One q hides two stories**: it helps in one neighbourhood of intents and harms in another.")
    elif len(found) == 1:
        st.markdown("It was only used for intents of one neighbourhood: whether it helps elsewhere is not known.")
    else:
        st.markdown(f"Its rewards point the same way in all {len(found)} neighbourhoods of intents it was used for.")
    st.dataframe(
        [
            {
                "intents like": n.intent,
                "uses": n.uses,
                "mean reward": None if n.mean_reward is None else signed(n.mean_reward),
                "successes": f"{n.successes} of {n.rated}",
                "similarity": n.similarity,
                "steps": ", ".join(map(str, n.steps[:12])) + (" …" if len(n.steps) > 12 else ""),
            }
            for n in found
        ],
        key=f"served_{a}",
        hide_index=True,
        column_config={
            "intents like": st.column_config.TextColumn("intents like", width="large"),
            "similarity": st.column_config.NumberColumn("similarity", format="%.3f"),
        },
        alt="The neighbourhoods of intents that this memory served, with their rewards",
    )
    st.caption("A neighbourhood holds intents within a cosine distance of 0.5 of one another on average.")
