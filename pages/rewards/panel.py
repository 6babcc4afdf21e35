"""The scale under an answer: one key per rating, and what each choice would do, shown before anything is saved."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.people.rating_queue import RatingSession
from memrl_core.bank import MemoryBank
from memrl_core.bank.people.ratings import Rating
from memrl_core.bank.people.roles import Role
from memrl_core.learning.scales import (
    MARKS,
    RatingScales,
    Scale,
    graded_reward,
    mapping_words,
    options,
    pairwise_rewards,
    rubric_reward,
    stars_reward,
    thumbs_reward,
)
from memrl_core.numerals import signed
from memrl_core.records import LedgerEvent, StepTrace
from pages.rewards.queue import save
from pages.shared import waiting
from pages.shared.person import allowed, is_distinct, person, within_role
from pages.shared.picture import show_table
from pages.shared.rewards import CHOSEN, later_selections, option_button
from pages.shared.text import literal

SCALES: Mapping[Scale, str] = {
    "thumbs": "Thumbs",
    "graded": "−1 … 1",
    "stars": "1 – 5",
    "rubric": "Rubric",
    "pairwise": "Pairs",
}
Bounds = tuple[float, float]


class Panel:
    """What the buttons of one step need: where it is, who rates it, and how ratings become rewards there."""

    def __init__(self, bank: MemoryBank, trace: StepTrace, session: RatingSession) -> None:
        self.bank, self.trace, self.session = bank, trace, session
        self.scales: RatingScales = bank.ratings.scales(trace.run)
        self.bounds: Bounds = bank.ratings.bounds(trace.run, trace.step)
        self.mine: LedgerEvent | None = bank.ratings.mine(trace.run, trace.step, person())
        self.named = is_distinct()
        self.may = allowed(bank, Role.RATE) and self.named
        self.look = within_role(bank, Role.RATE, disabled=not self.named)

    def rating(self, value: float, given: Mapping[str, Any]) -> Rating:
        """A reward of this person for this step, with the reason typed so far."""
        reason = st.session_state.get(f"reason_{self.trace.id}", "")
        return Rating(self.trace.run, self.trace.step, value, person(), reason, given)

    def save(self, value: float, given: Mapping[str, Any], go_on: bool = True) -> bool:
        """Save a reward and go on; True when it was saved."""
        return self.keep(self.rating(value, given), go_on)

    def keep(self, rating: Rating, go_on: bool) -> bool:
        """Save a rating of this step, which takes along the reason that waited; True when it was saved."""
        waiting.taken()
        place = self.trace.run, self.trace.step
        return save(self.bank, self.session, place, lambda: [self.bank.write.ratings.rate(rating)], go_on)

    def gave(self, **given: Any) -> bool:
        """Whether the person's standing reward was given so."""
        return self.mine is not None and all(self.mine.payload.get(name) == value for name, value in given.items())


def rating_panel(panel: Panel, scale: Scale) -> None:
    """The buttons of a scale, what they mean, and a reason."""
    st.caption(
        literal(mapping_words(panel.scales, scale, *panel.bounds)), help="How a rating becomes a reward R: Rules"
    )
    if not panel.named:
        st.info("Somebody else is here too. Type your name above, so that your rewards are known as yours.")
    elif not panel.may:
        st.info("You may look at this bank, not rate. Someone who manages it can change that under People.")
    if scale == "rubric":
        _rubric(panel)
    else:
        _options(panel, scale)
    if scale == "graded":
        _graded(panel)
    with st.container(key="reason_box"):
        key = f"reason_{panel.trace.id}"
        if panel.mine is not None:
            st.session_state.setdefault(key, panel.mine.reason)
        st.text_input(
            "Reason (optional) · E",
            key=key,
            max_chars=2000,
            disabled=not panel.may,
            on_change=_reason_changed,
            args=(panel,),
        )
    if panel.mine is not None:
        st.markdown(
            f"You gave **{signed(panel.mine.value or 0.0)}**. Another choice takes its place; both stay on record."
        )


def scale_picker(run: str, scales: RatingScales) -> Scale:
    """The scale in use; at first the one that the run's rules name, and again when they name another."""
    if st.session_state.get("scale_asked") != (run, scales.scale):
        st.session_state["scale_asked"] = run, scales.scale
        st.session_state["rating_scale"] = scales.scale
    chosen: Scale | None = st.segmented_control(
        "Scale", get_args(Scale), format_func=SCALES.__getitem__, key="rating_scale", required=True,
        persist_state="session",
    )  # fmt: skip
    return chosen or scales.scale


