"""Every candidate of every step of a run as one table, and what it says of the memories.

What is never recalled, duplicated or alone, how unevenly use is spread, and which memories help or mislead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from memrl_core.analysis.run.metrics import RATED
from memrl_core.bank import MemoryBank
from memrl_core.policies import outcome_of
from memrl_core.policies.base import FLOAT32_SLACK
from memrl_core.records import MISSED, Memory, Utility, UtilityPoint
from memrl_core.retrieval.view import MemoryView

ATTEMPT = ("step", "epoch", "task", "outcome", "reward")
COLUMNS = (
    *ATTEMPT, "memory_id", "similarity", "q", "rank_recall", "rank_select", "selected",
)  # fmt: skip


def attempts(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row per finished step (n, 6): step, epoch, task, outcome, reward, selected.

    `reward` is the one that counts now, and `outcome` follows from it. `selected` are the ids that went to the model,
    None where no decision was recorded.
    """
    frame = bank.steps.table(run, ATTEMPT).to_pandas()
    selected = {trace.step: trace.decision.selected for trace in bank.each_trace(run) if trace.decision is not None}
    frame["selected"] = pd.Series([selected.get(step) for step in frame["step"]], dtype=object)
    return _as_rated_now(frame, bank, run)


def uses(bank: MemoryBank, run: str) -> pd.DataFrame:
    """One row per member of a pool (n, 11), in the order of steps and ranks; see `COLUMNS`.

    `q` is the one before the step; `reward` is the one that counts now, with what people said since, and
    `outcome` follows from it. `rank_select` is missing where an agent reports no score.
    """
    seen = bank.steps.candidates(run, [*COLUMNS, "reason"]).to_pandas()
    frame = seen[~seen["reason"].isin(MISSED)].drop(columns="reason").reset_index(drop=True)
    return _as_rated_now(frame, bank, run)


def _as_rated_now(frame: pd.DataFrame, bank: MemoryBank, run: str) -> pd.DataFrame:
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


def left_out(uses: pd.DataFrame) -> pd.DataFrame:
    """One row per step that failed although its pool held an unselected memory with a q above those of all selected.

    Columns: step, task, selected and q_selected (the selected memory with the highest q), left_out and q_left_out (the
    unselected one with the highest), rank (by similarity, of the latter), and better, how many there were; the widest
    gap of q first. `outcome` is the one that counts now, and a step that selected nothing has nothing to compare.
    """
    failed = uses[uses["outcome"] == "failure"].sort_values(["step", "q"], ascending=[True, False], kind="stable")
    chosen = failed["selected"].astype(bool)
    best = failed[chosen].drop_duplicates("step").set_index("step")[["task", "memory_id", "q"]]
    best = best.rename(columns={"memory_id": "selected", "q": "q_selected"})
    rest = failed[~chosen].join(best[["q_selected"]], on="step")
    rest = rest[rest["q"] > rest["q_selected"]]
    first = rest.drop_duplicates("step").set_index("step")[["memory_id", "q", "rank_recall"]]
    first = first.rename(columns={"memory_id": "left_out", "q": "q_left_out", "rank_recall": "rank"})
    found = best.join(first, how="inner").join(rest.groupby("step").size().rename("better")).reset_index()
    gap = (found["q_left_out"] - found["q_selected"]).sort_values(ascending=False, kind="stable")
    return found.loc[gap.index].reset_index(drop=True)


def rated_by_people(bank: MemoryBank, run: str) -> dict[int, float | None]:
    """Steps whose reward may be another now than when they ended, with the one that counts."""
    return {step: bank.ratings.effective(run, step) for step in bank.ratings.steps(run)}


# --- what they say of the memories ------------------------------------------------------------------------------------

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
    """One row per memory that was ever in a pool (n, 11), most often pooled first.

    `pools` counts the steps in whose pool it was, `near` in how many of these it was among the k2 most similar,
    `selected` how often it was given to the model; `rank` is its mean rank by similarity; `success` the share of the
    rated steps it was given in that ended well; `q` is its utility now.
    """
    columns = [
        *("memory_id", "intent", "outcome", "q"),
        *("pools", "near", "selected"),
        *("rank", "similarity", "rated"),
    ]
    if uses.empty:
        return pd.DataFrame(columns=[*columns, "success"])
    by_memory = uses.assign(near=uses["rank_recall"] <= k2).groupby("memory_id", sort=False)
    table = by_memory.agg(
        pools=("step", "size"),
        near=("near", "sum"),
        selected=("selected", "sum"),
        rank=("rank_recall", "mean"),
        similarity=("similarity", "mean"),
    )
    rated = uses[uses["selected"] & uses["outcome"].isin(RATED)]
    won = (rated["outcome"] == "success").groupby(rated["memory_id"])
    table["rated"] = won.size().reindex(table.index).fillna(0).astype(int)
    table["success"] = won.mean().reindex(table.index)
    table = table.reset_index()
    table["q"] = [utilities[i].q if i in utilities else np.nan for i in table["memory_id"]]
    table["intent"] = [memories[i].intent if i in memories else "" for i in table["memory_id"]]
    table["outcome"] = [memories[i].outcome if i in memories else "" for i in table["memory_id"]]
    return table[[*columns, "success"]].sort_values("pools", ascending=False, kind="stable").reset_index(drop=True)


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


