"""From steps to what an experiment measured: a row per epoch of each cell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from memrl_core.analysis.run.metrics import (
    TaskState,
    cumulative_success,
    epoch_accuracy,
    forgetting_rate,
    outcome_grid,
    solved_before_failing_now,
    task_states,
)
from memrl_core.experiments.cells import SECONDS
from memrl_core.experiments.plan import Plan
from memrl_core.policies import make_policy

CELL = ["arm", "stream", "seed"]


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
                 "memories": int(whole["memories"].iloc[-1]), "tainted": float(whole["tainted"].mean()),
                 "set_similarity": whole["set_similarity"].iloc[0]}
            )  # fmt: skip
    return pd.DataFrame(rows)
