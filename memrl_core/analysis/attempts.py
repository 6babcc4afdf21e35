"""Every finished step of a run in one row: what came of it, and what was put before the model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from memrl_core.analysis.uses import as_rated_now, in_pool, parsed
from memrl_core.bank import MemoryBank

COLUMNS = ("step", "epoch", "task", "outcome", "reward")


def attempts(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row a finished step (n, 7): step, epoch, task, outcome, reward, pool, selected.

    `reward` is the one that counts now, and `outcome` follows from it. `pool` is how many memories were recalled and
    `selected` their ids that went to the model; both are missing (NA, None) where no decision was recorded.
    """
    rows = parsed(bank.step_table(run, [*COLUMNS, "trace"]))
    candidates = pc.struct_field(rows["decision"], "candidates").combine_chunks()
    pooled = np.asarray(in_pool(pc.list_flatten(candidates)), dtype=bool)
    members = np.asarray(pc.list_parent_indices(candidates))[pooled]
    frame = rows.select(COLUMNS).to_pandas()
    decided = np.asarray(rows["decision"].is_valid(), dtype=bool)
    frame["pool"] = pd.Series(np.bincount(members, minlength=len(frame)), dtype="Int64").where(decided)
    chosen = pc.struct_field(rows["decision"], "selected").to_pylist()
    frame["selected"] = pd.Series([None if ids is None else tuple(ids) for ids in chosen], dtype=object)
    return as_rated_now(frame, bank, run)
