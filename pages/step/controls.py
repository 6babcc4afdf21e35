"""What moves the agent: the next task, step, finish, run many, stop; and what to do when a move failed."""

from __future__ import annotations

from typing import Any

import streamlit as st

from memrl_core.agent.live import LiveRun
from memrl_core.agent.runs import can_go_on
from memrl_core.analysis.decision.outline import TITLES, shortened
from memrl_core.analysis.run.following import latest_follows
from memrl_core.bank import MemoryBank
from memrl_core.bank.begun import StepMark
from memrl_core.bank.people.roles import Role
from memrl_core.environments.tasks import LONGEST_INTENT
from memrl_core.errors import NoVector
from memrl_core.figures.stage.player import player_html
from memrl_core.records import Phase
from pages.shared import place as places
from pages.shared.header import model_status, on_key, status_of
from pages.shared.person import within_role
from pages.shared.place import PLAYING, Place, play
from pages.shared.rewind import compare_button, next_settings_form, rewind_form
from pages.shared.text import literal, minute, verbatim
from pages.shared.view import View
from pages.step.moves import move, note
from pages.step.stage import look_in_link, map_menu, stage_arriving

RUNS_STARTED = "runs_started"
ARRIVED_HEIGHT = 68
ASKED_HEIGHT = 68
"""Pixels of the field for the next task, two lines: the stage stays on one screen with it."""
LOOK = 0.1
"""Seconds after which a page looks for more of an answer that is arriving: the first token is to be there in 0.15."""


def controls(view: View) -> None:
    """The row of buttons above a step, live or in a replay."""
    if not view.moment.live:
        _replay_note(view)
        return
    if not can_go_on(view.run):
        _from_elsewhere(view)
        return
    note(view, view.live)
    look = _look(view)
    on_key("step", lambda count: move(view, lambda live: live.step(count)))
    with st.container(horizontal=True, vertical_alignment="bottom", key="controls"):
        st.button(
            _step_label(view),
            type="primary",
            icon=":material/skip_next:",
            shortcut="n",
            key="step",
            on_click=move,
            args=(view, LiveRun.step),
            **look,
        )
        st.button(
            "Finish task",
            icon=":material/fast_forward:",
            shortcut="f",
            key="finish",
            on_click=_finish,
            args=(view,),
            **look,
        )
        if view.run.tasks:
            # Under a new name it is a new one, which is closed: it would stay open over the page while the tasks run.
            opened = st.session_state.setdefault(RUNS_STARTED, 0)
            with st.popover("Run n tasks", icon=":material/repeat:", key=f"run_menu_{opened}", **look):
                st.number_input("How many tasks", 1, 10_000, 20, key="run_count")
                st.button("Run", key="run_many", on_click=_run_many, args=(view,), **look)
                st.caption("Each step is saved as it ends. Stop keeps what is done.")
        under_way = view.live is not None and view.live.under_way
        next_settings_form(view.place, under_way, disabled=view.busy)
        compare_button(view.place)
        if not view.busy:
            _save_file(view)
        map_menu(view)
        if view.busy:
            _progress(view)  # In the same row: the stage below stays where it is.
    if not view.busy:
        if view.run.environment == "conversation" and view.moment.next_phase is None:
            _task_form(view)
        _what_failed(view)
        _what_was_cut_short(view)


def _look(view: View) -> dict[str, Any]:
    """How a button looks that moves the run: off while it is at work, and for who may not."""
    return within_role(view.place.bank, Role.MANAGE, disabled=view.busy)


def _from_elsewhere(view: View) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="from_elsewhere"):
        st.markdown(
            ":material/input: **This run was brought in from elsewhere**: its world is not here, so it can be "
            "looked at and asked about, not advanced."
        )
        st.page_link("pages/decision/page.py", label="Ask about it", icon=":material/contact_support:")


def _step_label(view: View) -> str:
    following = view.moment.next_phase
    if following is None:
        return "Step · next task" if view.moment.trace else "Step · first task"
    turns = view.moment.trace.generate if view.moment.trace else None
    if view.awaits_reward:
        return "Step · leave it unrated"
    if following is Phase.GENERATE:
        return f"Step · answer, turn {len(turns.turns) + 1 if turns else 1}"
    return f"Step · {TITLES[following]}"


def _finish(view: View) -> None:
    """Run the task to its end, or say that the reward is still to be given."""
    if view.awaits_reward:
        st.toast(
            "This task ends with your reward: press its key, 1 is the worst, or S to leave the answer unrated.",
            icon=":material/front_hand:",
        )
    else:
        move(view, LiveRun.finish)


def _run_many(view: View) -> None:
    count = int(st.session_state["run_count"])  # What was typed last: it comes with the press.
    st.session_state[RUNS_STARTED] += 1
    move(view, lambda live: live.run_many(count))


@st.fragment(run_every=LOOK)
def _progress(view: View) -> None:
    live = view.live
    assert live is not None
    if not live.busy or _has_gone_on(view, live):
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        if live.total:
            st.progress(live.done / live.total, literal(f"{live.done} of {live.total} tasks · {live.waiting.line}"))
        else:
            stage_arriving(live)
            st.markdown("The agent is working …")
        st.button(
            "Stop", icon=":material/stop_circle:", shortcut="escape", key="stop", on_click=move,
            args=(view, LiveRun.stop), **within_role(view.place.bank, Role.MANAGE),
        )  # fmt: skip


def _has_gone_on(view: View, live: LiveRun) -> bool:
    """Whether the step has gone on since it was drawn: what phases A and B found shows while the model answers."""
    episode, drawn = live.episode, view.moment.trace
    if episode is None or drawn is None or live.total or not view.moment.live:
        return False
    return episode.trace.id == drawn.id and episode.phase is not view.moment.next_phase


