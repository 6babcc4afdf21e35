"""Every dot of the playground's plane: `python -m benchmarks.plane` writes sample_data/plane.json, in some minutes."""

from __future__ import annotations

import json
from statistics import fmean, stdev
from typing import Any

from memrl_core.environments.tasks import sample_data_path
from memrl_core.lessons.measures import LEARNING, RESTING, Result, kept_and_gained, trained
from memrl_core.lessons.world import Loss, Settings

SEEDS = 40
ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
RATES: dict[Loss, tuple[float, ...]] = {
    "value": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0),
    "policy": (0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0),
}


def averaged(results: list[Result]) -> dict[str, list[float]]:
    """Mean and standard error over seeds of each of the three."""
    rows = list(zip(*results, strict=True))
    named = zip(("before", "kept", "gained"), rows, strict=True)
    return {name: [fmean(row), stdev(row) / len(row) ** 0.5] for name, row in named}


def plane(seeds: int = SEEDS) -> dict[str, Any]:
    """Every dot of the plane: memories by α and λ, and of each way of training the rate whose kept + gained is most."""
    every = range(1, seeds + 1)
    dots: list[dict[str, Any]] = []
    for weight in WEIGHTS:
        for alpha in ALPHAS:
            settings = Settings(alpha=alpha, weight=weight)
            measured = averaged([kept_and_gained(settings, seed) for seed in every])
            dots.append({"alpha": alpha, "lambda": weight, **measured})
    ghosts: list[dict[str, Any]] = []
    for loss, rates in RATES.items():
        made = [{"loss": loss, "rate": rate, **averaged([trained(loss, rate, s) for s in every])} for rate in rates]
        ghosts.append(max(made, key=lambda one: one["kept"][0] + one["gained"][0]))
    return {"seeds": seeds, "learning": LEARNING, "resting": RESTING, "dots": dots, "ghosts": ghosts}


def main() -> None:
    """Write the plane's file."""
    target = sample_data_path() / "plane.json"
    target.write_text(json.dumps(plane(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
