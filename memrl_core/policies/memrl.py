"""MemRL: recall by similarity, rerank by learned utility, move the utility of what was used.

Source: arXiv 2601.03192 v2, sections on two-phase retrieval and utility update (eq. 4, 6, 7); where its official code
differs, a setting offers the code's way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from memrl_core.learning import updated_q
from memrl_core.policies.base import MemoryLookup, NewExperience, PolicySpec, Written
from memrl_core.prompting import first_messages
from memrl_core.records import (
    Decision,
    Memory,
    MemoryOperation,
    MemorySpan,
    Message,
    Outcome,
    RecallRecord,
    Utility,
    ValueChange,
)
from memrl_core.retrieval import recall, select
from memrl_core.settings import MemRLSettings
from memrl_core.view import MemoryView

SPEC = PolicySpec(
    name="memrl",
    title="MemRL",
    citation="arXiv 2601.03192",
    variant="paper",
    deviations=(
        "The paper leaves ties, pools of one and equal values open: equal values have z = 0, ties go to the more "
        "similar, then the older memory.",
        "ε-exploration is the official code's, not the paper's; it is off unless ε is above 0.",
    ),
)


class MemRL:
    """The policy of MemRL under given settings (a `Policy`)."""

    spec = SPEC

    def __init__(self, settings: MemRLSettings) -> None:
        self.settings = settings

    def recall(
        self, query: npt.NDArray[np.float32], view: MemoryView, coarse: npt.NDArray[np.float32] | None = None
    ) -> RecallRecord:
        """Phase A (eq. 6). The gate is `>` with the paper's normaliser and `>=` with the official code's."""
        return recall(
            query,
            view,
            k1=self.settings.k1,
            k1_counts=self.settings.k1_counts,
            delta=self.settings.delta,
            strict=self.settings.normaliser == "pool",
            coarse=coarse,
        )

    def select(self, recalled: RecallRecord, view: MemoryView, seed: int) -> Decision:
        """Phase B (eq. 7)."""
        rows = [view.position(seen.memory_id) for seen in (*recalled.pool, *recalled.left_out)]
        return select(
            recalled,
            view.q[rows],
            view.visits[rows],
            k2=self.settings.k2,
            weight=self.settings.weight,
            normaliser=self.settings.normaliser,
            fixed_mean=self.settings.fixed_mean,
            fixed_sd=self.settings.fixed_sd,
            epsilon=self.settings.epsilon,
            seed=seed,
        )

    def render(
        self, selected: Sequence[Memory], instructions: str, intent: str, observation: str
    ) -> tuple[tuple[Message, ...], tuple[MemorySpan, ...]]:
        """Two labelled blocks: memories to follow, memories to be cautious of."""
        return first_messages(instructions, selected, intent, observation)

    def reward_of(self, verdict: float) -> float:
        """r− at 0, r+ at 1, linear between."""
        low, high = self.settings.reward_failure, self.settings.reward_success
        return low + verdict * (high - low)

    def outcome_of(self, reward: float | None) -> Outcome:
        """Success above the middle of r− and r+, failure below it."""
        if reward is None or reward == self.settings.q_midpoint:
            return "unrated"
        return "success" if reward > self.settings.q_midpoint else "failure"

    def update(self, credited: Sequence[str], reward: float, values: Mapping[str, Utility]) -> tuple[ValueChange, ...]:
        """Eq. 4 for every memory that was in the prompt: one reward, full credit to each."""
        changes = []
        for memory_id in credited:
            before = values[memory_id]
            after = updated_q(before.q, reward, self.settings.alpha)
            changes.append(ValueChange(memory_id, before.q, after, before.visits + 1, reward, self.settings.alpha))
        return tuple(changes)

    def write(self, new: NewExperience, view: MemoryView, memories: MemoryLookup, parents: Sequence[str]) -> Written:
        """One new memory an episode, unless `duplicates` says otherwise (official code, `add_memories`)."""
        embedding, key, duplicate_of = new.embedding, intent_key(new.intent), None
        nearest = None if self.settings.duplicates == "keep" else self._same_intent(new, view)
        if nearest is not None:
            stored = memories.memory(view.ids[nearest])
            if self.settings.duplicates == "group":
                embedding, key = view.embeddings[nearest].copy(), stored.intent_key
            elif stored.outcome == new.outcome and stored.experience.split() == new.experience.split():
                duplicate_of = stored.id
        operation = MemoryOperation(
            op="ADD" if duplicate_of is None else "NOOP",
            memory_id=new.memory_id if duplicate_of is None else "",
            intent=new.intent,
            experience=new.experience,
            outcome=new.outcome,
            intent_key=key,
            q0=self.settings.q0_failure if new.outcome == "failure" else self.settings.q0_success,
            parents=tuple(parents),
            duplicate_of=duplicate_of,
        )
        return Written(operation, embedding)

    def _same_intent(self, new: NewExperience, view: MemoryView) -> int | None:
        """The position of the nearest memory, when it is near enough to count as the same intent."""
        if view.size == 0:
            return None
        similarity = view.embeddings @ new.embedding
        if view.visible is not None:
            similarity[~view.visible] = -2
        nearest = int(similarity.argmax())
        return nearest if similarity[nearest] >= self.settings.duplicate_threshold else None


def intent_key(intent: str) -> str:
    """Equal for equal intents; what k1 counts when it counts intents."""
    return hashlib.sha256(intent.strip().lower().encode()).hexdigest()[:16]
