"""The reports of an experiment on utilities: do they foretell, whom do they trust, what does poison do to them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import scipy  # Its parts are loaded where they are first used.

from memrl_core.analysis.run.metrics import binned_correlation, correlation
from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.report_table import (
    INTERVAL,
    NOTHING,
    PAIRED,
    ReportTable,
    named,
    number,
    points,
    share,
    title,
)

if TYPE_CHECKING:
    from memrl_core.experiments.runner import Experiment

BINS = 8
HIGH = 0.5
"""A q in the upper half of the way from the middle of the scale to r+ counts as high."""


def uses(steps: pd.DataFrame) -> pd.DataFrame:
    """One row a use of a memory: the step's columns with each of the lists `used…` unfolded."""
    lists = [name for name in steps.columns if name.startswith("used")]
    unfolded = steps[steps["used"].str.len() > 0].explode(lists)
    numbers = dict.fromkeys(("used_q", "used_similarity", "used_visits"), np.float64)
    return unfolded.astype({**numbers, "success": np.float64, "used_same_task": bool, "used_poison": bool})


def correlation_report(experiment: Experiment) -> ReportTable:
    """q before a use against what came of it."""
    many = experiment.steps["stream"].nunique() > 1
    low, high = _scale(experiment)
    rows = []
    for (stream, arm), part in _uses(experiment).groupby(["stream", "arm"], sort=False):
        found = [correlation(q, won) for q, won in _pairs(part)]
        binned = [binned_correlation(q, won, low, high, BINS) for q, won in _pairs(part)]
        rows.append(
            (
                named(str(stream), str(arm), many),
                f"{len(part):,}",
                number(_values([c.pearson for c in found])),
                number(_values([c.spearman for c in found])),
                number(_values([c.pearson for c in binned])),
            )
        )
    return ReportTable(
        title(experiment.plan, experiment.epochs, "does q foretell success?"),
        ("arm", "uses", "Pearson, per use", "Spearman, per use", f"Pearson of {BINS} bin means"),
        tuple(rows),
        (
            INTERVAL,
            "q as it was before the use, against the outcome of the step",
            "the paper's 0.861 is of bin means (arXiv 2601.03192, figure 7), which leaves out what varies in a bin",
        ),
    )


def failure_report(experiment: Experiment) -> ReportTable:
    """Memories of failures that have earned a high q: how often they are used, and with what success."""
    low, high = _scale(experiment)
    limit = (low + high) / 2 + HIGH * (high - low) / 2
    many = experiment.steps["stream"].nunique() > 1
    rows = []
    for (stream, arm), part in _uses(experiment).groupby(["stream", "arm"], sort=False):
        trusted = part[(part["used_q"] >= limit) & (part["used_visits"] > 0)]
        failed, solved = (trusted[trusted["used_outcome"] == outcome] for outcome in ("failure", "success"))
        rows.append(
            (
                named(str(stream), str(arm), many),
                share((trusted["used_outcome"] == "failure").groupby(trusted["seed"]).mean().to_numpy(dtype=float)),
                share(_success(failed)),
                share(_success(failed[failed["used_same_task"]])),
                share(_success(failed[~failed["used_same_task"]])),
                share(_success(solved)),
            )
        )
    return ReportTable(
        title(experiment.plan, experiment.epochs, f"memories of failures with q of at least {limit:g}"),
        (
            "arm",
            "of all uses with such a q",
            "success of the step",
            "on its own task",
            "on another task",
            "memories of successes, same q",
        ),
        tuple(rows),
        (INTERVAL, "q as it was before the use, and moved at least once"),
    )


