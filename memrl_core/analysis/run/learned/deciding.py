"""What a method decided in the steps of a run, how new its states were (EMPO²), and what its reranker did (RMM).

As recorded where the run is the method's own, else as it would have decided: another method decides by what it has
learned from watching the run; no model is asked, its templates stand in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from memrl_core.agent.learned_state import learned_before, lesson_of
from memrl_core.analysis.decision.whatif import on_this_pool
from memrl_core.bank import MemoryBank
from memrl_core.models.base import Cancelled, Progress, never, unheard
from memrl_core.policies import make_policy, settings_that_fit
from memrl_core.policies.base import Lesson, Policy
from memrl_core.policies.methods.rmm_reranker import CITATIONS
from memrl_core.records import Decision, Reason, RecallRecord, StepTrace
from memrl_core.retrieval import score_order


def novelty(watching: Watching, on_progress: Progress = unheard, cancelled: Cancelled = never) -> pd.DataFrame:
    """A row for each time that memory was asked: step, turn, tips found (n, at most k2), and novelty 1 / (n + 1).

    Raises `SettingsError`.
    """
    rows = []
    for trace in watching.traces(on_progress, cancelled):
        for one in recollections(watching, trace):
            found = min(len(one.recall.pool), one.decision.k2)
            rows.append((trace.step, one.turn, found, 1 / (found + 1)))
    return pd.DataFrame(rows, columns=["step", "turn", "tips", "novelty"])


CITED = {True: "cited: R = +1", False: "not cited: R = −1", None: "reply not parsed: no feedback"}


def citations(watching: Watching, on_progress: Progress = unheard, cancelled: Cancelled = never) -> pd.DataFrame:
    """One row per epoch: for how many memories in prompts the answers said each of `CITED`; empty when none was asked.

    A reply that could not be read counts as no feedback.
    """
    rows = [
        (trace.epoch, CITED[None if cited is None else memory_id in cited])
        for trace in watching.traces(on_progress, cancelled)
        for cited in _cited(trace)
        for memory_id in (trace.decision.selected if trace.decision else ())
    ]
    table = pd.DataFrame(rows, columns=["epoch", "cited"])
    return pd.crosstab(table["epoch"], table["cited"]).reindex(columns=list(CITED.values()), fill_value=0).reset_index()


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of a memory in the pool, from 1: by similarity, by the adapters, and with the noise."""

    memory_id: str
    recalled: int
    adapted: int
    drawn: int


def ranks(decision: Decision) -> tuple[Ranks, ...]:
    """Where each memory of the pool stood before the adapters, after them, and after the noise, in the last's order."""
    pool = [candidate for candidate in decision.candidates if candidate.rank_select is not None]
    by_adapters = score_order(
        np.array([candidate.terms[0].contribution for candidate in pool]),
        np.array([candidate.similarity for candidate in pool]),
        np.array([candidate.rank_recall for candidate in pool]),
    )
    adapted = {pool[index].memory_id: rank for rank, index in enumerate(by_adapters.tolist(), start=1)}
    return tuple(
        Ranks(one.memory_id, one.rank_recall, adapted[one.memory_id], rank) for rank, one in enumerate(pool, start=1)
    )


def _cited(trace: StepTrace) -> list[set[str] | None]:
    """What was cited, once for each time that the model was asked in a step; None for an unreadable reply."""
    asked = [one.filled for one in trace.consulted if one.purpose == CITATIONS]
    return [None if filled is None else set(map(str, filled["cited"])) for filled in asked]


GIVEN, PRUNED, NONE_LEFT, SILENT, NOTHING = "given", "pruned", "none left", "silent", "nothing recalled"
"""What becomes of a pool: given, given but for what was pruned, pruned away, kept back; or there is none."""
BECAME = ["step", "epoch", "turn", "what", "why"]


@dataclass(frozen=True, slots=True)
class Recollection:
    """One time that memory was asked in a step: at its beginning (`turn` 0), or before a later turn."""

    turn: int
    recall: RecallRecord
    decision: Decision


def recollections(watching: Watching, trace: StepTrace) -> tuple[Recollection, ...]:
    """Each time that the method asked memory in a finished step; at its beginning only, where the run is another's.

    Empty where the step cannot be decided again. Raises `SettingsError`.
    """
    if trace.recall is None or trace.decision is None:
        return ()
    if trace.policy == watching.policy:
        turns = trace.generate.turns if trace.generate is not None else ()
        later = [
            Recollection(turn, one.recalled.recall, one.recalled.decision)
            for turn, one in enumerate(turns)
            if one.recalled is not None
        ]
        return (Recollection(0, trace.recall, trace.decision), *later)
    found = on_this_pool(watching.bank, trace, [watching.policy], own_recall=True) if trace.embed is not None else None
    return tuple(
        Recollection(0, one.recall, one.decision)
        for one in found or ()
        if one.recall is not None and one.decision is not None
    )


def what_became(watching: Watching, on_progress: Progress = unheard, cancelled: Cancelled = never) -> pd.DataFrame:
    """A row for each time that memory was asked: step, epoch, turn, what became of the pool (`GIVEN` …), and why.

    Raises `SettingsError`.
    """
    rows = [
        (trace.step, trace.epoch, one.turn, _what(one), one.decision.note)
        for trace in watching.traces(on_progress, cancelled)
        for one in recollections(watching, trace)
    ]
    return pd.DataFrame(rows, columns=BECAME)


def _what(one: Recollection) -> str:
    if not one.recall.pool:
        return NOTHING
    if one.decision.mode == "silent":
        return SILENT
    if not one.decision.selected:
        return NONE_LEFT
    pruned = any(candidate.reason is Reason.PRUNED_BY_MODEL for candidate in one.decision.candidates)
    return PRUNED if pruned else GIVEN


@dataclass(frozen=True, slots=True, eq=False)
class Watching:
    """A method, by the name of its policy, that has watched a run up to the end of `step`."""

    bank: MemoryBank
    run: str
    step: int
    policy: str

    @property
    def own(self) -> bool:
        """Whether the run itself goes by the method."""
        return self.bank.run(self.run).policy == self.policy

    @property
    def trace(self) -> StepTrace:
        """The step looked at. Raises `InputError` when the run has no such step."""
        return self.bank.trace(self.run, self.step)

    def method(self) -> Policy[Any]:
        """The method under those of the step's settings that it knows. Raises `SettingsError`."""
        settings = settings_that_fit(self.policy, self.bank.settings(self.run, self.step))
        return make_policy(self.policy, settings.model_dump())

    def before(self) -> Any:
        """A copy of the state with which the step began; None where the method keeps none."""
        return learned_before(self.bank, self.run, self.step, self.policy)

    def after(self) -> Any:
        """A copy of the state in which the step left the method; None where it keeps none."""
        return learned_before(self.bank, self.run, self.step + 1, self.policy)

    def lesson(self) -> Lesson:
        """The step as the method learns from it, with the reward that stands now."""
        return lesson_of(self.bank, self.trace)

    def traces(self, on_progress: Progress = unheard, cancelled: Cancelled = never) -> Iterator[StepTrace]:
        """Every finished step of the run up to `step`. Ends early once `cancelled()` is true."""
        first = self.bank.run(self.run).first_step
        for trace in self.bank.each_trace(self.run, (first, self.step)):
            if cancelled():
                return
            on_progress(trace.step - first + 1, self.step - first + 1)
            yield trace
