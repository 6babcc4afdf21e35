"""The scene `twins`: two runs on the same tasks and seeds under two settings, played epoch by epoch in the lesson."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from memrl_core.agent.twins import Side, TwinRuns, shifts_of, start_twins
from memrl_core.analysis.run.metrics import (
    OutcomeGrid,
    cumulative_success,
    epoch_accuracy,
    outcome_grid,
    solved_before_failing_now,
)
from memrl_core.bank import MemoryBank
from memrl_core.lessons.scene import Inputs, Scene, Value, read_inputs
from memrl_core.settings import MemRLSettings

SIDES = ("left", "right")


class Started(BaseModel):
    """The two runs, once a person has started them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    left: str = ""
    right: str = ""


@dataclass(frozen=True, slots=True)
class Played:
    """What the two runs did in the epochs that both have finished.

    `steps` counts those that both have finished; `shifts` are the steps from which on the world was another.
    """

    runs: tuple[str, str]
    grids: tuple[OutcomeGrid, OutcomeGrid]
    steps: int
    epochs: int
    shifts: tuple[int, ...]


class TwinsScene(Scene):
    """Settings: both sides' settings, the tasks and their seed, how many epochs, and after which the world shifts.

    With `shift_after` the runs wait there until the person has shifted the world, so that what follows is the same for
    everybody.
    """

    VALUES: ClassVar[Mapping[str, type]] = {
        "steps": float,
        "epochs": float,
        "shifts": float,
        "finished": bool,
        **{f"{side}_{what}": float for side in SIDES for what in ("accuracy", "csr", "forgotten")},
    }

    kind: Literal["twins"]
    left: MemRLSettings
    right: MemRLSettings
    tasks: Literal["household-train", "household-heldout", "household-demo"] = "household-train"
    task_count: int = Field(8, ge=2, le=30)
    epochs: int = Field(6, ge=2, le=12)
    seed: int = Field(0, ge=0, le=2**31 - 1)
    shift_after: int | None = Field(None, ge=1)

    @field_validator("shift_after")
    @classmethod
    def _before_the_end(cls, shift_after: int | None, known: ValidationInfo) -> int | None:
        epochs = known.data.get("epochs")
        if shift_after is not None and epochs is not None and shift_after >= epochs:
            raise ValueError(f"the world shifts before the last epoch: allowed are 1 to {epochs - 1}")
        return shift_after

    def begin(self, bank: MemoryBank) -> TwinRuns:
        """Start the two runs; their names are the inputs of the scene from then on."""
        sides = Side(self.left), Side(self.right)
        return start_twins(bank, sides, tasks=self.tasks, task_count=self.task_count, seed=self.seed)

    def started(self, inputs: Inputs) -> tuple[str, str] | None:
        """The names of the two runs; None when they were not started."""
        started = read_inputs(Started, inputs)
        return (started.left, started.right) if started.left else None

    def steps_to_play(self, twins: TwinRuns) -> int:
        """Steps to the end of the epoch under way; 0 at the end, and while a shift is waited for."""
        if self.waits_for_shift(twins) or twins.steps >= self.epochs * self.task_count:
            return 0
        return self.task_count - twins.steps % self.task_count

    def waits_for_shift(self, twins: TwinRuns) -> bool:
        """Whether it is time to shift the world."""
        return self.shift_after is not None and twins.steps == self._shift_step - 1 and not twins.shifts

    def played(self, bank: MemoryBank, inputs: Inputs) -> Played | None:
        """What came of the two runs; None when they were not started."""
        runs = self.started(inputs)
        if runs is None:
            return None
        steps = min(bank.next_step(run) - 1 for run in runs)
        epochs = steps // self.task_count
        grids = tuple(
            outcome_grid((row.task, row.epoch, row.outcome) for row in bank.step_rows(run) if row.epoch <= epochs)
            for run in runs
        )
        return Played(runs, (grids[0], grids[1]), steps, epochs, shifts_of(bank, runs[0]))

    def observe(self, bank: MemoryBank, inputs: Inputs) -> Mapping[str, Value]:
        """The runs in values; those of an epoch are absent until one is finished."""
        played = self.played(bank, inputs)
        if played is None:
            return {"steps": 0, "epochs": 0, "shifts": 0, "finished": False}
        values: dict[str, Value] = {
            "steps": played.steps,
            "epochs": played.epochs,
            "shifts": len(played.shifts),
            "finished": played.epochs >= self.epochs,
        }
        measures = {
            "accuracy": epoch_accuracy,
            "csr": cumulative_success,
            "forgotten": solved_before_failing_now,
        }
        for side, grid in zip(SIDES, played.grids, strict=True):
            if len(grid.epochs):
                values |= {f"{side}_{name}": float(np.round(of(grid.success)[-1], 9)) for name, of in measures.items()}
        return values

    @property
    def _shift_step(self) -> int:
        return (self.shift_after or 0) * self.task_count + 1
