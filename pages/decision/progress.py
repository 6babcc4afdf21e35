"""Questions about how a run went: transfer, forgetting, steps without memory, and whether its bank is sound."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from memrl_core.analysis.decision import answers
from memrl_core.analysis.memory.uses import attempts
from memrl_core.analysis.run.over_time import fallback, forgetting, losses, transfer
from memrl_core.bank import MemoryBank
from memrl_core.bank.integrity import check
from memrl_core.numerals import fixed, percent
from pages.decision.case import Case, uses_of
from pages.decision.relations import said
from pages.decision.step_rows import chosen_step
from pages.shared import place as places
from pages.shared.table import in_percent, written
from pages.shared.text import literal

SHOWN = 200


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
    st.dataframe(
        written(found, share=percent, similarity=fixed, success=percent, low=percent, high=percent),
        key="transfer",
        hide_index=True,
        column_config={
            "origin": "memory from",
            "share": "share of uses",
            "similarity": "mean similarity",
            "low": "from",
            "high": "to",
        },
        alt="Uses by epoch and by where the memory came from, with the successes of their steps",
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
    st.dataframe(
        in_percent(
            [
                {
                    "epoch": e.epoch,
                    "attempts": e.attempts,
                    "failures": e.failures,
                    "solved the time before": e.solved_last,
                    "of these failed now": e.lost_last,
                    "share of failures": e.of_failures(),
                    "share of solved": e.of_solved(),
                }
                for e in by_epoch
            ],
            "share of failures",
            "share of solved",
        ),
        key="forgetting",
        hide_index=True,
        alt="Forgetting by epoch",
    )
    if not lost:
        return
    step = chosen_step(
        [
            {
                "task": one.task,
                "solved in step": one.solved_step,
                "failed in step": one.failed_step,
                "no longer given": "not recorded" if one.left is None else answers.names(one.left, case.run),
                "given instead": "not recorded" if one.entered is None else answers.names(one.entered, case.run),
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
        f"{literal(said(found.empty))}; with memories: {literal(said(found.filled))}."
    )
    if not found.sizes.empty:
        st.dataframe(
            in_percent(found.sizes, "success", "low", "high"),
            key="pool_sizes",
            hide_index=True,
            column_config={"pool": "pool size", "low": "from", "high": "to"},
            alt="Steps and successes by the size of the pool",
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
