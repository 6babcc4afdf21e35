"""The reports that an experiment can ask for, by name: what was achieved, lost, and carried over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import adaptation_time, average_accuracy, backward_transfer, forward_transfer
from memrl_core.experiments.cells import EVALUATE, LEARN
from memrl_core.experiments.conditions import conditions_report
from memrl_core.experiments.report_table import (
    INTERVAL,
    NOTHING,
    PAIRED,
    ReportTable,
    groups,
    named,
    number,
    points,
    share,
    title,
)
from memrl_core.experiments.reports_of_environments import environments_report
from memrl_core.experiments.reports_of_methods import methods_report
from memrl_core.experiments.reports_of_values import (
    correlation_report,
    failure_report,
    poison_report,
    similarity_report,
)
from memrl_core.experiments.runner import Experiment

WINDOW = 30
TOLERANCE = 0.05


def reports(experiment: Experiment) -> list[ReportTable]:
    """The tables that the plan asks for; none while no cell is finished."""
    return [] if experiment.steps.empty else [REPORTS[name](experiment) for name in experiment.plan.report]


def accuracy_report(experiment: Experiment) -> ReportTable:
    """Accuracy in the last epoch and the cumulative success rate of every arm, against the reference."""
    learned = _learned(experiment)
    last = learned[learned["epoch"] == learned.groupby(["stream", "arm", "seed"])["epoch"].transform("max")]
    many = learned["stream"].nunique() > 1
    rows = []
    for stream, arm, part in groups(last):
        accuracy, reference = _by_seed(part, "accuracy"), _reference(experiment, last, stream)
        rows.append(
            (
                named(stream, arm, many),
                share(accuracy.to_numpy()),
                _against(accuracy, reference, "accuracy", arm, experiment),
                share(_by_seed(part, "csr").to_numpy()),
                share(_by_seed(part, "solved_before_failing_now").to_numpy()),
            )
        )
    return ReportTable(
        title(experiment.plan, experiment.epochs, "accuracy in the last epoch and what was ever solved"),
        ("arm", "last epoch", f"against {experiment.plan.reference}", "CSR", "solved before, failing now"),
        tuple(rows),
        (
            INTERVAL,
            PAIRED,
            "CSR counts a task for ever once it was solved, also by luck: compare it with the CSR of an arm without "
            "memory",
        ),
    )


def forgetting_report(experiment: Experiment) -> ReportTable:
    """How much of what was solved is lost from epoch to epoch, by both definitions in use."""
    learned = _learned(experiment)
    later = learned[learned["epoch"] > learned.groupby(["stream", "arm", "seed", "stage"])["epoch"].transform("min")]
    many = learned["stream"].nunique() > 1
    measures = ("solved_before_failing_now", "forgetting_rate_of_failures", "forgetting_rate_of_solved")
    rows = []
    for stream, arm, part in groups(later):
        means = [part.groupby("seed")[measure].mean() for measure in measures]
        counts = part.groupby("seed")[["forgotten", "recovered"]].sum() / part.groupby("seed")["tasks"].mean().mean()
        reference = later[(later["stream"] == stream) & (later["arm"] == experiment.plan.reference)]
        other = reference.groupby("seed")[measures[1]].mean()
        rows.append(
            (
                named(stream, arm, many),
                *(share(mean.to_numpy()) for mean in means),
                NOTHING if arm == experiment.plan.reference else points(means[1], other),
                number(counts["forgotten"].to_numpy()),
                number(counts["recovered"].to_numpy()),
            )
        )
    return ReportTable(
        title(experiment.plan, experiment.epochs, "forgetting"),
        (
            "arm",
            "solved before, failing now",
            "forgetting rate (of failures)",
            "forgetting rate (of solved)",
            f"of failures, against {experiment.plan.reference}",
            "lost per task",
            "won back per task",
        ),
        tuple(rows),
        (
            INTERVAL,
            PAIRED,
            "means over the epochs after the first",
            "of failures: lost since the last epoch / all failures of the epoch (arXiv 2601.03192 v2); of solved: the "
            "same / what the last epoch had solved (v1)",
        ),
    )


def transfer_report(experiment: Experiment) -> ReportTable:
    """The frozen memory on tasks that it was not learned from, after the last stage."""
    used = experiment.epochs[experiment.epochs["phase"] == EVALUATE]
    if used.empty:
        return _empty(experiment, "transfer", "no stream has sets under `evaluate`")
    last = used[used["stage"] == used.groupby(["stream", "arm", "seed"])["stage"].transform("max")]
    many = last["stream"].nunique() > 1
    rows = []
    for (stream, arm, name), part in last.groupby(["stream", "arm", "set"], sort=False):
        accuracy = _by_seed(part, "accuracy")
        reference = _reference(experiment, last[last["set"] == name], str(stream))
        rows.append(
            (
                named(str(stream), str(arm), many),
                str(name),
                share(accuracy.to_numpy()),
                _against(accuracy, reference, "accuracy", str(arm), experiment),
            )
        )
    return ReportTable(
        title(experiment.plan, experiment.epochs, "the frozen memory on held-out tasks"),
        ("arm", "set", "success", f"against {experiment.plan.reference}"),
        tuple(rows),
        (INTERVAL, PAIRED, "frozen: nothing is credited, updated or written"),
    )


def stream_report(experiment: Experiment) -> ReportTable:
    """What a stream of task sets leaves behind: average accuracy, backward and forward transfer, and the way back."""
    many = experiment.epochs["stream"].nunique() > 1
    rows = []
    for stream, arm, part in groups(experiment.epochs):
        tables = {int(seed): _transfer_matrix(cell) for seed, cell in part.groupby("seed")}
        matrices = {seed: matrix for seed, matrix in tables.items() if matrix is not None}
        if not matrices:
            continue
        baseline = _baselines(experiment, stream, matrices)
        back = part[part["phase"] == LEARN].groupby("seed").apply(_way_back, include_groups=False)
        forward = [forward_transfer(m, baseline[s]) if s in baseline else np.nan for s, m in matrices.items()]
        rows.append(
            (
                named(stream, arm, many),
                share(np.array([average_accuracy(m) for m in matrices.values()])),
                _signed(np.array([backward_transfer(m) for m in matrices.values()])),
                _signed(np.array(forward)),
                _signed(back.to_numpy(dtype=np.float64)),
            )
        )
    if not rows:
        return _empty(experiment, "streams", "a stream needs at least two different sets, each listed in `evaluate`")
    return ReportTable(
        title(experiment.plan, experiment.epochs, "one memory through a stream of task sets"),
        ("arm", "average accuracy", "backward transfer", "forward transfer", "back to the first set"),
        tuple(rows),
        (
            INTERVAL,
            "R[i, j]: accuracy of the frozen memory on set j after the first stage of set i; average accuracy, "
            "backward and forward transfer as in GEM (arXiv 1706.08840)",
            "forward transfer against the arm “no memory”",
            "back to the first set: accuracy in the first epoch of the returning stage minus that in the last epoch "
            "before it was left",
        ),
    )


def shift_report(experiment: Experiment) -> ReportTable:
    """How long an arm takes to come back after the world has shifted."""
    many = experiment.epochs["stream"].nunique() > 1
    shifts = {stream.name: stream.shift_at[0] for stream in experiment.plan.streams if stream.shift_at}
    learned = experiment.steps[experiment.steps["phase"] == LEARN]
    rows = []
    for (stream, arm), part in learned.groupby(["stream", "arm"], sort=False):
        if stream not in shifts:
            continue
        at = shifts[str(stream)]
        runs = [cell.sort_values("step")["success"].to_numpy(dtype=np.float64) for _, cell in part.groupby("seed")]
        runs = [run for run in runs if len(run) >= at - 1 + WINDOW and at > WINDOW]
        if not runs:
            continue
        before = np.array([run[at - 1 - WINDOW : at - 1].mean() for run in runs])
        after = np.array([run[at - 1 : at - 1 + WINDOW].mean() for run in runs])
        times = [adaptation_time(run, at, WINDOW, TOLERANCE) for run in runs]
        back = np.array([time for time in times if time is not None], dtype=np.float64)
        rows.append(
            (
                named(str(stream), str(arm), many),
                share(before),
                share(after),
                share(np.array([run[-WINDOW:].mean() for run in runs])),
                f"{len(back)} of {len(runs)}",
                f"{np.median(back):.0f}" if back.size else NOTHING,
            )
        )
    if not rows:
        return _empty(experiment, "shift", f"no run has {WINDOW} steps on both sides of a step under `shift_at`")
    return ReportTable(
        title(experiment.plan, experiment.epochs, "a world that shifts"),
        (
            "arm",
            f"{WINDOW} steps before",
            f"{WINDOW} steps after",
            f"last {WINDOW} steps",
            "came back",
            "steps until then (median)",
        ),
        tuple(rows),
        (INTERVAL, f"came back: the last {WINDOW} steps are within {100 * TOLERANCE:.0f} points of those before"),
    )


REPORTS: Mapping[str, Callable[[Experiment], ReportTable]] = {
    "accuracy": accuracy_report,
    "forgetting": forgetting_report,
    "transfer": transfer_report,
    "streams": stream_report,
    "shift": shift_report,
    "correlation": correlation_report,
    "failures": failure_report,
    "similarity": similarity_report,
    "poison": poison_report,
    "methods": methods_report,
    "environments": environments_report,
    "conditions": conditions_report,
}


def _empty(experiment: Experiment, what: str, why: str) -> ReportTable:
    return ReportTable(title(experiment.plan, experiment.epochs, what), ("arm",), (), (f"Nothing to show: {why}.",))


def _learned(experiment: Experiment) -> pd.DataFrame:
    return experiment.epochs[experiment.epochs["phase"] == LEARN]


def _by_seed(part: pd.DataFrame, measure: str) -> pd.Series:
    return part.set_index("seed")[measure]


def _reference(experiment: Experiment, last: pd.DataFrame, stream: str) -> pd.DataFrame:
    return last[(last["stream"] == stream) & (last["arm"] == experiment.plan.reference)]


def _against(values: pd.Series, reference: pd.DataFrame, measure: str, arm: str, experiment: Experiment) -> str:
    if arm == experiment.plan.reference or reference.empty:
        return NOTHING
    return points(values, _by_seed(reference, measure))


def _transfer_matrix(cell: pd.DataFrame) -> np.ndarray | None:
    """R of one cell: a row for the first stage of each different set, a column a set; None for fewer than two."""
    order = cell[cell["phase"] == LEARN].drop_duplicates("stage")[["stage", "set"]].drop_duplicates("set")
    used = cell[cell["phase"] == EVALUATE].set_index(["stage", "set"])["accuracy"]
    if len(order) < 2:
        return None
    try:
        return np.array([[used.loc[stage, name] for name in order["set"]] for stage in order["stage"]], dtype=float)
    except KeyError:
        return None


def _baselines(
    experiment: Experiment, stream: str, seeds: Sequence[int] | Mapping[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """The accuracy without memory on each set, by seed, where an arm “no memory” was run."""
    none = experiment.epochs[(experiment.epochs["stream"] == stream) & (experiment.epochs["arm"] == "no memory")]
    found = {int(seed): _transfer_matrix(cell) for seed, cell in none.groupby("seed")}
    return {seed: matrix[0] for seed, matrix in found.items() if matrix is not None and seed in seeds}


def _way_back(learned: pd.DataFrame) -> float:
    """Accuracy on the first set when it returns minus what it was when it was left; nan when it never returns."""
    ordered = learned.sort_values("epoch")
    first = ordered["set"].iloc[0]
    stages = ordered[ordered["set"] == first]["stage"].unique()
    if len(stages) < 2:
        return float("nan")
    left = ordered[ordered["stage"] == stages[0]]["accuracy"].iloc[-1]
    return float(ordered[ordered["stage"] == stages[1]]["accuracy"].iloc[0] - left)


def _signed(values: np.ndarray) -> str:
    zeros = pd.Series(np.zeros(len(values)))
    return points(pd.Series(values), zeros)
