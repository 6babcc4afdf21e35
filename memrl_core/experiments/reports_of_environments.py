"""The report of an experiment over several environments: what memory gains in each, and what a step of it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.report_table import (
    INTERVAL,
    NOTHING,
    PAIRED,
    Floats,
    ReportTable,
    groups,
    points,
    share,
    title,
)

if TYPE_CHECKING:
    from memrl_core.experiments.plan import Plan
    from memrl_core.experiments.runner import Experiment

COLUMNS = (
    "environment · arm",
    "tasks",
    "first epoch",
    "last epoch",
    "last against {reference}",
    "points, last epoch",
    "seconds a step",
    "all epochs",
    "all against {reference}",
    "valid answers",
    "tokens a step",
)
NOTES = (
    INTERVAL,
    PAIRED,
    "first and last epoch: share of tasks solved; points: the world's own reward, from 0 to 100 %, which may pay for "
    "half a solution",
    "seconds a step: median of all steps, from the 5th to the 95th percentile; other cells ran beside them",
    "valid answers: share of the answers that had to be one of those offered, and were",
    "tokens a step: mean that the model read and wrote",
)
MET_AGAIN = "every epoch brings the same tasks, so a gain may be recall of a task's own memory"
NEVER_MET_AGAIN = "every epoch brings other tasks: nothing is met twice"


def environments_report(experiment: Experiment) -> ReportTable:
    """A row an environment and arm: what is solved at first and at last, the points, and the seconds a step."""
    steps = experiment.steps[experiment.steps["phase"] == LEARN]
    timed = experiment.durations
    seconds = timed if timed.empty else timed[timed["phase"] == LEARN]
    reference = experiment.plan.reference
    rows = []
    for stream, arm, part in groups(steps):
        first, last = (_shares(part[part["epoch"] == epoch]) for epoch in (part["epoch"].min(), part["epoch"].max()))
        theirs = steps[(steps["stream"] == stream) & (steps["arm"] == reference)]
        took = np.array([]) if seconds.empty else _seconds(seconds, stream, arm)
        against = points(last, _shares(theirs[theirs["epoch"] == theirs["epoch"].max()]))
        rows.append(
            (
                f"{stream} · {arm}",
                str(part["task"].nunique()),
                share(first.to_numpy()),
                share(last.to_numpy()),
                NOTHING if arm == reference else against,
                share(_points(experiment.plan, arm, part[part["epoch"] == part["epoch"].max()])),
                _spread(took),
                share(_shares(part).to_numpy()),
                NOTHING if arm == reference else points(_shares(part), _shares(theirs)),
                _valid(part),
                _tokens(part),
            )
        )
    columns = tuple(column.format(reference=reference) for column in COLUMNS)
    notes = (*NOTES, *_met(experiment.plan))
    return ReportTable(title(experiment.plan, experiment.epochs, "environments"), columns, tuple(rows), notes)


def _met(plan: Plan) -> list[str]:
    """Whether the tasks of an epoch were met before."""
    fresh = {stage.fresh for stream in plan.streams for stage in stream.stages}
    return [note for note, found in ((MET_AGAIN, False), (NEVER_MET_AGAIN, True)) if found in fresh]


def _shares(part: pd.DataFrame) -> pd.Series:
    """The share of steps solved, by seed."""
    return part.groupby("seed")["success"].apply(lambda found: found.astype(float).mean())


def _valid(part: pd.DataFrame) -> str:
    asked = int(part["choices"].sum())
    return f"{100 * part['valid'].sum() / asked:.1f} %" if asked else NOTHING


def _tokens(part: pd.DataFrame) -> str:
    read, wrote = part["prompt_tokens"].mean(), part["answer_tokens"].mean()
    return NOTHING if pd.isna(read) else f"{read:,.0f} + {wrote:,.0f}"


def _points(plan: Plan, arm: str, part: pd.DataFrame) -> Floats:
    """The mean reward by seed, on the environment's own scale from 0 to 1."""
    settings = plan.settings_of(next(known for known in plan.all_arms() if known.name == arm))
    low, high = settings.reward_failure, settings.reward_success
    found: Floats = part.groupby("seed")["reward"].mean().to_numpy(dtype=np.float64)
    return (found - low) / (high - low)


def _seconds(timed: pd.DataFrame, stream: str, arm: str) -> Floats:
    theirs: Floats = timed[(timed["stream"] == stream) & (timed["arm"] == arm)]["seconds"].to_numpy(dtype=np.float64)
    return theirs


def _spread(seconds: Floats) -> str:
    if not seconds.size:
        return NOTHING
    low, middle, high = np.quantile(seconds, (0.05, 0.5, 0.95))
    return f"{middle:.3f} ({low:.3f}–{high:.3f})"
