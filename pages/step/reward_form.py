"""A person's reward: what it would do, given with one key, saved before it is shown, and undone by an event."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from memrl_core.agent import Episode
from memrl_core.agent.live import LiveRun
from memrl_core.analysis.decision.explain import credited_because
from memrl_core.analysis.decision.labels import memory_label
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.bank.people.undo import REWARDS
from memrl_core.errors import StepError
from memrl_core.learning.scales import Option, options
from memrl_core.numerals import signed
from memrl_core.records import LedgerEvent, Phase
from pages.shared.person import allowed, name_field, person, within_role
from pages.shared.picture import show_table
from pages.shared.rewards import CHOSEN, later_selections, option_button
from pages.shared.text import answer, failure_kept, literal
from pages.shared.view import View, spec_of
from pages.step.controls import move

ANSWER_HEIGHT = 220
"""Pixels in which the answer scrolls, so that the buttons below it stay in sight."""
UNRATED = "The step ends without a reward and no q moves. It can be rated later, here and on Rewards."
TAKES_BACK = "Takes your reward back; every q returns to what it was, bit for bit"


def credit(view: View) -> None:
    """Who gets the credit, and what the reward at hand does to each q."""
    credited, trace = _credited(view), view.counted or view.trace
    if not credited:
        st.caption(_nobody_credited(view))
        return
    episode = _under_way(view)
    if trace.update is not None:
        changes = [change for change in trace.update.of_q if change.memory_id in credited]
    else:
        changes = list(episode.preview()) if episode is not None else []
    given = " and then ".join(dict.fromkeys(signed(change.reward) for change in changes))
    when = "moved by the reward" if trace.update is not None else "if the reward is"
    heading = f"Credited memories, {when} {given}" if given else "Credited memories"
    step_size = f" (α = {trace.settings['alpha']:g})" if "alpha" in trace.settings else ""
    st.markdown(f"**{heading}**{step_size}")
    now = view.place.bank.utilities_of(view.run.id, credited)
    before = {i: known.q for i, known in now.items()} | {c.memory_id: c.before for c in reversed(changes)}
    after = before | {change.memory_id: change.after for change in changes}
    moved_since = trace.update is not None and any(now[i].q != after[i] for i in credited if i in now)
    show_table(
        [
            {
                "memory": memory_label(i, view.run.id),
                "intent": view.memories[i].intent if i in view.memories else "",
                "q": signed(before[i]),
                "→ q": signed(after[i]),
                "Δ": signed(after[i] - before[i]),
                **({"now": signed(now[i].q) if i in now else "–"} if moved_since else {}),
            }
            for i in credited
            if i in after
        ],
        "credit",
        "The memories that are credited, each with its q before and after",
    )


def _under_way(view: View) -> Episode | None:
    """The episode of a step that is not stored yet."""
    trace, live = view.trace, view.live
    if live is None or live.episode is None or live.episode.trace.id != trace.id:
        return None
    return live.episode if not view.place.bank.has_step(view.run.id, trace.step) else None


def _credited(view: View) -> tuple[str, ...]:
    """The memories whose q a reward moves."""
    trace = view.trace
    if trace.reward is not None:
        return trace.reward.credited
    episode = _under_way(view)
    return episode.credited if episode is not None else view.moment.selected


def _nobody_credited(view: View) -> str:
    spec = spec_of(view.trace)
    if view.moment.selected and (why := credited_because(view.trace)):
        return f"{why} A reward is kept with the step and moves no q."
    if spec is None or spec.keeps_q or not view.moment.selected:
        return "No memory was in the prompt, so none is credited: a reward is kept with the step and moves no q."
    return f"{spec.title} keeps no q of single memories: what it learns from a reward, if anything, is under “Update”."


def reward_wanted(view: View) -> None:
    """Where a step waits for a person's reward: the form, in sight wherever on the page the answer is read."""
    if view.awaits_reward:
        with st.container(border=True, key="reward_wanted", gap="small"):
            with st.container(height=ANSWER_HEIGHT, border=False, key="answer_judged"):
                answer(view.place.bank, view.trace)
            st.caption("A person judges this answer. One key saves the reward, q moves, and the step runs to its end.")
            _reward_form(view)


def hand(view: View) -> None:
    """The form for an answer that waits for nobody: below the stage, so that its keys rate whatever part is open."""
    # A step that others report may have a reward and no answer; one of ours can be judged before its world does.
    judged = view.moment.reached(Phase.GENERATE) or view.moment.reached(Phase.REWARD)
    if judged and not view.awaits_reward:
        with st.container(key="hand", gap="small"):
            _reward_form(view)


