"""Near-duplicates: which memories are copies of one another, and do they split what one of them would have earned?"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from memrl_core.analysis.starved import starvation
from memrl_core.retrieval import exact_similarity
from memrl_core.retrieval.view import MemoryView

NO_GATE = 1.0


@dataclass(frozen=True, slots=True)
class Copy:
    """One of a group: its q and visits, in how many pools it was, and how often it was given to the model."""

    memory_id: str
    q: float
    visits: int
    pools: int
    uses: int


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Memories joined by intents of at least the threshold's cosine, the most used first.

    Two ends of a chain may be less alike than the threshold: `least_alike` is the lowest cosine to the first memory.
    `q_mean` is weighted by visits (None without visits). `crowded_pools` and `crowded_prompts` count the steps in which
    at least two of them stood in the pool, or in the prompt.
    """

    members: tuple[Copy, ...]
    least_alike: float
    q_mean: float | None
    crowded_pools: int
    crowded_prompts: int

    @property
    def visits(self) -> int:
        """The visits of all of them together."""
        return sum(member.visits for member in self.members)

    @property
    def largest_share(self) -> float | None:
        """The part of the uses that the most used one has; None without uses. 1 / n: they split them evenly."""
        total = sum(member.uses for member in self.members)
        return max(member.uses for member in self.members) / total if total else None


def copies(view: MemoryView, uses: pd.DataFrame, threshold: float) -> list[CopyGroup]:
    """All groups of at least two memories, the largest first; `uses` are the run's (see `uses.uses`)."""
    groups = starvation(view, uses, threshold=threshold, delta=NO_GATE).duplicates
    group_of = {memory_id: number for number, group in enumerate(groups) for memory_id in group}
    mine = uses[uses["memory_id"].isin(group_of.keys())]
    chosen = mine[mine["selected"]]
    pools, used = mine["memory_id"].value_counts().to_dict(), chosen["memory_id"].value_counts().to_dict()
    in_pools, in_prompts = _crowded(mine, group_of), _crowded(chosen, group_of)
    found = []
    for number, group in enumerate(groups):
        rows = [view.position(memory_id) for memory_id in group]
        members = [
            Copy(memory_id, float(view.q[row]), int(view.visits[row]), pools.get(memory_id, 0), used.get(memory_id, 0))
            for memory_id, row in zip(group, rows, strict=True)
        ]
        visits = sum(member.visits for member in members)
        q_mean = sum(member.q * member.visits for member in members) / visits if visits else None
        members.sort(key=lambda member: (-member.uses, -member.visits))
        first = view.embeddings[view.position(members[0].memory_id)]
        least = float(exact_similarity(view.embeddings[rows], first).min())
        found.append(CopyGroup(tuple(members), least, q_mean, in_pools.get(number, 0), in_prompts.get(number, 0)))
    return found


def _crowded(uses: pd.DataFrame, group_of: dict[str, int]) -> dict[int, int]:
    """For each group, the steps that hold at least two of it."""
    sizes = uses.groupby([uses["memory_id"].map(group_of).rename("group"), "step"]).size()
    crowded = sizes[sizes > 1].groupby(level="group").size()
    return {int(group): int(steps) for group, steps in crowded.items()}
