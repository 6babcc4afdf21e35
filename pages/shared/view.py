"""What a screen shows at a place: the moment, its memories, the run as it is being advanced; and what a method is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from memrl_core.agent.live import LiveRun
from memrl_core.analysis.decision.moment import Moment, Texts, as_it_counts, current, replayed
from memrl_core.environments.tasks import tasks_of_set
from memrl_core.errors import MemRLError, SettingsError
from memrl_core.policies import make_policy
from memrl_core.policies.base import BADGES as MEANING
from memrl_core.policies.base import PolicySpec
from memrl_core.records import Memory, Phase, RunInfo, StepTrace
from pages.shared import place as places
from pages.shared.place import Place
from pages.shared.text import in_badge, literal

Colour = Literal["green", "blue", "orange"]
BADGES: Mapping[str, tuple[str, Colour, str]] = {
    "paper": ("paper", "green", MEANING["paper"]),
    "code": ("official code", "blue", MEANING["code"]),
    "adapted": ("adapted", "orange", MEANING["adapted"]),
}


def arm_line(spec: PolicySpec) -> None:
    """The badge of a method, what it learns from, its source, and its deviations to unfold."""
    label, colour, help_text = BADGES[spec.variant]
    learns_from = ", ".join(spec.feedback) or "nothing"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(in_badge(spec.title), icon=":material/memory:", color="gray")
        st.badge(label, color=colour, help=help_text)
        st.badge(f"learns from: {learns_from}", icon=":material/school:", color="gray")
        if spec.deviations:
            with st.popover(f"Deviations ({len(spec.deviations):,})", type="tertiary"):
                deviations(spec)
    st.caption(literal(spec.citation))


def deviations(spec: PolicySpec) -> None:
    """Where a method differs from its source, in plain words."""
    st.markdown("\n".join(f"- {literal(sentence)}" for sentence in spec.deviations))


def spec_of(trace: StepTrace) -> PolicySpec | None:
    """The method of a step under its settings; None where it is not installed here, or for other agents' steps."""
    return spec_under(trace.policy, trace.settings) if trace.origin == "agent" else None


def spec_under(policy: str, settings: Mapping[str, Any]) -> PolicySpec | None:
    """What a policy is under these settings; None where it is not installed here."""
    try:
        return make_policy(policy, settings).spec
    except SettingsError:
        return None


@dataclass(frozen=True)
class View:
    """A place together with what is there; `live` is None until somebody advances the run.

    `counted` is the step with its reward, and the moves of q that follow from it, as they count now.
    `busy` is whether the agent worked in the background when the view was made, `awaits_reward` whether the step then
    waited for a person's reward: a page that asked again while it is drawn might disable its buttons and then not wait
    for the work to end, or draw a form twice.
    """

    place: Place
    run: RunInfo
    moment: Moment
    counted: StepTrace | None
    memories: Mapping[str, Memory]
    live: LiveRun | None
    busy: bool
    awaits_reward: bool

    @property
    def trace(self) -> StepTrace:
        """The step, for what is drawn only where there is one."""
        assert self.moment.trace is not None
        return self.moment.trace

    @property
    def spec(self) -> PolicySpec | None:
        """The method of the step, or of the run before its first; None where it is not installed here."""
        settings = self.moment.trace.settings if self.moment.trace else self.run.settings
        return spec_under(self.run.policy, settings)


def view_of(place: Place) -> View:
    """Everything a step's screen draws from. The place must have a run; raises `BankError` for what cannot be read."""
    live = places.live_if_begun(place)
    busy = live is not None and live.busy  # Before the moment: what ends meanwhile is drawn again, not missed.
    if place.step is not None:
        moment = replayed(place.bank, place.info.id, place.step)
    else:
        moment = current(place.bank, place.info.id, live.episode if live else None)
    episode = live.episode if live is not None and moment.live and not busy else None
    awaits = episode is not None and moment.next_phase is Phase.REWARD and episode.awaits_reward
    trace = moment.trace
    counted = as_it_counts(place.bank, trace) if trace is not None and moment.next_phase is None else trace
    return View(place, place.info, moment, counted, Texts(place.bank, moment.utilities), live, busy, awaits)


@st.cache_data(max_entries=16, show_spinner=False)
def families_of(tasks: str) -> dict[str, str]:
    """The family of each task of a set; none where the set cannot be read here."""
    try:
        return {task.id: task.family for task in tasks_of_set(tasks)} if tasks else {}
    except MemRLError:
        return {}
