"""Which memories mislead, and which help against appearances: tables over all steps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd

from memrl_core.records import Memory, Utility

Role = Literal["distractors", "far but useful", "corrective failures", "lucky successes"]
ROLES: Mapping[Role, str] = {
    "distractors": "Often among the k2 most similar, yet of poor q: they look right and mislead.",
    "far but useful": "Selected from beyond the k2 most similar, and of good q: similarity alone would miss them.",
    "corrective failures": "Memories of failures whose use went well: the warning is what helps.",
    "lucky successes": "Memories of successes whose use went badly: what worked once does not carry over.",
}
AT_LEAST = 3


def profile(
    uses: pd.DataFrame, utilities: Mapping[str, Utility], memories: Mapping[str, Memory], k2: int
) -> pd.DataFrame:
    """One row a memory that was ever in a pool (n, 11), most often pooled first.

    `pools` counts the steps in whose pool it was, `near` in how many of these it was among the k2 most similar,
    `selected` how often it was given to the model; `rank` is its mean rank by similarity; `success` the share of the
    rated steps it was given in that ended well; `q` is its utility now.
    """
    columns = [
        "memory_id",
        "intent",
        "outcome",
        "q",
        "pools",
        "near",
        "selected",
        "rank",
        "similarity",
        "rated",
        "success",
    ]
    if uses.empty:
        return pd.DataFrame(columns=columns)
    by_memory = uses.assign(near=uses["rank_recall"] <= k2).groupby("memory_id", sort=False)
    table = by_memory.agg(
        pools=("step", "size"),
        near=("near", "sum"),
        selected=("selected", "sum"),
        rank=("rank_recall", "mean"),
        similarity=("similarity", "mean"),
    )
    rated = uses[uses["selected"] & uses["outcome"].isin(["success", "failure"])]
    won = (rated["outcome"] == "success").groupby(rated["memory_id"])
    table["rated"] = won.size().reindex(table.index).fillna(0).astype(int)
    table["success"] = won.mean().reindex(table.index)
    table = table.reset_index()
    table["q"] = [utilities[i].q if i in utilities else np.nan for i in table["memory_id"]]
    table["intent"] = [memories[i].intent if i in memories else "" for i in table["memory_id"]]
    table["outcome"] = [memories[i].outcome if i in memories else "" for i in table["memory_id"]]
    return table[columns].sort_values("pools", ascending=False, kind="stable").reset_index(drop=True)


def with_role(profiles: pd.DataFrame, role: Role, middle: float, k2: int) -> pd.DataFrame:
    """The memories of one role, the clearest cases first. `middle` is the q that means nothing, between r− and r+."""
    p = profiles[profiles["pools"] >= AT_LEAST] if len(profiles) else profiles
    if role == "distractors":
        found = p[(p["near"] >= p["pools"] / 2) & (p["q"] < middle)]
        weight = (middle - found["q"]) * found["near"]
    elif role == "far but useful":
        found = p[(p["rank"] > k2) & (p["q"] > middle) & (p["selected"] > 0)]
        weight = (found["q"] - middle) * found["selected"]
    elif role == "corrective failures":
        found = p[(p["outcome"] == "failure") & (p["q"] > middle) & (p["rated"] > 0)]
        weight = found["success"] * found["rated"]
    else:
        found = p[(p["outcome"] == "success") & (p["q"] < middle) & (p["rated"] > 0)]
        weight = (1 - found["success"]) * found["rated"]
    return found.loc[weight.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
