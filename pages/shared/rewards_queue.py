"""The queue of steps that await a person's reward: what is in it, where the person is, and how to move."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from memrl_core.analysis.rated_steps import facts_of
from memrl_core.analysis.rating_queue import QueueFilter, duration_words, queue
from memrl_core.analysis.sitting import Place as StepPlace
from memrl_core.analysis.sitting import Sitting
from memrl_core.bank import MemoryBank
from memrl_core.bank.deeds import Deed
from memrl_core.errors import MemRLError
from memrl_core.records import EventKind, LedgerEvent
from pages.shared import place as places
from pages.shared.person import person
from pages.shared.place import Place
from pages.shared.text import literal

SHOWN = {
    "awaiting": "Awaiting me",
    "unrated": "Rated by nobody",
    "influential": "Most influential",
    "disagreeing": "Disagreeing",
    "random": "Random sample",
    "all": "All steps",
}
EMPTY = {
    "awaiting": "Nothing awaits you here: every step has the ratings it needs, or you have rated it.",
    "unrated": "Somebody has rated every step.",
    "influential": "Nothing awaits you here, so there is nothing to rate first.",
    "disagreeing": "Nobody disagrees: no step has ratings on both sides of the middle, or half the scale apart.",
    "random": "Every step of this sample is rated. Another seed draws another sample.",
    "all": "No step has ended yet.",
}
Give = Callable[[], Sequence[LedgerEvent]]
FILTER, SITTING, FACTS, SAVED, FAILED = "queue_filter", "sitting", "sitting_facts", "last_saved", "rating_failed"


def asked_filter() -> QueueFilter:
    """The filter of this session; at first what the link says."""
    if FILTER not in st.session_state:
        chosen, wrong = QueueFilter.from_query(
            {name: value for name, value in st.query_params.items() if name != "run"}
        )
        only = st.query_params.get("only", "")
        st.session_state[FILTER] = chosen.model_copy(update={"run": only}) if only else chosen
        for sentence in wrong:
            st.toast(literal(sentence), icon=":material/link_off:", duration="long")
    return st.session_state[FILTER]


def link_of(chosen: QueueFilter) -> dict[str, str]:
    """The filter as it stands in the address; its run is called "only" there, beside the run that is looked at."""
    query = chosen.to_query()
    only = query.pop("run", "")
    return {**query, **({"only": only} if only else {})}


def filters(bank: MemoryBank) -> QueueFilter:
    """Which steps, of which runs, under which policy, from which days; drawn into the row at hand."""
    chosen = asked_filter()
    show = st.selectbox(
        "Steps",
        list(SHOWN),
        list(SHOWN).index(chosen.show),
        format_func=SHOWN.__getitem__,
        key="queue_show",
        width=190,
    )
    runs = ["", *(info.id for info in reversed(bank.runs()))]
    run = st.selectbox(
        "of run",
        runs,
        runs.index(chosen.run) if chosen.run in runs else 0,
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
        seed = st.number_input("Seed of the sample", 0, None, chosen.seed, key="queue_seed")
    found = QueueFilter(
        show=show, run=run, policy=policy, since=since or None, until=until or None, sample=int(sample), seed=int(seed)
    )
    st.session_state[FILTER] = found
    return found


def wanted(bank: MemoryBank, run: str) -> int:
    """How many people should rate a step of this run."""
    return bank.ratings.scales(run).ratings_wanted


def sitting_of(place: Place, chosen: QueueFilter, what: str, waiting: Callable[[], tuple[Any, ...]]) -> Sitting:
    """The person's way through a queue of `what`; begun anew when they ask for another or go by another name.

    What others rate meanwhile is taken in, so that nobody does what is done.
    """
    asked = (place.bank.handle, person(), chosen, what)
    known = st.session_state.get(SITTING)
    if known is None or known[0] != asked:
        sitting = Sitting(waiting())
        linked = st.session_state.get("place", {})
        at = (linked.get("run", ""), int(linked["step"])) if "step" in linked else None
        if at in sitting.places:
            sitting.go_to(at)
        known = asked, sitting
        st.session_state[SITTING] = known
        st.session_state[FACTS] = place.bank.facts
        st.session_state.pop(SAVED, None)
        st.session_state.pop(FAILED, None)
    elif st.session_state.get(FACTS) != place.bank.facts:
        if new := known[1].follow(waiting()):
            st.toast(f"{new} more to rate came in: they wait at the end.", icon=":material/playlist_add:")
        st.session_state[FACTS] = place.bank.facts
    return known[1]


def waiting_places(bank: MemoryBank, chosen: QueueFilter) -> tuple[StepPlace, ...]:
    """The queue as it is now."""
    bounds = {info.id: bank.ratings.bounds(info.id, bank.next_step(info.id)) for info in bank.runs()}
    most = max((wanted(bank, run) for run in bounds), default=1)
    facts = facts_of(bank)
    return tuple((step.run, step.step) for step in queue(facts, chosen, person(), most, bounds))


def moves(bank: MemoryBank, sitting: Sitting) -> None:
    """Previous, next, skip, undo and redo, and how far the person is."""
    name = person()
    done, undone = bank.deeds.done(name), bank.deeds.undone(name)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="queue_moves"):
        st.button(
            "Previous", icon=":material/arrow_back:", shortcut="k", key="queue_previous",
            disabled=sitting.at == 0, on_click=sitting.move, args=(-1,),
        )  # fmt: skip
        st.button(
            "Next", icon=":material/arrow_forward:", shortcut="j", key="queue_next",
            disabled=sitting.at >= len(sitting.places) - 1, on_click=sitting.move, args=(1,),
        )  # fmt: skip
        st.button(
            "Skip", icon=":material/redo:", shortcut="s", key="queue_skip",
            disabled=sitting.place is None, on_click=sitting.skip,
            help="It comes again when nothing else is left",
        )  # fmt: skip
        st.button(
            "Undo", icon=":material/undo:", shortcut="u", key="queue_undo", disabled=not done,
            on_click=_undo, args=(bank, sitting), help=_help("Take back", done),
        )  # fmt: skip
        st.button(
            "Redo", icon=":material/redo:", shortcut="y", key="queue_redo", disabled=not undone,
            on_click=_redo, args=(bank, sitting), help=_help("Do again", undone),
        )  # fmt: skip
        with st.container(width="stretch"):
            _progress_line(sitting)


def _progress_line(sitting: Sitting) -> None:
    """How many are done, at which pace, and how long the rest takes."""
    now = sitting.progress
    words = f"**{now.done} of {now.total}** rated"
    if now.pace is not None and now.total > now.done:
        words += f" · {now.pace:.0f} s each · {duration_words(now.left or 0.0)} left"
    if sitting.skipped:
        words += f" · {len(sitting.skipped)} skipped"
    st.progress(now.done / now.total if now.total else 1.0, words)


def _help(verb: str, deeds: Sequence[Deed]) -> str:
    return f"{verb}: {words_of(deeds[-1])}" if deeds else "You have done nothing that it could be used on"


def words_of(deed: Deed) -> str:
    """A deed in a few words, for a button's help."""
    event = deed.first
    more = f" and {len(deed.events) - 1} more" if len(deed.events) > 1 else ""
    about = f"step {event.step} of {event.run}"
    match event.kind:
        case EventKind.REWARD_GIVEN:
            return literal(f"the reward {event.value:+.3f} for {about}{more}")
        case EventKind.REWARD_REVOKED:
            return literal(f"taking back the reward for {about}{more}")
        case _:
            return literal(f"{str(event.kind).replace('_', ' ')} in {event.run}{more}")


