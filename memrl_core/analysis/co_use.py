"""Which memories were given to the model together, and how it went with and without each other.

One reward goes to all of them (arXiv 2601.03192, section on limitations), so a memory that always comes along with a
good one earns credit that may not be its own. Nothing here proves what caused a success: compare with care.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from memrl_core.analysis.rates import RATED, Rate, rate

COLUMNS = ("first", "second", "together", "only_first", "only_second", "expected", "rated", "successes", "success")


@dataclass(frozen=True, slots=True)
class WithAndWithout:
    """Steps in whose pool a memory was, by whether it was also given to the model."""

    memory_id: str
    used: Rate
    passed_over: Rate


@dataclass(frozen=True, slots=True)
class Partner:
    """Steps that used a memory, by whether this partner was used beside it."""

    partner: str
    beside: Rate
    apart: Rate


def co_use(uses: pd.DataFrame) -> pd.DataFrame:
    """One row a pair that was given to the model together at least once (n, 9), the most frequent first.

    `together` counts their steps, `only_first` and `only_second` those of one without the other; `expected` is how
    often they would have met by chance, given how often each was used in the steps that used any memory. `success` is
    the share of `successes` among their `rated` steps, NaN when there are none.
    """
    chosen = uses.loc[uses["selected"], ["step", "memory_id", "outcome"]]
    pairs = chosen.merge(chosen[["step", "memory_id"]], on="step", suffixes=("", "_other"))
    pairs = pairs[pairs["memory_id"] < pairs["memory_id_other"]]
    if pairs.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    pairs = pairs.assign(rated=pairs["outcome"].isin(RATED), won=pairs["outcome"] == "success")
    table = (
        pairs.groupby(["memory_id", "memory_id_other"])
        .agg(together=("step", "size"), rated=("rated", "sum"), successes=("won", "sum"))
        .reset_index(names=["first", "second"])
    )
    counts, steps = chosen["memory_id"].value_counts(), chosen["step"].nunique()
    alone, other = table["first"].map(counts), table["second"].map(counts)
    table["only_first"], table["only_second"] = alone - table["together"], other - table["together"]
    table["expected"] = alone * other / steps
    table["success"] = table["successes"] / table["rated"].where(table["rated"] > 0)
    ordered = table.sort_values(["together", "first", "second"], ascending=[False, True, True], ignore_index=True)
    return ordered[list(COLUMNS)]


def with_and_without(uses: pd.DataFrame, memory_id: str) -> WithAndWithout:
    """How the steps ended that could have used a memory: those that did, and those that passed it over."""
    mine = uses[uses["memory_id"] == memory_id]
    return WithAndWithout(
        memory_id, rate(mine.loc[mine["selected"], "outcome"]), rate(mine.loc[~mine["selected"], "outcome"])
    )


def partners(uses: pd.DataFrame, memory_id: str) -> list[Partner]:
    """How a memory did beside each partner and without it, the most frequent partner first."""
    chosen = uses[uses["selected"]]
    outcome = chosen[chosen["memory_id"] == memory_id].set_index("step")["outcome"]
    others = chosen[chosen["step"].isin(outcome.index) & (chosen["memory_id"] != memory_id)]
    found = []
    for partner, steps in others.groupby("memory_id", sort=False)["step"]:
        beside = outcome.index.isin(steps)
        found.append((len(steps), Partner(str(partner), rate(outcome[beside]), rate(outcome[~beside]))))
    return [partner for _, partner in sorted(found, key=lambda pair: (-pair[0], pair[1].partner))]
