"""Batches of recall: everybody's progress, a form for a new one, and the way to one's own part."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from memrl_core.agent.preferences import load_preferences
from memrl_core.agent.run_parts import new_embedder
from memrl_core.analysis.people.rating_queue import ENVIRONMENT, LARGEST_WHOLE
from memrl_core.analysis.recall.pooling import DEPTH, agreement_in, done_steps, parts_of, recall_batch, recall_progress
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import LONGEST_BATCH_NAME, Batch
from memrl_core.bank.people.roles import Role
from memrl_core.numerals import counted, fixed, percent
from memrl_core.policies import usable_policies
from pages.shared import place as places
from pages.shared.models import embedders_at_hand
from pages.shared.person import person, within_role
from pages.shared.picture import show_table
from pages.shared.place import Place
from pages.shared.text import errors_shown, failure_kept, literal, minute
from pages.shared.work import working

ASKED = "recall_batch_asked"


def my_part(bank: MemoryBank, run: str = "") -> None:
    """In how many steps recall awaits the person's labels, with a button that opens the first; nothing where none."""
    mine = parts_of(bank, person(), run)
    labels = {batch.run: bank.judgements.standing(batch.run) for batch, _ in mine}
    # A step may be in the parts of two batches: it is one step to label.
    waiting = list(
        dict.fromkeys(
            (batch.run, step) for batch, step in mine if step not in done_steps(batch, person(), labels[batch.run])
        )
    )
    if not waiting:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="my_recall_part"):
        st.markdown(f"Recall awaits your labels in **{counted(len(waiting), 'step')}**.", width="content")
        if st.button("Label them", key="to_recall_batch", icon=":material/label:"):
            places.go(run=waiting[0][0], step=waiting[0][1])
            link = {**st.session_state["place"], "recall_view": "Label"}
            st.switch_page("pages/recall/page.py", query_params=link)


def batch_head(bank: MemoryBank, batch: Batch, about: str, given: str) -> None:
    """What a batch is, with a button that closes it; `given` is what its people give: ratings or labels."""
    with st.container(horizontal=True, vertical_alignment="center"):
        made = f"seed {batch.seed} · made by {batch.made_by}, {minute(batch.created)}"
        st.markdown(literal(f"{batch.name} · {about} · {made}"), width="stretch")
        st.button(
            "Close", key=f"close_{batch.id}", icon=":material/done_all:", type="tertiary",
            on_click=_close, args=(bank, batch.id),
            **within_role(bank, Role.MANAGE, help=f"It asks for no more {given}. Those that were given stay."),
        )  # fmt: skip


def _close(bank: MemoryBank, batch_id: str) -> None:
    with failure_kept():
        bank.write.batches.close(batch_id, person())


def recall_batch_row(bank: MemoryBank, batch: Batch) -> None:
    """Who labels a batch, how far each is, how far they agree; on gold items only for who is through."""
    steps, twice = {step for part in batch.parts.values() for step in part}, _doubled(batch)
    labels = bank.judgements.standing(batch.run)
    about = (
        f"recall of {counted(len(steps), 'step')}, {len(batch.grades):,} of them gold, {twice:,} labelled twice · "
        f"pooled over {', '.join(batch.methods)}"
    )
    batch_head(bank, batch, about, "labels")
    parts = recall_progress(batch, labels)
    labelling = any(part.rater == person() and part.done < part.steps for part in parts)
    rows = []
    for part in parts:
        row: dict[str, int | str] = {"rater": part.rater, "labelled": part.done, "of": part.steps}
        if not labelling:
            gold = part.gold
            known = gold.share is not None and gold.low is not None and gold.high is not None
            row |= {
                "gold labels": gold.n,
                "as is known": percent(gold.share or 0.0) if known else "–",
                "95 % interval": f"{percent(gold.low or 0.0)} – {percent(gold.high or 0.0)}" if known else "–",
            }
        rows.append(row)
    show_table(
        rows, f"batch_{batch.id}",
        "For each rater of the batch how many steps are labelled, and how often gold items were labelled as is known",
    )  # fmt: skip
    both = agreement_in(batch, labels)
    if both.share is not None:
        kappa = "" if both.kappa is None else f", κ {fixed(both.kappa)}"
        st.caption(
            f"Raters agree, relevant or not, on {percent(both.share)} of {both.steps_rated_by_two_or_more:,} memories "
            f"that two labelled{kappa}."
        )


