"""How often the pool was empty, so that the model had no memory, and whether these steps went better."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from memrl_core.analysis.rates import Rate, rate

COLUMNS = ("pool", "steps", "rated", "successes", "success", "low", "high")


@dataclass(frozen=True, slots=True, eq=False)
class Fallback:
    """Of `steps` decisions, `empty_steps` had an empty pool; `empty` and `filled` are the successes of both kinds.

    `sizes` has a row a pool size that occurred, smallest first: pool, steps, rated, successes, success, and the 95 %
    Wilson interval low … high (missing where nothing was rated).
    """

    steps: int
    empty_steps: int
    empty: Rate
    filled: Rate
    sizes: pd.DataFrame


def fallback(attempts: pd.DataFrame) -> Fallback:
    """The pool sizes of a run and what came of them (see `attempts.attempts`); steps without a decision do not count.

    Steps differ in more than their pool, and the first ones of a run have an empty one by nature: a difference between
    `empty` and `filled` is no proof that memory helps.
    """
    decided = attempts[attempts["pool"].notna()]
    is_empty = (decided["pool"] == 0).to_numpy(dtype=bool)
    rows = []
    for size, members in decided.groupby("pool"):
        won = rate(members["outcome"])
        rows.append((int(size), len(members), won.n, won.successes, won.share, won.low, won.high))
    return Fallback(
        len(decided),
        int(is_empty.sum()),
        rate(decided.loc[is_empty, "outcome"]),
        rate(decided.loc[~is_empty, "outcome"]),
        pd.DataFrame(rows, columns=list(COLUMNS)),
    )
