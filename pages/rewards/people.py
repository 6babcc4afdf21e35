"""Who rates here, how far they agree, and where they do not."""

from __future__ import annotations

import streamlit as st

from memrl_core.analysis.people.agreement import Agreement, agreement, disagreements
from memrl_core.analysis.people.rating_queue import RatedStep, facts_of
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import NEWCOMERS, Role
from memrl_core.errors import MemRLError
from memrl_core.numerals import fixed, percent, signed
from pages.rewards.batches import batches
from pages.shared.person import MAY, allowed, person
from pages.shared.picture import show_table
from pages.shared.place import Place
from pages.shared.reward_queue import show_queue
from pages.shared.text import errors_shown, literal

ABOUT = {
    Role.LOOK: "see everything, change nothing",
    Role.RATE: "give and take back their own rewards, pin notes",
    Role.MANAGE: "change runs, memories, settings, roles and others' rewards too",
}


def people(place: Place) -> None:
    """Agreement of the raters of a run, the steps they disagree on, the batches, and everybody's role."""
    bank = place.bank
    assert place.run is not None
    run = place.run.id
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
    batches(bank, run, list(steps.values()), (low, high))
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
        st.markdown(f"**{literal(note.rater)}** {literal(note.created[:16].replace('T', ' '))} UTC")
        st.text(note.reason)
    with st.form("comment", border=False, clear_on_submit=True):
        text = st.text_area("Why do you see it so?", key="comment_text", max_chars=4000, height=70)
        if not st.form_submit_button("Comment", icon=":material/comment:", disabled=not allowed(bank, Role.RATE)):
            return
    with errors_shown():
        bank.notes.pin(run, step.step, text, person())
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
    may = allowed(bank, Role.MANAGE)
    with (
        st.form("assign_role", border=False, clear_on_submit=True),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        everybody = st.selectbox("For", ["a person", "everybody else"], key="role_for", width=160)
        name = st.text_input("Name", key="role_name", max_chars=80, width=220)
        role = st.selectbox("may", list(Role), 1, key="role_role", width=140)
        reason = st.text_input("Reason (optional)", key="role_reason", max_chars=500)
        assigned = st.form_submit_button("Assign", icon=":material/manage_accounts:", disabled=not may)
    if not may:
        st.caption("Only someone who may manage this bank assigns roles.")
    if assigned:
        try:
            if everybody == "a person" and not name.strip():
                st.error("Whose role? Type a name.")
                return
            bank.people.assign(NEWCOMERS if everybody != "a person" else name, Role(str(role)), person(), reason)
        except MemRLError as error:
            st.error(literal(str(error)))
            return
        st.rerun()
