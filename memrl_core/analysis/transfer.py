"""Transfer or memorisation: did the memories that were used come from the same task or from another?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from memrl_core.analysis.rates import rate
from memrl_core.bank import MemoryBank

COLUMNS = (
    "epoch", "origin", "uses", "share", "similarity", "steps", "rated", "successes", "success", "low", "high",
)  # fmt: skip
ORIGINS = ("same task", "another task", "unknown")


def transfer(bank: MemoryBank, run: str, uses: pd.DataFrame) -> pd.DataFrame:
    """One row an epoch and origin that occurred (n, 11); `uses` are the run's (see `uses.uses`).

    `uses` counts memories given to the model, `share` is their part of the epoch's, and `similarity` the mean cosine of
    the memory's intent to the task's. The outcome belongs to the step, so `steps`, `rated`, `successes` and `success`
    with its 95 % Wilson interval `low` … `high` count each step once: as "same task" when any of its memories came from
    it, else as "another task" when any came from there. A memory without a task has the origin "unknown".
    """
    chosen = uses[uses["selected"]]
    came_from = chosen["memory_id"].map({i: bank.memory(i).task for i in chosen["memory_id"].unique()})
    origin = np.where(came_from == "", ORIGINS[2], np.where(came_from == chosen["task"], ORIGINS[0], ORIGINS[1]))
    chosen = chosen.assign(origin=pd.Categorical(origin, ORIGINS, ordered=True))
    of_step = chosen.sort_values("origin", kind="stable").drop_duplicates("step")
    rows = []
    for (epoch, kind), members in chosen.groupby(["epoch", "origin"], observed=True):
        steps = of_step[(of_step["epoch"] == epoch) & (of_step["origin"] == kind)]
        won = rate(steps["outcome"])
        share = len(members) / int((chosen["epoch"] == epoch).sum())
        similarity = float(members["similarity"].mean())
        rows.append(
            (
                epoch,
                kind,
                len(members),
                share,
                similarity,
                len(steps),
                won.n,
                won.successes,
                won.share,
                won.low,
                won.high,
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))
