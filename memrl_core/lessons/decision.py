"""The scene `decision`: one step of a recorded run, decided again under the settings that a person moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from memrl_core.analysis.decision.whatif import decided, same_choice, situation_of
from memrl_core.bank import MemoryBank
from memrl_core.lessons.scene import Inputs, Scene, Value, read_inputs
from memrl_core.records import Decision, StepTrace
from memrl_core.settings import MemRLSettings

Control = Literal["weight", "delta", "k2"]


class Moved(BaseModel):
    """Where a person moved the controls; None for one that stands as the lesson set it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float | None = None
    delta: float | None = None
    k2: int | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """The step, the settings looked at, and the decision under them and under those the lesson starts with."""

    trace: StepTrace
    settings: MemRLSettings
    decision: Decision
    at_start: Decision


class DecisionScene(Scene):
    """Settings: the recorded step, the settings to start with (as recorded where none is given), what can be moved.

    `figure` is what the page draws: ranks before and after, the parts of each score, or the scores over λ.
    """

    VALUES: ClassVar[Mapping[str, type]] = {
        "weight": float,
        "delta": float,
        "k2": float,
        "pool": float,
        "selected": float,
        "changed": bool,
        "selected_q_mean": float,
        "selected_similarity_mean": float,
        "selected_successes": float,
        "selected_failures": float,
        "top_is_most_similar": bool,
    }

    kind: Literal["decision"]
    run: str = Field("household", min_length=1)
    step: int = Field(ge=1)
    weight: float | None = Field(None, ge=0, le=1)
    delta: float | None = Field(None, ge=-1, le=1)
    k2: int | None = Field(None, ge=0, le=10)
    controls: list[Control] = Field(["weight"], min_length=1)
    figure: Literal["ranks", "scores", "lines"] = "ranks"

    def looked_at(self, bank: MemoryBank, inputs: Inputs) -> Looked:
        """The step decided twice: as the lesson starts, and as the controls stand.

        Raises `UnknownRun` or `InputError` for a step that is not there, `SettingsError` for a value out of range.
        """
        moved = read_inputs(Moved, inputs).model_dump(include=set[str](self.controls), exclude_none=True)
        trace = bank.trace(self.run, self.step)
        situation = situation_of(bank, trace)
        start = {**trace.settings, **self.model_dump(include={"weight", "delta", "k2"}, exclude_none=True)}
        settings = MemRLSettings.of({**start, **moved})
        _, at_start = decided(situation, start)
        _, decision = decided(situation, settings.model_dump())
        return Looked(trace, settings, decision, at_start)

    def observe(self, bank: MemoryBank, inputs: Inputs) -> Mapping[str, Value]:
        """The decision in values; means are absent when nothing was selected."""
        looked = self.looked_at(bank, inputs)
        decision, settings = looked.decision, looked.settings
        candidates = {candidate.memory_id: candidate for candidate in decision.candidates}
        chosen = [candidates[memory_id] for memory_id in decision.selected]
        outcomes = [bank.memory(memory_id).outcome for memory_id in decision.selected]
        values: dict[str, Value] = {
            "weight": settings.weight,
            "delta": settings.delta,
            "k2": settings.k2,
            "pool": sum(candidate.rank_select is not None for candidate in decision.candidates),
            "selected": len(chosen),
            "changed": not same_choice(decision, looked.at_start),
            "selected_successes": outcomes.count("success"),
            "selected_failures": outcomes.count("failure"),
        }
        if chosen:
            values["selected_q_mean"] = fmean(candidate.q for candidate in chosen)
            values["selected_similarity_mean"] = fmean(candidate.similarity for candidate in chosen)
            values["top_is_most_similar"] = chosen[0].similarity == max(c.similarity for c in decision.candidates)
        return values