def _doubled(batch: Batch) -> int:
    given = [step for part in batch.parts.values() for step in part]
    return len(given) - len(set(given))


def new_recall_batch(place: Place, known_people: Sequence[str]) -> None:
    """The form of a new batch; its pools are made with progress, then it is stored."""
    bank, run = place.bank, place.info.id
    methods = [name for name in usable_policies() if name not in ("none", place.info.policy)]
    with st.form("new_recall_batch", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.text_input(
                "Name of the batch", "recall", key="recall_batch_name", max_chars=LONGEST_BATCH_NAME, width=180
            )
            raters = st.multiselect(
                "Raters", known_people, key="recall_batch_raters", accept_new_options=True, placeholder="type names",
                width=300,
            )  # fmt: skip
            count = st.number_input("Steps at most", 1, 10_000, 40, key="recall_batch_count", width=130)
            double = st.number_input(
                "Labelled twice, %", 0, 100, 20, key="recall_batch_double", width=140,
                help="The share of steps that two of the raters get, so that it is known how far they agree.",
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom"):
            pooled_over = st.multiselect(
                "Pooled also over the methods", methods, [one for one in ("rag",) if one in methods],
                key="recall_batch_methods", width=340,
                help="Each decides every step again under its usual settings. The memories to grade are the first of "
                "each together with what the run itself considered, so that labels favour none.",
            )  # fmt: skip
            embedders = st.multiselect(
                "and over the embedders", [one for one in embedders_at_hand() if one != place.info.embedder],
                key="recall_batch_embedders", accept_new_options=True, placeholder="none", width=260,
            )  # fmt: skip
            depth = st.number_input("the first", 1, 50, DEPTH, key="recall_batch_depth", width=110)
            order = st.selectbox("Order of memories", ["drawn", "as ranked"], key="recall_batch_order", width=150)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            share = st.number_input(
                "Gold items, %", 0, 100, 10, key="recall_batch_gold", width=130,
                help="Steps of which it is known what should come. Raters cannot tell them from the others.",
            )  # fmt: skip
            known = st.selectbox(
                "known by the labels of", [ENVIRONMENT, *known_people], key="recall_batch_known", width=200,
                format_func=lambda who: who or "the environment",
            )  # fmt: skip
            seed = st.number_input("Seed", 0, LARGEST_WHOLE, 0, key="recall_batch_seed", width=120)
        if st.form_submit_button("Make the recall batch", type="primary", icon=":material/assignment_add:"):
            st.session_state[ASKED] = st.session_state.get(ASKED, 0) + 1
            st.session_state[f"{ASKED}_open"] = True
    if not st.session_state.get(f"{ASKED}_open"):
        return
    with errors_shown():
        made = working(
            "recall_batch", f"{bank.handle} {run} {st.session_state[ASKED]}",
            lambda report, stop: recall_batch(
                bank, run, name, raters, count=int(count), doubled=double / 100, gold_share=share / 100, known=known,
                methods=pooled_over, embedders=[new_embedder(one, load_preferences()) for one in embedders],
                depth=int(depth), as_ranked=order == "as ranked", seed=int(seed), on_progress=report, cancelled=stop,
            ),
            "steps",
        )  # fmt: skip
        if made is not None:
            st.session_state[f"{ASKED}_open"] = False
            bank.write.batches.make(made, person())
            st.rerun()
