"""The reports that an experiment can ask for, by name: what was achieved, lost, carried over, and what q is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from memrl_core.analysis.run.metrics import (
    adaptation_time,
    average_accuracy,
    backward_transfer,
    binned_correlation,
    forward_transfer,
    pearson,
    spearman,
)  # fmt: skip
from memrl_core.experiments.cells import EVALUATE, LEARN
from memrl_core.experiments.epochs import WINDOWS, by_window, conditions
from memrl_core.experiments.executors import Experiment
from memrl_core.experiments.method_arms import methods_report
from memrl_core.experiments.report_table import (
    INTERVAL,
    NOTHING,
    PAIRED,
    ReportTable,
    arms,
    difference,
    learned_steps,
    number,
    points,
    share,
    solved,
    table,
    title,
    tokens,
    valid_share,
)  # fmt: skip
from memrl_core.retrieval import Floats

WINDOW = 30
TOLERANCE = 0.05
BINS = 8
HIGH = 0.5
"""A q in the upper half of the way from the middle of the scale to r+ counts as high."""


def reports(experiment: Experiment) -> list[ReportTable]:
    """The tables that the plan asks for; none while no cell is finished."""
    if experiment.steps.empty:
        return []
    first, *others = (REPORTS[name](experiment) for name in experiment.plan.report)
    return [replace(first, notes=(*first.notes, *_how_chosen(experiment))), *others]


def _how_chosen(experiment: Experiment) -> list[str]:
    """How often a tie decided in each arm and what the other rule would have changed, how often a task's own memories
    were in the prompt, and how many steps have no result.
    """
    steps, names = learned_steps(experiment), [arm.name for arm in experiment.plan.all_arms()]
    of = {name: part for name in names if len(part := steps[steps["arm"] == name])}
    tied = {name: (part["tied"].mean(), part["other_by_tie"].mean()) for name, part in of.items()}
    notes = []
    if any(share for share, _ in tied.values()):
        shares = ", ".join(f"{name} {100 * one:.0f} % ({100 * other:.0f} %)" for name, (one, other) in tied.items())
        notes.append(f"choices that went by a tie (and that the other rule for ties would change): {shares}")
    own = {name: part["used_same_task"].map(any).mean() for name, part in of.items()}
    if any(own.values()):
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in own.items())
        notes.append(f"prompts with a memory of the very task: {shares}")
    unanswered = {name: int(part["success"].isna().sum()) for name, part in of.items()}
    if any(unanswered.values()):
        counts = ", ".join(f"{name} {count}" for name, count in unanswered.items())
        notes.append(f"steps without a result, as where the model gave no answer; they count in no share: {counts}")
    return notes


# --- what was achieved, lost and carried over -------------------------------------------------------------------------


def accuracy_report(experiment: Experiment) -> ReportTable:
    """Accuracy in the last epoch and the cumulative success rate of every arm, against the reference."""
    last = _last_epochs(experiment)
    rows = []
    for label, stream, arm, part in arms(last):
        seeds = part.set_index("seed")
        against = _against(seeds["accuracy"], last, stream, arm, experiment)
        shares = (share(seeds[name].to_numpy()) for name in ("accuracy", "csr", "solved_before_failing_now"))
        accuracy, csr, lost = shares
        rows.append((label, accuracy, against, csr, lost))
    note = (
        "CSR counts a task for ever once it was solved, also by luck: compare it with the CSR of an arm without memory"
    )
    what = "accuracy in the last epoch and what was ever solved"
    columns = ("last epoch", f"against {experiment.plan.reference}", "CSR", "solved before, failing now")
    return table(experiment, what, columns, rows, (PAIRED, note))


def forgetting_report(experiment: Experiment) -> ReportTable:
    """How much of what was solved is lost from epoch to epoch, by both definitions in use."""
    reference = experiment.plan.reference
    learned = _epochs(experiment, LEARN)
    later = learned[learned["epoch"] > learned.groupby(["stream", "arm", "seed", "stage"])["epoch"].transform("min")]
    measures = ("solved_before_failing_now", "forgetting_rate_of_failures", "forgetting_rate_of_solved")
    rows = []
    for label, stream, arm, part in arms(later):
        means = [part.groupby("seed")[measure].mean() for measure in measures]
        counts = part.groupby("seed")[["forgotten", "recovered"]].sum() / part.groupby("seed")["tasks"].mean().mean()
        theirs = later[(later["stream"] == stream) & (later["arm"] == reference)].groupby("seed")[measures[1]].mean()
        rows.append(
            (
                label,
                *(share(mean.to_numpy()) for mean in means),
                NOTHING if arm == reference else points(means[1], theirs),
                *(number(counts[name].to_numpy()) for name in ("forgotten", "recovered")),
            )
        )
    return table(
        experiment,
        "forgetting",
        (
            "solved before, failing now", "forgetting rate (of failures)", "forgetting rate (of solved)",
            f"of failures, against {reference}", "lost per task", "won back per task",
        ),
        rows,
        (
            PAIRED,
            "means over the epochs after the first",
            "of failures: lost since the last epoch / all failures of the epoch (arXiv 2601.03192 v2); of solved: the "
            "same / what the last epoch had solved (v1)",
        ),
    )  # fmt: skip


def transfer_report(experiment: Experiment) -> ReportTable:
    """The frozen memory on tasks that it was not learned from, after the last stage."""
    used = _epochs(experiment, EVALUATE)
    if used.empty:
        return _empty(experiment, "transfer", "no stream has sets under `evaluate`")
    last = used[used["stage"] == used.groupby(["stream", "arm", "seed"])["stage"].transform("max")]
    rows = []
    for label, stream, arm, whole in arms(last):
        for name, part in whole.groupby("set", sort=False):
            accuracy = part.set_index("seed")["accuracy"]
            against = _against(accuracy, last[last["set"] == name], stream, arm, experiment)
            rows.append((label, str(name), share(accuracy.to_numpy()), against))
    columns = ("set", "success", f"against {experiment.plan.reference}")
    notes = (PAIRED, "frozen: nothing is credited, updated or written")
    return table(experiment, "the frozen memory on held-out tasks", columns, rows, notes)


def stream_report(experiment: Experiment) -> ReportTable:
    """What a stream of task sets leaves behind: average accuracy, backward and forward transfer, and the way back."""
    rows = []
    for label, stream, _, part in arms(experiment.epochs):
        matrices = _transfer_matrices(part)
        if not matrices:
            continue
        epochs = experiment.epochs
        none = _transfer_matrices(epochs[(epochs["stream"] == stream) & (epochs["arm"] == "no memory")])
        back = part[part["phase"] == LEARN].groupby("seed").apply(_way_back, include_groups=False)
        forward = [forward_transfer(m, none[s][0]) if s in none else np.nan for s, m in matrices.items()]
        rows.append(
            (
                label,
                share(np.array([average_accuracy(m) for m in matrices.values()])),
                _signed(np.array([backward_transfer(m) for m in matrices.values()])),
                _signed(np.array(forward)),
                _signed(back.to_numpy(dtype=np.float64)),
            )
        )
    if not rows:
        return _empty(experiment, "streams", "a stream needs at least two different sets, each listed in `evaluate`")
    return table(
        experiment,
        "one memory through a stream of task sets",
        ("average accuracy", "backward transfer", "forward transfer", "back to the first set"),
        rows,
        (
            "R[i, j]: accuracy of the frozen memory on set j after the first stage of set i; average accuracy, "
            "backward and forward transfer as in GEM (arXiv 1706.08840)",
            "forward transfer against the arm “no memory”",
            "back to the first set: accuracy in the first epoch of the returning stage minus that in the last epoch "
            "before it was left",
        ),
    )


def shift_report(experiment: Experiment) -> ReportTable:
    """How long an arm takes to come back after the world has shifted."""
    shifts = {stream.name: stream.shift_at[0] for stream in experiment.plan.streams if stream.shift_at}
    rows = []
    for label, stream, _, part in arms(learned_steps(experiment)):
        at = shifts.get(stream, 0)
        runs = [cell.sort_values("step")["success"].to_numpy(dtype=np.float64) for _, cell in part.groupby("seed")]
        runs = [run for run in runs if len(run) >= at - 1 + WINDOW and at > WINDOW]
        if not runs:
            continue
        times = [adaptation_time(run, at, WINDOW, TOLERANCE) for run in runs]
        back = np.array([time for time in times if time is not None], dtype=np.float64)
        windows = (slice(at - 1 - WINDOW, at - 1), slice(at - 1, at - 1 + WINDOW), slice(-WINDOW, None))
        rows.append(
            (
                label,
                *(share(np.array([run[window].mean() for run in runs])) for window in windows),
                f"{len(back)} of {len(runs)}",
                f"{np.median(back):.0f}" if back.size else NOTHING,
            )
        )
    if not rows:
        return _empty(experiment, "shift", f"no run has {WINDOW} steps on both sides of a step under `shift_at`")
    steps = (f"{WINDOW} steps before", f"{WINDOW} steps after", f"last {WINDOW} steps")
    note = f"came back: the last {WINDOW} steps are within {100 * TOLERANCE:.0f} points of those before"
    columns = (*steps, "came back", "steps until then (median)")
    return table(experiment, "a world that shifts", columns, rows, (note,))


# --- what q is worth --------------------------------------------------------------------------------------------------


def correlation_report(experiment: Experiment) -> ReportTable:
    """q before a use against what came of it."""
    low, high = _scale(experiment)
    rows = []
    for label, _, _, part in arms(_uses(experiment)):
        pairs = [cell[["used_q", "success"]].dropna().to_numpy().T for _, cell in part.groupby("seed")]
        binned = [binned_correlation(q, won, low, high, BINS) for q, won in pairs]
        values = ([pearson(q, won) for q, won in pairs], [spearman(q, won) for q, won in pairs], binned)
        rows.append((label, f"{len(part):,}", *(number(np.array(one, dtype=np.float64)) for one in values)))
    columns = ("uses", "Pearson, per use", "Spearman, per use", f"Pearson of {BINS} bin means")
    notes = (
        "q as it was before the use, against the outcome of the step",
        "the paper's 0.861 is of bin means (arXiv 2601.03192, figure 7), which leaves out what varies in a bin",
    )
    return table(experiment, "does q foretell success?", columns, rows, notes)


def failure_report(experiment: Experiment) -> ReportTable:
    """Memories of failures that have earned a high q: how often they are used, and with what success."""
    low, high = _scale(experiment)
    limit = (low + high) / 2 + HIGH * (high - low) / 2
    rows = []
    for label, _, _, part in arms(_uses(experiment)):
        trusted = part[(part["used_q"] >= limit) & (part["used_visits"] > 0)]
        failed, succeeded = (trusted[trusted["used_outcome"] == outcome] for outcome in ("failure", "success"))
        own = failed["used_same_task"]
        shares = (_means(trusted, trusted["used_outcome"] == "failure"),
                  *(_means(one, one["success"]) for one in (failed, failed[own], failed[~own], succeeded)))  # fmt: skip
        rows.append((label, *map(share, shares)))
    columns = (
        "of all uses with such a q", "success of the step", "on its own task", "on another task",
        "memories of successes, same q",
    )  # fmt: skip
    what = f"memories of failures with q of at least {limit:g}"
    return table(experiment, what, columns, rows, ("q as it was before the use, and moved at least once",))


# --- several environments ---------------------------------------------------------------------------------------------


def environments_report(experiment: Experiment) -> ReportTable:
    """A row per environment and arm: what is solved at first and at last, the points, and the seconds a step."""
    steps, timed, reference = learned_steps(experiment), experiment.durations, experiment.plan.reference
    rows = []
    for _, stream, arm, part in arms(steps):
        first, last = (part[part["epoch"] == epoch] for epoch in (part["epoch"].min(), part["epoch"].max()))
        theirs = steps[(steps["stream"] == stream) & (steps["arm"] == reference)]
        their_last = theirs[theirs["epoch"] == theirs["epoch"].max()]
        rows.append(
            (
                f"{stream} · {arm}",
                str(part["task"].nunique()),
                share(solved(first).to_numpy()),
                share(solved(last).to_numpy()),
                NOTHING if arm == reference else points(solved(last), solved(their_last)),
                share(_of_the_scale(experiment, arm, last)),
                _seconds(timed, stream, arm),
                share(solved(part).to_numpy()),
                NOTHING if arm == reference else points(solved(part), solved(theirs)),
                valid_share(part["valid"].sum(), part["choices"].sum()),
                _followed(part),
                tokens(part),
            )
        )
    fresh = {stage.fresh for stream in experiment.plan.streams for stage in stream.stages}
    notes = (
        INTERVAL,
        PAIRED,
        "first and last epoch: share of tasks solved; points: the world's own reward, from 0 to 100 %, which may pay "
        "for half a solution",
        "seconds a step: median of all steps, from the 5th to the 95th percentile; other cells ran beside them",
        "valid answers: share of the answers that had to be one of those offered, and were",
        "from a memory: steps whose answer is one that a memory of the prompt shows, of those with memories in the "
        "prompt; right at hand: steps in which one of them shows the right answer, and of these those that took it",
        "tokens a step: mean that the model read and wrote",
        *(["every epoch brings the same tasks, so a gain may be recall of a task's own memory"] * (False in fresh)),
        *(["every epoch brings other tasks: nothing is met twice"] * (True in fresh)),
    )
    columns = (
        "environment · arm", "tasks", "first epoch", "last epoch", f"last against {reference}", "points, last epoch",
        "seconds a step", "all epochs", f"all against {reference}", "valid answers",
        "from a memory · right at hand · taken", "tokens a step",
    )  # fmt: skip
    return ReportTable(title(experiment.plan, experiment.epochs, "environments"), columns, tuple(rows), notes)


def _followed(part: pd.DataFrame) -> str:
    """Of the steps with memories: how many follow one, have the right one at hand, and take it."""
    if "follows" not in part:  # Results of an earlier version.
        return NOTHING
    known = part[part["follows"].notna() & part["used"].map(len).gt(0)]
    if known.empty:
        return NOTHING
    judged = known[known["at_hand"].notna()]
    counts = [f"{known['follows'].map(len).gt(0).sum():,} of {len(known):,}"]
    if len(judged):
        counts += [f"{judged['at_hand'].sum():,} of {len(judged):,}", f"{judged['taken'].sum():,}"]
    return " · ".join(counts)


def windows_report(experiment: Experiment) -> ReportTable:
    """What is solved in the first steps, the last ones and all, against the counterpart with λ = 0."""
    found = by_window(experiment.plan, experiment.steps)
    steps, rows = learned_steps(experiment), []
    for label, stream, arm, part in arms(steps):
        own = found[(found["stream"] == stream) & (found["arm"] == arm)]
        against = own["against"].iloc[0]
        by_name = {name: of.set_index("seed") for name, of in own.groupby("window")}
        last = (by_name["last"]["success"] - by_name["last"]["reference"]).dropna()
        rows.append(
            (
                label,
                *(share(by_name[name]["success"].to_numpy()) for name in WINDOWS),
                against or NOTHING,
                *(points(by_name[name]["success"], by_name[name]["reference"]) for name in WINDOWS),
                f"{(last > 0).sum()} of {len(last)}" if against and len(last) else NOTHING,
                _followed(part),
                _seconds(experiment.durations, stream, arm),
            )
        )
    widths = sorted(found["steps"].loc[found["window"] != "all"].unique())
    shown = " or ".join(map(str, widths))
    names = (f"first {shown} steps", f"last {shown} steps", "all steps")
    columns = (*names, "against", *(f"difference, {name}" for name in names), f"seeds ahead, last {shown} steps",
               "from a memory · right at hand · taken", "seconds a step")  # fmt: skip
    notes = (
        PAIRED,
        "against: the arm that differs in λ = 0 alone, where there is one, else the reference",
        "seeds ahead: seeds in which the arm solved more than the one it is compared with",
        "from a memory: steps whose answer is one that a memory of the prompt shows, of those with memories in the "
        "prompt; right at hand: steps in which one of them shows the right answer, and of these those that took it",
        "seconds a step: median, from the 5th to the 95th percentile; other cells ran beside them",
    )
    return table(experiment, "by window of steps", columns, rows, notes)


# --- malicious memories, and conditions of a world --------------------------------------------------------------------


def poison_report(experiment: Experiment) -> ReportTable:
    """How far malicious memories spread, how fast their q falls, and what forgetting brings back."""
    learned, reference = learned_steps(experiment), experiment.plan.reference
    rows = []
    for label, stream, arm, part in arms(learned):
        theirs = learned[(learned["stream"] == stream) & (learned["arm"] == reference)]

        def against(epoch: int, own: pd.DataFrame = part, other: pd.DataFrame = theirs) -> str:
            return points(*(side[side["epoch"] == epoch].groupby("seed")["success"].mean() for side in (own, other)))

        poisoned = part[part["poison_left"] > 0]
        begin = int(poisoned["epoch"].min()) if len(poisoned) else None
        later = part if begin is None else part[part["epoch"] >= begin]
        first, last = (later[later["epoch"] == at] for at in (later["epoch"].min(), later["epoch"].max()))
        rows.append(
            (
                label,
                NOTHING if begin is None or arm == reference else against(begin),
                NOTHING if arm == reference else against(int(later["epoch"].max())),
                share(_means(first, first["used_poison"].map(any))),
                share(_means(last, last["used_poison"].map(any))),
                share(_means(last, last["tainted"])),
                number(_at_the_end(first, "poison_q")),
                number(_at_the_end(last, "poison_q")),
                number(_at_the_end(last, "poison_left")) if begin is not None else NOTHING,
            )
        )
    return table(
        experiment,
        "memory poisoning",
        (
            f"accuracy when it comes in, against {reference}", f"in the last epoch, against {reference}",
            "poison in the prompt when it comes in", "poison in the prompt in the last epoch",
            "what descends from it in the last epoch", "its q after that epoch", "q at the end", "left at the end",
        ),
        rows,
        (
            PAIRED,
            "descends: a poisoned memory was in the prompt when it was written, or one that descends",
            "its q: the mean over the poisoned memories that are left; one that shares prompts with good memories is "
            "paid for their success",
        ),
    )  # fmt: skip


def conditions_report(experiment: Experiment) -> ReportTable:
    """A row per condition and arm: the difference to its counterpart in each epoch."""
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


REPORTS: Mapping[str, Callable[[Experiment], ReportTable]] = {
    "accuracy": accuracy_report,
    "forgetting": forgetting_report,
    "transfer": transfer_report,
    "streams": stream_report,
    "shift": shift_report,
    "correlation": correlation_report,
    "failures": failure_report,
    "methods": methods_report,
    "environments": environments_report,
    "windows": windows_report,
    "poison": poison_report,
    "conditions": conditions_report,
}


def _empty(experiment: Experiment, what: str, why: str) -> ReportTable:
    return ReportTable(title(experiment.plan, experiment.epochs, what), ("arm",), (), (f"Nothing to show: {why}.",))


def _epochs(experiment: Experiment, phase: str) -> pd.DataFrame:
    return experiment.epochs[experiment.epochs["phase"] == phase]


def _last_epochs(experiment: Experiment) -> pd.DataFrame:
    learned = _epochs(experiment, LEARN)
    return learned[learned["epoch"] == learned.groupby(["stream", "arm", "seed"])["epoch"].transform("max")]


def _uses(experiment: Experiment) -> pd.DataFrame:
    """One row per use of a memory in a rated step: the step's columns with each of the lists `used…` unfolded."""
    steps = learned_steps(experiment)
    lists = [name for name in steps.columns if name.startswith("used")]
    unfolded = steps[steps["used"].str.len() > 0].explode(lists)
    numbers = dict.fromkeys(("used_q", "used_similarity", "used_visits", "success"), np.float64)
    found = unfolded.astype({**numbers, "used_same_task": bool, "used_poison": bool})
    return found[found["success"].notna()]