def _what_failed(view: View) -> None:
    live = view.live
    if live is None or live.error is None:
        return
    episode = live.episode
    # Also where a later attempt got nothing.
    arrived = episode.interrupted if episode is not None and episode.phase is Phase.GENERATE else ""
    # In one row, and what arrived in a few lines: the stage below keeps what a person needs of its height.
    with st.container(horizontal=True, vertical_alignment="center", key="failed_step"):
        st.error(literal(str(live.error)), icon=":material/error:", width="stretch")
        look = _look(view)
        st.button("Try again", key="retry", on_click=move, args=(view, LiveRun.step), **look)
        if arrived:
            st.button("Keep what arrived", key="keep_partial", on_click=move, args=(view, LiveRun.keep_partial), **look)
        if isinstance(live.error, NoVector):
            st.button("Skip this task", key="skip_task", on_click=move, args=(view, LiveRun.skip), **look)
        st.button("Drop this step", key="drop", on_click=move, args=(view, LiveRun.drop), **look)
    if arrived:
        verbatim(arrived, height=ARRIVED_HEIGHT)


def _what_was_cut_short(view: View) -> None:
    bank, run = view.place.bank, view.run.id
    step, mark = bank.next_step(run), StepMark(bank.uri, run).left()
    if mark is not None and mark.step != step:
        mark = None
    begun = view.live is not None and view.live.episode is not None
    if begun or not (mark or bank.steps.cut_short(run)):
        return
    of = f", “{shortened(mark.intent)}”, begun {minute(mark.since)}" if mark is not None else ""
    st.warning(
        literal(
            f"Step {step} was begun and cut short{of}: the program ended before the step did. What it had written "
            "counts for nothing and is not recalled. The next step takes its place."
        ),
        icon=":material/power_off:",
    )


def _replay_note(view: View) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="replay_note"):
        st.markdown(
            f":material/history: **Replay** of step {view.place.step:,} of {view.place.last_step:,} as it counts now",
            help="Pool, ranks and answer as they were; the reward and every q as they count now.",
            width="content",
        )
        _player(view.place)
        st.button("Go live", icon=":material/play_arrow:", key="go_live", on_click=places.go, kwargs={"step": None})
        if view.moment.trace is not None and can_go_on(view.run):
            rewind_form(view.place, view.moment.trace.step)
        compare_button(view.place)
        _save_file(view)
        map_menu(view)


def _save_file(view: View) -> None:
    """The whole run as one file that opens at what the stage shows now."""
    trace = view.moment.trace
    if trace is None or not view.place.last_step:
        return
    at = view.place.link | {"step": str(min(trace.step, view.place.last_step))} | look_in_link()
    st.download_button(
        "Save as a file",
        lambda: player_html(view.place.bank, view.run.id, at).encode("utf-8"),
        file_name=places.download_name("player", kind="html"),
        mime="text/html",
        icon=":material/save:",
        on_click="ignore",
        key="share_run",
        help="The whole run as one file that opens by double click, without this program and without a network. "
        "It opens with what the stage shows now.",
    )


def _player(place: Place) -> None:
    """The button that plays and pauses a replay."""
    assert place.step is not None
    at, ended = (place.bank_name, place.info.id, place.step), place.step >= place.last_step
    if st.session_state.get(PLAYING) == at:
        st.button("Pause", icon=":material/pause:", key="replay_pause", on_click=st.session_state.pop, args=(PLAYING,))
    else:
        st.session_state.pop(PLAYING, None)
        st.button("Play", icon=":material/play_arrow:", key="replay_play", disabled=ended, on_click=play, args=at)


def model_banner(view: View) -> None:
    """What stands in the way of the run's model, with its remedy."""
    if view.run.simulated or not view.moment.live or not can_go_on(view.run):
        return
    status = model_status(view.run.model)
    if status.state == "running":
        return
    with st.container(border=True, key="model_banner"):
        st.warning(literal(status.sentence), icon=":material/cloud_off:")
        with st.container(horizontal=True, vertical_alignment="center"):
            if status.remedy:
                st.code(status.remedy, language=None, width="content")
            st.button("Check again", key="banner_check", on_click=status_of.clear)
            st.page_link("pages/home/page.py", label="Look at the models")


LOOK_EVERY = 10  # Steps between two looks at what the model follows: each reads the latest traces.


def follows_banner(view: View) -> None:
    """That the model of a run does not follow its memories, with what to try."""
    last = view.place.last_step // LOOK_EVERY * LOOK_EVERY
    if last and (ignores := _ignores(view.place.bank, view.place.bank.uri, view.run.id, last)):
        st.warning(literal(ignores), icon=":material/hearing_disabled:")


@st.cache_data(max_entries=64, show_spinner=False)
def _ignores(_bank: MemoryBank, uri: str, run: str, last: int) -> str:
    return latest_follows(_bank, run, last).warning


def _task_form(view: View) -> None:
    """Where the next task of a conversation is typed."""
    with st.container(horizontal=True, vertical_alignment="center", key="task_form"):
        st.text_area(
            "Ask the agent something",
            key="typed_intent",
            placeholder=f"Ask the agent something, in at most {LONGEST_INTENT:,} characters.",
            height=ASKED_HEIGHT,
            label_visibility="collapsed",
        )
        st.button("Ask", key="ask", icon=":material/send:", on_click=_ask, args=(view,), **_look(view))


def _ask(view: View) -> None:
    def begin(live: LiveRun) -> None:
        live.begin(st.session_state["typed_intent"])
        st.session_state["typed_intent"] = ""

    move(view, begin)
