"""A person's reward: what it would do, given with one key, saved before it is shown, and undone by an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from memrl_core.agent import Episode
from memrl_core.agent.live import LiveRun
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import REWARDS
from memrl_core.errors import MemRLError, StepError
from memrl_core.learning.scales import Option, options
from memrl_core.numerals import signed
from memrl_core.records import LedgerEvent, Phase
from pages.shared.answer import answer
from pages.shared.arm import spec_of
from pages.shared.person import allowed, name_field, person
from pages.shared.reward_rate import CHOSEN, later_selections, option_button
from pages.shared.text import literal
from pages.shared.view import View
from pages.step.controls import move

VALUE = "reward_value"
TOUCHED = "reward_touched"
ANSWER_HEIGHT = 220
"""Pixels in which the answer scrolls, so that the buttons below it stay in sight."""


def credit(view: View) -> None:
    """Who gets the credit, and what the reward at hand does to each q."""
    credited = _credited(view)
    if not credited:
        st.caption(_nobody_credited(view))
        return
    trace = view.moment.trace
    assert trace is not None
    rewards, rows = _moves(view, credited)
    given = " and then ".join(signed(reward) for reward in rewards)
    applied = trace.update is not None and _chosen(view) is None
    when = "moved by the reward" if applied else "if the reward is"
    heading = f"Credited memories, {when} {given}" if given else "Credited memories"
    step_size = f" (α = {trace.settings['alpha']:g})" if "alpha" in trace.settings else ""
    st.markdown(f"**{heading}**{step_size}")
    st.dataframe(
        [
            {
                "memory": memory_label(memory_id, view.run.id),
                "intent": view.memories[memory_id].intent if memory_id in view.memories else "",
                "q": signed(before),
                "→ q": signed(after),
                "Δ": signed(after - before),
            }
            for memory_id, before, after in rows
        ],
        hide_index=True,
        key="credit",
        alt="The memories that are credited, each with its q before and after",
    )


def _moves(view: View, credited: Sequence[str]) -> tuple[Sequence[float], Sequence[tuple[str, float, float]]]:
    """The rewards that move q, and each credited memory with its q before and after them.

    Of a stored step they are what its update did, or what a value that somebody chose since would do; of the step under
    way what the update is about to do.
    """
    trace, chosen, bank = view.moment.trace, _chosen(view), view.place.bank
    assert trace is not None
    episode = _under_way(view)
    if trace.update is not None and chosen is None:
        changes = [change for change in trace.update.of_q if change.memory_id in credited]
    elif episode is not None:
        changes = list(episode.preview(chosen, person()))
    elif chosen is not None:
        preview = bank.preview_reward(view.run.id, trace.step, trace.id, credited, chosen, person())
        return (chosen,), [(memory_id, *preview[memory_id]) for memory_id in credited]
    else:
        changes = []
    if not changes:
        now = bank.utilities_of(view.run.id, credited)
        return (), [(memory_id, known.q, known.q) for memory_id, known in now.items()]
    before = {change.memory_id: change.before for change in reversed(changes)}
    after = {change.memory_id: change.after for change in changes}
    return list(dict.fromkeys(c.reward for c in changes)), [(i, before[i], after[i]) for i in credited if i in after]


def _under_way(view: View) -> Episode | None:
    """The episode of a step that is not stored yet."""
    trace, live = view.moment.trace, view.live
    assert trace is not None
    if live is None or live.episode is None or live.episode.trace.id != trace.id:
        return None
    return live.episode if not view.place.bank.has_step(view.run.id, trace.step) else None


def _credited(view: View) -> tuple[str, ...]:
    """The memories whose q a reward moves."""
    trace = view.moment.trace
    assert trace is not None
    if trace.reward is not None:
        return trace.reward.credited
    episode = _under_way(view)
    return episode.credited if episode is not None else view.moment.selected


def _nobody_credited(view: View) -> str:
    trace = view.moment.trace
    assert trace is not None
    spec = spec_of(trace)
    if spec is None or spec.keeps_q or not view.moment.selected:
        return "No memory was in the prompt, so none is credited: a reward is kept with the step and moves no q."
    if not spec.feedback:
        return f"{spec.title} learns from no reward: it is kept with the step and changes nothing that is recalled."
    return f"{spec.title} keeps no q of single memories; what a reward teaches it stands under “Update”."


def reward_wanted(view: View) -> None:
    """Where a step waits for a person's reward: the form, in sight wherever on the page the answer is read."""
    if view.awaits_reward:
        with st.container(border=True, key="reward_wanted", gap="small"):
            assert view.moment.trace is not None
            with st.container(height=ANSWER_HEIGHT, border=False, key="answer_judged"):
                answer(view.place.bank, view.moment.trace)
            st.caption("A person judges this answer. One key saves the reward, q moves, and the step runs to its end.")
            reward_form(view)


