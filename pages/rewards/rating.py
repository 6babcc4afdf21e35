"""The two ways to rate, one answer or two side by side: what a rater judges, how they move on, and undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.people.agreement import judgement
from memrl_core.analysis.people.rating_queue import QueueFilter, RatingSession, assigned_to, pairs
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.roles import Role, actor_of
from memrl_core.bank.people.undo import REWARDS, Action
from memrl_core.errors import MemRLError
from memrl_core.learning import effective_reward
from memrl_core.learning.scales import Choice, Scale, mapping_words
from memrl_core.numerals import signed
from memrl_core.records import EventKind, LedgerEvent, StepTrace
from pages.rewards.panel import Panel, rating_panel, scale_picker, what_it_would_do
from pages.rewards.queue import (
    MESSAGE,
    SAVED,
    SESSION,
    SHOWN,
    asked_filter,
    filters,
    keep_in_link,
    known_facts,
    offer_batch,
    save,
    session_of,
    show_message,
    waiting_items,
    why_empty,
)
from pages.rewards.recall_batches import my_part
from pages.shared import place as places
from pages.shared.person import person, within_role
from pages.shared.place import Place
from pages.shared.text import answer, errors_shown, literal, minute, verbatim
from pages.shared.waiting import follow_what_waits, save_what_waits

Pair = tuple[tuple[str, int], tuple[str, int]]
PAIR_BUTTONS = (("1", "first", "Left is better"), ("3", "tie", "Equal"), ("5", "second", "Right is better"))
"""The keys of a scale from 1 to 5, on which the right answer is rated beside the left one."""


@st.fragment
def rating(place: Place) -> None:
    """One output after the other; a key rates it, and the next one comes."""
    # Out of a fragment an error would come to the app as another one, without its sentence.
    with errors_shown():
        _rating(place)


def _rating(place: Place) -> None:
    bank = place.bank
    offer_batch(bank)
    my_part(bank)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="queue_bar"):
        label = SHOWN[asked_filter().show]
        with st.popover(label, icon=":material/filter_list:", type="tertiary", key="queue_menu"):
            chosen = filters(bank)
            run = chosen.run or place.info.id
            scale = scale_picker(run, bank.ratings.scales(run))
        # They are drawn after the output, which is what the person waits for.
        buttons = st.container(width="content")
    if scale == "pairwise":
        _pairs(place, chosen, buttons)
    else:
        _single(place, chosen, scale, buttons)
    follow_what_waits()


def _single(place: Place, chosen: QueueFilter, scale: Scale, buttons: DeltaGenerator) -> None:
    bank = place.bank
    session = session_of(place, chosen, "steps", lambda: waiting_items(bank, chosen))
    bar = st.container()
    # What the environment said would tell how gold items are to be judged.
    blind = chosen.show == "batch"
    if session.item is None:
        _bar(bar, buttons, bank, session)
        _end(bank, session, chosen)
        return
    trace = bank.trace(*session.item)
    panel = Panel(bank, trace, session)
    with st.container(key=f"output_{trace.id}"):
        story, rate = st.columns([3, 2], gap="medium")
        with story:
            heading(trace)
            answer(bank, trace)
        with rate:
            rating_panel(panel, scale)
        session.shows(time.monotonic(), _words(trace))
        _bar(bar, buttons, bank, session)
        with story:
            read_memories(bank, trace)
        with rate:
            judged(bank, trace, panel.scales.hide_verdict, closed=blind)
            what_it_would_do(panel, scale, blind or (panel.scales.hide_verdict and panel.mine is None))
            if not blind:
                elsewhere(trace)
    keep_in_link(session.item, chosen)
    if session.at + 1 < len(session.items):
        # Read ahead, so that the next key finds it in memory.
        bank.trace(*session.items[session.at + 1])


def _bar(bar: DeltaGenerator, buttons: DeltaGenerator, bank: MemoryBank, session: RatingSession) -> None:
    with buttons:
        moves(bank, session)
    with bar:
        show_message()
        _saved(bank)


def _words(*traces: StepTrace) -> int:
    """How many words the model said, which is what a rater reads."""
    turns = (turn for trace in traces if trace.generate is not None for turn in trace.generate.turns)
    return sum(len(turn.reply.text.split()) for turn in turns)


def _pairs(place: Place, chosen: QueueFilter, buttons: DeltaGenerator) -> None:
    bank = place.bank
    session = session_of(
        place, chosen, "pairs",
        lambda: tuple(((a.run, a.step), (b.run, b.step)) for a, b in pairs(known_facts(bank), chosen, person())),
    )  # fmt: skip
    _bar(st.container(), buttons, bank, session)
    if session.item is None or not isinstance(session.item[0], tuple):
        st.info("There is no pair to compare: no task was answered twice, or you have rated both answers of each.")
        return
    first, second = (bank.trace(*step) for step in session.item)
    st.subheader(literal(first.task.intent), anchor=False)
    low, high = bank.ratings.bounds(first.run, first.step)
    scales = bank.ratings.scales(first.run)
    st.caption(literal(mapping_words(scales, "pairwise", low, high)))
    if scales.better is None or scales.worse is None:
        st.caption(
            "Where both answers failed, the better one counts as equal; where both succeeded, the worse one does. "
            "Under Rules either can have a reward of its own."
        )
    panels = Panel(bank, first, session), Panel(bank, second, session)
    both = first.ending if first.ending == second.ending else ""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="pair_buttons"):
        for key, better, label in PAIR_BUTTONS:
            st.button(
                label,
                shortcut=key,
                key=f"pair_{better}_{first.id}_{second.id}",
                on_click=_compare,
                args=(bank, session, session.item, better),
                **panels[0].look,
            )
        with st.container(key="reason_box"):
            st.text_input("Reason (optional) · E", key="pair_reason", max_chars=2000, disabled=not panels[0].may)
    for column, panel in zip(st.columns(2, gap="medium"), panels, strict=True):
        trace = panel.trace
        with column:
            st.caption(literal(f"step {trace.step} of {trace.run} · epoch {trace.epoch}"))
            answer(bank, trace)
            read_memories(bank, trace)
            if panel.mine is not None:
                st.markdown(f"You gave **{signed(panel.mine.value or 0.0)}**: a comparison takes its place.")
            judged(bank, trace, panel.scales.hide_verdict)
            blind = panel.scales.hide_verdict and panel.mine is None
            what_it_would_do(panel, "pairwise", blind, "" if blind else both)
    session.shows(time.monotonic(), _words(first, second))


def _compare(bank: MemoryBank, session: RatingSession, pair: Pair, better: Choice) -> None:
    reason, name = st.session_state.get("pair_reason", ""), person()
    save(bank, session, pair, lambda: bank.write.ratings.rate_pair(*pair, better, name, reason))
    st.session_state["pair_reason"] = ""


def _saved(bank: MemoryBank) -> None:
    """What the last click did: the reward and q that moved.

    Nothing of the environment, which would tell a rater after every key how to judge the next answer.
    """
    known = {event.id: event for event in bank.events_of(st.session_state.get(SAVED, ()))}
    if not known:
        return
    words = " · ".join(_saved_words(bank, event) for event in known.values())
    with st.container(key="saved_line"):
        st.markdown(f":material/check_circle: Saved: {literal(words)}. Undo with U.")


def _saved_words(bank: MemoryBank, event: LedgerEvent) -> str:
    words = f"{signed(event.value or 0.0)} for step {event.step} of {event.run}"
    moves = [
        p for i in event.memory_ids for p in bank.history(event.run, i) if p.step == event.step and p.reward is not None
    ]
    return words + (f", {len(moves):,} q moved" if moves else ", no memory to credit")


def _end(bank: MemoryBank, session: RatingSession, chosen: QueueFilter) -> None:
    if session.rated:
        st.success(f"Done: you have rated all {len(session.rated):,} of this queue.", icon=":material/task_alt:")
        if chosen.show != "batch" and (sentence := _beside_the_environment(bank, list(session.rated))):
            st.markdown(sentence)
        st.caption("“What changed” shows what your ratings changed. Other steps wait under another filter.")
    else:
        st.info(why_empty(bank, chosen))
    if chosen.show != "batch" or not assigned_to(bank.batches.of(), person()):
        return
    if st.button(
        "Your result on gold items", icon=":material/military_tech:", type="tertiary", key="to_gold", on_click=_people
    ):
        st.rerun()


def _beside_the_environment(bank: MemoryBank, rated: Sequence[tuple[str, int]]) -> str:
    """On how many of these steps the person and the environment judge differently, and which; "" where it judged none.

    It is shown at the end, so that it cannot sway what is rated next.
    """
    judged, apart = 0, []
    for run, step in rated:
        mine = bank.ratings.mine(run, step, person())
        given = (event.value for event in bank.ratings.of(run, step) if event.source == "environment")
        environment = next(given, None)
        if mine is None or mine.value is None or environment is None:
            continue
        judged += 1
        middle = sum(bank.ratings.bounds(run, step)) / 2
        if judgement(mine.value, middle) != judgement(environment, middle):
            apart.append(f"{step} of {run}")
    if not judged:
        return ""
    listed = ", ".join(apart[:12]) + (" …" if len(apart) > 12 else "")
    return literal(
        f"Of {judged} answers that the environment judged too, it disagrees with you on {len(apart)}"
        + (f": step {listed}." if apart else ".")
    )


def _people() -> None:
    st.session_state["rewards_view"] = "People"


def heading(trace: StepTrace) -> None:
    """The intent, and where it comes from."""
    st.subheader(literal(trace.task.intent), anchor=False)
    model = trace.generate.model if trace.generate else "unknown model"
    simulated = " (simulated)" if trace.generate and trace.generate.simulated else ""
    st.caption(
        literal(
            f"step {trace.step} of {trace.run} · epoch {trace.epoch} · task {trace.task.id} · policy {trace.policy} · "
            f"model {model}{simulated} · {minute(trace.started)}"
        )
    )


def read_memories(bank: MemoryBank, trace: StepTrace) -> None:
    """The memories that were in the prompt, each to be opened, and the prompt as it was sent."""
    selected = trace.decision.selected if trace.decision else ()
    st.markdown(f"**What the model read** · {len(selected):,} {'memory' if len(selected) == 1 else 'memories'}")
    for memory_id in selected:
        memory = bank.memory(memory_id)
        with st.expander(literal(f"{memory_label(memory_id, trace.run)} · {memory.outcome} · {memory.intent[:90]}")):
            verbatim(memory.experience)
    if trace.generate is not None and trace.generate.messages:
        with st.expander("The prompt as it was sent"):
            verbatim("\n\n".join(f"[{message.role}]\n{message.content}" for message in trace.generate.messages))


def judged(bank: MemoryBank, trace: StepTrace, hidden: bool, closed: bool = False) -> None:
    """The environment's verdict and all ratings, once the person has rated or where none is hidden.

    In a batch they stay `closed`.
    """
    if closed:
        st.caption(":material/visibility_off: What others and the environment say stays hidden within a batch.")
        return
    given = bank.ratings.of(trace.run, trace.step)
    mine = any(event.source == "person" and event.rater == person() for event in given)
    if hidden and not mine:
        others = sum(event.source == "person" for event in given)
        seen_by = f" {others} {'person has' if others == 1 else 'people have'} rated it." if others else ""
        st.caption(
            f":material/visibility_off: The environment's verdict and other ratings show once you have rated.{seen_by}"
        )
        return
    with st.container(border=True, key=f"judged_{trace.id}"):
        if trace.reward is not None and trace.reward.verdict:
            st.markdown("**The environment's verdict**")
            verbatim(trace.reward.verdict)
        if given:
            for event in given:
                st.markdown(f"- {literal(_rating_words(event))}")
            now = effective_reward(given, bank.settings(trace.run, trace.step))
            st.caption(f"By this run's rules the step counts as {signed(now or 0.0)}.")
        else:
            st.caption("Nobody has rated this step, and the environment gave no reward.")


def _rating_words(event: LedgerEvent) -> str:
    who = "The environment" if event.source == "environment" else "You" if event.rater == person() else event.rater
    by = actor_of(event)
    done = f" (given back by {by})" if event.source == "person" and by != event.rater else ""
    reason = f": {event.reason}" if event.reason else ""
    return f"{who} {signed(event.value or 0.0)}{done}{reason}"


def elsewhere(trace: StepTrace) -> None:
    """The same step on the screens that explain it."""
    with st.container(horizontal=True, gap="small", key="elsewhere"):
        for label, page, icon in (
            ("Replay this step", "pages/step/page.py", ":material/replay:"),
            ("Why these memories?", "pages/decision/page.py", ":material/contact_support:"),
        ):
            if st.button(label, icon=icon, type="tertiary", key=f"to_{page[6:-3]}"):
                places.go(run=trace.run, step=trace.step)
                st.switch_page(page, query_params=st.session_state["place"])


def moves(bank: MemoryBank, session: RatingSession) -> None:
    """Previous, next, skip, undo and redo, and how far the person is."""
    name = person()
    done, undone = bank.undo.done(name, REWARDS), bank.undo.undone(name, REWARDS)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="queue_moves"):
        st.button(
            "Previous", icon=":material/arrow_back:", type="tertiary", shortcut="k", key="queue_previous",
            disabled=session.at == 0, on_click=session.move, args=(-1,),
        )  # fmt: skip
        st.button(
            "Next", icon=":material/arrow_forward:", type="tertiary", shortcut="j", key="queue_next",
            disabled=session.at >= len(session.items) - 1, on_click=session.move, args=(1,),
        )  # fmt: skip
        st.button(
            "Skip", icon=":material/skip_next:", type="tertiary", shortcut="s", key="queue_skip",
            disabled=session.item is None, on_click=session.skip,
            help="It comes again when nothing else is left",
        )  # fmt: skip
        st.button(
            "Undo", icon=":material/undo:", type="tertiary", shortcut="u", key="queue_undo",
            on_click=_undo, args=(bank, session), **within_role(bank, Role.RATE, not done, _help("Take back", done)),
        )  # fmt: skip
        st.button(
            "Redo", icon=":material/redo:", type="tertiary", shortcut="y", key="queue_redo",
            on_click=_redo, args=(bank, session), **within_role(bank, Role.RATE, not undone, _help("Do again", undone)),
        )  # fmt: skip
        _progress_line(bank, session)


def _progress_line(bank: MemoryBank, session: RatingSession) -> None:
    """How many are done of a person's batch, or else since the queue was opened; pace and time left in its help."""
    now = session.progress
    total = len(assigned_to(bank.batches.of(), person())) if asked_filter().show == "batch" else now.total
    if not total:
        return
    more = ["of your batch" if asked_filter().show == "batch" else "since the queue was opened"]
    if now.pace is not None and now.total > now.done:
        more.append(f"{now.pace:.0f} s each")
        more.append(f"about {now.pace * (now.total - now.done) / 60:.0f} min left")
    if session.skipped:
        more.append(f"{len(session.skipped):,} skipped")
    done = total - (now.total - now.done)
    st.markdown(f"**{done} of {total}** rated", width="content", help=" · ".join(more))


