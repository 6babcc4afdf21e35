"""The presets of the playground: settings with a sentence each, and the measurement that the sentences state.

`python -m memrl_core.lessons.presets` measures all of them over 50 seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean
from typing import Any

from memrl_core.lessons.world import Play, Settings, family_of, is_shifted

SEEDS = 50
LENGTH = 288
BEFORE = range(97, 145)
AFTER = range(241, 289)
"""The steps that are measured: the last 48 before the world shifts, and the last 48 of all."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings of the playground by their names in its address, and what they do."""

    name: str
    sentence: str
    settings: Mapping[str, float] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """What the browser gets."""
        return {"name": self.name, "sentence": self.sentence, "settings": dict(self.settings)}

    def run_settings(self, seed: int) -> Settings:
        """The settings of a run."""
        given: dict[str, Any] = {("weight" if name == "lambda" else name): v for name, v in self.settings.items()}
        return Settings(seed=seed, **given)


PRESETS = (
    Preset("default", "α = 0.3, λ = 0.5: 77 % before the shift; of what changes, 58 % at the end."),
    Preset(
        "stiff",
        "α = 0.02: q hardly moves, so what worked once stays on top. Of what changes, 49 % at the end, not 58.",
        {"alpha": 0.02},
    ),
    Preset(
        "nervous",
        "α = 0.9: the last reward decides. 72 % and not 77 while the world stays; of what changes, 68 % and not 58.",
        {"alpha": 0.9},
    ),
    Preset(
        "forgetful",
        "Only the last 24 memories are kept: 55 % before the shift, not 77. What has not come lately is gone.",
        {"keep": 24},
    ),
    Preset(
        "blind to q",
        "λ = 0: as good as the default while the world stays (77 %). Of what changes, 38 % at the end and not 58.",
        {"lambda": 0.0},
    ),
    Preset(
        "blind to meaning",
        "λ = 1: what served well elsewhere comes first. 63 % before the shift, not 77; of what changes, 71 %, not 58.",
        {"lambda": 1.0},
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean true chance of success over seeds: before the shift, and at the end for what changed and what stayed."""

    before: float
    changed: float
    stayed: float


def measured(preset: Preset, seeds: int = SEEDS) -> Measured:
    """What a preset does, over the seeds 1 to `seeds`."""
    return Measured(*map(fmean, zip(*(one_seed(preset, seed) for seed in range(1, seeds + 1)), strict=True)))


def one_seed(preset: Preset, seed: int) -> tuple[float, float, float]:
    """What a preset does under one seed, in the order of `Measured`."""
    steps = list(islice(Play(preset.run_settings(seed)), LENGTH))
    last = [steps[number - 1] for number in AFTER]
    return (
        fmean(steps[number - 1].chance for number in BEFORE),
        fmean(one.chance for one in last if is_shifted(family_of(one.task))),
        fmean(one.chance for one in last if not is_shifted(family_of(one.task))),
    )


def main() -> None:
    """Print what every preset does."""
    for preset in PRESETS:
        found = measured(preset)
        print(f"{preset.name:18} before {found.before:.1%}, changed {found.changed:.1%}, stayed {found.stayed:.1%}")


if __name__ == "__main__":
    main()
