"""What an arm gains over another under every condition of a grid: the paired differences behind a phase diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import paired_interval
from memrl_core.experiments.cells import LEARN
from memrl_core.experiments.report_table import INTERVAL, NOTHING, PAIRED, ReportTable, difference, title

if TYPE_CHECKING:
    from memrl_core.experiments.plan import Plan, Stream
    from memrl_core.experiments.runner import Experiment

WEIGHT = "weight"


def axes(plan: Plan) -> dict[str, list[object]]:
    """The parameters in which the streams of `plan` differ, each with its values in the order of the plan."""
    rows = [_parameters(stream) for stream in plan.streams]
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: list(dict.fromkeys(row.get(name) for row in rows)) for name in names}
    return {name: found for name, found in values.items() if len(found) > 1}


def counterparts(plan: Plan) -> dict[str, str]:
    """Arm to the one that it is compared with: equal but for λ = 0 where there is such an arm, else the reference."""
    settings = {arm.name: (arm.policy, plan.settings_of(arm).model_dump()) for arm in plan.all_arms()}
    found = {}
    for name, (policy, its) in settings.items():
        plain = [other for other, of in settings.items() if WEIGHT in its and of == (policy, {**its, WEIGHT: 0.0})]
        other = plain[0] if plain else plan.reference
        if other != name:
            found[name] = other
    return found


def conditions(plan: Plan, epochs: pd.DataFrame) -> pd.DataFrame:
    """A row a stream, epoch and arm that has a counterpart; `epochs` is what `results.by_epoch` gives.

    Columns: the parameters of `axes`; stream, epoch, arm, `against`, its counterpart; `reference` and `success`, the
    means of both, which are of the true chance of what was answered where that is known, else of steps solved;
    `difference` of the two, paired by seed, with its 95 % interval `low` to `high` (null with one seed); `seeds`;
    `own_memory`, the share of steps in which a memory of the very task was in the prompt.
    """
    learned = epochs[epochs["phase"] == LEARN] if len(epochs) else epochs
    measure = "chance" if len(learned) and learned["chance"].notna().all() else "accuracy"
    varied, streams = axes(plan), {stream.name: _parameters(stream) for stream in plan.streams}
    rows = []
    for arm, against in counterparts(plan).items():
        for (stream, epoch), part in learned.groupby(["stream", "epoch"], sort=False) if len(learned) else ():
            of = part.set_index(["arm", "seed"])
            if not {arm, against} <= set(part["arm"]):
                continue
            both = pd.concat([of.loc[against, measure], of.loc[arm, measure]], axis=1, join="inner").to_numpy()
            low, high = paired_interval(both[:, 1], both[:, 0])
            rows.append(
                {
                    **{name: streams[stream].get(name) for name in varied},
                    "stream": stream,
                    "epoch": epoch,
                    "arm": arm,
                    "against": against,
                    "reference": both[:, 0].mean(),
                    "success": both[:, 1].mean(),
                    "difference": (both[:, 1] - both[:, 0]).mean(),
                    "low": float(low),
                    "high": float(high),
                    "seeds": len(both),
                    "own_memory": float(of.loc[arm, "own_memory"].mean()),
                }
            )
    return pd.DataFrame(rows)


def conditions_report(experiment: Experiment) -> ReportTable:
    """A row a condition and arm: the difference to its counterpart in each epoch."""
    found = conditions(experiment.plan, experiment.epochs)
    if found.empty:
        return ReportTable(title(experiment.plan, experiment.epochs, "by condition"), ("condition",), (), ())
    several = found["arm"].nunique() > 1
    epochs = sorted(found["epoch"].unique())
    rows = []
    for (stream, arm), part in found.groupby(["stream", "arm"], sort=False):
        by_epoch = part.set_index("epoch")
        last = by_epoch.loc[epochs[-1]] if epochs[-1] in by_epoch.index else None
        rows.append(
            (
                f"{stream} · {arm} against {part['against'].iloc[0]}" if several else str(stream),
                NOTHING if last is None else f"{100 * last['reference']:.1f} → {100 * last['success']:.1f} %",
                *(
                    difference(*by_epoch.loc[epoch, ["difference", "low", "high"]])
                    if epoch in by_epoch.index
                    else NOTHING
                    for epoch in epochs
                ),
                f"{100 * part['own_memory'].mean():.0f} %",
            )
        )
    better, worse = (int(np.count_nonzero(side)) for side in (found["low"] > 0, found["high"] < 0))
    return ReportTable(
        title(experiment.plan, experiment.epochs, "by condition"),
        ("condition", "last epoch", *(f"difference, epoch {epoch}" for epoch in epochs), "own memory in the prompt"),
        tuple(rows),
        (
            INTERVAL,
            PAIRED,
            "success is the true chance of what was answered where the world knows it",
            f"the interval lies above 0 in {better} of {len(found)} conditions and below in {worse}; of conditions "
            "without any difference, 1 in 20 would lie outside",
        ),
    )


def _parameters(stream: Stream) -> dict[str, object]:
    """The options of a stream's world, its changes, and its first stage's set of tasks and repeats."""
    stage = stream.stages[0]
    shift = ", ".join(map(str, stream.shift_at)) or "never"
    return {
        **stream.options,
        "repeat": stage.repeat,
        "tasks": stage.tasks,
        "own_memories": stream.own_memories,
        "shift_at": shift,
    }