def similarity_report(experiment: Experiment) -> ReportTable:
    """Does memory gain more where the tasks of a set are alike?"""
    plan = experiment.plan
    learned = experiment.epochs[experiment.epochs["phase"] == LEARN]
    last = learned[learned["epoch"] == learned.groupby(["stream", "arm", "seed"])["epoch"].transform("max")]
    rows: list[tuple[str, ...]] = []
    gains: dict[str, list[tuple[float, float]]] = {}
    arms = [arm.name for arm in plan.all_arms() if arm.name != plan.reference]
    for stream in last["stream"].unique():
        part = last[last["stream"] == stream].set_index(["arm", "seed"])
        alike = part["set_similarity"].groupby("seed").first().to_numpy(dtype=float)
        cells = []
        for arm in arms:
            pair = [part["accuracy"].loc[name] for name in (arm, plan.reference) if name in part.index]
            cells.append(points(pair[0], pair[1]) if len(pair) == 2 else NOTHING)
            if len(pair) == 2:
                gains.setdefault(arm, []).append((alike.mean(), (pair[0] - pair[1]).mean()))
        rows.append((str(stream), number(alike), *cells))
    notes = [INTERVAL, PAIRED]
    for arm, found in gains.items():
        if len(found) > 2:
            r = scipy.stats.pearsonr(*np.array(found).T).statistic
            notes.append(f"{arm}: gain against similarity over {len(found)} sets, Pearson r = {r:.2f}")
    return ReportTable(
        title(experiment.plan, experiment.epochs, f"gain over {plan.reference} in the last epoch"),
        ("set", "mean similarity of its tasks", *arms),
        tuple(rows),
        tuple(notes),
    )


def poison_report(experiment: Experiment) -> ReportTable:
    """How far malicious memories spread, how fast their q falls, and what forgetting brings back."""
    learned = experiment.steps[experiment.steps["phase"] == LEARN]
    many = learned["stream"].nunique() > 1
    rows = []
    for (stream, arm), part in learned.groupby(["stream", "arm"], sort=False):
        reference = learned[(learned["stream"] == stream) & (learned["arm"] == experiment.plan.reference)]
        poisoned = part[part["poison_left"] > 0]
        begin = int(poisoned["epoch"].min()) if len(poisoned) else None
        later = part if begin is None else part[part["epoch"] >= begin]
        first, last = (later["epoch"] == later["epoch"].min(), later["epoch"] == later["epoch"].max())
        rows.append(
            (
                named(str(stream), str(arm), many),
                NOTHING if begin is None else _against(part, reference, begin),
                _against(part, reference, int(later["epoch"].max())),
                share(_in_prompt(later[first])),
                share(_in_prompt(later[last])),
                share(later[last].groupby("seed")["tainted"].mean().to_numpy(dtype=float)),
                number(_at_the_end(later[first], "poison_q")),
                number(_at_the_end(later[last], "poison_q")),
                number(_at_the_end(later[last], "poison_left")) if begin is not None else NOTHING,
            )
        )
    return ReportTable(
        title(experiment.plan, experiment.epochs, "memory poisoning"),
        (
            "arm",
            f"accuracy when it comes in, against {experiment.plan.reference}",
            f"in the last epoch, against {experiment.plan.reference}",
            "poison in the prompt when it comes in",
            "poison in the prompt in the last epoch",
            "what descends from it in the last epoch",
            "its q after that epoch",
            "q at the end",
            "left at the end",
        ),
        tuple(rows),
        (
            INTERVAL,
            PAIRED,
            "descends: a poisoned memory was in the prompt when it was written, or one that descends",
            "its q: the mean over the poisoned memories that are left; one that shares prompts with good memories is "
            "paid for their success",
        ),
    )


def _uses(experiment: Experiment) -> pd.DataFrame:
    found = uses(experiment.steps[experiment.steps["phase"] == LEARN])
    return found[found["success"].notna()]


def _scale(experiment: Experiment) -> tuple[float, float]:
    rows = experiment.epochs
    return float(rows["reward_failure"].min()), float(rows["reward_success"].max())


def _pairs(part: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(cell["used_q"].to_numpy(), cell["success"].to_numpy()) for _, cell in part.groupby("seed")]


def _values(found: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def _success(part: pd.DataFrame) -> np.ndarray:
    return np.asarray(part.groupby("seed")["success"].mean(), dtype=np.float64)


def _in_prompt(part: pd.DataFrame) -> np.ndarray:
    return np.asarray(part["used_poison"].map(any).groupby(part["seed"]).mean(), dtype=np.float64)


def _against(own: pd.DataFrame, reference: pd.DataFrame, epoch: int) -> str:
    if own.index.equals(reference.index):
        return NOTHING
    return points(*(side[side["epoch"] == epoch].groupby("seed")["success"].mean() for side in (own, reference)))


def _at_the_end(part: pd.DataFrame, column: str) -> np.ndarray:
    """The column's value after the last step of each seed."""
    return np.asarray(part.sort_values("step").groupby("seed")[column].last(), dtype=np.float64)
