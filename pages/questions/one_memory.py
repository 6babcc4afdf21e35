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
from pages.shared.step_rows import chosen_step
from pages.shared.text import literal

WITHOUT = "q now without it"


def origin(case: Case, a: str) -> None:
    """Which rewards made A's q what it is?"""
    found = provenance(case.bank, case.run, a, as_of=case.place.step)
    if found is None:
        st.info("This run does not know this memory, so it has no q for it.")
        return
    st.markdown(literal(answers.origin(found, a, case.run)))
    if not found.contributions:
        return
    signs = {n: st.column_config.NumberColumn(n, format="%+.3f") for n in ("reward", "q before", "q after", WITHOUT)}
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
        {**signs, "share of q now": st.column_config.NumberColumn("share of q now", format="percent")},
    )
    if step is not None and st.button(f"Open step {step}", icon=":material/history:", key="origin_step"):
        places.go_to_steps(step=step)
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
