"""The presets of the playground: settings with a sentence each, whose numbers `memrl claims check` computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memrl_core.lessons.world import Settings


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