def _help(verb: str, actions: Sequence[Action]) -> str:
    return literal(f"{verb}: {words_of(actions[-1])}") if actions else "You have done nothing that it could be used on"


def words_of(action: Action) -> str:
    """An action in a few words, for a button's help."""
    event = action.first
    more = f" and {len(action.events) - 1} more" if len(action.events) > 1 else ""
    about = f"step {event.step} of {event.run}"
    match event.kind:
        case EventKind.REWARD_GIVEN:
            return f"the reward {signed(event.value or 0.0)} for {about}{more}"
        case EventKind.REWARD_REVOKED:
            return f"taking back the reward for {about}{more}"
        case _:
            return f"{str(event.kind).replace('_', ' ')} in {event.run}{more}"


def _undo(bank: MemoryBank, session: RatingSession) -> None:
    def undo(name: str) -> Action | None:
        try:
            return bank.write.undo.undo(name, REWARDS)
        except MemRLError as error:
            # What others changed since is left alone; what came before it can still be undone.
            action = bank.write.undo.undo(name, REWARDS, past_blocked=True)
            st.toast(literal(str(error)), duration="long")
            return action

    _by_action(bank, session, undo, "Undone")


def _redo(bank: MemoryBank, session: RatingSession) -> None:
    _by_action(bank, session, lambda name: bank.write.undo.redo(name, REWARDS), "Done again")


