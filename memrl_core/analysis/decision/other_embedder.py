"""A recorded step decided again on the vectors of another embedder: its intent and all that the run saw, embedded anew.

Nothing is stored; q, visits, settings and seed are those of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from memrl_core.analysis.decision.whatif import Situation, rank_of
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError
from memrl_core.models.base import Cancelled
from memrl_core.policies import make_policy
from memrl_core.records import Decision, RecallRecord
from memrl_core.retrieval.view import MemoryView

AT_ONCE = 64
MOST = 20_000
"""Memories that a step may have seen: their vectors are held in memory, and a server takes minutes for so many."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a memory stands for one embedder: its cosine, its rank by it, and what both phases made of it."""

    similarity: float
    rank: int
    in_pool: bool
    rank_select: int | None
    selected: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """A memory that either embedder brought to phase A's notice, `before` as recorded and `after` with the other."""

    memory_id: str
    before: Placed
    after: Placed


def embedded_anew(
    situation: Situation,
    embedder: Embedder,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Cancelled | None = None,
) -> Situation | None:
    """The same situation with the vectors that `embedder` makes; None when `cancelled()` turned true.

    `on_progress` hears how many of how many texts are embedded. Raises `InputError` where more than `MOST` memories
    were seen, or where memories are found by more than their intent, and `ModelError`.
    """
    view = situation.view
    policy = make_policy(situation.policy, situation.settings)
    if not policy.embeds_intents or view.learned is not None or view.asked is None:
        raise InputError(
            f"{policy.spec.title} finds memories by more than the vectors of their intents. Nothing was embedded; "
            "start a run of it in a bank of the other embedder."
        )
    if view.size > MOST:
        raise InputError(
            f"The run saw {view.size:,} memories at this step; at most {MOST:,} are embedded anew here. Nothing was "
            "embedded; `memrl reembed` makes a bank with the vectors of another embedder."
        )
    positions = view.positions()
    ids = [view.ids[position] for position in positions.tolist()]
    intents = [view.memories[memory_id].intent for memory_id in ids]
    texts = list(dict.fromkeys([policy.key(view.asked), *intents]))
    vectors = np.empty((len(texts), embedder.dimension), dtype=np.float32)
    for start in range(0, len(texts), AT_ONCE):
        if cancelled is not None and cancelled():
            return None
        batch = texts[start : start + AT_ONCE]
        vectors[start : start + len(batch)] = embedded(embedder, batch)
        if on_progress is not None:
            on_progress(start + len(batch), len(texts))
    row = {text: number for number, text in enumerate(texts)}
    anew = MemoryView(
        ids,
        vectors[[row[intent] for intent in intents]].reshape(-1, embedder.dimension),
        view.q[positions],
        view.visits[positions],
        view.intent_groups[positions],
        {memory_id: number for number, memory_id in enumerate(ids)},
        memories=view.memories,
        asked=replace(view.asked, embedding=vectors[0]),
    )
    return replace(situation, query=vectors[0], view=anew)


def moved(
    before: tuple[Situation, RecallRecord, Decision], after: tuple[Situation, RecallRecord, Decision]
) -> list[Moved]:
    """Every memory that phase A reports on with either embedder, those nearest with the new one first."""
    seen = dict.fromkeys(candidate.memory_id for _, _, made in (before, after) for candidate in made.candidates)
    found = [Moved(memory_id, _placed(*before, memory_id), _placed(*after, memory_id)) for memory_id in seen]
    return sorted(found, key=lambda one: one.after.rank)


def _placed(situation: Situation, recall: RecallRecord, decision: Decision, memory_id: str) -> Placed:
    rank, similarity = rank_of(situation, memory_id)
    candidate = next((c for c in decision.candidates if c.memory_id == memory_id), None)
    return Placed(
        similarity,
        rank,
        any(member.memory_id == memory_id for member in recall.pool),
        candidate.rank_select if candidate else None,
        memory_id in decision.selected,
    )
