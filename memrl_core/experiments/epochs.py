"""What the steps of finished cells come to, epoch by epoch, and what an arm gains under each condition of a grid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from memrl_core.analysis.run.following import MeasuredFollows
from memrl_core.analysis.run.metrics import (
    TaskState,
    cumulative_success,
    epoch_accuracy,
    forgetting_rate,
    outcome_grid,
    seed_interval,
    solved_before_failing_now,
    task_states,
)
from memrl_core.experiments.cells import CELL, LEARN, SECONDS
from memrl_core.experiments.plan import Plan, Stream
from memrl_core.policies import make_policy

WEIGHT, CREDIT = "weight", "credit"
WINDOWS = ("first", "last", "all")
WIDTH = 80
"""Steps of the first and the last window; half of a run that has fewer than twice as many."""


def durations(tables: Sequence[pa.Table]) -> pd.DataFrame:
    """How long each step of finished cells took, and its model: the cell, `phase`, `step`, `seconds`, `model_seconds`.

    Apart from what was measured, because equal cells do not take equally long.
    """
    parts = []
    for table in tables:
        part = table.select([*CELL, "phase", "step"]).to_pandas()
        seconds = json.loads((table.schema.metadata or {}).get(SECONDS, b"[]"))
        part[["seconds", "model_seconds"]] = np.array(seconds, dtype=np.float64).reshape(len(part), 2)
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def by_epoch(plan: Plan, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per epoch of learning, and one for each frozen use, of every cell in `steps` (`cells.SCHEMA`).

    Columns: the cell (`policy`, `badge`, `arm`, `stream`, `seed`, every setting of some arm, nothing where the arm's
    policy lacks it), `phase`, `stage`, `set`, `epoch`, and the measures of `analysis.metrics`, whose docstrings define
    them. Forgetting is counted within one stage; it is nan where tasks are met once. `chance` is the mean true chance
    of what was answered, nan where nobody knows it, and `own_memory` the share of steps with a memory of the very task
    in the prompt.
    """
    if steps.empty:
        return pd.DataFrame()
    arms = {}
    for arm in plan.all_arms():
        settings = plan.settings_of(arm).model_dump()
        arms[arm.name] = arm.policy, make_policy(arm.policy, settings).spec.variant, settings
    rows: list[dict[str, Any]] = []
    for (arm, stream, seed, phase, stage, name), part in steps.groupby([*CELL, "phase", "stage", "set"], sort=False):
        policy, badge, settings = arms[arm]
        outcomes = np.where(part["success"].isna(), "unrated", np.where(part["success"] == True, "success", "failure"))  # noqa: E712
        grid = outcome_grid(zip(part["task"], part["epoch"], outcomes, strict=True))
        success = grid.success
        states = task_states(success)
        measures = {
            "accuracy": epoch_accuracy(success),
            "csr": cumulative_success(success),
            "solved_before_failing_now": solved_before_failing_now(success),
            "forgetting_rate_of_failures": forgetting_rate(success, of="failures"),
            "forgetting_rate_of_solved": forgetting_rate(success, of="solved"),
            **{state.name.lower(): (states == state).sum(axis=1) for state in TaskState if state},
        }
        per_epoch = part.groupby("epoch")
        own = part["used_same_task"].map(any).groupby(part["epoch"]).mean()
        for position, epoch in enumerate(grid.epochs):
            whole = per_epoch.get_group(epoch)
            rows.append(
                {"policy": policy, "badge": badge, "arm": arm, "stream": stream, "seed": seed, **settings,
                 "phase": phase, "stage": stage, "set": name, "epoch": epoch, "tasks": len(whole),
                 **{key: values[position] for key, values in measures.items()},
                 "chance": whole["chance"].astype(float).mean(), "own_memory": own[epoch],
                 "memories": int(whole["memories"].iloc[-1])}
            )  # fmt: skip
    return pd.DataFrame(rows)


