"""The scene `ladder`: q of one memory under the rewards that a person gives, for one step size or for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from memrl_core.analysis.run.theory import half_life
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.learning import updated_q
from memrl_core.lessons.scene import Inputs, Scene, Value, read_inputs

MOST_REWARDS = 60
StepSize = Annotated[float, Field(gt=0, le=1)]
Reward = Annotated[float, Field(ge=-10, le=10)]


class Given(BaseModel):
    """The rewards a person gave, oldest first, and the step size, None where it stands as the lesson set it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rewards: list[Reward] = Field(default_factory=list, max_length=MOST_REWARDS)
    alpha: StepSize | None = None


@dataclass(frozen=True, slots=True)
class Climb:
    """q after 0, 1, 2 … rewards under one step size."""

    alpha: float
    values: tuple[float, ...]


class LadderScene(Scene):
    """Settings: q0, the step size and whether it can be moved, other step sizes beside it, and the rewards offered."""

    VALUES: ClassVar[Mapping[str, type]] = {
        "rewards": float,
        "successes": float,
        "failures": float,
        "mean_reward": float,
        "q": float,
        "alpha": float,
        "updates_to_half": float,
        "spread": float,
    }

    kind: Literal["ladder"]
    q0: float = Field(0.0, ge=-10, le=10)
    alpha: StepSize = 0.3
    alpha_free: bool = False
    beside: list[StepSize] = Field(default_factory=list, max_length=3)
    offered: list[Reward] = Field([1.0, -1.0], min_length=1, max_length=3)

    def given(self, inputs: Inputs) -> Given:
        """The rewards so far and the step size in force."""
        given = read_inputs(Given, inputs)
        alpha = given.alpha if self.alpha_free and given.alpha is not None else self.alpha
        return Given(rewards=given.rewards, alpha=alpha)

    def climbs(self, inputs: Inputs) -> list[Climb]:
        """The same rewards under the step size in force, which comes first, and under those beside it."""
        given = self.given(inputs)
        assert given.alpha is not None
        return [self._climb(alpha, given.rewards) for alpha in (given.alpha, *self.beside)]

    def with_reward(self, inputs: Inputs, reward: float) -> dict[str, JsonValue]:
        """The inputs after one more reward. Raises `InputError` when there are enough of them."""
        given = self.given(inputs)
        if len(given.rewards) >= MOST_REWARDS:
            raise InputError(f"{MOST_REWARDS} rewards are enough to see it. Begin again to give others.")
        return {"rewards": [*given.rewards, reward], "alpha": given.alpha}

    def observe(self, bank: MemoryBank, inputs: Inputs) -> Mapping[str, Value]:
        """The ladder in values; `spread` is how far apart the q of the step sizes are."""
        given, climbs = self.given(inputs), self.climbs(inputs)
        last = [climb.values[-1] for climb in climbs]
        values: dict[str, Value] = {
            "rewards": len(given.rewards),
            "successes": sum(reward > 0 for reward in given.rewards),
            "failures": sum(reward < 0 for reward in given.rewards),
            "q": last[0],
            "alpha": climbs[0].alpha,
            "updates_to_half": _updates_to_half(climbs[0].alpha),
            "spread": max(last) - min(last),
        }
        if given.rewards:
            values["mean_reward"] = fmean(given.rewards)
        return values

    def _climb(self, alpha: float, rewards: Sequence[float]) -> Climb:
        values = [self.q0]
        for reward in rewards:
            values.append(updated_q(values[-1], reward, alpha))
        return Climb(alpha, tuple(values))


def _updates_to_half(alpha: float) -> int:
    """How many whole updates go at least half of the way. Rounded, since exactly one may come out a little more."""
    return max(1, ceil(round(float(half_life(alpha)), 9)))