def harm(
    uses: pd.DataFrame, histories: Mapping[str, Sequence[UtilityPoint]], memories: Mapping[str, Memory]
) -> pd.DataFrame:
    """One row per memory that was ever given to the model (n, 7), the lowest sum of earned rewards first.

    `earned` is the sum of the rewards of the steps whose prompt held it, `failures` how many of its `uses` failed;
    `credited` is the sum of the rewards that moved its q, which differs where credit was shared out by hand or a
    method credits otherwise. `q` is its last.
    """
    given = uses[uses["selected"] & uses["reward"].notna()] if len(uses) else uses
    columns = ["memory_id", "uses", "failures", "earned", "credited", "q", "intent"]
    if given.empty:
        return pd.DataFrame(columns=columns)
    by_memory = given.assign(failed=given["outcome"] == "failure").groupby("memory_id")
    table = by_memory.agg(uses=("step", "size"), failures=("failed", "sum"), earned=("reward", "sum")).reset_index()
    points = [histories.get(memory_id, ()) for memory_id in table["memory_id"]]
    table["credited"] = [sum(point.reward for point in each if point.reward is not None) for each in points]
    table["q"] = [each[-1].after if each else np.nan for each in points]
    table["intent"] = [memories[i].intent if i in memories else "" for i in table["memory_id"]]
    return table[columns].sort_values(["earned", "credited", "memory_id"], kind="stable").reset_index(drop=True)


ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Starvation:
    """`never_recalled` were in no pool since they were written, `never_selected` in some but never given to the model.

    `duplicates` are groups of memories whose intents are at least `threshold` similar; `loners` have no other memory
    beyond the gate. `gini` is 0 when all memories are used alike and near 1 when few have all uses; None without uses.
    `lorenz` (n + 1, 2) is the curve behind it: share of memories, share of uses.
    """

    never_recalled: tuple[str, ...]
    never_selected: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    loners: tuple[str, ...]
    gini: float | None
    lorenz: npt.NDArray[np.float64]


def starvation(
    view: MemoryView,
    uses: pd.DataFrame,
    *,
    threshold: float,
    delta: float,
) -> Starvation:
    """What a run's memory holds and does not use; `uses` are its candidates (see `uses`)."""
    rows = view.positions()
    ids = [view.ids[int(row)] for row in rows]
    pooled = set(uses["memory_id"]) if len(uses) else set()
    counts = uses[uses["selected"]].groupby("memory_id").size() if len(uses) else pd.Series(dtype=int)
    used = np.array([int(counts.get(i, 0)) for i in ids])
    groups, nearest = _alike(view.embeddings[rows], threshold)
    return Starvation(
        never_recalled=tuple(i for i in ids if i not in pooled),
        never_selected=tuple(i for i, n in zip(ids, used, strict=True) if i in pooled and n == 0),
        duplicates=tuple(tuple(ids[row] for row in group) for group in groups),
        loners=tuple(i for i, near in zip(ids, nearest, strict=True) if near <= delta),
        gini=gini(used),
        lorenz=_lorenz(used),
    )


def gini(counts: npt.NDArray[np.int64]) -> float | None:
    """Gini's coefficient of non-negative counts (n,); None when there is nothing to share."""
    n, total = len(counts), int(counts.sum())
    if n == 0 or total == 0:
        return None
    ordered = np.sort(counts)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))


def _lorenz(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    total = int(counts.sum())
    if total == 0:
        return np.zeros((0, 2))
    share = np.concatenate([[0.0], np.cumsum(np.sort(counts)) / total])
    return np.column_stack([np.linspace(0, 1, len(share)), share])


def _alike(embeddings: npt.NDArray[np.float32], threshold: float) -> tuple[list[list[int]], npt.NDArray[np.float32]]:
    """Groups of rows joined by cosines of at least `threshold`, largest first, and each row's nearest other cosine."""
    n = len(embeddings)
    nearest = np.full(n, -1.0, dtype=np.float32)
    # The first row of each row's group; joined block by block, for pairs of equal intents are many.
    root = np.arange(n)
    for start in range(0, n, ROWS_AT_ONCE):
        block = embeddings[start : start + ROWS_AT_ONCE] @ embeddings.T
        own = np.arange(len(block))
        block[own, own + start] = -1
        nearest[start : start + len(block)] = block.max(axis=1, initial=-1)
        i, j = np.nonzero(block >= threshold - FLOAT32_SLACK)
        pairs = np.concatenate([i + start, np.arange(n)]), np.concatenate([j, root])
        _, label = connected_components(
            coo_array((np.ones(len(pairs[0]), dtype=bool), pairs), shape=(n, n)), directed=False
        )
        _, first = np.unique(label, return_index=True)
        root = first[label]
    groups: dict[int, list[int]] = {}
    for row, group in enumerate(root):
        groups.setdefault(int(group), []).append(row)
    return sorted((g for g in groups.values() if len(g) > 1), key=lambda g: (-len(g), g[0])), nearest