def _scale(experiment: Experiment) -> tuple[float, float]:
    rows = experiment.epochs
    return float(rows["reward_failure"].min()), float(rows["reward_success"].max())


def _against(values: pd.Series, last: pd.DataFrame, stream: str, arm: str, experiment: Experiment) -> str:
    """Accuracy by seed minus that of the reference on the same stream."""
    reference = last[(last["stream"] == stream) & (last["arm"] == experiment.plan.reference)]
    if arm == experiment.plan.reference or reference.empty:
        return NOTHING
    return points(values, reference.set_index("seed")["accuracy"])


def _means(part: pd.DataFrame, values: pd.Series) -> Floats:
    """Mean of the values by seed."""
    return np.asarray(values.groupby(part["seed"]).mean(), dtype=np.float64)


def _at_the_end(part: pd.DataFrame, column: str) -> Floats:
    """The column's value after the last step of each seed."""
    return np.asarray(part.sort_values("step").groupby("seed")[column].last(), dtype=np.float64)


def _transfer_matrices(rows: pd.DataFrame) -> dict[int, Floats]:
    """R by seed: a row for the first stage of each different set, a column per set; none for fewer than two."""
    found = {}
    for seed, cell in rows.groupby("seed"):
        order = cell[cell["phase"] == LEARN].drop_duplicates("stage")[["stage", "set"]].drop_duplicates("set")
        used = cell[cell["phase"] == EVALUATE].set_index(["stage", "set"])["accuracy"]
        wanted = [[(stage, name) for name in order["set"]] for stage in order["stage"]]
        if len(order) > 1 and all(key in used.index for row in wanted for key in row):
            found[int(seed)] = np.array([[used.loc[key] for key in row] for row in wanted], dtype=float)
    return found


