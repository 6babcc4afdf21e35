"""A person's reward: a value they chose, what it would do, saved before it is shown, and undone by an event."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from memrl_core.agent import Episode
from memrl_core.analysis.labels import memory_label
from memrl_core.bank.deeds import REWARDS
from memrl_core.bank.ratings import Rating
from memrl_core.bank.roles import Role
from memrl_core.errors import MemRLError
from memrl_core.numerals import signed
from memrl_core.records import LedgerEvent
from pages.shared.arm import spec_of
from pages.shared.person import allowed, name_field, person
from pages.shared.text import literal
from pages.shared.view import View

VALUE = "reward_value"
TOUCHED = "reward_touched"


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
    heading = f"Credited memories, if the reward is {given}" if given else "Credited memories"
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


def reward_form(view: View) -> None:
    """Thumbs or slider, a reason, the rater's name; Save, and Undo of what was saved."""
    trace = view.moment.trace
    assert trace is not None
    _start_afresh_for(trace.id)
    rater, may = person(), allowed(view.place.bank, Role.RATE)
    low, high = float(trace.settings["reward_failure"]), float(trace.settings["reward_success"])
    mine = _my_reward(view, rater)
    if not view.moment.live:
        st.caption("A reward given here counts from now on; this replay goes on showing what was known then.")
    chosen = _chosen(view)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _thumb("Thumbs up", ":material/thumb_up:", high, "1", chosen, mine)
        _thumb("Thumbs down", ":material/thumb_down:", low, "2", chosen, mine)
        middle = (low + high) / 2
        st.session_state.setdefault(VALUE, middle)
        st.slider(
            "Reward" if chosen is not None else "Reward (not chosen yet)",
            low,
            high,
            step=(high - low) / 20,
            key=VALUE,
            format="%+.2f" if chosen is not None else " ",
            on_change=_touch,
            args=(middle,),
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input("Reason (optional)", key="reward_reason", max_chars=2000)
        name_field("reward_rater", "Rater")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Save reward",
            type="primary",
            icon=":material/save:",
            shortcut="s",
            key="save_reward",
            disabled=chosen is None or view.busy or not may,
            on_click=_save,
            args=(view,),
            help=None if chosen is not None else "Choose a value first: thumbs or slider",
        )
        st.button(
            "Undo",
            icon=":material/undo:",
            shortcut="u",
            key="undo_reward",
            disabled=mine is None or view.busy or not may,
            on_click=_undo,
            args=(view, mine),
            help="Takes your reward back; every q returns to what it was, bit for bit",
        )
        if mine is not None:
            st.markdown(f"Saved: {signed(mine.value or 0.0)} by {literal(mine.rater)}", width="content")
    if failure := st.session_state.get("reward_failure"):
        st.error(literal(failure), icon=":material/error:")


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


def _thumb(label: str, icon: str, value: float, key: str, chosen: float | None, mine: LedgerEvent | None) -> None:
    standing = chosen if chosen is not None else mine.value if mine is not None else None
    st.button(
        label,
        icon=icon,
        shortcut=key,
        key=f"thumb_{key}",
        type="primary" if standing == value else "secondary",
        on_click=_choose,
        args=(value,),
    )


def _touch(untouched: float) -> None:
    # When a run of the page is cut short, Streamlit reports a slider that nobody moved as changed.
    if abs(st.session_state[VALUE] - untouched) > 1e-9:
        st.session_state[TOUCHED] = True


def _choose(value: float) -> None:
    st.session_state[VALUE] = value
    st.session_state[TOUCHED] = True


def _my_reward(view: View, rater: str) -> LedgerEvent | None:
    trace = view.moment.trace
    assert trace is not None
    for event in view.place.bank.active_rewards(view.run.id, trace.step, trace.id):
        if event.source == "person" and event.rater == rater:
            return event
    return None


def _save(view: View) -> None:
    trace, bank = view.moment.trace, view.place.bank
    assert trace is not None
    value, reason = float(st.session_state[VALUE]), st.session_state.get("reward_reason", "")
    try:
        if bank.has_step(view.run.id, trace.step):
            bank.ratings.rate(Rating(view.run.id, trace.step, value, person(), reason, {"scale": "graded"}))
        else:
            bank.give_reward(view.run.id, trace.step, trace.id, view.moment.selected, value, person(), reason)
    except MemRLError as error:
        st.session_state["reward_failure"] = f"{error} Your value is still here: press Save again."
        return
    st.session_state.pop("reward_failure", None)
    st.session_state[TOUCHED] = False
    st.toast("Saved · Undo (U)", icon=":material/save:")


def _undo(view: View, mine: LedgerEvent) -> None:
    bank = view.place.bank
    try:
        done = bank.deeds.done(person(), REWARDS)
        if done and mine in done[-1].events:
            bank.deeds.undo(person(), REWARDS)
        else:
            bank.revoke_reward(mine.id, person())
    except MemRLError as error:
        st.session_state["reward_failure"] = str(error)
        return
    st.session_state.pop("reward_failure", None)
    st.toast("Undone: every q is what it was before.", icon=":material/undo:")