def reward_form(view: View) -> None:
    """The choices of the run's scale, each saved by one key, a reason and the rater's name; Undo of what was saved."""
    trace = view.moment.trace
    assert trace is not None
    _start_afresh_for(trace.id)
    bank, rater = view.place.bank, person()
    mine = _my_reward(view, rater)
    applying = view.moment.live and view.moment.next_phase in (Phase.UPDATE, Phase.WRITE)
    off = view.busy or applying or not allowed(bank, Role.RATE)
    if not view.moment.live:
        st.caption("A reward given here counts from now on; this replay goes on showing what was known then.")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="reward_choices"):
        for option in _choices(view):
            chosen = mine is not None and mine.value == option.reward
            args = view, option.reward, option.given
            option_button(option, trace.id, chosen, off, _give, args, width="content")
        _any_value(view, off)
        if view.awaits_reward:
            st.button(
                "Skip", icon=":material/skip_next:", shortcut="s", key="leave_unrated",
                on_click=move, args=(view, partial(LiveRun.finish, unrated=True)),
                help="The step ends without a reward and no q moves. It can be rated later, here and on Rewards.",
            )  # fmt: skip
        else:
            st.button(
                "Undo", icon=":material/undo:", shortcut="u", key="undo_reward", disabled=mine is None or off,
                on_click=_undo, args=(view, mine),
                help="Takes your reward back; every q returns to what it was, bit for bit",
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="reason_box", width=430):
            st.text_input(
                "Reason (optional) · E", key="reward_reason", max_chars=2000, width=260,
                on_change=_reason_changed, args=(view,),
            )  # fmt: skip
            name_field("reward_rater", "Rater")
    if bank.has_step(view.run.id, trace.step) and _credited(view):
        choices = _choices(view)
        ends = {option.label.lower(): option.reward for option in (choices[0], choices[-1])}
        rated = {name: Rating(view.run.id, trace.step, value, rater) for name, value in ends.items()}
        later_selections(bank, trace, {name: bank.ratings.supposed(rating) for name, rating in rated.items()})
    if applying:
        st.caption("The reward is being applied: it can be changed once the step has ended.")
    elif mine is not None:
        st.markdown(f"Saved: {signed(mine.value or 0.0)} by {literal(mine.rater)}", width="content")
    if failure := st.session_state.get("reward_failure"):
        st.error(literal(failure), icon=":material/error:")


def _choices(view: View) -> tuple[Option, ...]:
    """What one key gives on the scale that the run's raters see first; thumbs where that scale takes more."""
    ratings, trace = view.place.bank.ratings, view.moment.trace
    assert trace is not None
    scales, (low, high) = ratings.scales(view.run.id), ratings.bounds(view.run.id, trace.step)
    return options(scales, scales.scale, low, high) or options(scales, "thumbs", low, high)


def _any_value(view: View, off: bool) -> None:
    assert view.moment.trace is not None
    low, high = view.place.bank.ratings.bounds(view.run.id, view.moment.trace.step)
    middle = (low + high) / 2
    with st.popover("Other", icon=":material/tune:", disabled=off):
        st.session_state.setdefault(VALUE, middle)
        st.slider(
            "Any reward between", low, high, step=(high - low) / 20, key=VALUE, format="%+.2f",
            on_change=_touch, args=(middle,),
        )  # fmt: skip
        chosen = _chosen(view)
        st.button(
            "Save reward", type="primary", icon=":material/save:", key="save_reward", disabled=chosen is None or off,
            on_click=_give, args=(view, chosen, {"scale": "graded"}),
            help=None if chosen is not None else "Choose a value first",
        )  # fmt: skip


def _start_afresh_for(step_id: str) -> None:
    if st.session_state.get("reward_for") != step_id:
        st.session_state["reward_for"] = step_id
        for key in (TOUCHED, VALUE, "reward_reason", "reward_failure"):
            st.session_state.pop(key, None)


def _chosen(view: View) -> float | None:
    trace = view.moment.trace
    if trace is None or st.session_state.get("reward_for") != trace.id or not st.session_state.get(TOUCHED):
        return None
    return float(st.session_state[VALUE])


def _touch(untouched: float) -> None:
    # When a run of the page is cut short, Streamlit reports a slider that nobody moved as changed.
    if abs(st.session_state[VALUE] - untouched) > 1e-9:
        st.session_state[TOUCHED] = True


def _my_reward(view: View, rater: str) -> LedgerEvent | None:
    trace = view.moment.trace
    assert trace is not None
    for event in view.place.bank.active_rewards(view.run.id, trace.step, trace.id):
        if event.source == "person" and event.rater == rater:
            return event
    return None


def _give(view: View, value: float, given: Mapping[str, Any]) -> None:
    """Save the reward; a step that waited for it then runs to its end, which moves q."""
    if not _save(view, value, given):
        return
    st.session_state[TOUCHED] = False
    st.toast(f"{signed(value)} saved · U undoes it", icon=":material/save:")
    if view.moment.live and view.moment.next_phase is Phase.REWARD and allowed(view.place.bank, Role.MANAGE):
        move(view, LiveRun.finish)


def _save(view: View, value: float, given: Mapping[str, Any]) -> bool:
    """Whether the reward was saved."""
    trace, bank = view.moment.trace, view.place.bank
    assert trace is not None
    reason = st.session_state.get("reward_reason", "")
    try:
        if bank.has_step(view.run.id, trace.step):
            bank.ratings.rate(Rating(view.run.id, trace.step, value, person(), reason, given))
        elif view.live is not None and _under_way(view) is not None:
            view.live.rate(value, person(), reason, given)
        else:
            raise StepError("This step was dropped.")
    except MemRLError as error:
        st.session_state["reward_failure"] = f"{error} The reward {signed(value)} was not saved; give it again."
        return False
    st.session_state.pop("reward_failure", None)
    return True


def _reason_changed(view: View) -> None:
    mine = _my_reward(view, person())
    if mine is not None:
        _save(view, mine.value or 0.0, {name: value for name, value in mine.payload.items() if name in CHOSEN})


def _undo(view: View, mine: LedgerEvent) -> None:
    bank = view.place.bank
    try:
        done = bank.undo.done(person(), REWARDS)
        if done and mine in done[-1].events:
            bank.undo.undo(person(), REWARDS)
        else:
            bank.revoke_reward(mine.id, person())
    except MemRLError as error:
        st.session_state["reward_failure"] = str(error)
        return
    st.session_state.pop("reward_failure", None)
    st.toast("Undone: every q is what it was before.", icon=":material/undo:")
