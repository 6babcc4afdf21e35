"""What a question on the page Decision is asked about: a step, as it was and as it would be under other settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
import streamlit as st

from memrl_core.analysis.decision.labels import memory_label
from memrl_core.analysis.decision.whatif import Situation, decided, situation_for_ours, situation_of
from memrl_core.analysis.memory.exposure import uses
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError, SettingsError
from memrl_core.policies import make_policy, settings_of, settings_that_fit
from memrl_core.policies.base import PolicySpec
from memrl_core.records import Candidate, Decision, Memory, RecallRecord, StepTrace
from memrl_core.settings import MemRLSettings, PolicySettings
from pages.decision import state
from pages.shared.picture import chosen_row
from pages.shared.place import Place
from pages.shared.work import Do, Result, working

QUESTION_OPTIONS = 400


@dataclass(frozen=True)
class Case:
    """A run, and one of its steps decided under `settings`; these are the `recorded` ones while nothing was changed.

    `at` is None in a run without steps. `situation` is None for a step that cannot be decided again; `why_not` then
    says why, and `recall` and `decision` are what was stored. `is_ours` says that another agent decided the step by
    rules of its own, so that the situation is one for the rules of the run, beside what was stored.
    """

    place: Place
    at: StepTrace | None
    recorded: PolicySettings
    settings: PolicySettings
    situation: Situation | None
    why_not: str
    recall: RecallRecord | None
    decision: Decision | None
    is_ours: bool = False

    @property
    def bank(self) -> MemoryBank:
        """The bank of the step."""
        return self.place.bank

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.place.info.id

    @property
    def policy(self) -> str:
        """The name of the policy that rules the run."""
        return self.place.info.policy

    @property
    def spec(self) -> PolicySpec | None:
        """What that policy is, under the settings looked at; None where it is not installed here."""
        try:
            return make_policy(self.policy, self.settings.model_dump()).spec
        except SettingsError:
            return None

    @property
    def weighed(self) -> MemRLSettings:
        """The settings looked at, for questions that only methods are asked which have those of MemRL."""
        return cast(MemRLSettings, self.settings)

    @property
    def weighed_as_recorded(self) -> MemRLSettings:
        """The recorded settings, for the same questions."""
        return cast(MemRLSettings, self.recorded)

    @property
    def trace(self) -> StepTrace:
        """The step, for questions that are only asked where there is one."""
        assert self.at is not None
        return self.at

    @property
    def own(self) -> bool:
        """Whether this program's agent decided the step, so that everything about its decision is known."""
        return self.at is not None and self.at.origin == "agent"

    @property
    def by_rules(self) -> tuple[RecallRecord | None, Decision | None]:
        """What the rules of the run recall and choose; beside another agent's own choice where `is_ours`."""
        if self.is_ours and self.situation is not None:
            return decided(self.situation, self.settings.model_dump())
        return self.recall, self.decision

    @property
    def tried(self) -> dict[str, Any]:
        """The settings that are tried out, without those that are as recorded."""
        recorded = self.recorded.model_dump()
        return {name: value for name, value in self.settings.model_dump().items() if value != recorded[name]}

    @property
    def changed(self) -> bool:
        """Whether the settings are others than the recorded ones."""
        return self.settings != self.recorded

    def label(self, memory_id: str) -> str:
        """A memory's short name."""
        return memory_label(memory_id, self.run)

    def memory(self, memory_id: str) -> Memory:
        """A memory's text."""
        return self.bank.memory(memory_id)

    def candidate(self, memory_id: str) -> Candidate | None:
        """The memory as it was considered under the settings looked at, if it was."""
        found = self.decision.candidates if self.decision else ()
        return next((c for c in found if c.memory_id == memory_id), None)

    def known(self) -> list[str]:
        """The ids to choose from: the pool by score, then what missed it, then the memory chosen elsewhere."""
        ids = [c.memory_id for c in self.decision.candidates] if self.decision else []
        chosen = self.place.memory
        return list(dict.fromkeys([*ids[:QUESTION_OPTIONS], *([chosen] if chosen else [])]))


def case_at(place: Place) -> Case:
    """The case at a place that has a run, under the settings that are tried out."""
    bank, run = place.bank, place.info.id
    step = place.step or place.last_step
    trace = bank.trace(run, step) if step else None
    stored = (trace.recall, trace.decision) if trace else (None, None)
    try:
        recorded = settings_of(place.info.policy, trace.settings if trace else bank.settings(run))
    except SettingsError:
        why = "This step was decided under settings that this program does not have. What was stored is shown."
        recorded = _usable(place.info.policy, bank.settings(run))
        return Case(place, trace, recorded, recorded, None, why, *stored)
    settings = state.tried(recorded)
    if trace is None:
        return Case(place, None, recorded, settings, None, "", *stored)
    found = situation(bank, bank.handle, run, step)
    if isinstance(found, str):
        ours = situation(bank, bank.handle, run, step, ours=True) if trace.origin != "agent" else ""
        if isinstance(ours, str) or None in stored:
            return Case(place, trace, recorded, recorded, None, found, *stored)
        return Case(place, trace, recorded, settings, ours, "", *stored, is_ours=True)
    made = stored if settings == recorded else decided(found, settings.model_dump())
    return Case(place, trace, recorded, settings, found, "", *made)


def _usable(policy: str, settings: Mapping[str, Any]) -> PolicySettings:
    """Those of `settings` that are known here, where they go together; the defaults where they do not."""
    try:
        return settings_that_fit(policy, settings)
    except SettingsError:
        known = {name: value for name, value in settings.items() if name in MemRLSettings.model_fields}
    try:
        return MemRLSettings.of(known)
    except SettingsError:
        return MemRLSettings()


@st.cache_resource(max_entries=8, show_spinner=False)
def situation(_bank: MemoryBank, handle: str, run: str, step: int, ours: bool = False) -> Situation | str:
    """The situation of a step, or the sentence that says why there is none; kept, so that a slider answers at once.

    `ours` asks for what the rules of the run would have had before them, whoever decided.
    """
    try:
        return (situation_for_ours if ours else situation_of)(_bank, _bank.trace(run, step))
    except InputError as error:
        return str(error)


@st.cache_data(max_entries=4, show_spinner="Reading every step of the run …")
def all_uses(_bank: MemoryBank, state: str, run: str) -> pd.DataFrame:
    """Every candidate of every step, kept until something is appended to the bank."""
    return uses(_bank, run)


def over_steps(case: Case, name: str, do: Do[Result]) -> Result | None:
    """What `do` finds in all steps of the run under the settings looked at; None until then."""
    return working(name, f"{case.bank.state}·{case.run}·{case.tried}", do, "steps decided again")


def uses_of(case: Case) -> pd.DataFrame:
    """Every candidate of every step of the run."""
    return all_uses(case.bank, case.bank.state, case.run)


def chosen_step(rows: Sequence[Mapping[str, Any]], steps: Sequence[int], key: str, alt: str, **look: Any) -> int | None:
    """Draw `rows`, of which each stands for one of `steps`; returns the step whose row is chosen."""
    chosen = chosen_row(rows, key, alt, **look)
    if chosen is None:
        st.caption("Choose a row to go to its step.")
    return None if chosen is None else steps[chosen]