def _reward_form(view: View) -> None:
    """The choices of the run's scale, each saved by one key, a reason and the rater's name; Undo of what was saved."""
    trace = view.trace
    bank, rater = view.place.bank, person()
    mine = _my_reward(view, rater)
    applying = view.moment.live and view.moment.next_phase in (Phase.UPDATE, Phase.WRITE)
    look = within_role(bank, Role.RATE, disabled=view.busy or applying)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="reward_choices"):
        for option in _choices(view):
            chosen = mine is not None and mine.value == option.reward
            args = view, option.reward, option.given
            option_button(option, trace.id, chosen, _give, args, width="content", **look)
        if view.awaits_reward:
            st.button(
                "Skip", icon=":material/skip_next:", shortcut="s", key="leave_unrated",
                on_click=move, args=(view, partial(LiveRun.finish, unrated=True)),
                **within_role(bank, Role.MANAGE, help=UNRATED),
            )  # fmt: skip
        else:
            st.button(
                "Undo", icon=":material/undo:", shortcut="u", key="undo_reward", on_click=_undo, args=(view, mine),
                **within_role(bank, Role.RATE, mine is None or look["disabled"], TAKES_BACK),
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="reason_box", width=430):
            st.text_input(
                "Reason (optional) · E", key=_reason(view), max_chars=2000, width=260,
                on_change=_reason_changed, args=(view,), disabled=not allowed(bank, Role.RATE),
            )  # fmt: skip
            name_field("reward_rater", "Rater")
    if applying:
        st.caption("The reward is being applied: it can be changed once the step has ended.")
    elif mine is not None:
        st.markdown(f"Saved: {signed(mine.value or 0.0)} by {literal(mine.rater)}", width="content")


def effects(view: View) -> None:
    """What the worst and the best reward of a stored step would change of what later steps selected."""
    bank, trace = view.place.bank, view.trace
    if not bank.has_step(view.run.id, trace.step) or not _credited(view):
        return
    choices = _choices(view)
    ends = {option.label.lower(): option.reward for option in (choices[0], choices[-1])}
    rated = {name: Rating(view.run.id, trace.step, value, person()) for name, value in ends.items()}
    later_selections(bank, trace, {name: bank.ratings.supposed(rating) for name, rating in rated.items()})


def _choices(view: View) -> tuple[Option, ...]:
    """What one key gives on the scale that the run's raters see first; thumbs where that scale takes more."""
    ratings, trace = view.place.bank.ratings, view.trace
    scales, (low, high) = ratings.scales(view.run.id), ratings.bounds(view.run.id, trace.step)
    return options(scales, scales.scale, low, high) or options(scales, "thumbs", low, high)


def _reason(view: View) -> str:
    """The key of the field for a reason, which begins empty with every step."""
    return f"reward_reason_{view.trace.id}"


def _my_reward(view: View, rater: str) -> LedgerEvent | None:
    trace = view.trace
    for event in view.place.bank.active_rewards(view.run.id, trace.step, trace.id):
        if event.source == "person" and event.rater == rater:
            return event
    return None


def _give(view: View, value: float, given: Mapping[str, Any]) -> None:
    """Save the reward; a step that waited for it then runs to its end, which moves q."""
    with failure_kept():
        _save(view, value, given)
        st.toast(f"{signed(value)} saved · U undoes it", icon=":material/save:")
        if view.moment.live and view.moment.next_phase is Phase.REWARD and allowed(view.place.bank, Role.MANAGE):
            move(view, LiveRun.finish)


def _save(view: View, value: float, given: Mapping[str, Any]) -> None:
    trace, bank = view.trace, view.place.bank
    reason = st.session_state.get(_reason(view), "")
    if bank.has_step(view.run.id, trace.step):
        bank.ratings.rate(Rating(view.run.id, trace.step, value, person(), reason, given))
    elif view.live is not None and _under_way(view) is not None:
        view.live.rate(value, person(), reason, given)
    else:
        raise StepError("This step was dropped. The reward was not saved.")


def _reason_changed(view: View) -> None:
    mine = _my_reward(view, person())
    if mine is not None:
        with failure_kept():
            _save(view, mine.value or 0.0, {name: value for name, value in mine.payload.items() if name in CHOSEN})


def _undo(view: View, mine: LedgerEvent) -> None:
    bank = view.place.bank
    with failure_kept():
        done = bank.undo.done(person(), REWARDS)
        if done and mine in done[-1].events:
            bank.undo.undo(person(), REWARDS)
        else:
            bank.ratings.revoke(mine.id, person())
        st.toast("Undone: every q is what it was before.", icon=":material/undo:")
