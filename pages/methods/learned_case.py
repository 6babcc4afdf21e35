"""What is looked at: a method that has watched a run up to a step, and work on the run's whole history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.run.learned.deciding import Watching
from memrl_core.bank import MemoryBank
from memrl_core.figures.picture import Picture
from memrl_core.policies.base import Policy
from memrl_core.records import Memory, StepTrace
from pages.shared.picture import show
from pages.shared.place import Place
from pages.shared.text import literal, verbatim
from pages.shared.work import Do, Result, working


@dataclass(frozen=True)
class Case:
    """A method and the step up to whose end it has watched a run; `method` has the settings that hold there."""

    place: Place
    watching: Watching
    method: Policy[Any]
    trace: StepTrace

    @property
    def bank(self) -> MemoryBank:
        """The bank of the run."""
        return self.place.bank

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.watching.run

    @property
    def own(self) -> bool:
        """Whether the run itself goes by the method."""
        return self.watching.own

    @property
    def settings(self) -> Mapping[str, Any]:
        """The method's settings at the step."""
        settings: Mapping[str, Any] = self.method.settings.model_dump()
        return settings

    def label(self, memory_id: str) -> str:
        """A memory's short name."""
        return memory_label(memory_id, self.run)

    def over_all_steps(self, name: str, do: Do[Result], what: str = "") -> Result | None:
        """What `do` finds in the run's history; draws its progress, and returns None until it is there.

        `what` tells apart what `name` may be asked for in one step.
        """
        asked = f"{self.bank.state} {self.trace.id} {self.watching.policy} {what}"
        return working(f"learned_{name}", asked, do, "steps")


def show_or_say(picture: Picture, key: str, empty: bool, what_to_do: str) -> None:
    """The picture; where it is `empty`, its title as a sentence and what to do."""
    if empty:
        st.info(literal(f"{picture.title}. {what_to_do}"))
    else:
        show(picture, key)


def memory_text(case: Case, memory: Memory, remark: str = "") -> None:
    """A memory as it is, under its name, its outcome and a remark in our own words."""
    with st.container(border=True, key=f"learned_text_{memory.id}"):
        written = f"step {memory.step}" if memory.step > 0 else "given before the first step"
        st.markdown(f"**{literal(case.label(memory.id))}** · {memory.outcome}, {written}{remark}")
        verbatim(memory.experience)
