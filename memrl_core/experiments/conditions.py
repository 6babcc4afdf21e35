"""What an arm gains over another under every condition of a grid: the paired differences behind a phase diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import paired_interval
from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.report_table import INTERVAL, NOTHING, PAIRED, ReportTable, points, share, title

if TYPE_CHECKING:
    from memrl_core.experiments.plan import Plan, Stream
    from memrl_core.experiments.runner import Experiment


def axes(plan: Plan) -> dict[str, list[object]]:
    """The parameters in which the streams of `plan` differ, each with its values in the order of the plan."""
    rows = [_parameters(stream) for stream in plan.streams]
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: list(dict.fromkeys(row.get(name) for row in rows)) for name in names}
    return {name: found for name, found in values.items() if len(found) > 1}


def conditions(experiment: Experiment) -> pd.DataFrame:
    """A row a stream and arm other than the reference, over all steps.

    Columns: the parameters of `axes`; stream, arm; `reference` and `success`, mean shares of steps solved; `difference`
    of the two, paired by seed, with its 95 % interval `low` to `high` (null with one seed); `seeds`; `repeated`, the
    share of steps in which a memory of the very task was in the prompt.
    """
    steps = experiment.steps[experiment.steps["phase"] == LEARN]
    varied = axes(experiment.plan)
    won = steps.groupby(["stream", "arm", "seed"])["success"].apply(lambda found: found.astype(float).mean())
    own = steps.assign(own=steps["used_same_task"].map(any)).groupby(["stream", "arm"])["own"].mean()
    rows = []
    for stream in experiment.plan.streams:
        for arm in experiment.plan.all_arms():
            both_ran = all((stream.name, name) in own.index for name in (arm.name, experiment.plan.reference))
            if arm.name == experiment.plan.reference or not both_ran:
                continue
            both = pd.concat(
                [won.loc[stream.name, experiment.plan.reference], won.loc[stream.name, arm.name]], axis=1, join="inner"
            ).to_numpy()
            low, high = paired_interval(both[:, 1], both[:, 0])
            parameters = _parameters(stream)
            rows.append(
                {
                    **{name: parameters.get(name) for name in varied},
                    "stream": stream.name,
                    "arm": arm.name,
                    "reference": both[:, 0].mean(),
                    "success": both[:, 1].mean(),
                    "difference": (both[:, 1] - both[:, 0]).mean(),
                    "low": float(low),
                    "high": float(high),
                    "seeds": len(both),
                    "repeated": float(own.loc[stream.name, arm.name]),
                }
            )
    return pd.DataFrame(rows)


def conditions_report(experiment: Experiment) -> ReportTable:
    """A row a condition and arm: what the reference and the arm solve, and the difference."""
    found = conditions(experiment)
    steps = experiment.steps[experiment.steps["phase"] == LEARN]
    won = steps.groupby(["stream", "arm", "seed"])["success"].apply(lambda solved: solved.astype(float).mean())
    several = found["arm"].nunique() > 1 if not found.empty else False
    rows = []
    for row in found.to_dict("records"):
        theirs, ours = won.loc[row["stream"], experiment.plan.reference], won.loc[row["stream"], row["arm"]]
        rows.append(
            (
                f"{row['stream']} · {row['arm']}" if several else str(row["stream"]),
                share(theirs.to_numpy(dtype=np.float64)),
                share(ours.to_numpy(dtype=np.float64)),
                points(ours, theirs),
                f"{100 * row['repeated']:.0f} %" if row["repeated"] is not None else NOTHING,
            )
        )
    better, worse = (int(side.sum()) for side in (found["low"] > 0, found["high"] < 0)) if len(found) else (0, 0)
    return ReportTable(
        title(experiment.plan, experiment.epochs, "all steps, by condition"),
        ("condition", str(experiment.plan.reference), "arm", "difference", "own memory in the prompt"),
        tuple(rows),
        (
            INTERVAL,
            PAIRED,
            f"the interval lies above 0 in {better} of {len(found)} conditions and below in {worse}; of conditions "
            "without any difference, 1 in 20 would lie outside",
        ),
    )


def _parameters(stream: Stream) -> dict[str, object]:
    """The options of a stream's world, and its first stage's set of tasks and repeats."""
    stage = stream.stages[0]
    return {**stream.options, "repeat": stage.repeat, "tasks": stage.tasks}
