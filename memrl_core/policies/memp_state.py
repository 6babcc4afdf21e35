"""What MemP's run knows beyond q: stored facts, and the uses of memories that the run did not store itself.

Source: arXiv 2508.06433 and its released code for the rule of deletion. There every memory is the run's own; one that
another policy left comes with a q of another rule, by which the rule must not judge it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memrl_core.view import MemoryView

EXACT = 1e-9


@dataclass(slots=True)
class MempState:
    """What the steps of a run have stored and followed, by memory.

    `facts` are those of memories that were stored with some, `stored` the memories that the run's own steps wrote anew.
    `followed` counts the hits and successes of all others in this run.
    """

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    followed: dict[str, tuple[int, int]] = field(default_factory=dict)

    def follow(self, memory_id: str, won: bool) -> None:
        """Count a use of a memory that this run did not store."""
        if memory_id not in self.stored:
            hits, successes = self.followed.get(memory_id, (0, 0))
            self.followed[memory_id] = hits + 1, successes + won

    def store(self, memory_id: str, replaces: Sequence[str], facts: Mapping[str, str]) -> None:
        """Note a memory with its facts; one that takes the place of another goes on with that one's counts."""
        if facts:
            self.facts[memory_id] = dict(facts)
        if self.stored.issuperset(replaces):
            self.stored.add(memory_id)
        for before in replaces:
            if before in self.followed:
                self.followed[memory_id] = self.followed[before]


def failing(view: MemoryView, least_hits: int, least_rate: float) -> list[str]:
    """The memories with so many hits and a lower success rate, oldest first.

    The rate is q, and the hits are the visits, of what the run stored; of the others only its own uses count.
    """
    fails = (view.visits >= least_hits) & (view.q < least_rate - EXACT)
    if view.visible is not None:
        fails &= view.visible
    by_q = [view.ids[position] for position in np.flatnonzero(fails).tolist()]
    state = view.learned
    if not isinstance(state, MempState):
        return by_q
    others = [
        memory_id
        for memory_id, (hits, successes) in state.followed.items()
        if hits >= least_hits and successes / hits < least_rate - EXACT and view.sees(memory_id)
    ]
    return sorted((*state.stored.intersection(by_q), *others), key=view.position)