def what_it_would_do(panel: Panel, scale: Scale, blind: bool, both: str = "") -> None:
    """The memories that were in the prompt, with their q after the lowest and highest choice, and later selections.

    `both` is how both answers of a pair ended, where they ended alike and the person may know it.

    Who rates blind sees no q that holds the environment's reward or another person's: it would show through.
    """
    credited = panel.bank.credits.of(panel.trace.run, panel.trace.step)
    if not credited:
        st.caption("No memory was in the prompt: a reward is kept with the step and moves no q.")
        return
    values = _ends(panel, scale, both)
    ends = {name: panel.bank.ratings.supposed(panel.rating(value, {})) for name, value in values.items()}
    now = panel.bank.histories(panel.trace.run, credited)
    rows = []
    for memory_id in credited:
        row = {"memory": memory_label(memory_id, panel.trace.run)}
        if not blind:
            row["q now"] = signed(now[memory_id][-1].after) if memory_id in now else "–"
        moved = {name: ends[name].moved[memory_id][1] for name in ends if memory_id in ends[name].moved}
        if blind and _shows_through(panel):
            low, high = list(values)[:2]
            row[f"{high} − {low}"] = signed(moved[high] - moved[low]) if moved else "–"
        else:
            for name, value in values.items():
                row[f"q if {name} {signed(value)}"] = signed(moved[name]) if name in moved else "–"
        rows.append({**row, "intent": panel.bank.memory(memory_id).intent})
    show_table(rows, "would_move", "The memories in the prompt, with q after each choice")
    later_selections(panel.bank, panel.trace, ends, blind)


def _shows_through(panel: Panel) -> bool:
    """Whether q after this person's reward would still hold what others gave for the step."""
    rule = panel.bank.settings(panel.trace.run, panel.trace.step).get("human_rewards", "override")
    given = panel.bank.ratings.of(panel.trace.run, panel.trace.step)
    return rule != "override" or any(event.source == "person" and event.rater != person() for event in given)


def _ends(panel: Panel, scale: Scale, both: str) -> dict[str, float]:
    """The lowest and the highest reward of a scale, by name."""
    low, high = panel.bounds
    if scale == "thumbs":
        return {up: thumbs_reward(panel.scales, up == "good", low, high) for up in ("bad", "good")}
    if scale == "pairwise":
        better, worse = pairwise_rewards(panel.scales, "first", low, high, both)
        return {"worse": worse, "better": better}
    if scale == "stars":
        return {f"{stars} ★": stars_reward(panel.scales, stars, low, high) for stars in (MARKS[0], MARKS[-1])}
    ends = {"lowest": low, "highest": high}
    grade = st.session_state.get(f"grade_{panel.trace.id}", 0.0) if scale == "graded" else 0.0
    return {**ends, "the slider's": graded_reward(grade, low, high)} if grade else ends


def _options(panel: Panel, scale: Scale) -> None:
    with st.container(horizontal=True, gap="small", key="options"):
        for option in options(panel.scales, scale, *panel.bounds):
            chosen = panel.gave(**option.given)
            option_button(option, panel.trace.id, chosen, panel.save, (option.reward, option.given), **panel.look)


def _graded(panel: Panel) -> None:
    key = f"grade_{panel.trace.id}"
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    grade = left.slider("Any grade between", -1.0, 1.0, 0.0, 0.05, key=key, disabled=not panel.may)
    right.button(
        "Save", key=f"save_{key}", width="stretch", on_click=_save_grade, args=(panel, key),
        **{**panel.look, "help": panel.look["help"] or f"Save {signed(grade, 2)}"},
    )  # fmt: skip


def _save_grade(panel: Panel, key: str) -> None:
    grade = float(st.session_state[key])
    panel.save(graded_reward(grade, *panel.bounds), {"scale": "graded", "grade": grade})


def _rubric(panel: Panel) -> None:
    """A digit marks the next criterion that has no mark; the last one saves."""
    key = f"marks_{panel.trace.id}"
    stored = dict(panel.mine.payload.get("marks", {})) if panel.mine is not None else {}
    marks: dict[str, int] = st.session_state.setdefault(key, {})
    named = [criterion.name for criterion in panel.scales.criteria]
    following = next((name for name in named if name not in marks), None)
    for number, criterion in enumerate(panel.scales.criteria):
        name = criterion.name
        at = "▸ " if name == following else ""
        st.markdown(f"{at}{literal(name)} · weight {criterion.weight:g}")
        with st.container(horizontal=True, gap="small", key=f"criterion_{number}"):
            for mark in MARKS:
                st.button(
                    str(mark),
                    width="stretch",
                    key=f"mark_{number}_{mark}_{panel.trace.id}",
                    shortcut=str(mark) if name == following else None,
                    type="primary" if (marks or stored).get(name) == mark else "secondary",
                    on_click=_mark,
                    args=(panel, key, name, mark),
                    **panel.look,
                )
    if marks:
        st.button("Clear the marks", key=f"clear_{key}", type="tertiary", on_click=st.session_state.pop, args=(key,))


def _mark(panel: Panel, key: str, name: str, mark: int) -> None:
    given = {**st.session_state.get(key, {}), name: mark}
    # The criteria may have changed since the first mark.
    marks = {criterion.name: given[criterion.name] for criterion in panel.scales.criteria if criterion.name in given}
    st.session_state[key] = marks
    if len(marks) == len(panel.scales.criteria):
        reward = rubric_reward(panel.scales, marks, *panel.bounds)
        if panel.save(reward, {"scale": "rubric", "marks": marks}):
            st.session_state[key] = {}


def _reason_changed(panel: Panel) -> None:
    if panel.mine is not None:
        given = {name: value for name, value in panel.mine.payload.items() if name in CHOSEN}
        waiting.wait(partial(_save_reason, panel, panel.rating(panel.mine.value or 0.0, given)))


def _save_reason(panel: Panel, rating: Rating) -> None:
    # Another reward has taken the reason along.
    if panel.mine == panel.bank.ratings.mine(rating.run, rating.step, rating.rater):
        panel.keep(rating, go_on=False)
