"""Work shared out among raters: a new batch, and how far everybody is with theirs."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.people.rating_queue import (
    ENVIRONMENT,
    LARGEST_WHOLE,
    QueueFilter,
    RatedStep,
    assigned_to,
    batch_progress,
    drawn_batch,
    queue,
)
from memrl_core.analysis.run.metrics import Rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import LONGEST_BATCH_NAME, Batch
from memrl_core.bank.people.roles import Role
from memrl_core.numerals import percent
from pages.shared.person import allowed, person
from pages.shared.picture import show_table
from pages.shared.reward_queue import SHOWN, show_queue, wanted
from pages.shared.text import errors_shown, failure_kept, literal

FROM = ("unrated", "wanting", "disputed", "influential", "all")


def batches(bank: MemoryBank, run: str, facts: list[RatedStep], bounds: tuple[float, float]) -> None:
    """The open batches of a run with everybody's progress; below, a form for a new one."""
    st.subheader("Batches", anchor=False)
    every = [batch for batch in bank.batches.of(run) if not batch.closed]
    if not every:
        st.caption(
            "No batch is open. A batch gives each of several raters a queue of her own, with gold items if wanted."
        )
    for batch in reversed(every):
        _batch(bank, batch, facts, sum(bounds) / 2)
    if assigned_to(every, person()):
        st.button(
            "My part of them",
            icon=":material/assignment_ind:",
            key="to_batch",
            on_click=show_queue,
            args=("batch", run),
        )
    if allowed(bank, Role.MANAGE):
        with st.expander("New batch", icon=":material/add:"):
            _new(bank, run, facts, bounds)


def _batch(bank: MemoryBank, batch: Batch, facts: list[RatedStep], middle: float) -> None:
    steps = {step for part in batch.parts.values() for step in part}
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            literal(
                f"{batch.name} · {len(steps):,} steps, {len(batch.gold):,} of them gold · {batch.overlap} ratings each "
                f"· seed {batch.seed} · made by {batch.made_by}, {batch.created[:16].replace('T', ' ')} UTC"
            ),
            width="stretch",
        )
        st.button(
            "Close", key=f"close_{batch.id}", icon=":material/done_all:", type="tertiary",
            disabled=not allowed(bank, Role.MANAGE), on_click=_close, args=(bank, batch.id),
            help="It asks for no more ratings. Those that were given stay.",
        )  # fmt: skip
    parts = batch_progress(batch, facts, middle)
    rating = any(part.rater == person() and part.done < part.steps for part in parts)
    show_table(
        [
            {"rater": part.rater, "rated": part.done, "of": part.steps, **({} if rating else _on_gold(part.gold))}
            for part in parts
        ],
        f"batch_{batch.id}",
        "For each rater of the batch how much is rated, and how often gold items were judged as is known",
    )


def _on_gold(gold: Rate) -> dict[str, int | str]:
    """What a rater who is through with her part met; a number that moves while she rates would tell the gold items."""
    if gold.share is None or gold.low is None or gold.high is None:
        return {"gold items rated": 0, "judged as known": "–", "95 % interval": "–"}
    return {
        "gold items rated": gold.n,
        "judged as known": percent(gold.share),
        "95 % interval": f"{percent(gold.low)} – {percent(gold.high)}",
    }


def _new(bank: MemoryBank, run: str, facts: list[RatedStep], bounds: tuple[float, float]) -> None:
    people = sorted({rater for step in facts for rater in step.people} | set(bank.people.roles()) - {"*"})
    with st.form("new_batch", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.text_input(
                "Name of the batch", "batch", key="batch_name", max_chars=LONGEST_BATCH_NAME, width=180
            )
            raters = st.multiselect(
                "Raters", people, key="batch_raters", accept_new_options=True, placeholder="type names", width=300
            )
            overlap = st.number_input(
                "Ratings of a step", 1, 20, 1, key="batch_overlap", width=140,
                help="How many of the raters get each step; only those who have not rated it.",
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom"):
            show = st.selectbox("Steps from", FROM, format_func=SHOWN.__getitem__, key="batch_from", width=200)
            count = st.number_input("At most", 1, 100_000, 40, key="batch_count", width=120)
            share = st.number_input(
                "Gold items, %", 0, 100, 10, key="batch_gold", width=130,
                help="Steps whose reward is known, which raters cannot tell. How often each is right is counted here.",
            )  # fmt: skip
            known = st.selectbox(
                "known by the rewards of", [ENVIRONMENT, *people], key="batch_known", width=200,
                format_func=lambda who: who or "the environment",
            )  # fmt: skip
            seed = st.number_input("Seed", 0, LARGEST_WHOLE, 0, key="batch_seed", width=120)
        if not st.form_submit_button("Make the batch", type="primary", icon=":material/assignment_add:"):
            return
    with errors_shown():
        steps = queue(facts, QueueFilter(show=show, run=run), "", wanted(bank), {run: bounds})
        batch = drawn_batch(
            name, steps, raters, count=int(count), overlap=int(overlap), gold_share=share / 100, known=known,
            seed=int(seed),
        )  # fmt: skip
        bank.batches.make(batch, person())
        st.rerun()


def _close(bank: MemoryBank, batch_id: str) -> None:
    with failure_kept():
        bank.batches.close(batch_id, person())