def _by_action(bank: MemoryBank, session: RatingSession, act: Callable[[str], Action | None], verb: str) -> None:
    save_what_waits()
    try:
        action = act(person())
    except MemRLError as error:
        st.session_state[MESSAGE] = str(error)
        return
    if action is None:
        return
    st.session_state.pop(SAVED, None)
    st.session_state[MESSAGE] = f"{verb}: {words_of(action)}."
    if action.first.kind in (EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED):
        _return_to(bank, session, action)


def _return_to(bank: MemoryBank, session: RatingSession, action: Action) -> None:
    """Look at what an action was about; it counts as rated in this session where the person's reward stands now."""
    steps = tuple(dict.fromkeys((e.run, e.step) for e in action.events if bank.steps.has(e.run, e.step)))
    in_pairs = st.session_state[SESSION][0][-1] == "pairs"
    about: tuple[Any, ...] = steps
    if in_pairs:
        compared = len(steps) == 2 and action.first.payload.get("scale") == "pairwise"
        about = (steps,) if compared else tuple(pair for pair in session.items if set(steps) <= set(pair))
    for item in about:
        session.rated.pop(item, None)
    if about:
        session.take_back(about[0])
    for item in set(about).intersection(session.items):
        rated: tuple[tuple[str, int], ...] = item if in_pairs else (item,)
        if all(bank.ratings.mine(run, step, person()) for run, step in rated):
            session.rated[item] = datetime.now(UTC)
