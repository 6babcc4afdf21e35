"""Who rates here, how far they agree, where they do not, and work shared out among them in batches."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.people.agreement import Agreement, agreement, disagreements
from memrl_core.analysis.people.rating_queue import (
    ENVIRONMENT,
    LARGEST_WHOLE,
    QueueFilter,
    RatedStep,
    assigned_to,
    batch_progress,
    drawn_batch,
    facts_of,
    queue,
)
from memrl_core.analysis.run.metrics import Rate
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.batches import LONGEST_BATCH_NAME, Batch
from memrl_core.bank.people.roles import NEWCOMERS, Role
from memrl_core.numerals import fixed, percent, signed
from pages.rewards.queue import SHOWN, show_queue, wanted
from pages.rewards.recall_batches import batch_head, my_part, new_recall_batch, recall_batch_row
from pages.shared.person import MAY, allowed, person, within_role
from pages.shared.picture import show_table
from pages.shared.place import Place
from pages.shared.text import errors_shown, literal, minute

ABOUT = {
    Role.LOOK: "see everything, change nothing",
    Role.RATE: "give and take back their own rewards, pin notes",
    Role.MANAGE: "change runs, memories, settings, roles and others' rewards too",
}


def people(place: Place) -> None:
    """Agreement of the raters of a run, the steps they disagree on, the batches, and everybody's role."""
    bank = place.bank
    run = place.info.id
    low, high = bank.ratings.bounds(run, bank.next_step(run))
    middle = (low + high) / 2
    steps = {fact.id: fact for fact in facts_of(bank) if fact.run == run}
    given = {step_id: fact.people for step_id, fact in steps.items() if fact.people}
    found = agreement(given, middle)
    st.subheader(f"Agreement in {literal(run)}", anchor=False)
    if not given:
        st.info("Nobody has rated a step of this run yet. The queue shows what waits.")
    else:
        _measures(found, len(given))
        if found.pairs:
            show_table(
                [
                    {
                        "rater": pair.first,
                        "and": pair.second,
                        "steps both rated": pair.shared_steps,
                        "same judgement": percent(pair.same / pair.shared_steps),
                        "Cohen's κ": "–" if pair.kappa is None else fixed(pair.kappa),
                    }
                    for pair in found.pairs
                ],
                "rater_pairs",
                "For each two raters, how many steps both rated and how far they agree",
            )
        apart = disagreements(given, middle, (high - low) / 2)
        st.markdown(
            f"**{len(apart):,} of {found.steps_rated_by_two_or_more}** steps that two or more rated are in dispute."
        )
        if apart:
            show_table(
                [
                    {
                        "step": steps[one.step_id].step,
                        "task": steps[one.step_id].task,
                        "apart": fixed(one.range),
                        "ratings": ", ".join(f"{who} {signed(value)}" for who, value in one.ratings.items()),
                    }
                    for one in apart
                ],
                "disputed",
                "The steps in dispute, the widest first",
            )
            st.button(
                "Look at them in the queue",
                icon=":material/balance:",
                key="to_disputes",
                on_click=show_queue,
                args=("disputed", run),
            )
            _comments(bank, run, [steps[one.step_id] for one in apart])
    st.divider()
    batches(place, list(steps.values()), (low, high))
    st.divider()
    _roles(bank)


def _measures(found: Agreement, rated: int) -> None:
    with st.container(horizontal=True, gap="large", key="agreement"):
        st.metric("Steps rated", rated, width="content")
        st.metric("By two or more", found.steps_rated_by_two_or_more, width="content")
        st.metric("Same judgement", "–" if found.share is None else percent(found.share), width="content")
        if len(found.raters) <= 2:
            st.metric("Cohen's κ", "–" if found.kappa is None else fixed(found.kappa), width="content")
        st.metric("Krippendorff's α", "–" if found.alpha is None else fixed(found.alpha), width="content")
    if found.note:
        st.caption(literal(found.note))
    st.caption(
        "A judgement is good, neutral or bad, by the middle of r− and r+. κ is over the judgements of two; α is over "
        "the rewards themselves, of any number (interval level). 1 is perfect, 0 is what chance would give."
    )


