"""Every finished step of a run in one row: what came of it, and what was put before the model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from memrl_core.analysis.uses import parsed
from memrl_core.bank import MemoryBank
from memrl_core.policies import make_policy
from memrl_core.records import EventKind

COLUMNS = ("step", "epoch", "task", "outcome", "reward")


def attempts(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a finished step (n, 7): step, epoch, task, outcome, reward, pool, selected.

    `reward` is the one that counts now, and `outcome` follows from it. `pool` is how many memories phase B ranked and
    `selected` their ids that went to the model; both are missing (NA, None) where no decision was recorded.
    """
    rows = parsed(bank.step_table(run, [*COLUMNS, "trace"]))
    candidates = pc.struct_field(rows["decision"], "candidates").combine_chunks()
    ranked = pc.is_valid(pc.struct_field(pc.list_flatten(candidates), "rank_select"))
    members = np.asarray(pc.list_parent_indices(candidates))[np.asarray(ranked, dtype=bool)]
    frame = rows.select(COLUMNS).to_pandas()
    decided = np.asarray(rows["decision"].is_valid(), dtype=bool)
    frame["pool"] = pd.Series(np.bincount(members, minlength=len(frame)), dtype="Int64").where(decided)
    chosen = pc.struct_field(rows["decision"], "selected").to_pylist()
    frame["selected"] = pd.Series([None if ids is None else tuple(ids) for ids in chosen], dtype=object)
    policy = make_policy(bank.run(run).policy, bank.settings(run))
    for step in _touched(bank, run) & set(frame["step"]):
        reward = bank.effective_reward(run, step)
        frame.loc[frame["step"] == step, ["reward", "outcome"]] = [
            np.nan if reward is None else reward,
            policy.outcome_of(reward),
        ]
    return frame


def _touched(bank: MemoryBank, run: str) -> set[int]:
    """Steps whose reward may be another now than when they ended."""
    kinds = (EventKind.REWARD_GIVEN, EventKind.REWARD_REVOKED)
    return {event.step for event in bank.events(run) if event.kind in kinds and event.known_at > event.step}
