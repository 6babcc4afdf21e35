"""The queue of steps that await a person's reward: what is in it, where the person is, and how to move."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from memrl_core.analysis.people.rating_queue import (
    LARGEST_WHOLE,
    Item,
    QueueFilter,
    RatedStep,
    RatingSession,
    Show,
    assigned_to,
    facts_of,
    queue,
    ratings_wanted,
)
from memrl_core.bank import MemoryBank
from memrl_core.errors import MemRLError
from memrl_core.records import LedgerEvent
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.place import Place
from pages.shared.text import literal

SHOWN = {
    "awaiting": "Not rated by me",
    "batch": "Assigned to me",
    "wanting": "Wanting more ratings",
    "unrated": "Rated by nobody",
    "influential": "Most influential",
    "disputed": "In dispute",
    "random": "Random sample",
    "all": "All steps",
}
EMPTY = {
    "batch": "You have rated all that was assigned to you. “Not rated by me” shows what else there is.",
    "wanting": "All that this filter lets in ({steps}) has the ratings it wants, or yours.",
    "unrated": "Somebody has rated all that this filter lets in: {steps}. “Not rated by me” is where to add yours.",
    "disputed": "Nobody disagrees: of {steps} none has ratings on both sides of the middle, or half the scale apart.",
    "random": "You have rated all of this sample. Another seed, under More, draws another one.",
}
UNASSIGNED = "No open batch has steps for {name}. “Not rated by me” shows what there is to rate."
ALL_MINE = "You have rated all that this filter lets in: {steps}. “All steps” shows them again."
NOTHING = "No step has ended that this filter lets in. Take a filter away, or run tasks on Step."
Give = Callable[[], Sequence[LedgerEvent]]
FILTER, SESSION, FACTS, SAVED = "queue_filter", "rating_session", "rating_session_facts", "last_saved"
MESSAGE = "queue_message"


def asked_filter() -> QueueFilter:
    """The filter of this session; at first what the link says."""
    if FILTER not in st.session_state:
        linked, wrong = QueueFilter.from_query(
            {name: value for name, value in st.query_params.items() if name != "run"}
        )
        only = st.query_params.get("only", "")
        st.session_state[FILTER] = linked.model_copy(update={"run": only}) if only else linked
        for sentence in wrong:
            places.notice(sentence)
    chosen: QueueFilter = st.session_state[FILTER]
    return chosen


def show_queue(show: Show, run: str) -> None:
    """Open the queue of some steps of a run, whichever view is shown now."""
    st.session_state[FILTER] = QueueFilter(show=show, run=run)
    st.session_state["queue_show"], st.session_state["queue_run"] = show, run
    st.session_state["rewards_view"] = "Queue"


def offer_batch(bank: MemoryBank) -> None:
    """Begin with what is assigned to the person, where they have asked for no other queue; once for each batch.

    Also where they have rated all of it: they find that they are done, and the way to their result on gold items.
    """
    offered: set[str] = st.session_state.setdefault("batches_offered", set())
    opened = (batch for batch in bank.batches.of() if not batch.closed and batch.kind == "reward")
    mine = [batch for batch in opened if person() in batch.parts]
    new = [batch for batch in mine if f"{batch.id}·{person()}" not in offered]
    offered.update(f"{batch.id}·{person()}" for batch in mine)
    if new and asked_filter().show == "awaiting":
        batch_filter = asked_filter().model_copy(update={"show": "batch"})
        st.session_state[FILTER], st.session_state["queue_show"] = batch_filter, "batch"


def link_of(chosen: QueueFilter) -> dict[str, str]:
    """The filter as it stands in the address; its run is called "only" there, beside the run that is looked at."""
    query = chosen.to_query()
    only = query.pop("run", "")
    return {**query, **({"only": only} if only else {})}


def filters(bank: MemoryBank) -> QueueFilter:
    """Which steps, of which runs, under which policy, from which days; drawn into the row at hand."""
    chosen = asked_filter()
    st.session_state.setdefault("queue_show", chosen.show)
    show = st.selectbox("Steps", list(SHOWN), format_func=SHOWN.__getitem__, key="queue_show", width=230)
    runs = ["", *(info.id for info in reversed(bank.runs()))]
    if st.session_state.setdefault("queue_run", chosen.run) not in runs:
        st.session_state["queue_run"] = ""
    run = st.selectbox(
        "of run",
        runs,
        format_func=lambda name: name or "every run",
        key="queue_run",
        width=200,
    )
    with st.popover("More", icon=":material/filter_list:"):
        policies = ["", *sorted({info.policy for info in bank.runs()})]
        policy = st.selectbox(
            "Policy",
            policies,
            policies.index(chosen.policy) if chosen.policy in policies else 0,
            format_func=lambda name: name or "every policy",
            key="queue_policy",
        )
        since = st.date_input("From (UTC)", chosen.since, key="queue_since")
        until = st.date_input("To (UTC)", chosen.until, key="queue_until")
        sample = st.number_input("Sample size", 1, 100_000, chosen.sample, key="queue_sample")
        seed = st.number_input("Seed of the sample", 0, LARGEST_WHOLE, chosen.seed, key="queue_seed")
    for what, asked, there in (("run", chosen.run, runs), ("policy", chosen.policy, policies)):
        if asked not in there:
            places.notice(f"This bank has no {what} “{asked[:80]}”, so the steps of every {what} are shown.")
    found = QueueFilter(
        show=show, run=run, policy=policy, since=since or None, until=until or None, sample=int(sample), seed=int(seed)
    )
    st.session_state[FILTER] = found
    return found


def wanted(bank: MemoryBank) -> dict[str, int]:
    """How many people should rate a step of each run."""
    facts = known_facts(bank)
    return {info.id: ratings_wanted(facts, bank.ratings.scales(info.id).ratings_wanted) for info in bank.runs()}


def session_of(place: Place, chosen: QueueFilter, what: str, waiting: Callable[[], tuple[Any, ...]]) -> RatingSession:
    """The person's way through a queue of `what`; begun anew when they ask for another or go by another name.

    What others rate meanwhile is taken in, so that nobody does what is done.
    """
    asked = (place.bank.handle, person(), chosen, what)
    known = st.session_state.get(SESSION)
    if known is None or known[0] != asked:
        session = RatingSession(waiting())
        linked = st.session_state.get("place", {})
        at = (linked.get("run", ""), int(linked["step"])) if "step" in linked else None
        if at in session.items:
            session.go_to(at)
        known = asked, session
        st.session_state[SESSION] = known
        st.session_state[FACTS] = place.bank.facts
        st.session_state.pop(SAVED, None)
    elif st.session_state.get(FACTS) != place.bank.facts:
        if new := known[1].follow(waiting()):
            st.session_state[MESSAGE] = f"{new} more to rate came in: they wait at the end."
        st.session_state[FACTS] = place.bank.facts
    return known[1]


def known_facts(bank: MemoryBank) -> list[RatedStep]:
    """Every step with who has rated it, read once for all sessions until something is appended."""
    return _facts(bank.state, bank)


@st.cache_resource(max_entries=4, show_spinner=False)
def _facts(state: str, _bank: MemoryBank) -> list[RatedStep]:
    return facts_of(_bank)


def waiting_items(bank: MemoryBank, chosen: QueueFilter) -> tuple[Item, ...]:
    """The queue as it is now."""
    return tuple((step.run, step.step) for step in _queue(bank, chosen))


def _queue(bank: MemoryBank, chosen: QueueFilter) -> list[RatedStep]:
    bounds = {info.id: bank.ratings.bounds(info.id, bank.next_step(info.id)) for info in bank.runs()}
    wants = wanted(bank) if chosen.show == "wanting" else {}
    assigned = assigned_to(bank.batches.of(), person()) if chosen.show == "batch" else ()
    return queue(known_facts(bank), chosen, person(), wants, bounds, assigned)


def why_empty(bank: MemoryBank, chosen: QueueFilter) -> str:
    """Why no step is in the queue, and what brings some in."""
    if chosen.show == "batch" and not assigned_to(bank.batches.of(), person()):
        return literal(UNASSIGNED.format(name=person()))
    let_in = len(_queue(bank, chosen.model_copy(update={"show": "all"})))
    steps = "1 step" if let_in == 1 else f"{let_in:,} steps"
    return EMPTY.get(chosen.show, ALL_MINE).format(steps=steps) if let_in else NOTHING


def save(bank: MemoryBank, session: RatingSession, rated: Any, give: Give, go_on: bool = True) -> bool:
    """Save what a click on `rated` gave before anything is shown, and go on; True when it was saved."""
    if session.too_soon(rated, time.monotonic()):
        st.session_state[MESSAGE] = "That key came before you could have read this answer: it was not counted."
        return False
    if go_on and rated != session.item:
        st.session_state[MESSAGE] = (
            "That key was for an answer that has gone: it was not counted. Go back to it with K."
        )
        return False
    known, clock = bank.facts, bank.clock
    try:
        events = give()
    except MemRLError as error:
        st.session_state[MESSAGE] = f"{error} Your reward was not saved: press its key again."
        return False
    st.session_state[SAVED] = tuple(event.id for event in events)
    if go_on:
        session.has_rated(rated, datetime.now(UTC))
    # What others gave meanwhile came in with the same look at the bank, and is still to be taken in.
    if st.session_state.get(FACTS) == known and bank.facts == known + sum(event.seq > clock for event in events):
        st.session_state[FACTS] = bank.facts
    return True


def show_message() -> None:
    """What is to be said once, about the last key."""
    if sentence := st.session_state.pop(MESSAGE, None):
        st.info(literal(sentence))


def keep_in_link(step: Any, chosen: QueueFilter) -> None:
    """Let the address, and the other pages, point to the step looked at."""
    stored: Mapping[str, str] = st.session_state.get("place", {})
    if (stored.get("run"), stored.get("step")) != (step[0], str(step[1])):
        places.go(run=step[0], step=step[1])
        st.session_state.pop("moved", None)
    wanted_link = {**st.session_state["place"], "view": "Queue", **link_of(chosen)}
    if st.query_params.to_dict() != wanted_link:
        st.query_params.from_dict(wanted_link)
