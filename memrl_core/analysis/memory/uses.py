"""Every candidate of every step of a run as one table: what the questions about a whole run are asked of."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from memrl_core.bank import MemoryBank
from memrl_core.learning import active_rewards, effective_reward, order_key
from memrl_core.policies import outcome_of
from memrl_core.records import MISSED, LedgerEvent

ATTEMPT = ("step", "epoch", "task", "outcome", "reward")
COLUMNS = (
    *ATTEMPT, "memory_id", "similarity", "q", "rank_recall", "rank_select", "selected",
)  # fmt: skip


def attempts(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a finished step (n, 7): step, epoch, task, outcome, reward, pool, selected.

    `reward` is the one that counts now, and `outcome` follows from it. `pool` is how many memories were recalled and
    `selected` their ids that went to the model; both are missing (NA, None) where no decision was recorded.
    """
    rows = bank.step_table(run, [*ATTEMPT, "trace"])
    decisions = [json.loads(trace).get("decision") for trace in rows["trace"].to_pylist()]
    frame = rows.select(ATTEMPT).to_pandas()
    frame["pool"] = pd.array(
        [None if one is None else sum(c["reason"] not in MISSED for c in one["candidates"]) for one in decisions],
        "Int64",
    )
    frame["selected"] = pd.Series([None if one is None else tuple(one["selected"]) for one in decisions], dtype=object)
    return as_rated_now(frame, bank, run)


def uses(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a member of a pool (n, 11), in the order of steps and ranks; see `COLUMNS`.

    `q` is the one before the step; `reward` is the one that counts now, with what people said since, and
    `outcome` follows from it. `rank_select` is missing where an agent reports no score.
    """
    seen = bank.candidate_table(run, [*COLUMNS, "reason"]).to_pandas()
    frame = seen[~seen["reason"].isin(MISSED)].drop(columns="reason").reset_index(drop=True)
    return as_rated_now(frame, bank, run)


def as_rated_now(frame: pd.DataFrame, bank: MemoryBank, run: str) -> pd.DataFrame:
    """The same rows, their `reward` and `outcome` by what people said since their steps ended; changed in place."""
    changed = {step: np.nan if r is None else r for step, r in rated_by_people(bank, run).items()}
    if changed:
        policy, settings = bank.run(run).policy, bank.settings(run)
        later = frame["step"].map(changed)
        touched = frame["step"].isin(changed.keys())
        frame.loc[touched, "reward"] = later[touched]
        frame.loc[touched, "outcome"] = [
            outcome_of(policy, settings, None if np.isnan(r) else r) for r in later[touched]
        ]
    return frame


def rated_by_people(bank: MemoryBank, run: str) -> dict[int, float | None]:
    """Steps whose reward may be another now than when they ended, with the one that counts."""
    finished = {row.id: row.step for row in bank.step_rows(run)}
    of_step: dict[int, list[LedgerEvent]] = {}
    for event in sorted(bank.events(run), key=order_key):
        if event.step == finished.get(event.step_id):
            of_step.setdefault(event.step, []).append(event)
    return {
        step: effective_reward(active_rewards(events), bank.settings(run, step))
        for step, events in of_step.items()
        if any(event.source == "person" for event in events)
    }
