"""A recorded step decided again under other settings: same intent, same memory, same seed, no model call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memrl_core.agent.asking import view_before
from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.policies import make_policy
from memrl_core.policies.base import seed_of
from memrl_core.records import Decision, RecallRecord, StepTrace
from memrl_core.retrieval import exact_similarity, turns_of
from memrl_core.retrieval.view import MemoryView

NOT_REPLAYABLE = (
    "This step was recorded {what}, so it cannot be decided again. What was stored is shown; the live controls need a "
    "step of this program's agent, or one that was recorded with its embedding and decided by the same rules."
)


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a decision was made from: the intent's embedding `query` (d,), what the run saw, and the seed."""

    policy: str
    settings: Mapping[str, Any]
    query: npt.NDArray[np.float32]
    view: MemoryView
    seed: int


def situation_of(bank: MemoryBank, trace: StepTrace) -> Situation:
    """The situation in which a finished step decided; q of what it considered is taken from the step itself.

    Raises `InputError` when the step was recorded without what is needed, or by an agent whose rules are not known: its
    own choice is then not what this program's rules give.
    """
    if trace.embed is None:
        raise InputError(NOT_REPLAYABLE.format(what="without the embedding of its intent"))
    if trace.embed.decided_by:
        raise InputError(NOT_REPLAYABLE.format(what=f"with the similarities of {trace.embed.decided_by[:80]}"))
    if trace.decision is None or trace.recall is None:
        raise InputError(NOT_REPLAYABLE.format(what="without a decision"))
    if trace.origin == "import":
        raise InputError(NOT_REPLAYABLE.format(what="without the memory as it was then"))
    view = as_recorded(view_before(bank, trace), {c.memory_id: c.q for c in trace.decision.candidates})
    query = np.asarray(trace.embed.embedding, dtype=np.float32)
    situation = Situation(trace.policy, trace.settings, query, view, trace.decision.seed)
    if trace.origin == "recorder" and not _explains(situation, trace.recall, trace.decision):
        raise InputError(NOT_REPLAYABLE.format(what="by an agent that selects by rules of its own"))
    return situation


def _explains(situation: Situation, recall: RecallRecord, decision: Decision) -> bool:
    """Whether this program's rules give the pool and the selection that were recorded."""
    again, chosen = decided(situation)
    pool = {member.memory_id for member in recall.pool}
    return pool == {member.memory_id for member in again.pool} and same_choice(chosen, decision)


def as_recorded(view: MemoryView, recorded: Mapping[str, float]) -> MemoryView:
    """A view as the step saw it: a reward that came between the step's beginning and its decision counted already.

    `recorded` maps the memories that the step considered to the q it recorded; others keep the q of the view.
    """
    q = view.q.copy()
    for memory_id, value in recorded.items():
        position = view.rows.get(memory_id, -1) - view.first_row
        if 0 <= position < len(q):
            q[position] = value
    return replace(view, q=q)


def decided(situation: Situation, settings: Mapping[str, Any] | None = None) -> tuple[RecallRecord, Decision]:
    """Both phases in a situation, under its own or other settings. Raises `SettingsError` for a value out of range."""
    policy = make_policy(situation.policy, situation.settings if settings is None else settings)
    recall = policy.recall(situation.query, situation.view)
    return recall, policy.select(recall, situation.view, situation.seed)


def same_choice(one: Decision, other: Decision) -> bool:
    """Whether both put the same memories before the model, in any order."""
    return set(one.selected) == set(other.selected)


def rank_of(situation: Situation, memory_id: str) -> tuple[int, float]:
    """Where a memory stands by similarity among all that the run saw (1 = nearest), and its similarity.

    Raises `InputError` for a memory that the run did not know then.
    """
    view, query = situation.view, situation.query
    position = view.rows.get(memory_id, -1) - view.first_row
    known = 0 <= position < len(view.ids) and (view.visible is None or bool(view.visible[position]))
    if not known:
        raise InputError(f"The run did not know the memory {memory_id[:80]} at this step.")
    own = float(exact_similarity(view.embeddings[position : position + 1], query)[0])
    coarse = view.embeddings @ query
    if view.visible is not None:
        coarse[~view.visible] = -2
    near = np.flatnonzero(coarse >= own - 1e-4)
    exact = exact_similarity(view.embeddings[near], query)
    ahead = near < position
    if situation.settings.get("ties") == "seeded":
        turns = turns_of(near, view, seed_of(view))
        ahead = turns < turns[near == position]
    before = (exact > own) | ((exact == own) & ahead)
    return 1 + int(before.sum()), own