def _way_back(learned: pd.DataFrame) -> float:
    """Accuracy on the first set when it returns minus what it was when it was left; nan when it never returns."""
    ordered = learned.sort_values("epoch")
    of_first = ordered[ordered["set"] == ordered["set"].iloc[0]]
    stages = of_first["stage"].unique()
    if len(stages) < 2:
        return float("nan")
    left, returned = (of_first[of_first["stage"] == stage]["accuracy"] for stage in stages[:2])
    return float(returned.iloc[0] - left.iloc[-1])


def _signed(values: Floats) -> str:
    return points(pd.Series(values), pd.Series(np.zeros(len(values))))


def _of_the_scale(experiment: Experiment, arm: str, part: pd.DataFrame) -> Floats:
    """Mean reward by seed, on the environment's own scale from 0 to 1."""
    plan = experiment.plan
    settings = plan.settings_of(next(known for known in plan.all_arms() if known.name == arm))
    low, high = settings.reward_failure, settings.reward_success
    return (_means(part, part["reward"]) - low) / (high - low)


def _seconds(timed: pd.DataFrame, stream: str, arm: str) -> str:
    """Median seconds of a learning step, from the 5th to the 95th percentile."""
    if timed.empty:
        return NOTHING
    took = timed[(timed["phase"] == LEARN) & (timed["stream"] == stream) & (timed["arm"] == arm)]["seconds"]
    if took.empty:
        return NOTHING
    low, middle, high = np.quantile(took.to_numpy(dtype=np.float64), (0.05, 0.5, 0.95))
    return f"{middle:.3f} ({low:.3f}–{high:.3f})"