def save(bank: MemoryBank, sitting: Sitting, give: Give, go_on: bool = True) -> None:
    """Save a click's rewards before anything is shown, and go on; what could not be saved stays to be tried again."""
    if sitting.too_soon(time.monotonic()):
        st.toast("That key came before you could have read this answer: it was not counted.", icon=":material/speed:")
        return
    try:
        events = give()
    except MemRLError as error:
        st.session_state[FAILED] = (str(error), bank, sitting, give, go_on)
        return
    st.session_state.pop(FAILED, None)
    st.session_state[SAVED] = tuple(event.id for event in events)
    if go_on:
        sitting.has_rated(datetime.now(UTC))
    st.session_state[FACTS] = bank.facts


def failure() -> None:
    """A reward that could not be saved, with a way to try again."""
    failed = st.session_state.get(FAILED)
    if failed is not None:
        sentence, *again = failed
        st.error(literal(f"{sentence} What you chose is still here."), icon=":material/error:")
        st.button("Try again", key="rating_retry", icon=":material/replay:", on_click=save, args=tuple(again))


def _undo(bank: MemoryBank, sitting: Sitting) -> None:
    _by_deed(bank, sitting, bank.deeds.undo, "Undone")


def _redo(bank: MemoryBank, sitting: Sitting) -> None:
    _by_deed(bank, sitting, bank.deeds.redo, "Done again")


def _by_deed(bank: MemoryBank, sitting: Sitting, act, verb: str) -> None:
    try:
        deed = act(person())
    except MemRLError as error:
        st.toast(literal(str(error)), icon=":material/error:", duration="long")
        return
    if deed is None:
        return
    st.session_state[FACTS] = bank.facts
    st.session_state.pop(SAVED, None)
    st.toast(f"{verb}: {words_of(deed)}", icon=":material/undo:")
    event = deed.first
    if event.kind in (EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED) and bank.has_step(event.run, event.step):
        steps = tuple((e.run, e.step) for e in deed.events)
        sitting.take_back(steps[0] if len(steps) == 1 else steps[:2])


def keep_in_link(step: Any, chosen: QueueFilter) -> None:
    """Let the address, and the other pages, point to the step looked at."""
    stored: Mapping[str, str] = st.session_state.get("place", {})
    if (stored.get("run"), stored.get("step")) != (step[0], str(step[1])):
        places.go(run=step[0], step=step[1])
        st.session_state.pop("moved", None)
    wanted_link = {**st.session_state["place"], "view": "Queue", **link_of(chosen)}
    if st.query_params.to_dict() != wanted_link:
        st.query_params.from_dict(wanted_link)