def _comments(bank: MemoryBank, run: str, disputed: list[RatedStep]) -> None:
    """What people have said about a step in dispute, as notes of the step, and a field for more."""
    step = st.selectbox(
        "Comments on", disputed, format_func=lambda one: f"step {one.step} · {one.task}", key="comments_on",
        width=360,
    )  # fmt: skip
    for note in bank.notes.standing(run, step.step):
        st.markdown(f"**{literal(note.rater)}** {literal(minute(note.created))}")
        st.text(note.reason)
    with st.form("comment", border=False, clear_on_submit=True):
        text = st.text_area("Why do you see it so?", key="comment_text", max_chars=4000, height=70)
        if not st.form_submit_button("Comment", icon=":material/comment:", **within_role(bank, Role.RATE)):
            return
    with errors_shown():
        bank.write.notes.pin(run, step.step, text, person())
        st.rerun()


def _roles(bank: MemoryBank) -> None:
    st.subheader("Roles", anchor=False)
    roles = bank.people.roles()
    show_table(
        [
            {"person": "everybody else" if name == NEWCOMERS else name, "may": role, "that is": ABOUT[role]}
            for name, role in {**{NEWCOMERS: Role.MANAGE}, **roles}.items()
        ],
        "roles",
        "Each person's role in this bank",
    )
    st.caption(literal(f"You are {person()} and {MAY[bank.people.role_of(person())]}."))
    with (
        st.form("assign_role", border=False, clear_on_submit=True),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        everybody = st.selectbox("For", ["a person", "everybody else"], key="role_for", width=160)
        name = st.text_input("Name", key="role_name", max_chars=80, width=220)
        role = st.selectbox("may", list(Role), 1, key="role_role", width=140)
        reason = st.text_input("Reason (optional)", key="role_reason", max_chars=500)
        assigned = st.form_submit_button("Assign", icon=":material/manage_accounts:", **within_role(bank, Role.MANAGE))
    if not allowed(bank, Role.MANAGE):
        st.caption("Only someone who may manage this bank assigns roles.")
    if assigned:
        if everybody == "a person" and not name.strip():
            st.error("Whose role? Type a name.")
            return
        with errors_shown():
            bank.write.people.assign(NEWCOMERS if everybody != "a person" else name, Role(str(role)), person(), reason)
            st.rerun()


FROM = ("unrated", "wanting", "disputed", "influential", "all")


def batches(place: Place, facts: list[RatedStep], bounds: tuple[float, float]) -> None:
    """The open batches of a run with everybody's progress; below, a form for a new one of either kind."""
    bank, run = place.bank, place.info.id
    st.subheader("Batches", anchor=False)
    every = [batch for batch in bank.batches.of(run) if not batch.closed]
    if not every:
        st.caption(
            "No batch of this run is open. A batch gives each of several raters a queue of her own, with gold items if "
            "wanted: of answers to reward, or of recall to label."
        )
    for batch in reversed(every):
        if batch.kind == "recall":
            recall_batch_row(bank, batch)
        else:
            _batch(bank, batch, facts, sum(bounds) / 2)
    my_part(bank, run)
    if assigned_to(every, person()):
        st.button(
            "My part of them",
            icon=":material/assignment_ind:",
            key="to_batch",
            on_click=show_queue,
            args=("batch", run),
        )
    if allowed(bank, Role.MANAGE):
        people = sorted({rater for step in facts for rater in step.people} | set(bank.people.roles()) - {"*"})
        with st.expander("New batch", icon=":material/add:"):
            _new(bank, run, facts, people, bounds)
        with st.expander("New batch of recall", icon=":material/add:", key="recall_batch"):
            labelled_by = {one.rater for one in bank.judgements.standing(run) if one.source == "person"}
            new_recall_batch(place, sorted({*people, *labelled_by}))


def _batch(bank: MemoryBank, batch: Batch, facts: list[RatedStep], middle: float) -> None:
    steps = {step for part in batch.parts.values() for step in part}
    about = f"{len(steps):,} steps, {len(batch.gold):,} of them gold · {batch.overlap} ratings each"
    batch_head(bank, batch, about, "ratings")
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


def _new(bank: MemoryBank, run: str, facts: list[RatedStep], people: list[str], bounds: tuple[float, float]) -> None:
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
        bank.write.batches.make(batch, person())
        st.rerun()