def by_window(plan: Plan, steps: pd.DataFrame) -> pd.DataFrame:
    """A row per stream, arm, seed and window of learning: the first `WIDTH` steps, the last, and all.

    Columns: stream, arm, `against`, its counterpart ("" for none); seed; `window`, one of `WINDOWS`; `steps`, how many
    it has; `success` and `reference`, the shares of rated steps solved by the arm and by its counterpart in the same
    window of the same seed, nan where there is none.
    """
    learned, other = steps[steps["phase"] == LEARN], counterparts(plan)
    shares, rows = {}, []
    for (stream, arm, seed), part in learned.groupby(["stream", "arm", "seed"], sort=False):
        success = part.sort_values("step")["success"].astype(float).to_numpy()
        width = max(1, min(WIDTH, len(success) // 2))
        for window, of in zip(WINDOWS, (success[:width], success[-width:], success), strict=True):
            rated = of[~np.isnan(of)]
            shares[stream, arm, seed, window] = float(rated.mean()) if rated.size else np.nan
            rows.append((stream, arm, other.get(arm, ""), seed, window, len(of)))
    found = pd.DataFrame(rows, columns=["stream", "arm", "against", "seed", "window", "steps"])
    theirs = [shares.get((stream, against, seed, window), np.nan) for stream, _, against, seed, window, _ in rows]
    return found.assign(success=list(shares.values()), reference=theirs)


def follows_in(plan: Plan, steps: pd.DataFrame, digest: str) -> list[MeasuredFollows]:
    """How often the model of `plan`, whose weights have this digest, followed its memories in each environment.

    `steps` are those of finished cells (`cells.SCHEMA`); counted are those of arms without model options of their own.
    """
    plain = {arm.name: plan.settings_of(arm).model_dump() for arm in plan.all_arms() if not arm.model_options}
    known = steps[steps["follows"].notna() & steps["arm"].isin(plain) & (steps["used"].map(len) > 0)]
    found = []
    for environment in dict.fromkeys(stream.environment for stream in plan.streams):
        part = known[known["stream"].isin([one.name for one in plan.streams if one.environment == environment])]
        if part.empty:
            continue
        followed = int((part["follows"].map(len) > 0).sum())
        judged = int(part["at_hand"].notna().sum())
        at_hand, taken = (int((part[name] == True).sum()) for name in ("at_hand", "taken"))  # noqa: E712
        k2 = tuple(sorted({int(plain[arm]["k2"]) for arm in part["arm"].unique() if "k2" in plain[arm]}))
        found.append(
            MeasuredFollows(
                digest, plan.model, environment, len(part), followed, judged, at_hand, taken, k2, plan.embedder,
                dict(plan.model_options),
            )
        )  # fmt: skip
    return found


# --- conditions -------------------------------------------------------------------------------------------------------


def axes(plan: Plan) -> dict[str, list[object]]:
    """The parameters in which the streams of `plan` differ, each with its values in the order of the plan."""
    rows = [_parameters(stream) for stream in plan.streams]
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: list(dict.fromkeys(row.get(name) for row in rows)) for name in names}
    return {name: found for name, found in values.items() if len(found) > 1}


def counterparts(plan: Plan) -> dict[str, str]:
    """Arm to the one that it is compared with: equal but for λ = 0 where there is such an arm, else the reference.

    Whom a reward credits makes no difference at λ = 0, where q decides nothing.
    """
    settings = {arm.name: (arm.policy, plan.settings_of(arm).model_dump(exclude={CREDIT})) for arm in plan.all_arms()}
    found = {}
    for name, (policy, its) in settings.items():
        plain = [other for other, of in settings.items() if WEIGHT in its and of == (policy, {**its, WEIGHT: 0.0})]
        other = plain[0] if plain else plan.reference
        if other != name:
            found[name] = other
    return found


def by_seed(plan: Plan, epochs: pd.DataFrame) -> pd.DataFrame:
    """A row per stream, epoch, arm that has a counterpart, and seed; `epochs` is what `by_epoch` gives.

    Columns: the parameters of `axes`; stream, epoch, arm, `against`, its counterpart; seed; `reference` and `success`
    of both, which are the mean true chance of what was answered where that is known, else the share of steps solved;
    `difference`; `own_memory`, the share of steps in which a memory of the very task was in the arm's prompt.
    """
    learned = epochs[epochs["phase"] == LEARN] if len(epochs) else epochs
    if learned.empty:
        return pd.DataFrame()
    measure = "chance" if learned["chance"].notna().all() else "accuracy"
    key = ["stream", "epoch", "seed"]
    parts = []
    for arm, against in counterparts(plan).items():
        one, other = (learned[learned["arm"] == name].set_index(key) for name in (arm, against))
        columns = {"reference": other[measure], "success": one[measure], "own_memory": one["own_memory"]}
        both = pd.DataFrame(columns).dropna(subset=["reference", "success"])
        both = both.assign(difference=both["success"] - both["reference"])
        parts.append(both.reset_index().assign(arm=arm, against=against))
    varied, streams = axes(plan), {stream.name: _parameters(stream) for stream in plan.streams}
    found = pd.concat(parts, ignore_index=True)
    return found.assign(**{name: [streams[stream].get(name) for stream in found["stream"]] for name in varied})


def gains(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """For each combination of the columns `by` of `by_seed`, means over the rest and seeds.

    Columns: `by`; reference, success, difference with its 95 % interval `low` to `high` (null with one seed), paired by
    seed; `seeds`; own_memory.
    """
    found = []
    for values, part in rows.groupby(by, sort=False) if len(rows) else ():
        seeds = part.groupby("seed")[["reference", "success", "difference", "own_memory"]].mean()
        low, high = seed_interval(seeds["difference"].to_numpy(dtype=np.float64))
        means = seeds.mean().to_dict()
        found.append(
            {**dict(zip(by, values, strict=True)), **means, "low": float(low), "high": float(high), "seeds": len(seeds)}
        )
    return pd.DataFrame(found)


def conditions(plan: Plan, epochs: pd.DataFrame) -> pd.DataFrame:
    """The `gains` of every arm in every stream and epoch, with the parameters of `axes`."""
    return gains(by_seed(plan, epochs), [*axes(plan), "stream", "epoch", "arm", "against"])


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
